package egress

import (
	"fmt"
	"strconv"
	"sync"
)

// How an attempt came.
const (
	ViaConnect = "connect"
	ViaHTTP    = "http" // any other request to the proxy
	ViaForward = "forward"
)

// What became of an attempt.
const (
	Allowed = "allowed"
	Refused = "refused"
)

// Reasons of refusals, and of cuts where the attempt was allowed. They are
// written to records: never rename one.
const (
	NotAllowed  = "not-allowed"  // the host isn't in the list
	BadPort     = "port"         // the host is, with other ports
	BadAddress  = "address"      // asked by address, or the name has an address that isn't public
	Malformed   = "malformed"    // no well-formed request, or no well-formed host
	Method      = "method"       // a request to the proxy itself
	PlainHTTP   = "plain-http"   // a request for a URL, which wants CONNECT
	LargeHeader = "header"       // a header beyond the limit
	Timeout     = "timeout"      // the header or the ClientHello didn't come in time
	NotTLS      = "not-tls"      // no well-formed ClientHello came first
	NoSNI       = "no-sni"       // a ClientHello that names no host
	SNIMismatch = "sni-mismatch" // or another one than CONNECT
	ECH         = "ech"          // or hides which
	Limit       = "limit"        // too many connections at once
	LogFull     = "log-full"     // too many attempts

	// The policy would have it, but the world didn't.
	NoName = "resolve"
	NoDial = "dial"

	// Of an allowed attempt that was cut.
	Idle  = "idle"
	Ended = "closed" // the process left, or the rep ended, before its data went
)

// statuses are the answers to refusals before the 200.
var statuses = map[string]string{
	NotAllowed:  "403 Forbidden",
	BadPort:     "403 Forbidden",
	BadAddress:  "403 Forbidden",
	PlainHTTP:   "403 Forbidden",
	Malformed:   "400 Bad Request",
	Method:      "405 Method Not Allowed\r\nAllow: CONNECT",
	Timeout:     "408 Request Timeout",
	LargeHeader: "431 Request Header Fields Too Large",
	NoName:      "502 Bad Gateway",
	NoDial:      "502 Bad Gateway",
	Limit:       "503 Service Unavailable",
	LogFull:     "503 Service Unavailable",
	Ended:       "503 Service Unavailable",
}

// An Attempt is one connection that the process asked for: a line of
// egress.jsonl. The fields are in the order of their keys, which is that of
// canonical JSON.
type Attempt struct {
	// Address is what was dialled, an IP with port, or the target of a forward.
	Address string `json:"address,omitempty"`
	// Host is canonical if it could be, and otherwise what was asked, escaped
	// and cut; empty if the request names none. For a forward, 127.0.0.1.
	Host string `json:"host"`
	// More, in the last entry of a full log only, counts the attempts that are
	// not in it; each was refused.
	More     int    `json:"more,omitempty"`
	Port     int    `json:"port"` // as asked; 0 if none
	Reason   string `json:"reason,omitempty"`
	Received int64  `json:"received"` // bytes that reached the process, after the 200
	Sent     int64  `json:"sent"`     // bytes of the process that went out
	Seq      int    `json:"seq"`      // from 1, in the order in which they were asked
	SNI      string `json:"sni,omitempty"`
	Verdict  string `json:"verdict"`
	Via      string `json:"via"`
}

// maxShown is how much of a host or SNI is logged, in bytes as asked: a DNS
// name has at most 253.
const maxShown = 256

// shown escapes what a process sent so that it can stand in a log and on a
// terminal.
func shown(s string) string {
	cut := ""
	if n := len(s) - maxShown; n > 0 {
		s, cut = s[:maxShown], fmt.Sprintf(" (and %d bytes)", n)
	}
	q := strconv.QuoteToASCII(s)
	return q[1:len(q)-1] + cut
}

// A journal is the log while it grows.
type journal struct {
	mu   sync.Mutex
	max  int
	list []Attempt
	more int
}

// full is the entry number of an attempt that the log has no room for.
const full = -1

// add gives an attempt its number, or full.
func (j *journal) add(a Attempt) int {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.list) >= j.max {
		j.more++
		return full
	}
	a.Seq = len(j.list) + 1
	j.list = append(j.list, a)
	return len(j.list) - 1
}

func (j *journal) update(i int, f func(*Attempt)) {
	j.mu.Lock()
	defer j.mu.Unlock()
	f(&j.list[i])
}

func (j *journal) refuse(i int, reason string) {
	j.update(i, func(a *Attempt) { a.Verdict, a.Reason = Refused, reason })
}

// cut notes why an allowed attempt ended other than by its own parties.
func (j *journal) cut(i int, reason string) {
	j.update(i, func(a *Attempt) { a.Reason = reason })
}

func (j *journal) snapshot() []Attempt {
	j.mu.Lock()
	defer j.mu.Unlock()
	list := append([]Attempt(nil), j.list...)
	if j.more > 0 {
		list = append(list, Attempt{Seq: len(list) + 1, Verdict: Refused, Reason: LogFull, More: j.more})
	}
	return list
}
