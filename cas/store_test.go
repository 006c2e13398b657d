package cas

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/iotest"
	"time"
)

func open(t testing.TB, cache, data string) *Store {
	t.Helper()
	s, err := Open(Options{Cache: cache, Data: data})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// eachStore runs fn with two roots and with one.
func eachStore(t *testing.T, fn func(t *testing.T, s *Store)) {
	t.Run("two roots", func(t *testing.T) {
		dir := t.TempDir()
		fn(t, open(t, dir+"/cache", dir+"/data"))
	})
	t.Run("one root", func(t *testing.T) {
		dir := t.TempDir()
		fn(t, open(t, dir, dir))
	})
}

func put(t testing.TB, s *Store, c Class, b []byte) Digest {
	t.Helper()
	d, err := s.Put(c, b)
	if err != nil {
		t.Fatal(err)
	}
	return d
}

// noise doesn't compress; equal seeds give equal bytes.
func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1] = byte(seed), byte(seed>>8)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func prose(n int) []byte { return bytes.Repeat([]byte("nothing is paid for twice. "), n/27+1)[:n] }

// blobs are one of each kind that the store treats in its own way.
func blobs() map[string][]byte {
	return map[string][]byte{
		"empty":          {},
		"one byte":       {7},
		"largest small":  prose(minCompress - 1),
		"packed":         prose(minCompress),
		"noise":          noise(1, minCompress),
		"sample":         prose(sampleSize),
		"packed stream":  prose(sampleSize + 1),
		"noise stream":   noise(2, sampleSize+1),
		"long":           prose(3 << 20),
		"long noise":     noise(3, 3<<20),
		"noise at first": append(noise(4, sampleSize), prose(1<<20)...),
		"prose at first": append(prose(sampleSize), noise(5, 1<<20)...),
	}
}

// wantReason checks that err is a *BlobError of this reason.
func wantReason(t *testing.T, err error, want Reason) *BlobError {
	t.Helper()
	var blob *BlobError
	if !errors.As(err, &blob) || blob.Reason != want {
		t.Fatalf("got %v, want the blob %v", err, want)
	}
	return blob
}

// fileOf finds the one file of a blob in both roots.
func fileOf(t *testing.T, s *Store, d Digest) string {
	t.Helper()
	var found []string
	for _, r := range s.roots(Pure) {
		files, _ := filepath.Glob(r.blobPath(d) + "*")
		found = append(found, files...)
	}
	if len(found) != 1 {
		t.Fatalf("blob %v is in %q", d, found)
	}
	return found[0]
}

func checkNoTemps(t *testing.T, s *Store) {
	t.Helper()
	for _, r := range s.roots(Pure) {
		if names, err := readDir(r.path(tempName)); err != nil || len(names) > 0 {
			t.Errorf("left in tmp: %q, %v", names, err)
		}
	}
}

func TestRoundTrip(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for name, b := range blobs() {
			for _, c := range []Class{Pure, Capture} {
				want := BLAKE3.Sum(b)
				got, err := s.PutReader(c, iotest.HalfReader(bytes.NewReader(b)))
				if err != nil || got != want {
					t.Fatalf("%s: PutReader gives %v, %v; want %v", name, got, err, want)
				}
				if got := put(t, s, c, b); got != want {
					t.Fatalf("%s: Put gives %v, want %v", name, got, want)
				}
				checkBlob(t, s, want, b)
			}
		}
		checkNoTemps(t, s)
	})
}

func checkBlob(t *testing.T, s *Store, d Digest, b []byte) {
	t.Helper()
	if err := s.Has(d); err != nil {
		t.Error(err)
	}
	if got, err := s.Read(d); err != nil || !bytes.Equal(got, b) {
		t.Errorf("Read(%v) gives %d bytes, %v", d, len(got), err)
	}
	r, err := s.Open(d)
	if err != nil {
		t.Fatal(err)
	}
	got, err := io.ReadAll(iotest.HalfReader(r))
	if err != nil || !bytes.Equal(got, b) || r.Close() != nil {
		t.Errorf("Open(%v) gives %d bytes, %v", d, len(got), err)
	}
	dst := filepath.Join(t.TempDir(), "new", "folder", "file")
	if err := s.Export(d, dst); err != nil {
		t.Fatal(err)
	}
	fi, err := os.Lstat(dst)
	if err != nil || !Stamped(fi, d) || fi.Mode() != 0o444 {
		t.Errorf("exported %v: %v, %v", d, fi, err)
	}
	if got, err := os.ReadFile(dst); err != nil || !bytes.Equal(got, b) {
		t.Errorf("exported %v: %d bytes, %v", d, len(got), err)
	}
}

