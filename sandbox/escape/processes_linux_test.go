package escape

// Processes: none but its own can be seen, signalled, traced, and nothing can be
// raised.
var processRows = []row{
	{item: 23, name: "orphans are reaped", in: shell, try: `i=0; while [ $i -lt 200 ]; do (: &); i=$((i+1)); done
n=1; for try in 1 2 3 4 5 6 7 8 9; do n=$(grep -ls ') Z 1 ' /proc/[0-9]*/stat | wc -l); [ $n -eq 0 ] && break; sleep 0.2; done; echo $n`, want: "0", control: none("a service of PID 1, not a refusal")},
	{item: 25, name: "signal to a process of the host", in: native, try: "call kill $HELPER 0", want: "ESRCH", control: both("ok")},
	{item: 25, name: "signal to the harness", in: native, try: "call kill $HARNESS 0", want: "ESRCH", control: both("ok")},
	{item: 25, name: "signal to a thread", in: native, try: "call tkill $HELPER 0", want: "ESRCH", control: both("ok")},
	{item: 25, name: "signal to a thread of a group", in: native, try: "call tgkill $HELPER $HELPER 0", want: "ESRCH", control: both("ok")},
	{item: 25, name: "queued signal", in: native, try: "sigqueue $HELPER", want: "ESRCH", control: both("ok")},
	{item: 25, name: "descriptor of a process", in: native, try: "call pidfd_open $HELPER 0", want: "ESRCH", control: both("ok")},
	{item: 25, name: "kill everybody", in: shell, try: `sleep 30 & kill -9 -1; wait; kill -0 $! 2>/dev/null || echo alone`, want: "alone", control: none("outside it would be real; what it is to reach is the helper, which row one of this item reaches")},
	{item: 25, name: "kill PID 1", in: shell, try: `kill -9 1; kill -STOP 1; kill -TERM 1; kill -0 1 && echo there`, want: "there", control: none("outside PID 1 is the host's")},

	{item: 26, name: "ptrace", in: native, try: "ptrace", want: "EPERM", control: both("ok")},
	{item: 26, name: "read another's memory", in: native, try: "readv", want: "EPERM", control: both("ok")},
	{item: 26, name: "write another's memory", in: native, try: "writev", want: "EPERM", control: both("ok")},
	{item: 26, name: "take another's descriptor", in: native, try: "getfd", want: "EPERM", control: both("ok")},
	{item: 26, name: "compare descriptors", in: native, try: "kcmp", want: "EPERM", control: both("ok").unless("ENOSYS")},

	{item: 27, name: "priority", in: native, try: "call setpriority 0 0 -5", want: "EACCES|EPERM", control: root("ok")},
	{item: 27, name: "real-time class", in: native, try: "fifo", want: "EPERM", control: root("ok")},
	{item: 27, name: "class by struct", in: native, try: "setattr", want: "EPERM", control: both("ok")},
	{item: 27, name: "real-time input and output", in: native, try: "call ioprio_set 1 0 0x2004", want: "EPERM", control: root("ok")},
	// PID 1 has the uid of all inside, and for these calls that is enough.
	{item: 27, name: "limits of PID 1", in: native, try: "call prlimit64 1 7 0 0", want: "EPERM", control: root("ok")},
	{item: 27, name: "priority of PID 1", in: native, try: "call setpriority 0 1 19", want: "EPERM", control: none("outside PID 1 is the host's")},
	{item: 27, name: "priority of its group", in: native, try: "call setpriority 1 0 1", want: "EPERM", control: none("outside it would slow the test down for good")},
	{item: 27, name: "priority of its user", in: native, try: "call setpriority 2 1000 1", want: "EPERM", control: none("outside it is somebody else's user")},
	{item: 27, name: "cores of PID 1", in: native, try: "call sched_setaffinity 1 0 0", want: "EPERM", control: none("outside PID 1 is the host's")},
	{item: 27, name: "class of PID 1", in: native, try: "call sched_setscheduler 1 5 &", want: "EPERM", control: none("outside PID 1 is the host's")},
	{item: 27, name: "order of killing", in: native, try: "oom 500", want: "EACCES", control: both("ok")},
	{item: 27, name: "memory policy", in: native, try: "call set_mempolicy 0 0 0", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 27, name: "memory of a range", in: native, try: "call mbind 0 0 0 0 0 0", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 27, name: "move pages", in: native, try: "call move_pages 0 0 0 0 0 0", want: "EPERM", control: both("ok").unless("ENOSYS")},
	{item: 27, name: "migrate pages", in: native, try: "call migrate_pages 0 0 0 0", want: "EPERM", control: both("EINVAL").unless("ENOSYS")},

	{item: 28, name: "borders of memory", in: native, try: "call prctl 35 15 & 0 0", want: "EPERM", control: both("ok").unless("EPERM|EINVAL")},
	{item: 28, name: "dumpable", in: native, try: "call prctl 4 1 0 0 0", want: "ok", control: both("ok")},   // allowed: it concerns itself alone
	{item: 28, name: "subreaper", in: native, try: "call prctl 36 1 0 0 0", want: "ok", control: both("ok")}, // allowed: PID 1 ends all of them
	{item: 28, name: "death signal", in: native, try: "call prctl 1 0 0 0 0", want: "ok", control: both("ok")},
	{item: 28, name: "secure bits", in: native, try: "call prctl 28 1 0 0 0", want: "EPERM", control: root("ok")},

	{item: 46, name: "to be root", in: native, try: "call setresuid 0 0 0", want: "EINVAL", control: root("ok")},
	{item: 46, name: "group of root", in: native, try: "call setresgid 0 0 0", want: "EINVAL", control: root("ok")},
	{item: 46, name: "more groups", in: native, try: "call setgroups 1 &", want: "EPERM", control: root("ok")},
	{item: 46, name: "capability", in: native, try: "capset", want: "EPERM", control: root("ok")},
	{item: 46, name: "more descriptors", in: native, try: "rlimit 7 8192", want: "EPERM", control: both("ok")},
	{item: 46, name: "longer queue of signals", in: native, try: "rlimit 11 2048", want: "EPERM", control: both("ok")},
	{item: 46, name: "larger files", in: native, try: "rlimit 1 0x100000000", want: "EPERM", control: both("ok")},
	{item: 46, name: "larger stack", in: native, try: "rlimit 3 0x1000000", want: "EPERM", control: both("ok")},
	{item: 46, name: "more processes", in: native, try: "rlimit 6 1000", want: "EPERM", control: both("ok")},
	{item: 32, name: "core files", in: native, try: "rlimit 4 1000000", want: "EPERM", control: both("ok")},
}

