package world

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/rules/world/chaos"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// settleDelay is how long after the re-check after_settlement runs, in seconds.
const settleDelay = 60

// seedActor is the actor of a seed's events that name none.
const seedActor = "seed"

// An Act is one run of a scenario. Its methods are safe for concurrent use.
type Act struct {
	ctx      context.Context
	world    *World
	scenario *Scenario
	folder   string
	print    func(string)

	// mu is held by whatever touches what is below: one request at a time.
	mu        sync.Mutex
	clock     clock
	store     *store // nil: there is none, or it was closed
	databases map[string]*database
	calls     *chaos.Counter // of the agent
	journal   journal
	instants  []instant
	fault     error // the first
	ended     bool
}

// Start makes the databases, runs seeds and prior runs, and is then ready for the
// agent; Finish writes in folder. What functions print goes to print. Close must be called
// also after an error of Finish.
func Start(ctx context.Context, w *World, sc *Scenario, folder string, print func(string)) (*Act, error) {
	a := &Act{ctx: ctx, world: w, scenario: sc, folder: folder, print: print, calls: chaos.NewCounter(sc.chaos)}
	if err := a.start(); err != nil {
		a.Close()
		return nil, err
	}
	return a, nil
}

func (a *Act) start() error {
	var err error
	if a.store, err = openStore(a.world.systems); err != nil {
		return err
	}
	a.databases = map[string]*database{}
	for _, sys := range a.world.systems {
		a.databases[sys.Name] = &database{store: a.store, system: sys}
	}
	start := a.world.now - lead
	for _, sys := range a.world.systems {
		if sys.seed == nil {
			continue
		}
		if err := a.seed(sys, start); err != nil {
			return fmt.Errorf("seed %s: %w", sys.Name, err)
		}
	}
	for _, p := range a.scenario.priors {
		a.clock.set(max(a.clock.now, start-p.ago)) // the one before may still be at it
		if err := a.runPrior(p); err != nil {
			return fmt.Errorf("run %s: %w", p.path, err)
		}
		if a.clock.now > start {
			return fmt.Errorf("run %s: it lasts beyond the start: ago = %d is too short", p.path, p.ago)
		}
	}
	a.clock.set(start)
	if err := a.store.bound(); err != nil {
		return err
	}
	return a.keep(wire.AtStart)
}

func (a *Act) keep(name string) error {
	in, err := a.snapshot(name)
	a.instants = append(a.instants, in)
	return err
}

func (a *Act) seed(sys *System, start int64) error {
	t, err := a.databases[sys.Name].begin(start, seedActor, true)
	if err != nil {
		return err
	}
	db, emit := t.values()
	_, err = starlark.CallPortable(a.ctx, sys.seed, sl.Tuple{db, emit, sl.MakeInt64(start)}, stepLimit, a.print)
	return errors.Join(err, t.end(err == nil))
}

// runPrior runs the script as the profile "plain" does: each call once, whatever
// came of it, and no chaos.
func (a *Act) runPrior(p prior) error {
	task := structOf("text", sl.String(p.task), "request", p.request)
	call := sl.NewBuiltin("call", func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
		var operation string
		var body sl.Value = sl.None
		if err := sl.UnpackArgs(b.Name(), args, kwargs, "operation", &operation, "body?", &body); err != nil {
			return nil, err
		}
		out, err := a.direct(operation, body, a.scenario.actor, false)
		if err != nil {
			return nil, err
		}
		v, err := out.Value()
		return structOf("ok", sl.Bool(out.Status < 400), "status", sl.MakeInt(out.Status), "body", v), err
	})
	_, err := starlark.CallPortable(a.ctx, a.scenario.script, sl.Tuple{task, call}, stepLimit, a.print)
	return err
}

