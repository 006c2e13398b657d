package wire

import (
	"io"
	"log"
	"net/http"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

// The instants of an act, in their order, as a client names them.
const (
	AtStart   = "start"   // seeds and prior runs are done
	AtDone    = "done"    // the agent has ended
	AtSettled = "settled" // the window has passed; nothing else has happened
	AtAfter   = "after"   // after_settlement has run; without one as settled
)

// maxHeader bounds the header of a request, in bytes.
const maxHeader = 16 << 10

// NewServer makes a server with the limits of a world. It logs nothing: what
// went wrong is in replies and in the fault.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0)}
}

// An Answer is what a server gives for a request.
type Answer struct {
	Status  int
	Body    []byte   // canonical JSON
	Cut     bool     // no reply at all
	Allowed []string // methods, with 405
	Retry   bool     // with Retry-After: 0
}

// Refusal is an answer {"error": text}.
func Refusal(status int, text string) Answer {
	d := sl.NewDict(1)
	err := d.SetKey(sl.String("error"), sl.String(text))
	var b []byte
	if err == nil {
		b, err = starlark.AppendJSON(nil, d)
	}
	if err != nil {
		panic(err) // a new dict of strings
	}
	return Answer{Status: status, Body: b}
}

// NoRoute is the answer to a request that nothing is served for; allowed are the
// methods that its path has.
func NoRoute(allowed []string) Answer {
	if len(allowed) == 0 {
		return Refusal(http.StatusNotFound, "there is no such path")
	}
	a := Refusal(http.StatusMethodNotAllowed, "the method is not allowed here")
	a.Allowed = allowed
	return a
}

// Failing is an error that chaos makes. A client that is told to wait need not:
// the clock of a world moves with its writes.
func Failing(status int) Answer {
	text := http.StatusText(status)
	if text == "" {
		text = "Error"
	}
	a := Refusal(status, text)
	a.Retry = status == http.StatusTooManyRequests
	return a
}

// HasBody says whether HTTP lets a reply of that status have a body.
func HasBody(status int) bool {
	return status != http.StatusNoContent && status != http.StatusResetContent && status != http.StatusNotModified
}

// Value is the body as the client decodes it.
func (a Answer) Value() (sl.Value, error) {
	if !HasBody(a.Status) {
		return sl.None, nil
	}
	return starlark.ParseJSON(a.Body)
}

// Send sends a.
func (a Answer) Send(w http.ResponseWriter) {
	if a.Cut {
		Cut(w)
		return
	}
	h := w.Header()
	h["Date"] = nil // the time of the host is no part of the world
	if len(a.Allowed) > 0 {
		h.Set("Allow", strings.Join(a.Allowed, ", "))
	}
	if a.Retry {
		h.Set("Retry-After", "0")
	}
	if !HasBody(a.Status) {
		w.WriteHeader(a.Status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(a.Status)
	w.Write(append(a.Body[:len(a.Body):len(a.Body)], '\n')) // a client that went away has lost its reply
}

// Cut ends the connection so that the client sees an error and no empty reply.
func Cut(w http.ResponseWriter) {
	hj, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := hj.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(interface{ SetLinger(sec int) error }); ok {
		tcp.SetLinger(0) // without it the close below still is an error for the client
	}
	conn.Close()
}
