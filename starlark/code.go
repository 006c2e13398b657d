package starlark

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/big"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"
)

// This file and those of portable texts and effects read the data types of
// go.starlark.net/resolve, which are not API-stable: the version is pinned in
// go.mod, and the same/different table fails if they change their meaning.

// codeKey finds a function's syntax: sl.Function gives away its program and
// its position, nothing else.
type codeKey struct {
	program   *sl.Program
	line, col int32
}

// code is the local encoding of one function: its syntax without positions,
// comments and docstrings, with references to anything outside of it replaced
// by their index in refs.
type code struct {
	fn    *resolve.Function // the syntax itself, for portable texts and effects
	bytes []byte
	refs  []ref
	// captured lists the free variables, by index, that code still running
	// could bind anew: all but loaded names, which are bound once.
	captured []int
	loops    map[int]bool // those that are the variable of a loop
}

// ref is a use of something outside of the function.
type ref struct {
	scope resolve.Scope
	name  string
	free  int // index into FreeVars when scope is Free
	// member narrows a reference to a module of builtins (stats.fisher) to
	// the one that is used, so that a new version of another changes nothing.
	member string
}

// indexCode encodes every function of a resolved file.
func indexCode(f *syntax.File, program *sl.Program, into func(codeKey, *code)) error {
	var failed error
	loaded := map[*syntax.Ident]bool{}
	for _, s := range f.Stmts {
		if s, ok := s.(*syntax.LoadStmt); ok {
			for i := range s.From {
				loaded[s.From[i]], loaded[s.To[i]] = true, true
			}
		}
	}
	looped := loopVariables(f)
	syntax.Walk(f, func(n syntax.Node) bool {
		if failed != nil {
			return false
		}
		var fn *resolve.Function
		switch n := n.(type) {
		case *syntax.DefStmt:
			fn, _ = n.Function.(*resolve.Function)
		case *syntax.LambdaExpr:
			fn, _ = n.Function.(*resolve.Function)
		default:
			return true
		}
		if fn == nil {
			failed = fmt.Errorf("%s: function was not resolved", f.Path)
			return false
		}
		e := encoder{code: &code{fn: fn}, seen: map[ref]int{}}
		for i, v := range fn.FreeVars {
			if !loaded[v.First] {
				e.captured = append(e.captured, i)
				if looped[v.First] {
					if e.loops == nil {
						e.loops = map[int]bool{}
					}
					e.loops[i] = true
				}
			}
		}
		e.function(fn, true)
		if e.err != nil {
			failed = e.err
			return false
		}
		into(codeKey{program, fn.Pos.Line, fn.Pos.Col}, e.code)
		return true
	})
	return failed
}

// loopVariables finds the variables of for statements and comprehensions, by
// their first binding use.
func loopVariables(f *syntax.File) map[*syntax.Ident]bool {
	out := map[*syntax.Ident]bool{}
	add := func(vars syntax.Node) {
		syntax.Walk(vars, func(n syntax.Node) bool {
			if id, ok := n.(*syntax.Ident); ok {
				if b, ok := id.Binding.(*resolve.Binding); ok {
					out[b.First] = true
				}
			}
			return true
		})
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.ForStmt:
			add(n.Vars)
		case *syntax.ForClause:
			add(n.Vars)
		}
		return true
	})
	return out
}

// Node tags. They are part of every fingerprint: append, never renumber.
const (
	tagAssign byte = iota + 1
	tagDef
	tagExprStmt
	tagIf
	tagBranch
	tagReturn
	tagFor
	tagWhile
	tagLocal
	tagRef
	tagString
	tagBytes
	tagInt
	tagBigInt
	tagFloat
	tagCall
	tagDot
	tagComprehension
	tagForClause
	tagIfClause
	tagDict
	tagDictEntry
	tagLambda
	tagList
	tagCond
	tagTuple
	tagUnary
	tagBinary
	tagSlice
	tagIndex
	tagNil
	tagParam
	tagKeyword
)

type encoder struct {
	*code
	seen map[ref]int
	root *resolve.Function
	err  error
}

func (e *encoder) tag(b byte)           { e.bytes = append(e.bytes, b) }
func (e *encoder) count(n int)          { e.bytes = binary.AppendUvarint(e.bytes, uint64(n)) }
func (e *encoder) str(s string)         { e.count(len(s)); e.bytes = append(e.bytes, s...) }
func (e *encoder) flag(b bool)          { e.bytes = append(e.bytes, map[bool]byte{true: 1}[b]) }
func (e *encoder) fail(n any)           { e.err = fmt.Errorf("fingerprint: unknown syntax %T", n) }
func (e *encoder) token(t syntax.Token) { e.str(t.String()) }

