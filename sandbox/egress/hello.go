package egress

import (
	"encoding/binary"
	"errors"

	"github.com/evalbuild/eval/workspace/graph"
)

// A hello is what a ClientHello says of where it goes.
type hello struct {
	sni string
	ech bool
}

// reason says why the hello may not go to a host, or "".
func (h hello) reason(host string) string {
	if h.ech {
		return ECH
	}
	if h.sni == "" {
		return NoSNI
	}
	// CanonicalHost would also take a dot at the end, which an SNI never has (RFC
	// 6066) and servers may read as another name.
	if c, _ := graph.CanonicalHost(h.sni); c != host || len(h.sni) != len(host) {
		return SNIMismatch
	}
	return ""
}

var (
	errNotHello   = errors.New("not a well-formed ClientHello")
	errLargeHello = errors.New("the ClientHello is too large")
)

// A helloReader takes bytes of a TLS stream until the ClientHello is whole
// (RFC 8446, 4.1.2 and 5.1; RFC 6066, 3). It is stricter than servers are, so
// that none of them can read another host from the same bytes: the hello must
// end with its record, no extension may be there twice, and each length must
// be exact.
type helloReader struct {
	limit int
	raw   []byte // all bytes so far, to be sent on; may go beyond the hello
	next  int    // where in raw the next record starts
	msg   []byte // the handshake message, out of its records
	hello hello
}

const recordHeader = 5

// feed says whether the hello is whole.
func (r *helloReader) feed(p []byte) (bool, error) {
	r.raw = append(r.raw, p...)
	for {
		rec := r.raw[r.next:]
		if len(rec) > 0 && rec[0] != 22 || len(rec) > 1 && rec[1] != 3 || len(rec) > 2 && rec[2] > 4 {
			return false, errNotHello // at once: a client that speaks something else would wait for an answer
		}
		if len(rec) < recordHeader {
			break
		}
		n := int(binary.BigEndian.Uint16(rec[3:]))
		if n == 0 || n > 1<<14 {
			return false, errNotHello
		}
		if len(rec) < recordHeader+n {
			break
		}
		r.msg = append(r.msg, rec[recordHeader:recordHeader+n]...)
		r.next += recordHeader + n
		if r.msg[0] != 1 {
			return false, errNotHello
		}
		if len(r.msg) < 4 {
			continue
		}
		want := 4 + int(r.msg[1])<<16 + int(binary.BigEndian.Uint16(r.msg[2:]))
		switch {
		case want > r.limit:
			return false, errLargeHello
		case len(r.msg) > want:
			return false, errNotHello
		case len(r.msg) == want:
			var ok bool
			if r.hello, ok = parseHello(r.msg[4:]); !ok {
				return false, errNotHello
			}
			return true, nil
		}
	}
	if len(r.raw) >= r.limit {
		return false, errLargeHello
	}
	return false, nil
}

// A reader takes vectors off the front of a message. After the first one that
// doesn't fit, bad stays.
type reader struct {
	b   []byte
	bad bool
}

func (r *reader) take(n int) []byte {
	if r.bad || len(r.b) < n {
		r.bad = true
		return nil
	}
	p := r.b[:n]
	r.b = r.b[n:]
	return p
}

func (r *reader) uint8() int {
	if p := r.take(1); p != nil {
		return int(p[0])
	}
	return 0
}

func (r *reader) uint16() int {
	if p := r.take(2); p != nil {
		return int(binary.BigEndian.Uint16(p))
	}
	return 0
}

func parseHello(b []byte) (hello, bool) {
	r := &reader{b: b}
	major := r.uint8()
	r.take(1 + 32) // minor version and random
	session := r.take(r.uint8())
	suites := r.take(r.uint16())
	compressions := r.take(r.uint8())
	if r.bad || major != 3 || len(session) > 32 || len(suites) == 0 || len(suites)%2 != 0 || len(compressions) == 0 {
		return hello{}, false
	}
	if len(r.b) == 0 {
		return hello{}, true // no extensions at all, as SSL 3.0 had it
	}
	if r.uint16() != len(r.b) {
		return hello{}, false
	}
	var h hello
	seen := map[int]bool{}
	for len(r.b) > 0 && !r.bad {
		kind := r.uint16()
		data := r.take(r.uint16())
		if r.bad || seen[kind] {
			return hello{}, false
		}
		seen[kind] = true
		switch {
		case kind == 0:
			var ok bool
			if h.sni, ok = parseSNI(data); !ok {
				return hello{}, false
			}
		case encryptedHello(kind):
			h.ech = true
		}
	}
	return h, !r.bad
}

// parseSNI reads a list of exactly one name: the format could hold more, of
// other kinds, but there never were any.
func parseSNI(b []byte) (string, bool) {
	r := &reader{b: b}
	if r.uint16() != len(r.b) || r.uint8() != 0 {
		return "", false
	}
	name := r.take(r.uint16())
	return string(name), !r.bad && len(name) > 0 && len(r.b) == 0
}

// encryptedHello says whether an extension hides the host: encrypted_client_hello
// (RFC 9849), its deployed drafts 8 to 12, and encrypted_server_name before it.
func encryptedHello(kind int) bool {
	return kind >= 0xfe08 && kind <= 0xfe0d || kind == 0xffce
}
