package main

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func planCommand() *cli.Command {
	flags := append(slices.Clone(lookFlags),
		&cli.BoolFlag{Name: "exit_code", DisableDefaultText: true, Usage: "exit with 1 if anything would run"})
	return verb("plan", "say what a build would run, and why; run nothing", "PATTERN...", flags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runPlan) })
}

func runPlan(ctx context.Context, s *session) error {
	targets, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	rep, err := s.engine(engine.Options{KeepGoing: true}).Plan(ctx, targets)
	if err != nil {
		return err
	}
	printProblems(rep)
	for _, line := range planLines(rep) {
		fmt.Fprintln(stdout, line)
	}
	total, equal := len(rep.Stale), 0
	keys := map[graph.Key]bool{}
	for _, a := range rep.Stale {
		if a.Sure && keys[a.Key] {
			equal++
		}
		keys[a.Key] = true
	}
	brought := ""
	if rep.Remote > 0 {
		brought = fmt.Sprintf(", %d on the remote cache", rep.Remote)
	}
	if total == 0 {
		fmt.Fprintf(stdout, "nothing would run; %s up to date%s\n", plural(rep.Disk+rep.Remote, "action is", "actions are"), brought)
	} else {
		twins := ""
		if equal > 0 {
			twins = fmt.Sprintf(" (%d more are equal to one of these)", equal)
		}
		fmt.Fprintf(stdout, "%s would run, of %d%s%s; %s\n", plural(total-equal, "action", "actions"), rep.Actions, twins, brought, drawPlan(rep))
	}
	if len(rep.Problems) > 0 {
		return exit(exitFailed)
	}
	if total > 0 && s.bool("exit_code") {
		return exit(exitFailed)
	}
	return nil
}

// planLines groups what would run by target, mnemonic and reason.
func planLines(rep *engine.Report) []string {
	type group struct {
		target, mnemonic, why string
		sure                  bool
	}
	count := map[group]int{}
	drawn := map[group][]engine.StaleAction{}
	var order []group
	for _, a := range rep.Stale {
		g := group{a.Action.Owner.String(), a.Action.Mnemonic, a.Why, a.Sure}
		if !a.Sure { // one input of many: don't name each
			g.why = "an input would be made anew"
		}
		if count[g] == 0 {
			order = append(order, g)
		}
		count[g]++
		if a.Action.Sample != nil {
			drawn[g] = append(drawn[g], a)
		}
	}
	slices.SortStableFunc(order, func(a, b group) int { return strings.Compare(a.target, b.target) })
	var lines []string
	for _, g := range order {
		may := "would run"
		if !g.sure {
			may = "may run"
		}
		line := fmt.Sprintf("%s: %d %s %s: %s", g.target, count[g], g.mnemonic, may, g.why)
		if d := drawn[g]; len(d) > 0 {
			line += fmt.Sprintf(": %s, %s", repRanges(repNames(d)), priceOf(d))
		}
		lines = append(lines, safe(line))
	}
	return lines
}

func repNames(list []engine.StaleAction) (names []string) {
	for _, a := range list {
		names = append(names, repName(a.Action.Sample.Stream, a.Action.Sample.Index))
	}
	return names
}

// drawPlan says how many reps would be drawn, and about what they would cost.
func drawPlan(rep *engine.Report) string {
	var reps []engine.StaleAction
	seen := map[graph.Key]bool{} // one draw may be that of several targets
	for _, a := range rep.Stale {
		if a.Action.Sample != nil && (a.Key.IsZero() || !seen[a.Key]) {
			seen[a.Key] = true
			reps = append(reps, a)
		}
	}
	if len(reps) == 0 {
		return "nothing would be drawn, at no cost"
	}
	return fmt.Sprintf("%s would be drawn, %s", plural(len(reps), "rep", "reps"), priceOf(reps))
}

// priceOf is about what draws would cost.
func priceOf(list []engine.StaleAction) string {
	unknown, usd := 0, 0.0
	for _, a := range list {
		if a.USD == nil {
			unknown++
		} else {
			usd += *a.USD
		}
	}
	about := "at about " + costText(engine.Cost{USD: usd})
	switch {
	case unknown == len(list):
		return "at unknown cost"
	case unknown > 0:
		return fmt.Sprintf("%s and the unknown cost of %d", about, unknown)
	}
	return about
}