func TestLayout(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir+"/cache", dir+"/data")
	for name, want := range map[string]struct {
		root   string
		c      Class
		suffix string
	}{
		"packed":        {"cache", Pure, ".zst"},
		"packed stream": {"data", Capture, ".zst"},
		"largest small": {"data", Capture, ""},
		"noise":         {"cache", Pure, ""},
		"noise stream":  {"cache", Pure, ""},
	} {
		d := put(t, s, want.c, blobs()[name])
		path := filepath.Join(dir, want.root, "cas", "blake3", d.Hex()[:2], d.Hex()+want.suffix)
		fi, err := os.Lstat(path)
		if err != nil || fi.Mode() != 0o444 || fi.ModTime().UTC().Year() != 2000 {
			t.Errorf("%s: %v, %v", name, fi, err)
		}
	}
}

func TestPutWritesOnce(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for name, b := range blobs() {
			d := put(t, s, Capture, b)
			before, err := os.Lstat(fileOf(t, s, d))
			if err != nil {
				t.Fatal(err)
			}
			put(t, s, Capture, b)
			put(t, s, Pure, b) // is there, in the better root
			if _, err := s.PutReader(Pure, bytes.NewReader(b)); err != nil {
				t.Fatal(err)
			}
			after, err := os.Lstat(fileOf(t, s, d))
			if err != nil || !os.SameFile(before, after) {
				t.Errorf("%s was written again: %v", name, err)
			}
		}
	})
	dir := t.TempDir()
	s := open(t, dir+"/cache", dir+"/data")
	d := put(t, s, Pure, []byte("x"))
	put(t, s, Capture, []byte("x"))
	if err := os.RemoveAll(dir + "/cache"); err != nil {
		t.Fatal(err)
	}
	if err := s.Has(d); err != nil {
		t.Errorf("a capture that was pure first is gone with the cache: %v", err)
	}
}

func TestBothFunctions(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	sha, err := Open(Options{Cache: dir, Data: dir, Func: SHA256})
	if err != nil || sha.Func() != SHA256 {
		t.Fatal(sha.Func(), err)
	}
	a, b := put(t, s, Pure, []byte("x")), put(t, sha, Pure, []byte("x"))
	for _, s := range []*Store{s, sha} {
		checkBlob(t, s, a, []byte("x"))
		checkBlob(t, s, b, []byte("x"))
	}
}

func TestBadArguments(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	if _, err := s.Put(0, nil); err == nil {
		t.Error("Put took class 0")
	}
	if _, err := s.PutReader(9, bytes.NewReader(prose(1<<20))); err == nil {
		t.Error("PutReader took class 9")
	}
	if err := s.Has(Digest{}); err == nil {
		t.Error("Has took no digest")
	}
	if err := s.Has(Digest{Func: 9, Size: 1}); err == nil {
		t.Error("Has took an unknown function")
	}
	broken := errors.New("the network is down")
	for _, n := range []int{10, 1 << 20} {
		r := io.MultiReader(bytes.NewReader(prose(n)), iotest.ErrReader(broken))
		if _, err := s.PutReader(Capture, r); !errors.Is(err, broken) {
			t.Errorf("PutReader: %v", err)
		}
	}
	for _, o := range []Options{{Cache: dir}, {Data: dir}, {Cache: dir, Data: dir, Func: 7}} {
		if _, err := Open(o); err == nil {
			t.Errorf("opened %+v", o)
		}
	}
	if err := os.WriteFile(dir+"/file", nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Cache: dir + "/file", Data: dir}); err == nil || !strings.Contains(err.Error(), "not a folder") {
		t.Errorf("opened a file: %v", err)
	}
	checkNoTemps(t, s)
}

