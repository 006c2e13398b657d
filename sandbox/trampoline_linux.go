package sandbox

import (
	"runtime"
	"unsafe"

	"golang.org/x/sys/unix"
)

// cloneRun clones with flags and runs n rows at ops in the child, which uses
// registers only: it shares our memory and the stack pointer of this thread,
// and writes to neither. The parent returns at once, with the child's pid or a
// negative errno; *pidfd is the child's pidfd.
//
// The child ends in the last row's execve, or exits with 97 at the first row
// that fails and must not. Its results are in the rows, so that we can tell
// which that was.
func cloneRun(flags uintptr, pidfd *int32, ops unsafe.Pointer, n uintptr) int

// start runs a linked program in a new child. All signals are blocked around
// the clone and stay blocked in the child through its execve: a signal must
// not run Go's handlers there. No CLONE_VFORK: this thread goes on while the
// child works, so neither the scheduler nor the garbage collector waits for it,
// and the maps of a root harness are written from here.
func start(l *linked, clone uint64) (pid, pidfd int, err error) {
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	all, old := ^uint64(0), uint64(0)
	mask := func(set, was *uint64) {
		unix.RawSyscall6(unix.SYS_RT_SIGPROCMASK, unix.SIG_SETMASK, uintptr(unsafe.Pointer(set)), uintptr(unsafe.Pointer(was)), 8, 0, 0)
	}
	flags := uintptr(clone) | unix.CLONE_VM | unix.CLONE_PIDFD | uintptr(unix.SIGCHLD)
	fd := new(int32)
	mask(&all, &old)
	pid = cloneRun(flags, fd, unsafe.Pointer(&l.arena[0]), uintptr(len(l.rows)))
	mask(&old, nil)
	runtime.KeepAlive(fd)
	if pid < 0 {
		return 0, -1, unix.Errno(-pid)
	}
	return pid, int(*fd), nil
}
