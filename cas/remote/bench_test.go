package remote

import (
	"fmt"
	"sync"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// BenchmarkFetchSmall brings a thousand small results, asked for at once.
func BenchmarkFetchSmall(b *testing.B) {
	const n = 1000
	f := remotetest.Start(b, remotetest.Knobs{NoRecord: true})
	a := join(b, f.Address, setup{})
	for i := range n {
		name := fmt.Sprint(i)
		a.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, a.small(b, cas.Pure, name), nil)
	}
	a.flush(b)
	for b.Loop() {
		m := join(b, f.Address, setup{})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := m.Fetch(b.Context(), cas.Pure, keyOf(cas.BLAKE3, fmt.Sprint(i)), cas.Digest{}); err != nil {
					b.Error(err)
				}
			})
		}
		wg.Wait()
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/n, "µs/result")
	b.ReportMetric(float64(f.Calls("BatchReadBlobs"))/float64(b.N), "batches")
}

// BenchmarkFetchLarge brings one large blob into the store.
func BenchmarkFetchLarge(b *testing.B) {
	const size = 64 << 20
	f := remotetest.Start(b, remotetest.Knobs{NoRecord: true, Chunk: 1 << 20})
	a := join(b, f.Address, setup{})
	a.send(b, cas.Pure, "one", size)
	b.SetBytes(size)
	for b.Loop() {
		m := join(b, f.Address, setup{})
		if err := m.Fetch(b.Context(), cas.Pure, pureKey, cas.Digest{}); err != nil {
			b.Fatal(err)
		}
	}
}
