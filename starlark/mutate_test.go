package starlark

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"
)

var mutateSeed = flag.Uint64("mutate.seed", 0, "TestMutations runs this one seed, and prints its programs with -v")

// TestMutations generates small programs and edits each in three ways: in a
// part that f reaches, in a part that it doesn't, and without meaning. The
// fingerprint of f must change at the first and at no other.
func TestMutations(t *testing.T) {
	rounds := 300
	if testing.Short() {
		rounds = 60
	}
	inside, outside := 0, 0
	for seed := range uint64(rounds) {
		if *mutateSeed != 0 {
			seed = *mutateSeed
		} else {
			seed++ // 0 is no seed
		}
		rng := rand.New(rand.NewPCG(seed, 1))
		m := randomModule(rng)
		plain := &printer{}
		before := m.print(plain)
		want := before.fingerprint(t, "f")
		check := func(what string, after program, changes bool) {
			t.Helper()
			got := after.fingerprint(t, "f")
			if (got != want) != changes {
				t.Errorf("seed %d: %s: changed is %v, want %v; reproduce with\n  go test ./starlark -run TestMutations -args -mutate.seed=%d\n%v--- after\n%v",
					seed, what, got != want, changes, seed, before, after)
			} else if *mutateSeed != 0 {
				t.Logf("%s: changed is %v\n%v--- after\n%v", what, changes, before, after)
			}
		}
		style := m.print(&printer{rng: rng})
		check("spelling", style, false)

		reached := m.reachable()
		for range 4 {
			part := m.parts[rng.IntN(len(m.parts))]
			undo := part.mutate(rng)
			if reached[part] {
				inside++
			} else {
				outside++
			}
			check("mutation of "+part.name, m.print(plain), reached[part])
			undo()
		}
		if t.Failed() || *mutateSeed != 0 {
			return
		}
	}
	if inside < rounds/4 || outside < rounds/4 {
		t.Errorf("%d mutations inside, %d outside: the programs are too simple", inside, outside)
	}
}

// A node is an expression: an operator with arguments.
type node struct {
	op   string // int str float bytes param ref + - or and call list dict cond lambda attr
	text string // of literals, parameters
	ref  *part
	args []*node
}

// A part is a global: a function or a constant, in one of the files.
type part struct {
	name     string
	constant bool
	file     int
	deflt    *node // of the function's second parameter, or nil
	body     []*node
}

type randomProgram struct {
	files int
	parts []*part // the first is f, in the last file; files load earlier ones only
}

func randomModule(rng *rand.Rand) *randomProgram {
	m := &randomProgram{files: 1 + rng.IntN(3)}
	for i := range 4 + rng.IntN(8) {
		p := &part{name: fmt.Sprintf("p%d", i), file: rng.IntN(m.files), constant: rng.IntN(3) == 0}
		if i == 0 {
			p.name, p.file, p.constant = "f", m.files-1, false
		}
		m.parts = append(m.parts, p)
	}
	for i, p := range m.parts {
		var visible []*part // what p may mention
		for j, q := range m.parts {
			// Constants are made while the file runs: of earlier parts only.
			if q.file < p.file || q.file == p.file && (!p.constant || j > i && q.constant) {
				visible = append(visible, q)
			}
		}
		g := generator{rng, visible, p.constant}
		if p.constant {
			p.body = []*node{g.expr(2)}
			continue
		}
		if rng.IntN(3) == 0 {
			var earlier []*part
			for _, q := range visible {
				if q.constant && q.file < p.file {
					earlier = append(earlier, q)
				}
			}
			p.deflt = generator{rng, earlier, true}.expr(1)
		}
		for range 1 + rng.IntN(3) {
			p.body = append(p.body, g.expr(3))
		}
	}
	return m
}

type generator struct {
	rng      *rand.Rand
	visible  []*part
	constant bool // literals, lists, dicts and references only
}

