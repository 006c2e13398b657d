package starlark

import (
	"context"
	"fmt"
	"slices"

	"github.com/evalbuild/eval/workspace/graph"
)

// Select loads what the patterns need and returns the targets they select, in
// order of label. Positive patterns that select nothing are returned by name.
func (l *Loader) Select(ctx context.Context, patterns []graph.Pattern, packages func(repo, prefix string) ([]string, error)) (targets []*Target, empty []graph.Pattern, err error) {
	chosen := map[graph.Label]*Target{}
	for _, p := range patterns {
		repo, err := l.opts.Files.Canonical(p.Repo)
		if err != nil {
			return nil, nil, &Error{Msg: fmt.Sprintf("pattern %s: %v", p, err)}
		}
		p.Repo = repo
		if p.Negative {
			for label := range chosen {
				if p.Matches(label) {
					delete(chosen, label)
				}
			}
			continue
		}
		pkgs := []string{p.Pkg}
		if p.Below {
			if pkgs, err = packages(p.Repo, p.Pkg); err != nil {
				return nil, nil, err
			}
		}
		if !p.Below {
			if err := l.noPackage(p, packages); err != nil {
				return nil, nil, err
			}
		}
		loaded, err := l.LoadPackages(ctx, p.Repo, pkgs)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for _, pkg := range loaded {
			for _, t := range pkg.Targets {
				if p.Matches(t.Label) {
					chosen[t.Label] = t
					n++
				}
			}
		}
		if n > 0 {
			continue
		}
		if p.Name != "" {
			return nil, nil, noTarget(loaded[0], p.Name)
		}
		empty = append(empty, p)
	}
	for _, t := range chosen {
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b *Target) int { return a.Label.Compare(b.Label) })
	return targets, empty, nil
}

// noPackage is the error of a pattern whose package isn't there, or nil.
func (l *Loader) noPackage(p graph.Pattern, packages func(repo, prefix string) ([]string, error)) error {
	has, err := l.opts.Files.HasPackage(p.Repo, p.Pkg)
	if has || err != nil {
		return err
	}
	name := graph.Label{Repo: p.Repo, Pkg: p.Pkg}.Package()
	hint := ""
	if all, err := packages(p.Repo, ""); err == nil {
		hint = graph.DidYouMean(p.Pkg, all)
	}
	return &Error{Msg: fmt.Sprintf("package %s: there is no %s%s", name, buildFile, hint)}
}

func noTarget(p *Package, name string) *Error {
	var names []string
	for _, t := range p.Targets {
		names = append(names, t.Label.Name)
	}
	hint := graph.DidYouMean(name, names)
	if hint == "" && len(names) > 0 {
		hint = fmt.Sprintf("; %s:all means all that it has", p.label("").Package())
	}
	return &Error{Msg: fmt.Sprintf("package %s has no target %q%s", p.label("").Package(), name, hint)}
}
