package cas

import "golang.org/x/sys/unix"

// Open file description locks: not lost when another descriptor is closed.
const setLock = unix.F_OFD_SETLK
