package collect

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
)

func TestCollect(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "b.txt", "bee")
	write(t, dir, "a/run.sh", "#!/bin/sh\n")
	must(t, os.Chmod(filepath.Join(dir, "a/run.sh"), 0o710))
	write(t, dir, "a.d/z", "")
	write(t, dir, "a.d/sub/y", "why")
	link(t, dir, "sub/./y", "a.d/link")
	must(t, os.MkdirAll(filepath.Join(dir, "a.d/sub/none"), 0o755))
	must(t, os.Mkdir(filepath.Join(dir, "empty"), 0o755))
	write(t, dir, "undeclared", "x")
	write(t, dir, "a/undeclared", "x")
	got := collected(t, dir, plain,
		Output{"empty", true}, Output{"b.txt", false}, Output{"a.d", true}, Output{"a/run.sh", false},
		Output{"absent", false}, Output{"absent.d", true}, Output{"a/absent", false}, Output{"b.txt/x", false}, Output{"b.txt", false})
	same(t, "result", got, Result{
		Files: []File{
			{Path: "a.d/link", Link: "sub/y"},
			{Path: "a.d/sub/none", Folder: true},
			{Path: "a.d/sub/y", Digest: sum("why")},
			{Path: "a.d/z", Digest: sum("")},
			{Path: "a/run.sh", Digest: sum("#!/bin/sh\n"), Executable: true},
			{Path: "b.txt", Digest: sum("bee")},
			{Path: "empty", Folder: true},
		},
		Missing: []string{"a/absent", "absent", "absent.d", "b.txt/x"},
	})
}

func TestOverlap(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/x", "ex")
	got := collected(t, dir, plain, Output{"d", true}, Output{"d/x", false})
	same(t, "result", got, Result{Files: []File{{Path: "d/x", Digest: sum("ex")}}})
}

// TestOutside is item 68 of the catalogue. The secret is really reachable by
// each of these paths, so that the test can't pass emptily.
func TestOutside(t *testing.T) {
	top := t.TempDir()
	write(t, top, "secret", "s3cret")
	write(t, top, "outside/secret", "s3cret")
	dir := filepath.Join(top, "work")
	write(t, dir, "real/file", "fine")
	link(t, dir, "../secret", "up")
	link(t, dir, filepath.Join(top, "secret"), "abs")
	link(t, dir, "../outside", "way")
	link(t, dir, "real/file", "inner")
	link(t, dir, "real", "innerway")
	link(t, dir, "../outside", "folder")
	want := map[string]string{
		"../secret": Name, "real/../../secret": Name, filepath.Join(top, "secret"): Name, "": Name, ".": Name, "real/": Name, "real//file": Name, "./real/file": Name,
		"up": Link, "abs": Link, "way/secret": Link, "inner": Link, "innerway/file": Link, "folder": Link,
	}
	var outs []Output
	for p := range want {
		if _, err := os.Stat(filepath.Join(dir, p)); err != nil && !filepath.IsAbs(p) {
			t.Errorf("control: %v", err)
		}
		outs = append(outs, Output{p, p == "folder"})
	}
	got := collected(t, dir, plain, outs...)
	same(t, "rejected", codes(got), want)
	if got.Files != nil || got.Missing != nil {
		t.Errorf("taken: %v, missing: %v", got.Files, got.Missing)
	}
}

// TestTypes is item 69: it would hang if a FIFO were opened to wait.
func TestTypes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "file", "x")
	write(t, dir, "all/file", "x")
	want := map[string]string{"file": Type, "all": Type}
	outs := []Output{{"file", true}, {"all", false}, {"in", true}}
	for name, kind := range map[string]uint32{"fifo": unix.S_IFIFO, "sock": unix.S_IFSOCK, "dev": unix.S_IFCHR} {
		for _, p := range []string{name, "in/" + name} {
			must(t, os.MkdirAll(filepath.Join(dir, "in"), 0o755))
			err := mknod(filepath.Join(dir, p), kind|0o666, 1, 3)
			if errors.Is(err, fs.ErrPermission) {
				t.Logf("%s not tested: mknod: %v", p, err)
				continue
			}
			must(t, err)
			want[p] = Type
			outs = append(outs, Output{name, false})
		}
	}
	got := collected(t, dir, plain, outs...)
	same(t, "rejected", codes(got), want)
	same(t, "files", paths(got), []string{"in"})
	same(t, "asked for a folder", codes(collected(t, dir, plain, Output{"fifo", true})), map[string]string{"fifo": Type})
}

// TestUnreadable: the same for root, whom modes don't stop, and for the owner.
func TestUnreadable(t *testing.T) {
	dir := t.TempDir()
	modes := map[string]os.FileMode{"f0": 0, "f-w": 0o222, "f-group": 0o077, "d/f0": 0, "d0/in": 0o644, "d/d0/in": 0o644, "d/list/in": 0o644, "d/pass/in": 0o644, "way/in": 0o644, "pass/in": 0o644}
	folders := map[string]os.FileMode{"d0": 0, "d/d0": 0, "d/list": 0o600, "d/pass": 0o300, "way": 0o677, "pass": 0o177}
	for name := range modes {
		write(t, dir, name, name)
	}
	for _, m := range []map[string]os.FileMode{modes, folders} {
		for name, mode := range m {
			must(t, os.Chmod(filepath.Join(dir, name), mode))
		}
	}
	t.Cleanup(func() {
		for name := range folders {
			os.Chmod(filepath.Join(dir, name), 0o755)
		}
	})
	outs := []Output{{"f0", false}, {"f-w", false}, {"f-group", false}, {"d0", true}, {"d", true}, {"way/in", false}}
	want := map[string]string{
		"f0": Unreadable, "f-w": Unreadable, "f-group": Unreadable, "d0": Unreadable, "way/in": Unreadable,
		"d/f0": Unreadable, "d/d0": Unreadable, "d/list": Unreadable, "d/pass": Unreadable,
	}
	got := collected(t, dir, plain, outs...)
	same(t, "rejected", codes(got), want)
	same(t, "files", paths(got), []string{"d"})
	if throughFlags != folderFlags { // with O_PATH, x is enough
		got, err := Collect(t.Context(), openDir(t, dir), []Output{{"pass/in", false}}, plain, new(store).put)
		if err != nil || len(got.Files) != 1 {
			t.Errorf("below a folder of mode 0177: %v, %v", got, err)
		}
	}
}

