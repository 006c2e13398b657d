package world

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Scenario is what scenario.star says: what the agent is to do, and what goes
// wrong meanwhile.
type Scenario struct {
	Actor   string // of the agent's calls
	Task    string
	Request sl.Value // a dict, frozen
	Window  int64    // seconds from the agent's end to the re-check

	chaos  []*rule
	priors []prior     // oldest first
	script sl.Callable // of the prior runs
	after  sl.Callable // runs settleDelay after the re-check; may be nil
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
	root, err := openPortable(file, text)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	sc, s := &Scenario{}, rootShape(file, root)
	s.members("actor", "window", "request", "task", "chaos", "prior_runs", "script", "after_settlement")
	sc.Actor = s.at("actor").text()
	sc.Task = s.at("task").text()
	sc.Request = s.at("request").dict()
	sc.Window = s.at("window").number(0, maxSpan)
	for _, r := range s.at("chaos").list("a list of rules") {
		sc.chaos = append(sc.chaos, readRule(r, w))
	}
	if f := s.at("script"); !f.none() {
		sc.script = f.function()
	}
	if f := s.at("after_settlement"); !f.none() {
		sc.after = f.function()
	}
	for _, p := range s.at("prior_runs").list("a list of runs") {
		p.members("request", "task", "ago")
		sc.priors = append(sc.priors, prior{p.path, p.at("request").dict(), p.at("task").text(), p.at("ago").number(1, maxSpan)})
	}
	slices.SortStableFunc(sc.priors, func(a, b prior) int { return cmp.Compare(b.ago, a.ago) })
	if len(sc.priors) > 0 && sc.script == nil {
		s.at("script").failf("prior runs need a script")
	}
	if *s.err != nil {
		return nil, fmt.Errorf("read %w", *s.err)
	}
	return sc, nil
}

func readRule(s shape, w *World) *rule {
	r := &rule{}
	s.members("client", "system", "operation", "nth", "mode", "status", "fn")
	s.at("client").oneOf("agent")
	if sys := s.at("system"); !sys.none() {
		r.system = sys.text()
		if w.system(r.system) == nil {
			sys.failf("there is no system %q%s", r.system, graph.DidYouMean(r.system, w.systemNames()))
		}
	}
	if o := s.at("operation"); !o.none() {
		r.operation = o.text()
		op := w.operation(r.operation)
		switch {
		case op == nil:
			o.failf("there is no operation %q%s", r.operation, graph.DidYouMean(r.operation, w.patterns()))
		case op.Internal:
			o.failf("%q is internal: no agent calls it", r.operation)
		case r.system != "" && op.system.Name != r.system:
			o.failf("%q is no operation of %s", r.operation, r.system)
		}
	}
	r.readWhen(s, strings.Fields("lost_response phantom_success error unreachable before rewrite"))
	if fn := s.at("fn"); r.mode == modeBefore || r.mode == modeRewrite {
		r.fn = fn.function()
	} else if !fn.none() {
		fn.failf("%s takes no function", r.mode)
	}
	return r
}

// readWhen reads what the rules of agents and of extractors have in common.
func (r *rule) readWhen(s shape, modes []string) {
	if n := s.at("nth"); !n.none() {
		r.nth = int(n.number(1, 1_000_000))
	}
	r.mode = s.at("mode").oneOf(modes...)
	if st := s.at("status"); r.mode == modeError {
		r.status = int(st.number(400, 599))
	}
}
