package escape

// Files: the root holds nothing of the host, what is there can't be written, and
// no descriptor came along.
var fileRows = []row{
	{item: 1, name: "file of the home folder", in: native, try: "open $SECRET_FILE", want: "ENOENT", control: both("ok")},
	{item: 1, name: "shadow passwords", in: native, try: "open /etc/shadow", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 1, name: "the host's users", in: native, try: "matches /etc/passwd root:", want: "no", control: both("yes")},
	{item: 1, name: "machine id", in: native, try: "open /etc/machine-id", want: "ENOENT", control: both("ok").unless("ENOENT")},
	{item: 1, name: "sysfs", in: native, try: "path /sys/kernel", want: "ENOENT", control: both("ok")},

	{item: 2, name: "root of PID 1", in: native, try: "list /proc/$FIRST/root", want: "EACCES", control: both("ok")},
	{item: 2, name: "folder of PID 1", in: native, try: "readlink /proc/$FIRST/cwd", want: "EACCES", control: both("ok")},
	{item: 2, name: "program of PID 1", in: native, try: "open /proc/$FIRST/exe", want: "EACCES", control: both("ok")},
	{item: 2, name: "memory of PID 1", in: native, try: "open /proc/$FIRST/mem", want: "EACCES", control: both("ok")},
	{item: 2, name: "map of PID 1", in: native, try: "matches /proc/$FIRST/maps x", want: "EACCES", control: both("yes")},
	{item: 2, name: "descriptors of PID 1", in: native, try: "list /proc/$FIRST/fd", want: "EACCES", control: both("ok")},
	{item: 2, name: "a descriptor of PID 1", in: native, try: "open /proc/$FIRST/fd/0", want: "EACCES", control: both("ok")},
	{item: 2, name: "own root", in: native, try: "open /proc/self/root$SECRET_FILE", want: "ENOENT", control: both("ok")},
	{item: 2, name: "folder of the harness", in: native, try: "list /proc/$HARNESS/cwd", want: "ENOENT", control: both("ok")},
	{item: 2, name: "descriptors of the harness", in: native, try: "list /proc/$HARNESS/fd", want: "ENOENT", control: both("ok")},

	{item: 3, name: "planted descriptors", in: native, try: "planted $PLANTED", want: "0", control: both("4")},

	// It was opened outside, on a mount that isn't read-only: its times could be set.
	{item: 3, name: "the host's null device as stdin", in: native, try: "planted $NULL", want: "0", control: none("the control's stdin is a terminal; TestPosture names what it is inside")},

	{item: 4, name: "dots above the root", in: native, try: "up $SECRET_FILE", want: "ENOENT", control: both("ok")},
	{item: 4, name: "out of a chroot", in: native, try: "out $SECRET_FILE", want: "EPERM", control: root("ok")},
	{item: 5, name: "link out of scratch", in: native, try: "through $SECRET_FILE", want: "ENOENT", control: both("ok")},

	{item: 7, name: "hard link to an input", in: native, try: "hardlink $INPUT", want: "EXDEV", control: both("ok")},
	{item: 7, name: "mode of an input", in: native, try: "chmod $INPUT", want: "EROFS", control: both("ok")},
	{item: 7, name: "times of an input", in: native, try: "touch $INPUT", want: "EROFS", control: both("ok")},
	{item: 7, name: "length of an input", in: native, try: "truncate $INPUT", want: "EROFS|EACCES", control: both("ok")},
	{item: 7, name: "attribute of an input", in: native, try: "xattr $INPUT", want: "EROFS", control: both("ok").unless("EOPNOTSUPP")},
	{item: 7, name: "name of an input", in: native, try: "rename $INPUT", want: "EROFS|EACCES|EXDEV|EBUSY", control: both("ok")},

	{item: 8, name: "write an input", in: native, try: "write $INPUT", want: "EROFS|EACCES", control: both("ok")},
	{item: 8, name: "file beside an input", in: native, try: "create $INPUT.new", want: "EROFS|EACCES", control: both("ok")},
	{item: 8, name: "write the users", in: native, try: "write /etc/passwd", want: "EROFS|EACCES", control: root("ok")},
	{item: 8, name: "may write the root", in: native, try: "may /", want: "EROFS|EACCES", control: root("ok")},
	{item: 8, name: "may write /etc", in: native, try: "may /etc", want: "EROFS|EACCES", control: root("ok")},
	{item: 8, name: "the seal's own file", in: native, try: "open /.seal", want: "EACCES", control: none("there is none outside")},
	{item: 8, name: "mount", in: native, try: "call mount @none @. @evalnofs 0 0", want: "EPERM", control: root("ENODEV")},
	{item: 8, name: "remount", in: native, try: "call mount @none @/in 0 0x1020 0", want: "EPERM", control: none("outside it would be a real one")},
	{item: 8, name: "umount", in: native, try: "call umount2 @. 0", want: "EPERM", control: root("EINVAL")},
	{item: 8, name: "pivot_root", in: native, try: "call pivot_root 0 0", want: "EPERM", control: root("EFAULT")},

	{item: 10, name: "folder that a variable names", in: native, try: "create $TEST_TMPDIR/new", want: "ENOENT", control: both("ok")},
	{item: 10, name: "the host's folder for temporary files", in: native, try: "list $HOST_DIR", want: "ENOENT", control: both("ok")},

	{item: 13, name: "character device", in: native, try: "mknod 0x21a4 259", want: "EPERM", control: root("ok")},
	{item: 13, name: "whiteout", in: native, try: "mknod 0x2000 0", want: "EPERM", control: both("ok")},
	{item: 17, name: "open by handle", in: native, try: "handle", want: "EPERM", control: root("ok").unless("EOPNOTSUPP")},
	{item: 17, name: "make a handle", in: native, try: "name-handle", want: "EPERM", control: both("ok").unless("EOPNOTSUPP")},
	{item: 18, name: "open_tree", in: native, try: "call open_tree -100 @. 0", want: "EPERM", control: both("ok")},
	{item: 18, name: "move_mount", in: native, try: "call move_mount -1 @ -1 @ 0", want: "EPERM", control: root("ENOENT|EBADF")},
	{item: 18, name: "fsopen", in: native, try: "call fsopen @evalnofs 0", want: "EPERM", control: root("ENODEV")},
	{item: 18, name: "fsconfig", in: native, try: "call fsconfig -1 99 0 0 0", want: "EPERM", control: both("EINVAL")},
	{item: 18, name: "fsmount", in: native, try: "call fsmount -1 0 0", want: "EPERM", control: root("EBADF")},
	{item: 18, name: "fspick", in: native, try: "call fspick -100 @. 0xffff", want: "EPERM", control: root("EINVAL")},
	{item: 18, name: "mount_setattr", in: native, try: "call mount_setattr -100 @. 0 0 0", want: "EPERM", control: both("EINVAL")},
	{item: 18, name: "statmount", in: native, try: "call statmount 0 0 0 0", want: "ENOSYS", control: both("EFAULT|EINVAL").unless("ENOSYS")},
	{item: 18, name: "listmount", in: native, try: "call listmount 0 0 0 0", want: "ENOSYS", control: both("EFAULT|EINVAL").unless("ENOSYS")},
}

