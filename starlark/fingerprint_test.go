package starlark

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// program is the files of one program; m.star defines the function.
type program map[string]string

func parseProgram(text string) program {
	p := program{}
	parts := strings.Split("\n"+text, "\n=== ")
	p["m.star"] = parts[0]
	for _, part := range parts[1:] {
		name, body, _ := strings.Cut(part, "\n")
		p[name] = body
	}
	return p
}

// globals runs m.star in a Loader of its own.
func (p program) globals(tb testing.TB) (*Loader, sl.StringDict) {
	tb.Helper()
	l := New(Options{Files: newFiles(p), Module: "test"})
	g, err := l.exec(&chain{}, graph.Label{Name: "m.star"}, nil)
	if err != nil {
		tb.Fatalf("%v\n%s", err, p)
	}
	return l, g
}

func (p program) fingerprint(tb testing.TB, name string) Fingerprint {
	tb.Helper()
	l, g := p.globals(tb)
	r, err := l.prints.value(g[name])
	if err != nil {
		tb.Fatalf("%v\n%s", err, p)
	}
	return r.fp
}

func (p program) String() string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(p)) {
		fmt.Fprintf(&b, "=== %s\n%s\n", name, p[name])
	}
	return b.String()
}

// TestFingerprintPairs reads pairs of programs: `--- same: why` or
// `--- different: why`, one, `+++`, the other. The function is f of the first
// file; further files begin with `=== name`.
func TestFingerprintPairs(t *testing.T) {
	data, err := os.ReadFile("testdata/fingerprints.star")
	if err != nil {
		t.Fatal(err)
	}
	pairs := strings.Split("\n"+string(data), "\n--- ")[1:]
	if len(pairs) < 40 {
		t.Errorf("%d pairs", len(pairs))
	}
	for _, pair := range pairs {
		title, text, _ := strings.Cut(pair, "\n")
		a, b, ok := strings.Cut(text, "\n+++\n")
		if !ok {
			t.Fatalf("%s: no +++", title)
		}
		verdict, _, _ := strings.Cut(title, ":")
		x, y := parseProgram(a).fingerprint(t, "f"), parseProgram(b).fingerprint(t, "f")
		if same := x == y; same != (verdict == "same") {
			t.Errorf("%s: %v %v", title, x, y)
		}
	}
}

// TestFingerprintAgain: another Loader, another order of asking, another root
// first; the answer is the same.
func TestFingerprintAgain(t *testing.T) {
	p := program{"m.star": `
def f(n):
    return g(n - 1) if n else [K]

def g(n):
    return f(n - 1) if n else h

def h():
    return f, g, stats.fisher

K = {"a": f, "b": [g]}
`}
	names := []string{"f", "g", "h", "K"}
	want := map[string]Fingerprint{}
	for _, n := range names {
		want[n] = p.fingerprint(t, n)
	}
	for range 3 {
		slices.Reverse(names)
		l, g := p.globals(t)
		for _, n := range append(names, names...) {
			r, err := l.prints.value(g[n])
			if err != nil {
				t.Fatal(err)
			}
			if r.fp != want[n] {
				t.Errorf("%s: %v, want %v", n, r.fp, want[n])
			}
		}
	}
	for a, x := range want {
		for b, y := range want {
			if a != b && x == y {
				t.Errorf("%s and %s have one fingerprint", a, b)
			}
		}
	}
}

