package starlark

import (
	"math/big"
	"strconv"

	"go.starlark.net/resolve"
	"go.starlark.net/syntax"
)

// The precedences of expressions, as the parser has them.
const (
	precTest = iota // lambda, a if b else c
	precOr
	precAnd
	precNot
	precCompare
	precPipe
	precCircumflex
	precAmp
	precShift
	precAdd
	precMultiply
	precUnary
	precPrimary
)

var binaryPrecs = map[syntax.Token]int{
	syntax.OR: precOr, syntax.AND: precAnd,
	syntax.EQL: precCompare, syntax.NEQ: precCompare, syntax.LT: precCompare, syntax.GT: precCompare,
	syntax.LE: precCompare, syntax.GE: precCompare, syntax.IN: precCompare, syntax.NOT_IN: precCompare,
	syntax.PIPE: precPipe, syntax.CIRCUMFLEX: precCircumflex, syntax.AMP: precAmp,
	syntax.LTLT: precShift, syntax.GTGT: precShift, syntax.PLUS: precAdd, syntax.MINUS: precAdd,
	syntax.STAR: precMultiply, syntax.PERCENT: precMultiply, syntax.SLASH: precMultiply, syntax.SLASHSLASH: precMultiply,
}

// def prints a def statement at the indentation reached. defaults are those of
// a root function; nil: they are syntax.
func (p *portablePrinter) def(fn *resolve.Function, defaults map[string]string) {
	p.token(fn.Pos, "def "+fn.Name+"(")
	p.params(fn, defaults)
	p.write("):\n")
	p.block(fn.Body)
}

// lambda prints a lambda expression, whose body the resolver made a return.
func (p *portablePrinter) lambda(fn *resolve.Function, defaults map[string]string) {
	p.token(fn.Pos, "lambda")
	if len(fn.Params) > 0 {
		p.write(" ")
		p.params(fn, defaults)
	}
	p.write(": ")
	p.expr(fn.Body[0].(*syntax.ReturnStmt).Result, precTest)
}

func (p *portablePrinter) params(fn *resolve.Function, defaults map[string]string) {
	for i, x := range fn.Params {
		if i > 0 {
			p.write(", ")
		}
		switch x := x.(type) {
		case *syntax.Ident:
			p.write(x.Name)
		case *syntax.BinaryExpr:
			name := x.X.(*syntax.Ident).Name
			p.write(name + " = ")
			if defaults != nil {
				p.write(defaults[name])
			} else {
				p.expr(x.Y, precTest)
			}
		case *syntax.UnaryExpr: // *args, **kwargs, *
			p.write(x.Op.String())
			if id, ok := x.X.(*syntax.Ident); ok {
				p.write(id.Name)
			}
		}
	}
}

func (p *portablePrinter) block(list []syntax.Stmt) {
	p.indent++
	defer func() { p.indent-- }()
	list = kept(list)
	if len(list) == 0 {
		p.startLine()
		p.write("pass\n")
	}
	for _, s := range list {
		p.startLine()
		p.stmt(s)
	}
}

func (p *portablePrinter) stmt(s syntax.Stmt) {
	switch s := s.(type) {
	case *syntax.DefStmt:
		p.def(s.Function.(*resolve.Function), nil)
		return
	case *syntax.IfStmt:
		p.ifStmt(s, "if ")
		return
	case *syntax.ForStmt:
		p.token(s.For, "for ")
		p.targets(s.Vars, precPrimary)
		p.write(" in ")
		p.expr(s.X, precTest)
		p.write(":\n")
		p.block(s.Body)
		return
	case *syntax.AssignStmt:
		p.targets(s.LHS, precTest)
		p.write(" ")
		p.token(s.OpPos, s.Op.String()+" ")
		p.expr(s.RHS, precTest)
	case *syntax.ExprStmt:
		id, isIdent := unparen(s.X).(*syntax.Ident)
		if _, isLiteral := unparen(s.X).(*syntax.Literal); isLiteral || isIdent && p.ident(id).bare {
			p.write("pass") // a literal would be a comment
			break
		}
		p.expr(s.X, precTest)
	case *syntax.BranchStmt:
		p.token(s.TokenPos, s.Token.String())
	case *syntax.ReturnStmt:
		p.token(s.Return, "return")
		if s.Result != nil {
			p.write(" ")
			p.expr(s.Result, precTest)
		}
	}
	p.write("\n")
}

func (p *portablePrinter) ifStmt(s *syntax.IfStmt, word string) {
	p.token(s.If, word)
	p.expr(s.Cond, precTest)
	p.write(":\n")
	p.block(s.True)
	rest := kept(s.False)
	if len(rest) == 0 {
		return
	}
	p.startLine()
	if len(rest) == 1 {
		if next, ok := rest[0].(*syntax.IfStmt); ok {
			p.ifStmt(next, "elif ")
			return
		}
	}
	p.write("else:\n")
	p.block(rest)
}

// targets prints what is assigned to; a tuple needs no parentheses.
func (p *portablePrinter) targets(x syntax.Expr, prec int) {
	if t, ok := unparen(x).(*syntax.TupleExpr); ok && len(t.List) > 1 {
		p.list(t.List)
		return
	}
	p.expr(x, prec)
}

func (p *portablePrinter) list(list []syntax.Expr) {
	for i, x := range list {
		if i > 0 {
			p.write(", ")
		}
		p.expr(x, precTest)
	}
}

// ident is how an identifier is written: locals as they are, the rest as the
// function calls it.
func (p *portablePrinter) ident(id *syntax.Ident) expression {
	b := id.Binding.(*resolve.Binding)
	r := ref{scope: b.Scope, name: id.Name}
	if b.Scope == resolve.Free {
		r.name, r.free = "", freeIndex(p.fn.code.fn, b)
	}
	if x, ok := p.names[r]; ok {
		return x
	}
	return expression{text: id.Name, prec: precPrimary}
}

