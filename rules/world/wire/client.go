package wire

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"syscall"
	"time"
)

// maxReply bounds the body of a reply, in bytes; functions that read such files
// later take no more either.
const maxReply = 256 << 20

// A Client makes requests to one server, one after the other. It is safe for
// concurrent use.
//
// It has one connection and no http.Transport: that sends a GET, or a request
// with an Idempotency-Key, a second time when a connection that it used before is
// cut, which is the very thing that a scenario about lost replies must not have.
// A connection a call would do, too; an extractor makes 22 calls, and with its
// server spent half of its time on connections.
type Client struct {
	address string // host:port
	timeout time.Duration

	mu   sync.Mutex
	conn net.Conn // nil: none is open
	in   *bufio.Reader
}

// NewClient makes a client of the server at base, "http://host:port". A request
// that is not answered within timeout is an error.
func NewClient(base string, timeout time.Duration) (*Client, error) {
	u, err := url.Parse(base)
	if err != nil {
		return nil, fmt.Errorf("world URL %q: %w", base, err)
	}
	if u.Scheme != "http" || u.Hostname() == "" || u.Port() == "" || strings.Trim(u.Path, "/") != "" || u.RawQuery != "" || u.Fragment != "" {
		return nil, fmt.Errorf("world URL %q: http://host:port is meant", base)
	}
	return &Client{address: u.Host, timeout: timeout}, nil
}

// A Request is what is sent. Target is the escaped path with its query; a nil
// Body sends none, else it is JSON; an empty Key sends no Idempotency-Key.
type Request struct {
	Method, Target string
	Key            string
	Body           []byte
}

// Check says whether r can be sent at all.
func (r Request) Check() error {
	if err := r.check(); err != nil {
		return fmt.Errorf("request %q: %w", r.String(), err)
	}
	return nil
}

// String is the request as errors quote it.
func (r Request) String() string { return shorten(r.Method + " " + r.Target) }

func (r Request) check() error {
	if err := CheckMethod(r.Method); err != nil {
		return err
	}
	if !strings.HasPrefix(r.Target, "/") {
		return errors.New("a path begins with /")
	}
	for _, c := range []byte(r.Target) {
		if c <= ' ' || c == 0x7f || c == '#' {
			return fmt.Errorf("the character %q must be escaped", c)
		}
	}
	if _, err := url.ParseRequestURI(r.Target); err != nil {
		return errors.New("the path doesn't parse")
	}
	return CheckKey(r.Key)
}

// A Reply is what the server answered. Delivered false: it cut the connection
// before the reply was whole; then Status is 0 and Body nil.
type Reply struct {
	Delivered bool
	Status    int
	Body      []byte
}

// Failed says whether the caller has to take the call as failed.
func (r Reply) Failed() bool { return !r.Delivered || r.Status >= 400 }

// Do sends r once and reads the whole reply.
func (c *Client) Do(ctx context.Context, r Request) (Reply, error) {
	if err := r.Check(); err != nil {
		return Reply{}, err
	}
	waiting, stop := context.WithTimeout(ctx, c.timeout)
	defer stop()
	reply, err := c.attempt(waiting, r)
	switch {
	case err == nil:
		return reply, nil
	case ctx.Err() != nil:
		return Reply{}, ctx.Err()
	case waiting.Err() != nil:
		return Reply{}, fmt.Errorf("request %s: no reply within %v", r, c.timeout)
	case wasCut(err):
		return Reply{}, nil
	}
	return Reply{}, fmt.Errorf("request %s: %w", r, err)
}

func (c *Client) attempt(ctx context.Context, r Request) (Reply, error) {
	var body io.Reader
	if r.Body != nil {
		body = bytes.NewReader(r.Body)
	}
	req, err := http.NewRequestWithContext(ctx, r.Method, "http://"+c.address+r.Target, body)
	if err != nil {
		return Reply{}, err
	}
	if r.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if r.Key != "" {
		req.Header.Set("Idempotency-Key", r.Key)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.conn == nil {
		if c.conn, err = new(net.Dialer).DialContext(ctx, "tcp", c.address); err != nil {
			return Reply{}, err
		}
		c.in = bufio.NewReader(c.conn)
	}
	reply, keep, err := c.exchange(ctx, req)
	if err != nil || !keep {
		c.conn.Close()
		c.conn = nil
	}
	return reply, err
}

// exchange sends a request and reads its reply. keep says that the connection can
// be used again.
func (c *Client) exchange(ctx context.Context, req *http.Request) (reply Reply, keep bool, err error) {
	conn := c.conn
	stop := context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })
	defer func() { keep = stop() && keep }() // else a deadline that has passed may be set at any time
	if err := req.Write(conn); err != nil {
		return Reply{}, false, err
	}
	resp, err := http.ReadResponse(c.in, req)
	if err != nil {
		return Reply{}, false, err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, maxReply+1))
	if err != nil {
		return Reply{}, false, err
	}
	if len(data) > maxReply {
		return Reply{}, false, fmt.Errorf("the reply has more than %d bytes", maxReply)
	}
	return Reply{Delivered: true, Status: resp.StatusCode, Body: data}, !resp.Close, nil
}

// wasCut lists the errors of a connection that was up and was then closed by
// the other side. Everything else (refused, a malformed reply) is no lost reply.
func wasCut(err error) bool {
	for _, cut := range []error{io.EOF, io.ErrUnexpectedEOF, syscall.ECONNRESET, syscall.EPIPE} {
		if errors.Is(err, cut) {
			return true
		}
	}
	return false
}