// A file that is used under two repository names is one file.
func TestFingerprintOfOwnModule(t *testing.T) {
	const lib = "P = provider()\ndef f():\n    return P(a = 1)\n"
	inside := program{"m.star": `load("@test//:lib.star", "f")` + "\ng = f", "lib.star": lib}
	outside := program{"m.star": `load("@lib//:lib.star", "f")` + "\ng = f", "@lib//lib.star": lib}
	l := New(Options{Files: newFiles(inside), Module: "lib"})
	l.opts.Files.(*fakeFiles).module = "test"
	g, err := l.exec(&chain{}, graph.Label{Name: "m.star"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	r, err := l.prints.value(g["g"])
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.fp, outside.fingerprint(t, "g"); got != want {
		t.Errorf("inside %v, outside %v", got, want)
	}
}

// setVersion changes a builtin's version until the test ends.
func setVersion(t *testing.T, b sl.Value, id string) {
	t.Helper()
	old, ok := builtinIDs[b.(*sl.Builtin)]
	if !ok {
		t.Fatalf("%v is not registered", b)
	}
	builtinIDs[b.(*sl.Builtin)] = id
	t.Cleanup(func() { builtinIDs[b.(*sl.Builtin)] = old })
}

func TestBuiltinVersions(t *testing.T) {
	p := program{"m.star": `
def fisher():
    return stats.fisher(1, 2, 3, 4)

def twice():
    return fisher() + stats.fisher(1, 2, 3, 4)

def mean():
    return stats.mean([1])

def attribute():
    return getattr(stats, "fisher")

m = stats

def alias():
    return m.fisher(1, 2, 3, 4)

F = stats.fisher

def value():
    return F(1, 2, 3, 4)

def handed(x = stats.fisher):
    return x

def parens():
    return (stats).fisher

def listed():
    return [stats][0].fisher

def none():
    return len([])
`}
	prints := func() map[string]Fingerprint {
		l, g := p.globals(t)
		out := map[string]Fingerprint{}
		for name, v := range g {
			r, err := l.prints.value(v)
			if err != nil {
				t.Fatal(err)
			}
			out[name] = r.fp
		}
		return out
	}
	changed := func(before map[string]Fingerprint) string {
		var names []string
		for name, fp := range prints() {
			if before[name] != fp {
				names = append(names, name)
			}
		}
		slices.Sort(names)
		return strings.Join(names, " ")
	}
	before := prints()
	stats, err := base()["stats"].(sl.HasAttrs).Attr("fisher")
	if err != nil {
		t.Fatal(err)
	}
	t.Run("member", func(t *testing.T) {
		setVersion(t, stats, "stats.fisher@2")
		if got, want := changed(before), "F alias attribute fisher handed listed m parens twice value"; got != want {
			t.Errorf("a new stats.fisher changes %s; want %s", got, want)
		}
	})
	t.Run("universe", func(t *testing.T) {
		setVersion(t, sl.Universe["len"], "len@2")
		if got := changed(before); got != "none" {
			t.Errorf("a new len changes %s", got)
		}
	})
	if got := changed(before); got != "" {
		t.Errorf("without a new version, %s changed", got)
	}
}

// TestRegistered: all that a function can name and that may run in an action
// has a version, each its own.
func TestRegistered(t *testing.T) {
	seen := map[string]bool{}
	base()
	for b, id := range builtinIDs {
		if seen[id] {
			t.Errorf("two builtins are %s", id)
		}
		seen[id] = true
		name, version, ok := strings.Cut(id, "@")
		if !ok || version == "" || !strings.HasSuffix(name, b.Name()) {
			t.Errorf("%s is registered as %s", b.Name(), id)
		}
	}
	for name, v := range sl.Universe {
		if b, ok := v.(*sl.Builtin); ok && builtinIDs[b] == "" {
			t.Errorf("%s has no version", name)
		}
	}
}

func TestFingerprintErrors(t *testing.T) {
	for _, c := range []struct{ program, want string }{
		{"def f():\n    return attr.string()", `//:m.star%f → attr: the builtin attr.string has no version and can't be in a key`},
		{"def f():\n    return attr", `//:m.star%f → attr.bool: the builtin attr.bool has no version`},
		{"R = rule(implementation = lambda ctx: None)\ndef f():\n    return R", `//:m.star%f → R: a value of type rule can't be in a key`},
		{"A = [{}, {\"k\": (1, attr.string())}]\ndef f():\n    return A", `//:m.star%f → A[1]["k"][1]: a value of type attr can't be in a key`},
		{"S = struct(a = \"x\".elems())\ndef f():\n    return S", `//:m.star%f → S.a: a value of type string.elems can't be in a key`},
		{"def f(x = [attr.int()]):\n    return x", `value default[0]: a value of type attr can't be in a key`},
		{"P = [provider()]\ndef f():\n    return P", `//:m.star%f → P[0]: a provider without a name (assign it to a global)`},
		{"I = provider()(a = 1)\ndef f():\n    return I", `//:m.star%f → I: a provider without a name`},
	} {
		l, g := program{"m.star": c.program}.globals(t)
		_, err := l.prints.value(g["f"])
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.program, err, c.want)
		}
	}
}

