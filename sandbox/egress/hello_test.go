package egress

import (
	"bytes"
	"crypto/tls"
	"encoding/binary"
	"errors"
	"strings"
	"testing"
)

// records frames a handshake message in records of size bytes.
func records(msg []byte, size int) []byte {
	var b []byte
	for len(msg) > 0 {
		n := min(size, len(msg))
		b = append(b, 22, 3, 1, byte(n>>8), byte(n))
		b = append(b, msg[:n]...)
		msg = msg[n:]
	}
	return b
}

// withExtension adds an extension to the end of a hello of one record.
func withExtension(raw []byte, kind int, data []byte) []byte {
	b := bytes.Clone(raw[recordHeader:])
	at := 4 + 2 + 32
	at += 1 + int(b[at])
	at += 2 + int(binary.BigEndian.Uint16(b[at:]))
	at += 1 + int(b[at])
	b = append(b, byte(kind>>8), byte(kind), byte(len(data)>>8), byte(len(data)))
	b = append(b, data...)
	binary.BigEndian.PutUint16(b[at:], uint16(len(b)-at-2))
	binary.BigEndian.PutUint16(b[2:], uint16(len(b)-4))
	return records(b, 1<<14)
}

// minimal is a hello with nothing but the given extensions block.
func minimal(extensions string) []byte {
	body := "\x03\x03" + strings.Repeat("r", 32) + "\x00" + "\x00\x02\x13\x01" + "\x01\x00" + extensions
	return append([]byte{1, 0, byte(len(body) >> 8), byte(len(body))}, body...)
}

const sniExtension = "\x00\x00\x00\x08\x00\x06\x00\x00\x03a.b"

func feedAll(p []byte, step int) (*helloReader, bool, error) {
	r := &helloReader{limit: 64 << 10}
	for i := 0; i < len(p); i += step {
		if whole, err := r.feed(p[i:min(len(p), i+step)]); whole || err != nil {
			return r, whole, err
		}
	}
	return r, false, nil
}

func TestHelloSplit(t *testing.T) {
	whole := helloOf(clientConfig(allowed))
	for _, record := range []int{1, 3, 100, 1 << 14} {
		for _, step := range []int{1, 7, 1 << 20} {
			raw := records(whole[recordHeader:], record)
			r, ok, err := feedAll(raw, step)
			if !ok || err != nil || r.hello.sni != allowed || r.hello.ech || !bytes.Equal(r.raw, raw) {
				t.Errorf("records of %d, segments of %d: %v, %v, %+v", record, step, ok, err, r.hello)
			}
		}
	}
}

func TestHelloMalformed(t *testing.T) {
	good := records(minimal("\x00\x0c"+sniExtension), 1<<14)
	if r, ok, err := feedAll(good, 1); !ok || r.hello.sni != "a.b" {
		t.Fatalf("the control: %v, %v, %+v", ok, err, r.hello)
	}
	ext := func(e string) []byte { return records(minimal(e), 1<<14) }
	for name, raw := range map[string][]byte{
		"alert":               {21, 3, 1, 0, 2, 2, 49},
		"SSL 2":               {0x80, 0x2e, 1},
		"version of a record": {22, 2},
		"minor version":       {22, 3, 9},
		"empty record":        {22, 3, 1, 0, 0},
		"long record":         {22, 3, 1, 0x40, 1},
		"server hello":        records([]byte{2, 0, 0, 0}, 10),
		"empty hello":         records([]byte{1, 0, 0, 0}, 10),
		"version of a hello":  bytes.Replace(good, []byte("\x03\x03r"), []byte("\x02\x03r"), 1),
		"more in the record":  records(append(minimal("\x00\x0c"+sniExtension), 1), 1<<14),
		"alert between":       append(records(minimal("")[:20], 20), 21, 3, 1),
		"extensions too long": ext("\x00\x0d" + sniExtension),
		"extensions short":    ext("\x00\x0b" + sniExtension),
		"twice":               ext("\x00\x18" + sniExtension + sniExtension),
		"SNI twice in one":    ext("\x00\x12\x00\x00\x00\x0e\x00\x0c\x00\x00\x03a.b\x00\x00\x03c.d"),
		"SNI of another kind": ext("\x00\x0c\x00\x00\x00\x08\x00\x06\x01\x00\x03a.b"),
		"SNI list too short":  ext("\x00\x0c\x00\x00\x00\x08\x00\x05\x00\x00\x03a.b"),
		"SNI name too long":   ext("\x00\x0c\x00\x00\x00\x08\x00\x06\x00\x00\x04a.b"),
		"SNI empty":           ext("\x00\x04\x00\x00\x00\x00"),
		"SNI name empty":      ext("\x00\x09\x00\x00\x00\x05\x00\x03\x00\x00\x00"),
		"cut extension":       ext("\x00\x03\x00\x00\x00"),
	} {
		for _, step := range []int{1, 1 << 20} {
			if r, ok, err := feedAll(raw, step); ok || !errors.Is(err, errNotHello) {
				t.Errorf("%s: %v, %v, %+v", name, ok, err, r.hello)
			}
		}
	}
	for name, raw := range map[string][]byte{
		"long message": records([]byte{1, 1, 0, 0}, 10),
		"many records": records(append([]byte{1, 0, 0xff, 0}, make([]byte, 12<<10)...), 1),
	} {
		if _, ok, err := feedAll(raw, 100); ok || !errors.Is(err, errLargeHello) {
			t.Errorf("%s: %v, %v", name, ok, err)
		}
	}
}

