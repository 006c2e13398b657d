package cas

import "golang.org/x/sys/unix"

// POSIX locks, which belong to the process; see lockFile.
const setLock = unix.F_SETLK
