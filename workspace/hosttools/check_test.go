package hosttools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// TestCheck: what changed since its digest was taken is noticed, also with its
// size and time as before.
func TestCheck(t *testing.T) {
	dir := t.TempDir()
	write := func(name, content string, mode os.FileMode) string {
		t.Helper()
		p := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(p, mode); err != nil {
			t.Fatal(err)
		}
		return p
	}
	for _, tt := range []struct {
		name   string
		change func(file, folder string)
		ok     bool
	}{
		{"nothing", func(string, string) {}, true},
		{"touched", func(f, _ string) { os.Chtimes(f, time.Now(), time.Now()) }, true},
		{"bytes, size and time kept", func(f, _ string) {
			fi, _ := os.Stat(f)
			write("file", "two", 0o644)
			os.Chtimes(f, fi.ModTime(), fi.ModTime())
		}, false},
		{"mode", func(f, _ string) { os.Chmod(f, 0o755) }, false},
		{"gone", func(f, _ string) { os.Remove(f) }, false},
		{"a link in its place", func(f, _ string) { os.Remove(f); os.Symlink("/etc/passwd", f) }, false},
		{"in the folder", func(_, d string) { write("folder/sub/a", "other", 0o644) }, false},
		{"new in the folder", func(_, d string) { write("folder/sub/b", "", 0o644) }, false},
		{"the link that leads to the file", func(_, d string) { os.Remove(d + "/../link"); os.Symlink("other", d+"/../link") }, false},
		{"a link of the folder", func(_, d string) { os.Remove(d + "/l"); os.Symlink("sub/b", d+"/l") }, false},
	} {
		os.RemoveAll(dir)
		file := write("file", "one", 0o644)
		write("folder/sub/a", "a", 0o644)
		folder := filepath.Join(dir, "folder")
		if err := os.Symlink("sub/a", folder+"/l"); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink("file", filepath.Join(dir, "link")); err != nil {
			t.Fatal(err)
		}
		r := New(Options{})
		a, err := r.Data(filepath.Join(dir, "link"))
		if err != nil {
			t.Fatal(err)
		}
		b, err := r.Data(folder)
		if err != nil {
			t.Fatal(err)
		}
		all, err := Merge(a, b)
		if err != nil {
			t.Fatal(err)
		}
		tt.change(file, folder)
		if err := r.Check(all); (err == nil) != tt.ok || err != nil && !errors.Is(err, errChanged) && !strings.Contains(err.Error(), dir) {
			t.Errorf("%s: %v", tt.name, err)
		}
	}
}

// TestReadable: what only root can read is no data for a sealed process.
func TestReadable(t *testing.T) {
	dir := t.TempDir()
	file := filepath.Join(dir, "secret")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	r := New(Options{})
	r.host.others = true
	if _, err := r.Data(file); err == nil || !strings.Contains(err.Error(), "mode 0600: a sealed process is not root and could not read it") {
		t.Errorf("%v", err)
	}
	if _, err := r.Data(dir); err == nil || !strings.Contains(err.Error(), "secret: mode 0600") {
		t.Errorf("%v", err)
	}
	r = New(Options{})
	r.host.others = false
	if _, err := r.Data(file); err != nil {
		t.Errorf("as its owner: %v", err)
	}
}

// TestNow: what is at a mount's place, of the mount's kind.
func TestNow(t *testing.T) {
	w := newWorld(t)
	file, exec := w.write("file", "one", 0o644), w.write("exec", "one", 0o755)
	w.write("folder/sub/a", "a", 0o644)
	link := w.link("link", "file")
	data, err := w.Data(w.path("folder"))
	w.check(err)
	folder := data[len(data)-1]
	hollow := cas.HollowTree(folder.Digest, folder.Tree.Message())
	for _, c := range []struct {
		name string
		m    graph.Mount
		want graph.Mount // digest, executable, link; a zero one means an error
		err  string
	}{
		{"file", graph.Mount{Source: file}, graph.Mount{Digest: digest("one")}, ""},
		{"executable", graph.Mount{Source: exec}, graph.Mount{Digest: digest("one"), Executable: true}, ""},
		{"folder", graph.Mount{Source: folder.Source, Tree: hollow}, graph.Mount{Digest: folder.Digest}, ""},
		{"link", graph.Mount{Path: link, Link: "other"}, graph.Mount{Link: "file"}, ""},
		{"a folder for a file", graph.Mount{Source: folder.Source}, graph.Mount{}, "is no longer a file"},
		{"a file for a folder", graph.Mount{Source: file, Tree: hollow}, graph.Mount{}, "is no longer a folder"},
		{"a link for a file", graph.Mount{Source: link}, graph.Mount{}, "is no longer a file"},
		{"a file for a link", graph.Mount{Path: file, Link: "x"}, graph.Mount{}, "invalid argument"},
		{"nothing", graph.Mount{Source: w.path("none")}, graph.Mount{}, "no such file or directory"},
	} {
		now, err := w.Now(c.m)
		if c.err != "" {
			if err == nil || err.Error() != c.err {
				t.Errorf("%s: %v, want %s", c.name, err, c.err)
			}
		} else if err != nil || (now.Digest != c.want.Digest || now.Executable != c.want.Executable || now.Link != c.want.Link) {
			t.Errorf("%s: %+v, %v", c.name, now, err)
		}
	}
}
