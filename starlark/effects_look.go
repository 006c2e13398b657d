package starlark

import (
	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// A bodyLook is the look at one function and at those nested in it. A variable
// is known by where it is bound first.
type bodyLook struct {
	*effectsWalk
	fn     *sl.Function
	code   *code
	nested map[*syntax.Ident]*resolve.Function // variables that hold a nested function
	binds  map[*syntax.Ident]int               // how often a variable is bound
	named  map[*syntax.Ident]bool              // parameters that are called "emit"
	right  map[*syntax.Ident]bool              // uses of emit that were seen as what they are
	err    *Error
}

func (w *effectsWalk) look(fn *sl.Function, c *code) error {
	l := bodyLook{
		effectsWalk: w, fn: fn, code: c,
		nested: map[*syntax.Ident]*resolve.Function{}, binds: map[*syntax.Ident]int{},
		named: map[*syntax.Ident]bool{}, right: map[*syntax.Ident]bool{},
	}
	l.params(c.fn)
	for _, s := range c.fn.Body {
		syntax.Walk(s, l.binding)
	}
	for _, s := range c.fn.Body {
		syntax.Walk(s, l.use)
	}
	if l.err != nil {
		return l.err
	}
	return nil
}

func (l *bodyLook) params(fn *resolve.Function) {
	for _, p := range fn.Params {
		if id := paramIdent(p); id != nil {
			l.binds[id]++
			l.named[id] = id.Name == "emit"
		}
	}
}

// binding notes the variables that hold a nested function and nothing else.
func (l *bodyLook) binding(n syntax.Node) bool {
	switch n := n.(type) {
	case *syntax.DefStmt:
		fn := n.Function.(*resolve.Function)
		l.params(fn)
		l.bind(n.Name)
		l.nested[variable(n.Name)] = fn
	case *syntax.LambdaExpr:
		l.params(n.Function.(*resolve.Function))
	case *syntax.AssignStmt:
		l.bind(n.LHS)
		if id, ok := unparen(n.LHS).(*syntax.Ident); ok {
			if fn, ok := unparen(n.RHS).(*syntax.LambdaExpr); ok && n.Op == syntax.EQ {
				l.nested[variable(id)] = fn.Function.(*resolve.Function)
			}
		}
	case *syntax.ForStmt:
		l.bind(n.Vars)
	case *syntax.ForClause:
		l.bind(n.Vars)
	}
	return true
}

// bind counts all names in a target: more than are bound, in `a[i] = …`, which
// only makes less known.
func (l *bodyLook) bind(target syntax.Expr) {
	syntax.Walk(target, func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok {
			if v := variable(id); v != nil {
				l.binds[v]++
			}
		}
		return true
	})
}

// variable is where id's variable is bound first; nil of an attribute's name.
func variable(id *syntax.Ident) *syntax.Ident {
	if b, ok := id.Binding.(*resolve.Binding); ok {
		return b.First
	}
	return nil
}

// use follows emit where it is called and where it is handed on.
func (l *bodyLook) use(n syntax.Node) bool {
	if l.err != nil {
		return false
	}
	switch n := n.(type) {
	case *syntax.CallExpr:
		if id, ok := unparen(n.Fn).(*syntax.Ident); ok && (l.handed[variable(id)] || l.named[variable(id)]) {
			l.right[id] = true
			l.effect(n)
			break
		}
		l.hand(n)
	case *syntax.Ident:
		if v := variable(n); v != n && l.handed[v] && !l.right[n] {
			l.err = l.errorAt(n.NamePos, "%s can be called or handed to a function, nothing else: what an operation emits must be known", n.Name)
		}
	}
	return true
}

// effect notes what a call of emit emits.
func (l *bodyLook) effect(x *syntax.CallExpr) {
	var kind syntax.Expr
	attrs := []string{}
	for i, a := range x.Args {
		switch a := a.(type) {
		case *syntax.BinaryExpr:
			if a.Op != syntax.EQ {
				break
			}
			name := a.X.(*syntax.Ident).Name
			if name == "kind" {
				kind = a.Y
			}
			if !notAttrs[name] {
				attrs = append(attrs, name)
			}
			continue
		case *syntax.UnaryExpr:
			if a.Op == syntax.STARSTAR {
				attrs = append(attrs, anyAttr)
				continue
			}
		}
		if i == 0 {
			kind = a
		}
	}
	at := x.Lparen
	if kind != nil {
		at, _ = kind.Span()
	}
	name, ok := l.constant(kind)
	if !ok {
		l.err = l.errorAt(at, "the kind of an event is a string literal or a global constant, so that it is known what an operation emits")
		return
	}
	if l.kinds[name] == nil {
		l.kinds[name] = map[string]bool{}
	}
	for _, a := range attrs {
		l.kinds[name][a] = true
	}
}

// constant is the string that x is in every call.
func (l *bodyLook) constant(x syntax.Expr) (string, bool) {
	if x == nil {
		return "", false
	}
	if lit, ok := unparen(x).(*syntax.Literal); ok && lit.Token == syntax.STRING {
		return lit.Value.(string), true
	}
	return sl.AsString(l.known(x))
}

