package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
)

func showCommand() *cli.Command {
	return verb("show", "a scorecard; one rep: outcome, commands, reply; or how a process ended and its seal", "TARGET [REP]", lookFlags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runShow) })
}

func runShow(ctx context.Context, s *session) error {
	if len(s.args) < 1 || len(s.args) > 2 {
		return usageErrorf("show wants a target, and maybe a rep such as control-1")
	}
	t, err := s.one(ctx, s.args[0])
	if err != nil {
		return err
	}
	if t.Result.Scorecard == nil && len(s.args) == 1 && hasProcess(t) {
		return s.showProcesses(ctx, t)
	}
	if t.Result.Scorecard == nil {
		return usageErrorf("%s has no scorecard", t.Label)
	}
	eng := s.engine(engine.Options{KeepGoing: true})
	if len(s.args) == 2 {
		return s.showRep(eng, t, s.args[1])
	}
	rep, err := eng.Plan(ctx, []*starlark.Target{t})
	if err != nil {
		return err
	}
	// A scenario, or a matrix of many, is shown as it is under these settings:
	// eval-out may have it with another agent, or not at all.
	now := rep.Targets[0]
	if card := parseScorecard(now.Scorecard); card != nil && len(rep.Stale) == 0 {
		switch card.Kind {
		case "scenario":
			return card.showScenario(now)
		case "matrix":
			return printMatrix(stdout, now, nil)
		}
	}
	card, err := builtCard(eng, t)
	if err != nil {
		return err
	}
	if kind := card.Kind; kind == "scenario" || kind == "matrix" {
		return failf(exitFailed, "show %s: %s would run", t.Label, plural(len(rep.Stale), "action", "actions")).hint("ev build %s", t.Label)
	}
	if len(rep.Stale) > 0 {
		fmt.Fprintf(stdout, "(out of date: %s would run; this is the last build)\n", plural(len(rep.Stale), "action", "actions"))
	}
	card.print()
	if card.live() {
		printCost(eng, t)
	}
	return nil
}

// builtCard reads the scorecard of the last build.
func builtCard(eng *engine.Engine, t *starlark.Target) (*scorecard, error) {
	data, err := os.ReadFile(filepath.Join(eng.Folder(t.Label), filepath.FromSlash(t.Result.Scorecard.Path)))
	if err != nil {
		return nil, failf(exitFailed, "show %s: it is not built", t.Label).hint("ev build %s", t.Label)
	}
	card := parseScorecard(data)
	if card == nil {
		return nil, failf(exitFailed, "show %s: its scorecard in eval-out is no JSON", t.Label).hint("ev build %s writes it anew", t.Label)
	}
	return card, nil
}
