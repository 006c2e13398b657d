package engine

import "sync"

// A memo holds what is found out once a build, by key. It may be used by many
// goroutines.
type memo[K comparable, V any] struct {
	mu      sync.Mutex
	entries map[K]*memoEntry[V]
}

type memoEntry[V any] struct {
	once  sync.Once
	value V
	err   error
}

// get gives the value of key, which find finds out.
func (m *memo[K, V]) get(key K, find func() (V, error)) (V, error) {
	m.mu.Lock()
	e := m.entries[key]
	if e == nil {
		if m.entries == nil {
			m.entries = map[K]*memoEntry[V]{}
		}
		e = new(memoEntry[V])
		m.entries[key] = e
	}
	m.mu.Unlock()
	e.once.Do(func() { e.value, e.err = find() })
	return e.value, e.err
}
