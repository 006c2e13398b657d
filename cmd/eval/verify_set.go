package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/sets"
)

// setArgs gives the arguments if they are folders of published sets. What begins
// like a label is one.
func setArgs(args []string) ([]string, error) {
	var dirs []string
	for _, a := range args {
		if !strings.HasPrefix(a, "//") && !strings.HasPrefix(a, "@") && !strings.HasPrefix(a, ":") && sets.IsSet(a) {
			dirs = append(dirs, a)
		}
	}
	if len(dirs) > 0 && len(dirs) < len(args) {
		return nil, usageErrorf("verify takes targets or folders of published sets, not both: %s is one", dirs[0])
	}
	return dirs, nil
}

// verifySets verifies published sets by what is in them alone.
func verifySets(ctx context.Context, s *settings, dirs []string) error {
	bad := 0
	for _, dir := range dirs {
		set, renamed, faults, err := sets.Read(dir)
		if err != nil {
			return failf(exitInfra, "%v", err)
		}
		for _, f := range faults {
			fmt.Fprintf(stdout, "fault: %s: %s: %s\n", safe(dir), safe(f.Path), safe(f.Cause))
		}
		if len(faults) > 0 {
			fmt.Fprintf(stdout, "%s: %s; nothing was computed from it\n", safe(dir), plural(len(faults), "fault", "faults"))
			bad += len(faults)
			continue
		}
		if renamed {
			fmt.Fprintf(stdout, "the folder was renamed: by its manifest's digest the set is %s; compare that with where you have it from\n", set.Name())
		}
		n, err := verifySet(ctx, s, dir, set)
		if err != nil {
			return err
		}
		bad += n
	}
	return verdictOfFaults(bad)
}

// setFiles is a set's sources as the language sees them, with the rules of this
// program.
type setFiles struct{ *sets.View }

func (f setFiles) ReadFile(repo, rel string) ([]byte, error) {
	if repo == builtinRepo {
		return files{}.ReadFile(repo, rel)
	}
	return f.View.ReadFile(repo, rel)
}

func (f setFiles) HasPackage(repo, pkg string) (bool, error) {
	if repo == builtinRepo {
		return false, nil
	}
	return f.View.HasPackage(repo, pkg)
}

func (f setFiles) IsFile(repo, rel string) error {
	if repo == builtinRepo {
		return files{}.IsFile(repo, rel)
	}
	return f.View.IsFile(repo, rel)
}

// A replay is a published set in place of a workspace, a store and a lock.
type replay struct {
	set    *sets.Set
	view   *sets.View
	store  *cas.Store // thrown away after
	lock   *draws.Lock
	target *starlark.Target
	engine *engine.Engine
}

// verifySet computes a set again and prints what came of it. It gives the number
// of faults.
func verifySet(ctx context.Context, s *settings, name string, set *sets.Set) (int, error) {
	temp, err := os.MkdirTemp("", "eval-verify-*")
	if err != nil {
		return 0, failf(exitInfra, "%v", err)
	}
	defer os.RemoveAll(temp)
	var list []engine.Fault
	fault := func(path string, err error) {
		list = append(list, engine.Fault{Path: path, Where: "set", Cause: err.Error()})
	}
	ev := &engine.Evidence{Report: &engine.Report{}}
	r := &replay{set: set}
	if path, err := r.open(ctx, s, temp); err != nil {
		if ctx.Err() != nil {
			return 0, engine.ErrInterrupted
		}
		fault(path, err)
	} else {
		if ev, err = r.engine.Evidence(ctx, r.target); err != nil {
			return 0, err
		}
		told := map[graph.Slot]bool{} // what stops an action is a fault of the store, too
		for _, p := range ev.Report.Problems {
			told[p.Action.Slot()] = true
			fault(p.Action.Slot().String(), lostIn(p.Err))
		}
		for _, f := range ev.Faults {
			if !told[graph.Slot{Owner: f.Label, Path: f.Path}] {
				list = append(list, f)
			}
		}
		if len(ev.Report.Problems) == 0 {
			list = append(list, r.compare(ev)...)
		}
	}
	for _, f := range list {
		printFault(f)
	}
	fmt.Fprintf(stdout, "%s: %s recomputed from recorded bytes, %s taken as recorded: %s\n", safe(name),
		plural(ev.Report.Ran, "action", "actions"), plural(len(ev.Processes), "process", "processes"), plural(len(list), "fault", "faults"))
	if by := set.Manifest.Eval; len(list) > 0 && by != version {
		fmt.Fprintf(stdout, "the set was made by eval %s, and this is %s, which computes it differently\n", safe(by), version)
	}
	if len(list) == 0 {
		fmt.Fprintf(stdout, "%s epoch %d: the set is %v\n", safe(set.Manifest.Target), set.Manifest.Epoch, set.Digest())
		r.printRules()
		printUnverifiable(ev.Report)
		printProved(len(ev.Processes), ev.Report.Unverifiable, set.Manifest.Unsealed)
	}
	return len(list), nil
}