// precedence is that of the expression as expr prints it.
func (p *portablePrinter) precedence(x syntax.Expr) int {
	switch x := x.(type) {
	case *syntax.Ident:
		return p.ident(x).prec
	case *syntax.Literal:
		if x.Token == syntax.INT || x.Token == syntax.FLOAT {
			return precUnary
		}
	case *syntax.LambdaExpr, *syntax.CondExpr:
		return precTest
	case *syntax.BinaryExpr:
		return binaryPrecs[x.Op]
	case *syntax.UnaryExpr:
		if x.Op == syntax.NOT {
			return precNot
		}
		return precUnary
	}
	return precPrimary
}

// expr prints x, in parentheses if it binds less than prec.
func (p *portablePrinter) expr(x syntax.Expr, prec int) {
	x = unparen(x)
	if p.precedence(x) < prec {
		p.write("(")
		defer p.write(")")
	}
	switch x := x.(type) {
	case *syntax.Ident:
		p.token(x.NamePos, p.ident(x).text)
	case *syntax.Literal:
		p.token(x.TokenPos, literalText(x))
	case *syntax.CallExpr:
		p.call(x)
	case *syntax.DotExpr:
		p.expr(x.X, precPrimary)
		p.token(x.Dot, "."+x.Name.Name)
	case *syntax.Comprehension:
		p.comprehension(x)
	case *syntax.DictExpr:
		p.write("{")
		p.list(x.List)
		p.write("}")
	case *syntax.DictEntry:
		p.expr(x.Key, precTest)
		p.token(x.Colon, ": ")
		p.expr(x.Value, precTest)
	case *syntax.LambdaExpr:
		p.lambda(x.Function.(*resolve.Function), nil)
	case *syntax.ListExpr:
		p.write("[")
		p.list(x.List)
		p.write("]")
	case *syntax.CondExpr:
		p.expr(x.True, precOr)
		p.write(" if ")
		p.expr(x.Cond, precOr)
		p.write(" else ")
		p.expr(x.False, precTest)
	case *syntax.TupleExpr:
		p.write("(")
		p.list(x.List)
		if len(x.List) == 1 {
			p.write(",")
		}
		p.write(")")
	case *syntax.UnaryExpr:
		p.unary(x)
	case *syntax.BinaryExpr:
		p.binary(x)
	case *syntax.SliceExpr:
		p.slice(x)
	case *syntax.IndexExpr:
		p.expr(x.X, precPrimary)
		p.token(x.Lbrack, "[")
		p.expr(x.Y, precTest)
		p.write("]")
	}
}

func (p *portablePrinter) call(x *syntax.CallExpr) {
	p.expr(x.Fn, precPrimary)
	p.token(x.Lparen, "(")
	for i, a := range x.Args {
		if i > 0 {
			p.write(", ")
		}
		if b, ok := a.(*syntax.BinaryExpr); ok && b.Op == syntax.EQ {
			p.write(b.X.(*syntax.Ident).Name + " = ")
			p.expr(b.Y, precTest)
			continue
		}
		if u, ok := a.(*syntax.UnaryExpr); ok && (u.Op == syntax.STAR || u.Op == syntax.STARSTAR) {
			p.write(u.Op.String())
			p.expr(u.X, precTest)
			continue
		}
		p.expr(a, precTest)
	}
	p.write(")")
}

func (p *portablePrinter) unary(x *syntax.UnaryExpr) {
	if x.Op == syntax.NOT {
		p.token(x.OpPos, "not ")
		p.expr(x.X, precNot)
		return
	}
	p.token(x.OpPos, x.Op.String())
	p.expr(x.X, precUnary)
}

func (p *portablePrinter) binary(x *syntax.BinaryExpr) {
	prec := binaryPrecs[x.Op]
	left := prec // a - b - c is (a - b) - c
	if prec == precCompare {
		left++ // a < b < c is an error
	}
	p.expr(x.X, left)
	p.write(" ")
	p.token(x.OpPos, x.Op.String()+" ")
	p.expr(x.Y, prec+1)
}

func (p *portablePrinter) slice(x *syntax.SliceExpr) {
	p.expr(x.X, precPrimary)
	p.token(x.Lbrack, "[")
	if x.Lo != nil {
		p.expr(x.Lo, precTest)
	}
	p.write(":")
	if x.Hi != nil {
		p.expr(x.Hi, precTest)
	}
	if x.Step != nil {
		p.write(":")
		p.expr(x.Step, precTest)
	}
	p.write("]")
}

func (p *portablePrinter) comprehension(x *syntax.Comprehension) {
	open, end := "[", "]"
	if x.Curly {
		open, end = "{", "}"
	}
	p.write(open)
	p.expr(x.Body, precTest)
	for _, c := range x.Clauses {
		switch c := c.(type) {
		case *syntax.ForClause:
			p.write(" ")
			p.token(c.For, "for ")
			p.targets(c.Vars, precPrimary)
			p.write(" in ")
			p.expr(c.X, precOr)
		case *syntax.IfClause:
			p.write(" ")
			p.token(c.If, "if ")
			p.expr(c.Cond, precOr)
		}
	}
	p.write(end)
}

func literalText(x *syntax.Literal) string {
	switch v := x.Value.(type) {
	case int64:
		return strconv.FormatInt(v, 10)
	case *big.Int:
		return v.String()
	case float64:
		return floatText(v)
	case string:
		return syntax.Quote(v, x.Token == syntax.BYTES)
	}
	return x.Raw
}
