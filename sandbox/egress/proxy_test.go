package egress

import (
	"bytes"
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/netip"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestTunnel(t *testing.T) {
	r := newRig(t, func(r *rig) { r.target(allowedIP+":443", echoTLS) })
	raw := r.tunnel("ALLOWED.Example.:443")
	c := tls.Client(raw, clientConfig(allowed))
	if _, err := io.WriteString(c, "hello"); err != nil {
		t.Fatal(err)
	}
	if err := c.CloseWrite(); err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(c)
	if err != nil || string(got) != "hellobye" {
		t.Fatalf("echoed %q, %v", got, err)
	}
	raw.Close()
	a := r.only()
	if a.Sent < 100 || a.Received < 100 {
		t.Errorf("bytes: sent %d, received %d", a.Sent, a.Received)
	}
	a.Sent, a.Received = 7, 8
	want := `{"address":"93.184.216.34:443","host":"allowed.example","port":443,"received":8,"sent":7,"seq":1,"sni":"allowed.example","verdict":"allowed","via":"connect"}` + "\n"
	if got := lines([]Attempt{a}); got != want {
		t.Errorf("logged %swant %s", got, want)
	}
}

// What a client sends right behind its header belongs to the tunnel, and what
// comes behind the ClientHello too.
func TestPipelined(t *testing.T) {
	hello := helloOf(clientConfig(allowed))
	got := make(chan []byte, 1)
	r := newRig(t, func(r *rig) {
		r.target(allowedIP+":443", func(c net.Conn) {
			b, _ := io.ReadAll(c)
			got <- b
			io.WriteString(c, "answer")
		})
	})
	more := string(hello) + strings.Repeat("x", 10_000)
	c := r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n" + more)
	if code, _ := status(t, c); code != 200 {
		t.Fatal(code)
	}
	c.(*net.TCPConn).CloseWrite()
	if b := <-got; string(b) != more {
		t.Errorf("the target got %d bytes, want %d", len(b), len(more))
	}
	if b, err := io.ReadAll(c); string(b) != "answer" {
		t.Errorf("after the half-close came %q, %v", b, err)
	}
	if a := r.only(); a.Sent != int64(len(more)) || a.Received != 6 {
		t.Errorf("sent %d of %d, received %d of 6", a.Sent, len(more), a.Received)
	}
}

func TestJudge(t *testing.T) {
	one := []graph.Endpoint{{Host: allowed, Ports: []uint16{443}}}
	below := []graph.Endpoint{{Host: ".allowed.example", Ports: []uint16{443, 8443}}}
	for _, c := range []struct {
		allow []graph.Endpoint
		host  string
		port  uint16
		want  string
	}{
		{one, allowed, 443, ""},
		{one, allowed, 80, BadPort},
		{one, "allowed.example.evil", 443, NotAllowed},
		{one, "evilallowed.example", 443, NotAllowed},
		{one, "a.allowed.example", 443, NotAllowed},
		{one, "example", 443, NotAllowed},
		{below, "a.b.allowed.example", 8443, ""},
		{below, "a.allowed.example", 80, BadPort},
		{below, "allowed.example", 443, NotAllowed},
		{below, "evilallowed.example", 443, NotAllowed},
		{append(one, below...), "a.allowed.example", 443, ""},
		{nil, allowed, 443, NotAllowed},
	} {
		if got := (&Server{Allow: c.allow}).judge(c.host, c.port); got != c.want {
			t.Errorf("judge(%v, %s:%d) = %q, want %q", c.allow, c.host, c.port, got, c.want)
		}
	}
}

