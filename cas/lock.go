package cas

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"
)

const (
	lockName    = "locks"
	lockMode    = 0o644
	lockPollMin = time.Millisecond
	lockPollMax = 50 * time.Millisecond
)

// Lock waits until nobody else holds key, in this process or another, and takes
// it. It is to be held from Lookup to PutResult, so that two processes never run
// one action at once. A killed process lets go. The error is that of ctx
// or of the lock file.
//
// A lock is one byte of a single file, at an offset of 62 bits of the key, so
// there are no lock files to clean up. Two keys share a byte with probability
// 2^-62 a pair; they would wait for each other, no more.
func (s *Store) Lock(ctx context.Context, key Digest) (unlock func(), err error) {
	unlock, err = s.lockOffset(ctx, int64(binary.LittleEndian.Uint64(key.Hash[:])>>2))
	if err != nil {
		return nil, fmt.Errorf("lock %v: %w", key, err)
	}
	return unlock, nil
}

func (s *Store) lockOffset(ctx context.Context, offset int64) (unlock func(), err error) {
	wait := lockPollMin
	for {
		f, err := openLockFile(s.cache.path(lockName))
		if err == nil {
			err = ctx.Err()
		}
		if err != nil {
			return nil, err
		}
		got, err := f.try(offset)
		switch {
		case err != nil:
			return nil, err
		case got && f.current():
			return sync.OnceFunc(func() { f.release(offset) }), nil
		case got: // the cache was deleted under us: others lock a new file
			f.release(offset)
			continue
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
		case <-timer.C:
		}
		wait = min(2*wait, lockPollMax)
	}
}

// lockFile is a lock file that this process has open, once for all its stores:
// the system's locks don't keep the goroutines of one process apart, and on
// macOS closing any descriptor of a file lets go of all locks on it. So it is
// never closed, which costs one descriptor for each store of a process.
type lockFile struct {
	file *os.File
	info os.FileInfo

	mu   sync.Mutex
	held map[int64]bool
}

var (
	lockFilesMu sync.Mutex
	lockFiles   []*lockFile // few, so a list will do
)

// openLockFile gives the one lockFile of what is at path now. The stat comes
// before any open for the reason above; the file it saw can't lose its identity
// to another while it is open.
func openLockFile(path string) (*lockFile, error) {
	lockFilesMu.Lock()
	defer lockFilesMu.Unlock()
	if info, err := os.Stat(path); err == nil {
		for _, f := range lockFiles {
			if os.SameFile(f.info, info) {
				return f, nil
			}
		}
	}
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, lockMode)
	if errors.Is(err, fs.ErrPermission) && os.Chmod(path, lockMode) == nil {
		// Made under an odd umask by a process that was killed at this point.
		file, err = os.OpenFile(path, os.O_RDWR|os.O_CREATE, lockMode)
	}
	if err != nil {
		return nil, err
	}
	info, err := file.Stat()
	if err == nil && info.Mode().Perm() != lockMode {
		err = file.Chmod(lockMode)
	}
	if err != nil {
		file.Close()
		return nil, err
	}
	f := &lockFile{file: file, info: info, held: map[int64]bool{}}
	lockFiles = append(lockFiles, f)
	return f, nil
}

// current reports whether the file still has its name.
func (f *lockFile) current() bool {
	info, err := os.Stat(f.file.Name())
	return err == nil && os.SameFile(f.info, info)
}

func (f *lockFile) try(offset int64) (bool, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.held[offset] {
		return false, nil
	}
	got, err := lockByte(f.file, offset)
	if got {
		f.held[offset] = true
	}
	return got, err
}

func (f *lockFile) release(offset int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	unlockByte(f.file, offset)
	delete(f.held, offset)
}
