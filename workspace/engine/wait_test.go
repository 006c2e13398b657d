package engine

import (
	"context"
	"os"
	"runtime"
	"sync"
	"time"
)

func removeAll(dir string) error { return os.RemoveAll(dir) }

func goroutines() int { return runtime.NumGoroutine() }

// settledGoroutines gives those that are about to end the chance to.
func settledGoroutines(want int) int {
	for range 1000 {
		if runtime.NumGoroutine() <= want {
			break
		}
		runtime.Gosched()
		runtime.GC() // takes a moment, without a sleep
	}
	return runtime.NumGoroutine()
}

// deadline is a context whose deadline passes when the test says so.
type deadline struct {
	context.Context
	done chan struct{}
}

func newDeadline() (context.Context, func()) {
	d := deadline{context.Background(), make(chan struct{})}
	return d, sync.OnceFunc(func() { close(d.done) })
}

func (d deadline) Done() <-chan struct{}       { return d.done }
func (d deadline) Deadline() (time.Time, bool) { return time.Time{}, true }

func (d deadline) Err() error {
	select {
	case <-d.done:
		return context.DeadlineExceeded
	default:
		return nil
	}
}
