//go:build !linux

package collect

import "golang.org/x/sys/unix"

func mknod(p string, mode uint32, major, minor uint32) error {
	if mode&unix.S_IFMT == unix.S_IFIFO {
		return unix.Mkfifo(p, mode&0o777)
	}
	return unix.EPERM // of a Mac: not for sockets, nor without root
}
