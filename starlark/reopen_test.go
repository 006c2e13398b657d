package starlark

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestPortableErrors(t *testing.T) {
	for _, c := range []struct{ program, want string }{
		{"f = {\"a\": [1, struct(b = (1, depset()))]}", `value["a"][1].b[1]: a value of type depset has no portable form`},
		{"P = provider()\ndef f():\n    return P()", "//:m.star%f → P: a value of type provider has no portable form"},
		{"def f():\n    return attr.string()", "//:m.star%f → attr: the name has no meaning in a portable text"},
		{"def f():\n    return rule(implementation = f)", "//:m.star%f → rule: the name has no meaning in a portable text"},
		{"R = rule\ndef f():\n    return R", "//:m.star%f → R: the builtin rule has no portable form"},
		{"f = [\"x\".elems()]", "value[0]: a value of type string.elems has no portable form"},
		{"f = depset([1]).to_list", "value: a method of a depset has no portable form"},
		{"L = [1, {}]\nL[1][2] = [L]\nf = L", "value[1][2][0]: a list that holds itself has no portable form"},
		{"D = {}\nD[1] = (D,)\nf = [1, D]", "value[1][1][0]: a dict that holds itself has no portable form"},
		{"L = []\ndef f(x = L):\n    return x\nL.append(f)", "value default[0]: a function in its own default has no portable form"},
		{"L = []\ndef g(x = L):\n    return x\nL.append(g)\nf = L", "value[0] default: a list that holds itself has no portable form"},
		{"def _mk(x):\n    if x:\n        y = 1\n    return lambda: y\nf = _mk(False)", "//:m.star%lambda → y is not set"},
		{"def _deep(n):\n    x = []\n    for _ in range(n):\n        x = [x]\n    return x\nf = _deep(3000)", "nested deeper than 2000"},
		{"def _wide(n):\n    x = []\n    for _ in range(n):\n        x = [x, x]\n    return x\nf = _wide(22)", "more than 1000000 values go into its text"},
		{"def _wide(n):\n    x = [\"x\" * 1000]\n    for _ in range(n):\n        x = [x, x]\n    return x\nf = _wide(15)", "its text has more than 16777216 bytes"},
	} {
		_, err := program{"m.star": c.program}.portable(t, "f")
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.program, err, c.want)
		}
	}
}

// A long chain of functions is no deep value.
func TestPortableChain(t *testing.T) {
	var b strings.Builder
	for i := range 3000 {
		fmt.Fprintf(&b, "def f%d(x):\n    return f%d(x) if x == %d else x\n", i, i+1, i)
	}
	b.WriteString("def f3000(x):\n    return x\nf = f0\n")
	x, err := program{"m.star": b.String()}.portable(t, "f")
	if err != nil {
		t.Fatal(err)
	}
	again(t, x.Text)
}

func TestOpenPortable(t *testing.T) {
	v, err := OpenPortable("x.star", []byte("K = [1]\ndef f():\n    K.append(2)\nroot = {\"f\": f, \"k\": K}"))
	if err != nil {
		t.Fatal(err)
	}
	if err := v.(*sl.Dict).SetKey(sl.String("x"), sl.None); err == nil {
		t.Error("root is not frozen")
	}
	f, _, _ := v.(*sl.Dict).Get(sl.String("f"))
	if got := called(f, nil); !strings.Contains(got, "cannot append to frozen list") {
		t.Errorf("a global of the text: %s", got)
	}
	for _, c := range []struct{ text, want string }{
		{"x = 1", "x.star: the text defines no root"},
		{"root = ", "x.star:1:8: got end of file, want primary expression"},
		{"root = glob([])", "x.star:1:8: undefined: glob"},
		{"root = rule()", "x.star:1:8: undefined: rule"},
		{"load('y.star', 'root')", "x.star:1:1: cannot load y.star: a portable text loads nothing"},
		{"x = 1\nroot = fail('no')", "x.star:2:12: fail: no"},
		{"root = '\xff'", "x.star:1:1: the file is not valid UTF-8"},
		{"root = [1 for x in range(1000) for y in range(1000)]", "more than 10000 steps"},
		{"def _f():\n    def g():\n        return g\n    return g\nroot = _f()", "x.star: the global root: a value is nested deeper"},
	} {
		if _, err := openPortable("x.star", []byte(c.text), 10_000); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\n got %v\nwant %s", c.text, err, c.want)
		}
	}
}