// A value of Go that nobody has registered, and a function of another Loader.
func TestFingerprintOfStrangers(t *testing.T) {
	l, _ := program{"m.star": ""}.globals(t)
	_, err := l.prints.value(sl.NewBuiltin("stranger", nil))
	if err == nil || !strings.Contains(err.Error(), "the builtin stranger has no version") {
		t.Errorf("got %v", err)
	}
	_, other := program{"m.star": "def f():\n    return 1"}.globals(t)
	_, err = l.prints.value(other["f"])
	if err == nil || !strings.Contains(err.Error(), "the syntax of function f at //:m.star:1:1 is not known") {
		t.Errorf("got %v", err)
	}
}

func TestDeepAndCyclic(t *testing.T) {
	deep := "def _deep(n):\n    x = []\n    for _ in range(n):\n        x = [x]\n    return x\nX = _deep(%d)\ndef f():\n    return X\n"
	program{"m.star": fmt.Sprintf(deep, 1900)}.fingerprint(t, "f")
	l, g := program{"m.star": fmt.Sprintf(deep, 5000)}.globals(t)
	if _, err := l.prints.value(g["f"]); err == nil || !strings.Contains(err.Error(), "nested deeper than 2000") {
		t.Errorf("got %v", err)
	}
	if _, err := l.prints.captures(g["X"]); err == nil || !strings.Contains(err.Error(), "nested deeper than 2000") {
		t.Errorf("captures: got %v", err)
	}

	// A chain of functions is as deep as its values.
	var calls strings.Builder
	for i := range 5000 {
		fmt.Fprintf(&calls, "def f%d():\n    return f%d()\n", i, i+1)
	}
	calls.WriteString("def f5000():\n    return 1\n")
	l, g = program{"m.star": calls.String()}.globals(t)
	if _, err := l.prints.value(g["f0"]); err == nil || !strings.Contains(err.Error(), "nested deeper than 2000") {
		t.Errorf("got %v", err)
	}

	// Cycles end: of a list, a dict, by way of a function.
	for _, p := range []string{
		"L = []\nL.append(L)\ndef f():\n    return L",
		"D = {}\nD[1] = [D]\ndef f():\n    return D",
		"L = []\ndef f(x = L):\n    return L\nL.append(f)",
		"L = []\nL.append(L.append)\ndef f():\n    return L",
		"L = []\nS = struct(l = L)\nL.append(S)\ndef f():\n    return S",
		"P = provider()\nL = []\nI = P(l = L)\nL.append(I)\ndef f():\n    return I",
	} {
		program{"m.star": p}.fingerprint(t, "f")
	}

	chained := "def _chain(n):\n    d = depset([1])\n    for _ in range(n):\n        d = depset(transitive = [d])\n    return d\nX = _chain(%d)\ndef f():\n    return X\n"
	program{"m.star": fmt.Sprintf(chained, 3000)}.fingerprint(t, "f")
	// 2^60 paths lead to the first of these.
	program{"m.star": "def _d(n):\n    d = depset([1])\n    for _ in range(n):\n        d = depset(transitive = [d, d])\n    return d\nX = _d(60)\ndef f():\n    return X\n"}.fingerprint(t, "f")
}

