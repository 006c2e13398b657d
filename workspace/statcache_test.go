package workspace

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/statcache"
)

// later is a clock at which files written by the test have aged.
func later() time.Time { return time.Now().Add(time.Minute) }

// cached is a workspace with one source, x, and a stat cache.
type cached struct {
	*testing.T
	dir string
	now func() time.Time
}

func newCached(t *testing.T) *cached {
	t.Helper()
	return &cached{t, write(t, "-- w/MODULE.star --\n-- w/x --\none\n"), later}
}

func (c *cached) file() string { return filepath.Join(c.dir, "cache", "stat") }
func (c *cached) x() string    { return filepath.Join(c.dir, "w", "x") }

func (c *cached) open() *Workspace {
	c.Helper()
	return open(c, filepath.Join(c.dir, "w"), Options{StatCache: c.file(), Now: c.now})
}

// run digests x as one process would, and reports whether the digest came from
// the cache, which shows in what there is to save.
func (c *cached) run() (d cas.Digest, hit bool) {
	c.Helper()
	w := c.open()
	d, err := w.Digest("", "x")
	must(c, err)
	f, err := w.trees[""].lstat("x")
	must(c, err)
	_, known := w.stats.old.find("x")
	_, hit = w.stats.lookup("x", f)
	hit = hit && known && len(w.stats.fresh) == 0
	must(c, w.Save())
	return d, hit
}

func (c *cached) want(text string, wantHit bool) {
	c.Helper()
	d, hit := c.run()
	if d != cas.BLAKE3.Sum([]byte(text)) || hit != wantHit {
		c.Errorf("right digest %v, from the cache %v, want %v", d == cas.BLAKE3.Sum([]byte(text)), hit, wantHit)
	}
}

func TestStatCache(t *testing.T) {
	c := newCached(t)
	c.want("one\n", false)
	c.want("one\n", true)
	put(t, c.x(), "three\n")
	c.want("three\n", false)
	c.want("three\n", true)
}

func TestTouch(t *testing.T) {
	c := newCached(t)
	c.want("one\n", false)
	must(t, os.Chtimes(c.x(), time.Time{}, time.Now().Add(-time.Hour)))
	c.want("one\n", false)
	c.want("one\n", true)
}

// TestRacy edits x without a change of size or mtime while its entry is young.
func TestRacy(t *testing.T) {
	c := newCached(t)
	c.now = time.Now
	stamp := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(c.x(), time.Time{}, stamp)) // ctime is now
	c.want("one\n", false)
	c.want("one\n", false)
	put(t, c.x(), "two\n")
	must(t, os.Chtimes(c.x(), time.Time{}, stamp))
	c.want("two\n", false)
	c.now = later
	c.want("two\n", false)
	c.want("two\n", true)
}

func TestFutureStamp(t *testing.T) {
	c := newCached(t)
	must(t, os.Chtimes(c.x(), time.Time{}, time.Now().Add(time.Hour)))
	c.want("one\n", false)
	c.want("one\n", false)
	c.now = func() time.Time { return time.Now().Add(2 * time.Hour) }
	c.want("one\n", false)
	c.want("one\n", true)
	c.now = later // the clock was wrong, and went back
	c.want("one\n", false)
}

// TestReplaced puts another file of the same size and mtime in x's place.
func TestReplaced(t *testing.T) {
	c := newCached(t)
	stamp := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(c.x(), time.Time{}, stamp))
	c.want("one\n", false)
	c.want("one\n", true)
	put(t, c.x()+"2", "two\n")
	must(t, os.Chtimes(c.x()+"2", time.Time{}, stamp))
	must(t, os.Rename(c.x()+"2", c.x()))
	c.want("two\n", false)
	// And in place: only ctime tells.
	put(t, c.x(), "six\n")
	must(t, os.Chtimes(c.x(), time.Time{}, stamp))
	c.want("six\n", false)
}

