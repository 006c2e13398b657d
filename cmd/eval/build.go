package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/stats"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func buildCommand() *cli.Command {
	return verb("build", "run what is missing, write eval-out, print the conclusions", "PATTERN...", buildFlags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runBuild) })
}

func runBuild(ctx context.Context, s *session) error {
	consent, err := s.consent()
	if err != nil {
		return err
	}
	log, err := newEventLog(s.values["events"], s.values["profile"])
	if err != nil {
		return err
	}
	defer log.close()
	targets, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	live := newProgress(os.Stderr)
	if s.values["seal"] == "none" {
		fmt.Fprintln(os.Stderr, "eval: warning: --seal=none: processes run without a seal; their results are marked as unsealed, under keys of their own")
	}
	var verified latency
	eng := s.engine(engine.Options{
		Consent: consent,
		Print:   func(label graph.Label, msg string) { live.say("%s: %s", label, safe(msg)) },
		Event: func(e engine.Event) {
			live.event(e)
			log.action(e)
			verified.event(e)
		},
	})
	rep, err := eng.Build(ctx, targets)
	live.end()
	if rep != nil {
		cards, met := printBuild(rep, &verified, errors.Is(err, engine.ErrInterrupted))
		log.finish(rep, cards)
		s.noteGone(os.Stderr, targets)
		if err == nil {
			return worse(verdictOf(rep, met), s.flushRemote(ctx))
		}
	}
	return err
}

// worse is what applies of a build's verdict and of what became of its uploads:
// a seal that can't be had comes first, and then the machine.
func worse(verdict, uploads error) error {
	if e := new(exitError); uploads == nil || errors.As(verdict, &e) && e.code == exitSeal {
		return verdict
	}
	return uploads
}

// verdictOf turns what a build did into an exit code.
func verdictOf(rep *engine.Report, met bool) error {
	infra, seal, budget := false, false, false
	for _, p := range rep.Problems {
		infra = infra || p.Infra
		seal = seal || unavailable(p.Err) != nil
		if d := denied(p.Err); d != nil {
			budget = budget || d.Budget
		}
	}
	switch {
	case seal:
		return exit(exitSeal)
	case infra:
		return exit(exitInfra)
	case budget:
		return exit(exitBudget)
	case len(rep.Problems) > 0:
		return exit(exitFailed)
	case !met:
		return exit(exitGate)
	}
	return nil
}

// printBuild prints problems, changed verdicts, the table and the summary. It
// returns the scorecards, and whether every expectation is met.
func printBuild(rep *engine.Report, verified *latency, interrupted bool) (cards []*scorecard, met bool) {
	printProblems(rep)
	met = true
	var table []*scorecard
	var scenarios []*scenarioRow
	var matrices []engine.TargetResult
	for _, t := range rep.Targets {
		card := parseScorecard(t.Scorecard)
		if card == nil {
			continue
		}
		cards = append(cards, card)
		switch card.Kind {
		case "matrix":
			matrices = append(matrices, t)
		case "scenario":
			row := new(scenarioRow)
			if json.Unmarshal(t.Scorecard, row) == nil {
				scenarios = append(scenarios, row)
			}
		default:
			table = append(table, card)
		}
		if card.ExpectMet != nil && !*card.ExpectMet {
			met = false
			is := card.Conclusion
			if card.Verdict != "" {
				is += ", " + card.Verdict
			}
			fmt.Fprintf(os.Stderr, "eval: error: %s: expected %s; it is %s\n", safe(card.Target), safe(string(card.Expect)), safe(is))
			if card.Hint != "" {
				fmt.Fprintf(os.Stderr, "hint: %s\n", safe(card.Hint))
			}
		}
		if before := parseScorecard(t.Before); before != nil {
			if line := changed(t, before, card); line != "" {
				fmt.Fprintln(stdout, line)
			}
		}
	}
	if len(table) > 0 {
		printTable(stdout, table)
		printHolm(table)
	}
	if len(scenarios) > 0 {
		printScenarios(stdout, scenarios)
	}
	for _, t := range matrices {
		if err := printMatrix(stdout, t, verified); err != nil {
			report(os.Stderr, err)
		}
	}
	fmt.Fprintln(stdout, summary(rep, interrupted))
	return cards, met
}

