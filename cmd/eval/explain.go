package main

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
)

func explainCommand() *cli.Command {
	flags := append(slices.Clone(lookFlags),
		&cli.BoolFlag{Name: "reps", DisableDefaultText: true, Usage: "which reps flipped at the last change, and by which edit"})
	return verb("explain", "why a target ran last time, or why it would run now", "TARGET", flags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runExplain) })
}

func runExplain(ctx context.Context, s *session) error {
	if len(s.args) != 1 {
		return usageErrorf("explain wants one target")
	}
	t, err := s.one(ctx, s.args[0])
	if err != nil {
		return err
	}
	var reps []engine.Event
	eng := s.engine(engine.Options{KeepGoing: true, Event: func(e engine.Event) {
		if e.Action.Sample != nil {
			reps = append(reps, e)
		}
	}})
	rep, err := eng.Plan(ctx, []*starlark.Target{t})
	if err != nil {
		return err
	}
	if s.bool("reps") {
		return s.explainReps(eng, t, rep)
	}
	if len(rep.Stale) > 0 {
		fmt.Fprintf(stdout, "%s is out of date:\n", t.Label)
		for _, line := range planLines(rep) {
			fmt.Fprintln(stdout, "  "+line)
		}
	} else {
		fmt.Fprintf(stdout, "%s is up to date\n", t.Label)
	}
	if err := s.explainDraws(t, reps); err != nil {
		return err
	}
	for _, line := range history(eng, t) {
		fmt.Fprintln(stdout, safe(line))
	}
	return nil
}

// history tells, for each kind of action, when and why it last ran and which
// fields had changed; actions that ran for one reason are told together.
func history(eng *engine.Engine, t *starlark.Target) []string {
	type group struct{ mnemonic, why, changes string }
	count := map[group]int{}
	var order []group
	first := map[group]string{}
	last := map[group]int64{}
	details := map[group][]string{}
	never := 0
	for _, a := range t.Result.Actions {
		h, ok := eng.Slot(a.Slot())
		if !ok {
			never++
			continue
		}
		g := group{mnemonic: a.Mnemonic, why: h.Why}
		var lines []string
		if h.Ran == 0 {
			g.why = "its result was in the store"
		}
		if h.Before != nil {
			changes := engine.Diff(h.BeforeFields, h.Fields)
			for i, c := range changes {
				if i == 6 {
					lines = append(lines, fmt.Sprintf("    … and %d more", len(changes)-i))
					break
				}
				lines = append(lines, "    "+c.String())
			}
			if g.mnemonic != "Score" || len(changes) < 4 {
				g.changes = fmt.Sprint(lines)
			}
		}
		if count[g] == 0 {
			order = append(order, g)
			first[g] = a.Slot().Path
			details[g] = lines
		}
		count[g]++
		last[g] = max(last[g], h.Ran)
	}
	var out []string
	for _, g := range order {
		head := fmt.Sprintf("  %s %s", g.mnemonic, first[g])
		if n := count[g]; n > 1 {
			head += fmt.Sprintf(" and %d more", n-1)
		}
		if last[g] > 0 {
			head += fmt.Sprintf(": last ran %s, because %s", time.Unix(last[g], 0).Format("2006-01-02 15:04:05"), g.why)
		} else {
			head += ": " + g.why
		}
		out = append(append(out, head), details[g]...)
	}
	if never > 0 {
		out = append(out, fmt.Sprintf("  %s never built here", plural(never, "action was", "actions were")))
	}
	return out
}

// explainReps compares the current scorecard with the last different one.
func (s *session) explainReps(eng *engine.Engine, t *starlark.Target, rep *engine.Report) error {
	res := rep.Targets[0]
	if t.Result.Scorecard == nil {
		return usageErrorf("%s has no scorecard", t.Label)
	}
	if len(rep.Stale) > 0 {
		fmt.Fprintf(stdout, "%s is out of date; this is about its last build\n", t.Label)
		h, ok := eng.Slot(t.Result.Scorecard.Action.Slot())
		if !ok {
			return failf(exitFailed, "%s was never built here", t.Label)
		}
		res.Scorecard, _ = eng.ReadOutput(t.Result.Scorecard, &h.Now)
		if i := t.Result.Scorecard.Index; i < len(h.Now.Out) {
			res.Digest, _ = cas.ParseDigest(h.Now.Out[i])
		}
	}
	after := parseScorecard(res.Scorecard)
	if after == nil {
		return failf(exitFailed, "its last scorecard is no longer in the store").hint("ev build %s", t.Label)
	}
	before := parseScorecard(eng.Before(t, res.Digest))
	if before == nil {
		fmt.Fprintf(stdout, "%s was scored once, or its scorecard before is no longer in the store\n", t.Label)
		return nil
	}
	list := flips(before, after)
	if len(list) == 0 {
		fmt.Fprintln(stdout, "no rep flipped at the last change")
	}
	for _, f := range list {
		why := ""
		for _, a := range t.Result.Actions {
			if a.Outputs[0].File.Path != "reps/"+f.rep+"/outcome.json" {
				continue
			}
			if h, ok := eng.Slot(a.Slot()); ok && h.Before != nil {
				why = engine.Summarize(engine.Diff(h.BeforeFields, h.Fields))
			}
		}
		if f.another && after.live() {
			why = "it is another draw"
		}
		fmt.Fprintln(stdout, safe(fmt.Sprintf("%s: %s → %s: %s", f.rep, f.from, f.to, why)))
	}
	if before.Verdict != after.Verdict || before.Conclusion != after.Conclusion {
		fmt.Fprintf(stdout, "%s %s → %s %s\n", before.Verdict, before.Conclusion, after.Verdict, after.Conclusion)
	}
	return nil
}
