package hosttools

import (
	"errors"
	"io/fs"
	"os"
)

// fault is an error of this package.
type fault struct {
	op, object string
	cause      error
}

func (f *fault) Error() string { return f.op + " " + f.object + ": " + f.cause.Error() }
func (f *fault) Unwrap() error { return f.cause }

// hinted is a cause that says what can be done.
type hinted struct {
	error
	hint string
}

func (h *hinted) Unwrap() error { return h.error }
func (h *hinted) Hint() string  { return h.hint }

// bare strips the system call and path that package os adds: op and object
// say both already.
func bare(err error) error {
	var path *fs.PathError
	if errors.As(err, &path) {
		return path.Err
	}
	var call *os.SyscallError
	if errors.As(err, &call) {
		return call.Err
	}
	var link *os.LinkError
	if errors.As(err, &link) {
		return link.Err
	}
	return err
}
