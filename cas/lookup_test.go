package cas

import (
	"errors"
	"os"
	"strings"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"
)

var testKey = BLAKE3.Sum([]byte("the key"))

// record stores a result of two blobs.
func putTestResult(t testing.TB, s *Store, c Class) Result {
	t.Helper()
	r := Result{
		Files:    []OutputFile{{"out/a.txt", put(t, s, c, []byte("an output")), true, nil}},
		ExitCode: 3,
		Stdout:   put(t, s, c, prose(5000)),
		Aux:      map[string][]byte{"cost": []byte("0.01")},
	}
	if err := s.PutResult(c, testKey, r); err != nil {
		t.Fatal(err)
	}
	return r
}

// wantLost checks for the error that class c calls for.
func wantLost(t *testing.T, c Class, err error, reason string) {
	t.Helper()
	var miss *MissError
	var incomplete *IncompleteError
	got := ""
	switch {
	case c == Pure && errors.As(err, &miss):
		got = miss.Reason
	case c == Capture && errors.As(err, &incomplete):
		got = incomplete.Reason
	}
	if got == "" || !strings.Contains(got, reason) {
		t.Errorf("%v: got %T %v, want %q", c, err, err, reason)
	}
}

func TestLookup(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		t.Run(c.String(), func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Store) {
				_, err := s.Lookup(Capture, testKey)
				wantLost(t, Pure, err, "no result")
				want := putTestResult(t, s, c)
				got, err := s.Lookup(Capture, testKey)
				if diff := gocmp.Diff(want, got); diff != "" || err != nil {
					t.Fatal(err, diff)
				}
				again := open(t, s.cache.dir, s.data.dir)
				if got, err := again.Lookup(Capture, testKey); err != nil || !gocmp.Equal(got, want) {
					t.Errorf("another store: %+v, %v", got, err)
				}
				if err := s.Delete(testKey); err != nil {
					t.Error(err)
				}
				if err := s.Delete(testKey); err != nil {
					t.Error("deleting nothing:", err)
				}
				_, err = s.Lookup(Capture, testKey)
				wantLost(t, Pure, err, "no result")
			})
		})
	}
}

func TestLookupOfLostBlob(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		for i, damage := range damages {
			if damage.silent {
				continue
			}
			role := []string{"out/a.txt", "stdout"}[i%2]
			t.Run(c.String()+"/"+damage.name, func(t *testing.T) {
				eachStore(t, func(t *testing.T, s *Store) {
					r := putTestResult(t, s, c)
					d := r.Stdout
					if role != "stdout" {
						d = r.Files[0].Digest
					}
					if err := damage.do(fileOf(t, s, d)); err != nil {
						t.Fatal(err)
					}
					want := role + " is damaged"
					if damage.gone {
						want = role + " is missing"
					}
					_, err := s.Lookup(Capture, testKey)
					wantLost(t, c, err, want)
					var blob *BlobError
					if !errors.As(err, &blob) || blob.Digest != d {
						t.Errorf("the cause is %v, want blob %v", blob, d)
					}
					putTestResult(t, s, c) // heals
					if _, err := s.Lookup(Capture, testKey); err != nil {
						t.Error(err)
					}
				})
			})
		}
	}
}

// Each single changed byte of a result file must be noticed.
func TestLookupOfFlippedResult(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		eachStore(t, func(t *testing.T, s *Store) {
			putTestResult(t, s, c)
			path := s.root(c).resultPath(testKey)
			good, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			write := func(b []byte) {
				if err := errors.Join(os.RemoveAll(path), os.WriteFile(path, b, 0o600)); err != nil {
					t.Fatal(err)
				}
			}
			for i := range good {
				bad := append([]byte(nil), good...)
				bad[i] ^= 1 << (i % 8)
				write(bad)
				_, err := s.Lookup(Capture, testKey)
				want := c
				if s.cache == s.data && i < len(resultHeader(c)) {
					want = Capture // can't be told, so nothing may be drawn again
				}
				wantLost(t, want, err, "can't be read")
			}
			for _, n := range []int{len(good) - 1, len(good) / 2, len(resultHeader(c))} {
				write(good[:n])
				_, err := s.Lookup(Capture, testKey)
				wantLost(t, c, err, "can't be read")
			}
			if c == Pure {
				write(nil)
				_, err := s.Lookup(Capture, testKey)
				wantLost(t, c, err, "can't be read")
			}
			write(good)
			if _, err := s.Lookup(Capture, testKey); err != nil {
				t.Error(err)
			}
			longer := testKey
			longer.Size++
			_, err = s.Lookup(Capture, longer)
			wantLost(t, c, err, "can't be read")
			other := BLAKE3.Sum([]byte("another key"))
			if err := s.root(c).makeFor(other); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(path, s.root(c).resultPath(other)); err != nil {
				t.Fatal(err)
			}
			_, err = s.Lookup(Capture, other)
			wantLost(t, c, err, "can't be read")
			if err := os.Mkdir(path, 0o755); err != nil {
				t.Fatal(err)
			}
			want := c
			if s.cache == s.data {
				want = Capture
			}
			_, err = s.Lookup(Capture, testKey)
			wantLost(t, want, err, "can't be read")
		})
	}
}