// TestFacts changes each fact of an entry that is otherwise right.
func TestFacts(t *testing.T) {
	stats := &statCache{fn: cas.SHA256, now: later}
	f := facts{size: 3, mtime: 1, ctime: 2, ino: 4, mode: 5}
	stats.record("x", f, time.Now().UnixNano(), cas.SHA256.Sum([]byte("abc")))
	if d, ok := stats.lookup("x", f); !ok || d != cas.SHA256.Sum([]byte("abc")) {
		t.Fatal("not found")
	}
	for name, change := range map[string]func(*facts){
		"size":  func(f *facts) { f.size++ },
		"mtime": func(f *facts) { f.mtime++ },
		"ctime": func(f *facts) { f.ctime++ },
		"inode": func(f *facts) { f.ino++ },
		"mode":  func(f *facts) { f.mode++ },
	} {
		g := f
		change(&g)
		if _, ok := stats.lookup("x", g); ok {
			t.Errorf("another %s: found", name)
		}
	}
}

// TestCorrupt damages each byte of a cache file, cuts it at each length, and
// expects that x is hashed as if there were none.
func TestCorrupt(t *testing.T) {
	c := newCached(t)
	c.want("one\n", false)
	good, err := os.ReadFile(c.file())
	must(t, err)
	root := filepath.Join(c.dir, "w")
	if _, err := decodeTable(good, cas.BLAKE3, root); err != nil {
		t.Fatal(err)
	}
	if _, err := decodeTable(good, cas.SHA256, root); err == nil {
		t.Error("another digest function: accepted")
	}
	if _, err := decodeTable(good, cas.BLAKE3, root+"x"); err == nil {
		t.Error("another root: accepted")
	}
	for i := range good {
		if _, err := decodeTable(good[:i], cas.BLAKE3, root); err == nil {
			t.Errorf("cut at %d: accepted", i)
		}
		bad := bytes.Clone(good)
		bad[i] ^= 1
		if _, err := decodeTable(bad, cas.BLAKE3, root); err == nil {
			t.Errorf("byte %d flipped: accepted", i)
		}
	}
	put(t, c.file(), strings.Repeat("evalstat", 100))
	c.want("one\n", false)
	c.want("one\n", true)
	must(t, os.Remove(c.file()))
	must(t, os.Mkdir(c.file(), 0o777))
	w := c.open()
	if _, err := w.Digest("", "x"); err != nil {
		t.Errorf("a folder in the cache's place: %v", err)
	}
	if err := w.Save(); err == nil || !strings.HasPrefix(err.Error(), "save stat cache "+c.file()+": ") {
		t.Errorf("Save: %v", err)
	}
	if left, _ := filepath.Glob(c.file() + statcache.TempPattern + "*"); left != nil {
		t.Errorf("left %q", left)
	}
}

func FuzzTable(f *testing.F) {
	for _, keys := range [][]string{nil, {"a"}, {"a", "b/c", "d\x00dep"}} {
		b, err := encodeTable(cas.BLAKE3, "/w", 3, keys, func(string) record { return record{at: 7} })
		must(f, err)
		f.Add(b[:len(b)-checksumSize])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		sum := cas.BLAKE3.Sum(b) // else the fuzzer never gets past it
		table, err := decodeTable(append(b, sum.Hash[:]...), cas.BLAKE3, "/w")
		if err != nil {
			return
		}
		for i := range table.n {
			table.record(i)
			table.find(string(table.key(i)))
		}
	})
}

