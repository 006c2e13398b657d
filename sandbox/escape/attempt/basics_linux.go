package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// basics are attempts that say it all in their arguments.
var basics = table{
	"open":     func(a []string) string { return open(a[0], unix.O_RDONLY) },
	"write":    func(a []string) string { return open(a[0], unix.O_WRONLY) }, // and doesn't
	"path":     func(a []string) string { return open(a[0], unix.O_PATH|unix.O_NOFOLLOW) },
	"readlink": func(a []string) string { _, err := os.Readlink(a[0]); return is(err) },
	"list":     func(a []string) string { _, err := os.ReadDir(a[0]); return is(err) },
	"may":      func(a []string) string { return is(unix.Access(a[0], unix.W_OK)) },
	"call":     call,
	"value":    value,
	"target":   func(a []string) string { to, err := os.Readlink(a[0]); return to + errorText(err) },
	"hostname": func([]string) string { name, err := os.Hostname(); return name + errorText(err) },
	"sleep": func(a []string) string {
		d, err := time.ParseDuration(a[0])
		time.Sleep(d)
		return is(err)
	},
	// matches FILE TEXT says whether a file has a text in it.
	"matches": func(a []string) string {
		b, err := os.ReadFile(a[0])
		switch {
		case err != nil:
			return is(err)
		case strings.Contains(string(b), a[1]):
			return "yes"
		}
		return "no"
	},
}

func open(path string, flags int) string {
	fd, err := unix.Open(path, flags|unix.O_CLOEXEC|unix.O_NOCTTY|unix.O_NONBLOCK, 0)
	if err == nil {
		unix.Close(fd)
	}
	return is(err)
}

// call makes a system call: `call swapon @/nonexistent 0`. An argument is a
// number, @TEXT for the address of a string, or & for that of 4 KiB of zeros.
// value says what it returns.
func call(a []string) string {
	_, errno, problem := made(a)
	if problem != "" {
		return problem
	}
	return nameOf(errno)
}

func value(a []string) string {
	n, errno, problem := made(a)
	switch {
	case problem != "":
		return problem
	case errno != 0:
		return nameOf(errno)
	}
	return strconv.FormatUint(uint64(n), 10)
}

func made(a []string) (n uintptr, errno syscall.Errno, problem string) {
	nr, ok := numbers[a[0]]
	if !ok {
		return 0, 0, "no-such-call"
	}
	var args [6]uintptr
	for i, word := range a[1:] {
		switch {
		case word == "&":
			args[i] = uintptr(unsafe.Pointer(&zeros[0]))
		case strings.HasPrefix(word, "@"):
			b := append([]byte(word[1:]), 0)
			strs = append(strs, b)
			args[i] = uintptr(unsafe.Pointer(&b[0]))
		default:
			n, err := strconv.ParseInt(word, 0, 64)
			if err != nil {
				return 0, 0, "no-number"
			}
			args[i] = uintptr(n)
		}
	}
	n, _, errno = unix.RawSyscall6(nr, args[0], args[1], args[2], args[3], args[4], args[5])
	return n, errno, ""
}

// What calls point to must stay where it is: globals, and what they hold, do.
var (
	zeros [4096]byte
	strs  [][]byte
)

var numbers = map[string]uintptr{
	"acct": unix.SYS_ACCT, "add_key": unix.SYS_ADD_KEY, "adjtimex": unix.SYS_ADJTIMEX, "bpf": unix.SYS_BPF,
	"chroot": unix.SYS_CHROOT, "clock_settime": unix.SYS_CLOCK_SETTIME, "clone3": unix.SYS_CLONE3,
	"delete_module": unix.SYS_DELETE_MODULE, "fanotify_init": unix.SYS_FANOTIFY_INIT, "finit_module": unix.SYS_FINIT_MODULE,
	"fcntl": unix.SYS_FCNTL, "getsid": unix.SYS_GETSID, "umask": unix.SYS_UMASK,
	"fsconfig": unix.SYS_FSCONFIG, "fsmount": unix.SYS_FSMOUNT, "fsopen": unix.SYS_FSOPEN, "fspick": unix.SYS_FSPICK,
	"init_module": unix.SYS_INIT_MODULE, "io_setup": unix.SYS_IO_SETUP, "io_uring_enter": unix.SYS_IO_URING_ENTER,
	"io_uring_register": unix.SYS_IO_URING_REGISTER, "io_uring_setup": unix.SYS_IO_URING_SETUP, "ioctl": unix.SYS_IOCTL,
	"ioprio_set": unix.SYS_IOPRIO_SET, "kcmp": unix.SYS_KCMP, "kexec_load": unix.SYS_KEXEC_LOAD, "keyctl": unix.SYS_KEYCTL, "kill": unix.SYS_KILL,
	"lookup_dcookie": unix.SYS_LOOKUP_DCOOKIE, "mbind": unix.SYS_MBIND, "migrate_pages": unix.SYS_MIGRATE_PAGES, "mlockall": unix.SYS_MLOCKALL,
	"mount": unix.SYS_MOUNT, "mount_setattr": unix.SYS_MOUNT_SETATTR, "move_mount": unix.SYS_MOVE_MOUNT, "move_pages": unix.SYS_MOVE_PAGES,
	"open_tree": unix.SYS_OPEN_TREE, "perf_event_open": unix.SYS_PERF_EVENT_OPEN, "personality": unix.SYS_PERSONALITY,
	"pidfd_open": unix.SYS_PIDFD_OPEN, "pivot_root": unix.SYS_PIVOT_ROOT, "prctl": unix.SYS_PRCTL, "quotactl": unix.SYS_QUOTACTL,
	"reboot": unix.SYS_REBOOT, "request_key": unix.SYS_REQUEST_KEY, "set_mempolicy": unix.SYS_SET_MEMPOLICY, "setdomainname": unix.SYS_SETDOMAINNAME,
	"setgroups": unix.SYS_SETGROUPS, "sethostname": unix.SYS_SETHOSTNAME, "setns": unix.SYS_SETNS, "setpriority": unix.SYS_SETPRIORITY, "prlimit64": unix.SYS_PRLIMIT64,
	"sched_setaffinity": unix.SYS_SCHED_SETAFFINITY, "sched_setscheduler": unix.SYS_SCHED_SETSCHEDULER,
	"setresgid": unix.SYS_SETRESGID, "setresuid": unix.SYS_SETRESUID, "settimeofday": unix.SYS_SETTIMEOFDAY, "socket": unix.SYS_SOCKET,
	"socketpair": unix.SYS_SOCKETPAIR, "statmount": 457, "listmount": 458,
	"swapoff": unix.SYS_SWAPOFF, "swapon": unix.SYS_SWAPON, "syslog": unix.SYS_SYSLOG, "tgkill": unix.SYS_TGKILL, "tkill": unix.SYS_TKILL,
	"umount2": unix.SYS_UMOUNT2, "userfaultfd": unix.SYS_USERFAULTFD,
}
