package draws

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Lock is one draws.lock as it was last read. Methods may be called from
// several goroutines. Views are of the last Open, Append or Recover.
type Lock struct {
	path  string
	write func(f *os.File, b []byte) (int, error)
	sync  func(f *os.File) error

	append sync.Mutex // one append at a time
	mu     sync.Mutex // of v
	v      *view
}

// Open reads the lock; there need not be one yet. Errors name file and line.
func Open(path string) (*Lock, error) {
	l := &Lock{path: path, write: (*os.File).Write, sync: (*os.File).Sync}
	var data []byte
	f, err := openFile(path, os.O_RDONLY)
	if err == nil {
		data, err = io.ReadAll(f)
		f.Close()
	}
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	l.v, err = parse(path, data, nil)
	if err != nil {
		return nil, err
	}
	return l, nil
}

// openFile opens a regular file, without waiting for a fifo or following a
// link: git and a link's target would be two truths.
func openFile(path string, flag int) (*os.File, error) {
	f, err := os.OpenFile(path, flag|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0o644)
	if errors.Is(err, unix.ELOOP) {
		return nil, errors.New("it is a symbolic link")
	}
	if err != nil {
		return nil, err
	}
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

func (l *Lock) view() *view {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.v
}

func (l *Lock) publish(v *view) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.v = v
}

// Lines gives all lines by seq, then bytes.
func (l *Lock) Lines() []Line { return slices.Clone(l.view().lines) }

// Torn gives the bytes of a write that was cut short, or nil: they are no line,
// and the next Append removes them.
func (l *Lock) Torn() []byte { return slices.Clone(l.view().torn) }

// State gives what is known of an identity.
func (l *Lock) State(id ID) State {
	s := l.view().state(id)
	if s == nil {
		return State{}
	}
	c := *s
	c.Open, c.Rivals, c.Surplus, c.held, c.spares = slices.Clone(s.Open), slices.Clone(s.Rivals), s.surplus(), nil, nil
	return c
}

// Has says whether the label itself has a line that gives it the identity's
// capture.
func (l *Lock) Has(label graph.Label, id ID) bool {
	s := l.view().state(id)
	if s == nil {
		return false
	}
	_, ok := s.said(Line{Label: label, ID: id, Capture: s.Line.Capture})
	return ok
}

// Looks gives the looks at a label's block, in order.
func (l *Lock) Looks(label graph.Label, block string) []Line {
	return slices.Clone(l.view().looksOf(label, block))
}

// Counts are a label's lines by kind, and the attempts of its draws.
type Counts struct {
	Intents, Draws, Abandoned, Adopted, Surplus, Looks int
	Attempts                                           int
}

// Counts counts all that a label ever had.
func (l *Lock) Counts(label graph.Label) (c Counts) {
	for _, x := range l.view().lines {
		if x.Label != label {
			continue
		}
		switch x.Kind {
		case Intent:
			c.Intents++
		case Draw:
			c.Draws++
			c.Attempts += x.Attempts
		case Abandoned:
			c.Abandoned++
		case Adopted:
			c.Adopted++
		case Surplus:
			c.Surplus++
		case Look:
			c.Looks++
		}
	}
	return c
}