// TestOtherFiles checks that a run keeps the entries of files it didn't use,
// of dependencies too, until the table has doubled; then those that are gone go.
func TestOtherFiles(t *testing.T) {
	c := newCached(t)
	put(t, filepath.Join(c.dir, "w", ModuleFile), `dependency(name = "dep", path = "../dep")`)
	put(t, filepath.Join(c.dir, "dep", ModuleFile), "")
	put(t, filepath.Join(c.dir, "dep", "x"), "dep\n")
	w := c.open()
	for _, repo := range []string{"", "dep"} {
		_, err := w.Digest(repo, "x")
		must(t, err)
	}
	must(t, w.Save())
	keys := func() (out []string) {
		b, err := os.ReadFile(c.file())
		must(t, err)
		table, err := decodeTable(b, cas.BLAKE3, filepath.Join(c.dir, "w"))
		must(t, err)
		for i := range table.n {
			out = append(out, string(table.key(i)))
		}
		return out
	}
	put(t, filepath.Join(c.dir, "w", "y"), "y\n")
	w = c.open()
	if _, err := w.Digest("", "y"); err != nil {
		t.Fatal(err)
	}
	must(t, w.Save())
	if got := fmt.Sprintf("%q", keys()); got != `["x" "x\x00dep" "y"]` {
		t.Errorf("keys %s", got)
	}
	w = c.open()
	w.stats.loaded()
	d := cas.BLAKE3.Sum(nil)
	for i := range minPrune {
		w.stats.record(fmt.Sprint("gone", i), facts{}, later().UnixNano(), d)
	}
	must(t, os.Remove(c.x()))
	must(t, w.Save())
	if got := fmt.Sprintf("%q", keys()); got != `["x\x00dep" "y"]` {
		t.Errorf("keys after pruning %s", got)
	}
}

func TestSaveOnlyChanges(t *testing.T) {
	c := newCached(t)
	must(t, c.open().Save())
	if _, err := os.Stat(c.file()); err == nil {
		t.Error("a run without digests saved")
	}
	c.want("one\n", false)
	old := time.Now().Add(-time.Hour)
	must(t, os.Chtimes(c.file(), old, old))
	c.want("one\n", true)
	if info, err := os.Stat(c.file()); err != nil || info.ModTime().Sub(old).Abs() > time.Second {
		t.Error("a run that changed nothing saved")
	}
	w := open(t, filepath.Join(c.dir, "w"), Options{})
	_, err := w.Digest("", "x")
	must(t, err)
	must(t, w.Save()) // with no file
}

// TestKilledSave leaves what a kill -9 leaves at each step of a save.
func TestKilledSave(t *testing.T) {
	c := newCached(t)
	c.want("one\n", false)
	good, err := os.ReadFile(c.file())
	must(t, err)
	young, stale := c.file()+statcache.TempPattern+"1", c.file()+statcache.TempPattern+"2"
	put(t, young, string(good[:len(good)/2]))
	put(t, stale, "")
	must(t, os.Chtimes(stale, time.Time{}, time.Now().Add(-2*time.Hour)))
	c.want("one\n", true)
	put(t, c.x(), "two\n")
	c.want("two\n", false)
	c.want("two\n", true)
	if _, err := os.Stat(stale); err == nil {
		t.Error("a stale temporary file stays")
	}
	if _, err := os.Stat(young); err != nil {
		t.Error("a temporary file that may be in use is gone")
	}
}

// TestTwoProcesses saves from many workspaces at once while others load: each
// sees a whole file. They share nothing, as processes would.
func TestTwoProcesses(t *testing.T) {
	c := newCached(t)
	for i := range 50 {
		put(t, filepath.Join(c.dir, "w", fmt.Sprint("f", i)), fmt.Sprint(i))
	}
	c.want("one\n", false)
	var wg sync.WaitGroup
	for p := range 8 {
		wg.Go(func() {
			for i := range 20 {
				w, err := Open(filepath.Join(c.dir, "w"), Options{StatCache: c.file(), Now: later})
				if err != nil {
					t.Error(err)
					return
				}
				n := (p*7 + i) % 50
				d, err := w.Digest("", fmt.Sprint("f", n))
				if err != nil || d != cas.BLAKE3.Sum([]byte(fmt.Sprint(n))) {
					t.Errorf("f%d: %v, %v", n, d, err)
				}
				if w.stats.old.n == 0 {
					t.Error("a broken cache file was seen")
				}
				w.stats.unsaved = true
				if err := w.Save(); err != nil {
					t.Error(err)
				}
				w.Close()
			}
		})
	}
	wg.Wait()
	c.want("one\n", true)
}

