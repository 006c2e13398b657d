package egress

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"slices"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Resolver gives the addresses of a host; *net.Resolver is one. The host has
// a dot at the end: it is rooted, so that no search domain makes another name
// of it.
type Resolver interface {
	LookupNetIP(ctx context.Context, network, host string) ([]netip.Addr, error)
}

// Limits bound what one rep can take. Zero fields mean those of DefaultLimits.
type Limits struct {
	HeaderBytes   int           // of a request to the proxy
	HelloBytes    int           // of a ClientHello with its record headers
	HeaderTimeout time.Duration // from accepting to the end of the header
	DialTimeout   time.Duration // to resolve and to connect, each
	HelloTimeout  time.Duration // from the 200 to the end of the ClientHello
	IdleTimeout   time.Duration // without a byte in either direction
	CloseTimeout  time.Duration // that Close waits for a Dial or Resolver that won't end
	Connections   int           // at once
	Attempts      int           // in the log; all beyond are refused
}

// DefaultLimits are those of a Server that sets none. A model may think for
// minutes before its first byte: the idle time is longer.
var DefaultLimits = Limits{
	HeaderBytes:   16 << 10,
	HelloBytes:    64 << 10,
	HeaderTimeout: 10 * time.Second,
	DialTimeout:   30 * time.Second,
	HelloTimeout:  10 * time.Second,
	IdleTimeout:   15 * time.Minute,
	CloseTimeout:  2 * time.Second,
	Connections:   64,
	Attempts:      10_000,
}

// A Server is the egress of one rep. Set its fields before it serves; they are
// copied then, and nothing can change what the rep may do. Call Close once,
// when the rep is dead.
//
// Timeouts are deadlines of connections, which know real time only; so there
// is no clock to set.
type Server struct {
	Allow    []graph.Endpoint                                                  // empty: nothing
	Resolver Resolver                                                          // nil: net.DefaultResolver
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error) // nil: a net.Dialer; addr is IP:port, or a forward's target
	Limits   Limits

	once   sync.Once
	ctx    context.Context // done when Close begins
	cancel context.CancelFunc
	log    journal

	mu        sync.Mutex
	ending    bool // no connect and no tunnel starts any more
	ended     bool // no connection at all
	listeners map[net.Listener]bool
	links     map[*link]bool
	accepting sync.WaitGroup
	running   sync.WaitGroup
}

func (s *Server) start() {
	s.once.Do(func() {
		s.ctx, s.cancel = context.WithCancel(context.Background())
		s.listeners, s.links = map[net.Listener]bool{}, map[*link]bool{}
		s.Allow = slices.Clone(s.Allow)
		for i := range s.Allow {
			s.Allow[i].Ports = slices.Clone(s.Allow[i].Ports)
		}
		if s.Resolver == nil {
			s.Resolver = net.DefaultResolver
		}
		if s.Dial == nil {
			s.Dial = (&net.Dialer{}).DialContext
		}
		l, d := &s.Limits, DefaultLimits
		fill(&l.HeaderBytes, d.HeaderBytes)
		fill(&l.HelloBytes, d.HelloBytes)
		fill(&l.HeaderTimeout, d.HeaderTimeout)
		fill(&l.DialTimeout, d.DialTimeout)
		fill(&l.HelloTimeout, d.HelloTimeout)
		fill(&l.IdleTimeout, d.IdleTimeout)
		fill(&l.CloseTimeout, d.CloseTimeout)
		fill(&l.Connections, d.Connections)
		fill(&l.Attempts, d.Attempts)
		s.log.max = l.Attempts
	})
}

func fill[T int | time.Duration](v *T, d T) {
	if *v <= 0 {
		*v = d
	}
}

// ServeProxy begins to serve the proxy on ln, which is the Server's from here on,
// until Close, and returns at once: whatever is asked from here on is in the
// log, though the process may be dead before a goroutine has run. An ln that is no TCP listener loses at Close what it hasn't accepted.
func (s *Server) ServeProxy(ln net.Listener) {
	s.serve(ln, Attempt{Via: ViaConnect}, s.proxy)
}

// ServeForward carries what comes through ln to f.Target, as ServeProxy serves.
func (s *Server) ServeForward(ln net.Listener, f graph.Forward) {
	s.serve(ln, forwarded(f), func(ctx context.Context, l *link) { s.forward(ctx, l, f) })
}