func TestExportReplaces(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir+"/s", dir+"/s")
	d := put(t, s, Pure, []byte("new"))
	target := dir + "/target"
	link := dir + "/link"
	if err := errors.Join(os.WriteFile(target, []byte("old"), 0o600), os.Symlink(target, link)); err != nil {
		t.Fatal(err)
	}
	if err := s.Export(d, link); err != nil {
		t.Fatal(err)
	}
	if b, _ := os.ReadFile(target); string(b) != "old" {
		t.Error("Export wrote through a symlink")
	}
	if b, _ := os.ReadFile(link); string(b) != "new" {
		t.Errorf("exported %q", b)
	}
	if err := s.Export(d, dir); err == nil || !strings.HasPrefix(err.Error(), "export blob "+d.String()+" to "+dir) {
		t.Errorf("exported over a folder: %v", err)
	}
	wantReason(t, s.Export(BLAKE3.Sum([]byte("other")), dir+"/none"), Missing)
	names, err := filepath.Glob(dir + "/.eval*")
	if err != nil || len(names) > 0 {
		t.Errorf("left %q, %v", names, err)
	}
}

// An umask that takes every right away must change no mode. Umask is of the
// whole process, so this test may not run beside others.
func TestUmask(t *testing.T) {
	dir := t.TempDir()
	old := syscall.Umask(0o777)
	defer syscall.Umask(old)
	s := open(t, dir+"/a/cache", dir+"/a/data")
	d := put(t, s, Capture, prose(minCompress))
	key := BLAKE3.Sum([]byte("key"))
	err := errors.Join(s.PutResult(Capture, key, Result{Stdout: d}), s.Export(d, dir+"/out/pkg/x"))
	if err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	unlock()
	if err := rewrite(fileOf(t, s, d), false, cut); err != nil {
		t.Fatal(err)
	}
	wantReason(t, s.Has(d), Damaged)
	filepath.WalkDir(dir+"/a", func(path string, e fs.DirEntry, err error) error {
		fi, statErr := os.Lstat(path)
		if err := errors.Join(err, statErr); err != nil {
			t.Error(err)
			return nil
		}
		if fi.Mode()&0o400 == 0 || fi.Mode()&0o022 != 0 || e.IsDir() && fi.Mode()&0o700 != 0o700 {
			t.Errorf("%s has mode %v", path, fi.Mode())
		}
		return nil
	})
	for path, want := range map[string]fs.FileMode{"/out": 0o755 | fs.ModeDir, "/out/pkg": 0o755 | fs.ModeDir, "/out/pkg/x": 0o444} {
		if fi, err := os.Lstat(dir + path); err != nil || fi.Mode() != want {
			t.Errorf("%s: %v, %v", path, fi.Mode(), err)
		}
	}
}

func TestSweep(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	now := time.Unix(1_800_000_000, 0)
	young, old := now.Add(-23*time.Hour), now.Add(-25*time.Hour)
	keep, err := s.cache.temp(young)
	if err != nil {
		t.Fatal(err)
	}
	defer keep.Close()
	gone, err := s.cache.temp(old)
	if err != nil {
		t.Fatal(err)
	}
	defer gone.Close()
	// Stamped files look ancient and may be about to be renamed.
	stamp := Stamp(BLAKE3.Sum(nil))
	folder := dir + "/tmp/.eval-tmp-1"
	err = errors.Join(os.Chtimes(keep.Name(), stamp, stamp), os.Mkdir(folder, 0o755), os.Chtimes(folder, old, old))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Open(Options{Cache: dir, Data: dir, Now: func() time.Time { return now }}); err != nil {
		t.Fatal(err)
	}
	names, err := readDir(dir + "/tmp")
	if err != nil || len(names) != 1 || names[0] != filepath.Base(keep.Name()) {
		t.Errorf("tmp holds %q, %v; want %s", names, err, keep.Name())
	}
}

