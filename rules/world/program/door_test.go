package program

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/evalbuild/eval/rules/world/wire"
)

// A session is a server with its control socket, in this process.
type session struct {
	t       *testing.T
	address string
	control *net.UnixConn
	stdin   *os.File
	ended   chan error

	mu   sync.Mutex
	seen []string // bodies that came whole, sorted
}

func newSession(t *testing.T) *session {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours := os.NewFile(uintptr(fds[0]), "control")
	defer ours.Close()
	control, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	s := &session{t: t, control: control.(*net.UnixConn), stdin: os.NewFile(uintptr(fds[1]), "stdin"), ended: make(chan error, 1)}
	t.Cleanup(func() { s.stdin.Close() })
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	s.address = ln.Addr().String()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, _, err := s.control.WriteMsgUnix([]byte("l"), syscall.UnixRights(int(f.Fd())), nil); err != nil {
		t.Fatal(err)
	}
	return s
}

func (s *session) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	s.mu.Lock()
	s.seen = append(s.seen, string(body))
	slices.Sort(s.seen)
	s.mu.Unlock()
	if string(body) == "cut" {
		wire.Cut(w)
		return
	}
	fmt.Fprint(w, strings.Repeat("reply", 1000)) // more than is kept back, so it is written at once
}

func (s *session) serve() { go func() { s.ended <- ServeUntilEnd(s.t.Context(), s.stdin, s) }() }

// end is the client's end.
func (s *session) end() {
	s.t.Helper()
	s.control.Close()
	if err := <-s.ended; err != nil {
		s.t.Error(err)
	}
}

// send sends texts on a new connection, and goes without reading.
func (s *session) send(texts ...string) {
	s.t.Helper()
	c, err := net.Dial("tcp", s.address)
	if err != nil {
		s.t.Fatal(err)
	}
	defer c.Close()
	if _, err := io.WriteString(c, strings.Join(texts, "")); err != nil {
		s.t.Fatal(err)
	}
}

func post(body string) string {
	return fmt.Sprintf("POST /x HTTP/1.1\r\nHost: w\r\nContent-Length: %d\r\n\r\n%s", len(body), body)
}

// TestWhatWasSentIsServed: a client that sends and is gone has made its call, each
// time, also one that stands behind another on its connection; and what isn't
// whole is no call, each time.
func TestWhatWasSentIsServed(t *testing.T) {
	for n := range 50 {
		s := newSession(t)
		if n%2 == 0 { // else all is over before the server has begun
			s.serve()
		}
		whole := post("half")
		s.send(whole[:len(whole)-1])
		s.send(post("one"))
		s.send(whole[:10])
		s.send(post("two"), post("three"), post("four"), whole[:len(whole)-2])
		s.send(post("cut"))
		if n%2 == 1 {
			s.serve()
		}
		s.end()
		if got, want := strings.Join(s.seen, " "), "cut four one three two"; got != want {
			t.Fatalf("round %d: served %s; want %s", n, got, want)
		}
	}
}

// TestDoorCounts: there are never more connections than places, and one that
// ends makes room, whichever way it ends.
func TestDoorCounts(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	d := newDoor(ln.(*net.TCPListener))
	defer d.Close()
	var conns []net.Conn
	for range maxConnections + 1 {
		c, err := net.Dial("tcp", ln.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if len(conns) < maxConnections {
			c, err := d.Accept()
			if err != nil {
				t.Fatal(err)
			}
			conns = append(conns, c)
		}
	}
	accepted := make(chan net.Conn)
	go func() {
		c, err := d.Accept()
		if err != nil {
			t.Error(err)
		}
		accepted <- c
	}()
	if len(d.slots) != maxConnections {
		t.Errorf("%d places are taken", len(d.slots))
	}
	select {
	case <-accepted:
		t.Error("there was no place for the last one")
	default:
	}
	conns[0].Close()
	conns[0].Close() // the second time counts for nothing
	conns[0] = <-accepted
	if len(d.slots) != maxConnections {
		t.Errorf("%d places are taken after one was given on", len(d.slots))
	}
	for _, c := range conns {
		c.Close()
	}
	d.open.Wait()
	close(d.ended)
	if _, err := d.Accept(); !errors.Is(err, errEnded) || len(d.slots) != 0 {
		t.Errorf("after the end: %v, %d places are taken", err, len(d.slots))
	}
}
