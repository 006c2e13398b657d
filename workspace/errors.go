package workspace

import (
	"errors"
	"io/fs"
	"os"
	"syscall"
)

// fault is every error of this package but those in the text of MODULE.star.
type fault struct {
	op, object string
	cause      error
	hint       string
}

func (f *fault) Error() string { return f.op + " " + f.object + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }
func (f *fault) Hint() string  { return f.hint }

// said is a cause in our own words that is still, say, fs.ErrNotExist.
type said struct {
	text string
	kind error
}

func (s said) Error() string { return s.text }
func (s said) Unwrap() error { return s.kind }

// bare strips the system call and path that package os adds: op and object
// say both already, in the caller's terms.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	return err
}

// escaped reports whether an error of os.Root is a refusal to leave the root.
// The package doesn't export that error; all its others carry an errno.
func escaped(err error) bool {
	var errno syscall.Errno
	return err != nil && !errors.As(err, &errno) &&
		!errors.Is(err, fs.ErrClosed) && !errors.Is(err, fs.ErrNotExist)
}
