package egress

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

// proxy serves one connection to the proxy: one request.
func (s *Server) proxy(ctx context.Context, l *link) {
	s.within(l, s.Limits.HeaderTimeout)
	head, rest, err := readHead(l.client, s.Limits.HeaderBytes)
	if err != nil && len(head) == 0 {
		return // connected and left: nothing was asked
	}
	q := parseRequest(head)
	switch {
	case errors.Is(err, errLarge):
		q.reason = LargeHeader
	case timedOut(err):
		q.reason = Timeout
	case err != nil:
		q.reason = Malformed
	case q.reason == "":
		q.reason = s.judge(q.host, q.port)
	}
	entry := s.log.add(q.attempt())
	if entry == full {
		q.reason = LogFull
	}
	if q.reason == "" {
		q.reason = s.connect(ctx, l, q, entry)
	}
	if q.reason != "" {
		s.within(l, lingering)
		answer(l.client, q.reason, q.host)
		linger(l.client)
		return
	}
	s.within(l, s.Limits.HelloTimeout)
	if _, err := io.WriteString(l.client, "HTTP/1.1 200 Connection established\r\n\r\n"); err != nil {
		return
	}
	s.tunnel(l, q, rest, entry)
}

// judge says why the list doesn't allow a host and port, or "".
func (s *Server) judge(host string, port uint16) string {
	reason := NotAllowed
	for _, e := range s.Allow {
		if e.Allows(host, port) {
			return ""
		}
		if len(e.Ports) > 0 && e.Allows(host, e.Ports[0]) {
			reason = BadPort
		}
	}
	return reason
}

// connect resolves the host, checks what came, and dials that. It says why the
// link has no target, or "", and logs it.
func (s *Server) connect(ctx context.Context, l *link, q request, entry int) string {
	addrs, reason := s.resolve(ctx, q.host)
	var target net.Conn
	if reason == "" {
		target, reason = s.dial(ctx, addrs, q.port, entry)
	}
	if reason == "" && !s.attach(l, target) {
		reason = Ended
	}
	switch reason {
	case "":
	case Ended:
		s.log.cut(entry, Ended)
	default:
		s.log.refuse(entry, reason)
	}
	return reason
}

func (s *Server) resolve(ctx context.Context, host string) ([]netip.Addr, string) {
	limited, cancel := context.WithTimeout(ctx, s.Limits.DialTimeout)
	defer cancel()
	addrs, err := s.Resolver.LookupNetIP(limited, "ip", host+".")
	switch {
	case ctx.Err() != nil:
		return nil, Ended
	case err != nil || len(addrs) == 0:
		return nil, NoName
	}
	checked := make([]netip.Addr, len(addrs)) // the resolver's slice may be its own
	for i, a := range addrs {
		if checked[i] = a.Unmap(); !public(checked[i]) {
			return nil, BadAddress
		}
	}
	return checked, ""
}

// dial tries one address after the other, in the order in which the resolver
// put them, each with its share of the time that is left: an IPv6 address that
// drops everything must not take it all.
func (s *Server) dial(ctx context.Context, addrs []netip.Addr, port uint16, entry int) (net.Conn, string) {
	limit := time.Now().Add(s.Limits.DialTimeout)
	for i, a := range addrs {
		at := netip.AddrPortFrom(a, port).String()
		s.log.update(entry, func(e *Attempt) { e.Address = at })
		share := time.Until(limit) / time.Duration(len(addrs)-i)
		limited, cancel := context.WithTimeout(ctx, share)
		c, err := s.Dial(limited, "tcp", at)
		cancel()
		if err == nil {
			return c, ""
		}
		if ctx.Err() != nil {
			return nil, Ended
		}
	}
	return nil, NoDial
}

