package egress

import (
	"bytes"
	"errors"
	"io"
	"strings"

	"github.com/evalbuild/eval/workspace/graph"
)

// A request is what the header of one asks for. With an empty reason it is a
// CONNECT to a canonical host.
type request struct {
	via    string
	host   string // canonical, or as asked and escaped
	port   uint16
	reason string
}

// attempt is how the request is logged first.
func (q request) attempt() Attempt {
	a := Attempt{Via: q.via, Host: q.host, Port: int(q.port), Verdict: Allowed, Reason: q.reason}
	if q.reason != "" {
		a.Verdict = Refused
	}
	return a
}

var (
	errLarge   = errors.New("header is too large")
	errBareEnd = errors.New("not the start of a request, or a line that doesn't end in CR LF")
)

// readHead reads a header without its empty line, and what came after it. With
// an error, head is what there was. Its own reader, since net/http's takes
// bare LF, folded lines and more.
func readHead(r io.Reader, limit int) (head, rest []byte, err error) {
	buf := make([]byte, 0, 1024)
	for {
		if len(buf) == cap(buf) {
			buf = append(buf, 0)[:len(buf)]
		}
		n, err := r.Read(buf[len(buf):min(cap(buf), limit)])
		seen := len(buf)
		buf = buf[:seen+n]
		if seen == 0 && n > 0 && (buf[0] < 'A' || buf[0] > 'Z') {
			return buf, nil, errBareEnd // TLS, SOCKS: don't wait for the end of a header
		}
		for i := seen; i < len(buf); i++ {
			if buf[i] != '\n' {
				continue
			}
			if i == 0 || buf[i-1] != '\r' {
				return buf[:i], nil, errBareEnd
			}
			if i >= 3 && buf[i-2] == '\n' {
				return buf[:i-3], buf[i+1:], nil
			}
		}
		if len(buf) >= limit {
			return buf, nil, errLarge
		}
		if err != nil {
			return buf, nil, err
		}
	}
}

// parseRequest reads a header. It never fails: of what isn't well-formed it
// says as much as a log needs.
func parseRequest(head []byte) request {
	line, fields, _ := bytes.Cut(head, []byte("\r\n"))
	method, target, _ := strings.Cut(string(line), " ")
	version := ""
	if i := strings.LastIndexByte(target, ' '); i >= 0 {
		target, version = target[:i], target[i+1:]
	}
	q := request{via: ViaHTTP}
	switch scheme, after, absolute := strings.Cut(target, "://"); {
	case method == "CONNECT":
		q = readTarget(target, "")
		q.via = ViaConnect
	case absolute && token(scheme): // not a path that has a URL in its query
		port := "80"
		if strings.EqualFold(scheme, "https") {
			port = "443"
		}
		q = readTarget(after[:authorityEnd(after)], port)
		q.via, q.reason = ViaHTTP, PlainHTTP
	default:
		q.reason = Method // a path, which isn't logged, or *
	}
	if !token(method) || version != "HTTP/1.1" && version != "HTTP/1.0" || target == "" || strings.ContainsAny(target, " \t") || !checkFields(fields, q.via == ViaConnect) {
		q.reason = Malformed
	}
	return q
}

func authorityEnd(s string) int {
	if i := strings.IndexAny(s, `/?#\`); i >= 0 {
		return i
	}
	return len(s)
}

// readTarget reads HOST:PORT. What is kept of a malformed one has neither user
// names nor a path.
func readTarget(s, port string) request {
	if i := strings.LastIndexByte(s[:authorityEnd(s)], '@'); i >= 0 {
		s = s[i:] // the @ stays, and makes it malformed
	}
	host := s
	if i := strings.LastIndexByte(s, ':'); i >= 0 && !strings.HasSuffix(s, "]") {
		host, port = s[:i], s[i+1:]
	}
	h, err := graph.CanonicalHost(host)
	p, portErr := graph.ParsePort(port)
	reason := ""
	switch {
	case portErr != nil, err != nil && !errors.Is(err, graph.ErrAddress):
		reason = Malformed
	case err != nil:
		reason = BadAddress
	}
	if h == "" {
		h = host[:authorityEnd(host)]
	}
	return request{host: shown(h), port: p, reason: reason}
}

// checkFields says whether header lines are well-formed, at most one of them
// says Host, and none gives a CONNECT a body, which has none: what follows the
// header must be the tunnel to every reader.
func checkFields(fields []byte, connect bool) bool {
	if len(fields) == 0 {
		return true
	}
	hosts := 0
	for line := range bytes.SplitSeq(fields, []byte("\r\n")) {
		name, value, ok := bytes.Cut(line, []byte(":"))
		if !ok || !token(string(name)) {
			return false // also a folded line, which starts with a space
		}
		for _, c := range value {
			if c < ' ' && c != '\t' || c == 0x7f {
				return false
			}
		}
		switch n := strings.ToLower(string(name)); {
		case n == "host":
			if hosts++; hosts > 1 {
				return false
			}
		case connect && n == "transfer-encoding":
			return false
		case connect && n == "content-length" && string(bytes.Trim(value, " \t")) != "0":
			return false
		}
	}
	return true
}

// token says whether s is one (RFC 9110, 5.6.2).
func token(s string) bool {
	for _, c := range []byte(s) {
		if (c|0x20 < 'a' || c|0x20 > 'z') && (c < '0' || c > '9') && !strings.ContainsRune("!#$%&'*+-.^_`|~", rune(c)) {
			return false
		}
	}
	return s != ""
}
