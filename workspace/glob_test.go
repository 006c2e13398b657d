package workspace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

const globTree = `
-- MODULE.star --
-- BUILD.star --
-- eval-out/p/result.md --
-- outside.md --
-- p/BUILD.star --
-- p/a.md --
-- p/b.md --
-- p/c.txt --
-- p/é.md --
-- p/a-b.md --
-- p/x[1].md --
-- p/.hidden --
-- p/.dir/in.md --
-- p/.dir/.deep --
-- p/d/a.md --
-- p/d/e/a.md --
-- p/d/e/f/z.txt --
-- p/d/.h.md --
-- p/eval-out/mine.md --
-- p/sub/BUILD.star --
-- p/sub/no.md --
-- p/sub/deep/no.md --
-- p/nested/MODULE.star --
-- p/nested/no.md --
-- p/link.md --
-> ../outside.md
-- p/linkdir --
-> d
-- q/BUILD.star --
-- q/gone.md --
-> nothing.md
-- q/out.md --
-> ../../etc/passwd
-- q/abs.md --
-> /etc/passwd
-- q/loop.md --
-> loop.md
-- q/fine.txt --
`

func TestGlob(t *testing.T) {
	w := open(t, write(t, globTree), Options{})
	for _, c := range []struct{ pkg, include, exclude, want string }{
		{"p", "a.md", "", "a.md"},
		{"p", "zz.md", "", ""},
		{"p", "", "", ""},
		{"p", "*.md", "", "a-b.md a.md b.md link.md x[1].md é.md"},
		{"p", "*.md a.md", "", "a-b.md a.md b.md link.md x[1].md é.md"},
		{"p", "?.md", "", "a.md b.md é.md"},
		{"p", "?md", "", ""},
		{"p", "[ab].md", "", "a.md b.md"},
		{"p", "[a-b].*", "", "a.md b.md"},
		{"p", "[b-z]*", "", "b.md c.txt link.md x[1].md"},
		{"p", "x[[]1].md", "", "x[1].md"},
		{"p", "x[1].md", "", ""},
		{"p", "[a-]*", "", "a-b.md a.md"},
		{"p", "a*", "", "a-b.md a.md"},
		{"p", "*a*", "", "a-b.md a.md"},
		{"p", "*-*.*", "", "a-b.md"},
		{"p", "*", "*.md", "c.txt"},
		{"p", "*.md", "[a-z]*", "é.md"},
		{"p", "**", "", "a-b.md a.md b.md c.txt d/a.md d/e/a.md d/e/f/z.txt eval-out/mine.md link.md x[1].md é.md"},
		{"p", "**/*.md", "", "a-b.md a.md b.md d/a.md d/e/a.md eval-out/mine.md link.md x[1].md é.md"},
		{"p", "**/a.md", "", "a.md d/a.md d/e/a.md"},
		{"p", "**/**/a.md", "", "a.md d/a.md d/e/a.md"},
		{"p", "d/**", "", "d/a.md d/e/a.md d/e/f/z.txt"},
		{"p", "d/**/a.md", "", "d/a.md d/e/a.md"},
		{"p", "d/*/a.md", "", "d/e/a.md"},
		{"p", "*/*/*/z.txt", "", "d/e/f/z.txt"},
		{"p", "**/e/**/*.txt", "", "d/e/f/z.txt"},
		{"p", "**/[ef]/*", "", "d/e/a.md d/e/f/z.txt"},
		{"p", "a.md/**", "", ""},
		{"p", "d", "", ""},
		{"p", "**", "**", ""},
		{"p", "**", "d/**", "a-b.md a.md b.md c.txt eval-out/mine.md link.md x[1].md é.md"},
		{"p", "d/**", "**/e/**", "d/a.md"},
		{"p", "d/**", "d/*", "d/e/a.md d/e/f/z.txt"},
		{"p", ".*", "", ".hidden"},
		{"p", ".dir/*", "", ".dir/in.md"},
		{"p", ".dir/.*", "", ".dir/.deep"},
		{"p", ".*/**", "", ".dir/in.md"},
		{"p", "**/.*", "", ".hidden d/.h.md"},
		{"p", "**/.*", "**", ".hidden d/.h.md"},
		{"p", "[.]hidden", "", ""},
		{"p", "sub/*.md", "", ""},
		{"p", "nested/*.md", "", ""},
		{"p", "linkdir/*", "", ""},
		{"p", "BUILD.star", "", ""},
		{"", "*", "", "MODULE.star outside.md"},
		{"", "**/*.md", "", "outside.md"},
		{"", "eval-out/**", "", ""},
		{"q", "*.txt", "", "fine.txt"},
		{"q", "**", "*.md", "fine.txt"},
	} {
		got, err := w.Glob("", c.pkg, strings.Fields(c.include), strings.Fields(c.exclude))
		if err != nil {
			t.Errorf("glob(%s, exclude %s): %v", c.include, c.exclude, err)
			continue
		}
		if d := cmp.Diff(c.want, strings.Join(got, " ")); d != "" {
			t.Errorf("in %q: glob(%s, exclude %s):\n%s", c.pkg, c.include, c.exclude, d)
		}
	}
}