func TestConcurrentDigest(t *testing.T) {
	dir := many(t, 200)
	w := open(t, dir, Options{StatCache: filepath.Join(t.TempDir(), "stat"), Now: later})
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for _, rel := range manyNames(200) {
				if d, err := w.Digest("", rel); err != nil || d != cas.BLAKE3.Sum([]byte(rel)) {
					t.Errorf("%s: %v, %v", rel, d, err)
				}
				if _, err := w.Glob("", "", []string{"**"}, nil); err != nil {
					t.Error(err)
				}
			}
			if err := w.Save(); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
}

// TestChangedWhileRead edits the file after it was hashed, once or each time.
func TestChangedWhileRead(t *testing.T) {
	c := newCached(t)
	f, err := os.Open(c.x())
	must(t, err)
	defer f.Close()
	for _, edits := range []int{1, tries} {
		n := 0
		stats := &statCache{fn: cas.BLAKE3, now: later}
		_, err := stats.digest("x", f, func(r io.Reader) (cas.Digest, error) {
			d, err := sum(cas.BLAKE3, r)
			if n++; n <= edits {
				put(t, c.x(), strings.Repeat("x", 10*edits+n))
			}
			return d, err
		})
		if (err != nil) != (edits == tries) || err != nil && err.Error() != "changed while it was read" {
			t.Errorf("%d edits: %v", edits, err)
		}
		if edits == tries && len(stats.fresh) != 0 {
			t.Error("recorded")
		}
	}
}

// many makes n small files in folders of a hundred, each with its name as text.
func many(t testing.TB, n int) string {
	t.Helper()
	dir := t.TempDir()
	put(t, filepath.Join(dir, ModuleFile), "")
	for _, rel := range manyNames(n) {
		put(t, filepath.Join(dir, rel), rel)
	}
	return dir
}

func manyNames(n int) []string {
	out := make([]string, n)
	for i := range out {
		out[i] = fmt.Sprintf("probes/group-%03d/captures/control-%05d.jsonl", i/100, i)
	}
	return out
}

// BenchmarkDigest is a build's view of 10,000 sources: all hashed; none changed
// (open, load, stat each, no save); and what a plain lstat of each costs.
func BenchmarkDigest(b *testing.B) {
	const n = 10_000
	dir, cache := many(b, n), filepath.Join(b.TempDir(), "stat")
	names := manyNames(n)
	run := func(b *testing.B, o Options) *Workspace {
		w, err := Open(dir, o)
		must(b, err)
		for _, rel := range names {
			if _, err := w.Digest("", rel); err != nil {
				b.Fatal(err)
			}
		}
		return w
	}
	b.Run("cold", func(b *testing.B) {
		for b.Loop() {
			run(b, Options{Now: later}).Close()
		}
	})
	w := run(b, Options{StatCache: cache, Now: later})
	must(b, w.Save())
	b.Run("save", func(b *testing.B) {
		for b.Loop() {
			w.stats.unsaved = true
			must(b, w.Save())
		}
	})
	w.Close()
	b.Run("noop", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			w := run(b, Options{StatCache: cache, Now: later})
			if len(w.stats.fresh) != 0 {
				b.Fatal("hashed")
			}
			must(b, w.Save())
			w.Close()
		}
	})
	b.Run("lstat", func(b *testing.B) {
		for b.Loop() {
			for _, rel := range names {
				if _, err := os.Lstat(dir + "/" + rel); err != nil {
					b.Fatal(err)
				}
			}
		}
	})
}
