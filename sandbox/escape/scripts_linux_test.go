package escape

// The same from languages that people write in: what they call is not what a
// native program calls.
var shellRows = []row{
	{item: 1, name: "sh: file of the home folder", in: bash, try: `reads "$SECRET_FILE"`, want: "no", control: both("ok")},
	{item: 1, name: "sh: shadow passwords", in: bash, try: `reads /etc/shadow`, want: "no", control: root("ok")},
	{item: 2, name: "sh: root of PID 1", in: bash, try: `tries ls /proc/$FIRST/root/`, want: "no", control: both("ok")},
	{item: 3, name: "sh: descriptors", in: bash, try: `n=0; for fd in /proc/$$/fd/*; do n=$((n+1)); done; [ $n -le 4 ] && echo few || echo many`, want: "few", control: none("the control's shell has no more either; the planted ones are counted above")},
	{item: 4, name: "sh: dots above the root", in: bash, try: `cd /; reads "../../../..$SECRET_FILE"`, want: "no", control: both("ok")},
	{item: 5, name: "sh: link", in: bash, try: `ln -s "$SECRET_FILE" l; reads l`, want: "no", control: both("ok")},
	{item: 8, name: "sh: write /etc", in: bash, try: `has -w /etc`, want: "no", control: root("ok")},
	{item: 10, name: "sh: folder that a variable names", in: bash, try: `tries mkdir "$TEST_TMPDIR/sh.$$"`, want: "no", control: both("ok")},
	{item: 12, name: "sh: devices", in: bash, try: `n=0; for f in /dev/*; do n=$((n+1)); done; [ $n -eq 10 ] && echo ten || echo more`, want: "ten", control: both("more")},
	{item: 14, name: "set-id program", in: bash, try: `if LD_SHOW_AUXV=1 su --version 2>/dev/null | grep -q AT_EUID; then echo same; else echo gained; fi`, want: "same", control: user("gained")}, // ld.so hides it from a program that gained rights
	{item: 15, name: "sh: /proc/sys", in: bash, try: `has -d /proc/sys`, want: "no", control: both("ok")},
	{item: 25, name: "sh: signal", in: bash, try: `tries kill -0 $HELPER`, want: "no", control: both("ok")},
	{item: 37, name: "sh: unshare", in: bash, try: `tries unshare -U true`, want: "no", control: both("ok")},
	{item: 46, name: "sh: ulimit", in: bash, try: `tries ulimit -n 8192`, want: "no", control: both("ok")},
	{item: 53, name: "sh: service of the host", in: bash, try: `tries bash -c 'exec 3<>/dev/tcp/${TCP%:*}/${TCP#*:}'`, want: "no", control: both("ok")},
	{item: 75, name: "sh: file that wasn't declared", in: bash, try: `reads "$EXPECTED"`, want: "no", control: both("ok")},
	{item: 77, name: "sh: environment", in: bash, try: `has -n "$EVAL_ESCAPE_SECRET"`, want: "no", control: both("ok")},
}