const callText = `
def inner(x):
    print("in", x)
    return 1 // x

def f(x, y = 2):
    return [inner(x), y]

def loop():
    for _ in range(1000000000):
        pass

root = {"f": f, "loop": loop}
`

func TestCallPortable(t *testing.T) {
	root, err := OpenPortable("w.star", []byte(callText))
	if err != nil {
		t.Fatal(err)
	}
	f, _, _ := root.(*sl.Dict).Get(sl.String("f"))
	loop, _, _ := root.(*sl.Dict).Get(sl.String("loop"))
	var log []string
	v, err := CallPortable(t.Context(), f, sl.Tuple{sl.MakeInt(1), sl.String("z")}, 100, func(s string) { log = append(log, s) })
	if err != nil || v.String() != `[1, "z"]` || strings.Join(log, "|") != "in 1" {
		t.Errorf("got %v, %v, printed %q", v, err, log)
	}
	_, err = CallPortable(t.Context(), f, sl.Tuple{sl.MakeInt(0)}, 0, nil)
	want := "w.star:4:14: floored division by zero\n  w.star:7:18: in f\n  w.star:4:14: in inner"
	var own *Error
	if err == nil || err.Error() != want || !errors.As(err, &own) {
		t.Errorf("got %v, want %s", err, want)
	}
	var ce *CallError
	if _, err = CallPortable(t.Context(), loop, nil, 1000, nil); !errors.As(err, &ce) || !strings.Contains(err.Error(), "more than 1000 steps") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err = CallPortable(ctx, f, nil, 0, nil); err != context.Canceled {
		t.Errorf("got %v", err)
	}
	if _, err = CallPortable(t.Context(), sl.None, nil, 0, nil); err == nil {
		t.Error("None was called")
	}
}

// The call ends when the context does, in the middle of a loop.
func TestCallPortableInterrupted(t *testing.T) {
	root, err := OpenPortable("w.star", []byte("def f():\n    for i in range(1000000000):\n        print(i)\nroot = f"))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if _, err := CallPortable(ctx, root, nil, 1<<60, func(string) { cancel() }); err != context.Canceled {
		t.Errorf("got %v", err)
	}
}

// TestOrigins: a backtrace of the text is one of the files that it comes from,
// in each kind of place that can fail.
func TestOrigins(t *testing.T) {
	p := program{"m.star": `load("//lib:lib.star", "lib", other = "f")

# Positions of the text are others.
TABLE = {"a": [lambda x: lib(x)]}


def f(x):
    """Documented, so that lines move."""
    if x == "call":
        return other(x)
    if x == "index":
        y = [1]; return y[
            3]
    if x == "binary":
        return 1 + (2 +
                    "x")
    if x == "unary":
        return [-"x"]
    if x == "dot":
        return x.nothing
    if x == "for":
        for é, y in [1]:
            pass
    if x == "comprehension":
        return ["ü", [a for a, b in [1]]]
    if x == "unset":
        return [z for _ in [1]]
    if x == "assign":
        a, b = 1, 2, 3
    if x == "augmented":
        y = [1]
        y[0] += "x"
    if x == "set":
        x[0] = 1
    if x == "slice":
        return x["a":]
    if x == "dict":
        return {"k": 1, 
            "k": 2}
    if x == "nested":
        def g(y):
            return y.nothing
        return g(1)
    if x == "lambda":
        return TABLE["a"][0](1)
    if x == "wrapped":
        return lib("wrapped")
    z = 1
`, "lib/lib.star": `def f(x):
    fail(x)

def _lib(x):
    def lib(x):
        return x.upper().nothing
    return lib

lib = _lib(1)
`}
	l, g := p.globals(t)
	x, err := l.Portable(g["f"])
	if err != nil {
		t.Fatal(err)
	}
	fn, err := OpenPortable("w.star", x.Text)
	if err != nil {
		t.Fatal(err)
	}
	for _, word := range []string{"call", "index", "binary", "unary", "dot", "for", "comprehension", "unset", "assign", "augmented", "set", "slice", "dict", "nested", "lambda", "wrapped"} {
		args := sl.Tuple{sl.String(word)}
		_, want := CallPortable(t.Context(), g["f"], args, 0, nil)
		_, got := CallPortable(t.Context(), fn, args, 0, nil)
		if want == nil || got == nil {
			t.Errorf("%s: no error: %v, %v", word, want, got)
			continue
		}
		// Labels of the workspace itself are shown as paths.
		shown := strings.NewReplacer("//:", "", "//lib:", "lib/").Replace(x.Origins.Rewrite("w.star", got.Error()))
		if shown != want.Error() {
			t.Errorf("%s: got\n%s\nwant\n%s\nin\n%s", word, shown, want, x.Text)
		}
	}
}

