package main

import (
	"strings"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// What the functions of a query ask of a target.

func hasAttr(t *starlark.Target, name string) bool {
	_, ok := t.Attrs[name]
	return ok || name == "tags" || name == "visibility" || name == "name"
}

// attrText is an attribute as query shows it; a function is //pkg:file.star%name.
func attrText(t *starlark.Target, name string) string {
	switch name {
	case "name":
		return t.Label.Name
	case "tags":
		return "[" + strings.Join(t.Tags, ", ") + "]"
	case "visibility":
		return "[" + strings.Join(t.Visibility, ", ") + "]"
	}
	return starlark.AttrText(t.Attrs[name])
}

// deps is the set with all that it depends on.
func (q *query) deps(set querySet) (querySet, error) {
	out := querySet{}
	var visit func(graph.Label, *starlark.Target) error
	visit = func(l graph.Label, t *starlark.Target) error {
		if _, seen := out[l]; seen {
			return nil
		}
		out[l] = t
		if t == nil {
			return nil
		}
		deps, err := q.ses.loader.Deps(t)
		if err != nil {
			return err
		}
		for _, d := range deps {
			if err := visit(d.Label, d.Target); err != nil {
				return err
			}
		}
		return nil
	}
	for l, t := range set {
		if err := visit(l, t); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// rdeps is what in the universe (with its dependencies) depends on the set,
// with the set.
func (q *query) rdeps(universe, set querySet) (querySet, error) {
	all, err := q.deps(universe)
	if err != nil {
		return nil, err
	}
	users := map[graph.Label][]graph.Label{}
	for l, t := range all {
		if t == nil {
			continue
		}
		deps, err := q.ses.loader.Deps(t)
		if err != nil {
			return nil, err
		}
		for _, d := range deps {
			users[d.Label] = append(users[d.Label], l)
		}
	}
	out := querySet{}
	var queue []graph.Label
	for l := range set {
		queue = append(queue, l)
	}
	for len(queue) > 0 {
		l := queue[0]
		queue = queue[1:]
		t, in := all[l]
		if _, seen := out[l]; seen || !in {
			continue
		}
		out[l] = t
		queue = append(queue, users[l]...)
	}
	return out, nil
}