func TestGlobErrors(t *testing.T) {
	dir := write(t, globTree)
	w := open(t, dir, Options{})
	for _, c := range []struct{ pkg, pattern, err string }{
		{"p", "", `glob in p: pattern "": it is empty`},
		{"p", "/a", `glob in p: pattern "/a": an absolute path, want one below the root`},
		{"p", "../a", `glob in p: pattern "../a": the path leaves the workspace by ".."`},
		{"p", "a/../b", `glob in p: pattern "a/../b": the path leaves the workspace by ".."`},
		{"p", "./a", `glob in p: pattern "./a": not a clean path`},
		{"p", "a//b", `glob in p: pattern "a//b": not a clean path`},
		{"p", "a/", `glob in p: pattern "a/": not a clean path`},
		{"p", "a\x00", `glob in p: pattern "a\x00": the name has a NUL byte`},
		{"p", "a\xff", `glob in p: pattern "a\xff": the name is not valid UTF-8`},
		{"p", "[a", `glob in p: pattern "[a": a [ without its ]`},
		{"p", "[]", `glob in p: pattern "[]": the class [] is empty`},
		{"p", "[z-a]", `glob in p: pattern "[z-a]": the range z-a in [z-a] is backwards`},
		{"p", "[!a]", `glob in p: pattern "[!a]": [!a] would negate a class; use exclude`},
		{"p", "a**", `glob in p: pattern "a**": ** stands for whole folders, between slashes`},
		{"p", `a\*`, `glob in p: pattern "a\\*": \ is not an escape; write [*] for a literal *`},
		{"p", strings.Repeat("a/", 63) + "a", fmt.Sprintf(`glob in p: pattern %q: more than 63 segments`, strings.Repeat("a/", 63)+"a")},
		{"q", "gone*", `glob q/gone.md: is a symbolic link to "nothing.md", which does not exist`},
		{"q", "out*", `glob q/out.md: is a symbolic link to "../../etc/passwd", which leaves the workspace`},
		{"q", "abs*", `glob q/abs.md: is a symbolic link to "/etc/passwd", an absolute path; a link of a workspace must be relative and stay in it`},
		{"q", "loop*", `glob q/loop.md: is a symbolic link to "loop.md", which leads round in a circle`},
		{"r", "*", `glob in r: r does not exist (did you mean "p"?)`},
		{"p/linkdir", "*", `glob in p/linkdir: p/linkdir is a symbolic link, which is not followed to packages`},
		{"p/nested", "*", `glob in p/nested: p/nested is a workspace of its own (it has a MODULE.star)`},
	} {
		_, err := w.Glob("", c.pkg, []string{c.pattern}, nil)
		if got := message(err, dir); got != c.err {
			t.Errorf("glob(%q)\n got %s\nwant %s", c.pattern, got, c.err)
		}
		if _, err := w.Glob("", c.pkg, []string{"*.txt"}, []string{c.pattern}); c.pkg == "p" && err == nil {
			t.Errorf("exclude %q: no error", c.pattern)
		}
	}
}

func TestGlobOddNames(t *testing.T) {
	dir := write(t, "-- MODULE.star --\n-- p/BUILD.star --\n-- p/a.md --\n")
	must(t, syscall.Mkfifo(filepath.Join(dir, "p/fifo.md"), 0o666))
	w := open(t, dir, Options{})
	got, err := w.Glob("", "p", []string{"*"}, nil)
	if err != nil || !slices.Equal(got, []string{"a.md"}) {
		t.Errorf("with a fifo: %q, %v", got, err)
	}
	if os.WriteFile(filepath.Join(dir, "p/b\xff.md"), nil, 0o666) != nil {
		lacking(t, "a file system that takes names that are not UTF-8")
	}
	w = open(t, dir, Options{})
	if _, err := w.Glob("", "p", []string{"*.md"}, nil); message(err, dir) != `glob "p/b\xff.md": the name is not valid UTF-8` {
		t.Error(err)
	}
	if got, err := w.Glob("", "p", []string{"a*"}, nil); err != nil || !slices.Equal(got, []string{"a.md"}) {
		t.Errorf("a name that doesn't match: %q, %v", got, err)
	}
}

// TestMatch holds segments against a matcher that tries everything.
func TestMatch(t *testing.T) {
	var slow func(p, s string) bool
	slow = func(p, s string) bool {
		switch {
		case p == "":
			return s == ""
		case p[0] == '*':
			return slow(p[1:], s) || s != "" && slow(p, s[1:])
		case s == "":
			return false
		}
		return (p[0] == '?' || p[0] == s[0]) && slow(p[1:], s[1:])
	}
	words := func(alphabet string, n int) []string {
		out, last := []string{}, []string{""}
		for range n {
			var next []string
			for _, w := range last {
				for _, c := range alphabet {
					next = append(next, w+string(c))
				}
			}
			out, last = append(out, next...), next
		}
		return out
	}
	names := words("ab", 5)
	for _, p := range words("ab*?", 5) {
		if strings.Contains(p, "**") {
			continue
		}
		seg, err := parseSegment(p)
		must(t, err)
		for _, s := range names {
			if got := seg.match(s); got != slow(p, s) {
				t.Errorf("%s matches %s: %v", p, s, got)
			}
		}
	}
}

func FuzzGlob(f *testing.F) {
	for _, s := range []string{"*", "**", "**/*.md", "[a-z]?", "../x", "/x", "a/../../b", "[", "[^a]", `\`, ".*/**", "\xff", "d/**/a.md"} {
		f.Add(s, "**/e/*")
	}
	w := open(f, write(f, globTree), Options{})
	f.Fuzz(func(t *testing.T, include, exclude string) {
		got, err := w.Glob("", "p", []string{include}, []string{exclude})
		if err != nil {
			return
		}
		if !slices.IsSorted(got) || len(slices.Compact(slices.Clone(got))) != len(got) {
			t.Errorf("not sorted and unique: %q", got)
		}
		for _, name := range got {
			if checkPath(name) != nil || strings.HasPrefix(name, "sub/") || strings.HasPrefix(name, "nested/") || strings.HasSuffix(name, BuildFile) {
				t.Errorf("glob(%q) has %q", include, name)
			}
			if _, err := w.ReadFile("", "p/"+name); err != nil {
				t.Error(err)
			}
		}
	})
}
