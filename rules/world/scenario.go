package world

import (
	"cmp"
	"fmt"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/chaos"
	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Scenario is what scenario.star says: what the agent is asked, and what goes
// wrong meanwhile.
type Scenario struct {
	actor   string   // of the agent's calls
	request sl.Value // a dict, frozen
	window  int64    // seconds from the agent's end to the re-check
	chaos   []*chaos.Rule
	priors  []prior     // oldest first
	script  sl.Callable // of the prior runs
	after   sl.Callable // runs settleDelay after the re-check; may be nil
}

// A prior is an earlier run of the same agent.
type prior struct {
	path    string
	request sl.Value
	task    string
	ago     int64 // seconds before the start
}

// maxSpan bounds durations, in seconds: about thirty years.
const maxSpan = 1_000_000_000

// ParseScenario reads scenario.star for w; file is its name in errors.
func ParseScenario(file string, text []byte, w *World) (*Scenario, error) {
	root, err := starlark.OpenPortable(file, text)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	sc, s := &Scenario{}, shape.Of(file+": root", root)
	s.Members("actor", "window", "request", "chaos", "prior_runs", "script", "after_settlement")
	sc.actor = s.At("actor").Text()
	sc.request = s.At("request").Dict()
	sc.window = s.At("window").Number(0, maxSpan)
	for _, r := range s.At("chaos").List("a list of rules") {
		sc.chaos = append(sc.chaos, readRule(r, w))
	}
	if f := s.At("script"); !f.None() {
		sc.script = f.Function()
	}
	if f := s.At("after_settlement"); !f.None() {
		sc.after = f.Function()
	}
	for _, p := range s.At("prior_runs").List("a list of runs") {
		p.Members("request", "task", "ago")
		sc.priors = append(sc.priors, prior{p.Path(), p.At("request").Dict(), p.At("task").Text(), p.At("ago").Number(1, maxSpan)})
	}
	slices.SortStableFunc(sc.priors, func(a, b prior) int { return cmp.Compare(b.ago, a.ago) })
	if len(sc.priors) > 0 && sc.script == nil {
		s.At("script").Failf("prior runs need a script")
	}
	if s.Err() != nil {
		return nil, fmt.Errorf("read %w", s.Err())
	}
	return sc, nil
}

func readRule(s shape.Value, w *World) *chaos.Rule {
	r := &chaos.Rule{}
	s.Members("client", "system", "operation", "nth", "mode", "status", "fn")
	s.At("client").OneOf("agent")
	if sys := s.At("system"); !sys.None() {
		r.System = sys.Text()
		if w.system(r.System) == nil {
			sys.Failf("there is no system %q%s", r.System, graph.DidYouMean(r.System, w.systemNames()))
		}
	}
	if o := s.At("operation"); !o.None() {
		r.Operation = o.Text()
		op := w.operation(r.Operation)
		switch {
		case op == nil:
			o.Failf("there is no operation %q%s", r.Operation, graph.DidYouMean(r.Operation, w.patterns()))
		case op.Internal:
			o.Failf("%q is internal: no agent calls it", r.Operation)
		case r.System != "" && op.system.Name != r.System:
			o.Failf("%q is no operation of %s", r.Operation, r.System)
		}
	}
	r.ReadWhen(s, chaos.LostResponse, chaos.PhantomSuccess, chaos.Error, chaos.Unreachable, chaos.Before, chaos.Rewrite)
	if fn := s.At("fn"); r.Mode == chaos.Before || r.Mode == chaos.Rewrite {
		r.Fn = fn.Function()
	} else if !fn.None() {
		fn.Failf("%s takes no function", r.Mode)
	}
	return r
}