// printProblems prints what failed, and where its target is declared.
func printProblems(rep *engine.Report) {
	declared := map[graph.Label]string{}
	for _, t := range rep.Targets {
		declared[t.Target.Label] = t.Target.Pos
	}
	more := map[string]int{} // one discriminator fails alike for every rep
	unsealed := 0
	var noSeal *sandbox.UnavailableError
	for _, p := range rep.Problems {
		if e := unavailable(p.Err); e != nil {
			unsealed, noSeal = unsealed+1, e
			continue
		}
		if denied(p.Err) != nil || lost(p.Err) != nil {
			continue
		}
		key := p.Action.Owner.String() + p.Action.Mnemonic + p.Err.Error()
		if more[key]++; more[key] > 1 {
			continue
		}
		printProblem(p)
		if pos := declared[p.Action.Owner]; pos != "" {
			fmt.Fprintf(os.Stderr, "  declared at %s\n", safe(pos))
		}
	}
	for _, n := range more {
		if n > 1 {
			fmt.Fprintf(os.Stderr, "  (%s failed alike)\n", plural(n-1, "more action", "more actions"))
		}
	}
	printDenied(rep)
	printLost(rep)
	if noSeal != nil {
		printNoSeal(noSeal, unsealed)
	}
}

// unavailable is what the machine can't give of a seal, or nil.
func unavailable(err error) *sandbox.UnavailableError {
	var e *sandbox.UnavailableError
	errors.As(err, &e)
	return e
}

// printNoSeal says once for all actions that there is no seal for them.
func printNoSeal(e *sandbox.UnavailableError, actions int) {
	fmt.Fprintf(os.Stderr, "eval: error: run %s: %s\n", plural(actions, "process", "processes"), safeLines(e.Error()))
	if e.Hint != "" {
		fmt.Fprintf(os.Stderr, "hint: %s\n", safe(e.Hint))
	}
	fmt.Fprintln(os.Stderr, "hint: `ev doctor` tells what is missing; --seal=none runs without a seal, and marks every result as unsealed")
}

func printProblem(p engine.Problem) {
	fmt.Fprintf(os.Stderr, "eval: error: %s %s (%s): ", p.Action.Mnemonic, p.Action.Owner, p.Action.Outputs[0].File.Path)
	var se *starlark.Error
	if errors.As(p.Err, &se) {
		fmt.Fprintln(os.Stderr, safeLines(strings.TrimPrefix(se.Msg, "fail: ")))
		if se.Pos != "" {
			fmt.Fprintf(os.Stderr, "  at %s\n", safe(se.Pos))
		}
		for _, line := range se.Stack {
			fmt.Fprintf(os.Stderr, "  %s\n", safe(line))
		}
		return
	}
	fmt.Fprintln(os.Stderr, safeLines(p.Err.Error()))
	for _, h := range hintsOf(p.Err) {
		fmt.Fprintf(os.Stderr, "hint: %s\n", safe(h))
	}
}

// hintsOf is what an error says can be done about it.
func hintsOf(err error) []string {
	var many interface{ Hints() []string }
	if errors.As(err, &many) {
		return many.Hints()
	}
	var one interface{ Hint() string }
	if errors.As(err, &one) && one.Hint() != "" {
		return []string{one.Hint()}
	}
	return nil
}

// printHolm corrects for the number of probes that the table shows.
func printHolm(cards []*scorecard) {
	var ps []float64
	alpha := 0.05
	for _, c := range cards {
		if c.Kind != "probe" {
			continue
		}
		p := 1.0 // as for a family: one without a conclusion counts all the same
		if c.PValue != nil && (c.Conclusion == "increased" || c.Conclusion == "decreased") {
			p = *c.PValue
		}
		ps = append(ps, p)
	}
	if len(ps) < 2 {
		return
	}
	hold := 0
	for _, p := range stats.Holm(ps) {
		if stats.Significant(p, alpha) {
			hold++
		}
	}
	fmt.Fprintf(stdout, "Holm over the %d probes shown: %s a difference at %.2g\n", len(ps), plural(hold, "shows", "show"), alpha)
}

