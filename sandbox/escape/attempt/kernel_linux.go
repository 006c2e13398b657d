package main

import (
	"os"
	"os/exec"
	"strconv"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// kernel are attempts on the kernel's own surface that need more than numbers.
var kernel = table{
	// memexec executes a file in memory.
	"memexec": func([]string) string {
		b, err := os.ReadFile("/proc/self/exe")
		if err != nil {
			return "read-" + is(err)
		}
		fd, err := unix.MemfdCreate("escape", 0)
		if err != nil {
			return "create-" + is(err)
		}
		if _, err := unix.Write(fd, b); err != nil {
			return "write-" + is(err)
		}
		return is(exec.Command("/proc/self/fd/"+strconv.Itoa(fd), "-1", "sleep", "0s").Run())
	},
}

func init() {
	// filter ATTEMPT… puts a filter of our own that allows everything on top, and
	// makes the attempt then: what was refused must stay so.
	kernel["filter"] = func(a []string) string {
		if err := install([]unix.SockFilter{{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW}}); err != nil {
			return "filter-" + is(err)
		}
		return run(a)
	}
}

// outside runs a program as on a machine that can't give a seal: with a filter
// on clone and unshare like that of container engines.
var outside = table{
	"confined": func(a []string) string {
		if err := install(noNamespaces()); err != nil {
			return "filter-" + is(err)
		}
		return is(syscall.Exec(a[0], a, os.Environ()))
	},
}

func install(code []unix.SockFilter) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return err
	}
	prog := unix.SockFprog{Len: uint16(len(code)), Filter: &code[0]}
	const tsync = 1 // all threads
	_, _, errno := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, tsync, uintptr(unsafe.Pointer(&prog)))
	if errno != 0 {
		return errno
	}
	return nil
}

// noNamespaces answers EPERM to a clone with CLONE_NEWUSER.
func noNamespaces() []unix.SockFilter {
	return []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 0},
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, K: unix.SYS_CLONE, Jf: 3},
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: 16},
		{Code: unix.BPF_JMP | unix.BPF_JSET | unix.BPF_K, K: unix.CLONE_NEWUSER, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)},
		{Code: unix.BPF_RET | unix.BPF_K, K: unix.SECCOMP_RET_ALLOW},
	}
}
