package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func actionsCommand() *cli.Command {
	return verb("actions", "the actions of a target: function, params, inputs, key, where it last ran", "TARGET",
		append(slices.Clone(loadFlags), flagJobs),
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runActions) })
}

func runActions(ctx context.Context, s *session) error {
	targets, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	keys := map[*graph.Action]engine.Event{}
	eng := s.engine(engine.Options{KeepGoing: true, Event: func(e engine.Event) { keys[e.Action] = e }})
	if _, err := eng.Plan(ctx, targets); err != nil {
		return err
	}
	for _, t := range targets {
		for _, a := range t.Result.Actions {
			s.printAction(eng, a, keys[a])
		}
	}
	return nil
}

func (s *session) printAction(eng *engine.Engine, a *graph.Action, e engine.Event) {
	fmt.Fprintf(stdout, "%s %s\n", a.Mnemonic, safe(a.Slot().String()))
	line := func(name, format string, args ...any) {
		fmt.Fprintf(stdout, "  %-9s %s\n", name, safe(fmt.Sprintf(format, args...)))
	}
	switch {
	case e.Action == nil:
		line("key", "not needed by the target's files")
	case e.Key.IsZero():
		line("key", "unknown before its inputs are made")
	default:
		line("key", "%s (%s)", e.Key, map[engine.Status]string{engine.Disk: "its result is in the store", engine.Stale: "it would run"}[e.Status])
	}
	if a.Kind == graph.Evaluate {
		d := a.Fn.Digest()
		line("argv", "eval-starlark %s", hex.EncodeToString(d[:]))
		line("function", "%s", a.Fn.Text())
		line("seal", "none: runs in-process on its inputs alone")
	}
	for _, p := range a.Params {
		line("param", "%s = %s", p.Name, p.Value.Text())
	}
	for _, in := range a.Inputs {
		codec := in.Decode
		if in.Codec != "" {
			codec += " " + in.Codec
		}
		line("input", "%s = %s (%s)", in.Name, in.File.Slash(), codec)
	}
	for _, o := range a.Outputs {
		line("output", "%s", o.File.Slash())
	}
	if h, ok := eng.Slot(a.Slot()); ok && h.Ran > 0 {
		line("last ran", "%s here, because %s", time.Unix(h.Ran, 0).Format("2006-01-02 15:04:05"), h.Why)
	}
}