// lostIn says of a capture that isn't there what it means in a set.
func lostIn(err error) error {
	var lost *engine.LostError
	if !errors.As(err, &lost) {
		return err
	}
	has := "don't"
	if !errors.As(err, new(*cas.MissError)) {
		has = "have another"
	}
	return fmt.Errorf("draws.jsonl has the capture %s… of %v, and the results %s: %w",
		lost.Capture.Func.String()+":"+lost.Capture.Hex()[:12], lost.ID, has, lost.Err)
}

// open makes of the set what an engine needs. path says what of the set an error
// is about.
func (r *replay) open(ctx context.Context, s *settings, temp string) (path string, err error) {
	m := &r.set.Manifest
	if r.view, err = r.set.View(); err != nil {
		return "sources.json", err
	}
	if r.store, err = cas.Open(cas.Options{Cache: filepath.Join(temp, "store"), Data: filepath.Join(temp, "store"), Func: m.Digest}); err != nil {
		return "", err
	}
	if path, err := r.fill(); err != nil {
		return path, err
	}
	lockFile := filepath.Join(temp, "draws.jsonl")
	if err := os.WriteFile(lockFile, r.set.File("draws.jsonl"), 0o600); err != nil {
		return "", err
	}
	if r.lock, err = draws.Open(lockFile); err != nil {
		return "draws.jsonl", err
	}
	mounts, err := r.set.Mounts()
	if err != nil {
		return "tools.json", err
	}
	if err := r.load(ctx); err != nil {
		return "sources", err
	}
	r.engine = engine.New(engine.Options{
		Store: r.store, Sources: r.view, State: filepath.Join(temp, "state"), Jobs: s.int("jobs"), KeepGoing: true, Now: time.Now,
		Recorded:   &engine.Recorded{Platform: m.Platform.Graph(), Mounts: mounts},
		DrawLock:   func(graph.Label) (*draws.Lock, error) { return r.lock, nil },
		VerifySeal: sandbox.VerifyRecord,
	})
	return "", nil
}

// fill puts what the set has into a store that is thrown away: as pure, which
// costs no fsync.
func (r *replay) fill() (path string, err error) {
	results, err := r.set.Results()
	if err != nil {
		return "results", err
	}
	for _, b := range r.set.Blobs() {
		if _, err := r.store.Put(cas.Pure, b); err != nil {
			return "", err
		}
	}
	for _, x := range results {
		if err := r.store.PutResult(cas.Pure, cas.Digest(x.Key), x.Result); err != nil {
			return x.Path, err
		}
	}
	return "", nil
}

// load analyses the target as the set's sources declare it.
func (r *replay) load(ctx context.Context) error {
	m := &r.set.Manifest
	label, err := m.Label()
	if err != nil {
		return err
	}
	loader := starlark.New(starlark.Options{Files: setFiles{r.view}, Module: m.Module, Config: m.Settings, Unsealed: m.Unsealed})
	pkgs, err := loader.LoadPackages(ctx, "", []string{label.Pkg})
	if err != nil {
		return err
	}
	if r.target = pkgs[0].Target(label.Name); r.target == nil {
		return fmt.Errorf("%s is not declared in them", label)
	}
	return loader.Analyze(ctx, []*starlark.Target{r.target})
}

// compare makes the set again from the evidence, and lists what differs.
func (r *replay) compare(ev *engine.Evidence) []engine.Fault {
	m := &r.set.Manifest
	again, err := setOf(ev, r.lock, r.store, sets.Content{
		Eval: m.Eval, Module: m.Module, Platform: m.Platform.Graph(), Settings: m.Settings,
		Target: r.target.Label, Unsealed: m.Unsealed, Sources: &sets.Sources{},
	})
	if err != nil {
		return []engine.Fault{{Label: r.target.Label, Where: "set", Cause: err.Error()}}
	}
	var out []engine.Fault
	for _, f := range r.set.Compare(again) {
		out = append(out, engine.Fault{Label: r.target.Label, Path: f.Path, Where: "set", Cause: f.Cause, Want: f.Want, Got: f.Got})
	}
	return out
}

// printRules says when the rules are not those of this program.
func (r *replay) printRules() {
	if !r.view.OwnRules() {
		return
	}
	same := false
	if to, err := r.view.Canonical(builtinRepo); err == nil && to == "" {
		same = true
		for _, p := range r.set.Paths() {
			name, ok := strings.CutPrefix(p, "sources/rules/")
			if !ok {
				continue
			}
			ours, err := rules.Files.ReadFile(name)
			same = same && err == nil && bytes.Equal(ours, r.set.File(p))
		}
	}
	if !same {
		fmt.Fprintln(stdout, "the set brings the rules of @eval itself, and they are not those of this program: read them before you believe the numbers")
	}
}
