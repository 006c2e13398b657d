package cas

import (
	"bytes"
	"errors"
	"os"
	"strings"
	"testing"
	"time"
)

// paid puts a capture of a text, a folder of one file, and a blob that others
// may share.
func paid(t testing.TB, s *Store, name string, shared []byte) Result {
	t.Helper()
	b := NewTree(BLAKE3)
	b.File("a/b", put(t, s, Capture, []byte("in a folder of "+name)), false)
	tree, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	message, err := s.PutTree(Capture, tree)
	if err != nil {
		t.Fatal(err)
	}
	r := Result{
		Stdout:  put(t, s, Capture, []byte("a reply of "+name)),
		Stderr:  put(t, s, Capture, shared),
		Folders: []OutputFolder{{Path: "out", Tree: message}},
	}
	putResult(t, s, Capture, name, r)
	return r
}

func wantTombstone(t *testing.T, err error, when, why string) {
	t.Helper()
	var stone *TombstoneError
	if !errors.As(err, &stone) || stone.When != when || stone.Why != why {
		t.Errorf("got %v; want a tombstone of %s: %s", err, when, why)
	}
	var miss *MissError
	if errors.As(err, &miss) {
		t.Errorf("%v is a miss, so it would be drawn again", err)
	}
}

func TestDeleteCapture(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		shared := prose(9000)
		r := paid(t, s, "mine", shared)
		paid(t, s, "other", shared)
		age(t, s, 2*time.Hour)
		s.now = func() time.Time { return time.Now().In(time.FixedZone("", 7200)) }
		const why = "it holds a <password> & a name\n"
		before := len(under(t, s.data.dir))
		for _, dry := range []bool{true, false} {
			got, err := s.DeleteCapture(t.Context(), keyOf("mine"), why, dry)
			if err != nil || got.Blobs != 3 || got.Why != why || got.Key != keyOf("mine") {
				t.Fatalf("%+v, %v", got, err)
			}
			if left := len(under(t, s.data.dir)); dry && left != before {
				t.Errorf("dry, of %d files %d are left", before, left)
			}
		}
		text, err := os.ReadFile(s.data.tombstonePath(keyOf("mine")))
		if err != nil {
			t.Fatal(err)
		}
		stone, err := readTombstone(s.data.tombstonePath(keyOf("mine")), keyOf("mine"))
		msg, _ := r.Encode()
		if err != nil || stone.Capture != BLAKE3.Sum(msg) || !strings.HasPrefix(string(text), `{"capture":"blake3:`) ||
			!bytes.HasSuffix(text, []byte(`Z","why":"it holds a <password> & a name\n"}`)) {
			t.Errorf("%s\n%+v, %v", text, stone, err)
		}
		if when, err := time.Parse(time.RFC3339, stone.When); err != nil || time.Since(when) > time.Minute {
			t.Errorf("deleted on %s, %v", stone.When, err)
		}
		_, err = s.Lookup(Capture, keyOf("mine"))
		wantTombstone(t, err, stone.When, why)
		for _, d := range []Digest{r.Stdout, r.Folders[0].Tree, BLAKE3.Sum([]byte("in a folder of mine"))} {
			wantReason(t, s.Has(d), Missing)
		}
		wantHits(t, s, "other", "")
		if v, err := s.Verify(t.Context(), func(d Damage) { t.Error(&d) }); err != nil || v.Tombstones != 1 || v.Captures != 1 {
			t.Errorf("%+v, %v", v, err)
		}

		// Nothing else may take its place; it may come back.
		_, err = s.DeleteCapture(t.Context(), keyOf("mine"), "another reason", false)
		wantTombstone(t, err, stone.When, why)
		wantTombstone(t, s.PutResult(Capture, keyOf("mine"), Result{Stderr: r.Stderr}), stone.When, why)
		wantReason(t, s.PutResult(Capture, keyOf("mine"), r), Missing)
		_, err = s.Lookup(Capture, keyOf("mine"))
		wantTombstone(t, err, stone.When, why)
		paid(t, s, "mine", shared)
		wantHits(t, s, "mine other", "")
		// Killed just before the tombstone went, it is the same again.
		path := s.data.tombstonePath(keyOf("mine"))
		if err := os.WriteFile(path, text, 0o600); err != nil {
			t.Fatal(err)
		}
		paid(t, s, "mine", shared)
		if _, err := os.Lstat(path); err == nil {
			t.Error("the tombstone of a capture that is back stays")
		}
		if left := len(under(t, s.data.dir)); left != before {
			t.Errorf("%d files were there, now %d", before, left)
		}
	})
}

func TestDeleteCaptureRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		paid(t, s, "mine", prose(9000))
		paid(t, s, "other", prose(9000))
		putResult(t, s, Pure, "pure", Result{ExitCode: 1})
		refuse := func(name, why string, want error, text string) {
			t.Helper()
			before := len(under(t, s.data.dir))
			_, err := s.DeleteCapture(t.Context(), keyOf(name), why, false)
			if err == nil || want != nil && !errors.Is(err, want) || !strings.HasPrefix(err.Error(), "delete capture "+keyOf(name).String()+": "+text) {
				t.Errorf("%s: got %v", name, err)
			}
			if n := len(under(t, s.data.dir)); n != before {
				t.Errorf("%s: of %d files %d are left", name, before, n)
			}
		}
		refuse("mine", "why not", ErrYoung, "")
		age(t, s, 2*time.Hour)
		refuse("mine", " \n", nil, "no reason is given")
		refuse("mine", "\xff", nil, "the reason is not UTF-8")
		refuse("mine", strings.Repeat("x", maxWhy+1), nil, "the reason is not UTF-8 of at most")
		refuse("pure", "why not", ErrNoCapture, "")
		refuse("none", "why not", ErrNoCapture, "")
		put(t, s, Capture, []byte("a reply of mine")) // a build counts on it now
		refuse("mine", "why not", ErrYoung, "")
		age(t, s, 2*time.Hour)
		other := s.data.resultPath(keyOf("other"))
		if err := rewrite(other, true, flip); err != nil {
			t.Fatal(err)
		}
		refuse("other", "why not", nil, "it can't be read")
		refuse("mine", "why not", nil, "capture "+nameOf(keyOf("other"))+" can't be read, so that what it names isn't known")
		if err := rewrite(other, true, flip); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DeleteCapture(t.Context(), keyOf("mine"), "why not", false); err != nil {
			t.Error(err)
		}
	})
}

// TestDeleteCaptureCutShort: whenever it is killed, the capture reads as deleted
// once anything of it is gone, and the deletion can be ended.
func TestDeleteCaptureCutShort(t *testing.T) {
	for stop := 1; ; stop++ {
		s := open(t, t.TempDir(), t.TempDir())
		paid(t, s, "mine", prose(9000))
		age(t, s, 2*time.Hour)
		now := time.Now()
		s.now = func() time.Time { return now }
		steps := 0
		killed := func() (killed bool) {
			s.hook = func(string) {
				if steps++; steps == stop {
					panic("killed")
				}
			}
			defer func() { killed = recover() != nil }()
			s.DeleteCapture(t.Context(), keyOf("mine"), "first reason", false)
			return false
		}()
		if !killed {
			if stop < 5 {
				t.Errorf("only %d steps", stop)
			}
			return
		}
		when := now.UTC().Format(time.RFC3339)
		_, err := s.Lookup(Capture, keyOf("mine"))
		wantTombstone(t, err, when, "first reason")
		now = now.Add(time.Minute)
		got, err := s.DeleteCapture(t.Context(), keyOf("mine"), "second reason", false)
		if err != nil || got.When != when || got.Why != "first reason" {
			t.Errorf("stopped at step %d: %+v, %v", stop, got, err)
		}
		if left := append(under(t, s.data.path("cas")), under(t, s.data.path("ac"))...); len(left) > 0 {
			t.Errorf("stopped at step %d: %q is left", stop, left)
		}
	}
}

// TestDeleteCaptureRace: a build that puts a blob of it while it is deleted
// keeps the blob.
func TestDeleteCaptureRace(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		r := paid(t, s, "mine", prose(9000))
		age(t, s, 2*time.Hour)
		s.hook = func(step string) {
			if step == "tombstone written" {
				putResult(t, s, Capture, "other", Result{Stdout: put(t, s, Capture, []byte("a reply of mine"))})
			}
		}
		if _, err := s.DeleteCapture(t.Context(), keyOf("mine"), "why not", false); err != nil {
			t.Fatal(err)
		}
		wantHits(t, s, "other", "")
		wantReason(t, s.Has(r.Stderr), Missing)
	})
}

// TestTombstoneDamaged: a tombstone that can't be read still forbids.
func TestTombstoneDamaged(t *testing.T) {
	for _, damage := range []func([]byte) []byte{
		func([]byte) []byte { return nil },
		func([]byte) []byte { return []byte("{}") },
		func([]byte) []byte { return []byte(`{"capture":"","key":"","when":"","why":""}`) },
		func(b []byte) []byte { return append(b, ' ') }, // not canonical
		cut,
	} {
		s := open(t, t.TempDir(), t.TempDir())
		r := paid(t, s, "mine", prose(9000))
		age(t, s, 2*time.Hour)
		if _, err := s.DeleteCapture(t.Context(), keyOf("mine"), "why not", false); err != nil {
			t.Fatal(err)
		}
		path := s.data.tombstonePath(keyOf("mine"))
		if err := rewrite(path, true, damage); err != nil {
			t.Fatal(err)
		}
		_, err := s.Lookup(Capture, keyOf("mine"))
		wantLost(t, Capture, err, "its tombstone can't be read: it is")
		put(t, s, Capture, prose(9000))
		err = s.PutResult(Capture, keyOf("mine"), Result{Stderr: r.Stderr})
		wantLost(t, Capture, err, "its tombstone can't be read: it is")
	}
}