// Limits: what is too much ends, and is told as a limit.
var limitRows = []row{
	{item: 22, name: "fork bomb", in: python, try: "bomb(40)", control: both("ok"), seal: `processes = 20`, fails: "the processes limit of 20 was reached", soft: "EAGAIN"},
	{item: 22, name: "threads and processes", in: native, try: "children 30", control: both("ok"), seal: `processes = 24`, fails: "the processes limit of 24 was reached", soft: "EAGAIN|exit 2"},
	{item: 24, name: "stop everybody, and itself", in: shell, try: `sleep 30 & kill -STOP -1; kill -STOP $$`, control: none("outside it would be real"), seal: `wall = "300ms"`, fails: "the wall limit of 300ms was reached"},
	{item: 33, name: "64 threads that spin", in: native, try: "spin 1s", control: both("ok"), seal: `wall = "400ms"`, fails: "the wall limit of 400ms was reached"},
	{item: 29, name: "memory", in: native, try: "anonymous 96", control: both("ok"), seal: `memory = "64MiB"`, fails: "the memory limit of 64MiB was reached", soft: "ENOMEM"},
	{item: 29, name: "file in memory", in: native, try: "memfd 96", control: both("ok"), seal: `memory = "64MiB"`, fails: "the memory limit of 64MiB was reached", soft: unbounded},
	{item: 29, name: "shared memory", in: native, try: "sysv 96", control: both("ok"), seal: `memory = "64MiB"`, fails: "the memory limit of 64MiB was reached", soft: unbounded},
	{item: 29, name: "scratch counts as memory", in: native, try: "file 96", control: both("ok"), seal: `memory = "64MiB", scratch = "512MiB"`, fails: "the memory limit of 64MiB was reached", soft: unbounded},
	{item: 29, name: "locked memory", in: native, try: "mlock 16", want: "ENOMEM|EAGAIN|EPERM", control: root("ok")},
	{item: 30, name: "full disk", in: native, try: "file 8", want: "ENOSPC|SIGXFSZ|EFBIG", control: both("ok"), seal: `scratch = "4MiB"`},
	{item: 30, name: "full disk, left so", in: shell, try: `head -c 8000000 /dev/zero > big && echo ok`, control: both("ok"), seal: `scratch = "4MiB"`, fails: "the scratch limit of 4MiB was reached"},
	{item: 30, name: "too many files", in: native, try: "many 6000 d", control: both("ok"), seal: `scratch = "4MiB"`, fails: "the scratch limit of 4MiB was reached"},
	{item: 30, name: "file beyond the disk", in: native, try: "sparse 0x100000000 big gone", want: "EFBIG|SIGXFSZ", control: both("ok").unless("EFBIG")},
	{item: 31, name: "flood of stderr", in: shell, try: `head -c 3000000 /dev/zero >&2; echo ok`, control: both("ok"), seal: `output = "1MiB"`, fails: "the output limit of 1MiB was reached"},
	{item: 31, name: "escape codes on stderr", in: shell, try: `printf '\033]0;owned\007\033[31m\000\377red' >&2; exit 3`, control: none("it is what ev prints that counts: TestEscape wants it plain"), fails: "exit code 3"},
}
