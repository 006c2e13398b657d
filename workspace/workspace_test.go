package workspace

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/txtar"

	"github.com/evalbuild/eval/cas"
)

// write makes a tree of files from a txtar archive and gives its folder. A
// file whose text is "-> TARGET" becomes a symbolic link.
func write(t testing.TB, archive string) string {
	t.Helper()
	dir := t.TempDir()
	for _, f := range txtar.Parse([]byte(archive)).Files {
		put(t, filepath.Join(dir, f.Name), string(f.Data))
	}
	return dir
}

func put(t testing.TB, name, text string) {
	t.Helper()
	must(t, os.MkdirAll(filepath.Dir(name), 0o777))
	if target, ok := strings.CutPrefix(text, "-> "); ok {
		must(t, os.Symlink(strings.TrimSpace(target), name))
		return
	}
	must(t, os.WriteFile(name, []byte(text), 0o666))
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func open(t testing.TB, root string, o Options) *Workspace {
	t.Helper()
	w, err := Open(root, o)
	must(t, err)
	t.Cleanup(func() { w.Close() })
	return w
}

// message gives the text of an error with the folder of the test as ROOT.
func message(err error, root string) string {
	if err == nil {
		return ""
	}
	return strings.ReplaceAll(err.Error(), root, "ROOT")
}

func hint(err error) string {
	var h interface{ Hint() string }
	if errors.As(err, &h) {
		return h.Hint()
	}
	return ""
}

func TestFind(t *testing.T) {
	dir := write(t, `
-- w/MODULE.star --
-- w/a/b/x --
-- w/n/MODULE.star --
-- w/n/c/x --
-- d/MODULE.star/x --
-- d/sub/x --
-- l/MODULE.star --
-> nowhere
`)
	for _, c := range []struct{ in, want, err string }{
		{in: "w", want: "w"},
		{in: "w/a/b", want: "w"},
		{in: "w/n/c", want: "w/n"},
		{in: "w/a/b/x", err: "find workspace ROOT/w/a/b/x: not a folder"},
		{in: "w/zz", err: "find workspace ROOT/w/zz: no such file or directory"},
		{in: "d/sub", err: "find workspace ROOT/d/sub: ROOT/d/MODULE.star is a directory, a file is meant"},
		{in: "l", err: "find workspace ROOT/l: ROOT/l/MODULE.star: no such file or directory"},
	} {
		got, err := Find(filepath.Join(dir, c.in))
		if c.want != "" {
			c.want = filepath.Join(dir, c.want)
		}
		if got != c.want || message(err, dir) != c.err {
			t.Errorf("Find(%s) = %q, %v; want %q, %s", c.in, got, message(err, dir), c.want, c.err)
		}
	}
	_, err := Find(dir)
	want := fmt.Sprintf("find workspace %s: no MODULE.star in %s, %s, ", dir, dir, filepath.Dir(dir))
	if err == nil || !strings.HasPrefix(err.Error(), want) || !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("Find with none above: %v, want %s…", err, want)
	}
	if h := hint(err); !strings.Contains(h, "module(name =") {
		t.Errorf("hint %q", h)
	}
}

func TestFindRelative(t *testing.T) {
	dir := write(t, "-- MODULE.star --\n-- a/x --\n")
	t.Chdir(filepath.Join(dir, "a"))
	got, err := Find(".")
	must(t, err)
	if !filepath.IsAbs(got) || filepath.Base(got) != filepath.Base(dir) {
		t.Errorf("Find(.) = %s, want %s", got, dir)
	}
}

