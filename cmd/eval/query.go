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
	cmd := verb("query", "which targets there are, and how they depend on each other", "EXPRESSION", flags,
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runQuery) })
	cmd.Description = queryHelp
	return cmd
}

const queryHelp = `An expression is a pattern (//..., //pkg:all, //pkg:name) or one of

   kind(REGEX, X)         targets of X by rule; sources are "source file"
   attr(NAME, REGEX, X)   targets of X by the text of an attribute
   filter(REGEX, X)       those of X whose label matches
   deps(X)                X and all that it depends on
   rdeps(UNIVERSE, X)     X and all of UNIVERSE that depends on it
   X + Y   X - Y   X ^ Y  or union, except, intersect; from the left

as in: ev query 'kind(probe, //...) - //old/...'`

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
	text := strings.Join(s.args, " ")
	set, err := s.evalQuery(ctx, text)
	if err != nil {
		return userError(fmt.Errorf("query %q: %w", text, err))
	}
	return s.printQuery(set, form)
}

func (s *session) evalQuery(ctx context.Context, text string) (querySet, error) {
	words, err := lexQuery(text)
	if err != nil {
		return nil, err
	}
	q := &query{ctx: ctx, ses: s, words: words}
	set, err := q.expression()
	if err == nil && q.pos < len(q.words) {
		err = fmt.Errorf("%q is not expected here", strings.TrimPrefix(q.words[q.pos], "\x00"))
	}
	return set, err
}

// lexQuery splits an expression into words; quotes keep words together.
// Operators: ( ) , + - ^ where they stand apart, and the words union, except,
// intersect.
func lexQuery(text string) ([]string, error) {
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
				return nil, fmt.Errorf("the quote %c is not closed", c)
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
	return out, nil
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
	set := querySet{}
	list, _, err := q.ses.loader.Select(q.ctx, []graph.Pattern{p}, q.ses.ws.Packages)
	if err != nil {
		l := graph.Label{Repo: p.Repo, Pkg: p.Pkg, Name: p.Name}
		if p.Name == "" || (files{q.ses.ws}).IsFile(p.Repo, l.Path()) != nil {
			return nil, err
		}
		set[l] = nil
	}
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

func (s *session) printQuery(set querySet, form string) error {
	var labels []graph.Label
	for l := range set {
		labels = append(labels, l)
	}
	sort.Slice(labels, func(i, j int) bool { return labels[i].Compare(labels[j]) < 0 })
	if form == "graph" {
		fmt.Fprintln(stdout, "digraph query {")
	}
	for _, l := range labels {
		t := set[l]
		switch form {
		case "label":
			fmt.Fprintln(stdout, safe(l.String()))
		case "json":
			row := map[string]any{"label": l.String(), "kind": "source file"}
			if t != nil {
				attrs := map[string]string{}
				for name := range t.Attrs {
					attrs[name] = attrText(t, name)
				}
				row["kind"], row["attrs"], row["tags"], row["at"] = t.Kind, attrs, append([]string{}, t.Tags...), t.Pos
			}
			b, err := json.Marshal(row)
			if err != nil {
				return err
			}
			fmt.Fprintln(stdout, string(b))
		case "graph":
			fmt.Fprintf(stdout, "  %q\n", l.String())
			if t == nil {
				continue
			}
			deps, err := s.loader.Deps(t)
			if err != nil {
				return userError(err)
			}
			for _, d := range deps {
				if _, in := set[d.Label]; in {
					fmt.Fprintf(stdout, "  %q -> %q\n", l.String(), d.Label.String())
				}
			}
		}
	}
	if form == "graph" {
		fmt.Fprintln(stdout, "}")
	}
	return nil
}