// Each answer, and the line that is logged. None of these is dialled, and none
// of the secrets in them is kept.
func TestRefused(t *testing.T) {
	for _, c := range []struct {
		request string
		code    int
		log     string
	}{
		{"CONNECT other.example:443 HTTP/1.1\r\n\r\n", 403, "connect other.example:443 refused not-allowed"},
		{"CONNECT allowed.example:80 HTTP/1.1\r\n\r\n", 403, "connect allowed.example:80 refused port"},
		{"CONNECT 127.0.0.1:443 HTTP/1.1\r\n\r\n", 403, "connect 127.0.0.1:443 refused address"},
		{"CONNECT [::1]:443 HTTP/1.1\r\n\r\n", 403, "connect [::1]:443 refused address"},
		{"CONNECT [fe80::1%eth0]:443 HTTP/1.1\r\n\r\n", 400, "connect [fe80::1%eth0]:443 refused malformed"},
		{"CONNECT evil\x00.allowed.example:443 HTTP/1.1\r\n\r\n", 400, `connect evil\x00.allowed.example:443 refused malformed`},
		{"CONNECT allowed.example HTTP/1.1\r\n\r\n", 400, "connect allowed.example:0 refused malformed"},
		{"CONNECT user:SECRET@allowed.example:443 HTTP/1.1\r\n\r\n", 400, "connect @allowed.example:443 refused malformed"},
		{"CONNECT other.example:443 HTTP/1.1\r\nProxy-Authorization: Basic SECRET\r\n\r\n", 403, "connect other.example:443 refused not-allowed"},
		{"CONNECT allowed.example:443 HTTP/1.1\r\nContent-Length: 5\r\n\r\nhello", 400, "connect allowed.example:443 refused malformed"},
		{"CONNECT allowed.example:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, "connect allowed.example:443 refused malformed"},
		{"CONNECT allowed.example:443 HTTP/1.1\nHost: x\n\n", 400, "connect allowed.example:443 refused malformed"},
		{"GET http://allowed.example/?SECRET HTTP/1.1\r\nHost: allowed.example\r\n\r\n", 403, "http allowed.example:80 refused plain-http"},
		{"POST https://u:SECRET@Allowed.example/ HTTP/1.1\r\n\r\n", 403, "http @Allowed.example:443 refused plain-http"},
		{"GET http://10.0.0.1:8080/ HTTP/1.1\r\n\r\n", 403, "http 10.0.0.1:8080 refused plain-http"},
		{"GET /SECRET?u=http://allowed.example HTTP/1.1\r\nHost: allowed.example\r\n\r\n", 405, "http :0 refused method"},
		{"OPTIONS * HTTP/1.1\r\n\r\n", 405, "http :0 refused method"},
		{"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 400, "http :0 refused malformed"},
		{"\x16\x03\x01\x02\x00\x01", 400, "http :0 refused malformed"},
		{"CONNECT allowed.example:443 HTTP/1.1\r\nX: " + strings.Repeat("a", 16<<10), 431, "connect allowed.example:443 refused header"},
		{"GET " + strings.Repeat("a", 64<<10), 431, "http :0 refused header"},
	} {
		t.Run("", func(t *testing.T) {
			r := newRig(t, func(r *rig) { r.target(allowedIP+":443", echo) })
			conn := r.connect(c.request)
			code, body := status(t, conn)
			conn.Close()
			if code != c.code {
				t.Errorf("%.60q: %d %q, want %d", c.request, code, body, c.code)
			}
			r.want(c.log)
			if log := lines(r.end()); strings.Contains(log+body, "SECRET") {
				t.Errorf("%.60q: a secret is kept: %s %s", c.request, body, log)
			}
			if len(r.dialled) > 0 {
				t.Errorf("%.60q: dialled %v", c.request, r.dialled)
			}
		})
	}
}

func TestEmptyListDeniesAll(t *testing.T) {
	r := newRig(t, func(r *rig) {
		r.Allow = nil
		r.Resolver = names(func(host string) []netip.Addr {
			t.Errorf("resolved %s", host)
			return nil
		})
	})
	for range 3 {
		if code, _ := status(t, r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")); code != 403 {
			t.Errorf("code %d", code)
		}
	}
	list := r.end()
	for i, a := range list {
		if a.Seq != i+1 || a.Verdict != Refused || a.Reason != NotAllowed {
			t.Errorf("%+v", a)
		}
	}
	if len(list) != 3 || len(r.dialled) > 0 {
		t.Errorf("%d logged, dialled %v", len(list), r.dialled)
	}
}

func TestResolved(t *testing.T) {
	for _, c := range []struct {
		addrs   []netip.Addr
		code    int
		log     string
		dialled string
	}{
		{nil, 502, "connect allowed.example:443 refused resolve", ""},
		{[]netip.Addr{}, 502, "connect allowed.example:443 refused resolve", ""},
		{addrs("127.0.0.1"), 403, "connect allowed.example:443 refused address", ""},
		{addrs("::ffff:10.0.0.1"), 403, "connect allowed.example:443 refused address", ""},
		{addrs(allowedIP, "169.254.169.254"), 403, "connect allowed.example:443 refused address", ""},
		{addrs("8.8.8.8", "1.1.1.1"), 502, "connect allowed.example:443 refused dial", "8.8.8.8:443 1.1.1.1:443"},
		{addrs("8.8.8.8", allowedIP), 200, "connect allowed.example:443 allowed closed", "8.8.8.8:443 93.184.216.34:443"},
		{addrs("::ffff:" + allowedIP), 200, "connect allowed.example:443 allowed closed", "93.184.216.34:443"},
		{addrs(allowedIP6), 200, "connect allowed.example:443 allowed closed", "[2606:2800:220:1::1]:443"},
	} {
		t.Run("", func(t *testing.T) {
			r := newRig(t, func(r *rig) {
				r.Resolver = names(func(string) []netip.Addr { return c.addrs })
				r.target(allowedIP+":443", echo)
				r.target("["+allowedIP6+"]:443", echo)
			})
			conn := r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")
			code, body := status(t, conn)
			conn.Close()
			if code != c.code {
				t.Errorf("%v: %d %s, want %d", c.addrs, code, body, c.code)
			}
			r.want(c.log)
			if got := strings.Join(r.dialled, " "); got != c.dialled {
				t.Errorf("%v: dialled %s, want %s", c.addrs, got, c.dialled)
			}
		})
	}
}

// A name that answers otherwise the second time is dialled as it was checked.
func TestRebinding(t *testing.T) {
	var asked atomic.Int32
	r := newRig(t, func(r *rig) {
		r.Resolver = names(func(string) []netip.Addr {
			if asked.Add(1) > 1 {
				return addrs("127.0.0.1")
			}
			return addrs(allowedIP)
		})
		r.target(allowedIP+":443", echo)
	})
	r.tunnel("allowed.example:443")
	if n := asked.Load(); n != 1 || len(r.dialled) != 1 || r.dialled[0] != allowedIP+":443" {
		t.Errorf("resolved %d times, dialled %v", n, r.dialled)
	}
	if code, _ := status(t, r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")); code != 403 {
		t.Errorf("after the rebinding: %d", code)
	}
	if len(r.dialled) != 1 {
		t.Errorf("dialled %v", r.dialled)
	}
}

// lookAt looks at the log when it is asked.
type lookAt func()

func (f lookAt) LookupNetIP(context.Context, string, string) ([]netip.Addr, error) {
	f()
	return addrs(allowedIP), nil
}

func TestLoggedBefore(t *testing.T) {
	var atResolve, atDial []Attempt
	r := newRig(t, func(r *rig) {
		r.Resolver = lookAt(func() { atResolve = r.log.snapshot() })
		r.Dial = func(ctx context.Context, network, addr string) (net.Conn, error) {
			atDial = r.log.snapshot()
			return nil, io.ErrUnexpectedEOF
		}
	})
	if code, _ := status(t, r.connect("CONNECT allowed.example:443 HTTP/1.1\r\n\r\n")); code != 502 {
		t.Error(code)
	}
	if len(atResolve) != 1 || brief(atResolve[0]) != "connect allowed.example:443 allowed" {
		t.Errorf("when resolved: %+v", atResolve)
	}
	if len(atDial) != 1 || atDial[0].Address != allowedIP+":443" {
		t.Errorf("when dialled: %+v", atDial)
	}
	r.want("connect allowed.example:443 refused dial")
}

// Nothing of what is refused after the 200 reaches the target, and a client
// that speaks TLS is told.
func TestHelloRefused(t *testing.T) {
	ech := withExtension(helloOf(clientConfig(allowed)), 0xfe0d, []byte{0})
	for _, c := range []struct {
		name, sent, reason, sni string
		alert                   bool
	}{
		{"other", string(helloOf(clientConfig("other.example"))), SNIMismatch, "other.example", true},
		{"below", string(helloOf(clientConfig("a.allowed.example"))), SNIMismatch, "a.allowed.example", true},
		{"none", string(helloOf(&tls.Config{InsecureSkipVerify: true})), NoSNI, "", true},
		{"ech", string(ech), ECH, allowed, true},
		{"http", "GET / HTTP/1.1\r\nHost: other.example\r\n\r\n", NotTLS, "", false},
		{"ssh", "SSH-2.0-x\r\n", NotTLS, "", false},
		{"cut", string(ech[:40]), NotTLS, "", false},
		{"slow", "\x16", Timeout, "", true},
	} {
		t.Run(c.name, func(t *testing.T) {
			reached := make(chan []byte, 1)
			r := newRig(t, func(r *rig) {
				if c.reason == Timeout {
					r.Limits.HelloTimeout = 20 * time.Millisecond
				}
				r.target(allowedIP+":443", func(conn net.Conn) {
					io.WriteString(conn, "early banner")
					b, _ := io.ReadAll(conn)
					reached <- b
				})
			})
			conn := r.tunnel("allowed.example:443")
			io.WriteString(conn, c.sent)
			if c.reason != Timeout {
				conn.(*net.TCPConn).CloseWrite()
			}
			got, _ := io.ReadAll(conn)
			if c.alert != bytes.Equal(got, accessDenied) {
				t.Errorf("the client got %q", got)
			}
			conn.Close()
			if b := <-reached; len(b) > 0 {
				t.Errorf("the target got %q", b)
			}
			r.want("connect allowed.example:443 refused " + c.reason)
			if sni := r.only().SNI; sni != c.sni {
				t.Errorf("SNI %q, want %q", sni, c.sni)
			}
		})
	}
}
