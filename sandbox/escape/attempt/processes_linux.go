package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// processes are attempts on other processes, on rights and on the scheduler.
var processes = table{
	"ptrace": func([]string) string {
		return onChild(func(pid int) string {
			_, _, errno := unix.RawSyscall6(unix.SYS_PTRACE, unix.PTRACE_SEIZE, uintptr(pid), 0, 0, 0, 0)
			return nameOf(errno)
		})
	},
	"readv":  func([]string) string { return memoryOf(false) },
	"writev": func([]string) string { return memoryOf(true) },
	"getfd": func([]string) string {
		return onChild(func(pid int) string {
			p, err := unix.PidfdOpen(pid, 0)
			if err != nil {
				return "pidfd-" + is(err)
			}
			_, err = unix.PidfdGetfd(p, 2, 0)
			return is(err)
		})
	},
	"kcmp": func([]string) string {
		return onChild(func(pid int) string { // KCMP_FILE
			return call([]string{"kcmp", strconv.Itoa(os.Getpid()), strconv.Itoa(pid), "0", "0", "0"})
		})
	},
	"sigqueue": func(a []string) string {
		pid, _ := strconv.Atoi(a[0])
		var info [128]byte
		*(*int32)(unsafe.Pointer(&info[8])) = -1 // si_code: SI_QUEUE
		_, _, errno := unix.RawSyscall(unix.SYS_RT_SIGQUEUEINFO, uintptr(pid), 0, uintptr(unsafe.Pointer(&info)))
		return nameOf(errno)
	},
	// fifo asks for a real-time class, setattr by the call that takes a struct.
	"fifo": func([]string) string {
		prio := int32(1)
		_, _, errno := unix.RawSyscall(unix.SYS_SCHED_SETSCHEDULER, 0, 1, uintptr(unsafe.Pointer(&prio)))
		return nameOf(errno)
	},
	"setattr": func([]string) string { return is(unix.SchedSetAttr(0, &unix.SchedAttr{Size: unix.SizeofSchedAttr}, 0)) },
	"oom":     func(a []string) string { return is(os.WriteFile("/proc/self/oom_score_adj", []byte(a[0]), 0)) },
	"capset": func([]string) string {
		h := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
		var d [2]unix.CapUserData
		if err := unix.Capget(&h, &d[0]); err != nil {
			return "get-" + is(err)
		}
		d[0].Permitted |= 1 << unix.CAP_CHOWN
		d[0].Effective |= 1 << unix.CAP_CHOWN
		return is(unix.Capset(&h, &d[0]))
	},
	// rlimit RESOURCE MAX sets a hard limit.
	"rlimit": func(a []string) string {
		r, _ := strconv.Atoi(a[0])
		n, _ := strconv.ParseUint(a[1], 0, 64)
		return is(unix.Setrlimit(r, &unix.Rlimit{Cur: n, Max: n}))
	},
	// spawn FLAGS starts a child with new namespaces, unshare has it leave ours.
	"spawn": func(a []string) string {
		n, _ := strconv.ParseUint(a[0], 0, 64)
		return is(runSelf(&syscall.SysProcAttr{Cloneflags: uintptr(n)}))
	},
	"unshare": func(a []string) string {
		n, _ := strconv.ParseUint(a[0], 0, 64)
		return is(runSelf(&syscall.SysProcAttr{Unshareflags: uintptr(n)}))
	},
	// clone FLAGS makes the call with all 64 bits; the child ends at once.
	"clone": func(a []string) string {
		n, _ := strconv.ParseUint(a[0], 0, 64)
		runtime.LockOSThread()
		pid, _, errno := unix.RawSyscall6(unix.SYS_CLONE, uintptr(n), 0, 0, 0, 0, 0)
		if errno == 0 && pid == 0 {
			unix.RawSyscall(unix.SYS_EXIT_GROUP, 0, 0, 0)
		}
		return nameOf(errno)
	},
	// children N starts N processes that stay, and says how many there were.
	"children": func(a []string) string {
		n, _ := strconv.Atoi(a[0])
		var all []*exec.Cmd
		defer func() {
			for _, c := range all {
				c.Process.Kill()
				c.Wait()
			}
		}()
		for i := range n {
			cmd, err := self("sleep", "10s")
			if err != nil {
				fmt.Fprintf(os.Stderr, "child %d: %v\n", i, err)
				return is(err)
			}
			all = append(all, cmd)
		}
		return "ok"
	},
	// spin D keeps 64 threads busy.
	"spin": func(a []string) string {
		d, _ := time.ParseDuration(a[0])
		end := time.Now().Add(d)
		done := make(chan bool)
		for range 64 {
			go func() {
				runtime.LockOSThread()
				for time.Now().Before(end) {
				}
				done <- true
			}()
		}
		for range 64 {
			<-done
		}
		return "ok"
	},
	// needle TEXT looks for a text, given in reverse, in all environments and
	// command lines that there are.
	"needle": func(a []string) string {
		b := []byte(a[0])
		for i, j := 0, len(b)-1; i < j; i, j = i+1, j-1 {
			b[i], b[j] = b[j], b[i]
		}
		for _, pattern := range []string{"/proc/[0-9]*/environ", "/proc/[0-9]*/cmdline", "/proc/[0-9]*/task/*/environ"} {
			found, _ := filepath.Glob(pattern)
			for _, f := range found {
				if text, _ := os.ReadFile(f); strings.Contains(string(text), string(b)) {
					return "found"
				}
			}
		}
		return "absent"
	},
}

func runSelf(attr *syscall.SysProcAttr) error {
	cmd := exec.Command("/proc/self/exe", "-1", "sleep", "0s")
	cmd.SysProcAttr = attr
	return cmd.Run()
}

// memoryOf copies a word of a child's memory to ours, or back. The program isn't
// position-independent: what is ours is at the same address there.
func memoryOf(write bool) string {
	return onChild(func(pid int) string {
		local := []unix.Iovec{{Base: &zeros[0], Len: 8}}
		remote := []unix.RemoteIovec{{Base: uintptr(unsafe.Pointer(&zeros[0])), Len: 8}}
		var err error
		if write {
			_, err = unix.ProcessVMWritev(pid, local, remote, 0)
		} else {
			_, err = unix.ProcessVMReadv(pid, local, remote, 0)
		}
		return is(err)
	})
}
