package egress

import (
	"context"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

// fakeTunnel gives a tunnel whose other end the test holds.
func fakeTunnel(t *testing.T, limits Limits) (r *rig, client, target net.Conn) {
	t.Helper()
	ends := make(chan net.Conn, 1)
	var taken atomic.Bool
	r = newRig(t, func(r *rig) {
		r.Limits = limits
		r.target(allowedIP+":443", func(c net.Conn) {
			if taken.Swap(true) {
				return // the first one only
			}
			done := make(chan struct{})
			ends <- &held{Conn: c, done: done}
			<-done
		})
	})
	client = r.tunnel("allowed.example:443")
	target = <-ends
	t.Cleanup(func() { target.Close() })
	hello := helloOf(clientConfig(allowed))
	if _, err := client.Write(hello); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(target, hello); err != nil {
		t.Fatal(err)
	}
	return r, client, target
}

type held struct {
	net.Conn
	once sync.Once
	done chan struct{}
}

func (h *held) Close() error {
	h.once.Do(func() { close(h.done) })
	return h.Conn.Close()
}

// In the time of a bubble, so that a busy machine can't cut it.
func TestIdle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.start()
		defer s.Close()
		client, inner := net.Pipe()
		target, outer := net.Pipe()
		go io.Copy(io.Discard, client)
		var cut string
		var received int64
		start := time.Now()
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, received, cut = s.carry(&link{client: inner, target: outer}, nil)
		}()
		// One direction that moves keeps the other.
		for range 8 {
			time.Sleep(14 * time.Minute)
			if _, err := io.WriteString(target, "x"); err != nil {
				t.Fatal(err)
			}
		}
		<-done
		if d := time.Since(start); cut != Idle || received != 8 || d != (8*14+15)*time.Minute {
			t.Errorf("cut %q after %v, received %d", cut, d, received)
		}
	})
}

// A process that doesn't read what it asked for idles too.
func TestIdleReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &Server{}
		s.start()
		defer s.Close()
		_, inner := net.Pipe()
		target, outer := net.Pipe()
		go io.WriteString(target, "x")
		if _, received, cut := s.carry(&link{client: inner, target: outer}, nil); cut != Idle || received != 0 {
			t.Errorf("cut %q, received %d", cut, received)
		}
	})
}

// An address that drops everything leaves time for the next one.
func TestDialShares(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var at []time.Duration
		start := time.Now()
		s := &Server{Dial: func(ctx context.Context, _, _ string) (net.Conn, error) {
			at = append(at, time.Since(start))
			<-ctx.Done()
			return nil, ctx.Err()
		}}
		s.start()
		defer s.Close()
		entry := s.log.add(Attempt{})
		if _, reason := s.dial(s.ctx, addrs("1.1.1.1", "8.8.8.8", allowedIP6), 443, entry); reason != NoDial {
			t.Error(reason)
		}
		if got := fmt.Sprint(at, time.Since(start)); got != "[0s 10s 20s] 30s" {
			t.Errorf("dialled at %s", got)
		}
	})
}

func TestReset(t *testing.T) {
	r, client, target := fakeTunnel(t, Limits{})
	client.(*net.TCPConn).SetLinger(0)
	client.Close()
	target.SetReadDeadline(time.Now().Add(5 * time.Second))
	if n, err := target.Read(make([]byte, 1)); err == nil || timedOut(err) {
		t.Errorf("after the client's reset: %d, %v", n, err)
	}
	r.want("connect allowed.example:443 allowed")
}
