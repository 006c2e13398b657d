package reapi

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbuild/eval/cas"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

const (
	// What gRPC servers take by default is 4 MiB, and hardly one takes more.
	maxMessage = 4 << 20
	// Servers may send larger ones; a result has no limit of its own.
	maxReceive = 16 << 20
	// How much may be on its way: with 64 KiB a link with a round trip of 20 ms
	// brings 3 MB/s, with 4 MiB 125 (measured). It is also what a connection
	// holds in memory if its readers are slow. gRPC's own estimate goes as high.
	window = 16 << 20
)

// Client speaks with one server. Its methods may be called from many goroutines.
type Client struct {
	name     string
	instance string
	prefer   cas.Func
	timeout  time.Duration
	md       metadata.MD
	secrets  []string

	// Large messages get connections of their own: behind 4 MiB of a blob a
	// small answer waits, however the streams are interleaved.
	small, large pool
	plainReads   atomic.Bool // compressed reads were refused where plain ones weren't
	local        bool        // on this machine compression only costs: half the speed of an upload

	mu     sync.Mutex
	server *server // what was learned from GetCapabilities
	asking *asking
	zstd   codec

	// Tests put their own in.
	now   func() time.Time
	after func(time.Duration, func()) (stop func() bool)
	wait  func(context.Context, time.Duration) error
}

// New makes a client. It connects when a call needs it; so the only errors are
// those of options and of PEM files.
func New(o Options) (*Client, error) {
	c, err := newClient(o)
	if err != nil {
		return nil, fmt.Errorf("remote cache: %w", err)
	}
	return c, nil
}

func newClient(o Options) (*Client, error) {
	a, err := parseAddress(o.Address)
	if err != nil {
		return nil, err
	}
	c := &Client{
		name: a.String(), instance: a.instance, local: a.local(), prefer: o.Prefer, timeout: o.Timeout,
		now: time.Now, wait: sleep,
		after: func(d time.Duration, f func()) func() bool { return time.AfterFunc(d, f).Stop },
	}
	if c.prefer == 0 {
		c.prefer = cas.BLAKE3
	}
	if _, err := cas.ParseFunc(c.prefer.String()); err != nil {
		return nil, err
	}
	switch {
	case c.timeout < 0:
		return nil, errors.New("negative timeout")
	case c.timeout == 0:
		c.timeout = DefaultTimeout
	}
	if c.md, c.secrets, err = o.headers(); err != nil {
		return nil, err
	}
	opts, err := o.dialOptions(a)
	if err != nil {
		return nil, err
	}
	target := "dns:///" + a.dial
	if a.unix {
		target = "passthrough:///unix"
	}
	if err := errors.Join(c.small.open(target, opts, 2, 100), c.large.open(target, opts, 2, 1)); err != nil {
		return nil, errors.Join(err, c.Close())
	}
	return c, nil
}

func (o Options) dialOptions(a address) ([]grpc.DialOption, error) {
	creds, err := o.credentials(a)
	if err != nil {
		return nil, err
	}
	opts := []grpc.DialOption{
		grpc.WithTransportCredentials(creds),
		grpc.WithUserAgent("eval"),
		// The environment is not ours to read, and retries are the caller's to count.
		grpc.WithNoProxy(), grpc.WithDisableServiceConfig(), grpc.WithDisableRetry(),
		grpc.WithInitialWindowSize(window), grpc.WithInitialConnWindowSize(window),
		grpc.WithReadBufferSize(128 << 10), grpc.WithWriteBufferSize(128 << 10),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxReceive), grpc.MaxCallSendMsgSize(maxReceive)),
		// A connection that a router forgot is noticed in 20 s, since sent bytes
		// stay unacknowledged. Pings more often than that of an idle stream would
		// make servers hang up.
		grpc.WithKeepaliveParams(keepalive.ClientParameters{Time: 60 * time.Second, Timeout: 20 * time.Second}),
		// A restarted server is back in a second or two; gRPC's own pauses are
		// longer than our retries.
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 50 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 2 * time.Second},
			MinConnectTimeout: 20 * time.Second,
		}),
	}
	if a.unix {
		opts = append(opts, grpc.WithAuthority("localhost"),
			grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) {
				return (&net.Dialer{}).DialContext(ctx, "unix", a.dial)
			}))
	}
	return opts, nil
}

// Name gives the address with the instance: for people, and to tell servers
// apart. It has no secrets.
func (c *Client) Name() string { return c.name }

// Close ends all calls and connections.
func (c *Client) Close() error {
	return errors.Join(c.small.close(), c.large.close())
}

// resource puts the instance before the name of a blob.
func (c *Client) resource(name string) string {
	if c.instance == "" {
		return name
	}
	return c.instance + "/" + name
}

func byteStream(conn *conn) bytestream.ByteStreamClient { return bytestream.NewByteStreamClient(conn) }

// pool is a few connections to the same server.
type pool struct {
	conns  []*conn
	spread int64 // calls on a connection before the next one is used as well
}

type conn struct {
	*grpc.ClientConn
	busy atomic.Int64
}

