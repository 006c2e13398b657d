package collect

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
)

// TestSparse is a part of item 70: a terabyte that is on no disk isn't read.
func TestSparse(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/huge", "")
	write(t, dir, "d/after", "small")
	if err := os.Truncate(filepath.Join(dir, "d/huge"), 1<<40); errors.Is(err, unix.EFBIG) {
		lacking(t, "a file system with a terabyte: %v", err)
	} else {
		must(t, err)
	}
	must(t, os.Link(filepath.Join(dir, "d/huge"), filepath.Join(dir, "huge")))
	var s store
	got, err := Collect(t.Context(), openDir(t, dir), []Output{{"huge", false}, {"d", true}}, Limits{Bytes: 64 << 20}, func(r io.Reader) (cas.Digest, error) {
		return s.put(io.LimitReader(r, 100))
	})
	must(t, err)
	same(t, "rejected", codes(got), map[string]string{"huge": Bytes, "d/huge": Bytes})
	same(t, "read", s.blobs, []string{"small"})
	if got.Rejected[1].Reason != "bytes: 1099511627776 bytes, 67108864 are left of 67108864" {
		t.Error(got.Rejected[1].Reason)
	}
}

// TestBytes: the sum counts, files before folders, hard links each.
func TestBytes(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "a/1", "12345678")
	must(t, os.Link(filepath.Join(dir, "a/1"), filepath.Join(dir, "a/2")))
	write(t, dir, "a/3", "1")
	write(t, dir, "z", "12345678")
	got := collected(t, dir, Limits{Bytes: 17}, Output{"a", true}, Output{"z", false})
	same(t, "files", paths(got), []string{"a/1", "a/3", "z"})
	same(t, "rejected", codes(got), map[string]string{"a/2": Bytes})
	write(t, dir, "empty", "")
	got = collected(t, dir, Limits{}, Output{"z", false}, Output{"empty", false})
	same(t, "files without a byte", paths(got), []string{"empty"})
}

func TestEntries(t *testing.T) {
	dir := t.TempDir()
	for i := range 20 {
		write(t, dir, fmt.Sprintf("a/%d", i), "x")
		write(t, dir, fmt.Sprintf("b/sub/%d", i), "x")
	}
	write(t, dir, "c/1", "x")
	write(t, dir, "z", "x")
	must(t, os.Mkdir(filepath.Join(dir, "e"), 0o755))
	outs := []Output{{"a", true}, {"b", true}, {"c", true}, {"e", true}, {"z", false}}
	for _, c := range []struct {
		limit int
		taken int
		want  map[string]string
	}{
		{42, 43, map[string]string{}},
		{41, 42, map[string]string{"c": Entries}},
		{40, 22, map[string]string{"b": Entries, "c": Entries}},
		{19, 2, map[string]string{"a": Entries, "b": Entries, "c": Entries}},
	} {
		got := collected(t, dir, Limits{Bytes: 1000, Entries: c.limit}, outs...)
		same(t, fmt.Sprint("rejected at ", c.limit), codes(got), c.want)
		if len(got.Files) != c.taken {
			t.Errorf("at %d: %d files, want %d: %v", c.limit, len(got.Files), c.taken, paths(got))
		}
	}
}

// TestReadNames: the list of names isn't read to its end when it is too long.
func TestReadNames(t *testing.T) {
	dir := t.TempDir()
	for i := range 3000 {
		write(t, dir, fmt.Sprint(i), "")
	}
	f, err := os.Open(dir)
	must(t, err)
	names, err := readNames(f, 10)
	must(t, err)
	must(t, f.Close())
	if len(names) <= 10 || len(names) > 1100 {
		t.Errorf("%d names were read for a limit of 10", len(names))
	}
}

// TestDeep makes 4,000 folders in each other, a path of 400 KB.
func TestDeep(t *testing.T) {
	dir := t.TempDir()
	name := strings.Repeat("d", 99)
	must(t, os.Mkdir(filepath.Join(dir, "out"), 0o755))
	at, err := unix.Open(filepath.Join(dir, "out"), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	must(t, err)
	step := func(to string) {
		t.Helper()
		next, err := unix.Openat(at, to, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW, 0)
		must(t, err)
		must(t, unix.Close(at))
		at = next
	}
	const depth = 4000
	t.Cleanup(func() { // os.RemoveAll would hold 4,000 descriptors
		for range depth {
			step("..")
			must(t, unix.Unlinkat(at, name, unix.AT_REMOVEDIR))
		}
		must(t, unix.Close(at))
	})
	for range depth {
		must(t, unix.Mkdirat(at, name, 0o755))
		step(name)
	}
	got := collected(t, dir, plain, Output{"out", true})
	at10 := "out" + strings.Repeat("/"+name, 10)
	same(t, "by length", codes(got), map[string]string{at10 + "/" + name: Long})
	same(t, "taken", paths(got), []string{at10})
	got = collected(t, dir, Limits{Depth: 3}, Output{"out", true})
	same(t, "by depth", codes(got), map[string]string{"out" + strings.Repeat("/"+name, 4): Depth})
	same(t, "long declared", codes(collected(t, dir, plain, Output{strings.Repeat("x/", 600) + "x", false})),
		map[string]string{strings.Repeat("x/", 600) + "x": Long})
}

func TestManyRejections(t *testing.T) {
	dir := t.TempDir()
	for i := range maxRejected {
		link(t, dir, "/etc/passwd", fmt.Sprintf("d/l%03d", i))
	}
	write(t, dir, "d/good", "x")
	got := collected(t, dir, plain, Output{"d", true})
	if len(got.Rejected) != maxRejected || len(got.Files) != 1 {
		t.Errorf("%d rejections, %d files", len(got.Rejected), len(got.Files))
	}
	link(t, dir, "/etc/passwd", "d/sub/one-more")
	got = collected(t, dir, plain, Output{"d", true})
	if len(got.Rejected) != maxRejected+1 || codes(got)["d"] != Rejections || got.Files != nil {
		t.Errorf("one more: %d rejections, %v, %v", len(got.Rejected), got.Rejected[0], got.Files)
	}
}