func TestRewrite(t *testing.T) {
	p := program{"m.star": "\n\n\n\ndef f(x):\n    return x.a + \\\n        x.b\nK = [1]\n"}
	x, err := p.portable(t, "f")
	if err != nil {
		t.Fatal(err)
	}
	// The text: def f(x):⏎    return x.a + x.b⏎⏎root = f⏎
	for _, c := range []struct{ s, want string }{
		{"error: w.star:2:5: no, w.star:1:1", "error: m.star:6:5: no, m.star:5:1"},
		{"w.star:2:13", "m.star:6:13"},
		{"w.star:2:18: and (w.star:2:20)", "m.star:7:9: and (m.star:7:10)"},
		{"w.star:2:1 is before all", "m.star:6:5 is before all"},
		{"w.star:2", "m.star:6"},
		{"w.star:2:", "m.star:6:"},
		{"w.star:4:8 w.star:99:1 w.star:0:0 w.star:99999999999999999999", "w.star:4:8 w.star:99:1 w.star:0:0 w.star:99999999999999999999"},
		{"new.w.star:2:5 /in/w.star:2:5 //:w.star:2:5 wxstar:2:5", "new.w.star:2:5 /in/w.star:2:5 //:w.star:2:5 wxstar:2:5"},
		{"", ""},
	} {
		if got := x.Origins.Rewrite("w.star", c.s); got != c.want {
			t.Errorf("%s\n got %s\nwant %s", c.s, got, c.want)
		}
	}
}

// One world in two targets is printed once, and a moved function is the same
// text with other origins.
func TestPortableOnce(t *testing.T) {
	files := map[string]string{
		"rules/BUILD.star": "",
		"rules/r.star": `
Info = provider(fields = ["value"])

def _holder(ctx):
    return [Info(value = {"fn": ctx.attr.fn})]

def _user(ctx):
    out = ctx.actions.declare_file("x.star")
    ctx.actions.write(out, native.portable(ctx.attr.of[Info].value))

holder = rule(implementation = _holder, attrs = {"fn": attr.function()})
user = rule(implementation = _user, attrs = {"of": attr.label()})
`,
		"BUILD.star": "load('@eval//rules:r.star', 'holder', 'user')\nload(':f.star', 'f')\nholder(name = 'h', fn = f)\nuser(name = 'a', of = ':h')\nuser(name = 'b', of = ':h')",
		"f.star":     "def f(x):\n    return x.y\n",
	}
	writes := func() (out []*graph.Action) {
		targets, err := inEval(files).all()
		if err != nil {
			t.Fatal(err)
		}
		for _, tgt := range targets {
			out = append(out, tgt.Result.Actions...)
		}
		return out
	}
	a := writes()
	if len(a) != 2 || &a[0].Content[0] != &a[1].Content[0] {
		t.Fatalf("the text was printed twice: %v", a)
	}
	files["f.star"] = "# moved\n" + files["f.star"]
	b := writes()
	if string(a[0].Content) != string(b[0].Content) {
		t.Errorf("moved: %s, before %s", b[0].Content, a[0].Content)
	}
	for _, c := range []struct {
		action *graph.Action
		want   string
	}{{a[0], "f.star:2:13"}, {b[0], "f.star:3:13"}} {
		if got := c.action.Origins.Rewrite("w.star", "w.star:2:13"); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}

func BenchmarkPortable(b *testing.B) {
	p := program{"m.star": `
TABLE = {"k%d" % i: {"list": list(range(20)), "text": "x" * 40} for i in range(200)}

def _clean(s):
    return [w.strip(".,").lower() for w in s.split(" ") if w in TABLE]

def f(rep, weights = {"a": 1, "b": 2}):
    n = 0
    for w in _clean(rep.reply):
        n += weights.get(w, 0)
    return n
`}
	l, g := p.globals(b)
	for b.Loop() {
		if _, err := l.Portable(g["f"]); err != nil {
			b.Fatal(err)
		}
	}
}