// function encodes the name, the parameters and the body. Defaults of the
// root are values, encoded with the function value; those of a nested
// function are syntax of the root.
func (e *encoder) function(fn *resolve.Function, root bool) {
	if root {
		e.root = fn
	}
	e.str(fn.Name) // str(f) shows it, so it is meaning
	e.count(len(fn.Params))
	for _, p := range fn.Params {
		e.tag(tagParam)
		switch p := p.(type) {
		case *syntax.Ident:
			e.str("")
			e.str(p.Name)
		case *syntax.BinaryExpr: // x=default
			e.str("=")
			e.str(p.X.(*syntax.Ident).Name)
			if !root {
				e.expr(p.Y)
			}
		case *syntax.UnaryExpr: // *args, **kwargs, *
			e.token(p.Op)
			if id, ok := p.X.(*syntax.Ident); ok {
				e.str(id.Name)
			} else {
				e.str("")
			}
		default:
			e.fail(p)
		}
	}
	e.stmts(fn.Body)
}

func (e *encoder) stmts(list []syntax.Stmt) {
	list = kept(list)
	e.count(len(list))
	for _, s := range list {
		e.stmt(s)
	}
}

func (e *encoder) stmt(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.AssignStmt:
		e.tag(tagAssign)
		e.token(s.Op)
		e.expr(s.LHS)
		e.expr(s.RHS)
	case *syntax.DefStmt:
		e.tag(tagDef)
		e.expr(s.Name)
		e.nested(s.Function)
	case *syntax.ExprStmt:
		e.tag(tagExprStmt)
		e.expr(s.X)
	case *syntax.IfStmt:
		e.tag(tagIf)
		e.expr(s.Cond)
		e.stmts(s.True)
		e.stmts(s.False)
	case *syntax.BranchStmt:
		e.tag(tagBranch)
		e.token(s.Token)
	case *syntax.ReturnStmt:
		e.tag(tagReturn)
		e.expr(s.Result)
	case *syntax.ForStmt:
		e.tag(tagFor)
		e.expr(s.Vars)
		e.expr(s.X)
		e.stmts(s.Body)
	case *syntax.WhileStmt:
		e.tag(tagWhile)
		e.expr(s.Cond)
		e.stmts(s.Body)
	default:
		e.fail(s)
	}
}

func (e *encoder) nested(function any) {
	fn, ok := function.(*resolve.Function)
	if !ok {
		e.fail(function)
		return
	}
	e.function(fn, false)
}

func unparen(x syntax.Expr) syntax.Expr {
	for {
		p, ok := x.(*syntax.ParenExpr)
		if !ok {
			return x
		}
		x = p.X
	}
}

func (e *encoder) exprs(list []syntax.Expr) {
	e.count(len(list))
	for _, x := range list {
		e.expr(x)
	}
}

func (e *encoder) expr(x syntax.Expr) {
	switch x := unparen(x).(type) {
	case nil:
		e.tag(tagNil)
	case *syntax.Ident:
		e.ident(x, "")
	case *syntax.Literal:
		e.literal(x)
	case *syntax.CallExpr:
		e.tag(tagCall)
		e.expr(x.Fn)
		e.count(len(x.Args))
		for _, a := range x.Args {
			// A keyword argument is a BinaryExpr whose left side is a
			// name and no reference. Parentheses would make it an error.
			if b, ok := a.(*syntax.BinaryExpr); ok && b.Op == syntax.EQ {
				e.tag(tagKeyword)
				e.str(b.X.(*syntax.Ident).Name)
				e.expr(b.Y)
				continue
			}
			e.expr(a)
		}
	case *syntax.DotExpr:
		e.tag(tagDot)
		if id, ok := unparen(x.X).(*syntax.Ident); ok {
			e.ident(id, x.Name.Name)
		} else {
			e.expr(x.X)
		}
		e.str(x.Name.Name)
	case *syntax.Comprehension:
		e.tag(tagComprehension)
		e.flag(x.Curly)
		e.expr(x.Body)
		e.count(len(x.Clauses))
		for _, c := range x.Clauses {
			switch c := c.(type) {
			case *syntax.ForClause:
				e.tag(tagForClause)
				e.expr(c.Vars)
				e.expr(c.X)
			case *syntax.IfClause:
				e.tag(tagIfClause)
				e.expr(c.Cond)
			default:
				e.fail(c)
			}
		}
	case *syntax.DictExpr:
		e.tag(tagDict)
		e.exprs(x.List)
	case *syntax.DictEntry:
		e.tag(tagDictEntry)
		e.expr(x.Key)
		e.expr(x.Value)
	case *syntax.LambdaExpr:
		e.tag(tagLambda)
		e.nested(x.Function)
	case *syntax.ListExpr:
		e.tag(tagList)
		e.exprs(x.List)
	case *syntax.CondExpr:
		e.tag(tagCond)
		e.expr(x.Cond)
		e.expr(x.True)
		e.expr(x.False)
	case *syntax.TupleExpr:
		e.tag(tagTuple)
		e.exprs(x.List)
	case *syntax.UnaryExpr:
		e.tag(tagUnary)
		e.token(x.Op)
		e.expr(x.X)
	case *syntax.BinaryExpr:
		e.tag(tagBinary)
		e.token(x.Op)
		e.expr(x.X)
		e.expr(x.Y)
	case *syntax.SliceExpr:
		e.tag(tagSlice)
		e.expr(x.X)
		e.expr(x.Lo)
		e.expr(x.Hi)
		e.expr(x.Step)
	case *syntax.IndexExpr:
		e.tag(tagIndex)
		e.expr(x.X)
		e.expr(x.Y)
	default:
		e.fail(x)
	}
}

