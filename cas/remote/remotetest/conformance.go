package remotetest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/google/go-cmp/cmp"
)

// Backend is a place for blobs and results. What isn't there is ErrAbsent.
type Backend interface {
	Func() cas.Func // of the digests that it takes
	PutBlob(ctx context.Context, d cas.Digest, b []byte) error
	GetBlob(ctx context.Context, d cas.Digest) ([]byte, error)
	Missing(ctx context.Context, ds []cas.Digest) ([]cas.Digest, error)
	PutResult(ctx context.Context, key cas.Digest, msg []byte) error
	GetResult(ctx context.Context, key cas.Digest) ([]byte, error)
}

// ErrAbsent is what a Backend says of what it doesn't have.
var ErrAbsent = errors.New("absent")

// Conformance runs the suite on one backend.
func Conformance(t *testing.T, open func(t testing.TB) Backend) {
	b := open(t)
	for _, c := range checks {
		t.Run(c.name, func(t *testing.T) {
			if err := c.run(t.Context(), b); err != nil {
				t.Error(err)
			}
		})
	}
}

// Check runs the suite on one backend and gives the first thing that is wrong
// with it.
func Check(ctx context.Context, b Backend) error {
	for _, c := range checks {
		if err := c.run(ctx, b); err != nil {
			return fmt.Errorf("%s: %w", c.name, err)
		}
	}
	return nil
}

// checks use blobs of their own, so that they can share a backend.
var checks = []struct {
	name string
	run  func(context.Context, Backend) error
}{
	{"blobs come back", checkBlobs},
	{"absent", checkAbsent},
	{"missing", checkMissing},
	{"wrong bytes are refused", checkWrong},
	{"results come back", checkResults},
	{"a result is replaced", checkReplace},
	{"many at once", checkConcurrent},
	{"a cancelled call ends", checkCancelled},
	{"a large blob comes back", checkLarge}, // last, as it takes longest: 0.1 µs a byte with the race detector
}

// Bytes gives n bytes that are the same for the same seed. Packable ones
// shrink to less than half.
func Bytes(seed uint64, n int, packable bool) []byte {
	rng := rand.New(rand.NewPCG(seed, uint64(n)))
	b := make([]byte, n)
	for i := 0; i < n; i += 8 {
		v := rng.Uint64()
		if packable {
			v = v&0x0303030303030303 | 0x6060606060606060 // "`abc"
		}
		for j := range min(8, n-i) {
			b[i+j] = byte(v >> (8 * j))
		}
	}
	return b
}

func roundTrip(ctx context.Context, b Backend, data []byte) error {
	d := b.Func().Sum(data)
	if err := b.PutBlob(ctx, d, data); err != nil {
		return fmt.Errorf("put %d bytes: %w", len(data), err)
	}
	got, err := b.GetBlob(ctx, d)
	if err != nil {
		return fmt.Errorf("get %d bytes: %w", len(data), err)
	}
	if !bytes.Equal(got, data) {
		return fmt.Errorf("put %d bytes, got %d that are not the same", len(data), len(got))
	}
	return nil
}

func checkBlobs(ctx context.Context, b Backend) error {
	for i, n := range []int{0, 1, 100, 1023, 4096, 64<<10 + 1, 200_000} {
		for _, packable := range []bool{false, true} {
			data := Bytes(uint64(i), n, packable)
			if err := roundTrip(ctx, b, data); err != nil {
				return err
			}
			if n > 100<<10 {
				continue
			}
			if err := roundTrip(ctx, b, data); err != nil {
				return fmt.Errorf("again: %w", err)
			}
		}
	}
	return nil
}

func checkLarge(ctx context.Context, b Backend) error {
	return roundTrip(ctx, b, Bytes(99, 1_100_003, false)) // some chunks of a stream
}

func checkAbsent(ctx context.Context, b Backend) error {
	for _, n := range []int64{10, 8 << 10, 4 << 20} {
		d := b.Func().Sum(Bytes(100, 10, true))
		d.Size = n
		if got, err := b.GetBlob(ctx, d); !errors.Is(err, ErrAbsent) {
			return fmt.Errorf("get a blob of %d bytes that was never put: %d bytes, %v", n, len(got), err)
		}
	}
	if _, err := b.GetResult(ctx, b.Func().Sum([]byte("no such key"))); !errors.Is(err, ErrAbsent) {
		return fmt.Errorf("get a result that was never put: %v", err)
	}
	return nil
}

