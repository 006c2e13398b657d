package cas

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"strconv"
	"sync"
	"testing"
	"time"
)

// Goroutines of one store, two stores of one process and other processes add to
// one number; none may be lost.
func TestLockExcludes(t *testing.T) {
	dir := t.TempDir()
	stores := []*Store{open(t, dir, dir), open(t, dir, dir)}
	var processes []*exec.Cmd
	for range 2 {
		cmd := helper(t, "count", dir)
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		processes = append(processes, cmd)
	}
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			if err := count(stores[g%2], dir+"/count", 20); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	for _, cmd := range processes {
		if err := cmd.Wait(); err != nil {
			t.Error(err, cmd.Stderr)
		}
	}
	if b, err := os.ReadFile(dir + "/count"); string(b) != strconv.Itoa(2*50+4*20) {
		t.Errorf("counted to %s, %v", b, err)
	}
}

func TestLockHonoursContext(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	unlock, err := s.Lock(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := open(t, dir, dir).Lock(ctx, testKey); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked twice: %v", err)
	}
	if _, err := s.Lock(ctx, BLAKE3.Sum(nil)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("locked with a context that is done: %v", err)
	}
	unlock()
	again, err := s.Lock(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	unlock() // does nothing
	ctx, cancel = context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, testKey); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a second unlock took the lock of another: %v", err)
	}
	again()
}

// The cache may be deleted at any time. Who comes later must not wait for a lock
// on a file that has no name any more, nor share the key with the next.
func TestLockAfterCacheIsDeleted(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	old, err := s.Lock(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(dir + "/" + lockName); err != nil {
		t.Fatal(err)
	}
	unlock, err := s.Lock(t.Context(), testKey)
	if err != nil {
		t.Fatal(err)
	}
	old()
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
	defer cancel()
	if _, err := s.Lock(ctx, testKey); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("the new file's lock isn't held: %v", err)
	}
	unlock()
	if err := os.RemoveAll(dir); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Lock(t.Context(), testKey); err == nil {
		t.Error("locked in a folder that is gone")
	}
}

func BenchmarkLock(b *testing.B) {
	dir := b.TempDir()
	s := open(b, dir, dir)
	for b.Loop() {
		unlock, err := s.Lock(b.Context(), testKey)
		if err != nil {
			b.Fatal(err)
		}
		unlock()
	}
}
