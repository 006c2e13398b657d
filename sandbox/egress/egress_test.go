package egress

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"fmt"
	"io"
	"math/big"
	"net"
	"net/http"
	"net/netip"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

// The world of the tests: names that the fake resolver knows, and addresses
// that the fake Dial leads to servers on loopback.
const (
	allowed    = "allowed.example"
	allowedIP  = "93.184.216.34"
	allowedIP6 = "2606:2800:220:1::1"
)

// names is a resolver; hosts are as it is asked, with the dot at the end.
type names func(host string) []netip.Addr

func (f names) LookupNetIP(_ context.Context, network, host string) ([]netip.Addr, error) {
	if network != "ip" {
		return nil, fmt.Errorf("unexpected network %q", network)
	}
	a := f(host)
	if a == nil {
		return nil, &net.DNSError{Err: "no such host", Name: host, IsNotFound: true}
	}
	return a, nil
}

func addrs(list ...string) (out []netip.Addr) {
	for _, s := range list {
		out = append(out, netip.MustParseAddr(s))
	}
	return out
}

// A rig is a Server with a proxy listener, and the targets that it can reach.
type rig struct {
	*Server
	t     *testing.T
	proxy net.Listener

	mu      sync.Mutex
	targets map[string]string // IP:port as dialled → where the server really is
	dialled []string
	closed  bool
	list    []Attempt
	serving sync.WaitGroup
}

// newRig starts a proxy that allows allowed.example:443; change may set more.
// At the end of the test nothing of it runs any more.
func newRig(t *testing.T, change func(*rig)) *rig {
	t.Helper()
	before := runtime.NumGoroutine()
	r := &rig{t: t, targets: map[string]string{}, proxy: listen(t)}
	r.Server = &Server{
		Allow: []graph.Endpoint{{Host: allowed, Ports: []uint16{443}}},
		Resolver: names(func(host string) []netip.Addr {
			if host == allowed+"." {
				return addrs(allowedIP)
			}
			return nil
		}),
		Dial: r.dial,
	}
	t.Cleanup(func() { // before the targets' own, so it runs after them
		// Goroutines that tests have as clients and targets end soon after.
		for range 400 {
			if runtime.NumGoroutine() <= before {
				return
			}
			time.Sleep(5 * time.Millisecond)
		}
		buf := make([]byte, 1<<16)
		t.Errorf("%d goroutines, %d before:\n%s", runtime.NumGoroutine(), before, buf[:runtime.Stack(buf, true)])
	})
	if change != nil {
		change(r)
	}
	t.Cleanup(func() { r.end() })
	r.serving.Go(func() { r.ServeProxy(r.proxy) })
	return r
}

// end closes the server and gives its log.
func (r *rig) end() []Attempt {
	if !r.closed {
		r.closed, r.list = true, r.Close()
		r.serving.Wait()
	}
	return r.list
}

func (r *rig) dial(ctx context.Context, network, addr string) (net.Conn, error) {
	r.mu.Lock()
	r.dialled = append(r.dialled, addr)
	at := r.targets[addr]
	r.mu.Unlock()
	if at == "" {
		return nil, fmt.Errorf("dial %s: connection refused", addr)
	}
	return (&net.Dialer{}).DialContext(ctx, network, at)
}

// target makes a server that the proxy reaches at addr.
func (r *rig) target(addr string, serve func(net.Conn)) {
	ln := listen(r.t)
	r.targets[addr] = ln.Addr().String()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				serve(c)
			}()
		}
	}()
}

func listen(t testing.TB) net.Listener {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln
}

// connect opens a connection to the proxy and writes to it.
func (r *rig) connect(text string) net.Conn {
	r.t.Helper()
	c, err := net.Dial("tcp", r.proxy.Addr().String())
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	c.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := io.WriteString(c, text); err != nil {
		r.t.Fatal(err)
	}
	return c
}

