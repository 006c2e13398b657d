package remote

import (
	"context"
	"sync"
)

// batcher makes one call of many small questions. A question goes out at once
// while fewer than flights calls are on their way; else it goes with all that
// come meanwhile. So a lone caller never waits, and a thousand take a few calls.
// A question that is already on its way isn't asked again.
type batcher[K comparable, V any] struct {
	ctx     context.Context // of the calls: those who asked may leave
	flights int
	most    int           // questions in a call
	room    func() int64  // the sum of their weights in a call
	weight  func(K) int64 // nil: none
	run     func(context.Context, []K) (map[K]V, error)
	running *sync.WaitGroup

	mu      sync.Mutex
	flying  int
	waiting []K
	asked   map[K]*answer[V]
}

// answer is filled in before done is closed.
type answer[V any] struct {
	done  chan struct{}
	value V
	ok    bool
	err   error
}

// start asks, and gives where the answers will be.
func (b *batcher[K, V]) start(keys []K) []*answer[V] {
	out := make([]*answer[V], len(keys))
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.asked == nil {
		b.asked = map[K]*answer[V]{}
	}
	for i, k := range keys {
		a := b.asked[k]
		if a == nil {
			a = &answer[V]{done: make(chan struct{})}
			b.asked[k] = a
			b.waiting = append(b.waiting, k)
		}
		out[i] = a
	}
	b.fly()
	return out
}

// fly wants b.mu held.
func (b *batcher[K, V]) fly() {
	for b.flying < b.flights && len(b.waiting) > 0 {
		keys := b.next()
		b.flying++
		b.running.Add(1)
		go func() {
			defer b.running.Done()
			values, err := b.run(b.ctx, keys)
			b.mu.Lock()
			defer b.mu.Unlock()
			for _, k := range keys {
				a := b.asked[k]
				delete(b.asked, k)
				a.value, a.ok = values[k]
				if !a.ok {
					a.err = err
				}
				close(a.done)
			}
			b.flying--
			b.fly()
		}()
	}
}

func (b *batcher[K, V]) next() []K {
	n, sum := 0, int64(0)
	for n < len(b.waiting) && n < b.most {
		if b.weight != nil {
			if sum += b.weight(b.waiting[n]); n > 0 && sum > b.room() {
				break
			}
		}
		n++
	}
	keys := b.waiting[:n:n]
	if b.waiting = b.waiting[n:]; len(b.waiting) == 0 {
		b.waiting = nil // lets go of the array
	}
	return keys
}

// wait gives the answer, or the error of the call or of ctx.
func (a *answer[V]) wait(ctx context.Context) (v V, ok bool, err error) {
	select {
	case <-a.done:
		return a.value, a.ok, a.err
	case <-ctx.Done():
		return v, false, ctx.Err()
	}
}
