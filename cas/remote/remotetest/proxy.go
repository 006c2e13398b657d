package remotetest

import (
	"net"
	"strings"
	"sync"
	"testing"
	"time"
)

// Proxy is a TCP link to a server that can be cut, paused and slow.
type Proxy struct {
	Address string // as the server's, with the proxy's port

	target string
	l      net.Listener

	mu     sync.Mutex
	paused chan struct{} // closed when the link isn't paused
	delay  time.Duration
	limit  int64 // bytes from the server until the link is cut, if limited
	limits bool
	refuse bool
	conns  map[net.Conn]bool
	dials  int
}

// StartProxy makes a link to a server at grpc://HOST:PORT or grpcs://HOST:PORT
// (an instance may follow) that ends with the test.
func StartProxy(t testing.TB, address string) *Proxy {
	t.Helper()
	scheme, rest, _ := strings.Cut(address, "://")
	host, instance, _ := strings.Cut(rest, "/")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatalf("start proxy: %v", err)
	}
	p := &Proxy{
		Address: scheme + "://" + l.Addr().String(), target: host, l: l,
		paused: make(chan struct{}), conns: map[net.Conn]bool{},
	}
	if instance != "" {
		p.Address += "/" + instance
	}
	close(p.paused)
	go p.accept()
	t.Cleanup(func() {
		l.Close()
		p.Resume()
		p.Cut()
	})
	return p
}

func (p *Proxy) accept() {
	for {
		c, err := p.l.Accept()
		if err != nil {
			return
		}
		p.mu.Lock()
		p.dials++
		refuse := p.refuse
		p.mu.Unlock()
		if refuse {
			c.Close()
			continue
		}
		go p.link(c)
	}
}

func (p *Proxy) link(c net.Conn) {
	s, err := net.Dial("tcp", p.target)
	if err != nil {
		c.Close()
		return
	}
	p.mu.Lock()
	p.conns[c], p.conns[s] = true, true
	p.mu.Unlock()
	var wg sync.WaitGroup
	wg.Go(func() { p.carry(s, c, false) })
	wg.Go(func() { p.carry(c, s, true) })
	wg.Wait()
	p.mu.Lock()
	delete(p.conns, c)
	delete(p.conns, s)
	p.mu.Unlock()
}

type parcel struct {
	b   []byte
	due time.Time
}

// carry moves bytes one way. Reading and writing are apart, so that a delay
// doesn't limit how much is on its way but for the length of the queue.
func (p *Proxy) carry(to, from net.Conn, down bool) {
	queue := make(chan parcel, 1024) // of up to 64 KiB: 64 MiB in 20 ms
	done := make(chan struct{})
	go func() {
		defer close(queue)
		for {
			b := make([]byte, 64<<10)
			n, err := from.Read(b)
			if n > 0 {
				p.mu.Lock()
				due := time.Now().Add(p.delay)
				p.mu.Unlock()
				select {
				case queue <- parcel{b[:n], due}:
				case <-done:
					return
				}
			}
			if err != nil {
				return
			}
		}
	}()
	defer to.Close()
	defer from.Close()
	defer close(done)
	for q := range queue {
		if d := time.Until(q.due); d > 0 {
			<-time.After(d)
		}
		p.mu.Lock()
		paused := p.paused
		p.mu.Unlock()
		<-paused
		b, cut := p.allow(q.b, down)
		if _, err := to.Write(b); err != nil || cut {
			return
		}
	}
}

// allow gives what may pass of b and whether the link is cut after it.
func (p *Proxy) allow(b []byte, down bool) ([]byte, bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !down || !p.limits {
		return b, false
	}
	if int64(len(b)) < p.limit {
		p.limit -= int64(len(b))
		return b, false
	}
	b = b[:p.limit]
	p.limits = false
	return b, true
}

// Pause lets no byte through until Resume. Connections stay open.
func (p *Proxy) Pause() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.paused:
		p.paused = make(chan struct{})
	default:
	}
}

// Resume ends a pause.
func (p *Proxy) Resume() {
	p.mu.Lock()
	defer p.mu.Unlock()
	select {
	case <-p.paused:
	default:
		close(p.paused)
	}
}

// Delay sets how long a byte takes in each direction.
func (p *Proxy) Delay(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// Cut closes all connections. New ones work.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.conns {
		c.Close()
	}
}

// CutAfter closes the connection over which the n-th byte comes from the
// server, counted over all.
func (p *Proxy) CutAfter(n int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.limit, p.limits = n, true
}

// Refuse says whether new connections are closed at once.
func (p *Proxy) Refuse(on bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.refuse = on
}

// Dials tells how many connections were made.
func (p *Proxy) Dials() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.dials
}