// makeFor makes the folders of a key's result.
func (r *root) makeFor(key Digest) error {
	path := r.resultPath(key)
	return makeDirs(path[:strings.LastIndexByte(path, '/')], 0o755)
}

func TestPutResultHeals(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		for _, damage := range damages {
			eachStore(t, func(t *testing.T, s *Store) {
				want := putTestResult(t, s, c)
				if err := damage.do(s.root(c).resultPath(testKey)); err != nil {
					t.Fatal(err)
				}
				// A pure action never asks for a capture, so that its damaged record
				// can't be told from one is no hindrance: it goes to the quarantine.
				if c == Pure {
					_, err := s.Lookup(Pure, testKey)
					wantLost(t, Pure, err, "")
				}
				putTestResult(t, s, c)
				if got, err := s.Lookup(Capture, testKey); err != nil || !gocmp.Equal(got, want) {
					t.Errorf("%v after %s: %+v, %v", c, damage.name, got, err)
				}
			})
		}
	}
}

func TestPutResultRefuses(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		here := put(t, s, Capture, []byte("here"))
		refuse := func(c Class, key Digest, r Result, want string) {
			t.Helper()
			err := s.PutResult(c, key, r)
			if err == nil || !strings.Contains(err.Error(), want) || !strings.HasPrefix(err.Error(), "write result "+key.String()) {
				t.Errorf("got %v, want %q", err, want)
			}
		}
		refuse(0, testKey, Result{}, "unknown class 0")
		refuse(Pure, Digest{}, Result{}, "no digest")
		refuse(Pure, testKey, Result{Stdout: BLAKE3.Sum([]byte("not here"))}, "stdout: blob")
		refuse(Pure, SHA256.Sum(nil), Result{Stdout: here}, "under a key of sha256")
		refuse(Pure, testKey, Result{Files: []OutputFile{{"../x", here, false, nil}}}, "..")
		if err := s.PutResult(Capture, testKey, Result{Stdout: here}); err != nil {
			t.Fatal(err)
		}
		if err := s.PutResult(Capture, testKey, Result{Stdout: here}); err != nil {
			t.Errorf("the same capture again: %v", err)
		}
		refuse(Capture, testKey, Result{Stderr: here}, "another capture is recorded")
		refuse(Pure, testKey, Result{Stdout: here}, "a capture is recorded")
		if r, err := s.Lookup(Capture, testKey); err != nil || r.Stdout != here {
			t.Errorf("the capture has become %+v, %v", r, err)
		}
		key := BLAKE3.Sum([]byte("pure key"))
		for i := range int32(3) {
			if err := s.PutResult(Pure, key, Result{ExitCode: i}); err != nil {
				t.Error(err)
			}
			if r, err := s.Lookup(Capture, key); err != nil || r.ExitCode != i {
				t.Errorf("a pure result isn't replaced: %+v, %v", r, err)
			}
		}
	})
	dir := t.TempDir()
	s := open(t, dir+"/cache", dir+"/data")
	pure := put(t, s, Pure, []byte("only in the cache"))
	wantReason(t, s.PutResult(Capture, testKey, Result{Stdout: pure}), Missing)
}

func BenchmarkLookup2Blobs(b *testing.B) {
	for _, c := range []Class{Pure, Capture} {
		b.Run(c.String(), func(b *testing.B) {
			dir := b.TempDir()
			s := open(b, dir+"/cache", dir+"/data")
			putTestResult(b, s, c)
			for b.Loop() {
				if _, err := s.Lookup(c, testKey); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// TestInlined: content carried in a result needs no blob, also where it is
// empty, and damage to it is damage to the result.
func TestInlined(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	small := []byte("small")
	want := Result{Files: []OutputFile{
		{"empty", BLAKE3.Sum(nil), false, nil},
		{"small", BLAKE3.Sum(small), false, small},
	}}
	if err := s.PutResult(Pure, testKey, want); err != nil {
		t.Fatal(err)
	}
	got, err := s.Lookup(Pure, testKey)
	if diff := gocmp.Diff(want, got); err != nil || diff != "" {
		t.Errorf("%v %s", err, diff)
	}
	if err := s.Has(BLAKE3.Sum(small)); err == nil {
		t.Error("a blob was written for content that the result carries")
	}
	wrong := Result{Files: []OutputFile{{"small", BLAKE3.Sum(nil), false, small}}}
	if err := s.PutResult(Pure, BLAKE3.Sum([]byte("k2")), wrong); err == nil {
		t.Error("content of another digest was recorded")
	}
}
