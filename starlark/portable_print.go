package starlark

import (
	"bytes"
	"fmt"
	"strings"
	"unicode/utf8"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// maxPortableBytes bounds a portable text as any other file is bounded.
const maxPortableBytes = maxSource

// rootName is the global that a portable text ends with.
const rootName = "root"

// A portablePrinter writes a portable text: functions first what they use, each
// after the constants that it needs.
type portablePrinter struct {
	order       []*portableFunction
	functions   map[*sl.Function]*portableFunction
	globals     map[string]bool // names given away
	locals      map[string]bool // names bound in any function
	methods     map[*sl.Builtin]*definition
	constants   map[string]*definition // by text
	containers  map[sl.Value]*definition
	plain       map[string]bool // names that the parser takes as such
	definitions []*definition   // all of them, in the order in which they were named
	shown       int             // values displayed
	size        int             // bytes of their texts

	out       bytes.Buffer
	line, col int
	marks     []originMark
	indent    int
	fn        *portableFunction  // being printed
	names     map[ref]expression // how it calls what it refers to
}

func newPortablePrinter(order []*portableFunction) *portablePrinter {
	p := &portablePrinter{
		order: order, line: 1, col: 1,
		functions: map[*sl.Function]*portableFunction{}, globals: map[string]bool{}, locals: map[string]bool{},
		methods: map[*sl.Builtin]*definition{}, constants: map[string]*definition{},
		containers: map[sl.Value]*definition{}, plain: map[string]bool{},
	}
	for _, f := range order {
		p.functions[f.fn] = f
		p.locals[f.fn.Name()] = true
		for name := range f.locals {
			p.locals[name] = true
		}
	}
	p.nameFunctions()
	return p
}

// reserved are the names that a global of the text would hide.
func reserved(name string) bool {
	return sl.Universe.Has(name) || base().Has(name) || name == rootName || name == "native" || name == "glob"
}

// fresh gives away prefix_N, N counted from n.
func (p *portablePrinter) fresh(prefix string, n int) string {
	for ; ; n++ {
		if name := fmt.Sprintf("%s_%d", prefix, n); p.take(name) {
			return name
		}
	}
}

// take gives away a name that means nothing else in any place.
func (p *portablePrinter) take(name string) bool {
	if p.globals[name] || p.locals[name] || reserved(name) {
		return false
	}
	p.globals[name] = true
	return true
}

// nameFunctions gives each function a global. It is the function's own name, if
// no other function has it, it hides nothing that is predeclared, and no
// function that refers to it has a local of that name. Otherwise the def is
// wrapped in a function that returns it: str() and backtraces show its name.
func (p *portablePrinter) nameFunctions() {
	hidden := map[*portableFunction]bool{}
	for _, g := range p.order {
		for _, v := range g.refs {
			if fn, ok := v.(*sl.Function); ok {
				f, name := p.functions[fn], fn.Name()
				if g.locals[name] || g != f && g.fn.Name() == name {
					hidden[f] = true
				}
			}
		}
		for _, v := range g.defaults {
			if fn, ok := v.(*sl.Function); ok && fn.Name() == g.fn.Name() {
				hidden[p.functions[fn]] = true
			}
		}
	}
	var others []*portableFunction
	for _, f := range p.order {
		name := f.fn.Name()
		if f.lambda() || hidden[f] || p.globals[name] || reserved(name) {
			others = append(others, f)
			continue
		}
		f.name = name
		p.globals[name] = true
	}
	for _, f := range others {
		if f.lambda() {
			f.name = p.fresh("lambda", 1)
			continue
		}
		f.name = p.fresh(f.fn.Name(), 2)
		if f.wrapper = "make_" + f.name; !p.take(f.wrapper) {
			f.wrapper = p.fresh(f.wrapper, 1)
		}
	}
}

// file prints all; first are the functions that v holds.
func (p *portablePrinter) file(v sl.Value, first []*portableFunction) error {
	for _, f := range usedFirst(first) {
		if err := p.function(f); err != nil {
			return err
		}
	}
	var n needs
	d, err := p.display(v, 0, &n)
	if err != nil {
		return err
	}
	for _, d := range p.definitions { // those that a function needs when it is called
		if err := p.define(d); err != nil {
			return err
		}
	}
	if err := p.define(&definition{name: rootName, value: d, needs: n}); err != nil {
		return err
	}
	p.out.Truncate(p.out.Len() - 1) // the last line is no empty one
	if p.out.Len() > maxPortableBytes {
		return fmt.Errorf("value: its text has more than %d bytes", maxPortableBytes)
	}
	return nil
}

// usedFirst lists functions so that each stands after those that it uses, if
// they don't use it in turn.
func usedFirst(roots []*portableFunction) []*portableFunction {
	var out []*portableFunction
	seen := map[*portableFunction]bool{}
	var visit func(list []*portableFunction)
	visit = func(list []*portableFunction) {
		for _, f := range list {
			if !seen[f] {
				seen[f] = true
				visit(f.children)
				out = append(out, f)
			}
		}
	}
	visit(roots)
	return out
}

// need prints what a value needs to be made.
func (p *portablePrinter) need(n *needs) error {
	for _, f := range n.functions {
		if err := p.function(f); err != nil {
			return err
		}
	}
	for _, d := range n.definitions {
		if err := p.define(d); err != nil {
			return err
		}
	}
	return nil
}

func (p *portablePrinter) define(d *definition) error {
	if d.done {
		return nil
	}
	d.done = true
	if err := p.need(&d.needs); err != nil {
		return err
	}
	var b strings.Builder
	b.WriteString(d.name + " = ")
	d.value.write(&b, 0, b.Len())
	p.write(b.String() + "\n\n")
	return nil
}

// function prints a function, after what its defaults need and the constants
// that it refers to; those that hold functions may have to come later.
func (p *portablePrinter) function(f *portableFunction) error {
	if f.done {
		return nil
	}
	f.done = true
	var before needs
	params := map[string]string{}
	for _, x := range f.code.fn.Params {
		if b, ok := x.(*syntax.BinaryExpr); ok {
			name := b.X.(*syntax.Ident).Name
			d, err := p.operand(f.defaults[name], nil, &before)
			if err != nil {
				return err
			}
			params[name] = d.text
		}
	}
	if err := p.need(&before); err != nil {
		return err
	}
	names := map[ref]expression{}
	for i, r := range f.code.refs {
		if r.scope != resolve.Free && r.scope != resolve.Global {
			continue
		}
		var n needs
		x, err := p.operand(f.refs[i], f, &n)
		if err != nil {
			return err
		}
		names[r] = x
		if n.pure() {
			if err := p.need(&n); err != nil {
				return err
			}
		}
	}
	p.fn, p.names = f, names
	switch {
	case f.lambda():
		p.write(f.name + " = ")
		p.lambda(f.code.fn, params)
		p.write("\n\n")
	case f.wrapper != "":
		p.write("def " + f.wrapper + "():\n")
		p.indent++
		p.startLine()
		p.def(f.code.fn, params)
		p.startLine()
		p.write("return " + f.fn.Name() + "\n\n")
		p.indent--
		p.write(f.name + " = " + f.wrapper + "()\n\n")
	default:
		p.def(f.code.fn, params)
		p.write("\n")
	}
	return nil
}

// An expression is text with its precedence.
type expression struct {
	text string
	prec int
	bare bool // a literal, say, which as a statement is nothing
}

// maxInline is the longest literal that stands where it is used.
const maxInline = 60

// operand is how a function calls a value that it refers to: by a short literal
// or a name. inside is nil for a default, which stands outside of its function.
func (p *portablePrinter) operand(v sl.Value, inside *portableFunction, n *needs) (expression, error) {
	hides := func(text string) bool {
		name, _, _ := strings.Cut(text, ".")
		return inside != nil && (inside.locals[name] || inside.fn.Name() == name)
	}
	switch v := v.(type) {
	case *sl.Function:
		n.functions = append(n.functions, p.functions[v])
		return expression{text: p.functions[v].name, prec: precPrimary}, nil
	case *starlarkstruct.Module:
		if !hides(v.Name) {
			return expression{text: v.Name, prec: precPrimary}, nil
		}
	case *sl.Builtin:
		if v.Receiver() != nil {
			d, err := p.builtin(v, n)
			if err != nil {
				return expression{}, err
			}
			return expression{text: d.text, prec: precPrimary}, nil
		}
		if text, _ := builtinText(v); !hides(text) {
			return expression{text: text, prec: precPrimary}, nil
		}
	case sl.NoneType, sl.Bool, outcome:
		if text, _ := scalarText(v); !hides(text) && !strings.Contains(text, "(") {
			return expression{text: text, prec: precPrimary, bare: true}, nil
		}
	case sl.Int, sl.Float:
		// Also without a sign its precedence is that of one: 1.real is no attribute.
		if text, _ := scalarText(v); len(text) <= maxInline && !strings.Contains(text, "(") {
			return expression{text: text, prec: precUnary, bare: true}, nil
		}
	case sl.String:
		if text := stringText(string(v)); len(text) <= maxInline && utf8.ValidString(string(v)) {
			return expression{text: text, prec: precPrimary, bare: true}, nil
		}
	}
	d, err := p.constant(v)
	if err != nil {
		return expression{}, err
	}
	n.definitions = append(n.definitions, d)
	return expression{text: d.name, prec: precPrimary}, nil
}

// write appends text, which may have lines.
func (p *portablePrinter) write(text string) {
	p.out.WriteString(text)
	if i := strings.LastIndexByte(text, '\n'); i >= 0 {
		p.line += strings.Count(text, "\n")
		p.col, text = 1, text[i+1:]
	}
	p.col += utf8.RuneCountInString(text)
}

// token appends text that begins where in its file pos is.
func (p *portablePrinter) token(pos syntax.Position, text string) {
	if pos.IsValid() {
		p.marks = append(p.marks, originMark{int32(p.line), int32(p.col), pos})
	}
	p.write(text)
}

func (p *portablePrinter) startLine() { p.write(strings.Repeat("    ", p.indent)) }
