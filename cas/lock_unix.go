//go:build linux || darwin

package cas

import (
	"errors"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

func lockByte(f *os.File, offset int64) (bool, error) {
	err := setByte(f, offset, unix.F_WRLCK)
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		return false, nil
	}
	return err == nil, err
}

// unlockByte can't fail but for a descriptor that isn't one.
func unlockByte(f *os.File, offset int64) { setByte(f, offset, unix.F_UNLCK) }

func setByte(f *os.File, offset int64, kind int16) error {
	lock := unix.Flock_t{Type: kind, Whence: io.SeekStart, Start: offset, Len: 1}
	for {
		err := unix.FcntlFlock(f.Fd(), setLock, &lock)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}