func TestModule(t *testing.T) {
	dir := write(t, `
-- w/MODULE.star --
"""All of it."""
paths = ["../shared"]
dependency(name = "shared", path = paths[0])
module(
    name = "support_evals",
    eval = ">=0.1, <0.3",
    digest = "sha256",
    trusted_builders = ["ed25519:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="],
)
dependency(name = "third.party-2", path = "third_party/x")
-- w/third_party/x/MODULE.star --
-- shared/MODULE.star --
`)
	w := open(t, filepath.Join(dir, "w"), Options{Version: "0.2.1"})
	want := Module{
		Name: "support_evals", Eval: ">=0.1, <0.3", Digest: cas.SHA256,
		TrustedBuilders: []string{"ed25519:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="},
		Dependencies:    []Dependency{{"shared", "../shared"}, {"third.party-2", "third_party/x"}},
	}
	if d := cmp.Diff(want, w.Module()); d != "" {
		t.Error(d)
	}
	for repo, want := range map[string]string{
		"": "w", "support_evals": "w", "shared": "shared", "third.party-2": "w/third_party/x",
	} {
		if got, err := w.Root(repo); err != nil || got != filepath.Join(dir, want) {
			t.Errorf("Root(%q) = %s, %v", repo, got, err)
		}
	}
	if w.Canonical("support_evals") != "" || w.Canonical("shared") != "shared" || w.Canonical("") != "" {
		t.Error("Canonical")
	}
	_, err := w.Root("shraed")
	if got, want := message(err, dir), `find module @shraed: no such module (did you mean "shared"?)`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
	if h := hint(err); !strings.HasPrefix(h, "declare it in MODULE.star") {
		t.Errorf("hint %q", h)
	}
	if _, err = w.Root("eval"); message(err, dir) != "find module @eval: its rules are in the binary, not in a folder" {
		t.Error(err)
	}
}

func TestModuleDefaults(t *testing.T) {
	w := open(t, write(t, "-- MODULE.star --\n"), Options{Version: "devel"})
	if d := cmp.Diff(Module{Digest: cas.BLAKE3}, w.Module()); d != "" {
		t.Error(d)
	}
	if w := open(t, write(t, "-- MODULE.star --\nmodule(name = 'eval')\n"), Options{}); w.Canonical("eval") != "" {
		t.Error("the module eval is its own @eval")
	}
}

