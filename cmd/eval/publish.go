package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/sets"
)

func publishCommand() *cli.Command {
	flags := append(slices.Clone(loadFlags), flagJobs,
		&cli.StringFlag{Name: "export", Usage: "write the set as one `FILE` and not as a folder"},
		&cli.StringFlag{Name: "import", Usage: "verify the set in `FILE`, take its reps into the store, and put its folder in place"})
	return verb("publish", "keep a target's evidence as a set of files that verifies anywhere", "TARGET | --import=FILE", flags,
		func(c *cli.Context, s *settings) error {
			if s.values["import"] != "" {
				return withSession(c.Context, s, runImport)
			}
			return withSession(c.Context, s, runPublish)
		})
}

// everything is the workspace as the language and as the engine see it.
type everything struct {
	files
	read sources
}

func (e everything) Digest(l graph.Label) (cas.Digest, error)  { return e.read.Digest(l) }
func (e everything) Open(l graph.Label) (io.ReadCloser, error) { return e.read.Open(l) }
func (e everything) Executable(l graph.Label) (bool, error)    { return e.read.Executable(l) }

func runPublish(ctx context.Context, s *session) error {
	if len(s.args) != 1 {
		return usageErrorf("publish wants one target")
	}
	rec := sets.NewRecorder(everything{files{s.ws}, sources(files{s.ws})})
	s.loader, s.files = s.newLoader(rec), rec
	t, err := s.one(ctx, s.args[0])
	if err != nil {
		return err
	}
	if err := publishable(t); err != nil {
		return err
	}
	ev, err := s.engine(engine.Options{KeepGoing: true}).Evidence(ctx, t)
	if err != nil {
		return err
	}
	if len(ev.Report.Problems)+len(ev.Faults) > 0 {
		printProblems(ev.Report)
		for _, f := range ev.Faults {
			printFault(f)
		}
		return failf(exitFailed, "publish %s: it is not built as it is now, or doesn't verify", t.Label).
			hint("ev build %s builds it, `ev verify %s` tells more", t.Label, t.Label)
	}
	lock, err := s.drawLock(t.Label)
	if err != nil {
		return err
	}
	read, err := rec.Sources()
	if err != nil {
		return err
	}
	set, err := setOf(ev, lock, s.store, sets.Content{
		Eval: version, Module: s.ws.Module().Name, Platform: graph.PlatformOf(runtime.GOOS, runtime.GOARCH),
		Settings: s.used(), Target: t.Label, Unsealed: s.values["seal"] == "none", Sources: read,
	})
	if err != nil {
		return failf(exitFailed, "%v", err)
	}
	if s.values["seal"] == "none" {
		fmt.Fprintln(os.Stderr, "eval: warning: --seal=none: the reps were unsealed, and the set says so")
	}
	if file := s.values["export"]; file != "" {
		return s.export(set, file)
	}
	old, err := set.Published(s.setsOf(t.Label))
	if err != nil {
		return failf(exitInfra, "%v", err)
	}
	if old != "" {
		fmt.Fprintf(stdout, "already published: %s\n", safe(relative(old)))
		return nil
	}
	return s.writeSet(set)
}

// publishable refuses what has no reps of its own: recorded transcripts are
// files already, and a family is published by its members.
func publishable(t *starlark.Target) error {
	if t.Label.Repo != "" {
		return usageErrorf("publish %s: publish it in its own workspace", t.Label)
	}
	if t.Result.Scorecard == nil {
		return usageErrorf("publish %s: it has no scorecard", t.Label)
	}
	for _, a := range t.Result.Actions {
		if a.Sample != nil {
			return nil
		}
	}
	return usageErrorf("publish %s: it draws no reps of its own", t.Label).
		hint("recorded transcripts are files of the workspace already; of a family, publish the members")
}

// used are the settings of --set that were asked for.
func (s *session) used() map[string]string {
	out := map[string]string{}
	for name := range s.loader.ConfigUsed() {
		if v, ok := s.set[name]; ok {
			out[name] = v
		}
	}
	return out
}