// incident runs a function of the scenario: somebody else acts.
func (a *Act) incident(fn sl.Callable) error {
	call := sl.NewBuiltin("call", func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
		var operation string
		var body sl.Value = sl.None
		actor := "someone"
		if err := sl.UnpackArgs(b.Name(), args, kwargs, "operation", &operation, "body?", &body, "actor?", &actor); err != nil {
			return nil, err
		}
		out, err := a.direct(operation, body, actor, true)
		if err != nil {
			return nil, err
		}
		v, err := out.Value()
		return structOf("status", sl.MakeInt(out.Status), "body", v), err
	})
	_, err := starlark.CallPortable(a.ctx, fn, sl.Tuple{a.scenario.request, call}, stepLimit, a.print)
	return err
}

// structOf is a struct of names and values in turn.
func structOf(pairs ...any) sl.Value {
	d := sl.StringDict{}
	for i := 0; i < len(pairs); i += 2 {
		d[pairs[i].(string)] = pairs[i+1].(sl.Value)
	}
	return starlarkstruct.FromStringDict(starlarkstruct.Default, d)
}

// direct executes "METHOD /path" without chaos and log. Without internal it sees
// what agents see; with it an unknown operation is an error, since only a
// definition can have named it.
func (a *Act) direct(operation string, body sl.Value, actor string, internal bool) (wire.Answer, error) {
	method, target, _ := strings.Cut(operation, " ")
	u, err := url.ParseRequestURI(target)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("call %q: METHOD /path is meant", operation)
	}
	data, err := starlark.AppendJSON(nil, body)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("call %q: body: %w", operation, err)
	}
	m, allowed := a.world.route(method, u.EscapedPath(), internal)
	if m.op == nil && internal {
		return wire.Answer{}, fmt.Errorf("call %q: there is no such operation", operation)
	}
	if m.op == nil {
		return wire.NoRoute(allowed), nil
	}
	// A copy: the operation may change its body, and the caller's may be frozen.
	if body, err = starlark.ParseJSON(data); err != nil {
		return wire.Answer{}, err
	}
	return a.perform(request{match: m, path: u.EscapedPath(), query: stringDict(firstValues(u)), body: body, actor: actor}, true)
}

func (a *Act) isDown() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.down()
}

// fail remembers a fault.
func (a *Act) fail(err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.fault == nil {
		a.fault = err
	}
}

// Finish says that the agent has ended: it runs what comes after and writes
// run.jsonl, tables.json and events.json. After a fault it writes nothing and
// returns it. Requests that come later are answered with 500.
func (a *Act) Finish() error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.fault == nil {
		a.fault = a.settle()
	}
	if a.fault != nil {
		return a.fault
	}
	for _, f := range []struct {
		name  string
		bytes func() ([]byte, error)
	}{{"run.jsonl", a.journal.bytes}, {"tables.json", a.tablesJSON}, {"events.json", a.eventsJSON}} {
		b, err := f.bytes()
		if err == nil {
			err = writeFile(filepath.Join(a.folder, f.name), b)
		}
		if err != nil {
			return fmt.Errorf("write %s: %w", f.name, err)
		}
	}
	return nil
}

// settle takes the instants after the agent's end.
func (a *Act) settle() error {
	if err := a.keep(wire.AtDone); err != nil {
		return err
	}
	settled := a.instants[len(a.instants)-1]
	a.clock.set(a.clock.now + a.scenario.window)
	settled.name, settled.clock = wire.AtSettled, a.clock.now
	a.instants = append(a.instants, settled)
	if a.scenario.after == nil {
		settled.name = wire.AtAfter
		a.instants = append(a.instants, settled)
		return nil
	}
	a.clock.set(a.clock.now + settleDelay)
	if err := a.incident(a.scenario.after); err != nil {
		return fmt.Errorf("run after_settlement: %w", err)
	}
	return a.keep(wire.AtAfter)
}

// writeFile writes a file whole or not at all.
func writeFile(path string, b []byte) error {
	part := path + ".part"
	if err := os.WriteFile(part, b, 0o644); err != nil {
		return err
	}
	return os.Rename(part, path)
}

// Close lets the databases go.
func (a *Act) Close() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.ended = true
	if a.store != nil {
		a.store.close()
		a.store = nil
	}
}
