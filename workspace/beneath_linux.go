package workspace

import (
	"errors"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

// openBeneath opens rel below the root for reading, never outside of it and
// without waiting for a fifo. One openat2 does what os.Root does with a call for
// each folder on the way; where the kernel (before 5.6) or a filter has none,
// os.Root does it.
func (t *tree) openBeneath(rel string) (*os.File, error) {
	how := unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_CLOEXEC | unix.O_NONBLOCK,
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_MAGICLINKS,
	}
	for {
		fd, err := unix.Openat2(int(t.dir.Fd()), rel, &how)
		switch {
		case err == nil:
			return os.NewFile(uintptr(fd), rel), nil
		case errors.Is(err, unix.EINTR), errors.Is(err, unix.EAGAIN): // EAGAIN: a rename in between
			continue
		case errors.Is(err, unix.ENOSYS), errors.Is(err, unix.EPERM), errors.Is(err, unix.EXDEV):
			// EXDEV: it leaves the root; os.Root words that error.
			return t.root.OpenFile(rel, os.O_RDONLY|unix.O_NONBLOCK, 0)
		}
		return nil, &fs.PathError{Op: "openat2", Path: rel, Err: err}
	}
}
