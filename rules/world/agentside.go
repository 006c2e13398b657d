package world

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

// Limits of a request, in bytes.
const (
	maxBody   = 1 << 20
	maxHeader = 16 << 10
)

// NewServer makes a server with the limits of a world. It logs nothing: what
// went wrong is in replies and in the fault.
func NewServer(h http.Handler) *http.Server {
	return &http.Server{Handler: h, MaxHeaderBytes: maxHeader, ErrorLog: log.New(io.Discard, "", 0)}
}

// A call is one request of the agent as it came.
type call struct {
	method   string
	url      *url.URL
	body     []byte
	tooLarge bool // body is empty then
	key      string
}

// decoded is the body; None if it is empty or no JSON.
func (c call) decoded() (sl.Value, error) {
	if len(bytes.TrimSpace(c.body)) == 0 {
		return sl.None, nil
	}
	v, err := starlark.ParseJSON(c.body)
	if err != nil {
		return sl.None, err
	}
	return v, nil
}

func (c call) malformed() bool {
	_, err := c.decoded()
	return err != nil
}

// An answer is what the agent sees of a call.
type answer struct {
	reply
	cut     bool     // no reply at all
	allowed []string // methods, with 405
	retry   bool     // with Retry-After: 0
}

// queryDict is the query; of a name given twice the first value.
func queryDict(u *url.URL) *sl.Dict {
	m := map[string]string{}
	for name, values := range u.Query() {
		m[name] = values[0]
	}
	return stringDict(m)
}

// noRoute is the reply to a request that no operation is for.
func noRoute(allowed []string) answer {
	if len(allowed) > 0 {
		return answer{reply: errorReply(http.StatusMethodNotAllowed, "the method is not allowed here"), allowed: allowed}
	}
	return answer{reply: errorReply(http.StatusNotFound, "there is no such path")}
}

// answer executes a call under chaos and logs it.
func (a *Act) answer(c call) answer {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down() {
		return answer{reply: downReply}
	}
	out, err := a.exchange(c)
	if err != nil {
		a.fault = err
		return answer{reply: downReply}
	}
	return out
}

// down says whether the act takes no more requests. The lock is held.
func (a *Act) down() bool { return a.fault != nil || a.ended }

var downReply = errorReply(http.StatusInternalServerError, "the world has ended")

