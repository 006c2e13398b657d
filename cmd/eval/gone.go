package main

import (
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// goneDraws are the draws in one lock of a label that is no target any more.
type goneDraws struct {
	label graph.Label
	lock  string // path below the root
	draws int    // and adoptions
}

// deletedDraws finds what the locks of the workspace hold of targets that are
// gone, by label, then lock: a probe is not unmeasured by deleting it. No
// pattern narrows it.
func (s *session) deletedDraws() ([]goneDraws, error) {
	locks, err := s.drawLocks()
	if err != nil {
		return nil, err
	}
	return s.goneIn(locks)
}

// noteGone says which targets that are gone have draws in the locks of the
// packages of live ones: what was tried and dropped is part of the evidence.
func (s *session) noteGone(w io.Writer, targets []*starlark.Target) {
	var locks []string
	for _, t := range targets {
		live := slices.ContainsFunc(t.Result.Actions, func(a *graph.Action) bool { return a.Sample != nil })
		if name := path.Join(t.Label.Pkg, draws.Name); live && t.Label.Repo == "" && !slices.Contains(locks, name) {
			locks = append(locks, name)
		}
	}
	gone, err := s.goneIn(locks)
	if err != nil {
		return // a lock or a package that can't be read was told of already
	}
	for _, lock := range locks {
		var names []string
		n := 0
		for _, g := range gone {
			if g.lock == lock {
				names = append(names, g.label.String())
				n += g.draws
			}
		}
		if len(names) == 0 {
			continue
		}
		const most = 3
		if more := len(names) - most; more > 0 {
			names = append(names[:most], fmt.Sprintf("%d more", more))
		}
		fmt.Fprintf(w, "note: %s has looks and %s of what is no target now: %s\n", safe(lock), plural(n, "draw", "draws"), safe(strings.Join(names, ", ")))
	}
}

// goneIn finds what locks hold of targets that are gone.
func (s *session) goneIn(locks []string) ([]goneDraws, error) {
	var out []goneDraws
	for _, name := range locks {
		lock, err := draws.Open(filepath.Join(s.root, filepath.FromSlash(name)))
		if err != nil {
			return nil, userError(err)
		}
		count := map[graph.Label]int{}
		for _, l := range lock.Lines() {
			n := 0
			if l.Kind == draws.Draw || l.Kind == draws.Adopted {
				n = 1
			}
			count[l.Label] += n
		}
		for label, n := range count {
			there, err := s.hasTarget(label)
			if err != nil {
				return nil, err
			}
			if !there {
				out = append(out, goneDraws{label, name, n})
			}
		}
	}
	slices.SortFunc(out, func(a, b goneDraws) int {
		if c := a.label.Compare(b.label); c != 0 {
			return c
		}
		return strings.Compare(a.lock, b.lock)
	})
	return out, nil
}

// drawLocks lists all draws.lock: a package's BUILD.star may be gone, too.
func (s *session) drawLocks() ([]string, error) {
	pkgs, err := s.ws.Packages("", "")
	if err != nil {
		return nil, userError(err)
	}
	found := map[string]bool{}
	for _, pkg := range append(pkgs, "") {
		names, err := s.ws.Glob("", pkg, []string{"**/" + draws.Name}, nil)
		if err != nil {
			return nil, userError(err)
		}
		for _, name := range names {
			found[path.Join(pkg, name)] = true
		}
	}
	return slices.Sorted(maps.Keys(found)), nil
}

// hasTarget says whether a label is a target.
func (s *session) hasTarget(l graph.Label) (bool, error) {
	if _, err := s.ws.Root(l.Repo); err != nil {
		return false, nil // of a module that is no dependency any more
	}
	has, err := s.ws.HasPackage(l.Repo, l.Pkg)
	if err != nil || !has {
		return false, err
	}
	pkg, err := s.loader.Package(l.Repo, l.Pkg)
	if err != nil {
		return false, userError(err)
	}
	for _, t := range pkg.Targets {
		if t.Label == l {
			return true, nil
		}
	}
	return false, nil
}