func plural(n int, one, many string) string {
	if n == 1 {
		return fmt.Sprintf("%d %s", n, one)
	}
	return fmt.Sprintf("%d %s", n, many)
}

func summary(rep *engine.Report, interrupted bool) string {
	scored := 0
	for _, t := range rep.Targets {
		if t.Scored {
			scored++
		}
	}
	parts := []string{fmt.Sprintf("%d ran", rep.Ran), fmt.Sprintf("%d cached", rep.Disk)}
	if rep.Remote > 0 {
		parts = append(parts, fmt.Sprintf("%d from the remote cache", rep.Remote))
	}
	if rep.Failed > 0 {
		parts = append(parts, fmt.Sprintf("%d failed", rep.Failed))
	}
	if rep.Skipped > 0 {
		parts = append(parts, fmt.Sprintf("%d not reached", rep.Skipped))
	}
	if rep.Restored > 0 {
		parts = append(parts, plural(rep.Restored, "output restored", "outputs restored"))
	}
	s := fmt.Sprintf("%s, %s: %s; scored %d, drew %d",
		plural(len(rep.Targets), "target", "targets"), plural(rep.Actions, "action", "actions"), strings.Join(parts, ", "), scored, rep.Drawn)
	if rep.Drawn > 0 || rep.Saved.USD > 0 {
		s += fmt.Sprintf("; spent %s, saved %s", costText(rep.Spent), costText(rep.Saved))
	}
	if interrupted {
		s = "interrupted: " + s
	}
	return s
}

// changed is the line for a verdict that is not what it was.
func changed(t engine.TargetResult, before, after *scorecard) string {
	if before.Verdict == after.Verdict && before.Conclusion == after.Conclusion {
		return ""
	}
	from, to := before.Verdict, after.Verdict
	if before.Verdict == after.Verdict || before.Verdict == "" {
		from, to = before.Conclusion, after.Conclusion
	} else if before.Conclusion != after.Conclusion {
		from, to = before.Verdict+" "+before.Conclusion, after.Verdict+" "+after.Conclusion
	}
	line := fmt.Sprintf("%s %s → %s", t.Target.Label, from, to)
	if t.Cause != "" {
		line += ": " + t.Cause
	}
	if after.live() && sameReps(before, after) { // nothing was drawn: an edit did it, knowing the replies
		line += fmt.Sprintf(" after %s", plural(len(after.Reps), "reply", "replies"))
	}
	if f := flips(before, after); len(f) > 0 {
		var names []string
		for _, x := range f {
			names = append(names, x.rep)
		}
		if len(names) > 8 {
			names = append(names[:8], fmt.Sprintf("%d more", len(f)-8))
		}
		line += "; flipped: " + strings.Join(names, ", ")
	}
	return safe(line)
}

// A flip is a rep whose outcome is not what it was; another says that it is
// another draw or recording of it.
type flip struct {
	rep, from, to string
	another       bool
}

func flips(before, after *scorecard) []flip {
	old := before.repsByName()
	var out []flip
	for _, r := range after.Reps {
		name := repName(r.Arm, r.Index)
		if was, ok := old[name]; ok && was.Outcome != r.Outcome {
			out = append(out, flip{name, was.Outcome, r.Outcome, was.Capture != r.Capture})
		}
	}
	return out
}

// sameReps says whether two scorecards are of the same captures.
func sameReps(before, after *scorecard) bool {
	old := before.repsByName()
	for _, r := range after.Reps {
		if was, ok := old[repName(r.Arm, r.Index)]; !ok || was.Capture != r.Capture {
			return false
		}
	}
	return len(before.Reps) == len(after.Reps)
}
