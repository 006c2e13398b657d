package starlark

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// keyOf encodes an action with the digests of its inputs' bytes.
func (b *build) keyOf(t *testing.T, a *graph.Action) graph.Key {
	t.Helper()
	var inputs graph.Inputs
	for _, in := range a.Inputs {
		data, err := b.content(in.File)
		if err != nil {
			t.Fatal(err)
		}
		inputs.Files = append(inputs.Files, graph.Content{Digest: cas.BLAKE3.Sum(data)})
	}
	e, err := a.Encode(cas.BLAKE3, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return e.Key
}

// TestTwoMeanings holds pairs of actions that give different outputs. One key
// for both would report one's output as the other's.
func TestTwoMeanings(t *testing.T) {
	for _, c := range []struct{ name, defs, a, b string }{
		{"two params that are one function", "def mk():\n    return lambda: 1\nG = mk()\nH = mk()", "fn = lambda a, b: a == b, params = {'a': G, 'b': G}", "fn = lambda a, b: a == b, params = {'a': G, 'b': H}"},
		{
			"a param that the function knows", "def mk():\n    return lambda: 1\nG = mk()\nH = mk()\ndef eq(a):\n    return a == G",
			"fn = eq, params = {'a': G}", "fn = eq, params = {'a': H}",
		},
		{"the function itself as its param", "def mk():\n    l = []\n    def g(a):\n        return a == l[0]\n    l.append(g)\n    return g\nG = mk()\nH = mk()", "fn = G, params = {'a': G}", "fn = G, params = {'a': H}"},
		{
			"which of three params are one", "def mk():\n    return lambda: 1\nG = mk()\nH = mk()",
			"fn = lambda a, b, c: a == b, params = {'a': G, 'b': G, 'c': H}", "fn = lambda a, b, c: a == b, params = {'a': G, 'b': H, 'c': H}",
		},
		{"instances in one param", "P = provider()\nI = P(x = 1)\nJ = P(x = 1)", "fn = lambda a: a[0] == a[1], params = {'a': [I, I]}", "fn = lambda a: a[0] == a[1], params = {'a': [I, J]}"},
		{"instances in two params", "P = provider()\nI = P(x = 1)\nJ = P(x = 1)", "fn = lambda a, b: a == b, params = {'a': I, 'b': I}", "fn = lambda a, b: a == b, params = {'a': I, 'b': J}"},
		{"depsets in two params", "I = depset([1])\nJ = depset([1])", "fn = lambda a, b: a == b, params = {'a': I, 'b': I}", "fn = lambda a, b: a == b, params = {'a': I, 'b': J}"},
		{"bound methods in two params", "I = 'a'.upper\nJ = 'a'.upper", "fn = lambda a, b: a == b, params = {'a': I, 'b': I}", "fn = lambda a, b: a == b, params = {'a': I, 'b': J}"},
		{"bound methods in one param", "I = 'a'.upper\nJ = 'a'.upper", "fn = lambda a: a[0] == a[1], params = {'a': [I, I]}", "fn = lambda a: a[0] == a[1], params = {'a': [I, J]}"},
		{"a struct and the attributes of a target", "", "fn = lambda a: str(a), params = {'a': ctx.attr}", "fn = lambda a: str(a), params = {'a': struct(name = 'x')}"},
		{"an empty depset and one of empty ones", "", "fn = lambda a: len(a.to_list()), params = {'a': depset()}", "fn = lambda a: len(a.to_list()), params = {'a': depset(['x'])}"},
		{"params swapped", "", "fn = lambda a, b: [a, b], params = {'a': 1, 'b': 2}", "fn = lambda a, b: [a, b], params = {'a': 2, 'b': 1}"},
		{"inputs swapped", "", "fn = lambda a, b: [a, b], inputs = {'a': one, 'b': two}", "fn = lambda a, b: [a, b], inputs = {'a': two, 'b': one}"},
		{"another name of an input", "", "fn = lambda **k: k, inputs = {'a': one}", "fn = lambda **k: k, inputs = {'b': one}"},
		{"another name of a param", "", "fn = lambda **k: k, params = {'a': 1}", "fn = lambda **k: k, params = {'b': 1}"},
		{"names that run together", "", "fn = lambda **k: k, params = {'a': 1, 'b': 2}", "fn = lambda **k: k, params = {'a b': 1, 'param b': 2}"},
		{"an input and a param", "", "fn = lambda a: type(a), inputs = {'a': one}, decode = {'a': 'json'}", "fn = lambda a: type(a), params = {'a': '1'}"},
		{"decode", "", "fn = lambda a: a, inputs = {'a': one}, decode = {'a': 'json'}", "fn = lambda a: a, inputs = {'a': one}, decode = {'a': 'text'}"},
		{"decode as lines", "", "fn = lambda a: a, inputs = {'a': one}, decode = {'a': 'json'}", "fn = lambda a: a, inputs = {'a': one}, decode = {'a': 'jsonl'}"},
		{"the format of a transcript", "", "fn = lambda a: a.reply, inputs = {'a': one}, decode = {'a': 'rep:text'}", "fn = lambda a: a.reply, inputs = {'a': one}, decode = {'a': 'rep:codex'}"},
		{"1 and 1.0 in a param", "", "fn = lambda a: type(a), params = {'a': 1}", "fn = lambda a: type(a), params = {'a': 1.0}"},
		{"1 and True in a param", "", "fn = lambda a: str(a), params = {'a': 1}", "fn = lambda a: str(a), params = {'a': True}"},
		{"text and bytes in a param", "", "fn = lambda a: type(a), params = {'a': 'x'}", "fn = lambda a: type(a), params = {'a': b'x'}"},
		{"order of a dict in a param", "", "fn = lambda a: a.keys(), params = {'a': {'x': 1, 'y': 2}}", "fn = lambda a: a.keys(), params = {'a': {'y': 2, 'x': 1}}"},
		{"a label and its text", "", "fn = lambda a: type(a), params = {'a': ctx.label}", "fn = lambda a: type(a), params = {'a': str(ctx.label)}"},
		{"an outcome and its text", "", "fn = lambda a: type(a), params = {'a': PRESENT}", "fn = lambda a: type(a), params = {'a': 'PRESENT'}"},
		{"invalid UTF-8", "", "fn = lambda a: a, params = {'a': '%%c' %% 0xe9}", "fn = lambda a: a, params = {'a': 'caf\\u00e9'[4:]}"},
		{"a captured name", "def mk(n):\n    return lambda: n", "fn = mk(1)", "fn = mk(2)"},
	} {
		c.a, c.b = strings.ReplaceAll(c.a, "%%", "%"), strings.ReplaceAll(c.b, "%%", "%")
		srcs, attrs := ", srcs = ['1.txt', '2.txt']", `{"srcs": attr.label_list()}`
		if strings.Contains(c.a, "ctx.attr") { // targets can't be in a key
			srcs, attrs = "", "{}"
		}
		b, targets := mustAnalyze(t, map[string]string{
			"r.star": fmt.Sprintf(`%s
def _impl(ctx):
    one, two = getattr(ctx.files, "srcs", (None, None))
    ctx.actions.evaluate(output = ctx.actions.declare_file("a.json"), %s)
    ctx.actions.evaluate(output = ctx.actions.declare_file("b.json"), %s)

r = rule(implementation = _impl, attrs = %s)
`, c.defs, c.a, c.b, attrs),
			"BUILD.star": "load(':r.star', 'r')\nr(name = 'x'" + srcs + ")\n",
			"1.txt":      "1", "2.txt": "2",
		})
		list := targets["//:x"].Result.Actions
		one, err := b.content(list[0].Outputs[0].File)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		two, err := b.content(list[1].Outputs[0].File)
		if err != nil {
			t.Fatalf("%s: %v", c.name, err)
		}
		if string(one) == string(two) {
			t.Errorf("%s: both give %s: the pair shows nothing", c.name, one)
		}
		if b.keyOf(t, list[0]) == b.keyOf(t, list[1]) {
			t.Errorf("%s: one key for %s and %s", c.name, one, two)
		}
	}
}

// TestOneMeaning holds edits of a workspace that leave every key as it was.
func TestOneMeaning(t *testing.T) {
	base := map[string]string{
		"p/r.star": `
def _f(a, n):
    return [a, n]

def _impl(ctx):
    out = ctx.actions.declare_file("a.json")
    ctx.actions.evaluate(fn = _f, inputs = {"a": ctx.file.src}, params = {"n": ctx.attr.n}, output = out)
    return DefaultInfo(files = [out])

r = rule(implementation = _impl, attrs = {"src": attr.label(), "n": attr.string_list()})
`,
		"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'x', src = '1.txt')\n",
		"p/1.txt":      "1",
	}
	keys := func(files map[string]string) string {
		b, targets := mustAnalyze(t, files)
		var out []string
		for _, x := range targets {
			for _, a := range x.Result.Actions {
				out = append(out, b.keyOf(t, a).String())
			}
		}
		return strings.Join(out, " ")
	}
	want := keys(base)
	for name, edits := range map[string]map[string]string{
		"renamed target":       {"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'y', src = '1.txt')\n"},
		"renamed source":       {"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'x', src = '2.txt')\n", "p/2.txt": "1"},
		"another package":      {"p/BUILD.star": "", "q/BUILD.star": "load('//p:r.star', 'r')\nr(name = 'x', src = '//p:1.txt')\n"},
		"tags and visibility":  {"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'x', src = '1.txt', tags = ['slow'], visibility = ['//visibility:private'])\n"},
		"the default written":  {"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'x', src = '1.txt', n = [])\n"},
		"by way of a macro":    {"p/BUILD.star": "load(':m.star', 'm')\nm('x')\n", "p/m.star": "load(':r.star', 'r')\ndef m(name):\n    r(name = name, src = '1.txt')\n"},
		"a comment":            {"p/r.star": "# about\n" + base["p/r.star"]},
		"the implementation":   {"p/r.star": strings.Replace(base["p/r.star"], "    out =", "    print(1)\n    out =", 1)},
		"the output's name":    {"p/r.star": strings.Replace(base["p/r.star"], "a.json", "d/b.json", 1)},
		"the mnemonic":         {"p/r.star": strings.Replace(base["p/r.star"], "fn = _f", "fn = _f, mnemonic = 'Think'", 1)},
		"order of params":      {"p/r.star": strings.Replace(base["p/r.star"], `{"n": ctx.attr.n}`, `dict(n = ctx.attr.n)`, 1)},
		"source by way of one": {"p/BUILD.star": "load(':r.star', 'r')\nload(':g.star', 'g')\ng(name = 'g', srcs = ['1.txt'])\nr(name = 'x', src = ':g')\n", "p/g.star": "g = rule(implementation = lambda ctx: DefaultInfo(files = ctx.files.srcs), attrs = {'srcs': attr.label_list()})\n"},
	} {
		files := map[string]string{}
		for k, v := range base {
			files[k] = v
		}
		for k, v := range edits {
			files[k] = v
		}
		if got := keys(files); got != want {
			t.Errorf("%s: %s, was %s", name, got, want)
		}
	}
	// And the control: what is in the key changes it.
	for name, edits := range map[string]map[string]string{
		"a source's bytes": {"p/1.txt": "2"},
		"a param":          {"p/BUILD.star": "load(':r.star', 'r')\nr(name = 'x', src = '1.txt', n = ['1'])\n"},
		"the function":     {"p/r.star": strings.Replace(base["p/r.star"], "[a, n]", "[n, a]", 1)},
	} {
		files := map[string]string{}
		for k, v := range base {
			files[k] = v
		}
		for k, v := range edits {
			files[k] = v
		}
		if got := keys(files); got == want {
			t.Errorf("%s: the key stays", name)
		}
	}
}

// What sharing there is does not change with the names of targets, and absent
// sharing leaves the key as it would be without.
func TestSharing(t *testing.T) {
	x, y, z := new(int), new(int), new(int)
	for _, c := range []struct {
		lists [][]any
		some  bool
	}{
		{nil, false},
		{[][]any{{x, y}}, false},
		{[][]any{{x}, {y}, {z}}, false},
		{[][]any{{x}, {x}}, true},
		{[][]any{{x, y}, {z, y}}, true},
	} {
		if got := sharing(c.lists...); (got != nil) != c.some {
			t.Errorf("%v: %x", c.lists, got)
		}
	}
	distinct := map[string]bool{}
	for _, lists := range [][][]any{
		{{x}, {x}, {y}},
		{{x}, {y}, {x}},
		{{y}, {x}, {x}},
		{{x}, {x}, {x}},
		{{x, y}, {x, y}, {z}},
		{{x, y}, {y, x}, {z}},
	} {
		distinct[fmt.Sprintf("%x", sharing(lists...))] = true
	}
	if len(distinct) != 6 {
		t.Errorf("%d encodings for 6 kinds of sharing", len(distinct))
	}
}