func TestModuleErrors(t *testing.T) {
	long := "x = 1 # " + strings.Repeat("x", maxModuleBytes)
	for _, c := range []struct{ text, err string }{
		{`module()`, `1:1: module: the argument name is missing`},
		{"\n\nmodule(nam = 'x')", `3:8: module: unexpected argument "nam" (did you mean "name"?)`},
		{`module('x')`, `1:1: module: takes keyword arguments only, as in module(name = "x")`},
		{`module(name = 1)`, `1:8: module: name: got int, want string`},
		{`module(name = "a b")`, `1:8: module: name = "a b": want letters, digits, '_', '-' and '.'`},
		{`module(name = "..")`, `1:8: module: name = "..": want letters, digits, '_', '-' and '.'`},
		{`module(name = "é")`, `1:8: module: name = "é": want letters, digits, '_', '-' and '.'`},
		{`module(name = "")`, `1:8: module: name = "": want letters, digits, '_', '-' and '.'`},
		{"module(name = 'x')\nmodule(name = 'y')", `2:1: module: called twice`},
		{`module(name = 'x', **{'name': 'y'})`, `1:8: module: the argument "name" is given twice`},
		{`module(**{'nam': 'y'})`, `1:1: module: unexpected argument "nam" (did you mean "name"?)`},
		{`module(name = 'x', digest = 'blake')`, `1:20: module: digest = "blake": want blake3 or sha256 (did you mean "blake3"?)`},
		{`module(name = 'x', digest = 'md5')`, `1:20: module: digest = "md5": want blake3 or sha256`},
		{`module(name = 'x', eval = '>=0.3')`, `1:20: module: this workspace needs eval >=0.3, and this is eval 0.2.1`},
		{`module(name = 'x', eval = '>=0.1,<0.2')`, `1:20: module: this workspace needs eval >=0.1,<0.2, and this is eval 0.2.1`},
		{`module(name = 'x', eval = '0.1')`, `1:20: module: eval = "0.1": constraint "0.1" does not begin with >=, >, <=, < or ==, as in ">=0.1, <0.2"`},
		{`module(name = 'x', eval = '>=0.1,')`, `1:20: module: eval = ">=0.1,": constraint "" does not begin with >=, >, <=, < or ==, as in ">=0.1, <0.2"`},
		{`module(name = 'x', eval = '>=one')`, `1:20: module: eval = ">=one": version "one" is not numbers with dots, as in 0.1`},
		{`module(name = 'x', eval = '>=1.2.3.4')`, `1:20: module: eval = ">=1.2.3.4": version "1.2.3.4" has more than three numbers`},
		{`module(name = 'x', trusted_builders = 'y')`, `1:20: module: trusted_builders: got string, want list of strings`},
		{`module(name = 'x', trusted_builders = ['y', 2])`, `1:20: module: trusted_builders[1]: got int, want string`},
		{`module(name = 'x', trusted_builders = ['ed25519:AAAA'])`, "1:20: module: trusted_builders[0] = \"ed25519:AAAA\": want a public key, ed25519:BASE64, as `ev doctor --remote_sign=FILE` prints it"},
		{`module(name = 'x', trusted_builders = [''])`, `1:20: module: trusted_builders[0] is empty`},
		{`module(name = 'x', trusted_builders = ['y', 'y'])`, `1:20: module: trusted_builders: "y" is given twice`},
		{`dependency(name = 'd')`, `1:1: dependency: the argument path is missing`},
		{`dependency(path = '../d')`, `1:1: dependency: the argument name is missing`},
		{`dependency(name = 'd', pth = '../d')`, `1:24: dependency: unexpected argument "pth" (did you mean "path"?)`},
		{`dependency(name = 'eval', path = '../d')`, `1:12: dependency: the name "eval" is reserved for the rules in the binary`},
		{"dependency(name = 'd', path = 'd')\ndependency(name = 'd', path = 'd')", `2:12: dependency: "d" is declared twice`},
		{"dependency(name = 'd', path = 'd')\nmodule(name = 'd')", `1:24: dependency: "d" is the name of this module`},
		{`dependency(name = 'd', path = '')`, `1:24: dependency: path = "" is not a path`},
		{`dependency(name = 'd', path = 'a\x00b')`, `1:24: dependency: path = "a\x00b" is not a path`},
		{`dependency(name = 'd', path = '/d')`, `1:24: dependency: path = "/d": want a path relative to the root of this workspace`},
		{`dependency(name = 'd', path = '.')`, `1:24: dependency: "d": path = ".": this is the workspace itself`},
		{`dependency(name = 'd', path = 'nope')`, `1:24: dependency: "d": path = "nope": no such folder`},
		{`dependency(name = 'd', path = 'plain')`, `1:24: dependency: "d": path = "plain": the folder has no MODULE.star`},
		{`dependency(name = 'd', path = 'file')`, `1:24: dependency: "d": path = "file": not a folder`},
		{`dependency(name = 'd', path = 'odd')`, `1:24: dependency: "d": path = "odd": ROOT/odd/MODULE.star is a directory, a file is meant`},
		{`modul(name = 'x')`, `1:1: undefined: modul (did you mean "module"?)`},
		{`glob(["*"])`, `1:1: undefined: glob`},
		{`load("//x.star", "y")`, `1:1: load is not available in MODULE.star`},
		{`def f():` + "\n    load('x', 'y')", `2:5: load is not available in MODULE.star`},
		{`module(name = 'x'`, `1:18: got end of file, want ')'`},
		{"x = 1\nx = 2", `2:1: cannot reassign global x declared at MODULE.star:1:1`},
		{"x = 1\n\ny = 1 // 0", `3:7: floored division by zero`},
		{"x = [a for a in range(1000000)]", `1:8: Starlark computation cancelled: more than 100000 steps`},
		{`[dependency(name = n, path = n) for n in ["nope"]]`, `1:23: dependency: "nope": path = "nope": no such folder`},
		{"\xff", `1:1: unexpected input character '�'`},
		{strings.Repeat("(", maxModuleBytes), `1:78: excessive nesting`},
		{long, `read MODULE.star: more than 64 KiB`},
	} {
		name := c.text[:min(len(c.text), 40)]
		dir := write(t, "-- plain/x --\n-- file --\n-- odd/MODULE.star/x --\n-- d/MODULE.star --\n")
		put(t, filepath.Join(dir, ModuleFile), c.text)
		w, err := Open(dir, Options{Version: "0.2.1"})
		if w != nil {
			w.Close()
		}
		want := c.err
		if want[0] < 'a' {
			want = ModuleFile + ":" + want
		}
		if got := message(err, dir); got != want {
			t.Errorf("%s\n got %s\nwant %s", name, got, want)
		}
	}
}