func (g generator) expr(depth int) *node {
	leaves := []string{"int", "str", "float", "bytes", "ref", "ref"}
	inner := []string{"list", "dict"}
	if !g.constant {
		leaves = append(leaves, "param", "builtin")
		inner = append(inner, "+", "-", "or", "and", "call", "call", "cond", "lambda", "attr", "comp")
	}
	op := leaves[g.rng.IntN(len(leaves))]
	if depth > 0 && g.rng.IntN(4) > 0 {
		op = inner[g.rng.IntN(len(inner))]
	}
	n := &node{op: op}
	arg := func(k int) {
		for range k {
			n.args = append(n.args, g.expr(depth-1))
		}
	}
	switch op {
	case "int":
		n.text = fmt.Sprint(g.rng.IntN(100))
	case "float":
		n.text = fmt.Sprintf("%d.5", g.rng.IntN(100))
	case "str", "bytes", "attr":
		n.text = []string{"a", "b", "upper", "lower"}[g.rng.IntN(4)]
		if op == "attr" {
			arg(1)
		}
	case "builtin":
		n.text = []string{"len", "stats.mean", "stats.fisher", "re.search"}[g.rng.IntN(4)]
	case "param":
		n.text = []string{"a", "b"}[g.rng.IntN(2)]
	case "ref":
		if len(g.visible) == 0 {
			n.op, n.text = "str", "none"
			break
		}
		n.ref = g.visible[g.rng.IntN(len(g.visible))]
	case "list", "dict", "call":
		arg(1 + g.rng.IntN(3))
	case "cond":
		arg(3)
	case "+", "-", "or", "and":
		arg(2)
	case "lambda", "comp":
		arg(2)
	}
	return n
}

// reachable is what f mentions, and that, and so on.
func (m *randomProgram) reachable() map[*part]bool {
	seen := map[*part]bool{}
	var walk func(*node)
	var visit func(*part)
	walk = func(n *node) {
		if n.ref != nil {
			visit(n.ref)
		}
		for _, a := range n.args {
			walk(a)
		}
	}
	visit = func(p *part) {
		if seen[p] {
			return
		}
		seen[p] = true
		for _, n := range p.body {
			walk(n)
		}
		if p.deflt != nil {
			walk(p.deflt)
		}
	}
	visit(m.parts[0])
	return seen
}

// mutate edits one node of the part and returns how to undo it.
func (p *part) mutate(rng *rand.Rand) func() {
	var all []*node
	var collect func(*node)
	collect = func(n *node) {
		all = append(all, n)
		for _, a := range n.args {
			collect(a)
		}
	}
	for _, n := range p.body {
		collect(n)
	}
	if p.deflt != nil {
		collect(p.deflt)
	}
	if !p.constant && rng.IntN(6) == 0 { // one more statement
		old := p.body
		p.body = append(slices.Clone(old), &node{op: "int", text: "4711"})
		return func() { p.body = old }
	}
	n := all[rng.IntN(len(all))]
	old := *n
	old.args = slices.Clone(n.args)
	other := map[string]string{
		"+": "-", "-": "+", "or": "and", "and": "or",
		"a": "b", "b": "a", "upper": "lower", "lower": "upper",
		"int": "float", "str": "bytes", "bytes": "str",
		"len": "stats.mean", "stats.mean": "stats.fisher", "stats.fisher": "re.search", "re.search": "len",
	}
	switch n.op {
	case "int", "float": // 01 is no number
		n.text = "1" + n.text
	case "str", "bytes":
		if rng.IntN(2) == 0 {
			n.op = other[n.op]
		} else {
			n.text += "x"
		}
	case "builtin", "param", "attr":
		n.text = other[n.text]
	case "ref":
		n.op, n.ref, n.text = "str", nil, "instead"
	case "+", "-", "or", "and":
		n.op = other[n.op]
	case "list", "call", "dict":
		n.args = append(slices.Clone(n.args), &node{op: "int", text: "4711"})
	case "cond", "lambda", "comp":
		i := rng.IntN(len(n.args))
		n.args = slices.Clone(n.args)
		n.args[i] = &node{op: "list", args: []*node{n.args[i]}}
	}
	return func() { *n = old }
}

// A printer writes a program as Starlark; with rng, in one of many ways that
// mean the same.
type printer struct{ rng *rand.Rand }

func (p *printer) maybe() bool { return p.rng != nil && p.rng.IntN(3) == 0 }

