package toolslock

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"

	"golang.org/x/sys/unix"
)

// Name is the file's name beside BUILD.star.
const Name = "tools.lock"

// maxFile is some hundred thousand lines.
const maxFile = 64 << 20

// A fault is an error of this package.
type fault struct {
	op, object string
	cause      error
	hint       string
}

func (f *fault) Error() string { return f.op + " " + f.object + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }
func (f *fault) Hint() string  { return f.hint }

// lockHint is the way out of a file that isn't right.
const lockHint = "`ev lock` with the tool's label writes its lines anew"

// A placed line knows where it stands.
type placed struct {
	*line
	at int // counted from 1
}

// read gives the file's bytes, none if it isn't there.
func read(name string) ([]byte, error) {
	// Neither a link is followed, which git and its target would both be the
	// truth of, nor is a fifo waited for.
	f, err := os.OpenFile(name, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, nil
	case errors.Is(err, unix.ELOOP):
		return nil, errors.New("it is a symbolic link")
	case err != nil:
		return nil, bare(err)
	}
	defer f.Close()
	info, err := f.Stat()
	if err == nil && !info.Mode().IsRegular() {
		err = errors.New("it is no regular file")
	}
	if err == nil && info.Size() > maxFile {
		err = fmt.Errorf("it has more than %d bytes", maxFile)
	}
	if err != nil {
		return nil, bare(err)
	}
	return io.ReadAll(io.LimitReader(f, maxFile))
}

func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	return err
}

// Read gives the entries of the file of this name, none if there is no such
// file. Errors name file and line.
func Read(name string) ([]Entry, error) {
	data, err := read(name)
	if err != nil {
		return nil, &fault{op: "read", object: name, cause: err}
	}
	lines, err := scan(name, data, nil)
	if err != nil {
		return nil, err
	}
	return assemble(name, lines)
}

// scan decodes the lines of a file but for those that skip names.
func scan(name string, data []byte, skip func(*line) bool) ([]placed, error) {
	var out []placed
	for n := 1; len(data) > 0; n++ {
		text, rest, ended := bytes.Cut(data, []byte("\n"))
		data = rest
		if skip != nil && conflictMark(text) {
			continue // what is between the marks is either skipped or judged
		}
		l, err := decode(text)
		if err == nil && skip != nil && skip(l) {
			continue
		}
		if err == nil && !ended {
			err = errors.New("the last line has no newline: the file was cut short")
		}
		if err != nil {
			hint := "take " + Name + " from version control, or remove the line and lock its tool anew: " + lockHint
			if errors.Is(err, errConflict) {
				hint = lockHint
			}
			return nil, &fault{"read", fmt.Sprintf("%s:%d", name, n), err, hint}
		}
		out = append(out, placed{l, n})
	}
	return out, nil
}

// assemble makes entries of lines in any order.
func assemble(name string, lines []placed) ([]Entry, error) {
	slices.SortStableFunc(lines, func(a, b placed) int { return a.compare(b.line) })
	fail := func(l placed, format string, args ...any) error {
		return &fault{"read", fmt.Sprintf("%s:%d", name, l.at), fmt.Errorf("tool %s on %s: "+format, append([]any{l.Tool, l.Platform}, args...)...), lockHint}
	}
	kept := lines[:0]
	for _, l := range lines {
		if n := len(kept); n > 0 && kept[n-1].compare(l.line) == 0 {
			first := kept[n-1]
			if bytes.Equal(first.encode(), l.encode()) {
				continue
			}
			what := "its head"
			if l.Kind != kindTool {
				what = l.Path
			}
			return nil, fail(l, "%s is pinned twice, differently: in line %d too", what, first.at)
		}
		kept = append(kept, l)
	}
	var out []Entry
	for len(kept) > 0 {
		head := kept[0]
		n := slices.IndexFunc(kept, func(l placed) bool { return l.id() != head.id() })
		if n < 0 {
			n = len(kept)
		}
		group := kept[:n]
		kept = kept[n:]
		if head.Kind != kindTool {
			return nil, fail(head, "its head, of kind %q, is missing", kindTool)
		}
		e := Entry{Tool: head.Tool, Program: head.Path, Data: head.Data}
		e.Platform, _ = parsePlatform(head.Platform) // checked
		plain := make([]*line, 0, n)
		for _, l := range group[1:] {
			plain = append(plain, l.line)
			e.Mounts = append(e.Mounts, l.mount())
		}
		if sum(plain) != head.Sum {
			return nil, fail(head, "its lines don't fit the sum in its head: some are missing, or of another locking")
		}
		out = append(out, e)
	}
	return out, nil
}
