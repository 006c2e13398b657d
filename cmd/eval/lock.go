package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
	"github.com/evalbuild/eval/workspace/toolslock"
)

func lockCommand() *cli.Command {
	return verb("lock", "pin tools as they are on this machine, in tools.lock beside their BUILD.star", "PATTERN...", loadFlags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runLock) })
}

// runLock pins the tools among the targets and all that these depend on. It
// stores what they are before it writes a line, and writes none if one of them
// can't be had.
func runLock(ctx context.Context, s *session) error {
	targets, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	all, err := s.dependencies(targets)
	if err != nil {
		return err
	}
	entries := map[graph.Label][]toolslock.Entry{} // by package: a label without a name
	for _, t := range targets {
		entries[graph.Label{Repo: t.Label.Repo, Pkg: t.Label.Pkg}] = nil
	}
	tools := 0
	for _, t := range all {
		tool, err := t.Tool()
		if err != nil {
			return userError(err)
		}
		if tool == nil {
			continue
		}
		tools++
		e, err := s.pin(ctx, tool, all)
		if err != nil {
			return err
		}
		pkg := graph.Label{Repo: t.Label.Repo, Pkg: t.Label.Pkg}
		entries[pkg] = append(entries[pkg], e)
	}
	for _, pkg := range slices.SortedFunc(maps.Keys(entries), graph.Label.Compare) {
		if err := s.writeLock(pkg, entries[pkg]); err != nil {
			return err
		}
	}
	if tools == 0 {
		fmt.Fprintf(stdout, "%s no tool: nothing to lock\n", plural(len(targets), "target is and uses", "targets are and use"))
	}
	return nil
}

// dependencies gives the targets and all that they depend on, by label.
func (s *session) dependencies(targets []*starlark.Target) ([]*starlark.Target, error) {
	seen := map[*starlark.Target]bool{}
	queue := slices.Clone(targets)
	var all []*starlark.Target
	for len(queue) > 0 {
		t := queue[0]
		queue = queue[1:]
		if seen[t] {
			continue
		}
		seen[t] = true
		all = append(all, t)
		deps, err := s.loader.Deps(t)
		if err != nil {
			return nil, userError(err)
		}
		for _, d := range deps {
			if d.Target != nil {
				queue = append(queue, d.Target)
			}
		}
	}
	slices.SortFunc(all, func(a, b *starlark.Target) int { return a.Label.Compare(b.Label) })
	return all, nil
}

// pin finds a tool on this machine and stores all of it.
func (s *session) pin(ctx context.Context, t *starlark.DeclaredTool, all []*starlark.Target) (toolslock.Entry, error) {
	var none toolslock.Entry
	mounts, err := s.resolve(ctx, t, all)
	if err != nil {
		return none, lockError(t.Label.String(), err)
	}
	var kept cas.Result
	for _, m := range mounts {
		if err := ctx.Err(); err != nil {
			return none, engine.ErrInterrupted
		}
		if err := s.keep(m, &kept); err != nil {
			return none, failf(exitInfra, "lock %s: store %s: %w", t.Label, m.Path, err)
		}
	}
	if err := s.keepAll(ctx, kept); err != nil {
		return none, failf(exitInfra, "lock %s: %w", t.Label, err)
	}
	return toolslock.NewEntry(t.Tool, graph.PlatformOf(runtime.GOOS, runtime.GOARCH), mounts), nil
}

// lockError keeps the hints of its cause.
func lockError(object string, err error) *exitError {
	e := failf(exitFailed, "lock %s: %w", object, err)
	for _, h := range hintsOf(err) {
		e.hint("%s", h)
	}
	return e
}

// resolve finds what a tool needs of this machine.
func (s *session) resolve(ctx context.Context, t *starlark.DeclaredTool, all []*starlark.Target) ([]graph.Mount, error) {
	var first []graph.Mount
	var err error
	if t.Program != "" {
		first, err = s.tools.Program(t.Program)
	} else {
		first, err = s.needs(ctx, t.File, all)
	}
	if err != nil {
		return nil, err
	}
	lists := [][]graph.Mount{first}
	for _, p := range t.Data {
		data, err := s.tools.Data(p)
		if err != nil {
			return nil, err
		}
		lists = append(lists, data)
	}
	return hosttools.Merge(lists...)
}

// needs finds what a program of the build needs of this machine.
func (s *session) needs(ctx context.Context, f *graph.File, all []*starlark.Target) ([]graph.Mount, error) {
	var content io.ReaderAt
	var size int64
	if f.Source() {
		file, err := s.ws.OpenFile(f.Label.Repo, f.Label.Path())
		if err != nil {
			return nil, err
		}
		defer file.Close()
		info, err := file.Stat()
		if err != nil {
			return nil, err
		}
		content, size = file, info.Size()
	} else {
		data, err := s.built(ctx, f, all)
		if err != nil {
			return nil, err
		}
		content, size = bytes.NewReader(data), int64(len(data))
	}
	mounts, err := s.tools.Needs(content, size)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", f.Slash(), err)
	}
	return mounts, nil
}

// built gives an output as the last build made it, if it would be made so now.
func (s *session) built(ctx context.Context, f *graph.File, all []*starlark.Target) ([]byte, error) {
	i := slices.IndexFunc(all, func(t *starlark.Target) bool { return t.Label == f.Label })
	if i < 0 || f.Folder() {
		return nil, fmt.Errorf("%s is no program", f.Slash())
	}
	eng := s.engine(engine.Options{KeepGoing: true})
	rep, err := eng.Plan(ctx, all[i:i+1])
	if err != nil {
		return nil, err
	}
	for _, p := range rep.Problems {
		return nil, p.Err
	}
	if h, ok := eng.Slot(f.Action.Slot()); ok && len(rep.Stale) == 0 {
		return eng.ReadOutput(f, &h.Now)
	}
	return nil, &unbuiltError{f}
}

