package starlark

import (
	"fmt"
	"maps"
	"slices"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// The static facts about a world's functions, found by looking at their syntax
// and at that of what they call: which events they can emit, with which
// attributes, and whether they always return. They hold for every run, where a
// run tells of one.

// nativeOperation is native.operation(fn): the effects of an operation fn(req, db,
// emit), which maps each kind of event that it may emit to the sorted names of the
// attributes, or to None if it has ** in a call.
func nativeOperation(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	return effectsOf(t, b, args, kwargs, shape{"an operation", [3]string{"req", "db", "emit"}, 2, true})
}

// nativeSeeded is native.seeded(fn): the same of a seed fn(db, emit, now), which
// need return nothing.
func nativeSeeded(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	return effectsOf(t, b, args, kwargs, shape{"a seed", [3]string{"db", "emit", "now"}, 1, false})
}

// A shape is what is expected of a function.
type shape struct {
	what    string
	params  [3]string
	emit    int // which of them
	returns bool
}

func effectsOf(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple, s shape) (sl.Value, error) {
	var fn *sl.Function
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "fn", &fn); err != nil {
		return nil, err
	}
	c, err := analysisOf(t, b)
	if err != nil {
		return nil, err
	}
	w := effectsWalk{
		code: closureWalk{f: c.loader.prints}, root: fn, seen: map[*sl.Function]bool{},
		handed: map[*syntax.Ident]bool{}, kinds: map[string]map[string]bool{},
	}
	if err := w.operation(s); err != nil {
		return nil, err
	}
	effects := sl.NewDict(len(w.kinds))
	for _, kind := range slices.Sorted(maps.Keys(w.kinds)) {
		var names sl.Value = sl.None
		if attrs := w.kinds[kind]; !attrs[anyAttr] {
			var list []sl.Value
			for _, name := range slices.Sorted(maps.Keys(attrs)) {
				list = append(list, sl.String(name))
			}
			names = sl.NewList(list)
		}
		if err := effects.SetKey(sl.String(kind), names); err != nil {
			return nil, err
		}
	}
	effects.Freeze()
	return effects, nil
}

// anyAttr stands for what ** may hold.
const anyAttr = "**"

// notAttrs are the keywords of emit that are no attributes.
var notAttrs = map[string]bool{"kind": true, "subject": true, "actor": true, "ago": true}

// An effectsWalk looks for the calls of emit in a function and in all that it
// reaches. emit is the root's parameter, and whatever parameter a call hands it
// on to, where it is known which function is called; for a function that is
// called out of a table, any parameter of the name "emit".
type effectsWalk struct {
	code   closureWalk // for its memory of globals
	root   *sl.Function
	seen   map[*sl.Function]bool
	queue  []*sl.Function
	handed map[*syntax.Ident]bool // parameters that hold emit
	again  bool                   // one more was found
	kinds  map[string]map[string]bool
}

func (w *effectsWalk) operation(s shape) error {
	c, err := w.code.f.code(w.root)
	if err != nil {
		return err
	}
	if !threeArgs(w.root) {
		return w.errorAt(c.fn.Pos, "%s takes (%s, %s, %s) by position", s.what, s.params[0], s.params[1], s.params[2])
	}
	if s.returns {
		if at := unreturned(c.fn); at.IsValid() {
			return w.errorAt(at, "%s must return ok(…) or error(…) on every path", s.what)
		}
	}
	w.handed[positionalIdents(c.fn)[s.emit]] = true
	// A function that emit is handed to may have been looked at before: again,
	// until nothing is new.
	for w.again = true; w.again; {
		w.again = false
		clear(w.seen)
		w.queue = append(w.queue[:0], w.root)
		for len(w.queue) > 0 {
			fn := w.queue[0]
			w.queue = w.queue[1:]
			if w.seen[fn] {
				continue
			}
			w.seen[fn] = true
			if err := w.function(fn); err != nil {
				return err
			}
		}
	}
	return nil
}

// errorAt names the operation, too, since the place may be in a helper.
func (w *effectsWalk) errorAt(at syntax.Position, format string, args ...any) *Error {
	return errorAt(at, "%s: %s", functionName(w.root), fmt.Sprintf(format, args...))
}

// threeArgs says whether fn can be called with three positional arguments and
// has a parameter for each.
func threeArgs(fn *sl.Function) bool {
	named := fn.NumParams()
	if fn.HasVarargs() {
		named--
	}
	if fn.HasKwargs() {
		named--
	}
	for i := 3; i < named; i++ {
		if fn.ParamDefault(i) == nil {
			return false
		}
	}
	return named-fn.NumKwonlyParams() >= 3
}

// positionalIdents are the parameters that positional arguments are bound to.
func positionalIdents(fn *resolve.Function) []*syntax.Ident {
	var out []*syntax.Ident
	for _, p := range fn.Params {
		if _, ok := p.(*syntax.UnaryExpr); ok {
			break
		}
		out = append(out, paramIdent(p))
	}
	return out
}

// paramIdent is the variable of a parameter; nil of a bare *.
func paramIdent(p syntax.Expr) *syntax.Ident {
	switch x := p.(type) {
	case *syntax.BinaryExpr:
		p = x.X
	case *syntax.UnaryExpr:
		p = x.X
	}
	id, _ := p.(*syntax.Ident)
	return id
}

// function looks at one function and queues what it reaches.
func (w *effectsWalk) function(fn *sl.Function) error {
	c, err := w.code.f.code(fn)
	if err != nil {
		return err
	}
	if err := w.look(fn, c); err != nil {
		return err
	}
	for i := range fn.NumParams() {
		w.reach(fn.ParamDefault(i))
	}
	for _, r := range c.refs {
		if r.scope == resolve.Global || r.scope == resolve.Free {
			w.reach(w.code.refValue(fn, r))
		}
	}
	return nil
}

// reach queues the functions in a value, as far as it has a portable form: where
// it has none, that is an error of its own.
func (w *effectsWalk) reach(v sl.Value) {
	if v == nil {
		return
	}
	found := newPortableWalk(w.code.f)
	var list []*portableFunction
	if err := found.value(v, "value", &list); err != nil {
		return
	}
	for _, f := range list {
		w.queue = append(w.queue, f.fn)
	}
}
