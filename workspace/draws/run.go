package draws

import (
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	runDigits = 32 // 128 bits
	runSuffix = ".run"
)

func validRun(s string) bool {
	return len(s) == runDigits && strings.Trim(s, "0123456789abcdef") == ""
}

// A Run is a process that draws. It lives until Close or the process's end.
type Run struct {
	ID   string // 32 hex digits
	file *os.File
}

// NewRun makes a run with a number from random (crypto/rand.Reader) and a lock
// file in dir, which is made. Files of runs that were killed are removed. The
// file is locked before it has its name, so that one that isn't is of a run that
// ended.
func NewRun(dir string, random io.Reader) (*Run, error) {
	fail := func(err error) (*Run, error) { return nil, fmt.Errorf("start a run in %s: %w", dir, err) }
	var number [runDigits / 2]byte
	if _, err := io.ReadFull(random, number[:]); err != nil {
		return fail(err)
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fail(err)
	}
	Sweep(dir)
	id := hex.EncodeToString(number[:])
	f, err := os.OpenFile(filepath.Join(dir, id+".new"), os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return fail(err)
	}
	err = flock(f, unix.LOCK_EX|unix.LOCK_NB)
	if err == nil { // Link, unlike Rename, doesn't replace the file of another
		err = os.Link(f.Name(), runPath(dir, id))
	}
	if rerr := os.Remove(f.Name()); err == nil {
		err = rerr
	}
	if err != nil {
		f.Close()
		return fail(err)
	}
	return &Run{ID: id, file: f}, nil
}

func runPath(dir, id string) string { return filepath.Join(dir, id+runSuffix) }

// Close ends the run. Its open intents can be recovered from then on.
func (r *Run) Close() error {
	path := strings.TrimSuffix(r.file.Name(), ".new") + runSuffix
	if err := errors.Join(os.Remove(path), r.file.Close()); err != nil {
		return fmt.Errorf("end run %s: %w", r.ID, err)
	}
	return nil
}

// Alive says whether a run of this folder lives. What can't be found out counts
// as alive: to abandon a rep that is being drawn would cost a second one.
func Alive(dir, id string) bool {
	if !validRun(id) {
		return false
	}
	f, err := os.Open(runPath(dir, id))
	if err != nil {
		return !errors.Is(err, fs.ErrNotExist)
	}
	defer f.Close()
	// Shared, so that two that ask at once don't take each other for the run.
	return flock(f, unix.LOCK_SH|unix.LOCK_NB) != nil
}

// Sweep removes the files of runs that ended; what fails stays.
func Sweep(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		id, ok := strings.CutSuffix(e.Name(), runSuffix)
		if ok && validRun(id) && !Alive(dir, id) {
			os.Remove(runPath(dir, id))
		}
	}
}