// TestNormalised is item 72.
func TestNormalised(t *testing.T) {
	var got [2]Result
	for i := range got {
		dir := t.TempDir()
		write(t, dir, "d/a", "same")
		write(t, dir, "d/b", "same")
		write(t, dir, "d/c", "same")
		if i == 1 {
			must(t, os.Remove(filepath.Join(dir, "d/b")))
			must(t, os.Link(filepath.Join(dir, "d/a"), filepath.Join(dir, "d/b")))
			must(t, os.Chmod(filepath.Join(dir, "d/c"), os.ModeSetuid|os.ModeSetgid|0o600))
			must(t, os.Chtimes(filepath.Join(dir, "d/c"), time.Unix(1, 0), time.Unix(1, 0)))
			if err := unix.Setxattr(filepath.Join(dir, "d/c"), "user.note", []byte("x"), 0); err != nil {
				t.Logf("no xattr here: %v", err)
			}
		}
		got[i] = collected(t, dir, Limits{Bytes: 12}, Output{"d", true})
	}
	same(t, "result", got[1], got[0])
	same(t, "files", paths(got[1]), []string{"d/a", "d/b", "d/c"})
}

// TestChanged: a process that is still alive can't happen, and costs no more
// than the file.
func TestChanged(t *testing.T) {
	for name, change := range map[string]func(p string) error{
		"grows":   func(p string) error { return os.WriteFile(p, []byte("longer than it was"), 0o644) },
		"shrinks": func(p string) error { return os.Truncate(p, 1) },
	} {
		dir := t.TempDir()
		write(t, dir, "f", "content")
		got, err := Collect(t.Context(), openDir(t, dir), []Output{{"f", false}}, plain, func(r io.Reader) (cas.Digest, error) {
			must(t, change(filepath.Join(dir, "f")))
			b, err := io.ReadAll(r)
			return cas.BLAKE3.Sum(b), err
		})
		if err != nil || codes(got)["f"] != Changed || got.Files != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
}

// TestReplaced: another file under the name, between fstatat and open.
func TestReplaced(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "f", "content")
	write(t, dir, "other", "secret!")
	c := collector{ctx: t.Context(), put: new(store).put, bytes: 100, entries: 9}
	c.open = func(dirfd int, name string, flags int) (int, error) {
		must(t, os.Rename(filepath.Join(dir, "other"), filepath.Join(dir, "f")))
		return openOne(dirfd, name, flags)
	}
	got, err := c.collect(openDir(t, dir), []Output{{"f", false}})
	if err != nil || codes(got)["f"] != Changed || got.Files != nil {
		t.Errorf("%v, %v", got, err)
	}
}

func TestErrors(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/f", "content")
	full := errors.New("disk is full")
	for name, c := range map[string]struct {
		ctx  context.Context
		fd   int
		put  Put
		want error
	}{
		"put":       {t.Context(), openDir(t, dir), func(io.Reader) (cas.Digest, error) { return cas.Digest{}, full }, full},
		"cancelled": {cancelled(), openDir(t, dir), new(store).put, context.Canceled},
		"no folder": {t.Context(), -1, new(store).put, unix.EBADF},
	} {
		got, err := Collect(c.ctx, c.fd, []Output{{"d", true}}, plain, c.put)
		if !errors.Is(err, c.want) || got.Files != nil {
			t.Errorf("%s: %v, %v", name, got, err)
		}
	}
	_, err := Collect(t.Context(), openDir(t, dir), []Output{{"d", true}}, plain, func(io.Reader) (cas.Digest, error) { return sum(""), nil })
	if err == nil || !strings.Contains(err.Error(), `0 of 7 bytes of "d/f" were stored`) {
		t.Errorf("a put that doesn't read: %v", err)
	}
}

// TestMany logs what 10,000 files cost, and that each is read once.
func TestMany(t *testing.T) {
	dir := t.TempDir()
	for i := range 10_000 {
		if i%100 == 0 {
			must(t, os.MkdirAll(fmt.Sprintf("%s/d/%d", dir, i/100), 0o755))
		}
		must(t, os.WriteFile(fmt.Sprintf("%s/d/%d/%d", dir, i/100, i), []byte("x"), 0o644))
	}
	var s store
	start := time.Now()
	got, err := Collect(t.Context(), openDir(t, dir), []Output{{"d", true}}, plain, s.put)
	t.Logf("10,000 files in %v", time.Since(start))
	if err != nil || len(got.Files) != 10_000 || len(s.blobs) != 10_000 || got.Rejected != nil {
		t.Errorf("%d files, %d blobs, %v, %v", len(got.Files), len(s.blobs), got.Rejected, err)
	}
}
