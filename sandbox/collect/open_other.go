//go:build !linux

package collect

import "golang.org/x/sys/unix"

const throughFlags = folderFlags

// openOne opens one name in a folder, never through a link.
func openOne(dirfd int, name string, flags int) (int, error) {
	return unix.Openat(dirfd, name, flags, 0)
}