// An unbuiltError is of a program that the build makes.
type unbuiltError struct{ file *graph.File }

func (e *unbuiltError) Error() string {
	return fmt.Sprintf("its program %s is not built, or out of date", e.file.Slash())
}

func (e *unbuiltError) Hint() string { return "ev build " + e.file.Label.String() }

// keep stores what a mount is made of, as evidence is stored: more reps of what
// was paid for are drawn with these bytes. It adds it to what is kept.
func (s *session) keep(m graph.Mount, kept *cas.Result) error {
	put := func(source string, d cas.Digest) error {
		return s.store.PutFile(cas.Capture, d, func() (io.ReadCloser, error) { return os.Open(source) })
	}
	if m.Link != "" {
		return nil
	}
	name := m.Digest.Hex()
	if slices.ContainsFunc(kept.Files, func(f cas.OutputFile) bool { return f.Path == name }) ||
		slices.ContainsFunc(kept.Folders, func(f cas.OutputFolder) bool { return f.Path == name }) {
		return nil
	}
	if m.Tree == nil {
		kept.Files = append(kept.Files, cas.OutputFile{Path: name, Digest: m.Digest})
		return put(m.Source, m.Digest)
	}
	err := m.Tree.Walk(func(p string, f cas.FileNode) error {
		return put(filepath.Join(m.Source, filepath.FromSlash(p)), f.Digest)
	})
	if err != nil {
		return err
	}
	message, err := s.store.PutTree(cas.Capture, m.Tree)
	kept.Folders = append(kept.Folders, cas.OutputFolder{Path: name, Tree: message})
	return err
}

// keepAll records a tool's blobs as one capture: what no result names, gc takes
// for garbage where one folder holds both classes.
func (s *session) keepAll(ctx context.Context, kept cas.Result) error {
	if len(kept.Files)+len(kept.Folders) == 0 {
		return nil
	}
	message, err := kept.Encode()
	if err != nil {
		return err
	}
	key := s.store.Func().Sum(append([]byte("eval locked tool 1\n"), message...))
	unlock, err := s.store.Lock(ctx, key)
	if err != nil {
		return err
	}
	defer unlock()
	return s.store.PutResult(cas.Capture, key, kept)
}

// packageFolder is where a label's package is on this disk.
func (s *session) packageFolder(l graph.Label) (string, error) {
	root, err := s.ws.Root(l.Repo)
	if err != nil {
		return "", err
	}
	return filepath.Join(root, filepath.FromSlash(l.Pkg)), nil
}

// writeLock writes the entries of a package's tools and says what is new.
func (s *session) writeLock(pkg graph.Label, entries []toolslock.Entry) error {
	dir, err := s.packageFolder(pkg)
	if err != nil {
		return userError(err)
	}
	loaded, err := s.loader.Package(pkg.Repo, pkg.Pkg)
	if err != nil {
		return userError(err)
	}
	declared := map[string]bool{}
	for _, t := range loaded.Targets {
		declared[t.Label.Name] = true
	}
	before, err := toolslock.Update(dir, func(tool string) bool { return declared[tool] }, entries...)
	if err != nil {
		e := lockError(pkg.Package(), err)
		if pkg.Repo != "" && (errors.Is(err, os.ErrPermission) || errors.Is(err, syscall.EROFS)) {
			e.hint("the tools of @%s are locked in its own folder: run ev lock in a copy of it that you can write", pkg.Repo)
		}
		return e
	}
	for i, e := range entries {
		pkg.Name = e.Tool
		fmt.Fprintf(stdout, "%s: %s\n", pkg, safe(lockedText(before[i], e)))
	}
	return nil
}

// lockedText says what a locking did to one tool.
func lockedText(before *toolslock.Entry, e toolslock.Entry) string {
	if before == nil {
		files, size := extent(e.Mounts)
		return fmt.Sprintf("locked, %s, %.1f MB", plural(files, "file", "files"), float64(size)/1e6)
	}
	old := map[string]graph.Mount{}
	for _, m := range before.Mounts {
		old[m.Path] = m
	}
	var changes []string
	for _, m := range e.Mounts {
		was, ok := old[m.Path]
		delete(old, m.Path)
		switch {
		case !ok:
			changes = append(changes, m.Path+" is new")
		case was.Digest != m.Digest || was.Link != m.Link || was.Executable != m.Executable || (was.Tree == nil) != (m.Tree == nil):
			changes = append(changes, m.Path)
		}
	}
	for _, p := range slices.Sorted(maps.Keys(old)) {
		changes = append(changes, p+" is gone")
	}
	if before.Program != e.Program || !slices.Equal(before.Data, e.Data) {
		changes = append(changes, "its declaration")
	}
	const most = 8
	if n := len(changes); n > most {
		changes = append(changes[:most], fmt.Sprintf("%d more", n-most))
	}
	if len(changes) == 0 {
		return "unchanged"
	}
	return "changed: " + strings.Join(changes, ", ")
}

// extent counts the files of mounts, those in folders too, and their bytes.
func extent(mounts []graph.Mount) (files int, size int64) {
	for _, m := range mounts {
		switch {
		case m.Link != "":
		case m.Tree == nil:
			files, size = files+1, size+m.Digest.Size
		default:
			m.Tree.Walk(func(_ string, f cas.FileNode) error { // a resolver's is not hollow
				files, size = files+1, size+f.Digest.Size
				return nil
			})
		}
	}
	return files, size
}
