package draws

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

func noSync(*os.File) error { return nil }

func TestTornTail(t *testing.T) {
	first, second := NewIntent(labelA, rep("c", 1), runA), NewIntent(labelA, rep("c", 2), runA)
	first.Seq, second.Seq = 1, 2
	a, b := text(t, first), text(t, second)
	var tails []string
	for n := 1; n < len(b)-1; n++ {
		tails = append(tails, b[:n], b[:n]+strings.Repeat("\x00", 5))
	}
	for _, tail := range append(tails, "\x00\x00") {
		path := lockPath(t)
		put(t, path, a+tail)
		l := open(t, path)
		l.sync = noSync
		if len(l.Lines()) != 1 || string(l.Torn()) != tail {
			t.Fatalf("tail %q: lines %v, torn %q", tail, l.Lines(), l.Torn())
		}
		appendOK(t, l, second)
		if contents(t, path) != a+b || l.Torn() != nil {
			t.Fatalf("tail %q: the file is %q", tail, contents(t, path))
		}
	}

	path := lockPath(t) // whole but for its newline
	put(t, path, strings.TrimSuffix(a, "\n"))
	l := open(t, path)
	if len(l.Lines()) != 1 || l.Torn() != nil {
		t.Errorf("an unended line: %v", l.Lines())
	}
	appendOK(t, l, second)
	if contents(t, path) != a+b {
		t.Errorf("the file is %q", contents(t, path))
	}

	for _, tail := range []string{"x", `{"kind":"note"}`, ">>>>>>> theirs", `{"` + strings.Repeat("x", MaxLine)} {
		put(t, path, a+tail)
		if _, err := Open(path); err == nil || !strings.Contains(err.Error(), ":2: ") {
			t.Errorf("tail %.20q: %v", tail, err)
		}
		if _, err := l.Append(second); err == nil || contents(t, path) != a+tail {
			t.Errorf("tail %.20q was cut off", tail)
		}
	}
}

// TestFullDisk stops the write after each number of bytes, and the fsync.
func TestFullDisk(t *testing.T) {
	path := lockPath(t)
	l := open(t, path)
	appendOK(t, l, NewIntent(labelA, rep("c", 1), runA))
	before := contents(t, path)
	lines := []Line{NewIntent(labelA, rep("c", 2), runA), NewIntent(labelA, rep("c", 3), runA)}
	l.sync = noSync
	for n := range 500 {
		l.write = func(f *os.File, b []byte) (int, error) {
			n, err := f.Write(b[:min(n, len(b))])
			return n, errors.Join(err, unix.ENOSPC)
		}
		if _, err := l.Append(lines...); !errors.Is(err, unix.ENOSPC) || contents(t, path) != before {
			t.Fatalf("after %d bytes: %v", n, err)
		}
	}
	l.write = (*os.File).Write
	l.sync = func(*os.File) error { return unix.EIO }
	if _, err := l.Append(lines...); !errors.Is(err, unix.EIO) || contents(t, path) != before || len(l.Lines()) != 1 {
		t.Fatalf("fsync: %v", err)
	}
	l.sync = (*os.File).Sync
	appendOK(t, l, lines...)
	if len(open(t, path).Lines()) != 3 {
		t.Error("not 3 lines")
	}
}

// TestReplaced is git checkout in the middle of an append: the line goes into
// the new file, if it fits there.
func TestReplaced(t *testing.T) {
	path := lockPath(t)
	l := open(t, path)
	intent := NewIntent(labelA, rep("c", 1), runA)
	appendOK(t, l, intent)
	old := contents(t, path)
	replace := func(with string) func(f *os.File) error {
		return func(f *os.File) error {
			l.sync = (*os.File).Sync
			put(t, path+".new", with)
			return os.Rename(path+".new", path)
		}
	}
	l.sync = replace(old)
	appendOK(t, l, NewIntent(labelA, rep("c", 2), runA))
	if got := open(t, path).Lines(); len(got) != 2 || got[1].Seq != 2 {
		t.Errorf("after a replacement: %v", got)
	}
	l.sync = replace("")
	if _, err := l.Append(intent.Drawn(cap1, 1)); !errors.Is(err, ErrNoIntent) {
		t.Errorf("the intent went: %v", err)
	}
}

func TestOpenOddFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, Name)
	if l := open(t, path); len(l.Lines()) != 0 {
		t.Error("no file has lines")
	}
	if _, err := os.Lstat(path); err == nil {
		t.Error("Open made the file")
	}
	if err := os.Symlink("elsewhere", path); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil || !strings.Contains(err.Error(), "symbolic link") {
		t.Errorf("a link: %v", err)
	}
	os.Remove(path)
	if err := unix.Mkfifo(path, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); err == nil {
		t.Error("a fifo is taken")
	}
	os.Remove(path)
	os.Mkdir(path, 0o755)
	if _, err := Open(path); err == nil {
		t.Error("a folder is taken")
	}
}

// TestEdited: lines that are no longer in the file are not in the view either,
// whatever the file was.
func TestEdited(t *testing.T) {
	var lines []string
	for i := range 4 {
		x := NewIntent(labelA, rep("c", i+1), runA)
		x.Seq = int64(i + 1)
		lines = append(lines, text(t, x))
	}
	whole := strings.Join(lines, "")
	files := []string{"", whole, strings.TrimSpace(whole), lines[2], strings.TrimSpace(lines[0]), lines[3] + lines[0], lines[0] + lines[1], whole + `{"`}
	for _, first := range files {
		for _, then := range files {
			path := lockPath(t)
			put(t, path, first)
			l := open(t, path)
			l.sync = noSync
			appendOK(t, l, NewLook(labelA, "b", seen))
			put(t, path, then)
			appendOK(t, l, NewLook(labelA, "c", seen))
			if got, want := l.Lines(), open(t, path).Lines(); !slices.Equal(got, want) {
				t.Errorf("%q, then %q: %v, want %v", first, then, got, want)
			}
			appendOK(t, l, NewLook(labelA, "d", seen))
			if got, want := l.Lines(), open(t, path).Lines(); !slices.Equal(got, want) || l.Looks(labelA, "d")[0].Seq != want[len(want)-1].Seq {
				t.Errorf("%q, then %q: %v, want %v", first, then, got, want)
			}
		}
	}
}

// TestMergedBelow: a line of another branch comes after those that were seen,
// with a lower seq.
func TestMergedBelow(t *testing.T) {
	path := lockPath(t)
	l := open(t, path)
	appendOK(t, l, NewIntent(labelA, rep("c", 1), runA), NewIntent(labelA, rep("c", 2), runA))
	low := NewIntent(labelA, rep("c", 3), runB)
	low.Seq = 1
	put(t, path, contents(t, path)+text(t, low))
	appendOK(t, l, NewLook(labelA, "b", seen))
	if got, want := l.Lines(), open(t, path).Lines(); !slices.Equal(got, want) || got[3].Seq != 3 {
		t.Errorf("%v, want %v", got, want)
	}
}

// BenchmarkAppend adds a line to a file of 2,000: as a run does, and with all
// of it read again.
func BenchmarkAppend(b *testing.B) {
	path := lockPath(b)
	l := open(b, path)
	l.sync = noSync
	var lines []Line
	for i := range 2000 {
		lines = append(lines, NewIntent(labelA, rep("c", i+1), runA))
	}
	appendOK(b, l, lines...)
	full, size := l.view(), len(contents(b, path))
	for name, v := range map[string]*view{"grown": full, "anew": nil} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				l.publish(v)
				appendOK(b, l, NewIntent(labelA, rep("d", 1), runA))
				if err := os.Truncate(path, int64(size)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
