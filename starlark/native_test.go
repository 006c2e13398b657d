package starlark

import (
	"encoding/hex"
	"encoding/json"
	"strings"
	"testing"
)

// inEval is a workspace of the module eval, whose rules may use native.
func inEval(files map[string]string) *build {
	b := newBuild(files, nil)
	b.files.module, b.opts.Module = "eval", "eval"
	return b
}

func TestNative(t *testing.T) {
	const claim = `{"type":"agentops.probe-input.v1","arm":"treatment","rep":3}`
	b := inEval(map[string]string{
		"rules/BUILD.star": "",
		"rules/r.star": `
def _f(fn, other):
    return [native.fingerprint(fn), native.fingerprint(other)]

def _impl(ctx):
    print(native.name(ctx.attr.fn), native.codec("codex").id, native.claims(ctx.files.srcs[0]), native.claims(ctx.files.srcs[1]))
    out = ctx.actions.declare_file("x.json")
    ctx.actions.evaluate(fn = _f, params = {"fn": ctx.attr.fn, "other": _f}, output = out)

r = rule(implementation = _impl, attrs = {"fn": attr.function(), "srcs": attr.label_list()})
`,
		"p/marks.star": "def mark(rep):\n    return PRESENT\n",
		"p/BUILD.star": "load('@eval//rules:r.star', 'r')\nload(':marks.star', 'mark')\nr(name = 'x', fn = mark, srcs = ['a.jsonl', 'b.jsonl'])",
		// The first line only, and no more of it than fits.
		"p/a.jsonl": claim + "\n" + strings.Repeat(" ", 1<<20),
		"p/b.jsonl": "{}\n" + claim,
	})
	targets, err := b.all()
	if err != nil {
		t.Fatal(err)
	}
	if got, want := strings.Join(b.logs, "|"), `//p:marks.star%mark codex@1 ("treatment", 3) ("", 0)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	a := targets[0].Result.Actions[0]
	out, err := b.content(a.Outputs[0].File)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatal(err)
	}
	for i, p := range a.Params {
		if d := p.Value.Digest(); got[i] != hex.EncodeToString(d[:]) {
			t.Errorf("param %s: %s, want %x", p.Name, got[i], d)
		}
	}
}

// The errors of a user's mistake in a call of a built-in rule are placed at the
// call, in this module as in others.
func TestErrorsInBuiltinRules(t *testing.T) {
	files := map[string]string{
		"BUILD.star": "load('@eval//rules:r.star', 'r', 'macro')\nr(name = 'x')\n",
		"RULES": `
def _impl(ctx):
    fail("no")

def macro():
    fail("macro")

r = rule(implementation = _impl)
`,
	}
	files["rules/r.star"], files["@eval//rules/r.star"] = files["RULES"], files["RULES"]
	for module, b := range map[string]*build{"eval": inEval(files), "test": newBuild(files, nil)} {
		if _, err := b.all(); err == nil || err.Error() != "BUILD.star:2:2: r //:x: fail: no" {
			t.Errorf("in %s: got %v", module, err)
		}
	}
	files["BUILD.star"] = "load('@eval//rules:r.star', 'macro')\n\nmacro()\n"
	if _, err := newBuild(files, nil).all(); err == nil || err.Error() != "BUILD.star:3:6: fail: macro" {
		t.Errorf("macro: got %v", err)
	}
}
