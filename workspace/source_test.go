package workspace

import (
	"errors"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

const sourceTree = `
-- w/MODULE.star --
dependency(name = "dep", path = "../dep")
module(name = "me")
-- w/a/SKILL.md --
skill
-- w/a/sub/x --
x
-- w/up.md --
-> ../secret
-- w/rel.md --
-> a/../a/SKILL.md
-- w/chain.md --
-> rel.md
-- w/abs.md --
-> /etc/passwd
-- w/gone.md --
-> a/nothing
-- w/loop --
-> loop
-- w/dir --
-> a
-- w/outdir --
-> ../dep
-- w/todir.md --
-> a
-- secret --
secret
-- dep/MODULE.star --
-- dep/p.md --
dep
`

// sources makes sourceTree with a fifo and a socket.
func sources(t *testing.T) string {
	t.Helper()
	dir := write(t, sourceTree)
	must(t, syscall.Mkfifo(filepath.Join(dir, "w/fifo"), 0o666))
	must(t, os.Symlink("fifo", filepath.Join(dir, "w/tofifo")))
	t.Chdir(filepath.Join(dir, "w")) // the path of a socket has 104 bytes
	l, err := net.Listen("unix", "socket")
	must(t, err)
	t.Cleanup(func() { l.Close() })
	return dir
}

func TestReadFile(t *testing.T) {
	dir := sources(t)
	w := open(t, filepath.Join(dir, "w"), Options{})
	for _, c := range []struct{ repo, rel, want, err string }{
		{"", "a/SKILL.md", "skill\n", ""},
		{"me", "a/SKILL.md", "skill\n", ""},
		{"dep", "p.md", "dep\n", ""},
		{"", "rel.md", "skill\n", ""},
		{"", "chain.md", "skill\n", ""},
		{"", "dir/SKILL.md", "skill\n", ""},
		{"", "dir/sub/x", "x\n", ""},
		{"", "", "", "//: is a directory, a file is meant"},
		{"", "a", "", "a: is a directory, a file is meant"},
		{"", "todir.md", "", "todir.md: is a directory, a file is meant"},
		{"", "a/SKIL.md", "", `a/SKIL.md: does not exist (did you mean "SKILL.md"?)`},
		{"", "a/zzzzzz", "", `a/zzzzzz: does not exist`},
		{"", "a/sbu/x", "", `a/sbu/x: its folder a/sbu does not exist (did you mean "sub"?)`},
		{"dep", "q.md", "", `@dep//q.md: does not exist (did you mean "p.md"?)`},
		{"", "a/SKILL.md/x", "", `a/SKILL.md/x: a/SKILL.md is a file, not a folder`},
		{"", "../secret", "", `../secret: the path leaves the workspace by ".."`},
		{"", "a/../../secret", "", `a/../../secret: the path leaves the workspace by ".."`},
		{"", "./a/SKILL.md", "", `./a/SKILL.md: not a clean path`},
		{"", "a//SKILL.md", "", `a//SKILL.md: not a clean path`},
		{"", "/etc/passwd", "", `/etc/passwd: an absolute path, want one below the root`},
		{"", "a\x00b", "", `"a\x00b": the name has a NUL byte`},
		{"", "a\xff", "", `"a\xff": the name is not valid UTF-8`},
		{"", "up.md", "", `up.md: is a symbolic link to "../secret", which leaves the workspace`},
		{"", "abs.md", "", `abs.md: is a symbolic link to "/etc/passwd", an absolute path; a link of a workspace must be relative and stay in it`},
		{"", "outdir/p.md", "", `outdir/p.md: its folder outdir is a symbolic link to "../dep", which leaves the workspace`},
		{"", "gone.md", "", `gone.md: is a symbolic link to "a/nothing", which does not exist`},
		{"", "loop", "", `loop: is a symbolic link to "loop", which leads round in a circle`},
		{"", "fifo", "", `fifo: is a fifo, a file is meant`},
		{"", "tofifo", "", `tofifo: is a fifo, a file is meant`},
		{"", "socket", "", `socket: is a socket, a file is meant`},
		{"", strings.Repeat("x", 300), "", strings.Repeat("x", 300) + ": file name too long"},
	} {
		got, err := w.ReadFile(c.repo, c.rel)
		if c.err != "" {
			c.err = "read " + c.err
		}
		if string(got) != c.want || message(err, dir) != c.err {
			t.Errorf("ReadFile(%q, %q)\n got %q, %s\nwant %q, %s", c.repo, c.rel, got, message(err, dir), c.want, c.err)
		}
		d, derr := w.Digest(c.repo, c.rel)
		if (derr == nil) != (err == nil) {
			t.Errorf("Digest(%q, %q): %v, but ReadFile: %v", c.repo, c.rel, derr, err)
		}
		if derr == nil && d != w.Module().Digest.Sum(got) {
			t.Errorf("Digest(%q, %q) is not of what ReadFile gives", c.repo, c.rel)
		}
	}
	if _, err := w.ReadFile("", "a/nope"); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%v is not fs.ErrNotExist", err)
	}
}

