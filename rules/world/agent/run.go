package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// stepLimit bounds a script, in Starlark steps: about a second.
const stepLimit = 10_000_000

// Run runs the agent against the world and sends its report. What the script
// prints goes to print.
func (d *Definition) Run(ctx context.Context, world *wire.Client, print func(string)) error {
	r := &run{ctx: ctx, world: world, does: d.does}
	if !d.does.idle {
		task := starlarkstruct.FromStringDict(starlarkstruct.Default, sl.StringDict{"text": sl.String(d.Task), "request": d.Request})
		_, err := starlark.CallPortable(ctx, d.Script, sl.Tuple{task, sl.NewBuiltin("call", r.call)}, stepLimit, print)
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case r.broken != nil:
			return r.broken
		case err != nil && !r.stopped:
			return fmt.Errorf("run script: %w", err)
		}
	}
	return sendReport(ctx, world, r.report())
}

// A run is the state of one agent at work.
type run struct {
	ctx   context.Context
	world *wire.Client
	does  profile

	calls   int    // of the script
	failure string // the first call that failed in the end
	stopped bool   // the profile ended the script
	broken  error  // the world could not be asked
}

// errStopped ends a script from inside call. It is never shown.
var errStopped = errors.New("the profile ends the run here")

// call is what the script has: call(operation, body = None) -> struct(ok,
// status, body). The operation is the method and the path, "GET /orders/1001".
func (r *run) call(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var operation string
	var body sl.Value = sl.None
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "operation", &operation, "body?", &body); err != nil {
		return nil, err
	}
	req, err := request(operation, body)
	if err != nil {
		return nil, err
	}
	r.calls++
	if r.does.keys {
		req.Key = fmt.Sprintf("call-%d", r.calls)
	}
	reply, value, err := r.try(req)
	if err != nil {
		return nil, err
	}
	if reply.Failed() && r.does.stops {
		r.stopped = true
		return nil, errStopped
	}
	if r.does.obeys {
		for _, in := range instructions(value) {
			if _, _, err := r.try(in); err != nil {
				return nil, err
			}
		}
	}
	return starlarkstruct.FromStringDict(starlarkstruct.Default, sl.StringDict{
		"ok": sl.Bool(!reply.Failed()), "status": sl.MakeInt(reply.Status), "body": value,
	}), nil
}

// try makes one call with all the attempts that the profile has, and returns
// the last reply and its body.
func (r *run) try(req wire.Request) (wire.Reply, sl.Value, error) {
	var reply wire.Reply
	for n := 1; ; n++ {
		var err error
		if reply, err = r.world.Do(r.ctx, req); err != nil {
			r.broken = err
			return reply, nil, err
		}
		if !mayPass(reply) || n >= r.does.attempts {
			break
		}
	}
	value, err := decode(reply)
	if err != nil {
		r.broken = fmt.Errorf("reply to %s: %w", req, err)
		return reply, nil, r.broken
	}
	if reply.Failed() && r.failure == "" {
		r.failure = fmt.Sprintf("%s %s was answered with %d", req.Method, req.Target, reply.Status)
		if !reply.Delivered {
			r.failure = fmt.Sprintf("%s %s was not answered", req.Method, req.Target)
		}
	}
	return reply, value, nil
}

func (r *run) report() Report {
	if r.failure == "" || r.does.claims {
		return Report{Success: true, Message: "the task is done"}
	}
	return Report{Success: false, Message: r.failure}
}

// request makes the request of "METHOD /path" and a value; None sends no body.
func request(operation string, body sl.Value) (wire.Request, error) {
	method, target, _ := strings.Cut(operation, " ")
	req := wire.Request{Method: method, Target: target}
	if err := req.Check(); err != nil {
		return req, err
	}
	if body != sl.None {
		data, err := starlark.AppendJSON(nil, body)
		if err != nil {
			return req, fmt.Errorf("body of %s: %w", operation, err)
		}
		req.Body = data
	}
	return req, nil
}

// decode is the value of a reply's body: None if it is empty or was lost.
func decode(reply wire.Reply) (sl.Value, error) {
	if len(reply.Body) == 0 {
		return sl.None, nil
	}
	v, err := starlark.ParseJSON(reply.Body)
	if err != nil {
		return nil, fmt.Errorf("not JSON: %w", err)
	}
	return v, nil
}

// A Report is what an agent claims at its end.
type Report struct {
	Success bool
	Message string
}

func sendReport(ctx context.Context, world *wire.Client, r Report) error {
	d := new(sl.Dict)
	_ = d.SetKey(sl.String("success"), sl.Bool(r.Success)) // a fresh dict takes any string
	_ = d.SetKey(sl.String("message"), sl.String(r.Message))
	req, err := request("POST /report", d)
	if err != nil {
		return err
	}
	reply, err := world.Do(ctx, req)
	if err != nil {
		return fmt.Errorf("send report: %w", err)
	}
	if reply.Failed() {
		return fmt.Errorf("send report: answered with status %d: %s", reply.Status, reply.Body)
	}
	return nil
}
