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
	flags := append(slices.Clone(loadFlags), flagJobs,
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
	if total == 0 {
		fmt.Fprintf(stdout, "nothing would run; %s up to date\n", plural(rep.Disk, "action is", "actions are"))
	} else {
		twins := ""
		if equal > 0 {
			twins = fmt.Sprintf(" (%d more are equal to one of these)", equal)
		}
		fmt.Fprintf(stdout, "%s would run, of %d%s; %s\n", plural(total-equal, "action", "actions"), rep.Actions, twins, drawPlan(rep))
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
	}
	slices.SortStableFunc(order, func(a, b group) int { return strings.Compare(a.target, b.target) })
	var lines []string
	for _, g := range order {
		may := "would run"
		if !g.sure {
			may = "may run"
		}
		lines = append(lines, safe(fmt.Sprintf("%s: %d %s %s: %s", g.target, count[g], g.mnemonic, may, g.why)))
	}
	return lines
}

// drawPlan says how many reps would be drawn, and about what they would cost.
func drawPlan(rep *engine.Report) string {
	n, unknown, usd := 0, 0, 0.0
	for _, a := range rep.Stale {
		if a.Action.Sample == nil {
			continue
		}
		n++
		if a.USD == nil {
			unknown++
		} else {
			usd += *a.USD
		}
	}
	switch {
	case n == 0:
		return "nothing would be drawn, at no cost"
	case unknown == n:
		return fmt.Sprintf("%s would be drawn, at unknown cost", plural(n, "rep", "reps"))
	case unknown > 0:
		return fmt.Sprintf("%s would be drawn, at about $%.2f and the unknown cost of %d", plural(n, "rep", "reps"), usd, unknown)
	}
	return fmt.Sprintf("%s would be drawn, at about $%.2f", plural(n, "rep", "reps"), usd)
}
