package pid1

import (
	"fmt"
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

func execveat(fd int, path *byte, argv, envp []*byte) error {
	_, _, errno := unix.RawSyscall6(unix.SYS_EXECVEAT, uintptr(fd), uintptr(unsafe.Pointer(path)),
		uintptr(unsafe.Pointer(&argv[0])), uintptr(unsafe.Pointer(&envp[0])), unix.AT_EMPTY_PATH, 0)
	return errno
}

// attackFirst tries, as the target, to reach into PID 1 and prints one line
// for each way.
func attackFirst() {
	for _, name := range []string{"mem", "environ", "maps", "fd", "cwd", "exe"} {
		flags := os.O_RDONLY
		if name == "mem" {
			flags = os.O_RDWR
		}
		f, err := os.OpenFile("/proc/1/"+name, flags, 0)
		if err == nil {
			f.Close()
		}
		report("open "+name, err)
	}
	pidfd, err := unix.PidfdOpen(1, 0)
	report("pidfd_open", err)
	socket, err := unix.PidfdGetfd(pidfd, ControlFD, 0)
	if err == nil {
		_, err = unix.Write(socket, []byte("forged"))
	}
	report("forge", err)
	word := make([]byte, 8)
	local := unix.Iovec{Base: &word[0]}
	local.SetLen(len(word))
	_, err = unix.ProcessVMReadv(1, []unix.Iovec{local}, []unix.RemoteIovec{{Base: textBase, Len: len(word)}}, 0)
	report("process_vm_readv", err)
	report("ptrace", unix.PtraceSeize(1))
}

func report(what string, err error) { fmt.Printf("%s: %v\n", what, err) }
