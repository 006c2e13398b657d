package sandbox

import "sync"

// slots numbers what runs at one time, from 0, lowest first.
type slots struct {
	mu    sync.Mutex
	taken []bool
}

func (s *slots) take() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, t := range s.taken {
		if !t {
			s.taken[i] = true
			return i
		}
	}
	s.taken = append(s.taken, true)
	return len(s.taken) - 1
}

func (s *slots) give(i int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.taken[i] = false
}