func TestOpenErrors(t *testing.T) {
	dir := write(t, "-- a/x --\n-- d/MODULE.star/x --\n-- l/MODULE.star --\n-> ../m\n-- m --\n")
	for in, want := range map[string]string{
		"a": "open workspace ROOT/a: no MODULE.star in it",
		"d": "open workspace ROOT/d: ROOT/d/MODULE.star is a directory, a file is meant",
		"l": `read MODULE.star: is a symbolic link to "../m", which leaves the workspace`,
	} {
		if _, err := Open(filepath.Join(dir, in), Options{}); message(err, dir) != want {
			t.Errorf("got %s, want %s", message(err, dir), want)
		}
	}
	put(t, filepath.Join(dir, "v", ModuleFile), `module(name = "x", eval = ">=0.1")`)
	if _, err := Open(filepath.Join(dir, "v"), Options{Version: "devel"}); err == nil {
		t.Error("a constraint and a version that can't be compared")
	}
}

func TestSatisfies(t *testing.T) {
	for _, c := range []struct {
		version, constraint string
		want                bool
	}{
		{"0.1.0", ">=0.1", true},
		{"0.1", ">=0.1.0", true},
		{"0.1.9", "<0.2", true},
		{"0.2.0", "<0.2", false},
		{"0.2.0-dev", ">=0.2", true},
		{"0.10", ">0.9", true},
		{"1", "<=1.0.0", true},
		{"1.0.1", "==1.0.1", true},
		{"1.0.1+meta", "==1.0.1", true},
		{"1.0.1", "> 1.0.1", false},
		{"0.2.5", ">=0.1,<0.2", false},
		{"0.1.5", " >=0.1 , < 0.2 ", true},
	} {
		v, err := parseVersion(c.version)
		must(t, err)
		if got, err := satisfies(v, c.constraint); err != nil || got != c.want {
			t.Errorf("%s %s: %v, %v", c.version, c.constraint, got, err)
		}
	}
	for _, bad := range []string{"", ".", "1.", "-1", "+1", "v1", "1.2.3.4", "1e3", "99999999999"} {
		if v, err := parseVersion(bad); err == nil {
			t.Errorf("parseVersion(%q) = %v", bad, v)
		}
	}
}

func FuzzModule(f *testing.F) {
	for _, s := range []string{
		`module(name = "x", eval = ">=0.1", digest = "blake3", trusted_builders = ["ed25519:LXEWQrcmsEQBYnyp+6wy9chTD7GQPMTbAiWHF5IaSIE="])`,
		`dependency(name = "s", path = "../s")`,
		"[module(**k) for k in [{}]]", "load('a', 'b')", "x = module\nx(name='a')", "print(module, dependency)",
		"sorted([1], key = module)", "\xff\x00",
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		// A fuzzer finds "a" * 1000000000 soon; that is only slow.
		if len(s) > 2000 || strings.ContainsAny(s, "*%<") || strings.Contains(s, "range") {
			t.Skip()
		}
		m, err := parseModule([]byte(s), "0.1")
		if err != nil {
			if !strings.HasPrefix(err.Error(), ModuleFile+":") {
				t.Errorf("an error without its place: %v", err)
			}
			return
		}
		for _, d := range m.module.Dependencies {
			if !moduleName.MatchString(d.Name) || d.Path == "" {
				t.Errorf("accepted %+v", d)
			}
		}
	})
}
