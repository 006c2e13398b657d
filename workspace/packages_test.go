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
)

const packageTree = `
-- w/MODULE.star --
dependency(name = "dep", path = "../dep")
module(name = "me")
-- w/BUILD.star --
-- w/a/BUILD.star --
-- w/a/b/c/BUILD.star --
-- w/a-b/BUILD.star --
-- w/plain/x --
-- w/odd/BUILD.star/x --
-- w/.git/BUILD.star --
-- w/.github/evals/BUILD.star --
-- w/eval-out/BUILD.star --
-- w/deep/eval-out/BUILD.star --
-- w/nested/MODULE.star --
-- w/nested/BUILD.star --
-- w/nested/x/BUILD.star --
-- w/link --
-> a
-- w/cycle/up --
-> ..
-- w/file --
-- dep/MODULE.star --
-- dep/p/BUILD.star --
`

func TestPackages(t *testing.T) {
	dir := write(t, packageTree)
	w := open(t, filepath.Join(dir, "w"), Options{})
	for _, c := range []struct{ repo, prefix, want, err string }{
		{"", "", " a a-b a/b/c deep/eval-out odd", ""},
		{"me", "a", "a a/b/c", ""},
		{"", "a/b", "a/b/c", ""},
		{"", "plain", "", ""},
		{"dep", "", "p", ""},
		{"", "plian", "", `list packages plian: plian does not exist (did you mean "plain"?)`},
		{"", "a/x/y", "", `list packages a/x/y: a/x does not exist (did you mean "b"?)`},
		{"", "file", "", `list packages file: file is not a folder`},
		{"", "link", "", `list packages link: link is a symbolic link, which is not followed to packages`},
		{"", ".git", "", `list packages .git: .git begins with a dot, so it holds no packages`},
		{"", "eval-out", "", `list packages eval-out: eval-out is where a build writes`},
		{"", "nested/x", "", `list packages nested/x: nested is a workspace of its own (it has a MODULE.star)`},
		{"", "../dep", "", `list packages ../dep: the path leaves the workspace by ".."`},
		{"", "a/", "", `list packages a/: not a clean path`},
		{"", "/a", "", `list packages /a: an absolute path, want one below the root`},
		{"dep", "q", "", `list packages @dep//q: q does not exist (did you mean "p"?)`},
		{"depp", "", "", `find module @depp: no such module (did you mean "dep"?)`},
	} {
		got, err := w.Packages(c.repo, c.prefix)
		if message(err, dir) != c.err || strings.Join(got, " ") != c.want {
			t.Errorf("Packages(%q, %q) = %q, %v; want %q, %s", c.repo, c.prefix, got, message(err, dir), c.want, c.err)
		}
	}
}

func TestHasPackage(t *testing.T) {
	dir := write(t, packageTree)
	w := open(t, filepath.Join(dir, "w"), Options{})
	all, err := w.Packages("", "")
	must(t, err)
	want, got := map[string]bool{}, map[string]bool{}
	for _, p := range all {
		want[p] = true
	}
	for _, p := range append(all, "plain", "nope", "a/nope", ".git", ".github/evals", "eval-out", "nested", "nested/x", "link", "cycle/up", "file", "A") {
		has, err := open(t, filepath.Join(dir, "w"), Options{}).HasPackage("", p)
		must(t, err)
		if has {
			got[p] = true
		}
	}
	if d := cmp.Diff(want, got); d != "" {
		t.Error(d)
	}
	if _, err := w.HasPackage("", "../dep"); err == nil {
		t.Error("HasPackage(../dep): no error")
	}
}

func TestPackagesUnreadable(t *testing.T) {
	dir := write(t, packageTree)
	w := open(t, filepath.Join(dir, "w"), Options{})
	list := w.trees[""].readDir
	w.trees[""].readDir = func(name string) ([]fs.DirEntry, error) {
		if strings.HasSuffix(name, "/a/b") {
			return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrPermission}
		}
		return list(name)
	}
	const want = "list packages a/b: permission denied"
	if _, err := w.Packages("", ""); message(err, dir) != want || !errors.Is(err, fs.ErrPermission) {
		t.Errorf("got %v, want %s", err, want)
	}
	if _, err := w.HasPackage("", "a/b/c"); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("HasPackage: %v", err)
	}
	if _, err := w.Glob("", "a", []string{"**"}, nil); !errors.Is(err, fs.ErrPermission) {
		t.Errorf("Glob: %v", err)
	}
}

func TestPackagesOddName(t *testing.T) {
	dir := write(t, packageTree)
	if os.Mkdir(filepath.Join(dir, "w/b\xff"), 0o777) != nil {
		lacking(t, "a file system that takes names that are not UTF-8")
	}
	if _, err := open(t, filepath.Join(dir, "w"), Options{}).Packages("", ""); err != nil {
		t.Errorf("a folder that is no package: %v", err)
	}
	put(t, filepath.Join(dir, "w/b\xff/BUILD.star"), "")
	_, err := open(t, filepath.Join(dir, "w"), Options{}).Packages("", "")
	if got, want := message(err, dir), `list packages "b\xff": the name is not valid UTF-8`; got != want {
		t.Errorf("got %s, want %s", got, want)
	}
}

func BenchmarkPackages(b *testing.B) {
	dir := b.TempDir()
	put(b, filepath.Join(dir, ModuleFile), "")
	for i := range 100 {
		for j := range 100 {
			put(b, filepath.Join(dir, fmt.Sprintf("group%02d/pkg%02d/BUILD.star", i, j)), "")
		}
	}
	for b.Loop() {
		w := open(b, dir, Options{})
		got, err := w.Packages("", "")
		if err != nil || len(got) != 10_000 {
			b.Fatal(len(got), err)
		}
	}
}

func BenchmarkGlob(b *testing.B) {
	dir := b.TempDir()
	put(b, filepath.Join(dir, ModuleFile), "")
	put(b, filepath.Join(dir, BuildFile), "")
	for i := range 10_000 {
		put(b, filepath.Join(dir, fmt.Sprintf("captures/control-%04d.jsonl", i)), "")
	}
	run := func(b *testing.B, w *Workspace) {
		got, err := w.Glob("", "", []string{"captures/*.jsonl"}, []string{"**/x*"})
		if err != nil || len(got) != 10_000 {
			b.Fatal(len(got), err)
		}
	}
	b.Run("first", func(b *testing.B) {
		for b.Loop() {
			run(b, open(b, dir, Options{}))
		}
	})
	b.Run("again", func(b *testing.B) {
		w := open(b, dir, Options{})
		for b.Loop() {
			run(b, w)
		}
	})
}

// lacking skips a test for what this machine doesn't have; with EVAL_STRICT it
// fails.
func lacking(t *testing.T, what string) {
	t.Helper()
	if os.Getenv("EVAL_STRICT") != "" {
		t.Fatalf("EVAL_STRICT is set, and there is no %s", what)
	}
	t.Skipf("there is no %s", what)
}
