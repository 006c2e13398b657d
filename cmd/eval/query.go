package main

import (
	"context"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

func queryCommand() *cli.Command {
	flags := append(slices.Clone(loadFlags),
		&cli.StringFlag{Name: "output", Usage: "`FORM` of the answer: label, json or graph (Graphviz)"})
	return verb("query", "which targets there are and how they depend: kind(probe, //...), deps(X), rdeps(UNIVERSE, X), attr(NAME, REGEX, X), filter(REGEX, X), and + ^ - between sets",
		"EXPRESSION", flags, func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runQuery) })
}

// A querySet is a set of targets and source files by label; a source has a nil
// target.
type querySet map[graph.Label]*starlark.Target

func runQuery(ctx context.Context, s *session) error {
	form := s.values["output"]
	if form == "" {
		form = "label"
	}
	if !slices.Contains([]string{"label", "json", "graph"}, form) {
		return usageErrorf("query: --output is label, json or graph, not %q", form)
	}
	if len(s.args) == 0 {
		return usageErrorf("query wants an expression").hint("ev query 'kind(probe, //...)'")
	}
	q := &query{ctx: ctx, ses: s, words: lexQuery(strings.Join(s.args, " "))}
	set, err := q.expression()
	if err == nil && q.pos < len(q.words) {
		err = fmt.Errorf("%q is not expected here", q.words[q.pos])
	}
	if err != nil {
		return userError(fmt.Errorf("query %q: %w", strings.Join(s.args, " "), err))
	}
	return s.printQuery(set, form)
}

// lexQuery splits an expression into words; quotes keep words together.
// Operators: ( ) , + - ^ where they stand apart, and the words union, except,
// intersect.
func lexQuery(text string) []string {
	var out []string
	for i := 0; i < len(text); {
		switch c := text[i]; {
		case c == ' ' || c == '\t' || c == '\n':
			i++
		case strings.IndexByte("(),+^", c) >= 0 || c == '-' && (i+1 == len(text) || text[i+1] == ' ' || text[i+1] == '/' || text[i+1] == '('):
			out = append(out, string(c))
			i++
		case c == '"' || c == '\'':
			end := strings.IndexByte(text[i+1:], c)
			if end < 0 {
				end = len(text) - i - 1
			}
			out = append(out, "\x00"+text[i+1:i+1+end]) // a mark: never an operator
			i += end + 2
		default:
			end := i
			for end < len(text) && strings.IndexByte(" \t\n(),+^\"'", text[end]) < 0 {
				end++
			}
			out = append(out, text[i:end])
			i = end
		}
	}
	return out
}

type query struct {
	ctx   context.Context
	ses   *session
	words []string
	pos   int
}

func (q *query) peek() string {
	if q.pos < len(q.words) {
		return q.words[q.pos]
	}
	return ""
}

func (q *query) want(w string) error {
	if q.peek() != w {
		if q.pos >= len(q.words) {
			return fmt.Errorf("%q is missing at the end", w)
		}
		return fmt.Errorf("%q is meant before %q", w, strings.TrimPrefix(q.peek(), "\x00"))
	}
	q.pos++
	return nil
}

func (q *query) expression() (querySet, error) {
	left, err := q.term()
	for err == nil {
		op := q.peek()
		switch op {
		case "+", "union", "-", "except", "^", "intersect":
		default:
			return left, nil
		}
		q.pos++
		var right querySet
		if right, err = q.term(); err != nil {
			break
		}
		out := querySet{}
		for l, t := range left {
			_, both := right[l]
			if op == "+" || op == "union" || both == (op == "^" || op == "intersect") {
				out[l] = t
			}
		}
		if op == "+" || op == "union" {
			for l, t := range right {
				out[l] = t
			}
		}
		left = out
	}
	return nil, err
}