func checkMissing(ctx context.Context, b Backend) error {
	var all, absent []cas.Digest
	for i := range 60 {
		data := Bytes(uint64(200+i), 20+i, false)
		d := b.Func().Sum(data)
		all = append(all, d)
		if i%3 == 0 {
			if err := b.PutBlob(ctx, d, data); err != nil {
				return err
			}
			continue
		}
		absent = append(absent, d)
	}
	all = append(all, b.Func().Sum(nil))
	got, err := b.Missing(ctx, all)
	if err != nil {
		return err
	}
	if !slices.Equal(got, absent) {
		return fmt.Errorf("%d of %d are missing, got %d or not in order", len(absent), len(all), len(got))
	}
	if got, err := b.Missing(ctx, nil); err != nil || len(got) != 0 {
		return fmt.Errorf("missing of nothing: %v, %w", got, err)
	}
	return nil
}

func checkWrong(ctx context.Context, b Backend) error {
	for i, n := range []int{50, 8 << 10, 100_000} {
		for _, packable := range []bool{false, true} {
			data := Bytes(uint64(600+i), n, packable)
			d := b.Func().Sum(data)
			data[n/2] ^= 1
			if err := b.PutBlob(ctx, d, data); err == nil {
				return fmt.Errorf("put %d wrong bytes: no error", n)
			}
			if _, err := b.GetBlob(ctx, d); !errors.Is(err, ErrAbsent) {
				return fmt.Errorf("get a blob of which wrong bytes were put: %v", err)
			}
		}
	}
	return nil
}

// sample puts the blobs of a result and gives it.
func sample(ctx context.Context, b Backend, n int) (cas.Result, []byte, error) {
	f := b.Func()
	var r cas.Result
	for i := range n {
		data := Bytes(uint64(1000+i), 10*i+1, true)
		if err := b.PutBlob(ctx, f.Sum(data), data); err != nil {
			return r, nil, err
		}
		r.Files = append(r.Files, cas.OutputFile{Path: fmt.Sprintf("out/%03d.txt", i), Digest: f.Sum(data), Executable: i%2 == 1})
	}
	out := Bytes(1999, 77, true)
	if err := b.PutBlob(ctx, f.Sum(out), out); err != nil {
		return r, nil, err
	}
	r.Stdout = f.Sum(out)
	r.Links = []cas.OutputLink{{Path: "out/link", Target: "000.txt"}}
	r.ExitCode = 3
	r.Aux = map[string][]byte{"note": []byte("kept \x00\xff as it is"), "size": Bytes(7, n*10, false)}
	msg, err := r.Encode()
	return r, msg, err
}

func putGet(ctx context.Context, b Backend, key cas.Digest, want cas.Result, msg []byte) error {
	if err := b.PutResult(ctx, key, msg); err != nil {
		return fmt.Errorf("put a result of %d bytes: %w", len(msg), err)
	}
	back, err := b.GetResult(ctx, key)
	if err != nil {
		return fmt.Errorf("get a result of %d bytes: %w", len(msg), err)
	}
	got, err := cas.DecodeResult(b.Func(), back)
	if err != nil {
		return err
	}
	if diff := cmp.Diff(want, got); diff != "" {
		return fmt.Errorf("the result came back otherwise (-put +got):\n%s", diff)
	}
	return nil
}

func checkResults(ctx context.Context, b Backend) error {
	for _, n := range []int{1, 10, 100} {
		want, msg, err := sample(ctx, b, n)
		if err != nil {
			return err
		}
		key := b.Func().Sum([]byte(fmt.Sprintf("key of %d", n)))
		if err := putGet(ctx, b, key, want, msg); err != nil {
			return err
		}
	}
	return nil
}

func checkReplace(ctx context.Context, b Backend) error {
	key := b.Func().Sum([]byte("key with two results"))
	for n := range 2 {
		want, msg, err := sample(ctx, b, n+1)
		if err != nil {
			return err
		}
		if err := putGet(ctx, b, key, want, msg); err != nil {
			return err
		}
	}
	return nil
}

func checkConcurrent(ctx context.Context, b Backend) error {
	const each = 8
	errs := make([]error, 6)
	var wg sync.WaitGroup
	for g := range errs {
		wg.Go(func() {
			for i := range each {
				// Half of the blobs are those of the neighbour, too.
				seed := uint64(3000 + (g/2)*each + i)
				if err := roundTrip(ctx, b, Bytes(seed, 1+i*5000, i%2 == 0)); err != nil {
					errs[g] = err
					return
				}
			}
		})
	}
	wg.Wait()
	return errors.Join(errs...)
}

func checkCancelled(ctx context.Context, b Backend) error {
	ctx, cancel := context.WithCancel(ctx)
	cancel()
	data := Bytes(4000, 100, false)
	d := b.Func().Sum(data)
	if err := b.PutBlob(ctx, d, data); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("put with a context that has ended: %v", err)
	}
	if _, err := b.GetBlob(ctx, d); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("get with a context that has ended: %v", err)
	}
	if _, err := b.GetResult(ctx, d); !errors.Is(err, context.Canceled) {
		return fmt.Errorf("get a result with a context that has ended: %v", err)
	}
	return nil
}
