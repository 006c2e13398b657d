package egress

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestHeaderTimeout(t *testing.T) {
	r := newRig(t, func(r *rig) { r.Limits.HeaderTimeout = 30 * time.Millisecond })
	c := r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n")
	if code, _ := status(t, c); code != 408 {
		t.Errorf("code %d", code)
	}
	c.Close()
	r.want("connect allowed.example:443 refused timeout")
}

// A connection that never asks isn't an attempt.
func TestSilent(t *testing.T) {
	r := newRig(t, func(r *rig) { r.Limits.HeaderTimeout = 20 * time.Millisecond })
	c := r.connect("")
	if b, err := io.ReadAll(c); len(b) > 0 || err != nil {
		t.Errorf("%q, %v", b, err)
	}
	if list := r.end(); len(list) > 0 {
		t.Errorf("logged %s", lines(list))
	}
}

func TestConnectionLimit(t *testing.T) {
	r, client, _ := fakeTunnel(t, Limits{Connections: 1})
	c := r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")
	if code, _ := status(t, c); code != 503 {
		t.Errorf("code %d", code)
	}
	client.Close()
	list := r.end()
	if len(list) != 2 || brief(list[1]) != "connect :0 refused limit" {
		t.Errorf("logged %s", lines(list))
	}
}

func TestLogFull(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.Limits.Attempts = 2
		r.target(allowedIP+":443", echo)
	})
	for i := range 5 {
		want := 403
		host := "other.example"
		if i >= 2 {
			want, host = 503, allowed // not even what is allowed
		}
		c := r.connect("CONNECT " + host + ":443 HTTP/1.1\r\n\r\n")
		if code, _ := status(t, c); code != want {
			t.Errorf("attempt %d: %d", i, code)
		}
		c.Close()
	}
	list := r.end()
	last := list[len(list)-1]
	if len(list) != 3 || last.More != 3 || last.Reason != LogFull || last.Seq != 3 || len(r.dialled) > 0 {
		t.Errorf("dialled %v, logged %s", r.dialled, lines(list))
	}
}

func TestForward(t *testing.T) {
	r := newRig(t, func(r *rig) { r.target("127.0.0.1:11434", echo) })
	ln, dead := listen(t), listen(t)
	r.serving.Go(func() { r.ServeForward(ln, graph.Forward{Port: 8080, Target: "127.0.0.1:11434"}) })
	r.serving.Go(func() { r.ServeForward(dead, graph.Forward{Port: 8081, Target: "model.local:1"}) })
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(c, "plain")
	c.(*net.TCPConn).CloseWrite()
	if b, err := io.ReadAll(c); string(b) != "plainbye" {
		t.Errorf("%q, %v", b, err)
	}
	c.Close()
	if c, err = net.Dial("tcp", dead.Addr().String()); err != nil {
		t.Fatal(err)
	}
	if b, _ := io.ReadAll(c); len(b) > 0 {
		t.Errorf("%q", b)
	}
	c.Close()
	want := `{"address":"127.0.0.1:11434","host":"127.0.0.1","port":8080,"received":8,"sent":5,"seq":1,"verdict":"allowed","via":"forward"}
{"address":"model.local:1","host":"127.0.0.1","port":8081,"reason":"dial","received":0,"sent":0,"seq":2,"verdict":"refused","via":"forward"}
`
	if got := lines(r.end()); got != want {
		t.Errorf("logged\n%swant\n%s", got, want)
	}
}

// The process died right after it asked: what it left behind is still judged,
// and nothing is dialled.
func TestCloseDrains(t *testing.T) {
	var list []net.Conn
	r := newRig(t, func(r *rig) {
		r.proxy = &lateListener{TCPListener: r.proxy.(*net.TCPListener), open: make(chan struct{})}
		r.target(allowedIP+":443", echo)
	})
	late := r.proxy.(*lateListener)
	for _, host := range []string{"other.example", allowed, "third.example"} {
		list = append(list, r.connect("CONNECT "+host+":443 HTTP/1.1\r\n\r\n"))
	}
	for _, c := range list {
		c.Close()
	}
	time.AfterFunc(5*time.Millisecond, func() { close(late.open) })
	got := map[string]bool{}
	for _, a := range r.end() {
		got[brief(a)] = true
	}
	for _, want := range []string{"connect other.example:443 refused not-allowed", "connect allowed.example:443 allowed closed", "connect third.example:443 refused not-allowed"} {
		if !got[want] {
			t.Errorf("%q isn't in %v", want, got)
		}
	}
	if len(r.dialled) > 0 {
		t.Errorf("dialled %v", r.dialled)
	}
}

// A lateListener accepts nothing until it is open, as on a busy machine.
type lateListener struct {
	*net.TCPListener
	open chan struct{}
}

func (l *lateListener) Accept() (net.Conn, error) {
	<-l.open
	return l.TCPListener.Accept()
}

// A server that nothing is asked of costs its run nothing. The best of some,
// since the machine may be busy.
func TestCloseIdle(t *testing.T) {
	best := time.Hour
	for range 20 {
		s := idle(t)
		start := time.Now()
		if list := s.Close(); len(list) != 0 {
			t.Errorf("logged %s", lines(list))
		}
		best = min(best, time.Since(start))
	}
	if best > time.Millisecond {
		t.Errorf("Close took %v", best)
	}
}

func BenchmarkCloseIdle(b *testing.B) {
	for range b.N {
		b.StopTimer()
		s := idle(b)
		b.StartTimer()
		s.Close()
	}
}

