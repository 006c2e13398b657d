package collect

import (
	"errors"

	"golang.org/x/sys/unix"
)

// throughFlags: to go through a folder, x is enough.
const throughFlags = unix.O_PATH | unix.O_NOFOLLOW | unix.O_CLOEXEC | unix.O_DIRECTORY

// openOne opens one name in a folder, never through a link or a mount. Where
// the kernel (before 5.6) or a filter has no openat2, openat does the same for
// a single name but for mounts of the same file system.
func openOne(dirfd int, name string, flags int) (int, error) {
	how := unix.OpenHow{
		Flags:   uint64(flags),
		Resolve: unix.RESOLVE_BENEATH | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_NO_MAGICLINKS | unix.RESOLVE_NO_XDEV,
	}
	fd, err := unix.Openat2(dirfd, name, &how)
	if errors.Is(err, unix.ENOSYS) || errors.Is(err, unix.EPERM) {
		return unix.Openat(dirfd, name, flags, 0)
	}
	return fd, err
}