func (p *pool) open(target string, opts []grpc.DialOption, n int, spread int64) error {
	p.spread = spread
	for range n {
		cc, err := grpc.NewClient(target, opts...)
		if err != nil {
			return err
		}
		p.conns = append(p.conns, &conn{ClientConn: cc})
	}
	return nil
}

func (p *pool) close() error {
	var err error
	for _, c := range p.conns {
		if e := c.ClientConn.Close(); e != nil && codeOf(e) != codes.Canceled { // that is, closed before
			err = errors.Join(err, e)
		}
	}
	return err
}

// take picks a connection; done gives it back. Two callers may pick the same
// one: the numbers need not be exact.
func (p *pool) take() (c *conn, done func()) {
	best := p.conns[0]
	for _, c := range p.conns {
		n := c.busy.Load()
		if n < p.spread {
			best = c
			break
		}
		if n < best.busy.Load() {
			best = c
		}
	}
	best.busy.Add(1)
	return best, func() { best.busy.Add(-1) }
}

// undated hides a deadline. gRPC sends a deadline on, the server may then end
// the call a moment before we do, and it would look like the server's fault.
type undated struct{ context.Context }

func (undated) Deadline() (time.Time, bool) { return time.Time{}, false }

// attemptContext gives the context of one attempt, with our headers.
func (c *Client) attemptContext(ctx context.Context) (context.Context, context.CancelCauseFunc) {
	return context.WithCancelCause(metadata.NewOutgoingContext(undated{ctx}, c.md))
}

// patience is how long one call goes on: it ends when the server has given
// nothing for the timeout, or has failed too often in a row.
type patience struct {
	c     *Client
	until time.Time // zero: to be set when we next wait for the server
	tries int
	moved int64 // bytes since the last failure
	fresh int64 // bytes since the server last counted as alive
}

// guard calls cancel if the server gives nothing for what is left of the
// timeout. Between guards time doesn't count: it is the caller who is slow.
func (p *patience) guard(cancel context.CancelCauseFunc) (stop func() bool) {
	now := p.c.now()
	if p.until.IsZero() {
		p.until = now.Add(p.c.timeout)
	}
	return p.c.after(p.until.Sub(now), func() { cancel(errStalled) })
}

// progress notes that n bytes went over. A failure after a good piece is the
// first in a row again; a few bytes don't count, or a server that cuts after
// each would be tried for ever. Nor does a trickle count as life: that is leastPiece
// in each timeout.
func (p *patience) progress(n int64) {
	if p.fresh += n; p.fresh >= leastPiece {
		p.alive()
	}
	if p.moved += n; p.moved >= 1<<20 {
		p.tries = 0
	}
}

// alive notes that the server does something, though it may be in vain.
func (p *patience) alive() { p.until, p.fresh = time.Time{}, 0 }

// leastPiece is what a stream has to bring within a timeout, in bytes: with that
// of 60 s, a kilobyte a second.
const leastPiece = 64 << 10

// again waits before the next try, or reports that there is none.
func (p *patience) again(ctx context.Context, f failure) bool {
	if p.tries >= f.again {
		return false
	}
	now := p.c.now()
	if p.until.IsZero() {
		p.until = now.Add(p.c.timeout)
	}
	d := max(backoffOf(p.tries), f.wait)
	if now.Add(d).After(p.until) {
		return false
	}
	p.tries++
	p.moved = 0
	return p.c.wait(ctx, d) == nil
}

// backoffOf is 0.1, 0.3, 0.9 s, half of it up to one and a half of it, so that
// a server that comes back isn't met by everybody at once.
func backoffOf(tries int) time.Duration {
	d := 100 * time.Millisecond
	for range tries {
		d *= 3
	}
	return d/2 + rand.N(d)
}

func sleep(ctx context.Context, d time.Duration) error {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// unary makes one call, again if that may help.
func (c *Client) unary(ctx context.Context, p *pool, op, object string, u use, call func(context.Context, *conn) error) error {
	patient := patience{c: c}
	for {
		f, ok := c.attempt(ctx, p, &patient, u, call)
		if ok {
			return nil
		}
		if !patient.again(ctx, f) {
			return f.error(ctx, op, object)
		}
	}
}

func (c *Client) attempt(ctx context.Context, p *pool, patient *patience, u use, call func(context.Context, *conn) error) (failure, bool) {
	actx, cancel := c.attemptContext(ctx)
	defer cancel(nil)
	defer patient.guard(cancel)()
	conn, done := p.take()
	defer done()
	if err := call(actx, conn); err != nil {
		return c.classify(ctx, actx, u, err), false
	}
	return failure{}, true
}

// error makes the error of a call. A context that ended in a pause counts more
// than what went before.
func (f failure) error(ctx context.Context, op, object string) *Error {
	if err := ctx.Err(); err != nil {
		return &Error{Op: op, Object: object, Kind: Cancelled, Err: err}
	}
	return &Error{Op: op, Object: object, Kind: f.kind, Timeout: f.timeout, Vague: f.kind == Refused && f.again > 0, Err: f.err}
}
