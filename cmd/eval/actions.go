package main

import (
	"context"
	"encoding/hex"
	"fmt"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func actionsCommand() *cli.Command {
	return verb("actions", "the actions of a target: function or command, inputs, seal, key, where it last ran", "TARGET",
		lookFlags,
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
	case a.Sample != nil:
		line("rep key", "%s (%s)", e.Key, map[engine.Status]string{engine.Disk: "it is in draws.lock and in the store", engine.Remotely: "the remote cache has it", engine.Stale: "it would be drawn"}[e.Status])
	default:
		line("key", "%s (%s)", e.Key, map[engine.Status]string{engine.Disk: "its result is in the store", engine.Remotely: "the remote cache has its result", engine.Stale: "it would run"}[e.Status])
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
	if a.Kind == graph.Run {
		printRun(eng, a, line)
	}
	if a.Sample != nil {
		s.printSample(a, e, line)
	}
	for _, in := range a.Inputs {
		if in.Name == graph.StdinName && a.Kind == graph.Run {
			line("stdin", "%s", in.File.Slash())
			continue
		}
		if inside, ok := strings.CutPrefix(in.Name, graph.ServerDir); ok {
			line("world input", "/%s", inside)
			continue
		}
		if a.Kind == graph.Run {
			line("input", "/%s", in.Name)
			continue
		}
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

// printRun prints what only runs have.
func printRun(eng *engine.Engine, a *graph.Action, line func(name, format string, args ...any)) {
	line("argv", "%s", argvText(a.Args))
	for _, e := range a.Env {
		line("env", "%s", graph.Unmark(e))
	}
	line("seal", "%s", sealText(a.Policy))
	if s := a.Server; s != nil {
		line("world", "%s, in a seal of its own, at port %d of the seal's loopback", argvText(append([]string{s.Program}, s.Args...)), s.Port)
	}
	for _, t := range a.Tools {
		data := ""
		if len(t.Data) > 0 {
			data = " with " + strings.Join(t.Data, " ")
		}
		line("tool", "%s = %s%s%s", t.Label, graph.Unmark(t.Path()), data, lockText(eng, t))
	}
}

// argvText is a command line, quoted for a shell.
func argvText(args []string) string {
	argv := make([]string, len(args))
	for i, arg := range args {
		argv[i] = shellWord(graph.Unmark(arg))
	}
	return strings.Join(argv, " ")
}

// lockText says of a tool that it is locked, or is so elsewhere.
func lockText(eng *engine.Engine, t graph.Tool) string {
	if t.Own != "" { // it comes with eval
		return ""
	}
	unlocked, err := eng.Unlocked(&graph.Action{Tools: []graph.Tool{t}})
	switch {
	case err != nil:
		return " (" + err.Error() + ")"
	case len(unlocked) == 0:
		return " (locked)"
	case len(unlocked[0].Elsewhere) > 0:
		return " (" + unlocked[0].Error() + ")"
	}
	return ""
}

// printSample prints which draw an action is, and its capture if it was had.
func (s *session) printSample(a *graph.Action, e engine.Event, line func(name, format string, args ...any)) {
	text := fmt.Sprintf("stream %s, index %d, epoch %d, redraw %d", a.Sample.Stream, a.Sample.Index, a.Sample.Epoch, a.Sample.Redraw)
	if a.Terms.Withdrawn {
		text += ", withdrawn"
	}
	line("sample", "%s", text)
	if e.Draw.Key.IsZero() {
		return
	}
	line("block", "%s", orDash(e.Draw.Sample.Block))
	lock, err := s.readLock(a.Owner)
	if err != nil {
		line("capture", "unknown: %v", err)
		return
	}
	if state := lock.State(e.Draw); state.Line.Kind != "" {
		line("capture", "%s (%s)", state.Line.Capture, state.Status)
	} else {
		line("capture", "none (%s)", state.Status)
	}
}

// sealText is a policy in one line.
func sealText(p *graph.Policy) string {
	kind, network := "full", "no network"
	if p.Unsealed {
		kind = "none (--seal=none), it would be"
	}
	var allowed []string
	for _, e := range p.Network {
		allowed = append(allowed, e.String())
	}
	if len(allowed) > 0 {
		network = "network " + strings.Join(allowed, " ")
	}
	parts := []string{network}
	for _, f := range p.Forward {
		parts = append(parts, fmt.Sprintf("forward %d → %s", f.Port, f.Target))
	}
	for _, name := range graph.LimitNames {
		parts = append(parts, name+" "+p.Limits.Named(name))
	}
	return kind + ": " + strings.Join(parts, ", ")
}

// shellWord quotes what a shell would take apart.
func shellWord(s string) string {
	plain := func(r rune) bool {
		return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_@%+=:,./-", r)
	}
	if s != "" && strings.IndexFunc(s, func(r rune) bool { return !plain(r) }) < 0 {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}
