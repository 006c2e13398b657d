package egress

import (
	"bytes"
	"errors"
	"io"
	"net/netip"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestPublic(t *testing.T) {
	for _, s := range []string{
		"0.0.0.0", "0.1.2.3", "10.0.0.1", "10.255.255.255", "100.64.0.1", "100.100.100.200", "100.127.255.255",
		"127.0.0.1", "127.255.255.254", "168.63.129.16", "169.254.169.254", "172.16.0.1", "172.31.255.255",
		"192.0.0.192", "192.0.2.1", "192.88.99.1", "192.168.1.1", "198.18.0.1", "198.19.255.255", "198.51.100.7",
		"203.0.113.9", "224.0.0.1", "239.255.255.250", "240.0.0.1", "255.255.255.255",
		"::", "::1", "::7f00:1", "::ffff:8.8.8.8", "::ffff:0:127.0.0.1", "64:ff9b::7f00:1", "64:ff9b:1::1", "100::1",
		"2001::1", "2001:2::1", "2001:20::1", "2001:db8::1", "2002:7f00:1::", "3ffe::1", "3fff::1", "5f00::1",
		"fc00::1", "fd00:ec2::254", "fe80::1", "fe80::1%eth0", "fec0::1", "ff02::1", "4000::1", "1::1",
		"2606:2800:220:1::5efe:7f00:1", "2606:2800:220:1:200:5efe:a00:1", "2606:4700::1%eth0",
	} {
		if public(netip.MustParseAddr(s)) {
			t.Errorf("%s counts as public", s)
		}
	}
	if public(netip.Addr{}) {
		t.Error("no address counts as public")
	}
	for _, s := range []string{
		"1.1.1.1", "9.255.255.255", "11.0.0.0", "100.63.255.255", "100.128.0.0", "126.255.255.255", "128.0.0.0",
		"168.63.129.15", "169.253.255.255", "172.15.255.255", "172.32.0.0", "192.0.1.0", "192.167.255.255",
		"198.17.255.255", "198.20.0.0", "223.255.255.255", allowedIP,
		allowedIP6, "2001:4860:4860::8888", "2a00:1450:4001::200e", "2606:2800:220:1:100:5efe:a00:1",
	} {
		if !public(netip.MustParseAddr(s)) {
			t.Errorf("%s doesn't count as public", s)
		}
	}
	for _, f := range forbidden {
		if p := netip.MustParsePrefix(f.prefix); public(p.Addr()) || p != p.Masked() || f.what == "" {
			t.Errorf("row %s", f.prefix)
		}
	}
}

func TestParseRequest(t *testing.T) {
	const ok = "connect a.b:443 allowed"
	const bad = "connect a.b:443 refused malformed"
	for head, want := range map[string]string{
		"CONNECT a.b:443 HTTP/1.1":                                           ok,
		"CONNECT a.b:443 HTTP/1.0":                                           ok, // Python before 3.12
		"CONNECT A.B.:443 HTTP/1.1\r\nHost: x\r\nUser-Agent:":                ok,
		"CONNECT a.b:443 HTTP/1.1\r\nProxy-Connection: keep-alive":           ok,
		"CONNECT a.b:443 HTTP/1.1\r\nContent-Length: 0":                      ok,
		"CONNECT a.b:443 HTTP/1.1\r\nX: \xff":                                ok,
		"CONNECT a.b:443 HTTP/2.0":                                           bad,
		"CONNECT a.b:443":                                                    "connect a.b:443 refused malformed",
		"CONNECT  a.b:443 HTTP/1.1":                                          "connect  a.b:443 refused malformed",
		"CONNECT a.b:443 HTTP/1.1 ":                                          "connect a.b:0 refused malformed",
		"CONNECT a.b:443 HTTP/1.1\r\nNo colon":                               bad,
		"CONNECT a.b:443 HTTP/1.1\r\nHost : x":                               bad,
		"CONNECT a.b:443 HTTP/1.1\r\nX: 1\r\n folded":                        bad,
		"CONNECT a.b:443 HTTP/1.1\r\nX: a\rb":                                bad,
		"CONNECT a.b:443 HTTP/1.1\r\nX: a\x00b":                              bad,
		"CONNECT a.b:443 HTTP/1.1\r\nHost: a\r\nhost: b":                     bad,
		"CONNECT a.b:443 HTTP/1.1\r\nContent-Length: 0\r\nContent-Length: 1": bad,
		"CONNECT a.b:443 HTTP/1.1\r\nContent-Length: +0":                     bad,
		"CONNECT a.b:443 HTTP/1.1\r\nTRANSFER-ENCODING: identity":            bad,
		"CONNECT a.b:0443 HTTP/1.1":                                          "connect a.b:0 refused malformed",
		"CONNECT a.b:+443 HTTP/1.1":                                          "connect a.b:0 refused malformed",
		"CONNECT a.b:65536 HTTP/1.1":                                         "connect a.b:0 refused malformed",
		"CONNECT a.b:0 HTTP/1.1":                                             "connect a.b:0 refused malformed",
		"CONNECT a.b: HTTP/1.1":                                              "connect a.b:0 refused malformed",
		"CONNECT http://a.b:443 HTTP/1.1":                                    "connect http::443 refused malformed",
		"CONNECT a.b:443/x HTTP/1.1":                                         "connect a.b:0 refused malformed",
		"CONNECT [::1]:443 HTTP/1.1":                                         "connect [::1]:443 refused address",
		"CONNECT ::1:443 HTTP/1.1":                                           "connect ::1:443 refused address",
		"CONNECT 0X7F.1:443 HTTP/1.1":                                        "connect 0X7F.1:443 refused address",
		"CONNECT [fe80::1%25eth0]:443 HTTP/1.1":                              "connect [fe80::1%25eth0]:443 refused malformed",
		"CONNECT \u212a.b:443 HTTP/1.1":                                      `connect \u212a.b:443 refused malformed`,
		"CONNECT [::1] HTTP/1.1":                                             "connect [::1]:0 refused malformed",
		"CONNECT /docker.sock HTTP/1.1":                                      "connect :0 refused malformed",
		"connect a.b:443 HTTP/1.1":                                           "http :0 refused method",
		"GET http://a.b HTTP/1.1":                                            "http a.b:80 refused plain-http",
		"GET HTTPS://A.b/x HTTP/1.1":                                         "http a.b:443 refused plain-http",
		"GET http://a.b:8/ HTTP/1.1\r\nTransfer-Encoding: chunked":           "http a.b:8 refused plain-http",
		"GET http://a.b?u:p@c HTTP/1.1":                                      "http a.b:80 refused plain-http",
		`GET http://a.b\@c/ HTTP/1.1`:                                        "http a.b:80 refused plain-http",
		"GET ://x HTTP/1.1":                                                  "http :0 refused method",
		"G(T / HTTP/1.1":                                                     "http :0 refused malformed",
		"GET  HTTP/1.1":                                                      "http :0 refused malformed",
		"":                                                                   "http :0 refused malformed",
	} {
		if got := brief(parseRequest([]byte(head)).attempt()); got != want {
			t.Errorf("%q:\n got %s\nwant %s", head, got, want)
		}
	}
}

func TestReadHead(t *testing.T) {
	for _, c := range []struct {
		in, head, rest string
		err            error
	}{
		{"A\r\nB: c\r\n\r\nrest", "A\r\nB: c", "rest", nil},
		{"A\r\n\r\n", "A", "", nil},
		{"A\r\n\r\n\r\n\r\n", "A", "\r\n\r\n", nil},
		{"A\r\nB\n\r\n", "A\r\nB", "", errBareEnd},
		{"\r\nA\r\n\r\n", "", "", errBareEnd},
		{"\x05\x01\x00", "", "", errBareEnd},
		{"A\r\n", "A\r\n", "", io.EOF},
		{"A" + strings.Repeat("x", 100), "A" + strings.Repeat("x", 63), "", errLarge},
	} {
		for _, r := range []io.Reader{strings.NewReader(c.in), iotest.OneByteReader(strings.NewReader(c.in)), iotest.DataErrReader(strings.NewReader(c.in))} {
			head, rest, err := readHead(r, 64)
			if more, _ := io.ReadAll(r); err == nil {
				rest = append(bytes.Clone(rest), more...)
			}
			if c.head != "" && string(head) != c.head || string(rest) != c.rest || !errors.Is(err, c.err) {
				t.Errorf("%.20q: %q, %q, %v", c.in, head, rest, err)
			}
		}
	}
}

func TestShown(t *testing.T) {
	for in, want := range map[string]string{
		"a.b":                     "a.b",
		"a\x00\x1b[31m\n":         `a\x00\x1b[31m\n`,
		`"\`:                      `\"\\`,
		"bü\u202e\xff":            `b\u00fc\u202e\xff`,
		strings.Repeat("a", 1000): strings.Repeat("a", 256) + " (and 744 bytes)",
	} {
		if got := shown(in); got != want {
			t.Errorf("shown(%.20q) = %q, want %q", in, got, want)
		}
	}
}

// FuzzRequest: what is accepted is one plain CONNECT to a host that the list
// could hold, however the bytes came; all is loggable.
func FuzzRequest(f *testing.F) {
	for _, s := range []string{
		"CONNECT a.b:443 HTTP/1.1\r\nHost: a.b:443\r\n\r\nrest", "GET http://u@a.b:8/ HTTP/1.0\r\n\r\n", "CONNECT [::1]:443 HTTP/1.1\r\n\r\n",
		"CONNECT a.b:443 HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "GET / HTTP/1.1\n\n", "CONNECT a\x00.b:1 HTTP/1.1\r\n\r\n",
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		head, rest, err := readHead(bytes.NewReader(raw), 1024)
		head1, rest1, err1 := readHead(iotest.OneByteReader(bytes.NewReader(raw)), 1024)
		if !errors.Is(err1, err) && !errors.Is(err, err1) {
			t.Fatalf("whole: %v; by bytes: %v", err, err1)
		}
		q := parseRequest(head)
		for _, c := range []byte(q.host) {
			if c < ' ' || c > '~' {
				t.Fatalf("host %q", q.host)
			}
		}
		if err != nil {
			return
		}
		if len(rest1) != 0 || !bytes.Equal(head, head1) || !bytes.HasSuffix(raw[:min(len(raw), 1024)], rest) {
			t.Fatalf("whole: %q %q; by bytes: %q %q", head, rest, head1, rest1)
		}
		if q.reason != "" {
			return
		}
		if q.via != ViaConnect || !bytes.HasPrefix(head, []byte("CONNECT ")) || q.port == 0 {
			t.Fatalf("%q gives %+v", head, q)
		}
		if e, err := graph.ParseEndpoint(q.host); err != nil || e.Host != q.host || !e.Allows(q.host, 443) {
			t.Fatalf("%q isn't canonical: the list has %q, %v", q.host, e.Host, err)
		}
	})
}