// ident encodes locals by name and anything else by reference. A name that is
// free in a nested function but belongs to the root is a local of the whole.
// member is the attribute taken of it, if any.
func (e *encoder) ident(id *syntax.Ident, member string) {
	b, ok := id.Binding.(*resolve.Binding)
	if !ok {
		e.fail(id)
		return
	}
	r := ref{scope: b.Scope, name: id.Name}
	switch b.Scope {
	case resolve.Local, resolve.Cell:
		e.tag(tagLocal)
		e.str(id.Name)
		return
	case resolve.Free:
		if r.free = e.freeIndex(b); r.free < 0 {
			e.tag(tagLocal)
			e.str(id.Name)
			return
		}
		r.name = "" // by value: a load alias is no difference
	case resolve.Global:
	case resolve.Predeclared, resolve.Universal:
		r.member = member
	default:
		e.fail(id)
		return
	}
	i, ok := e.seen[r]
	if !ok {
		i = len(e.refs)
		e.seen[r] = i
		e.refs = append(e.refs, r)
	}
	e.tag(tagRef)
	e.count(i)
}

// freeIndex finds a binding among the root's free variables, or -1. Bindings
// of one variable differ from function to function and share First.
func (e *encoder) freeIndex(b *resolve.Binding) int { return freeIndex(e.root, b) }

func freeIndex(root *resolve.Function, b *resolve.Binding) int {
	for i, f := range root.FreeVars {
		if f.First == b.First {
			return i
		}
	}
	return -1
}

// localNames are the names that a function, and those nested in it, bind.
func localNames(fn *resolve.Function) map[string]bool {
	names := map[string]bool{}
	add := func(n syntax.Node) bool {
		if id, ok := n.(*syntax.Ident); ok {
			if b, ok := id.Binding.(*resolve.Binding); ok && (b.Scope == resolve.Local || b.Scope == resolve.Cell) {
				names[id.Name] = true
			}
		}
		return true
	}
	for _, p := range fn.Params {
		if b, ok := p.(*syntax.BinaryExpr); ok { // the default is no syntax of fn
			p = b.X
		}
		syntax.Walk(p, add)
	}
	for _, s := range fn.Body {
		syntax.Walk(s, add)
	}
	return names
}

// kept leaves out bare literals: docstrings and strings used as comments. The
// compiler emits nothing for them.
func kept(list []syntax.Stmt) []syntax.Stmt {
	out := list[:0:0]
	for _, s := range list {
		if x, ok := s.(*syntax.ExprStmt); ok {
			if _, ok := x.X.(*syntax.Literal); ok {
				continue
			}
		}
		out = append(out, s)
	}
	return out
}

func (e *encoder) literal(x *syntax.Literal) {
	switch v := x.Value.(type) {
	case string:
		if x.Token == syntax.BYTES {
			e.tag(tagBytes)
		} else {
			e.tag(tagString)
		}
		e.str(v)
	case int64:
		e.tag(tagInt)
		e.bytes = binary.AppendVarint(e.bytes, v)
	case *big.Int:
		e.tag(tagBigInt)
		e.str(v.String())
	case float64:
		e.tag(tagFloat)
		e.bytes = binary.BigEndian.AppendUint64(e.bytes, math.Float64bits(v))
	default:
		e.fail(x)
	}
}
