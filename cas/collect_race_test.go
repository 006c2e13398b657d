package cas

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// TestCollectRaces: whatever a writer or reader does between two steps of a
// collection, what it was told stays true.
func TestCollectRaces(t *testing.T) {
	b := noise(1, 9000)
	d := BLAKE3.Sum(b)
	hit := Result{Stdout: d}
	for _, race := range []struct {
		name, step string
		recorded   bool // a result names the blob at first
		do         func(s *Store) error
		hits       string
	}{
		{"a blob is put again", "file ", false, func(s *Store) error { _, err := s.Put(Pure, b); return err }, ""},
		{"a blob is put again by stream", "file ", false, func(s *Store) error {
			_, err := s.PutReader(Pure, strings.NewReader(string(b)))
			return err
		}, ""},
		{"a result names it, after the results were read", "marked", false, func(s *Store) error { return s.PutResult(Pure, keyOf("new"), hit) }, "new"},
		{"a result names it, just before it goes", "file ", false, func(s *Store) error { return s.PutResult(Pure, keyOf("new"), hit) }, "new"},
		{"another result names it", "file ", true, func(s *Store) error { return s.PutResult(Pure, keyOf("new"), hit) }, "new"},
		{"the result is looked up", "result ", true, func(s *Store) error { _, err := s.Lookup(Pure, keyOf("old")); return err }, "old"},
		{"the result is recorded again", "result ", true, func(s *Store) error { return s.PutResult(Pure, keyOf("old"), hit) }, "old"},
	} {
		t.Run(race.name, func(t *testing.T) {
			eachStore(t, func(t *testing.T, s *Store) {
				put(t, s, Pure, b)
				if race.recorded {
					putResult(t, s, Pure, "old", hit)
				}
				age(t, s, 40*day)
				done := false
				s.hook = func(step string) {
					if strings.HasPrefix(step, race.step) && !done {
						done = true
						if err := race.do(s); err != nil {
							t.Error(err)
						}
					}
				}
				collect(t, s, CollectOptions{MaxAge: 30 * day})
				if !done {
					t.Fatalf("no step %q", race.step)
				}
				if got, err := s.Read(d); err != nil || string(got) != string(b) {
					t.Error(err)
				}
				wantHits(t, s, race.hits, "")
			})
		})
	}
	t.Run("a copy is staged", func(t *testing.T) {
		s := open(t, t.TempDir(), t.TempDir())
		put(t, s, Pure, b)
		if _, err := s.Stage(d, false, nil); err != nil {
			t.Fatal(err)
		}
		age(t, s, 40*day)
		path := ""
		s.hook = func(step string) {
			if strings.Contains(step, "/plain/") {
				var err error
				if path, err = s.Stage(d, false, nil); err != nil {
					t.Error(err)
				}
			}
		}
		collect(t, s, CollectOptions{MaxAge: 30 * day})
		if _, err := os.Lstat(path); err != nil {
			t.Error(err)
		}
	})
}

// TestCollectGoneBefore: a writer that saw the file, and touches it when it is
// gone, writes it.
func TestCollectGoneBefore(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	d := put(t, s, Pure, noise(1, 9000))
	age(t, s, 2*time.Hour)
	before := s.changed
	removed := false
	s.changed = func(fi os.FileInfo) time.Time { // between its look and its touch
		at := before(fi)
		if !removed {
			removed = os.Remove(fileOf(t, s, d)) == nil
		}
		return at
	}
	put(t, s, Pure, noise(1, 9000))
	if !removed {
		t.Fatal("the test did nothing")
	}
	checkBlob(t, s, d, noise(1, 9000))
}