func (m *randomProgram) print(p *printer) program {
	out := program{}
	fileName := func(i int) string { return fmt.Sprintf("f%d.star", i) }
	for file := range m.files {
		var loads, consts, funcs []string
		needs := map[string]string{} // name -> load
		for i := len(m.parts) - 1; i >= 0; i-- {
			q := m.parts[i]
			if q.file != file {
				continue
			}
			text := p.part(q, func(r *part) string {
				if r.file == file {
					return r.name
				}
				alias := r.name
				if p.rng != nil { // one alias a file
					alias = "l_" + r.name
				}
				needs[r.name] = fmt.Sprintf("load(\":%s\", %s = %q)", fileName(r.file), alias, r.name)
				return alias
			})
			if q.constant {
				consts = append(consts, text)
			} else {
				funcs = append(funcs, text)
			}
		}
		for _, name := range slices.Sorted(maps.Keys(needs)) {
			loads = append(loads, needs[name])
		}
		if p.rng != nil {
			p.rng.Shuffle(len(loads), func(i, j int) { loads[i], loads[j] = loads[j], loads[i] })
			p.rng.Shuffle(len(funcs), func(i, j int) { funcs[i], funcs[j] = funcs[j], funcs[i] })
			consts = append(consts, "unused = [1]")
		}
		out[fileName(file)] = strings.Join(slices.Concat(loads, consts, funcs), "\n") + "\n"
	}
	out["m.star"] = fmt.Sprintf("load(%q, g = \"f\")\nf = g\n", ":"+fileName(m.files-1))
	return out
}

func (p *printer) part(q *part, name func(*part) string) string {
	if q.constant {
		return q.name + " = " + p.expr(q.body[0], name)
	}
	var b strings.Builder
	deflt := ""
	if q.deflt != nil {
		deflt = " = " + p.expr(q.deflt, name)
	}
	fmt.Fprintf(&b, "def %s(a, b%s):\n", q.name, deflt)
	if p.maybe() {
		b.WriteString("    '''Documented.'''\n")
	}
	for i, n := range q.body {
		if p.maybe() {
			b.WriteString("\n    # a comment\n")
		}
		if i == len(q.body)-1 {
			b.WriteString("    return " + p.expr(n, name) + "\n")
		} else {
			fmt.Fprintf(&b, "    x%d = %s\n", i, p.expr(n, name))
		}
	}
	return b.String()
}

func (p *printer) expr(n *node, name func(*part) string) string {
	s := p.bare(n, name)
	for p.maybe() {
		s = "( " + s + " )"
	}
	return s
}

func (p *printer) bare(n *node, name func(*part) string) string {
	args := make([]string, len(n.args))
	for i, a := range n.args {
		args[i] = p.expr(a, name)
	}
	space := ""
	if p.maybe() {
		space = "  "
	}
	switch n.op {
	case "int":
		if p.maybe() {
			i, _ := sl.MakeInt(0).Int64()
			_, _ = fmt.Sscan(n.text, &i)
			return fmt.Sprintf("0x%x", i)
		}
		return n.text
	case "float", "param", "builtin":
		return n.text
	case "str", "bytes":
		prefix := map[string]string{"bytes": "b"}[n.op]
		if p.maybe() {
			return prefix + "'''" + n.text + "'''"
		}
		return prefix + `"` + n.text + `"`
	case "ref":
		return name(n.ref)
	case "+", "-", "or", "and":
		return "(" + args[0] + " " + space + n.op + " " + args[1] + ")"
	case "list":
		return "[" + space + strings.Join(args, ","+space) + "]"
	case "dict":
		for i := range args {
			args[i] = fmt.Sprintf("%d: %s", i, args[i])
		}
		return "{" + strings.Join(args, ", ") + space + "}"
	case "call":
		return "(" + args[0] + ")(" + strings.Join(args[1:], ", ") + space + ")"
	case "cond":
		return "(" + args[0] + " if " + args[1] + " else " + args[2] + ")"
	case "lambda":
		return "(lambda c = " + args[0] + ": [c, " + args[1] + "])"
	case "comp":
		return "[(c, " + args[0] + ") for c in " + args[1] + "]"
	case "attr":
		return "(" + args[0] + ")." + n.text
	}
	panic(n.op)
}