var pythonRows = []row{
	{item: 1, name: "py: file of the home folder", in: python, try: `t(open, env["SECRET_FILE"])`, want: "ENOENT", control: both("ok")},
	{item: 2, name: "py: root of PID 1", in: python, try: `t(os.listdir, f"/proc/{env['FIRST']}/root")`, want: "EACCES", control: both("ok")},
	{item: 7, name: "py: hard link", in: python, try: `t(os.link, env["INPUT"], "hard")`, want: "EXDEV", control: both("ok")},
	{item: 8, name: "py: mount", in: python, try: `c("mount", b"none", b".", b"evalnofs", 0, None)`, want: "EPERM", control: root("ENODEV")},
	{item: 13, name: "py: device", in: python, try: `t(os.mknod, "n", 0o20644, os.makedev(1, 3))`, want: "EPERM", control: root("ok")},
	{item: 15, name: "py: core pattern", in: python, try: `t(os.open, "/proc/sys/kernel/core_pattern", os.O_WRONLY)`, want: "ENOENT", control: root("ok")},
	{item: 25, name: "py: signal", in: python, try: `t(os.kill, int(env["HELPER"]), 0)`, want: "ESRCH", control: both("ok")},
	{item: 26, name: "py: ptrace", in: python, try: `traced()`, want: "EPERM", control: both("ok")},
	{item: 27, name: "py: nice", in: python, try: `t(os.nice, -5)`, want: "EPERM|EACCES", control: root("ok")},
	{item: 27, name: "py: real-time class", in: python, try: `t(os.sched_setscheduler, 0, os.SCHED_FIFO, os.sched_param(1))`, want: "EPERM", control: root("ok")},
	{item: 29, name: "py: locks work", in: python, try: `t(multiprocessing.Lock)`, want: "ok", control: both("ok")}, // honest
	{item: 37, name: "py: unshare", in: python, try: `c("unshare", 0x10000000)`, want: "EPERM", control: both("ok")},
	{item: 46, name: "py: to be root", in: python, try: `t(os.setuid, 0)`, want: "EINVAL|EPERM", control: root("ok")},
	{item: 46, name: "py: chroot", in: python, try: `t(os.chroot, ".")`, want: "EPERM", control: root("ok")},
	{item: 47, name: "py: abstract socket", in: python, try: `t(socket.socket(socket.AF_UNIX).connect, "\0" + env["ABSTRACT"])`, want: "ECONNREFUSED|EPERM", control: both("ok")},
	{item: 48, name: "py: socket in a folder", in: python, try: `t(socket.socket(socket.AF_UNIX).connect, env["SOCKET"])`, want: "ENOENT", control: both("ok")},
	{item: 49, name: "py: netlink", in: python, try: `t(socket.socket, socket.AF_NETLINK, socket.SOCK_RAW)`, want: "EAFNOSUPPORT", control: both("ok")},
	{item: 49, name: "py: packet", in: python, try: `t(socket.socket, socket.AF_PACKET, socket.SOCK_RAW)`, want: "EAFNOSUPPORT", control: root("ok").unless("EAFNOSUPPORT")},
	{item: 50, name: "py: ping", in: python, try: `t(socket.socket, socket.AF_INET, socket.SOCK_RAW, 1)`, want: "EPERM", control: root("ok")},
	{item: 53, name: "py: service of the host", in: python, try: `t(socket.create_connection, tuple(env["TCP"].split(":")), 2)`, want: refused, control: both("ok")},
	{item: 77, name: "py: environment", in: python, try: `"found" if "EVAL_ESCAPE_SECRET" in env else "absent"`, want: "absent", control: both("found")},
	{item: 78, name: "py: machine", in: python, try: `t(open, "/etc/machine-id")`, want: "ENOENT", control: both("ok").unless("ENOENT")},
}

// What scripts begin with.
const (
	shellPrelude = `tries() { "$@" >/dev/null 2>&1 && echo ok || echo no; }
reads() { tries cat "$1"; }
has() { tries test "$@"; }
`
	pythonPrelude = `import ctypes, errno, multiprocessing, os, signal, socket, subprocess, sys, time
env = os.environ
def t(f, *a):
    try: f(*a)
    except OSError as e: return errno.errorcode.get(e.errno, str(e))
    return "ok"
libc = ctypes.CDLL(None, use_errno=True)
def c(name, *a):
    r = getattr(libc, name)(*a)
    return "ok" if r == 0 else errno.errorcode[ctypes.get_errno()]
def bomb(n):
    pids = []
    try:
        for i in range(n):
            p = os.fork()
            if p == 0:
                time.sleep(10)
                os._exit(0)
            pids.append(p)
    except OSError as e: return errno.errorcode[e.errno]
    finally:
        for p in pids:
            os.kill(p, 9)
            os.waitpid(p, 0)
    return "ok"
def traced():
    p = os.fork()
    if p == 0:
        time.sleep(10)
        os._exit(0)
    try: return c("ptrace", 0x4206, p, None, None)
    finally:
        os.kill(p, 9)
        os.waitpid(p, 0)
`
)