func (s *Server) serve(ln net.Listener, asked Attempt, handle func(context.Context, *link)) {
	s.start()
	if s.listen(ln) {
		go s.accept(ln, asked, handle)
	} else {
		ln.Close()
	}
}

// accept accepts until there is nothing more to accept. asked is what is known
// of an attempt before its first byte.
func (s *Server) accept(ln net.Listener, asked Attempt, handle func(context.Context, *link)) {
	defer s.accepting.Done()
	defer ln.Close()
	var pause time.Duration
	for {
		ending := s.isEnding()
		if ending {
			if !backlog(ln) {
				return
			}
			setDeadline(ln, time.Now().Add(drain)) // in case that what stood there is gone
		}
		c, err := ln.Accept()
		switch {
		case err == nil:
			pause = 0
			s.accepted(c, asked, handle)
		case ending || errors.Is(err, net.ErrClosed):
			return
		case timedOut(err): // Close woke us up
		default:
			// No descriptors, or a client that has gone: try again, slowly.
			pause = min(max(2*pause, 5*time.Millisecond), time.Second)
			select {
			case <-time.After(pause):
			case <-s.ctx.Done():
			}
		}
	}
}

// accepted starts a handler, or turns the connection away.
func (s *Server) accepted(c net.Conn, asked Attempt, handle func(context.Context, *link)) {
	l := s.open(c)
	if l == nil {
		asked.Verdict, asked.Reason = Refused, Limit
		s.log.add(asked)
		// Not in a goroutine, or there would be no limit on these.
		if asked.Via == ViaConnect {
			c.SetDeadline(time.Now().Add(drain))
			answer(c, Limit, "")
			c.Read(make([]byte, 4096)) // closing with bytes unread would take the answer back
		}
		c.Close()
		return
	}
	go func() {
		defer s.release(l)
		handle(s.ctx, l)
	}()
}

// drain is how long Close lets what has already come in be read and logged:
// the process may have died right after it asked.
const drain = 20 * time.Millisecond

// A drainable listener can be woken up, and asked for its backlog.
type drainable interface {
	SetDeadline(time.Time) error
	syscall.Conn
}

// setDeadline ends an Accept; a listener that can't have that is closed.
func setDeadline(ln net.Listener, at time.Time) {
	if d, ok := ln.(drainable); ok {
		d.SetDeadline(at)
	} else {
		ln.Close()
	}
}

// backlog says whether a connection waits to be accepted. What a dead process
// asked for already stands there, so there is nothing to wait for: to Accept
// until a deadline took 20 ms of every run, and with a deadline that has passed
// it takes nothing.
func backlog(ln net.Listener) bool {
	d, ok := ln.(drainable)
	if !ok {
		return false // setDeadline closed it
	}
	raw, err := d.SyscallConn()
	if err != nil {
		return false
	}
	waits := false
	err = raw.Control(func(fd uintptr) {
		ask := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
		n, err := unix.Poll(ask, 0)
		for err == unix.EINTR {
			n, err = unix.Poll(ask, 0)
		}
		waits = n > 0
	})
	return err == nil && waits
}

// Close ends all connections, waits for what served them, and gives the log in
// the order in which was asked. What stands in listeners and sockets when it
// is called is still judged and logged, but nothing is dialled. A Dial or
// Resolver that ignores its context is left behind after CloseTimeout; what it
// brings is closed.
func (s *Server) Close() []Attempt {
	s.start()
	s.mu.Lock()
	s.ending = true
	for ln := range s.listeners {
		setDeadline(ln, time.Now())
	}
	for l := range s.links {
		if l.carrying {
			l.close()
		} else {
			l.client.SetDeadline(time.Now().Add(drain))
		}
	}
	s.mu.Unlock()
	s.cancel()
	limit := time.After(s.Limits.CloseTimeout)
	if wait(&s.accepting, limit) {
		wait(&s.running, limit)
	}
	s.mu.Lock()
	s.ended = true
	for ln := range s.listeners {
		ln.Close()
	}
	for l := range s.links {
		l.close()
	}
	s.mu.Unlock()
	return s.log.snapshot()
}

// wait says whether all of g ended before the limit.
func wait(g *sync.WaitGroup, limit <-chan time.Time) bool {
	done := make(chan struct{})
	go func() {
		g.Wait()
		close(done)
	}()
	select {
	case <-done:
		return true
	case <-limit:
		return false
	}
}

func (s *Server) isEnding() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ending
}

func (s *Server) listen(ln net.Listener) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		return false
	}
	s.listeners[ln] = true
	s.accepting.Add(1)
	return true
}
