package starlark

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// A display is the text of a value: a leaf, or parts between brackets, which
// are written on one line if they fit.
type display struct {
	text  string // of a leaf; else the opening bracket
	parts []labelled
	end   string // the closing bracket
	comma bool   // one element of a tuple
	width int    // on one line, in bytes
}

// A labelled display is an element, the value of a key or that of a field.
type labelled struct {
	key   *display // of a dict
	field string   // of a struct
	value *display
}

func leaf(text string) *display { return &display{text: text, width: len(text)} }

func (d *display) add(p labelled) {
	d.parts = append(d.parts, p)
	if len(d.parts) > 1 {
		d.width += len(", ")
	}
	if p.key != nil {
		d.width += p.key.width + len(": ")
	}
	if p.field != "" {
		d.width += len(p.field) + len(" = ")
	}
	d.width += p.value.width
}

// lineWidth is where a display is broken into lines.
const lineWidth = 110

// write appends d to b. before is the width of what stands before it on its
// line; a negative one keeps all on one line.
func (d *display) write(b *strings.Builder, indent, before int) {
	b.WriteString(d.text)
	switch {
	case d.end == "":
		return
	case before >= 0 && before+d.width > lineWidth && len(d.parts) > 0:
		d.writeLines(b, indent+4)
		b.WriteString("\n" + strings.Repeat(" ", indent))
	default:
		for i, p := range d.parts {
			if i > 0 {
				b.WriteString(", ")
			}
			b.WriteString(p.label())
			p.value.write(b, 0, -1)
		}
		if d.comma {
			b.WriteString(",")
		}
	}
	b.WriteString(d.end)
}

// writeLines writes each part on lines of its own, but as many leaves as fit.
func (d *display) writeLines(b *strings.Builder, indent int) {
	at := lineWidth + 1 // where the line ends; nothing fits on the bracket's
	for _, p := range d.parts {
		label := p.label()
		isLeaf := label == "" && p.value.end == ""
		if isLeaf && at+len(" ,")+p.value.width <= lineWidth {
			b.WriteString(" ")
			at++
		} else {
			b.WriteString("\n" + strings.Repeat(" ", indent))
			at = indent
		}
		b.WriteString(label)
		p.value.write(b, indent, at+len(label))
		b.WriteString(",")
		if at += len(label) + p.value.width + len(","); !isLeaf {
			at = lineWidth + 1
		}
	}
}

// label is what stands before the value.
func (l labelled) label() string {
	switch {
	case l.key != nil:
		return l.key.String() + ": "
	case l.field != "":
		return l.field + " = "
	}
	return ""
}

// String is d on one line.
func (d *display) String() string {
	var b strings.Builder
	d.write(&b, 0, -1)
	return b.String()
}

// A definition is a global of the text that is no function: `const_1 = …`.
type definition struct {
	name  string
	value *display
	needs needs
	done  bool
}

// needs is what must be defined before a value is written.
type needs struct {
	functions   []*portableFunction
	definitions []*definition
}

// pure says whether it can be written before any function.
func (n *needs) pure() bool {
	for _, d := range n.definitions {
		if !d.needs.pure() {
			return false
		}
	}
	return len(n.functions) == 0
}

// maxDisplayDepth is how deep brackets may be nested before what is in them gets
// a name: each costs the parser a dozen of its 1,000 levels.
const maxDisplayDepth = 30

// maxPortableValues bounds the values that one text is made of: lists of lists,
// each twice in the next, double without end.
const maxPortableValues = 1_000_000

// display makes the text of v and notes what it needs.
func (p *portablePrinter) display(v sl.Value, depth int, n *needs) (*display, error) {
	if p.size > maxPortableBytes {
		return nil, fmt.Errorf("value: its text has more than %d bytes", maxPortableBytes)
	}
	if p.shown++; p.shown > maxPortableValues {
		return nil, fmt.Errorf("value: more than %d values go into its text", maxPortableValues)
	}
	switch v := v.(type) {
	case *sl.Function:
		f := p.functions[v]
		n.functions = append(n.functions, f)
		return p.leaf(f.name), nil
	case *sl.Builtin:
		return p.builtin(v, n)
	case *starlarkstruct.Module:
		return p.leaf(v.Name), nil
	case sl.Tuple, *sl.List, *sl.Dict, *sl.Set, *starlarkstruct.Struct:
		if depth >= maxDisplayDepth {
			d, err := p.constant(v)
			if err != nil {
				return nil, err
			}
			n.definitions = append(n.definitions, d)
			return p.leaf(d.name), nil
		}
		return p.brackets(v, depth+1, n)
	}
	text, err := scalarText(v)
	return p.leaf(text), err
}

func (p *portablePrinter) leaf(text string) *display {
	p.size += len(text) + 2
	return leaf(text)
}