// setOf makes a set of evidence; c has what the evidence doesn't know.
func setOf(ev *engine.Evidence, lock *draws.Lock, store *cas.Store, c sets.Content) (*sets.Set, error) {
	c.Func, c.Blob, c.Tree = store.Func(), store.Read, store.ReadTree
	c.Outputs = map[string][]byte{}
	for _, o := range ev.Outputs {
		c.Outputs[o.Path] = o.Data
	}
	var ids []draws.ID
	for _, p := range ev.Processes {
		if len(p.Draws) > 0 && p.Slot.Owner != c.Target {
			return nil, fmt.Errorf("publish %s: it stands on reps of %s", c.Target, p.Slot.Owner)
		}
		ids = append(ids, p.Draws...)
		for _, kr := range p.Results {
			r := sets.Result{Slot: p.Slot.Path, Key: kr.Key, Result: kr.Result}
			if p.Slot.Owner != c.Target {
				r.Slot = p.Slot.Owner.Path() + "/" + p.Slot.Path
			}
			for i, id := range p.Draws {
				if id.Key == kr.Key {
					r.ID, r.Stopped, r.Withdrawn = &p.Draws[i], i < len(p.Draws)-1, p.Terms.Withdrawn
				}
			}
			c.Results = append(c.Results, r)
		}
	}
	for _, t := range ev.Tools {
		c.Tools = append(c.Tools, sets.Tool(t))
	}
	var err error
	if c.Draws, err = lock.Part(c.Target, ids); err != nil {
		return nil, err
	}
	return sets.New(c)
}

// export writes the set as one file, whole or not at all.
func (s *session) export(set *sets.Set, file string) error {
	fail := func(err error) error { return failf(exitInfra, "write %s: %v", file, err) }
	f, err := os.CreateTemp(filepath.Dir(file), ".publish-*")
	if err != nil {
		return fail(err)
	}
	defer os.Remove(f.Name())
	err = errors.Join(set.WriteArchive(f), f.Chmod(0o644), f.Sync())
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), file)
	}
	if err != nil {
		return fail(err)
	}
	fmt.Fprintf(stdout, "exported %s as %s: %s\n", safe(set.Manifest.Target), safe(set.Name()), safe(file))
	fmt.Fprintf(stdout, "take it in elsewhere: ev publish --import=%s\n", safe(file))
	return nil
}

// capturesName is the folder of sets beside a BUILD.star.
const capturesName = "captures"

// setsOf is the folder of a target's sets.
func (s *session) setsOf(l graph.Label) string {
	return filepath.Join(s.root, filepath.FromSlash(l.Pkg), capturesName, filepath.FromSlash(l.Name))
}

// relative names a path as it is from here.
func relative(path string) string {
	if cwd, err := os.Getwd(); err == nil {
		if rel, err := filepath.Rel(cwd, path); err == nil {
			return rel
		}
	}
	return path
}

// writeSet puts the set's folder in place.
func (s *session) writeSet(set *sets.Set) error {
	l, err := set.Manifest.Label()
	if err != nil {
		return err
	}
	dir, was, err := set.Write(s.setsOf(l))
	if err != nil {
		return failf(exitFailed, "%v", err)
	}
	rel := relative(dir)
	if was {
		fmt.Fprintf(stdout, "already published: %s\n", safe(rel))
		return nil
	}
	fmt.Fprintf(stdout, "published %s: %s\n", safe(set.Manifest.Target), safe(rel))
	fmt.Fprintf(stdout, "verify it anywhere: ev verify %s\n", safe(rel))
	fmt.Fprintf(stdout, "replay it: captures(glob([%q]), format = \"eval\")\n",
		filepath.ToSlash(filepath.Join(capturesName, filepath.FromSlash(l.Name), set.Name(), "transcripts", "*.jsonl")))
	return nil
}