// TestEndless: values on which the interpreter, or a careless walk, would
// recurse for ever or as good as for ever.
func TestEndless(t *testing.T) {
	for _, c := range []struct{ name, program, want string }{
		{"a long chain of depsets", "def _chain():\n    d = depset([1])\n    for _ in range(4000):\n        d = depset(transitive = [d])\n_chain()", "depset: a chain of more than 3500 depsets"},
		{"a deep list", "def _deep():\n    x = []\n    for _ in range(20000):\n        x = [x]\n    return x\nX = _deep()", "the global X: a value is nested deeper than 10000"},
		{"a nested function that refers to itself", "def _mk():\n    def g():\n        return g\n    return g\nG = _mk()", "the global G: a value is nested deeper than 10000, or a nested function refers to itself"},
		{"two of them", "def _mk():\n    def g():\n        return h\n    def h():\n        return g\n    return g\nG = _mk()", "or a nested function refers to itself"},
		{"by way of a tuple", "def _mk():\n    def g():\n        return t\n    t = (1, g)\n    return t\nG = _mk()", "or a nested function refers to itself"},
		{"by way of a struct", "def _mk():\n    def g():\n        return t\n    t = struct(g = g)\n    return t\nG = _mk()", "or a nested function refers to itself"},
		{"tuples of tuples", "def _t():\n    t = ()\n    for _ in range(60):\n        t = (t, t)\n    return t\nX = _t()", "the global X: functions or tuples share so much"},
	} {
		l := New(Options{Files: newFiles(program{"m.star": c.program})})
		_, err := l.exec(&chain{}, graph.Label{Name: "m.star"}, nil)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.name, err)
		}
	}

	// In an attribute, and in a param.
	for _, c := range []struct{ build, want string }{
		{"attribute(name = 'x')", "r: f: a value is nested deeper than 10000, or a nested function refers to itself"},
		{"param(name = 'x')", "actions.evaluate: fn: a value is nested deeper than 10000, or a nested function refers to itself"},
	} {
		b := newBuild(map[string]string{
			"r.star": `
def attribute(name):
    def g():
        return g
    r(name = name, f = g)

def _param(ctx):
    def g():
        return g
    ctx.actions.evaluate(fn = g, output = ctx.actions.declare_file("x"))

r = rule(implementation = lambda ctx: None, attrs = {"f": attr.function()})
param = rule(implementation = _param)
`,
			"BUILD.star": "load(':r.star', 'attribute', 'param')\n" + c.build,
		}, nil)
		if _, err := b.all(); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v", c.build, err)
		}
	}

	// Files in layers, each function using both of the layer below: 2^14 ways.
	files := program{"l0.star": "def a():\n    return 1\ndef b():\n    return 2\n"}
	for i := 1; i < 14; i++ {
		files[fmt.Sprintf("l%d.star", i)] = fmt.Sprintf("load(':l%d.star', x = 'a', y = 'b')\ndef a():\n    return x, y\ndef b():\n    return y, x\n", i-1)
	}
	files["m.star"] = "load(':l13.star', 'a')\nf = a"
	files.fingerprint(t, "f")
}

func BenchmarkFingerprint(b *testing.B) {
	p := program{"m.star": `
WORDS = ["yes", "no", "maybe"]

def _clean(s):
    return [w.strip(".,").lower() for w in s.split(" ") if w]

def _score(words, weights = {"a": 1, "b": 2}):
    n = 0
    for w in words:
        n += weights.get(w, 0)
    return n

def f(rep):
    words = _clean(rep.reply)
    if _score(words) > 3 and re.search("x+", rep.reply):
        return PRESENT
    return ABSENT if words[0] in WORDS else degraded("odd")
`}
	l, g := p.globals(b)
	for b.Loop() {
		l.prints.roots.Clear()
		if _, err := l.prints.value(g["f"]); err != nil {
			b.Fatal(err)
		}
	}
}