// brackets makes the text of a container, whose elements are depth deep.
func (p *portablePrinter) brackets(v sl.Value, depth int, n *needs) (*display, error) {
	out := &display{}
	add := func(label labelled, x sl.Value) (err error) {
		if label.value, err = p.display(x, depth, n); err == nil {
			out.add(label)
		}
		return err
	}
	var list []sl.Value
	var err error
	switch v := v.(type) {
	case sl.Tuple:
		out.text, out.end, out.comma = "(", ")", len(v) == 1
		list = v
	case *sl.List:
		out.text, out.end = "[", "]"
		list = slices.Collect(v.Elements())
	case *sl.Set:
		out.text, out.end = "set([", "])"
		list = slices.Collect(v.Elements())
	case *sl.Dict:
		out.text, out.end = "{", "}"
		err = p.entries(v, depth, n, add)
	case *starlarkstruct.Struct:
		err = p.fields(v, out, add)
	}
	for _, x := range list {
		if err == nil {
			err = add(labelled{}, x)
		}
	}
	out.width += len(out.text) + len(out.end)
	if out.comma {
		out.width++
	}
	return out, err
}

func (p *portablePrinter) entries(v *sl.Dict, depth int, n *needs, add func(labelled, sl.Value) error) error {
	for _, kv := range v.Items() {
		key, err := p.display(kv[0], depth, n)
		if err == nil {
			err = add(labelled{key: key}, kv[1])
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// fields writes a struct's; names that are no identifiers are given by **.
func (p *portablePrinter) fields(v *starlarkstruct.Struct, out *display, add func(labelled, sl.Value) error) error {
	names := v.AttrNames()
	plain := !slices.ContainsFunc(names, func(name string) bool { return !p.isPlainName(name) })
	out.text, out.end = "struct(", ")"
	if !plain {
		out.text, out.end = "struct(**{", "})"
	}
	for _, name := range names {
		x, err := v.Attr(name)
		if err != nil {
			return err
		}
		label := labelled{field: name}
		if !plain {
			label = labelled{key: p.leaf(stringText(name))}
		}
		if err := add(label, x); err != nil {
			return err
		}
	}
	return nil
}

// isPlainName says whether the parser takes s as the name of an argument: it
// knows more words than Starlark uses.
func (p *portablePrinter) isPlainName(s string) bool {
	plain, ok := p.plain[s]
	if !ok {
		x, err := dialect.ParseExpr("name", s, 0)
		id, isIdent := x.(*syntax.Ident)
		plain = err == nil && isIdent && id.Name == s
		p.plain[s] = plain
	}
	return plain
}

// builtin names a builtin. A bound method is equal only to itself, so that it
// has a global of its own.
func (p *portablePrinter) builtin(b *sl.Builtin, n *needs) (*display, error) {
	if b.Receiver() == nil {
		text, _ := builtinText(b)
		return p.leaf(text), nil
	}
	d, ok := p.methods[b]
	if !ok {
		d = &definition{name: p.fresh("method", 1)}
		p.methods[b] = d
		p.definitions = append(p.definitions, d)
		recv, err := p.display(b.Receiver(), 0, &d.needs)
		if err != nil {
			return nil, err
		}
		d.value = leaf(recv.String() + "." + b.Name())
	}
	n.definitions = append(n.definitions, d)
	return p.leaf(d.name), nil
}

// constant returns the global that holds v: one for equal texts, since frozen
// values that are equal can't be told apart. Functions and methods have names of
// their own, and so are told apart.
func (p *portablePrinter) constant(v sl.Value) (*definition, error) {
	d := &definition{}
	var err error
	switch v.(type) {
	case *sl.List, *sl.Dict, *sl.Set, *starlarkstruct.Struct:
		if d, ok := p.containers[v]; ok {
			return d, nil
		}
		defer func() { p.containers[v] = d }()
		d.value, err = p.brackets(v, 1, &d.needs)
	case sl.Tuple:
		d.value, err = p.brackets(v, 1, &d.needs)
	default:
		d.value, err = p.display(v, 0, &d.needs)
	}
	if err != nil {
		return nil, err
	}
	text := d.value.String()
	if old, ok := p.constants[text]; ok {
		d = old
		return d, nil
	}
	d.name = p.fresh("const", 1)
	p.constants[text] = d
	p.definitions = append(p.definitions, d)
	return d, nil
}

// scalarText is the text of what has no parts.
func scalarText(v sl.Value) (string, error) {
	switch v := v.(type) {
	case sl.NoneType, sl.Bool, sl.Int, outcome:
		if o, ok := v.(outcome); ok && o.kind == "DEGRADED" {
			return "degraded(" + stringText(o.reason) + ")", nil
		}
		return v.String(), nil
	case sl.Float:
		return floatText(float64(v)), nil
	case sl.String:
		return stringText(string(v)), nil
	case sl.Bytes:
		return syntax.Quote(string(v), true), nil
	}
	if v.Type() == "range" {
		return v.String(), nil // exact and complete
	}
	return "", fmt.Errorf("value: a value of type %s has no portable form", v.Type())
}

func floatText(x float64) string {
	switch {
	case math.IsNaN(x):
		return `float("nan")`
	case math.IsInf(x, 1):
		return `float("inf")`
	case math.IsInf(x, -1):
		return `float("-inf")`
	}
	s := strconv.FormatFloat(x, 'g', -1, 64)
	if !strings.ContainsAny(s, ".e") {
		s += ".0"
	}
	return s
}

// stringText quotes s. No literal gives a string that is not valid UTF-8: such a
// one is decoded from the JSON that carries its bytes.
func stringText(s string) string {
	if utf8.ValidString(s) {
		return syntax.Quote(s, false)
	}
	return "json.decode(" + syntax.Quote(string(appendString(nil, s)), false) + ")"
}
