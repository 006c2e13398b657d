//go:build unix

package sandbox

import (
	"runtime"

	"golang.org/x/sys/unix"
)

// kernel says what runs here.
func kernel() Kernel {
	var u unix.Utsname
	if unix.Uname(&u) != nil {
		return Kernel{System: runtime.GOOS}
	}
	return Kernel{runtime.GOOS, unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Machine[:])}
}
