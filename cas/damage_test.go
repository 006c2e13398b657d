package cas

import (
	"bytes"
	"context"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// damages are what can happen to a file. Those that keep the time are what only
// reading notices, unless the size gives them away.
var damages = []struct {
	name   string
	silent bool // Has can't notice
	gone   bool // Missing and not Damaged
	do     func(path string) error
}{
	{"flip", false, false, func(path string) error { return rewrite(path, false, flip) }},
	{"flip, time kept", true, false, func(path string) error { return rewrite(path, true, flip) }},
	{"truncate", false, false, func(path string) error { return rewrite(path, false, cut) }},
	{"truncate, time kept", false, false, func(path string) error { return rewrite(path, true, cut) }},
	{"empty", false, false, func(path string) error { return rewrite(path, true, func([]byte) []byte { return nil }) }},
	{"append, time kept", false, false, func(path string) error {
		return rewrite(path, true, func(b []byte) []byte { return append(b, 0) })
	}},
	{"delete", false, true, os.Remove},
	{"folder", false, false, func(path string) error { return errors.Join(os.Remove(path), os.Mkdir(path, 0o755)) }},
	{"full folder", false, false, func(path string) error {
		return errors.Join(os.Remove(path), os.MkdirAll(path+"/sub", 0o755))
	}},
	{"symlink", false, false, func(path string) error {
		return errors.Join(os.Rename(path, path[:len(path)-5]), os.Symlink(path[:len(path)-5], path))
	}},
	{"pipe", false, false, func(path string) error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o644)) }},
}

func flip(b []byte) []byte { b[len(b)/2] ^= 1; return b }
func cut(b []byte) []byte  { return b[:len(b)-1] }

func rewrite(path string, keepTime bool, change func([]byte) []byte) error {
	fi, err := os.Lstat(path)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	err = errors.Join(os.Chmod(path, 0o644), os.WriteFile(path, change(b), 0o644), os.Chmod(path, fi.Mode()))
	if keepTime {
		err = errors.Join(err, os.Chtimes(path, fi.ModTime(), fi.ModTime()))
	}
	return err
}

func TestDamage(t *testing.T) {
	for kind, b := range map[string][]byte{"small": prose(300), "packed": prose(6000), "noise": noise(1, 6000), "long": prose(1 << 20)} {
		for _, damage := range damages {
			t.Run(kind+"/"+damage.name, func(t *testing.T) {
				eachStore(t, func(t *testing.T, s *Store) {
					reason := Damaged
					if damage.gone {
						reason = Missing
					}
					hurt := func() Digest {
						d := put(t, s, Pure, b)
						if err := damage.do(fileOf(t, s, d)); err != nil {
							t.Fatal(err)
						}
						return d
					}
					d := hurt()
					if damage.silent {
						if err := s.Has(d); err != nil {
							t.Errorf("silent damage was noticed: %v", err)
						}
					} else {
						wantMoved(t, wantReason(t, s.Has(d), reason))
						wantReason(t, s.Has(d), Missing)
						hurt()
					}
					_, err := s.Read(d)
					wantMoved(t, wantReason(t, err, reason))
					hurt()
					dst := filepath.Join(t.TempDir(), "x")
					wantMoved(t, wantReason(t, s.Export(d, dst), reason))
					if _, err := os.Lstat(dst); err == nil {
						t.Error("damage was exported")
					}
					checkBlob(t, s, put(t, s, Pure, b), b)
				})
			})
		}
	}
}

func wantMoved(t *testing.T, err *BlobError) {
	t.Helper()
	if err.Reason == Missing {
		return
	}
	if _, statErr := os.Lstat(err.Moved); statErr != nil || !strings.Contains(err.Moved, "/quarantine/") {
		t.Errorf("%v: moved to %q: %v", err, err.Moved, statErr)
	}
}

// A reader that takes exactly Size bytes and never sees the end must learn of
// damage too.
func TestOpenTellsBeforeLastByte(t *testing.T) {
	for _, b := range [][]byte{prose(300), prose(6000), noise(1, 100_000)} {
		dir := t.TempDir()
		s := open(t, dir, dir)
		d := put(t, s, Pure, b)
		if err := rewrite(fileOf(t, s, d), true, flip); err != nil {
			t.Fatal(err)
		}
		r, err := s.Open(d)
		if err != nil {
			t.Fatal(err)
		}
		_, err = io.ReadFull(r, make([]byte, len(b)))
		wantReason(t, err, Damaged)
		_, again := r.Read(make([]byte, 1))
		if again != err {
			t.Errorf("then %v", again)
		}
		r.Close()
	}
}