// Devices and /proc. Opening is all that is done; what isn't there at all can't
// be told from what is hidden, so the controls open the same.
var deviceRows = []row{
	{item: 12, name: "kernel log", in: native, try: "open /dev/kmsg", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "memory of the machine by device", in: native, try: "open /dev/mem", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "virtual machines", in: native, try: "open /dev/kvm", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "vsock device", in: native, try: "open /dev/vsock", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "fuse", in: native, try: "open /dev/fuse", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "loop control", in: native, try: "open /dev/loop-control", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 12, name: "network tunnels", in: native, try: "open /dev/net/tun", want: "ENOENT", control: root("ok").unless("ENOENT|ENODEV")},
	{item: 12, name: "a disk", in: native, try: "open $DISK", want: "ENOENT", control: root("ok").unless("ENOENT|EPERM")},
	{item: 12, name: "terminal", in: native, try: "path /dev/tty", want: "ENOENT", control: both("ok")},
	{item: 12, name: "terminals", in: native, try: "path /dev/ptmx", want: "ENOENT", control: both("ok")},
	{item: 12, name: "console", in: native, try: "path /dev/console", want: "ENOENT", control: both("ok").unless("ENOENT")},

	{item: 15, name: "core pattern", in: native, try: "write /proc/sys/kernel/core_pattern", want: "ENOENT", control: root("ok")},
	{item: 15, name: "host name by file", in: native, try: "open /proc/sys/kernel/hostname", want: "ENOENT", control: both("ok")},
	{item: 15, name: "sysrq", in: native, try: "write /proc/sysrq-trigger", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 15, name: "host name by call", in: native, try: "call sethostname 0 1000", want: "EPERM", control: root("EINVAL")},
	{item: 15, name: "domain name by call", in: native, try: "call setdomainname 0 1000", want: "EPERM", control: root("EINVAL")},
	{item: 16, name: "kernel memory", in: native, try: "open /proc/kcore", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 16, name: "kernel symbols", in: native, try: "open /proc/kallsyms", want: "ENOENT", control: both("ok").unless("ENOENT")},
	{item: 16, name: "keys", in: native, try: "open /proc/keys", want: "ENOENT", control: both("ok").unless("ENOENT")},
	{item: 16, name: "timers", in: native, try: "open /proc/timer_list", want: "ENOENT", control: root("ok").unless("ENOENT")},
	{item: 16, name: "kernel messages", in: native, try: "open /proc/kmsg", want: "ENOENT", control: root("ok")},
	{item: 16, name: "sockets of the host", in: native, try: "matches /proc/self/net/unix $SOCKET", want: "no", control: both("yes")},
	{item: 16, name: "processes of the host", in: native, try: "list /proc/$HELPER", want: "ENOENT", control: both("ok")},
}
