package main

import (
	"context"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func hasProcess(t *starlark.Target) bool {
	return slices.ContainsFunc(t.Result.Actions, func(a *graph.Action) bool { return a.Kind == graph.Run })
}

// showProcesses shows how each process of a target ended, and what its seal is
// known to have been.
func (s *session) showProcesses(ctx context.Context, t *starlark.Target) error {
	keys := map[*graph.Action]graph.Key{}
	eng := s.engine(engine.Options{KeepGoing: true, Event: func(e engine.Event) { keys[e.Action] = e.Key }})
	if _, err := eng.Plan(ctx, []*starlark.Target{t}); err != nil {
		return err
	}
	for _, a := range t.Result.Actions {
		if a.Kind != graph.Run {
			continue
		}
		fmt.Fprintf(stdout, "%s %s\n", a.Mnemonic, safe(a.Slot().String()))
		r, err := s.store.Lookup(cas.Pure, cas.Digest(keys[a]))
		if err != nil {
			sealed := "`ev build` makes one"
			if s.values["seal"] != "none" {
				sealed += "; --seal=none shows that of an unsealed run, if there was one"
			}
			fmt.Fprintln(stdout, "  it has no result for what it is now; "+sealed)
			continue
		}
		if err := s.showProcess(r); err != nil {
			return failf(exitInfra, "show %s: %v", t.Label, err)
		}
	}
	return nil
}

func (s *session) showProcess(r cas.Result) error {
	var facts engine.RunFacts
	if err := json.Unmarshal(r.Aux[engine.AuxRun], &facts); err != nil {
		return fmt.Errorf("the facts of its run: %w", err)
	}
	record, err := sandbox.DecodeRecord(r.Aux[engine.AuxSeal])
	if err != nil {
		return err
	}
	line := func(name, format string, args ...any) {
		fmt.Fprintf(stdout, "  %-11s %s\n", name, safe(fmt.Sprintf(format, args...)))
	}
	line("ended", "%s", facts.Status)
	line("survivors", "%d", facts.Survivors)
	switch {
	case len(facts.Egress) > 0:
	case record.Listener || len(record.Policy.Network)+len(record.Policy.Forward) > 0 && record.Tier != sandbox.TierNone:
		line("egress", "no attempt")
	default:
		line("egress", "not listened for")
	}
	for _, e := range facts.Egress {
		line("egress", "%d. %s %s:%d %s %s", e.Seq, e.Via, e.Host, e.Port, e.Verdict, e.Reason)
	}
	line("seal", "tier %s, limits %s", record.Tier, record.Limits)
	for _, n := range record.Notes {
		line("", "%s", n)
	}
	line("policy", "%s", record.PolicyHash)
	if err := record.Verify(); record.Tier == sandbox.TierNone {
		line("program", "none: it was unsealed")
	} else if err != nil {
		line("program", "%v", err)
	} else {
		line("program", "%s, as this version of eval compiles it", record.Program)
	}
	states := map[string][]string{}
	for _, l := range record.Layers {
		states[l.State] = append(states[l.State], l.Name)
	}
	for _, state := range []string{sandbox.Observed, sandbox.Probed, sandbox.Applied, sandbox.Absent} {
		if len(states[state]) > 0 {
			line(state, "%s", strings.Join(states[state], " "))
		}
	}
	line("kernel", "%s %s %s", record.Kernel.System, record.Kernel.Release, record.Kernel.Machine)
	name := "not sealed"
	for _, n := range record.NotSealed {
		line(name, "%s", n)
		name = ""
	}
	for _, out := range []struct {
		name string
		d    cas.Digest
	}{{"stdout", r.Stdout}, {"stderr", r.Stderr}} {
		if out.d.IsZero() {
			continue
		}
		b, err := s.store.Read(out.d)
		if err != nil {
			return err
		}
		fmt.Fprintf(stdout, "  %s\n%s\n", out.name, safeLines(strings.TrimRight(string(b), "\n")))
	}
	return nil
}