func TestCloseCuts(t *testing.T) {
	r, client, target := fakeTunnel(t, Limits{})
	waiting := r.tunnel("allowed.example:443") // for a ClientHello
	start := time.Now()
	list := r.end()
	if d := time.Since(start); d > time.Second {
		t.Errorf("Close took %v", d)
	}
	for _, c := range []net.Conn{client, target, waiting} {
		if n, err := c.Read(make([]byte, 1)); err == nil || timedOut(err) {
			t.Errorf("after Close: %d, %v", n, err)
		}
	}
	if len(list) != 2 || list[0].Sent == 0 || brief(list[1]) != "connect allowed.example:443 allowed closed" {
		t.Errorf("logged %s", lines(list))
	}
}

// A Dial that doesn't heed its context is left behind, and its connection isn't
// kept.
func TestCloseIsBounded(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	ours, theirs := net.Pipe()
	r := newRig(t, func(r *rig) {
		r.Limits.CloseTimeout = 60 * time.Millisecond
		r.Dial = func(context.Context, string, string) (net.Conn, error) {
			close(entered)
			<-leave
			return ours, nil
		}
	})
	r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")
	<-entered
	r.want("connect allowed.example:443 allowed")
	close(leave)
	if _, err := theirs.Read(make([]byte, 1)); !errors.Is(err, io.EOF) {
		t.Errorf("the late connection: %v", err)
	}
}

// Close ends a Dial, also that of a forward.
func TestCloseEndsDial(t *testing.T) {
	entered := make(chan struct{})
	s := &Server{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
		close(entered)
		<-ctx.Done()
		return nil, ctx.Err()
	}}
	ln := listen(t)
	go s.ServeForward(ln, graph.Forward{Port: 1, Target: "127.0.0.1:1"})
	c, err := net.Dial("tcp", ln.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	<-entered
	if list := s.Close(); len(list) != 1 || brief(list[0]) != "forward 127.0.0.1:1 allowed closed" {
		t.Errorf("logged %s", lines(list))
	}
}

// idle gives a Server that waits in Accept, with listeners for a proxy and a
// forward.
func idle(tb testing.TB) *Server {
	s := &Server{}
	s.start()
	for _, serve := range []func(net.Listener){
		s.ServeProxy,
		func(ln net.Listener) { s.ServeForward(ln, graph.Forward{Port: 1, Target: "127.0.0.1:1"}) },
	} {
		open := make(chan struct{})
		go serve(&lateListener{TCPListener: listen(tb).(*net.TCPListener), open: open})
		open <- struct{}{} // it is in its first Accept
		close(open)
	}
	return s
}

func TestServeAfterClose(t *testing.T) {
	s := &Server{}
	if list := s.Close(); len(list) != 0 {
		t.Error(list)
	}
	ln := listen(t)
	s.ServeProxy(ln)
	if _, err := ln.Accept(); !errors.Is(err, net.ErrClosed) {
		t.Errorf("the listener: %v", err)
	}
}

// A flaky listener has no descriptors for its first calls.
type flaky struct {
	net.Listener
	calls atomic.Int32
}

func (f *flaky) Accept() (net.Conn, error) {
	if f.calls.Add(1) <= 3 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return f.Listener.Accept()
}

func TestAcceptErrors(t *testing.T) {
	f := &flaky{}
	start := time.Now()
	r := newRig(t, func(r *rig) {
		f.Listener = r.proxy
		r.proxy = f
	})
	c := r.connect("CONNECT other.example:443 HTTP/1.1\r\n\r\n")
	if code, _ := status(t, c); code != 403 {
		t.Error(code)
	}
	if d := time.Since(start); d < 35*time.Millisecond {
		t.Errorf("three errors took %v: too eager", d)
	}
	r.end()
	if n := f.calls.Load(); n > 5 {
		t.Errorf("%d calls", n)
	}
}

func TestPolicyIsFrozen(t *testing.T) {
	allow := []graph.Endpoint{{Host: "x.example", Ports: []uint16{1}}}
	s := &Server{Allow: allow}
	s.start()
	defer s.Close()
	allow[0].Host, allow[0].Ports[0] = "y.example", 2
	if s.judge("x.example", 1) != "" || s.judge("y.example", 2) == "" {
		t.Error("the caller's list is the server's")
	}
}

func TestMany(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.target(allowedIP+":443", echo)
		r.Resolver = names(func(host string) []netip.Addr { return addrs(allowedIP) })
	})
	hello := helloOf(clientConfig(allowed))
	var wg sync.WaitGroup
	for i := range 30 {
		wg.Go(func() {
			c, err := net.Dial("tcp", r.proxy.Addr().String())
			if err != nil {
				t.Error(err)
				return
			}
			defer c.Close()
			body := append(bytes.Clone(hello), fmt.Sprintf("%d", i)...)
			fmt.Fprintf(c, "CONNECT allowed.example:443 HTTP/1.1\r\n\r\n%s", body)
			c.(*net.TCPConn).CloseWrite()
			if b, err := io.ReadAll(c); err != nil || !strings.HasSuffix(string(b), string(body)+"bye") {
				t.Errorf("%d: %d bytes, %v", i, len(b), err)
			}
		})
	}
	wg.Wait()
	list := r.end()
	for i, a := range list {
		if a.Seq != i+1 || a.Verdict != Allowed || a.Reason != "" || a.Sent < int64(len(hello)) || a.Received != a.Sent+3 {
			t.Errorf("%+v", a)
		}
	}
	if len(list) != 30 {
		t.Errorf("%d logged", len(list))
	}
}