// status reads an answer of the proxy, with its body unless it is a 200.
func status(t *testing.T, c net.Conn) (int, string) {
	t.Helper()
	// One byte at a time: what follows a 200 is the tunnel's.
	resp, err := http.ReadResponse(bufio.NewReaderSize(oneByte{c}, 16), &http.Request{Method: "CONNECT"})
	if err != nil {
		t.Fatalf("read the answer: %v", err)
	}
	if resp.StatusCode == 200 {
		return 200, ""
	}
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatalf("read the answer's body: %v", err)
	}
	return resp.StatusCode, string(body)
}

type oneByte struct{ io.Reader }

func (r oneByte) Read(p []byte) (int, error) { return r.Reader.Read(p[:1]) }

// tunnel asks for a tunnel and expects it.
func (r *rig) tunnel(hostport string) net.Conn {
	r.t.Helper()
	c := r.connect("CONNECT " + hostport + " HTTP/1.1\r\nHost: " + hostport + "\r\n\r\n")
	if code, body := status(r.t, c); code != 200 {
		r.t.Fatalf("CONNECT %s: %d %s", hostport, code, body)
	}
	return c
}

// only gives the one attempt that the log must have.
func (r *rig) only() Attempt {
	r.t.Helper()
	list := r.end()
	if len(list) != 1 {
		r.t.Fatalf("%d attempts logged, want 1:\n%s", len(list), lines(list))
	}
	return list[0]
}

// want compares the only attempt, without byte counts, with a line.
func (r *rig) want(line string) {
	r.t.Helper()
	a := r.only()
	a.Sent, a.Received = 0, 0
	if got := brief(a); got != line {
		r.t.Errorf("logged %s\n  want %s", got, line)
	}
}

func brief(a Attempt) string {
	return strings.TrimSpace(fmt.Sprintf("%s %s:%d %s %s", a.Via, a.Host, a.Port, a.Verdict, a.Reason))
}

// lines is the log as JSON, an attempt a line.
func lines(list []Attempt) string {
	var b strings.Builder
	e := json.NewEncoder(&b)
	for _, a := range list {
		if err := e.Encode(a); err != nil {
			return err.Error()
		}
	}
	return b.String()
}

// echo sends back what comes until its end, and then says so.
func echo(c net.Conn) {
	io.Copy(c, c)
	io.WriteString(c, "bye")
}

// certificate is made once: of allowed.example, and its own root.
var certificate = sync.OnceValue(func() tls.Certificate {
	key, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		panic(err)
	}
	template := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{allowed}, NotAfter: time.Now().Add(time.Hour)}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		panic(err)
	}
	return tls.Certificate{Certificate: [][]byte{der}, PrivateKey: key}
})

// echoTLS is a TLS server that echoes.
func echoTLS(c net.Conn) {
	s := tls.Server(c, &tls.Config{Certificates: []tls.Certificate{certificate()}})
	if s.Handshake() == nil {
		echo(s)
	}
}

func clientConfig(name string) *tls.Config {
	root, err := x509.ParseCertificate(certificate().Certificate[0])
	if err != nil {
		panic(err)
	}
	pool := x509.NewCertPool()
	pool.AddCert(root)
	return &tls.Config{ServerName: name, RootCAs: pool}
}

// helloOf gives the first flight that crypto/tls sends.
func helloOf(c *tls.Config) []byte {
	w := &wire{}
	tls.Client(w, c).Handshake()
	return w.out.Bytes()
}

// A wire keeps what is written to it and yields in.
type wire struct {
	net.Conn
	in  bytes.Reader
	out bytes.Buffer
}

func (w *wire) Read(p []byte) (int, error)       { return w.in.Read(p) }
func (w *wire) Write(p []byte) (int, error)      { return w.out.Write(p) }
func (w *wire) Close() error                     { return nil }
func (w *wire) SetDeadline(time.Time) error      { return nil }
func (w *wire) SetReadDeadline(time.Time) error  { return nil }
func (w *wire) SetWriteDeadline(time.Time) error { return nil }