func (q *query) term() (querySet, error) {
	w := q.peek()
	switch {
	case w == "":
		return nil, fmt.Errorf("the expression ends where a set is meant")
	case w == "(":
		q.pos++
		set, err := q.expression()
		if err != nil {
			return nil, err
		}
		return set, q.want(")")
	}
	q.pos++
	if q.peek() == "(" && !strings.HasPrefix(w, "\x00") {
		return q.call(w)
	}
	return q.pattern(strings.TrimPrefix(w, "\x00"))
}

func (q *query) pattern(w string) (querySet, error) {
	p, err := graph.ParsePattern(w, q.ses.cwd)
	if err != nil {
		return nil, err
	}
	list, _, err := q.ses.loader.Select(q.ctx, []graph.Pattern{p}, q.ses.ws.Packages)
	if err != nil {
		return nil, err
	}
	set := querySet{}
	for _, t := range list {
		set[t.Label] = t
	}
	return set, nil
}

var queryFunctions = []string{"kind", "attr", "filter", "deps", "rdeps"}

func (q *query) call(name string) (querySet, error) {
	q.pos++ // (
	word := func() (string, error) {
		w := strings.TrimPrefix(q.peek(), "\x00")
		q.pos++
		return w, q.want(",")
	}
	var texts []string
	for range map[string]int{"kind": 1, "filter": 1, "attr": 2}[name] {
		w, err := word()
		if err != nil {
			return nil, err
		}
		texts = append(texts, w)
	}
	var universe querySet
	var err error
	switch name {
	case "kind", "filter", "attr", "deps":
	case "rdeps":
		if universe, err = q.expression(); err != nil {
			return nil, err
		}
		if err := q.want(","); err != nil {
			return nil, err
		}
	default:
		return nil, fmt.Errorf("there is no function %s%s", name, graph.DidYouMean(name, queryFunctions))
	}
	set, err := q.expression()
	if err != nil {
		return nil, err
	}
	if err := q.want(")"); err != nil {
		return nil, err
	}
	switch name {
	case "deps":
		return q.deps(set)
	case "rdeps":
		return q.rdeps(universe, set)
	}
	re, err := regexp.Compile(texts[len(texts)-1])
	if err != nil {
		return nil, fmt.Errorf("%s: %v", name, err)
	}
	out := querySet{}
	for l, t := range set {
		switch name {
		case "filter":
			if re.MatchString(l.String()) {
				out[l] = t
			}
		case "kind": // a kind is matched whole: probe is not my_probe
			kind := "source file"
			if t != nil {
				kind = t.Kind
			}
			if m := re.FindString(kind); m == kind {
				out[l] = t
			}
		case "attr":
			if t != nil && re.MatchString(attrText(t, texts[0])) && hasAttr(t, texts[0]) {
				out[l] = t
			}
		}
	}
	return out, nil
}

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
	return starlark.ShowValue(t.Attrs[name])
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

func (s *session) printQuery(set querySet, form string) error {
	var labels []graph.Label
	for l := range set {
		labels = append(labels, l)
	}
	sort.Slice(labels, func(i, j int) bool { return labels[i].Compare(labels[j]) < 0 })
	if form == "graph" {
		fmt.Println("digraph query {")
	}
	for _, l := range labels {
		t := set[l]
		switch form {
		case "label":
			fmt.Println(safe(l.String()))
		case "json":
			row := map[string]any{"label": l.String(), "kind": "source file"}
			if t != nil {
				attrs := map[string]string{}
				for name := range t.Attrs {
					attrs[name] = attrText(t, name)
				}
				row["kind"], row["attrs"], row["tags"], row["at"] = t.Kind, attrs, t.Tags, t.Pos
			}
			b, err := json.Marshal(row)
			if err != nil {
				return err
			}
			fmt.Println(string(b))
		case "graph":
			fmt.Printf("  %q\n", l.String())
			if t == nil {
				continue
			}
			deps, err := s.loader.Deps(t)
			if err != nil {
				return userError(err)
			}
			for _, d := range deps {
				if _, in := set[d.Label]; in {
					fmt.Printf("  %q -> %q\n", l.String(), d.Label.String())
				}
			}
		}
	}
	if form == "graph" {
		fmt.Println("}")
	}
	return nil
}
