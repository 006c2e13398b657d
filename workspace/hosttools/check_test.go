package hosttools

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
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
		{"a link of the folder", func(_, d string) { os.Remove(d + "/l"); os.Symlink("sub/b", d+"/l") }, false},
	} {
		os.RemoveAll(dir)
		file := write("file", "one", 0o644)
		write("folder/sub/a", "a", 0o644)
		folder := filepath.Join(dir, "folder")
		if err := os.Symlink("sub/a", folder+"/l"); err != nil {
			t.Fatal(err)
		}
		r := New(Options{})
		a, err := r.Data(file)
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
