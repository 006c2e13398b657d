package cas

import (
	"bytes"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"
)

func opens(b []byte) func() (io.ReadCloser, error) {
	return func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil }
}

func wantStaged(t *testing.T, path string, err error, b []byte, mode fs.FileMode) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
	got, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(got, b) {
		t.Fatalf("%d bytes, want %d: %v", len(got), len(b), err)
	}
	if fi, err := os.Lstat(path); err != nil || fi.Mode() != mode || !Stamped(fi, BLAKE3.Sum(b)) || !filepath.IsAbs(path) {
		t.Errorf("%s: %v %v", path, fi.Mode(), err)
	}
}

func wantNoTemp(t *testing.T, s *Store) {
	t.Helper()
	if left, err := os.ReadDir(s.cache.path(tempName)); err != nil || len(left) > 0 {
		t.Errorf("left in tmp: %v %v", left, err)
	}
}

func TestStage(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for _, b := range [][]byte{nil, []byte("small"), prose(200 << 10), noise(1, 200<<10)} {
			d := BLAKE3.Sum(b)
			if _, err := s.Stage(d, false, nil); err == nil {
				t.Fatal("staged what isn't there")
			}
			put(t, s, Capture, b)
			path, err := s.Stage(d, false, nil)
			wantStaged(t, path, err, b, 0o444)
			again, err := s.Stage(d, false, func() (io.ReadCloser, error) { return nil, errors.New("opened") })
			if wantStaged(t, again, err, b, 0o444); again != path {
				t.Error(again, path)
			}
			program, err := s.Stage(d, true, nil)
			if wantStaged(t, program, err, b, 0o555); program == path {
				t.Error("one file for both modes")
			}
			wantStaged(t, path, nil, b, 0o444)
		}
		b := noise(2, 300<<10) // not in the store
		path, err := s.Stage(BLAKE3.Sum(b), true, opens(b))
		wantStaged(t, path, err, b, 0o555)
		b = noise(3, 300<<10)
		name := filepath.Join(t.TempDir(), "source")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		path, err = s.Stage(BLAKE3.Sum(b), false, func() (io.ReadCloser, error) { return os.Open(name) })
		wantStaged(t, path, err, b, 0o444)
		if err := s.Has(BLAKE3.Sum(b)); err == nil {
			t.Error("a staged source is a blob")
		}
		wantNoTemp(t, s)
	})
}

// Whatever was done to a staged file, it is made again.
func TestStageAgain(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	b := prose(10 << 10)
	d := put(t, s, Pure, b)
	path, err := s.Stage(d, true, nil)
	wantStaged(t, path, err, b, 0o555)
	held, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer held.Close()
	for name, harm := range map[string]func() error{
		"removed":    func() error { return os.Remove(path) },
		"mode":       func() error { return os.Chmod(path, 0o755) },
		"time":       func() error { return os.Chtimes(path, time.Now(), time.Now()) },
		"shortened":  func() error { return errors.Join(os.Chmod(path, 0o755), os.Truncate(path, 5)) },
		"a link":     func() error { return errors.Join(os.Remove(path), os.Symlink("/etc/passwd", path)) },
		"a folder":   func() error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) },
		"no folders": func() error { return os.RemoveAll(filepath.Join(dir, "plain")) },
	} {
		if err := harm(); err != nil {
			t.Fatal(name, err)
		}
		again, err := s.Stage(d, true, nil)
		if wantStaged(t, again, err, b, 0o555); t.Failed() {
			t.Fatal(name)
		}
	}
	wantNoTemp(t, s)

	// With the times of a coarse file system it is made each time, but right.
	if err := os.Chtimes(path, Stamp(d), Stamp(d).Truncate(time.Second)); err != nil {
		t.Fatal(err)
	}
	path, err = s.Stage(d, true, nil)
	wantStaged(t, path, err, b, 0o555)
}

func TestStageRefuses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	b := noise(5, 100<<10)
	d := BLAKE3.Sum(b)
	other := noise(6, len(b))
	name := filepath.Join(t.TempDir(), "source")
	if err := os.WriteFile(name, other, 0o644); err != nil {
		t.Fatal(err)
	}
	for what, open := range map[string]func() (io.ReadCloser, error){
		"other":   opens(other),
		"shorter": opens(b[:len(b)-1]),
		"longer":  opens(append(bytes.Clone(b), 0)),
		"file":    func() (io.ReadCloser, error) { return os.Open(name) },
	} {
		if path, err := s.Stage(d, false, open); err == nil || !strings.Contains(err.Error(), "has changed") {
			t.Errorf("%s: %s %v", what, path, err)
		}
	}
	if _, err := s.Stage(d, false, func() (io.ReadCloser, error) { return nil, fs.ErrPermission }); !errors.Is(err, fs.ErrPermission) {
		t.Error(err)
	}
	var blob *BlobError
	if _, err := s.Stage(d, false, nil); !errors.As(err, &blob) || blob.Reason != Missing {
		t.Error(err)
	}
	put(t, s, Pure, b)
	path := s.cache.blobPath(d)
	if err := errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, other, 0o644), os.Chtimes(path, Stamp(d), Stamp(d))); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Stage(d, false, nil); !errors.As(err, &blob) || blob.Reason != Damaged {
		t.Error(err)
	}
	if _, err := s.Stage(Digest{}, false, opens(nil)); err == nil {
		t.Error("staged no digest")
	}
	if _, err := os.Lstat(s.cache.fanOut("plain", d)); err == nil {
		t.Error("something is there")
	}
	wantNoTemp(t, s)
}

func TestStageAtOnce(t *testing.T) {
	dir := t.TempDir()
	b := noise(7, 1<<20)
	d := BLAKE3.Sum(b)
	var wg sync.WaitGroup
	for range 8 {
		s := open(t, dir, dir)
		wg.Go(func() {
			for range 10 {
				path, err := s.Stage(d, true, opens(b))
				if err != nil {
					t.Error(err)
					return
				}
				if got, err := os.ReadFile(path); !errors.Is(err, fs.ErrNotExist) && (err != nil || BLAKE3.Sum(got) != d) {
					t.Errorf("%d bytes, %v", len(got), err)
				}
				os.Remove(path) // as another process that finds it wrong would
				if _, err := s.Stage(d, true, opens(b)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	wg.Wait()
	wantNoTemp(t, open(t, dir, dir))
}

func BenchmarkStage(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, dir)
	d := put(b, s, Pure, noise(1, 100<<10))
	b.Run("known", func(b *testing.B) {
		for b.Loop() {
			if _, err := s.Stage(d, true, nil); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("made", func(b *testing.B) {
		for b.Loop() {
			path, err := s.Stage(d, true, nil)
			if err == nil {
				err = os.Remove(path)
			}
			if err != nil {
				b.Fatal(err)
			}
		}
	})
}

// TestStageKeepsOne: who stages the same at the same time gets one file, which
// stays the one that it is.
func TestStageKeepsOne(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		for round := range 20 {
			b := noise(uint64(round), 4<<10)
			d := BLAKE3.Sum(b)
			infos := make([]fs.FileInfo, 8)
			var g sync.WaitGroup
			for i := range infos {
				g.Go(func() {
					path, err := s.Stage(d, false, opens(b))
					if err == nil {
						infos[i], err = os.Lstat(path)
					}
					if err != nil {
						t.Error(err)
					}
				})
			}
			g.Wait()
			for _, fi := range infos {
				if fi == nil || !os.SameFile(fi, infos[0]) {
					t.Fatal("one was replaced by another")
				}
			}
		}
		wantNoTemp(t, s)
	})
}
