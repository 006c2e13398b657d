package starlark

import (
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// An Error is a fault in what the user wrote: a .star file, a label in one, a
// rule's arguments. Pos is where ("probes/x/BUILD.star:3:5"), if known; Stack
// the Starlark calls that led there, innermost last, if there were several.
type Error struct {
	Pos   string
	Msg   string
	Stack []string
	Hints []string
}

func (e *Error) Error() string {
	if e.Pos == "" {
		return e.Msg
	}
	return e.Pos + ": " + e.Msg
}

// Errors is several faults, in the order of their positions.
type Errors []*Error

func (e Errors) Error() string {
	lines := make([]string, len(e))
	for i, x := range e {
		lines[i] = x.Error()
	}
	return strings.Join(lines, "\n")
}

// builtinFiles says where the built-in rules are loaded from.
var builtinFiles = map[string]string{
	"probe": "probe.star", "family": "probe.star", "headroom": "probe.star",
	"captures": "producer.star", "filegroup": "action.star", "action": "action.star",
	"tool": "tool.star", "seal": "seal.star", "contract": "contract.star",
	"system": "world.star", "world": "world.star",
	"workflow": "scenario.star", "scenario": "scenario.star", "failure_matrix": "scenario.star", "broken_contracts": "scenario.star",
}

// showFile turns a file's label into a path that can be opened from the root:
// //pkg:x.star → pkg/x.star; other modules keep their label.
func showFile(label string) string {
	rest, ok := strings.CutPrefix(label, "//")
	if !ok {
		return label
	}
	return strings.TrimPrefix(strings.Replace(rest, ":", "/", 1), "/")
}

func showPos(p syntax.Position) string {
	if !p.IsValid() {
		return showFile(p.Filename())
	}
	return fmt.Sprintf("%s:%d:%d", showFile(p.Filename()), p.Line, p.Col)
}

// errorAt makes an Error at a position.
func errorAt(p syntax.Position, format string, args ...any) *Error {
	return &Error{Pos: showPos(p), Msg: fmt.Sprintf(format, args...)}
}

// wrapError turns what the parser, the resolver or the interpreter returned
// into an Error. The position of a run-time error is that of the innermost
// call in a file of the user's: an error inside a built-in rule is shown
// where the rule was used.
func wrapError(err error) error {
	var own *Error
	var list Errors
	if errors.As(err, &own) {
		return own
	}
	if errors.As(err, &list) {
		return list
	}
	var se syntax.Error
	if errors.As(err, &se) {
		return &Error{Pos: showPos(se.Pos), Msg: se.Msg}
	}
	var re resolve.ErrorList
	if errors.As(err, &re) {
		var out Errors
		for _, r := range re {
			e := &Error{Pos: showPos(r.Pos), Msg: r.Msg}
			name, _, _ := strings.Cut(strings.TrimPrefix(r.Msg, "undefined: "), " ")
			if file := builtinFiles[name]; file != "" && strings.HasPrefix(r.Msg, "undefined: ") {
				e.Hints = []string{fmt.Sprintf("load(\"@eval//rules:%s\", \"%s\")", file, name)}
			}
			out = append(out, e)
		}
		if len(out) == 1 {
			return out[0]
		}
		return out
	}
	var ee *sl.EvalError
	if errors.As(err, &ee) {
		return evalError(ee)
	}
	return err
}

func evalError(ee *sl.EvalError) *Error {
	e := &Error{Msg: ee.Msg}
	var inner syntax.Position
	for _, f := range ee.CallStack {
		if f.Pos.Filename() == "<builtin>" || !f.Pos.IsValid() {
			continue
		}
		e.Stack = append(e.Stack, fmt.Sprintf("%s: in %s", showPos(f.Pos), f.Name))
		if !strings.HasPrefix(f.Pos.Filename(), "@eval//") || !inner.IsValid() {
			inner = f.Pos
		}
	}
	if inner.IsValid() {
		e.Pos = showPos(inner)
	}
	if len(e.Stack) < 2 {
		e.Stack = nil
	}
	return e
}

var unexpectedKeyword = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`^function (\w+) got an unexpected keyword argument "(\w+)"$`)
})

// suggestKeyword adds a "did you mean" where a Starlark function (probe, say)
// was called with an argument that it doesn't have: the interpreter has none.
func (l *Loader) suggestKeyword(err error) error {
	e, ok := err.(*Error)
	if !ok {
		return err
	}
	m := unexpectedKeyword().FindStringSubmatch(e.Msg)
	if m == nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var hints []string
	for _, mod := range l.modules {
		select {
		case <-mod.done:
		default:
			continue
		}
		fn, ok := mod.globals[m[1]].(*sl.Function)
		if !ok {
			continue
		}
		var names []string
		for i := range fn.NumParams() {
			name, _ := fn.Param(i)
			names = append(names, name)
		}
		if hint := graph.DidYouMean(m[2], names); hint != "" {
			hints = append(hints, hint)
		}
	}
	if len(hints) > 0 {
		e.Msg += slices.Min(hints)
	}
	return e
}