// TestCollectWhileBuilding has builders look up, remake and read results while
// two collectors remove all that is older than a short grace time.
func TestCollectWhileBuilding(t *testing.T) {
	if testing.Short() {
		t.Skip("takes two seconds")
	}
	dir := t.TempDir()
	stores := []*Store{open(t, dir, dir), open(t, dir, dir)}
	for _, s := range stores {
		s.grace = 200 * time.Millisecond
	}
	end := time.Now().Add(2 * time.Second)
	var made, removed atomic.Int64
	var wg sync.WaitGroup
	for g := range 4 {
		s := stores[g%2]
		wg.Go(func() {
			for round := 0; time.Now().Before(end); round++ {
				if err := buildOne(s, (g+round)%10, &made); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for _, s := range stores {
		wg.Go(func() {
			for time.Now().Before(end) {
				r, err := s.Collect(t.Context(), CollectOptions{MaxAge: 1})
				if err != nil {
					t.Error(err)
					return
				}
				removed.Add(int64(r.Removed.Blobs))
			}
		})
	}
	wg.Wait()
	if made.Load() <= 10 || removed.Load() == 0 {
		t.Errorf("%d results made, %d blobs removed: the test did nothing", made.Load(), removed.Load())
	}
	v, err := stores[0].Verify(t.Context(), func(d Damage) { t.Error(&d) })
	if err != nil || v.Captures != 0 {
		t.Errorf("%+v, %v", v, err)
	}
}

// buildOne is what the engine does with an action: a hit is read, a miss or a
// blob that is gone is made again.
func buildOne(s *Store, n int, made *atomic.Int64) error {
	want := [2][]byte{noise(uint64(n), 6000), noise(uint64(n/2), 7000)} // the second is shared
	for {
		r, err := s.Lookup(Pure, keyOf(fmt.Sprint(n)))
		var miss *MissError
		if errors.As(err, &miss) {
			began := time.Now()
			for i, to := range []*Digest{&r.Stdout, &r.Stderr} {
				if *to, err = s.Put(Pure, want[i]); err != nil {
					return err
				}
			}
			err = s.PutResult(Pure, keyOf(fmt.Sprint(n)), r)
			if err != nil && time.Since(began) > s.grace/2 {
				continue // a machine that stands still breaks the assumption
			}
			made.Add(1)
		}
		if err != nil {
			return err
		}
		whole := true
		for i, d := range []Digest{r.Stdout, r.Stderr} {
			b, err := s.Read(d)
			var blob *BlobError
			switch {
			case errors.As(err, &blob) && blob.Reason == Missing:
				whole = false
			case err != nil:
				return err
			case string(b) != string(want[i]):
				return fmt.Errorf("%d: read something else", n)
			}
		}
		if whole {
			return nil
		}
	}
}

// TestCollectKilled stops a collection at each of its steps.
func TestCollectKilled(t *testing.T) {
	for stop := 0; ; stop++ {
		s := open(t, t.TempDir(), t.TempDir())
		put(t, s, Pure, noise(50, 5000))
		for i := range 3 {
			putResult(t, s, Pure, fmt.Sprint(i), Result{Stdout: put(t, s, Pure, noise(uint64(i), 5000)), Stderr: put(t, s, Pure, prose(5000))})
		}
		if _, err := s.Stage(BLAKE3.Sum(prose(5000)), false, nil); err != nil {
			t.Fatal(err)
		}
		age(t, s, 40*day)
		steps := 0
		killed := func() (killed bool) {
			s.hook = func(string) {
				if steps++; steps > stop {
					panic("killed")
				}
			}
			defer func() { killed = recover() != nil }()
			collect(t, s, CollectOptions{MaxAge: 30 * day})
			return false
		}()
		s.hook = func(string) {}
		for i := range 3 {
			if _, err := s.Lookup(Pure, keyOf(fmt.Sprint(i))); err != nil {
				wantLost(t, Pure, err, "no result")
			}
		}
		if _, err := s.Verify(t.Context(), func(d Damage) { t.Error(&d) }); err != nil {
			t.Error(err)
		}
		age(t, s, 40*day)
		collect(t, s, CollectOptions{MaxAge: 30 * day})
		for _, kind := range []string{"ac", "cas", "plain"} {
			if left := under(t, s.cache.path(kind)); len(left) > 0 {
				t.Errorf("stopped at step %d, then collected: %q is left", stop, left)
			}
		}
		if !killed {
			if stop < 8 {
				t.Errorf("only %d steps", stop)
			}
			return
		}
	}
}

// TestPlaceWaits: a writer who saw no file can't put his in the place of one that
// Collect is about to remove.
func TestPlaceWaits(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	small, large := prose(300), noise(1, sampleSize+1)
	for _, b := range [][]byte{small, large} {
		d := BLAKE3.Sum(b)
		unlock, err := s.lockOffset(t.Context(), blobOffset(d))
		if err != nil {
			t.Fatal(err)
		}
		placed := make(chan error)
		go func() {
			_, err := s.Put(Pure, b)
			placed <- err
		}()
		for len(under(t, s.cache.path(tempName))) == 0 && s.Has(d) != nil { // until it is written
			runtime.Gosched()
		}
		for range 100 {
			runtime.Gosched()
			if s.Has(d) == nil {
				t.Fatal("the blob got its name under the lock of another")
			}
		}
		unlock()
		if err := <-placed; err != nil {
			t.Error(err)
		}
		checkBlob(t, s, d, b)
	}
}

// TestSpareUnderKeyLock: a key is the digest of a blob as well, and its holder
// may put that.
func TestSpareUnderKeyLock(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	d := put(t, s, Pure, prose(300))
	age(t, s, 2*time.Hour)
	unlock, err := s.Lock(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer unlock()
	put(t, s, Pure, prose(300)) // waits forever if the lock is the same
}