func TestHelloReason(t *testing.T) {
	for _, c := range []struct {
		h    hello
		want string
	}{
		{hello{sni: allowed}, ""},
		{hello{sni: "Allowed.EXAMPLE"}, ""},
		{hello{sni: "allowed.example."}, SNIMismatch},
		{hello{sni: "allowed.example\x00"}, SNIMismatch},
		{hello{sni: "other.example"}, SNIMismatch},
		{hello{sni: "127.0.0.1"}, SNIMismatch},
		{hello{}, NoSNI},
		{hello{sni: allowed, ech: true}, ECH},
		{hello{ech: true}, ECH},
	} {
		if got := c.h.reason(allowed); got != c.want {
			t.Errorf("%+v: %q, want %q", c.h, got, c.want)
		}
	}
	for _, kind := range []int{0xfe08, 0xfe0d, 0xffce} {
		if r, ok, err := feedAll(withExtension(helloOf(clientConfig(allowed)), kind, []byte("x")), 50); !ok || !r.hello.ech {
			t.Errorf("extension %x: %v, %v", kind, ok, err)
		}
	}
	if r, ok, _ := feedAll(records(minimal(""), 100), 1); !ok || r.hello.reason(allowed) != NoSNI {
		t.Error("a hello without extensions")
	}
}

// The fuzz target compares with crypto/tls only where that gets as far.
func TestHelloReachesTLS(t *testing.T) {
	if name, ok := nameByTLS(helloOf(clientConfig(allowed))); !ok || name != allowed {
		t.Errorf("crypto/tls reads %q, %v", name, ok)
	}
}

// nameByTLS gives the host that crypto/tls reads from a hello.
func nameByTLS(raw []byte) (name string, ok bool) {
	w := &wire{}
	w.in.Reset(raw)
	tls.Server(w, &tls.Config{GetConfigForClient: func(info *tls.ClientHelloInfo) (*tls.Config, error) {
		name, ok = info.ServerName, true
		return nil, errSeen
	}}).Handshake()
	return name, ok
}

// errSeen ends the handshake of crypto/tls once it has read the hello.
var errSeen = errors.New("seen")

// FuzzClientHello: the parser doesn't depend on how bytes are cut, and where
// crypto/tls reads a host from what it accepts, that is the same host.
func FuzzClientHello(f *testing.F) {
	hello := helloOf(clientConfig(allowed))
	f.Add(hello)
	f.Add(records(hello[recordHeader:], 50))
	f.Add(helloOf(&tls.Config{InsecureSkipVerify: true, MaxVersion: tls.VersionTLS12}))
	f.Add(withExtension(hello, 0xfe0d, []byte{0}))
	f.Add(records(minimal("\x00\x0c"+sniExtension), 7))
	f.Add([]byte("GET / HTTP/1.1\r\n\r\n"))
	f.Fuzz(func(t *testing.T, raw []byte) {
		r, whole, err := feedAll(raw, len(raw)+1)
		one, whole1, err1 := feedAll(raw, 1)
		// Only that it was too large may be seen at other times.
		if len(raw) < r.limit && (whole != whole1 || (err == nil) != (err1 == nil) || r.hello != one.hello) {
			t.Fatalf("whole: %v %v %+v; by bytes: %v %v %+v", whole, err, r.hello, whole1, err1, one.hello)
		}
		if !whole {
			return
		}
		if name, ok := nameByTLS(raw); ok && name != r.hello.sni {
			t.Errorf("crypto/tls reads %q, we %q", name, r.hello.sni)
		}
	})
}
