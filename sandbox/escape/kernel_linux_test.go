package escape

import "runtime"

// The kernel's surface. Controls call with arguments that are refused only after
// the caller's rights: another errno than inside shows that the call was reached.
var kernelRows = append([]row{
	{item: 34, name: "io_uring_setup", in: native, try: "call io_uring_setup 0 0", want: "ENOSYS", control: both("EFAULT|EINVAL").unless("ENOSYS|EPERM")},
	{item: 34, name: "io_uring_enter", in: native, try: "call io_uring_enter -1 0 0 0 0 0", want: "ENOSYS", control: both("EBADF").unless("ENOSYS|EPERM")},
	{item: 34, name: "io_uring_register", in: native, try: "call io_uring_register -1 0 0 0", want: "ENOSYS", control: both("EBADF|EINVAL").unless("ENOSYS|EPERM")},
	{item: 34, name: "io_setup", in: native, try: "call io_setup 0 &", want: "ENOSYS", control: both("EINVAL").unless("ENOSYS")},

	{item: 35, name: "bpf", in: native, try: "call bpf 9999 & 0", want: "EPERM", control: root("EINVAL").unless("ENOSYS")},
	{item: 35, name: "perf_event_open", in: native, try: "call perf_event_open 0 0 0 0 0", want: "EPERM", control: root("EFAULT").unless("ENOSYS")},
	{item: 35, name: "userfaultfd", in: native, try: "call userfaultfd 0xffff", want: "EPERM", control: root("EINVAL").unless("ENOSYS")},
	{item: 35, name: "kexec_load", in: native, try: "call kexec_load 0 999 0 0xffff", want: "EPERM", control: root("EINVAL").unless("ENOSYS")},
	{item: 35, name: "init_module", in: native, try: "call init_module 0 0 @", want: "EPERM", control: root("EFAULT|ENOEXEC").unless("ENOSYS")},
	{item: 35, name: "finit_module", in: native, try: "call finit_module -1 @ 0", want: "EPERM", control: root("EBADF").unless("ENOSYS")},
	{item: 35, name: "delete_module", in: native, try: "call delete_module @evalnone 0x800", want: "EPERM", control: root("ENOENT").unless("ENOSYS")},
	{item: 35, name: "acct", in: native, try: "call acct @/nonexistent/eval", want: "EPERM", control: root("ENOENT").unless("ENOSYS")},
	{item: 35, name: "swapon", in: native, try: "call swapon @/nonexistent/eval 0", want: "EPERM", control: root("ENOENT").unless("ENOSYS")},
	{item: 35, name: "swapoff", in: native, try: "call swapoff @/nonexistent/eval", want: "EPERM", control: root("ENOENT").unless("ENOSYS")},
	{item: 35, name: "quotactl", in: native, try: "call quotactl 0x7fff00 @/nonexistent/eval 0 0", want: "EPERM", control: both("ENOENT|EINVAL").unless("ENOSYS")},
	{item: 35, name: "lookup_dcookie", in: native, try: "call lookup_dcookie 0 0 0", want: "EPERM", control: none("Linux has had no such call since 6.7")},
	{item: 35, name: "syslog", in: native, try: "call syslog 10 0 0", want: "EPERM", control: root("ok")},
	{item: 35, name: "reboot", in: native, try: "call reboot 1 2 3 0", want: "EPERM", control: none("not called outside, with whatever arguments")},
	{item: 35, name: "clock", in: native, try: "call clock_settime 0 0", want: "EPERM", control: both("EFAULT")},
	{item: 35, name: "time of day", in: native, try: "call settimeofday 0 8", want: "EPERM", control: both("EFAULT")},
	{item: 35, name: "adjtimex", in: native, try: "call adjtimex &", want: "EPERM", control: both("ok")}, // modes 0 only asks
	{item: 35, name: "fanotify", in: native, try: "call fanotify_init 0x80000000 0", want: "EPERM", control: root("EINVAL").unless("ENOSYS")},

	{item: 36, name: "own session keyring", in: native, try: "call keyctl 1 0 0 0 0", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 36, name: "key of the process", in: native, try: "call add_key @user @eval-escape @x 1 -2", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 36, name: "key of others", in: native, try: "call request_key @user @eval-escape-none 0 0", want: "EPERM", control: both("ENOKEY").unless("ENOSYS")},

	{item: 37, name: "child in a user namespace", in: native, try: "spawn 0x10000000", want: "EPERM", control: both("ok")},
	{item: 37, name: "child in a mount namespace", in: native, try: "spawn 0x20000", want: "EPERM", control: root("ok")},
	{item: 37, name: "leave the user namespace", in: native, try: "unshare 0x10000000", want: "EPERM", control: both("ok")},
	{item: 37, name: "leave the net namespace", in: native, try: "unshare 0x40000000", want: "EPERM", control: root("ok")},
	{item: 37, name: "enter a namespace", in: native, try: "call setns -1 0", want: "EPERM", control: both("EBADF")},
	{item: 37, name: "clone3", in: native, try: "call clone3 0 0", want: "ENOSYS", control: both("EINVAL").unless("ENOSYS")},

	{item: 39, name: "upper half of clone's flags", in: native, try: "clone 0x10000000011", want: "EPERM", control: both("ok")},
	{item: 39, name: "upper half of a family", in: native, try: "call socket 0x100000028 1 0", want: "EAFNOSUPPORT", control: both("ok").unless("EAFNOSUPPORT")},
	{item: 39, name: "upper half of an ioctl", in: native, try: "call ioctl 0 0x100005412 &", want: "EPERM", control: root("ok|ENOTTY").unless("EIO")},
	{item: 39, name: "upper half of a personality", in: native, try: "call personality 0x100400000", want: "EPERM", control: both("ok")},

	{item: 40, name: "input for the terminal", in: native, try: "call ioctl 0 0x5412 &", want: "EPERM", control: root("ok").unless("EIO|ENOTTY")},
	{item: 40, name: "TIOCLINUX", in: native, try: "call ioctl 0 0x541c &", want: "EPERM", control: both("ENOTTY")},
	{item: 40, name: "line discipline", in: native, try: "call ioctl 0 0x5423 0", want: "EPERM", control: both("EFAULT|ENOTTY")},
	{item: 41, name: "readable is executable", in: native, try: "call personality 0x400000", want: "EPERM", control: both("ok")},
	{item: 41, name: "page at 0", in: native, try: "call personality 0x100000", want: "EPERM", control: both("ok")},
	{item: 41, name: "no address randomisation", in: native, try: "call personality 0x40000", want: "ok", control: both("ok")}, // allowed
	{item: 42, name: "program in memory", in: native, try: "memexec", want: "ok", control: both("ok")},                         // allowed
	{item: 43, name: "filter of its own", in: native, try: "filter call bpf 9999 & 0", want: "EPERM", control: root("EINVAL").unless("ENOSYS")},
}, foreignRows[runtime.GOARCH]...)

// foreignRows are about calls that only some processors have.
var foreignRows = map[string][]row{"amd64": {
	{item: 38, name: "int 0x80", in: native, try: "int80", want: "SIGSYS", control: both("ok").unless("fault")},
	{item: 38, name: "number of x32", in: native, try: "call x32_getpid", want: "SIGSYS", control: both("ok|ENOSYS")},
	{item: 44, name: "modify_ldt", in: native, try: "call modify_ldt 0 & 16", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 44, name: "iopl", in: native, try: "call iopl 0", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 44, name: "ioperm", in: native, try: "call ioperm 0x80 0 1", want: "EPERM", control: both("EINVAL").unless("ENOSYS")},
	{item: 35, name: "ustat", in: native, try: "call ustat -1 &", want: "EPERM", control: both("EINVAL").unless("ENOSYS")},
}}
