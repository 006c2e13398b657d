package world

import (
	"bytes"
	"fmt"
	"io"
	"net/http"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/chaos"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// answer executes a call under chaos and logs it.
func (a *Act) answer(c call) wire.Answer {
	if out, refused := c.refused(); refused {
		return out
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.down() {
		return downReply
	}
	if a.journal.full() {
		return wire.Refusal(http.StatusInsufficientStorage, "this run has used up its log")
	}
	out, err := a.exchange(c)
	if err != nil {
		a.fault = err
		return downReply
	}
	return out
}

// down says whether the act takes no more requests. The lock is held.
func (a *Act) down() bool { return a.fault != nil || a.ended }

var downReply = wire.Refusal(http.StatusInternalServerError, "the world has ended")

func (a *Act) exchange(c call) (wire.Answer, error) {
	m, allowed := a.world.route(c.method, c.url.EscapedPath(), false)
	in := c.content()
	if m.op == nil {
		out := wire.NoRoute(allowed)
		return out, a.journal.add(c, in, nil, out)
	}
	p := a.calls.Next(m.op.system.Name, m.op.Pattern)
	for _, fn := range p.Before {
		if err := a.incident(fn); err != nil {
			return wire.Answer{}, fmt.Errorf("run before %s: %w", m.op.Pattern, err)
		}
	}
	var out wire.Answer
	var err error
	switch {
	case p.Fails(chaos.Unreachable):
		out.Cut = true
	case p.Fails(chaos.Error):
		out = wire.Failing(p.Failure.Status)
	case c.large:
		out = wire.Refusal(http.StatusRequestEntityTooLarge, fmt.Sprintf("the body has more than %d bytes", wire.MaxBody))
	case in.err != nil:
		out = wire.Refusal(http.StatusBadRequest, "the body is not JSON: "+in.err.Error())
	default:
		r := request{match: m, path: c.url.EscapedPath(), query: stringDict(firstValues(c.url)), actor: a.scenario.actor, key: c.key, bounded: true}
		if r.body, err = c.value(in); err == nil {
			out, err = a.perform(r, !p.Fails(chaos.PhantomSuccess))
		}
		out.Cut = p.Fails(chaos.LostResponse)
	}
	if err == nil && !out.Cut && out.Status < 400 {
		err = a.rewrite(&out, p.Rewrite, m.op)
	}
	if err != nil {
		return wire.Answer{}, err
	}
	return out, a.journal.add(c, in, m.op, out)
}

func (a *Act) rewrite(out *wire.Answer, fns []sl.Callable, op *Operation) error {
	for _, fn := range fns {
		body, err := out.Value()
		if err != nil {
			return err
		}
		v, err := starlark.CallPortable(a.ctx, fn, sl.Tuple{body}, stepLimit, a.print)
		if err == nil {
			out.Body, err = starlark.AppendJSON(nil, v)
		}
		if err != nil {
			return fmt.Errorf("rewrite reply of %s: %w", op.Pattern, err)
		}
	}
	return nil
}

// maxMessage bounds what is kept of the message of a report, in bytes: in any
// spelling the whole is a body that can be sent again.
const maxMessage = 64 << 10

// Report takes what the agent claims. The last report counts. Of a message of more
// than 64 KiB the first 64 are kept.
func (a *Act) Report(success bool, message string) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.down() {
		a.journal.report = mapping("success", sl.Bool(success), "message", sl.String(message[:min(len(message), maxMessage)]))
	}
}

// Operations are those that the agent has.
func (a *Act) Operations() Operations { return a.world.Operations() }

// Handler is what an agent sees over HTTP. mcp serves /mcp; it may be nil.
func (a *Act) Handler(mcp http.Handler) http.Handler { return agentHandler{a, mcp, newBodies()} }

type agentHandler struct {
	act    *Act
	mcp    http.Handler
	bodies bodies
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
		downReply.Send(w)
		return
	}
	if wire.CheckMethod(r.Method) != nil {
		wire.NoRoute(wire.Methods).Send(w)
		return
	}
	body, done, err := h.bodies.read(r.Body)
	defer done()
	if err != nil { // the request never came whole: nobody has made it
		wire.Cut(w)
		return
	}
	if r.URL.Path == "/mcp" && h.mcp != nil {
		r.Body = io.NopCloser(bytes.NewReader(body))
		h.mcp.ServeHTTP(w, r)
		return
	}
	c := call{method: r.Method, url: r.URL, key: r.Header.Get("Idempotency-Key")}
	c.setBody(body)
	switch r.URL.Path {
	case "/tools":
		h.act.tools(c).Send(w)
	case "/report":
		h.act.takeReport(c).Send(w)
	default:
		h.act.answer(c).Send(w)
	}
}

func (a *Act) tools(c call) wire.Answer {
	if c.method != http.MethodGet {
		return wire.NoRoute([]string{http.MethodGet})
	}
	b, err := a.Operations().AppendJSON(nil)
	if err != nil {
		panic(err) // strings only
	}
	return wire.Answer{Status: http.StatusOK, Body: b}
}

func (a *Act) takeReport(c call) wire.Answer {
	if c.method != http.MethodPost {
		return wire.NoRoute([]string{http.MethodPost})
	}
	wrong := wire.Refusal(http.StatusBadRequest, `{"success": true or false, "message": "…"} is meant`)
	in := c.content()
	v, err := c.value(in)
	d, ok := v.(*sl.Dict)
	if in.err != nil || err != nil || !ok {
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
	return wire.Answer{Status: http.StatusOK, Body: []byte(`{"ok":true}`)}
}