// TestEscapeControl shows that what TestReadFile refuses can be read without
// this package, so that the refusals are not for another reason.
func TestEscapeControl(t *testing.T) {
	dir := sources(t)
	for _, name := range []string{"up.md", "abs.md", "outdir/p.md", "../secret"} {
		if _, err := os.ReadFile(filepath.Join(dir, "w", name)); err != nil {
			t.Error(err)
		}
	}
}

// TestFolderReplaced swaps a folder for a link that leaves the root after the
// folder was found to be fine.
func TestFolderReplaced(t *testing.T) {
	dir := sources(t)
	w := open(t, filepath.Join(dir, "w"), Options{})
	if _, err := w.Digest("", "a/SKILL.md"); err != nil {
		t.Fatal(err)
	}
	must(t, os.Rename(filepath.Join(dir, "w/a"), filepath.Join(dir, "moved")))
	must(t, os.Symlink("../moved", filepath.Join(dir, "w/a")))
	if b, err := w.ReadFile("", "a/SKILL.md"); err == nil {
		t.Errorf("read %q from outside the root", b)
	}
}

func TestReadBig(t *testing.T) {
	dir := write(t, "-- MODULE.star --\n")
	text := strings.Repeat("0123456789abcde\n", 200_000)
	for _, n := range []int{0, 1, 64<<10 - 1, 64 << 10, 64<<10 + 1, len(text)} {
		put(t, filepath.Join(dir, "big"), text[:n])
		w := open(t, dir, Options{})
		got, err := w.ReadFile("", "big")
		if err != nil || string(got) != text[:n] {
			t.Errorf("%d bytes: got %d, %v", n, len(got), err)
		}
		if d, err := w.Digest("", "big"); err != nil || d != w.Module().Digest.Sum([]byte(text[:n])) {
			t.Errorf("%d bytes: digest %v, %v", n, d, err)
		}
	}
}

func TestUnreadable(t *testing.T) {
	dir := sources(t)
	must(t, os.Chmod(filepath.Dir(dir), 0o755)) // testing makes it for us only
	must(t, os.Chmod(filepath.Join(dir, "w/a/SKILL.md"), 0))
	must(t, os.Chmod(filepath.Join(dir, "w/a/sub"), 0))
	t.Cleanup(func() { os.Chmod(filepath.Join(dir, "w/a/sub"), 0o777) })
	w := open(t, filepath.Join(dir, "w"), Options{})
	unprivileged(t, func() {
		for rel, want := range map[string]string{
			"a/SKILL.md": "a/SKILL.md: permission denied",
			"a/sub/x":    "a/sub/x: permission denied",
		} {
			if _, err := w.ReadFile("", rel); err == nil || err.Error() != "read "+want {
				t.Errorf("ReadFile: got %v, want read %s", err, want)
			}
			if _, err := w.Digest("", rel); err == nil || err.Error() != "digest "+want {
				t.Errorf("Digest: got %v, want digest %s", err, want)
			}
		}
		if _, err := w.Packages("", ""); err == nil || err.Error() != "list packages a/sub: permission denied" {
			t.Errorf("Packages: %v", err)
		}
		if _, err := w.Glob("", "a", []string{"**"}, nil); err == nil || err.Error() != "glob a/sub: permission denied" {
			t.Errorf("Glob: %v", err)
		}
	})
}

func BenchmarkReadFile(b *testing.B) {
	dir := many(b, 10_000)
	w := open(b, dir, Options{})
	for b.Loop() {
		for _, rel := range manyNames(10_000) {
			if _, err := w.ReadFile("", rel); err != nil {
				b.Fatal(err)
			}
		}
	}
}

func TestExecutable(t *testing.T) {
	dir := sources(t)
	must(t, os.Chmod(filepath.Join(dir, "w/a/SKILL.md"), 0o744))
	must(t, os.Chmod(filepath.Join(dir, "dep/p.md"), 0o655)) // but not by its owner
	w := open(t, filepath.Join(dir, "w"), Options{})
	for _, c := range []struct {
		repo, rel string
		want      bool
		err       string
	}{
		{"", "a/SKILL.md", true, ""},
		{"", "chain.md", true, ""},
		{"", "a/sub/x", false, ""},
		{"dep", "p.md", false, ""},
		{"", "a", false, "is a directory, a file is meant"},
		{"", "fifo", false, "is a fifo, a file is meant"},
		{"", "up.md", false, "which leaves the workspace"},
		{"", "a/none", false, "does not exist"},
		{"", "../secret", false, ""},
	} {
		got, err := w.Executable(c.repo, c.rel)
		if got != c.want || (err != nil) != (c.err != "" || strings.HasPrefix(c.rel, "..")) || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s %s: %v, %v", c.repo, c.rel, got, err)
		}
	}
}
