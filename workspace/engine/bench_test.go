package engine

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
)

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 9)) }

// benchmark builds n tiny actions in ten targets again and again; change says
// what differs in round i.
func benchmark(b *testing.B, n int, change func(f *fixture, i int)) {
	text := ""
	for i := range 10 {
		text += fmt.Sprintf("many(name = 't%d', n = %d, srcs = ['s%d'])\n", i, n/10, i)
	}
	f := newFixture(b, text)
	f.jobs = 0
	set := func(value int) {
		for i := range 10 {
			f.set(fmt.Sprintf("p/s%d", i), fmt.Sprintf("%d ", 10*value+i))
		}
	}
	set(0)
	f.build()
	store := f.store()
	b.ReportAllocs()
	for i := 0; b.Loop(); i++ {
		b.StopTimer()
		change(f, i)
		targets := f.targets() // analysis is not the engine's
		b.StartTimer()
		rep, err := New(f.options(store, nil)).Build(context.Background(), targets)
		if err != nil || len(rep.Problems) > 0 {
			b.Fatal(err, rep.Problems)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Microseconds())/float64(b.N)/float64(n), "µs/action")
}

func BenchmarkNoOp(b *testing.B) {
	for _, n := range []int{1000, 10_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) { benchmark(b, n, func(*fixture, int) {}) })
	}
}

func BenchmarkRerun(b *testing.B) {
	b.Run("10000", func(b *testing.B) {
		benchmark(b, 10_000, func(f *fixture, i int) {
			for t := range 10 {
				f.set(fmt.Sprintf("p/s%d", t), fmt.Sprintf("%d ", 10*(i+1)+t))
			}
		})
	})
}

func BenchmarkLoadSlots(b *testing.B) {
	f := newFixture(b, `many(name = "t", n = 2000, srcs = ["s"])`)
	f.set("p/s", "1 ")
	f.build()
	slot := f.targets()[0].Result.Scorecard.Action.Slot()
	for b.Loop() {
		if _, ok := New(f.options(nil, nil)).Slot(slot); !ok {
			b.Fatal("no slot")
		}
	}
}
