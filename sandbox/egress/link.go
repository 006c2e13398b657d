package egress

import (
	"net"
	"sync/atomic"
	"time"
)

// A link is one connection of the process, with that to its target once there
// is one. Its state (which ends it has, whether it carries) changes under
// Server.mu only, since Close may come at any time.
type link struct {
	client, target net.Conn
	carrying       bool
}

func (l *link) close() {
	l.client.Close()
	if l.target != nil {
		l.target.Close()
	}
}

// open takes a connection in; nil if there are too many, or at the end.
func (s *Server) open(c net.Conn) *link {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended || len(s.links) >= s.Limits.Connections {
		return nil
	}
	l := &link{client: c}
	s.links[l] = true
	s.running.Add(1)
	return l
}

func (s *Server) release(l *link) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.close()
	delete(s.links, l)
	s.running.Done()
}

// within gives the process d from now for what it reads and writes; less at
// the end.
func (s *Server) within(l *link, d time.Duration) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		d = min(d, drain)
	}
	l.client.SetDeadline(time.Now().Add(d))
}

// attach gives the link its target, if it isn't too late for one.
func (s *Server) attach(l *link, target net.Conn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ending {
		target.Close()
		return false
	}
	l.target = target
	return true
}

// carry copies both ways until both directions have ended, one has failed, or
// nothing has moved for the idle time. first goes to the target before all.
// It says how many bytes went each way, and why it was cut, or "".
func (s *Server) carry(l *link, first []byte) (sent, received int64, cut string) {
	s.mu.Lock()
	if s.ending {
		s.mu.Unlock()
		return 0, 0, Ended
	}
	l.carrying = true
	s.mu.Unlock()
	t := &tunnel{idle: s.Limits.IdleTimeout}
	t.moved()
	done := make(chan struct{})
	go func() {
		defer close(done)
		t.copy(l.client, l.target, nil, &t.received)
	}()
	t.copy(l.target, l.client, first, &t.sent)
	<-done
	if t.idled.Load() {
		cut = Idle
	}
	return t.sent.Load(), t.received.Load(), cut
}

// A tunnel is what both directions of a link share.
type tunnel struct {
	idle           time.Duration
	last           atomic.Int64 // when a byte moved, either way; Unix nanoseconds
	sent, received atomic.Int64
	idled          atomic.Bool
}

func (t *tunnel) moved() { t.last.Store(time.Now().UnixNano()) }

// deadline is when the tunnel has idled long enough, if nothing moves.
func (t *tunnel) deadline() time.Time { return time.Unix(0, t.last.Load()).Add(t.idle) }

// copy copies one direction, first before all. At the end of src it half-closes
// dst, so that an answer can still come; on an error it closes both, which ends
// the other direction too.
func (t *tunnel) copy(dst, src net.Conn, first []byte, count *atomic.Int64) {
	fail := func() {
		dst.Close()
		src.Close()
	}
	if len(first) > 0 && !t.write(dst, first, count) {
		fail()
		return
	}
	buf := make([]byte, 32<<10)
	for {
		src.SetReadDeadline(t.deadline())
		n, err := src.Read(buf)
		if n > 0 {
			t.moved()
			if !t.write(dst, buf[:n], count) {
				fail()
				return
			}
		}
		switch {
		case err == nil:
		case timedOut(err):
			if time.Now().Before(t.deadline()) {
				continue // the other direction moved
			}
			t.idled.Store(true)
			fail()
			return
		case isEOF(err) && closeWrite(dst):
			return
		default:
			fail()
			return
		}
	}
}

// write writes all of p. A reader that takes nothing for the idle time ends
// the tunnel, whatever the other direction does.
func (t *tunnel) write(dst net.Conn, p []byte, count *atomic.Int64) bool {
	for len(p) > 0 {
		dst.SetWriteDeadline(time.Now().Add(t.idle))
		n, err := dst.Write(p[:min(len(p), 16<<10)])
		count.Add(int64(n))
		if n > 0 {
			t.moved()
		}
		if err != nil {
			if timedOut(err) {
				t.idled.Store(true)
			}
			return false
		}
		p = p[n:]
	}
	return true
}