func TestManyGoroutines(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		all := [][]byte{prose(100), prose(5000), noise(1, 5000), prose(200_000)}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				for i := range 20 {
					b := all[(g+i)%len(all)]
					d, err := s.Put(Class(1+(g+i)%2), b)
					if err != nil {
						t.Error(err)
						return
					}
					if got, err := s.Read(d); err != nil || !bytes.Equal(got, b) {
						t.Errorf("read %d bytes, %v", len(got), err)
					}
					key := BLAKE3.Sum([]byte{byte(i % 3)})
					if err := s.PutResult(Pure, key, Result{ExitCode: int32(i % 3)}); err != nil {
						t.Error(err)
					}
					if r, err := s.Lookup(Capture, key); err != nil || r.ExitCode != int32(i%3) {
						t.Error(r, err)
					}
				}
			})
		}
		wg.Wait()
		checkNoTemps(t, s)
	})
}

func BenchmarkPutSmall(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, dir)
	content := []byte(fmt.Sprintf("%200d", 0))
	for i := 0; b.Loop(); i++ {
		copy(content, fmt.Sprint(i))
		put(b, s, Pure, content)
	}
}

func BenchmarkPutSmallPresent(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, dir)
	for b.Loop() {
		put(b, s, Pure, []byte("the same"))
	}
}

func BenchmarkPut1MiB(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, dir)
	for name, content := range map[string][]byte{"prose": prose(1 << 20), "noise": noise(1, 1<<20)} {
		b.Run(name, func(b *testing.B) {
			b.SetBytes(1 << 20)
			for i := 0; b.Loop(); i++ {
				copy(content, fmt.Sprint(i))
				put(b, s, Pure, content)
			}
		})
	}
}

func TestExportReader(t *testing.T) {
	dir := t.TempDir()
	b := prose(5000)
	d := BLAKE3.Sum(b)
	dst := dir + "/new/x"
	if err := ExportReader(bytes.NewReader(b), d, dst); err != nil {
		t.Fatal(err)
	}
	for name, bad := range map[string]io.Reader{
		"short":  bytes.NewReader(b[:4999]),
		"long":   bytes.NewReader(append(b[:5000:5000], 0)),
		"other":  bytes.NewReader(noise(1, 5000)),
		"broken": iotest.TimeoutReader(iotest.HalfReader(bytes.NewReader(b))),
	} {
		if err := ExportReader(bad, d, dst); err == nil {
			t.Errorf("%s: exported", name)
		}
	}
	if err := ExportReader(bytes.NewReader(b), Digest{}, dst); err == nil {
		t.Error("exported without a digest")
	}
	fi, err := os.Lstat(dst)
	if err != nil || !Stamped(fi, d) || fi.Mode() != 0o444 {
		t.Errorf("%v, %v", fi, err)
	}
	if names, err := readDir(dir + "/new"); err != nil || len(names) != 1 {
		t.Errorf("left %q, %v", names, err)
	}
}

func TestPutFile(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		opened := 0
		source := func(b []byte) func() (io.ReadCloser, error) {
			return func() (io.ReadCloser, error) { opened++; return io.NopCloser(bytes.NewReader(b)), nil }
		}
		for name, b := range blobs() {
			d := s.fn.Sum(b)
			// A pure one doesn't count as kept.
			put(t, s, Pure, b)
			before := opened
			for range 2 {
				if err := s.PutFile(Capture, d, source(b)); err != nil {
					t.Fatal(name, err)
				}
			}
			want := before + 1
			if s.cache == s.data {
				want = before
			}
			if _, err := s.find(d, []*root{s.data}); err != nil || opened != want {
				t.Errorf("%s: %v, opened %d times", name, err, opened-before)
			}
		}
		other := s.fn.Sum([]byte("other"))
		if err := s.PutFile(Capture, other, source([]byte("this"))); !errors.Is(err, ErrChanged) {
			t.Error(err)
		}
		if err := s.Has(other); err == nil {
			t.Error("what isn't d is there as d")
		}
		if err := s.PutFile(Capture, other, func() (io.ReadCloser, error) { return nil, io.ErrClosedPipe }); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
		if err := s.PutFile(Capture, Digest{}, source(nil)); err == nil {
			t.Error("a zero digest was stored")
		}
	})
}