// known is the value of a name from outside of the function, or of a field of
// it; None if it isn't known.
func (l *bodyLook) known(x syntax.Expr) sl.Value {
	var v sl.Value
	switch x := unparen(x).(type) {
	case *syntax.Ident:
		if b, ok := x.Binding.(*resolve.Binding); ok {
			r := ref{scope: b.Scope, name: x.Name}
			if b.Scope == resolve.Free {
				if r.free = freeIndex(l.code.fn, b); r.free < 0 {
					return sl.None
				}
			}
			v = l.effectsWalk.code.refValue(l.fn, r)
		}
	case *syntax.DotExpr:
		if s, ok := l.known(x.X).(*starlarkstruct.Struct); ok {
			v, _ = s.Attr(x.Name.Name)
		}
	}
	if v == nil {
		return sl.None
	}
	return v
}

// callee is the syntax of the function that is called, or nil.
func (l *bodyLook) callee(x syntax.Expr) *resolve.Function {
	switch x := unparen(x).(type) {
	case *syntax.LambdaExpr:
		return x.Function.(*resolve.Function)
	case *syntax.Ident:
		if v := variable(x); l.nested[v] != nil && l.binds[v] == 1 {
			return l.nested[v]
		}
	}
	if fn, ok := l.known(x).(*sl.Function); ok {
		if c, err := l.effectsWalk.code.f.code(fn); err == nil {
			return c.fn
		}
	}
	return nil
}

// hand follows emit into the parameters of the function that is called.
func (l *bodyLook) hand(x *syntax.CallExpr) {
	fn := l.callee(x.Fn)
	for i, a := range x.Args {
		name, value := "", a
		if b, ok := a.(*syntax.BinaryExpr); ok && b.Op == syntax.EQ {
			name, value = b.X.(*syntax.Ident).Name, b.Y
		}
		id, ok := unparen(value).(*syntax.Ident)
		if !ok || !l.handed[variable(id)] {
			continue
		}
		l.right[id] = true
		if fn == nil {
			continue
		}
		switch p := parameter(fn, i, name); {
		case p == nil:
			l.err = l.errorAt(id.NamePos, "%s is handed on where it can't be followed, in * or **: what an operation emits must be known", id.Name)
		case !l.handed[p]:
			l.handed[p], l.again = true, true
		}
	}
}

// parameter is the one that an argument is bound to: by name, or if that is ""
// by position.
func parameter(fn *resolve.Function, i int, name string) *syntax.Ident {
	if name == "" {
		if list := positionalIdents(fn); i < len(list) {
			return list[i]
		}
		return nil
	}
	for _, p := range fn.Params {
		if _, star := p.(*syntax.UnaryExpr); star {
			continue
		}
		if id := paramIdent(p); id.Name == name {
			return id
		}
	}
	return nil
}

// unreturned is the place of a path through fn that returns nothing, or none.
func unreturned(fn *resolve.Function) syntax.Position {
	var at syntax.Position
	for _, s := range fn.Body {
		syntax.Walk(s, func(n syntax.Node) bool {
			switch n := n.(type) {
			case *syntax.DefStmt, *syntax.LambdaExpr:
				return false
			case *syntax.ReturnStmt:
				if !at.IsValid() && returnsNone(n) {
					at = n.Return
				}
			}
			return true
		})
	}
	if !at.IsValid() {
		at = fallsThrough(fn.Body, fn.Pos)
	}
	return at
}

func returnsNone(s *syntax.ReturnStmt) bool {
	if s.Result == nil {
		return true
	}
	id, ok := unparen(s.Result).(*syntax.Ident)
	return ok && id.Name == "None" && scopeOf(id) == resolve.Universal
}

func scopeOf(id *syntax.Ident) resolve.Scope {
	if b, ok := id.Binding.(*resolve.Binding); ok {
		return b.Scope
	}
	return resolve.Undefined
}

// fallsThrough is where control leaves the end of a list of statements, which
// stands at a position, or none. A loop may have no turn, so its body doesn't
// count.
func fallsThrough(list []syntax.Stmt, at syntax.Position) syntax.Position {
	for _, s := range kept(list) {
		at, _ = s.Span()
		switch s := s.(type) {
		case *syntax.ReturnStmt:
			return syntax.Position{}
		case *syntax.ExprStmt:
			if fails(s.X) {
				return syntax.Position{}
			}
		case *syntax.IfStmt:
			open := fallsThrough(s.True, s.If)
			if !open.IsValid() {
				if len(s.False) == 0 {
					continue // the if itself is where it may go on
				}
				if open = fallsThrough(s.False, s.ElsePos); !open.IsValid() {
					return syntax.Position{}
				}
			}
			at = open
		}
	}
	return at
}

// fails says whether x is a call of fail.
func fails(x syntax.Expr) bool {
	call, ok := unparen(x).(*syntax.CallExpr)
	if !ok {
		return false
	}
	id, ok := unparen(call.Fn).(*syntax.Ident)
	return ok && id.Name == "fail" && scopeOf(id) == resolve.Universal
}
