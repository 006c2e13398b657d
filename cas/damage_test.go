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
		v, err := s.Verify(t.Context(), func(e Damage) {
			wantQuarantined(t, e)
			d, err := ParseDigest(e.Name)
			if err != nil || e.What != "blob" || !want[d.Hash] {
				t.Errorf("%v, %v", &e, err)
			}
			delete(want, d.Hash)
		})
		if err != nil || v.Blobs != 6 || len(want) > 0 {
			t.Errorf("read %+v, %v; not found: %v", v, err, want)
		}
		v, err = s.Verify(t.Context(), func(e Damage) { t.Errorf("again: %v", &e) })
		if err != nil || v != (Verified{Blobs: 2}) {
			t.Errorf("then read %+v, %v", v, err)
		}
		fi, err := os.Lstat(fileOf(t, s, touched))
		if err != nil || !fi.ModTime().Equal(Stamp(touched)) {
			t.Errorf("not stamped again: %v, %v", fi.ModTime(), err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Verify(ctx, func(Damage) {}); !errors.Is(err, context.Canceled) {
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

func wantQuarantined(t *testing.T, e Damage) {
	t.Helper()
	if _, err := os.Lstat(e.Moved); err != nil || !strings.Contains(e.Moved, "/quarantine/") {
		t.Errorf("%v: moved to %q: %v", &e, e.Moved, err)
	}
}

// TestVerifyKinds: whatever kind of file is damaged is found, named, and put
// away, but for what says that something was drawn.
func TestVerifyKinds(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		mine := putTestResult(t, s, Capture)
		pureKey, lost := BLAKE3.Sum([]byte("a pure key")), BLAKE3.Sum([]byte("a key whose blob goes"))
		if err := s.PutResult(Pure, pureKey, Result{ExitCode: 3}); err != nil {
			t.Fatal(err)
		}
		gone := put(t, s, Capture, []byte("this blob goes"))
		if err := s.PutResult(Capture, lost, Result{Stdout: gone}); err != nil {
			t.Fatal(err)
		}
		content := put(t, s, Pure, prose(300))
		var copies []string
		for _, executable := range []bool{false, true} {
			path, err := s.Stage(content, executable, nil)
			if err != nil {
				t.Fatal(err)
			}
			copies = append(copies, path)
		}
		stone := Tombstone{Capture: content, Key: content, When: "2026-01-01T00:00:00Z", Why: "no reason"}
		text, err := stone.encode()
		if err == nil {
			err = s.writeSmall(Capture, s.data.tombstonePath(content), Digest{}, s.now(), text)
		}
		if err != nil {
			t.Fatal(err)
		}
		verify := func() (found map[string]Damage) {
			t.Helper()
			found = map[string]Damage{}
			v, err := s.Verify(t.Context(), func(d Damage) { found[d.What+" "+d.Name] = d })
			if err != nil || v.Blobs == 0 {
				t.Errorf("%+v, %v", v, err)
			}
			return found
		}
		if found := verify(); len(found) > 0 {
			t.Errorf("nothing is damaged, but %v", found)
		}
		for _, path := range append(copies, s.cache.resultPath(pureKey), s.data.resultPath(testKey), s.data.tombstonePath(content)) {
			if err := rewrite(path, true, flip); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.Remove(fileOf(t, s, gone)); err != nil {
			t.Fatal(err)
		}
		stay := map[string]string{
			"capture " + nameOf(testKey):   "damaged: its checksum is wrong",
			"capture " + lost.String():     "stdout is missing",
			"tombstone " + nameOf(content): "damaged: it is",
		}
		found := verify()
		for name, reason := range stay {
			if d := found[name]; !strings.HasPrefix(d.Reason, reason) || d.Moved != "" || d.Fetch != strings.HasPrefix(name, "capture") {
				t.Errorf("%s: found %+v", name, d)
			}
			delete(found, name)
		}
		for _, name := range []string{"result " + nameOf(pureKey), "plain copy " + content.String()} {
			wantQuarantined(t, found[name])
			delete(found, name)
		}
		if len(found) > 0 {
			t.Errorf("found too: %v", found)
		}
		for _, path := range copies {
			if _, err := os.Lstat(path); err == nil {
				t.Errorf("%s is still there", path)
			}
		}
		if found := verify(); len(found) != len(stay) {
			t.Errorf("found again: %v", found)
		}
		// Nothing may be drawn again, until it is brought back.
		for _, key := range []Digest{testKey, lost, content} {
			var incomplete *IncompleteError
			if _, err := s.Lookup(Capture, key); !errors.As(err, &incomplete) {
				t.Errorf("look up %v: %v", key, err)
			}
		}
		if err := s.PutResult(Capture, testKey, mine); err != nil {
			t.Error(err)
		}
		put(t, s, Capture, []byte("this blob goes"))
		if found := verify(); len(found) != 1 {
			t.Errorf("found after all captures are back: %v", found)
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