func (a *Act) exchange(c call) (answer, error) {
	m, allowed := a.world.route(c.method, c.url.EscapedPath(), false)
	body, bad := c.decoded()
	if m.op == nil {
		out := noRoute(allowed)
		return out, a.journal.add(c, nil, body, out)
	}
	p := a.chaos.next(m.op.system.Name, m.op.Pattern)
	for _, fn := range p.before {
		if err := a.incident(fn); err != nil {
			return answer{}, fmt.Errorf("run before %s: %w", m.op.Pattern, err)
		}
	}
	var out answer
	var err error
	switch {
	case p.fails(modeUnreachable):
		out.cut = true
	case p.fails(modeError):
		out.reply = errorReply(p.failure.status, statusText(p.failure.status))
		out.retry = p.failure.status == http.StatusTooManyRequests
	case c.tooLarge:
		out.reply = errorReply(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", maxBody))
	case bad != nil:
		out.reply = errorReply(http.StatusBadRequest, "the body is not JSON: "+bad.Error())
	default:
		r := request{m, c.url.EscapedPath(), queryDict(c.url), body, a.scenario.Actor, c.key}
		out.reply, err = a.perform(r, !p.fails(modePhantomSuccess))
		out.cut = p.fails(modeLostResponse)
	}
	if err == nil && !out.cut && out.status < 400 {
		err = a.rewrite(&out, p.rewrite, m.op)
	}
	if err != nil {
		return answer{}, err
	}
	if body, err = c.decoded(); err != nil { // anew: the operation may have changed it
		body = sl.None
	}
	return out, a.journal.add(c, m.op, body, out)
}

func (a *Act) rewrite(out *answer, fns []sl.Callable, op *Operation) error {
	for _, fn := range fns {
		body, err := out.value()
		if err != nil {
			return err
		}
		v, err := callPortable(a.ctx, fn, sl.Tuple{body}, nil, stepLimit, a.print)
		if err == nil {
			out.body, err = starlark.AppendJSON(nil, v)
		}
		if err != nil {
			return fmt.Errorf("rewrite reply of %s: %w", op.Pattern, err)
		}
	}
	return nil
}

// Report takes what the agent claims. The last report counts.
func (a *Act) Report(success bool, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.down() {
		a.journal.report = mapping("success", sl.Bool(success), "message", sl.String(message))
	}
}

// Operations are those that the agent has.
func (a *Act) Operations() Operations { return a.world.Operations() }

// Handler is what an agent sees over HTTP. mcp serves /mcp; it may be nil.
func (a *Act) Handler(mcp http.Handler) http.Handler { return agentHandler{a, mcp} }

type agentHandler struct {
	act *Act
	mcp http.Handler
}

func (h agentHandler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	defer func() {
		if p := recover(); p != nil {
			if p != http.ErrAbortHandler {
				h.act.fail(fmt.Errorf("internal fault: %v", p))
			}
			panic(http.ErrAbortHandler)
		}
	}()
	if h.act.isDown() {
		write(w, answer{reply: downReply})
		return
	}
	if r.URL.Path == "/mcp" && h.mcp != nil {
		r.Body = http.MaxBytesReader(w, r.Body, maxBody)
		h.mcp.ServeHTTP(w, r)
		return
	}
	c := call{method: r.Method, url: r.URL, key: r.Header.Get("Idempotency-Key")}
	body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
	var large *http.MaxBytesError
	switch c.body = body; {
	case errors.As(err, &large):
		c.body, c.tooLarge = nil, true
	case err != nil: // the request never came whole: nobody has made it
		cut(w)
		return
	}
	switch r.URL.Path {
	case "/tools":
		write(w, h.act.tools(c))
	case "/report":
		write(w, h.act.takeReport(c))
	default:
		write(w, h.act.answer(c))
	}
}

func (a *Act) tools(c call) answer {
	if c.method != http.MethodGet {
		return noRoute([]string{http.MethodGet})
	}
	b, err := a.Operations().AppendJSON(nil)
	if err != nil {
		panic(err) // strings only
	}
	return answer{reply: reply{http.StatusOK, b}}
}

func (a *Act) takeReport(c call) answer {
	if c.method != http.MethodPost {
		return noRoute([]string{http.MethodPost})
	}
	wrong := answer{reply: errorReply(http.StatusBadRequest, `{"success": true or false, "message": "…"} is meant`)}
	v, err := c.decoded()
	d, ok := v.(*sl.Dict)
	if err != nil || !ok {
		return wrong
	}
	success, _, _ := d.Get(sl.String("success"))
	message, given, _ := d.Get(sl.String("message"))
	claim, ok := success.(sl.Bool)
	text, isText := sl.AsString(message)
	if !ok || given && !isText {
		return wrong
	}
	a.Report(bool(claim), text)
	return answer{reply: reply{http.StatusOK, []byte(`{"ok":true}`)}}
}

// write sends an answer.
func write(w http.ResponseWriter, out answer) {
	if out.cut {
		cut(w)
		return
	}
	h := w.Header()
	h["Date"] = nil // the time of the host is no part of the world
	if len(out.allowed) > 0 {
		h.Set("Allow", strings.Join(out.allowed, ", "))
	}
	if out.retry {
		h.Set("Retry-After", "0")
	}
	if !hasBody(out.status) {
		w.WriteHeader(out.status)
		return
	}
	h.Set("Content-Type", "application/json")
	w.WriteHeader(out.status)
	w.Write(append(out.body[:len(out.body):len(out.body)], '\n')) // a client that went away has lost its reply
}

// cut ends the connection so that the client sees an error and no empty reply.
func cut(w http.ResponseWriter) {
	hj, ok := w.(http.Hijacker)
	if !ok {
		panic(http.ErrAbortHandler)
	}
	conn, _, err := hj.Hijack()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	if tcp, ok := conn.(*net.TCPConn); ok {
		tcp.SetLinger(0) // without it the close below still is an error for the client
	}
	conn.Close()
}