// readSet reads a set: one file, or its folder.
func readSet(name string) (*sets.Set, error) {
	fi, err := os.Stat(name)
	if err != nil {
		return nil, usageErrorf("%v", err)
	}
	read := func() (*sets.Set, error) {
		set, _, faults, err := sets.Read(name)
		if err == nil && len(faults) > 0 {
			err = fmt.Errorf("%s: %s", faults[0].Path, faults[0].Cause)
		}
		return set, err
	}
	if !fi.IsDir() {
		read = func() (*sets.Set, error) {
			f, err := os.Open(name)
			if err != nil {
				return nil, err
			}
			defer f.Close()
			return sets.ReadArchive(f)
		}
	}
	set, err := read()
	if err != nil {
		return nil, failf(exitFailed, "import %s: %v", name, err)
	}
	return set, nil
}

func runImport(ctx context.Context, s *session) error {
	file := s.values["import"]
	if len(s.args) > 0 || s.values["export"] != "" {
		return usageErrorf("publish --import=FILE takes nothing else")
	}
	set, err := readSet(file)
	if err != nil {
		return err
	}
	if set.Manifest.Digest != s.store.Func() {
		return failf(exitFailed, "import %s: its digests are %v, those of this workspace %v", file, set.Manifest.Digest, s.store.Func())
	}
	bad, err := verifySet(ctx, s.settings, file, set)
	if err != nil {
		return err
	}
	if bad > 0 {
		return failf(exitFailed, "import %s: it doesn't verify; nothing of it was taken", file)
	}
	n, had, err := s.takeCaptures(ctx, set)
	if err != nil {
		return err
	}
	fmt.Fprintf(stdout, "imported %s: %s taken into the store, %d were there\n", safe(set.Manifest.Target), plural(n, "capture", "captures"), had)
	l, err := set.Manifest.Label()
	if err != nil {
		return err
	}
	if has, err := s.ws.HasPackage("", l.Pkg); err != nil || !has || set.Manifest.Module != s.ws.Module().Name {
		fmt.Fprintf(stdout, "its folder was not written: %s of module %s is no package of this workspace\n", safe(l.Package()), safe(set.Manifest.Module))
		return err
	}
	return s.writeSet(set)
}

// takeCaptures puts the set's draws into the store. If one of them is there as
// something else, none is taken.
func (s *session) takeCaptures(ctx context.Context, set *sets.Set) (taken, had int, err error) {
	results, err := set.Results()
	if err != nil {
		return 0, 0, err
	}
	blobs := set.Blobs()
	for dry := true; ; dry = false {
		taken, had = 0, 0
		for _, r := range results {
			if !r.Draw {
				continue
			}
			is, err := s.takeCapture(ctx, r, blobs, dry)
			if err != nil {
				return 0, 0, err
			}
			if is {
				had++
			} else {
				taken++
			}
		}
		if !dry {
			return taken, had, nil
		}
	}
}

// takeCapture puts one into the store, unless it is only to be looked at; was
// says that it is there, whole.
func (s *session) takeCapture(ctx context.Context, r sets.Recorded, blobs map[cas.Digest][]byte, look bool) (was bool, err error) {
	key := cas.Digest(r.Key)
	unlock, err := s.store.Lock(ctx, key)
	if err != nil {
		return false, err
	}
	defer unlock()
	old, err := s.store.Lookup(cas.Capture, key)
	if err == nil {
		has, err := engine.CaptureDigest(s.store.Func(), old)
		if err == nil && has != s.store.Func().Sum(r.Bytes) {
			err = failf(exitFailed, "import %s: the store has another capture of that rep; nothing was taken", r.Path).
				hint("the one of the store is evidence too; --store=DIR takes the set into another store")
		}
		return true, err
	}
	if look {
		return false, nil
	}
	for _, d := range r.Blobs {
		b, ok := blobs[d]
		if !ok {
			return false, failf(exitFailed, "import %s: the set lacks the blob %v", r.Path, d)
		}
		if _, err := s.store.Put(cas.Capture, b); err != nil {
			return false, failf(exitInfra, "%v", err)
		}
	}
	if err := s.store.PutResult(cas.Capture, key, r.Result); err != nil {
		return false, failf(exitInfra, "%v", err)
	}
	return false, nil
}
