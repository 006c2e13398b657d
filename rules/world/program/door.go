package program

import (
	"errors"
	"net"
	"net/http"
	"os"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxConnections are open at once; the next ones wait to be accepted. It bounds
// the memory that a client can take, and is more than any needs.
const maxConnections = 128

// endTime bounds how long what a client has sent before its end may take. Its
// connections end with it, so it is for one that somebody else holds.
const endTime = 5 * time.Second

// acceptTime is for a connection that was seen and has gone again.
const acceptTime = 20 * time.Millisecond

// A door is a listener that knows which connections are open, and when the client
// has ended gives those that it had still made, and then no more.
type door struct {
	*net.TCPListener
	slots chan struct{} // one for each open connection
	ended chan struct{} // closed when the client has ended
	open  sync.WaitGroup
}

func newDoor(ln *net.TCPListener) *door {
	return &door{TCPListener: ln, slots: make(chan struct{}, maxConnections), ended: make(chan struct{})}
}

var errEnded = errors.New("the client has ended")

// Accept waits for a connection and a place for it.
func (d *door) Accept() (net.Conn, error) {
	d.slots <- struct{}{}
	for {
		ended := d.hasEnded()
		if ended {
			if !d.backlog() {
				<-d.slots
				return nil, errEnded
			}
			d.SetDeadline(time.Now().Add(acceptTime))
		}
		c, err := d.AcceptTCP()
		switch {
		case err == nil:
			d.open.Add(1)
			return &conn{TCPConn: c, door: d}, nil
		case errors.Is(err, os.ErrDeadlineExceeded): // drain woke us up, or what stood there is gone
		default:
			<-d.slots
			return nil, err
		}
	}
}

func (d *door) hasEnded() bool {
	select {
	case <-d.ended:
		return true
	default:
		return false
	}
}

// backlog says whether a connection waits to be accepted. What a dead client asked
// for already stands there.
func (d *door) backlog() bool {
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

// drain returns when srv, which serves d, has answered all that the client sent
// before its end. served gets what srv.Serve returned.
//
// http.Server.Shutdown won't do: it closes connections that wait for a request,
// whether or not one has come, so what an agent had sent last was in the log or
// not by chance.
func (d *door) drain(srv *http.Server, served <-chan error) {
	stop := time.AfterFunc(endTime, func() { srv.Close() })
	defer stop.Stop()
	close(d.ended)
	d.SetDeadline(time.Now())
	<-served
	d.open.Wait()
}

// A conn is a connection of the client.
type conn struct {
	*net.TCPConn
	door *door
	once sync.Once
}

// Write doesn't fail if there is nobody to read: the server would serve nothing
// else that has come on the connection.
func (c *conn) Write(b []byte) (int, error) {
	n, err := c.TCPConn.Write(b)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return len(b), nil
	}
	return n, err
}

func (c *conn) Close() error {
	err := c.TCPConn.Close()
	c.once.Do(func() {
		<-c.door.slots
		c.door.open.Done()
	})
	return err
}
