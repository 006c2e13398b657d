package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/transcript"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func showCommand() *cli.Command {
	return verb("show", "a scorecard; one rep: outcome, commands, reply; or how a process ended and its seal", "TARGET [REP]", append(slices.Clone(loadFlags), flagJobs),
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
	path := filepath.Join(eng.Folder(t.Label), filepath.FromSlash(t.Result.Scorecard.Path))
	data, err := os.ReadFile(path)
	if err != nil {
		return failf(exitFailed, "show %s: it is not built", t.Label).hint("ev build %s", t.Label)
	}
	card := parseScorecard(data)
	if card == nil {
		return failf(exitFailed, "show %s: its scorecard in eval-out is no JSON", t.Label).hint("ev build %s writes it anew", t.Label)
	}
	rep, err := eng.Plan(ctx, []*starlark.Target{t})
	if err != nil {
		return err
	}
	if len(rep.Stale) > 0 {
		fmt.Fprintf(stdout, "(out of date: %s would run; this is the last build)\n", plural(len(rep.Stale), "action", "actions"))
	}
	card.print()
	return nil
}

// print shows a whole scorecard to a person.
func (c *scorecard) print() {
	line := func(name, format string, args ...any) {
		fmt.Fprintln(stdout, strings.TrimRight(fmt.Sprintf("%-14s %s", name, safe(fmt.Sprintf(format, args...))), " "))
	}
	design := c.Kind
	if c.Design != "" {
		design += ", " + c.Design
	}
	line(c.Target, "(%s)", design)
	line("conclusion", "%s", orDash(c.Conclusion))
	line("verdict", "%s", orDash(c.Verdict))
	if c.Kind != "probe" {
		for _, m := range c.Members {
			text := m.Target
			if m.PHolm != nil {
				text += "  p(Holm) " + figure(m.PHolm)
			}
			if m.Holds != nil && *m.Holds {
				text += " holds"
			}
			line("  member", "%s", text)
		}
		line("honesty", "%s", c.Honesty)
		return
	}
	line("strength", "%s", c.Strength)
	if c.Behavior != "" {
		line("behavior", "%s", c.Behavior)
	}
	for _, arm := range []string{"control", "treatment"} {
		text := "present/usable " + c.armText(arm)
		if a := c.Arms[arm]; a.Rate != nil && a.Wilson != nil {
			text += fmt.Sprintf(", rate %.3f, 95 %% Wilson %.3f to %.3f", *a.Rate, (*a.Wilson)[0], (*a.Wilson)[1])
		}
		line(arm, "%s", text)
	}
	if d := c.Difference; d.Estimate != nil && d.Newcombe != nil {
		line("difference", "%+.3f, 95 %% Newcombe %+.3f to %+.3f", *d.Estimate, (*d.Newcombe)[0], (*d.Newcombe)[1])
	}
	line("p", "Fisher %s (decides, alpha %.4g), Boschloo %s", figure(c.PValue), c.Alpha, figure(c.Boschloo))
	if c.NeedsN != nil {
		line("needs", "%d reps an arm", *c.NeedsN)
	}
	if !c.Bounds.Agree {
		line("bounds", "with the degraded reps counted either way: %s", strings.Join(c.Bounds.Conclusions, " or "))
	}
	if p := c.Discriminator.Proved; len(p) == 2 {
		line("discriminator", "%s, proved by %d present and %s", c.Discriminator.Function, p[0], plural(p[1], "absent example", "absent examples"))
	}
	if !c.Eligibility.Eligible {
		line("not eligible", "%s", strings.Join(c.Eligibility.Reasons, ", "))
	}
	for _, r := range c.Reps {
		line("  "+repName(r.Arm, r.Index), "%s %s", r.Outcome, strings.Join(r.Reasons, ", "))
	}
	line("honesty", "%s", c.Honesty)
}

// showRep shows one rep from its outputs and its transcript.
func (s *session) showRep(eng *engine.Engine, t *starlark.Target, rep string) error {
	var judge *graph.Action
	var names []string
	for _, a := range t.Result.Actions {
		name, ok := strings.CutSuffix(a.Slot().Path, "/outcome.json")
		if !ok || !strings.HasPrefix(name, "reps/") {
			continue
		}
		name = strings.TrimPrefix(name, "reps/")
		names = append(names, name)
		if name == rep {
			judge = a
		}
	}
	if judge == nil {
		return usageErrorf("%s has no rep %q%s", t.Label, rep, graph.DidYouMean(rep, names))
	}
	folder := filepath.Join(eng.Folder(t.Label), "reps", rep)
	data, err := os.ReadFile(filepath.Join(folder, "outcome.json"))
	if err != nil {
		return failf(exitFailed, "show %s %s: it is not built", t.Label, rep).hint("ev build %s", t.Label)
	}
	var out struct {
		Outcome string
		Capture string
		Thread  string
		Reasons []struct{ Code, Detail string }
		Usage   map[string]*int64
	}
	if err := json.Unmarshal(data, &out); err != nil {
		return failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
	}
	fmt.Fprintf(stdout, "%s %s: %s\n", t.Label, rep, safe(out.Outcome))
	for _, r := range out.Reasons {
		fmt.Fprintf(stdout, "  %s: %s\n", safe(r.Code), safe(r.Detail))
	}
	fmt.Fprintf(stdout, "capture  %s\n", safe(out.Capture))
	if out.Thread != "" {
		fmt.Fprintf(stdout, "thread   %s\n", safe(out.Thread))
	}
	var usage []string
	for _, name := range []string{"input", "cached_input", "cache_write", "output", "reasoning"} {
		if n := out.Usage[name]; n != nil {
			usage = append(usage, fmt.Sprintf("%s %d", name, *n))
		}
	}
	if len(usage) > 0 {
		fmt.Fprintf(stdout, "tokens   %s\n", strings.Join(usage, ", "))
	}
	if err := s.showCommands(judge); err != nil {
		return err
	}
	reply, err := os.ReadFile(filepath.Join(folder, "reply.txt"))
	if err != nil {
		return failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
	}
	fmt.Fprintf(stdout, "reply    %s\n%s\n", plural(len(reply), "byte", "bytes"), safeLines(string(reply)))
	return nil
}

// showCommands lists what the rep ran, from its transcript.
func (s *session) showCommands(judge *graph.Action) error {
	for _, in := range judge.Inputs {
		name, _, _ := strings.Cut(in.Codec, "@")
		codec, ok := transcript.Lookup(name)
		if !ok || !in.File.Source() {
			continue
		}
		fmt.Fprintf(stdout, "from     %s (%s)\n", safe(in.File.Slash()), in.Codec)
		rc, err := sources(files{s.ws}).Open(in.File.Label)
		if err != nil {
			return failf(exitFailed, "%v", err)
		}
		defer rc.Close()
		_, err = codec.Scan(rc, func(e transcript.Event) error {
			if e.Kind == transcript.KindCommand {
				fmt.Fprintf(stdout, "command  %s (%s)\n", safe(e.Text), e.Status)
			}
			return nil
		})
		if err != nil {
			return failf(exitFailed, "%v", err)
		}
	}
	return nil
}
