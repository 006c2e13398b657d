package main

import (
	"bufio"
	"io"
	"net"
	"sync"
	"time"
)

// tick is how much later than it is due a piece may arrive: what comes in the
// meantime is one piece with the next. One for each answer would take as much CPU
// time as the server does, and a real link takes none of that of its ends.
const tick = 500 * time.Microsecond

// A link is a TCP address at which another is reached later: whatever is sent
// arrives after a delay, in each direction, at any throughput. netem in a network
// namespace does the same to packets; many kernels don't have it, and a proxy
// needs no rights. What it leaves out is the slow start of a TCP connection.
type link struct {
	listener net.Listener
	to       string
	delay    time.Duration // of one direction
	wg       sync.WaitGroup
	mu       sync.Mutex
	conns    []net.Conn
}

func newLink(to string, roundTrip time.Duration) (*link, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	k := &link{listener: l, to: to, delay: roundTrip / 2}
	k.wg.Go(k.serve)
	return k, nil
}

func (k *link) addr() string { return k.listener.Addr().String() }

func (k *link) close() {
	k.listener.Close()
	k.mu.Lock()
	for _, c := range k.conns {
		c.Close()
	}
	k.mu.Unlock()
	k.wg.Wait()
}

func (k *link) serve() {
	for {
		near, err := k.listener.Accept()
		if err != nil {
			return
		}
		far, err := net.Dial("tcp", k.to)
		if err != nil {
			near.Close()
			continue
		}
		k.mu.Lock()
		k.conns = append(k.conns, near, far)
		k.mu.Unlock()
		k.wg.Go(func() { k.carry(far, near) })
		k.wg.Go(func() { k.carry(near, far) })
	}
}

// carry moves one direction's bytes, each read as a piece with its time.
func (k *link) carry(to, from net.Conn) {
	type piece struct {
		due  time.Time
		data []byte
	}
	pieces := make(chan piece, 1024)
	k.wg.Go(func() {
		defer to.Close()
		w := bufio.NewWriterSize(to, 256<<10)
		for p := range pieces {
			if wait := time.Until(p.due); wait > 0 {
				w.Flush()
				time.Sleep(wait)
			}
			if _, err := w.Write(p.data); err != nil {
				for range pieces { // the reader is not to wait for ever
				}
				return
			}
			if len(pieces) == 0 {
				w.Flush()
			}
		}
		w.Flush()
	})
	defer close(pieces)
	buf := make([]byte, 256<<10)
	for {
		n, err := from.Read(buf)
		if n > 0 {
			pieces <- piece{time.Now().Add(k.delay), append([]byte(nil), buf[:n]...)}
		}
		if err != nil {
			if err != io.EOF {
				from.Close()
			}
			return
		}
		time.Sleep(tick)
	}
}
