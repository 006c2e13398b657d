package cas

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

const day = 24 * time.Hour

// age makes all that is in the store so much older, results as well: what is
// written or touched from now on is new.
func age(t testing.TB, s *Store, by time.Duration) {
	t.Helper()
	now := time.Now()
	for _, r := range s.roots(Pure) {
		for _, path := range under(t, r.path("ac")) {
			fi, err := os.Lstat(path)
			if err == nil {
				used := fi.ModTime().Add(-by)
				err = os.Chtimes(path, used, used)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	// The clock of ctime moves in ticks, and lags behind.
	for probe := s.cache.path("probe"); ; {
		fi, err := os.Lstat(probe)
		if err == nil && changed(fi).After(now) {
			now = changed(fi)
			break
		}
		if err := errors.Join(ignoreAbsent(os.Remove(probe)), os.WriteFile(probe, nil, 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	before := s.changed
	s.changed = func(fi os.FileInfo) time.Time {
		if changed(fi).Before(now) {
			return before(fi).Add(-by)
		}
		return changed(fi)
	}
}

// under gives the files below a folder, but for that of the locks.
func under(t testing.TB, dir string) (files []string) {
	t.Helper()
	err := filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() && d.Name() != lockName {
			files = append(files, path)
		}
		return ignoreAbsent(err)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func collect(t testing.TB, s *Store, o CollectOptions) Tally {
	t.Helper()
	r, err := s.Collect(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	return r.Removed
}

func keyOf(name string) Digest { return BLAKE3.Sum([]byte("key " + name)) }

func putResult(t testing.TB, s *Store, c Class, name string, r Result) {
	t.Helper()
	if err := s.PutResult(c, keyOf(name), r); err != nil {
		t.Fatal(err)
	}
}

// wantHits checks which results can be looked up, and that their blobs are right.
func wantHits(t *testing.T, s *Store, hits string, misses string) {
	t.Helper()
	for _, name := range strings.Fields(hits) {
		r, err := s.Lookup(Capture, keyOf(name))
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
		r.eachBlob(func(_ string, d Digest) error {
			if _, err := s.Read(d); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			return nil
		})
	}
	for _, name := range strings.Fields(misses) {
		_, err := s.Lookup(Capture, keyOf(name))
		wantLost(t, Pure, err, "no result")
	}
}

func TestCollect(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		shared, ofOld, ofPaid := put(t, s, Pure, noise(1, 9000)), put(t, s, Pure, noise(2, 9000)), put(t, s, Capture, noise(3, 9000))
		inTree, inPaidTree := put(t, s, Pure, prose(9000)), put(t, s, Capture, prose(8000))
		tree := func(c Class, d Digest) Digest {
			b := NewTree(BLAKE3)
			b.File("a/b", d, false)
			built, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			d, err = s.PutTree(c, built)
			if err != nil {
				t.Fatal(err)
			}
			return d
		}
		garbage := put(t, s, Pure, prose(7000))
		putResult(t, s, Pure, "used", Result{Stdout: shared})
		putResult(t, s, Pure, "folder", Result{Folders: []OutputFolder{{Path: "out", Tree: tree(Pure, inTree)}}})
		putResult(t, s, Pure, "old", Result{Stdout: shared, Stderr: ofOld})
		putResult(t, s, Pure, "old folder", Result{Folders: []OutputFolder{{Path: "out", Tree: tree(Pure, put(t, s, Pure, prose(6000)))}}})
		putResult(t, s, Capture, "paid", Result{Stdout: ofPaid, Folders: []OutputFolder{{Path: "out", Tree: tree(Capture, inPaidTree)}}})
		putResult(t, s, Pure, "scored", Result{Stdout: ofPaid})
		stage := func() {
			if _, err := s.Stage(shared, true, nil); err != nil {
				t.Fatal(err)
			}
		}
		stage()

		if got := collect(t, s, CollectOptions{MaxAge: 1, MaxSize: 1}); got != (Tally{}) {
			t.Errorf("removed within the hour: %+v", got)
		}
		age(t, s, 2*time.Hour)
		if got, want := collect(t, s, CollectOptions{}), (Tally{Blobs: 1, Bytes: 4096}); got != want {
			t.Errorf("without limits: %+v, want %+v", got, want)
		}
		wantReason(t, s.Has(garbage), Missing)
		age(t, s, 38*day)
		wantHits(t, s, "used folder", "")
		stage()
		age(t, s, 2*day)
		dry, err := s.Collect(t.Context(), CollectOptions{MaxAge: 30 * day, DryRun: true})
		if err != nil {
			t.Fatal(err)
		}
		wantHits(t, s, "paid", "")
		count := func() (n int) {
			for _, r := range s.roots(Pure) {
				n += len(under(t, r.dir))
			}
			return n
		}
		files := count()
		wet, err := s.Collect(t.Context(), CollectOptions{MaxAge: 30 * day})
		if err != nil || !gocmp.Equal(dry, wet) {
			t.Errorf("%v; it did what it said (-said +did):\n%s", err, gocmp.Diff(dry, wet))
		}
		wantHits(t, s, "used folder paid", "old scored")
		for _, d := range []Digest{shared, ofPaid, inTree, inPaidTree} {
			if err := s.Has(d); err != nil {
				t.Error(err)
			}
		}
		wantReason(t, s.Has(ofOld), Missing)
		want := Tally{Results: 3, Blobs: 3, Bytes: wet.Removed.Bytes}
		if wet.Removed != want {
			t.Errorf("removed %+v, want %+v", wet.Removed, want)
		}
		if gone := files - count(); gone != 6 {
			t.Errorf("%d files are gone, want 6", gone)
		}
		if wet.Kept.Results != 2 || wet.Kept.Copies != 1 || wet.Kept.Blobs != 3 {
			t.Errorf("kept %+v", wet.Kept)
		}
		age(t, s, 40*day)
		if got := collect(t, s, CollectOptions{MaxAge: 30 * day}); got.Results != 2 || got.Copies != 1 || got.Blobs != 3 {
			t.Errorf("at last removed %+v", got)
		}
		wantHits(t, s, "paid", "used folder old scored")
	})
}

func TestCollectSize(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	both := put(t, s, Pure, noise(100, 40_000))
	for i := range 10 {
		putResult(t, s, Pure, fmt.Sprint(i), Result{Stdout: put(t, s, Pure, noise(uint64(i), 40_000)), Stderr: both})
		used := time.Now().Add(-time.Duration(10-i) * day)
		if err := os.Chtimes(s.cache.resultPath(keyOf(fmt.Sprint(i))), used, used); err != nil {
			t.Fatal(err)
		}
	}
	const one = 4096 + 40_960 // what a result takes
	put(t, s, Pure, prose(300))
	age(t, s, 2*time.Hour)
	if got := collect(t, s, CollectOptions{MaxSize: 10*one + 40_960}); got != (Tally{Blobs: 1, Bytes: 4096}) {
		t.Errorf("without garbage it fitted, but removed %+v", got)
	}
	if got, want := collect(t, s, CollectOptions{MaxSize: 10*one + 40_960 - 1}), (Tally{Results: 1, Blobs: 1, Bytes: one}); got != want {
		t.Errorf("a byte too many removed %+v, want %+v", got, want)
	}
	r, err := s.Collect(t.Context(), CollectOptions{MaxSize: 4 * one, MaxAge: 30 * day})
	if err != nil || r.Kept != (Tally{Results: 3, Blobs: 4, Bytes: 3*one + 40_960}) {
		t.Errorf("kept %+v, %v", r.Kept, err)
	}
	wantHits(t, s, "7 8 9", "0 1 2 3 4 5 6")
}

// TestCollectRefuses: what an unreadable capture names isn't known.
func TestCollectRefuses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	b := NewTree(BLAKE3)
	b.File("a", put(t, s, Capture, prose(9000)), false)
	tree, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	message, err := s.PutTree(Capture, tree)
	if err != nil {
		t.Fatal(err)
	}
	putResult(t, s, Capture, "paid", Result{Folders: []OutputFolder{{Path: "out", Tree: message}}})
	put(t, s, Pure, prose(8000))
	for _, path := range []string{s.cache.resultPath(keyOf("paid")), fileOf(t, s, message)} {
		if err := rewrite(path, true, flip); err != nil {
			t.Fatal(err)
		}
		age(t, s, 40*day)
		before := len(under(t, dir))
		_, err := s.Collect(t.Context(), CollectOptions{MaxAge: 30 * day})
		if err == nil || !strings.Contains(err.Error(), "capture "+nameOf(keyOf("paid"))+" can't be read, so that what it names isn't known") {
			t.Errorf("got %v", err)
		}
		if n := len(under(t, dir)); n != before {
			t.Errorf("of %d files %d are left", before, n)
		}
		if err := rewrite(path, true, flip); err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

// TestCollectKeepsRecorded: blobs that are put as captures are kept in a root of
// both classes by a capture that names them.
func TestCollectKeepsRecorded(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	tool, loose := put(t, s, Capture, noise(1, 9000)), put(t, s, Capture, noise(2, 9000))
	putResult(t, s, Capture, "lock of tools", Result{Files: []OutputFile{{Path: tool.Hex(), Digest: tool}}})
	age(t, s, 40*day)
	collect(t, s, CollectOptions{MaxAge: day, MaxSize: 1})
	checkBlob(t, s, tool, noise(1, 9000))
	wantReason(t, s.Has(loose), Missing)
}

func TestCollectQuarantine(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		d := put(t, s, Pure, prose(300))
		if err := rewrite(fileOf(t, s, d), false, flip); err != nil {
			t.Fatal(err)
		}
		moved := wantReason(t, s.Has(d), Damaged).Moved
		collect(t, s, CollectOptions{MaxAge: 1})
		old := time.Now().Add(-40 * day)
		if _, err := os.Lstat(moved); err != nil {
			t.Error(err)
		}
		if err := os.Chtimes(filepath.Dir(moved), old, old); err != nil {
			t.Fatal(err)
		}
		got := collect(t, s, CollectOptions{MaxAge: 30 * day})
		_, err := os.Lstat(moved)
		if mixed := s.cache == s.data; mixed != (err == nil) || mixed != (got.Quarantined == 0) {
			t.Errorf("removed %+v, then %v", got, err)
		}
	})
}

// TestLookRecorded: a use is written down once a day, and for pure results only.
func TestLookRecorded(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		s := open(t, t.TempDir(), t.TempDir())
		putTestResult(t, s, c)
		path := s.root(c).resultPath(testKey)
		for _, hours := range []time.Duration{23, 25} {
			old := time.Now().Add(-hours * time.Hour).Truncate(time.Second)
			if err := os.Chtimes(path, old, old); err != nil {
				t.Fatal(err)
			}
			if _, err := s.Lookup(Capture, testKey); err != nil {
				t.Fatal(err)
			}
			fi, err := os.Lstat(path)
			if err != nil {
				t.Fatal(err)
			}
			if written := !fi.ModTime().Equal(old); written != (c == Pure && hours > 24) {
				t.Errorf("%v after %d hours: written is %v", c, hours, written)
			}
		}
	}
}
