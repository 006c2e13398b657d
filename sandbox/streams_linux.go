package sandbox

import (
	"bytes"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// A stream takes in what the process writes, up to a limit; it reads on beyond
// it, so that a loud process isn't stopped by a full pipe but by its own end.
type stream struct {
	fd    int
	limit int64
	buf   bytes.Buffer
	n     int64
}

func (s *stream) take(b []byte) {
	s.n += int64(len(b))
	if room := s.limit - int64(s.buf.Len()); room > 0 {
		s.buf.Write(b[:min(int64(len(b)), room)])
	}
}

func (s *stream) stream() Stream { return Stream{Data: s.buf.Bytes(), Total: s.n} }

// buffers are for reading streams.
var buffers = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// watch reads the process's streams until both have ended, which is when all of
// the namespace is dead: one thread in one poll, and no goroutine for each. At
// the deadline it ends the process itself.
func (r *run) watch(deadline time.Time) (late bool, err error) {
	b := buffers.Get().(*[64 << 10]byte)
	defer buffers.Put(b)
	streams := []*stream{&r.stdout, &r.stderr}
	fds := []unix.PollFd{{Fd: int32(r.stdout.fd), Events: unix.POLLIN}, {Fd: int32(r.stderr.fd), Events: unix.POLLIN}}
	for open := len(fds); open > 0; {
		timeout := -1
		if !late {
			if timeout = int(time.Until(deadline).Milliseconds()) + 1; timeout <= 0 {
				late = true
				r.kill()
				continue
			}
		}
		if _, err := unix.Poll(fds, timeout); err != nil && err != unix.EINTR {
			return late, err
		}
		for i := range fds {
			if fds[i].Fd < 0 || fds[i].Revents == 0 {
				continue
			}
			n, err := retry(func() (int, error) { return unix.Read(int(fds[i].Fd), b[:]) })
			switch {
			case err != nil:
				return late, err
			case n == 0:
				fds[i].Fd = -1 // poll skips it
				open--
			default:
				streams[i].take(b[:n])
			}
		}
	}
	return late, nil
}

// retry repeats a call that a signal interrupted.
func retry(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if err != unix.EINTR {
			return n, err
		}
	}
}
