package toolslock

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"golang.org/x/sys/unix"
)

// tempPrefix begins the names of files that are being written; with a dot, no
// glob sees them.
const tempPrefix = "." + Name + ".tmp-"

// Update writes entries into the tools.lock of a package's folder, each in the
// place of the one of that tool and platform. Entries of other platforms and
// tools stay as they are, those of tools that has denies go. It gives what was
// there before, nil where nothing was. A file that can't be read is an error,
// unless the lines at fault are among those that are replaced. It waits for
// other processes.
func Update(dir string, has func(tool string) bool, entries ...Entry) (before []*Entry, err error) {
	name := filepath.Join(dir, Name)
	before, err = update(dir, name, has, entries)
	var known *fault
	if err != nil && !errors.As(err, &known) {
		err = &fault{op: "write", object: name, cause: bare(err)}
	}
	return before, err
}

func update(dir, name string, has func(string) bool, entries []Entry) ([]*Entry, error) {
	folder, err := os.Open(dir)
	if err != nil {
		return nil, err
	}
	defer folder.Close() // lets go of the lock
	for err = unix.EINTR; errors.Is(err, unix.EINTR); {
		// Of the folder, since the file is replaced.
		err = unix.Flock(int(folder.Fd()), unix.LOCK_EX)
	}
	if err != nil {
		return nil, fmt.Errorf("lock its folder: %w", err)
	}
	sweep(folder)
	data, err := read(name)
	if err != nil {
		return nil, err
	}
	replaced := map[id]int{}
	var lines []placed
	for i, e := range entries {
		fresh := e.lines()
		replaced[fresh[0].id()] = i
		for _, l := range fresh {
			if _, err := decode(bytes.TrimSuffix(l.encode(), []byte("\n"))); err != nil {
				return nil, fmt.Errorf("tool %s: %w", e.Tool, err) // a path that is not UTF-8, say
			}
			lines = append(lines, placed{line: l})
		}
	}
	var old []placed
	kept, err := scan(name, data, func(l *line) bool {
		_, mine := replaced[l.id()]
		if mine {
			old = append(old, placed{line: l})
		}
		return mine || !has(l.Tool)
	})
	if err != nil {
		return nil, err
	}
	if _, err := assemble(name, slices.Clone(kept)); err != nil {
		return nil, err
	}
	lines = append(lines, kept...)
	slices.SortStableFunc(lines, func(a, b placed) int { return a.compare(b.line) })
	var text []byte
	for i, l := range lines {
		if i > 0 && lines[i-1].compare(l.line) == 0 { // a line that a merge left twice
			continue
		}
		text = append(text, l.encode()...)
	}
	before := make([]*Entry, len(entries))
	was, _ := assemble(name, old) // if that isn't right, nothing was
	for _, e := range was {
		before[replaced[e.lines()[0].id()]] = &e
	}
	if bytes.Equal(text, data) {
		return before, nil
	}
	if len(text) == 0 {
		if err := os.Remove(name); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, err
		}
		return before, folder.Sync()
	}
	return before, replace(folder, name, text)
}

// replace gives the file new content, whole and on the disk.
func replace(folder *os.File, name string, text []byte) error {
	temp := filepath.Join(filepath.Dir(name), fmt.Sprintf("%s%d", tempPrefix, os.Getpid()))
	f, err := os.OpenFile(temp, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if err != nil {
		return err
	}
	_, err = f.Write(text)
	if err == nil {
		err = f.Sync()
	}
	err = errors.Join(err, f.Close())
	if err == nil {
		err = os.Rename(temp, name)
	}
	if err != nil {
		os.Remove(temp)
		return err
	}
	return folder.Sync()
}

// sweep removes what killed processes left: who holds the lock writes alone.
func sweep(folder *os.File) {
	entries, err := os.ReadDir(folder.Name())
	if err != nil {
		return
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), tempPrefix) && e.Type().IsRegular() {
			os.Remove(filepath.Join(folder.Name(), e.Name()))
		}
	}
}