// tunnel lets the process talk to its target once it has shown whom it means.
func (s *Server) tunnel(l *link, q request, rest []byte, entry int) {
	r := &helloReader{limit: s.Limits.HelloBytes}
	reason := readHello(l.client, r, rest)
	switch {
	case reason == "":
		reason = r.hello.reason(q.host)
	case reason == Timeout && s.isEnding():
		reason = Ended // Close was in a hurry, not the process late
	}
	sni := shown(r.hello.sni)
	s.log.update(entry, func(a *Attempt) { a.SNI = sni })
	switch reason {
	case "":
	case Ended:
		s.log.cut(entry, Ended)
		return
	default:
		s.log.refuse(entry, reason)
		if reason != NotTLS {
			s.within(l, lingering)
			l.client.Write(accessDenied)
			linger(l.client)
		}
		return
	}
	l.client.SetDeadline(time.Time{})
	s.carried(l, r.raw, entry)
}

// accessDenied is a fatal TLS alert (RFC 8446, 6.2), so that a client names a
// cause of the end.
var accessDenied = []byte{21, 3, 1, 0, 2, 2, 49}

// readHello reads until the ClientHello is whole. A process that leaves
// without a byte has only ended: clients connect ahead of need.
func readHello(c net.Conn, r *helloReader, rest []byte) string {
	buf := make([]byte, 16<<10)
	for p := rest; ; {
		whole, err := r.feed(p)
		switch {
		case whole:
			return ""
		case err != nil:
			return NotTLS
		}
		n, err := c.Read(buf)
		p = buf[:n]
		switch {
		case n > 0:
		case timedOut(err):
			return Timeout
		case len(r.raw) == 0:
			return Ended
		case err != nil:
			return NotTLS
		}
	}
}

// carried carries, and logs what was.
func (s *Server) carried(l *link, first []byte, entry int) {
	sent, received, cut := s.carry(l, first)
	s.log.update(entry, func(a *Attempt) { a.Sent, a.Received, a.Reason = sent, received, cut })
}

// forwarded is the attempt of a connection to a forward, which asks for nothing
// but the port.
func forwarded(f graph.Forward) Attempt {
	return Attempt{Via: ViaForward, Host: "127.0.0.1", Port: int(f.Port), Address: f.Target, Verdict: Allowed}
}

// forward serves one connection to a forward.
func (s *Server) forward(ctx context.Context, l *link, f graph.Forward) {
	entry := s.log.add(forwarded(f))
	if entry == full {
		return
	}
	limited, cancel := context.WithTimeout(ctx, s.Limits.DialTimeout)
	target, err := s.Dial(limited, "tcp", f.Target)
	cancel()
	switch {
	case err != nil && ctx.Err() == nil:
		s.log.refuse(entry, NoDial)
	case err != nil || !s.attach(l, target):
		s.log.cut(entry, Ended)
	default:
		s.carried(l, nil, entry)
	}
}

// answer refuses a request, and says why to whoever reads the client's output.
func answer(c net.Conn, reason, host string) {
	if host != "" {
		host = " " + host
	}
	body := fmt.Sprintf("the seal refuses%s: %s\n", host, reason)
	fmt.Fprintf(c, "HTTP/1.1 %s\r\nContent-Type: text/plain\r\nContent-Length: %d\r\nConnection: close\r\n\r\n%s", statuses[reason], len(body), body)
}

// lingering is the time that a client has to read why it was refused.
const lingering = time.Second

// linger reads on after the last word until the client closes, some time and
// bytes long: closing with bytes unread resets the connection, and the client
// would never read it.
func linger(c net.Conn) {
	if closeWrite(c) {
		io.Copy(io.Discard, io.LimitReader(c, 256<<10))
	}
}

func closeWrite(c net.Conn) bool {
	w, ok := c.(interface{ CloseWrite() error })
	return ok && w.CloseWrite() == nil
}

func isEOF(err error) bool { return errors.Is(err, io.EOF) }

func timedOut(err error) bool { return errors.Is(err, os.ErrDeadlineExceeded) }
