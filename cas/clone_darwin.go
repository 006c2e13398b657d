package cas

import (
	"errors"
	"os"

	"golang.org/x/sys/unix"
)

// clone puts a clone of src (APFS) in the place of dst, which it can't fill: the
// call makes its file itself. On an error dst is as it was.
func clone(dst, src *os.File) error {
	name := dst.Name() + "-clone"
	if err := unix.Fclonefileat(int(src.Fd()), unix.AT_FDCWD, name, 0); err != nil {
		return err
	}
	if err := os.Rename(name, dst.Name()); err != nil {
		return errors.Join(err, os.Remove(name))
	}
	return nil
}