func TestTouchedIsStampedAgain(t *testing.T) {
	for _, b := range [][]byte{{}, prose(300), prose(6000)} {
		dir := t.TempDir()
		s := open(t, dir, dir)
		d := put(t, s, Pure, b)
		path := fileOf(t, s, d)
		now := stampOf(d, 1<<40)
		if err := os.Chtimes(path, now, now); err != nil {
			t.Fatal(err)
		}
		if err := s.Has(d); err != nil {
			t.Error(err)
		}
		if fi, err := os.Lstat(path); err != nil || !fi.ModTime().Equal(stampOf(d, fi.Size())) {
			t.Errorf("%v, %v", fi.ModTime(), err)
		}
	}
}

// Who asks for a hash with another size is wrong; the file isn't.
func TestWrongSizeHarmsNothing(t *testing.T) {
	for _, b := range [][]byte{prose(300), prose(6000), noise(1, 6000)} {
		dir := t.TempDir()
		s := open(t, dir, dir)
		d := put(t, s, Pure, b)
		for _, size := range []int64{0, d.Size - 1, d.Size + 1, 4096, 1 << 62} {
			wrong := d
			wrong.Size = size
			wantReason(t, s.Has(wrong), Missing)
			_, err := s.Read(wrong)
			wantReason(t, err, Missing)
		}
		checkBlob(t, s, d, b)
	}
}

// If one root has a damaged copy and the other a good one, the good one serves.
func TestOtherRootServes(t *testing.T) {
	for _, keepTime := range []bool{false, true} {
		dir := t.TempDir()
		s := open(t, dir+"/cache", dir+"/data")
		b := prose(300)
		d := put(t, s, Pure, b)
		pure := fileOf(t, s, d)
		put(t, s, Capture, b)
		if err := rewrite(pure, keepTime, flip); err != nil {
			t.Fatal(err)
		}
		checkBlob(t, s, d, b)
	}
}

func TestVerify(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		good := put(t, s, Capture, prose(5000))
		touched := put(t, s, Pure, noise(9, 5000))
		now := stampOf(touched, 1<<40)
		if err := os.Chtimes(fileOf(t, s, touched), now, now); err != nil {
			t.Fatal(err)
		}
		want := map[[32]byte]bool{}
		for i, b := range [][]byte{prose(10), prose(6000), noise(1, 6000), prose(1 << 20)} {
			d := put(t, s, Class(1+i%2), b)
			if err := rewrite(fileOf(t, s, d), true, flip); err != nil {
				t.Fatal(err)
			}
			want[d.Hash] = true
		}
		if err := os.WriteFile(filepath.Dir(fileOf(t, s, good))+"/foreign", nil, 0o644); err != nil {
			t.Fatal(err)
		}
		n, err := s.Verify(t.Context(), func(e BlobError) {
			wantMoved(t, &e)
			if !want[e.Digest.Hash] {
				t.Errorf("%v", &e)
			}
			delete(want, e.Digest.Hash)
		})
		if err != nil || n != 6 || len(want) > 0 {
			t.Errorf("read %d blobs, %v; not found: %v", n, err, want)
		}
		n, err = s.Verify(t.Context(), func(e BlobError) { t.Errorf("again: %v", &e) })
		if err != nil || n != 2 {
			t.Errorf("then read %d blobs, %v", n, err)
		}
		fi, err := os.Lstat(fileOf(t, s, touched))
		if err != nil || !fi.ModTime().Equal(Stamp(touched)) {
			t.Errorf("not stamped again: %v, %v", fi.ModTime(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Verify(ctx, func(BlobError) {}); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		// Cancelled in the middle of a blob is no damage.
		d := put(t, s, Pure, prose(7000))
		f, err := s.find(d, s.roots(Pure))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := s.verifyFile(ctx, f, d); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled: %v", err)
		}
		if b, err := s.Read(d); err != nil || !bytes.Equal(b, prose(7000)) {
			t.Error(err)
		}
	})
}

// TestExportRace: writers that make the same folders at once must not take them
// from each other.
func TestExportRace(t *testing.T) {
	d := BLAKE3.Sum([]byte("x"))
	for round := range 100 {
		dir := filepath.Join(t.TempDir(), strconv.Itoa(round))
		var wg sync.WaitGroup
		errs := make([]error, 8)
		for i := range errs {
			wg.Go(func() {
				errs[i] = ExportReader(strings.NewReader("x"), d, filepath.Join(dir, "a/b/c", strconv.Itoa(i), "f"))
			})
		}
		wg.Wait()
		if err := errors.Join(errs...); err != nil {
			t.Fatalf("round %d: %v", round, err)
		}
	}
}
