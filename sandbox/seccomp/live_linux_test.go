//go:build amd64 || arm64

package seccomp

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// The test binary is also the process behind the filter: it installs it, does
// what the variable says, and prints.
const helperVar = "EVAL_SECCOMP_TEST_HELPER"

const exitUnavailable = 77

func TestMain(m *testing.M) {
	if how := os.Getenv(helperVar); how != "" {
		os.Exit(helper(how))
	}
	os.Exit(m.Run())
}

func helper(how string) int {
	if !strings.Contains(how, "open") {
		p, err := Compile(runtime.GOARCH)
		if err == nil {
			runtime.LockOSThread()
			err = install(p, unix.SECCOMP_FILTER_FLAG_TSYNC)
		}
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return exitUnavailable
		}
	}
	switch strings.Fields(how)[0] {
	case "probe":
		if err := json.NewEncoder(os.Stdout).Encode(probe()); err != nil {
			return 1
		}
	case "run":
		cmd := exec.Command(os.Args[1], os.Args[2:]...)
		for _, kv := range os.Environ() {
			if !strings.HasPrefix(kv, helperVar+"=") {
				cmd.Env = append(cmd.Env, kv)
			}
		}
		out, err := cmd.CombinedOutput()
		os.Stdout.Write(out)
		if err != nil {
			fmt.Println(err)
			return 1
		}
	case "x32":
		unix.RawSyscall(0x40000000+unix.SYS_GETPID, 0, 0, 0)
	case "foreign":
		foreignCall()
	}
	return 0
}

func install(p []Instruction, flags uintptr) error {
	if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
		return fmt.Errorf("prctl PR_SET_NO_NEW_PRIVS: %w", err)
	}
	prog := struct {
		length uint16
		filter *Instruction
	}{uint16(len(p)), &p[0]}
	if _, _, e := unix.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, flags, uintptr(unsafe.Pointer(&prog))); e != 0 {
		return fmt.Errorf("seccomp SECCOMP_SET_MODE_FILTER: %w", e)
	}
	return nil
}

// probes are calls that do nothing even where they are allowed, with the errno
// behind the filter, 0 for success. Descriptor -1 and the like make the control,
// the same without a filter, fail in another way or not at all.
var probes = []struct {
	name string
	args [6]uint64
	want syscall.Errno
}{
	{"getppid", [6]uint64{}, 0},
	{"unshare", [6]uint64{}, unix.EPERM},
	{"setns", [6]uint64{^uint64(0)}, unix.EPERM},
	{"ptrace", [6]uint64{unix.PTRACE_PEEKDATA, 0x7fffffff}, unix.EPERM},
	{"process_vm_readv", [6]uint64{}, unix.EPERM},
	{"kcmp", [6]uint64{0x7fffffff, 0x7fffffff}, unix.EPERM},
	{"keyctl", [6]uint64{0, ^uint64(2)}, unix.EPERM},
	{"bpf", [6]uint64{0xffff}, unix.EPERM},
	{"userfaultfd", [6]uint64{0xffff}, unix.EPERM},
	{"open_by_handle_at", [6]uint64{^uint64(0)}, unix.EPERM},
	{"fsopen", [6]uint64{}, unix.EPERM},
	{"mount_setattr", [6]uint64{^uint64(0), 0, 0xffff}, unix.EPERM},
	{"pidfd_getfd", [6]uint64{^uint64(0)}, unix.EPERM},
	{"fanotify_init", [6]uint64{0xffffffff}, unix.EPERM},
	{"clone", [6]uint64{unix.CLONE_NEWUSER | unix.CLONE_THREAD}, unix.EPERM}, // itself EINVAL: a thread needs CLONE_SIGHAND
	{"clone3", [6]uint64{}, unix.ENOSYS},
	{"io_uring_setup", [6]uint64{0, 0}, unix.ENOSYS},
	{"io_setup", [6]uint64{0, 0}, unix.ENOSYS},
	{"statmount", [6]uint64{}, unix.ENOSYS},
	{"personality", [6]uint64{0xffffffff}, 0},
	{"personality", [6]uint64{0xdeadbeef_ffffffff}, 0},
	{"personality", [6]uint64{0x0020000}, unix.EPERM}, // UNAME26
	{"ioctl", [6]uint64{^uint64(0), unix.TCGETS}, unix.EBADF},
	{"ioctl", [6]uint64{^uint64(0), unix.TIOCSTI}, unix.EPERM},
	{"ioctl", [6]uint64{^uint64(0), 0xdeadbeef_00000000 | unix.TIOCSTI}, unix.EPERM},
	{"prctl", [6]uint64{unix.PR_SET_MM, 0xffff}, unix.EPERM},
	{"prctl", [6]uint64{unix.PR_GET_DUMPABLE}, 0},
	{"socket", [6]uint64{unix.AF_UNIX, unix.SOCK_STREAM}, 0},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_RAW, 1}, unix.EPERM},
	{"socket", [6]uint64{unix.AF_INET, unix.SOCK_STREAM}, 0},
	{"socket", [6]uint64{unix.AF_NETLINK, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{unix.AF_VSOCK, unix.SOCK_STREAM}, unix.EAFNOSUPPORT},
	{"socket", [6]uint64{0xdeadbeef_00000000 | unix.AF_NETLINK, unix.SOCK_RAW}, unix.EAFNOSUPPORT},
	{"sched_setscheduler", [6]uint64{0, unix.SCHED_FIFO}, unix.EPERM},
	{"mknodat", [6]uint64{^uint64(0), 0, unix.S_IFCHR}, unix.EPERM},
	{"mknodat", [6]uint64{^uint64(0), 0, unix.S_IFIFO}, unix.EFAULT},
}

func probe() []syscall.Errno {
	var out []syscall.Errno
	for _, p := range probes {
		nr, ok := Number(runtime.GOARCH, p.name)
		if !ok {
			out = append(out, unix.ENOTSUP)
			continue
		}
		a := p.args
		_, _, e := unix.RawSyscall6(uintptr(nr), uintptr(a[0]), uintptr(a[1]), uintptr(a[2]), uintptr(a[3]), uintptr(a[4]), uintptr(a[5]))
		out = append(out, e)
	}
	return out
}

func start(t *testing.T, how string, args ...string) (string, *os.ProcessState) {
	t.Helper()
	cmd := exec.Command(os.Args[0], args...)
	cmd.Env = append(os.Environ(), helperVar+"="+how)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	if cmd.ProcessState.ExitCode() == exitUnavailable {
		skip(t, "no filter can be installed here: "+strings.TrimSpace(stderr.String()))
	}
	return string(out), cmd.ProcessState
}

func TestLiveProbes(t *testing.T) {
	// Without the filter the answers differ, or the test would pass on a kernel
	// that refuses everything; the default filter of a container may answer some.
	control := probesOf(t, "probe open")
	sealed := probesOf(t, "probe")
	differ := 0
	for i, p := range probes {
		got := sealed[i]
		t.Logf("%-20s %#x: open %d, sealed %d (%v)", p.name, p.args, control[i], got, got)
		if got != p.want {
			t.Errorf("%s %#x: %d (%v), want %d (%v)", p.name, p.args, got, got, p.want, p.want)
		}
		if got != control[i] {
			differ++
		}
	}
	if differ < 10 {
		t.Errorf("only %d answers differ from those without the filter", differ)
	}
}

func probesOf(t *testing.T, how string) []syscall.Errno {
	t.Helper()
	out, state := start(t, how)
	var found []syscall.Errno
	if err := json.Unmarshal([]byte(out), &found); err != nil || len(found) != len(probes) {
		t.Fatalf("%s: %v, %v: %q", how, state, err, out)
	}
	return found
}

func TestLivePrograms(t *testing.T) {
	dir := t.TempDir()
	const goSource = "package main\n\nimport \"fmt\"\n\nfunc main() { fmt.Println(\"ok\") }\n"
	const cSource = "#include <stdio.h>\nint main(void) { puts(\"ok\"); return 0; }\n"
	for name, text := range map[string]string{"main.go": goSource, "main.c": cSource} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	const python = `
import os, socket, subprocess, tempfile, threading, multiprocessing, asyncio
t = threading.Thread(target=lambda: None); t.start(); t.join()
assert subprocess.run(["true"]).returncode == 0
async def child():
    p = await asyncio.create_subprocess_exec("true"); assert await p.wait() == 0
asyncio.run(child())
a, b = socket.socketpair(); a.sendall(b"x"); assert b.recv(1) == b"x"
multiprocessing.Lock()
with tempfile.TemporaryDirectory() as d:
    os.mkfifo(d + "/f"); open(d + "/g", "w").write("g")
try: os.unshare(os.CLONE_NEWUSER)
except (AttributeError, PermissionError): pass
print("ok")`
	const node = `
const {spawnSync} = require('child_process'); const fs = require('fs');
if (spawnSync('true').status !== 0) throw 1;
const {Worker} = require('worker_threads');
new Worker('1', {eval: true}).on('exit', () => fs.readdir('/', () => console.log('ok')));`
	for _, args := range [][]string{
		{"sh", "-c", "ls -l / >/dev/null && cat /proc/self/status | grep -q Seccomp; echo ok"},
		{"bash", "-c", "read x < <(echo ok); (sleep 0 & wait); mkfifo p && mv p q && rm q && cp main.c copy && echo $x"},
		{"python3", "-c", python},
		{"node", "-e", node},
		{"git", "-c", "init.defaultBranch=main", "init", "-q", "repo"},
		{"sh", "-c", "cd repo && echo a >a && git add a && git -c user.name=a -c user.email=a@b commit -qm a && git gc -q && git log --oneline && echo ok"},
		{"sh", "-c", "gcc -pthread -o c main.c && ./c"},
		{"sh", "-c", "go run -p 2 main.go"},
		{"python3", "-c", `
import socket
s = socket.create_server(("127.0.0.1", 0)); c = socket.create_connection(s.getsockname()); c.close()
u = socket.socket(socket.AF_INET, socket.SOCK_DGRAM); u.bind(("127.0.0.1", 0))
socket.getaddrinfo("localhost", 80); print("ok")`},
	} {
		name := args[0]
		if tool := strings.Fields(args[len(args)-1])[0]; tool == "go" || tool == "gcc" {
			name = tool
		}
		t.Run(name, func(t *testing.T) {
			if _, err := exec.LookPath(name); err != nil {
				t.Skip(err) // the programs are not ours to demand
			}
			t.Chdir(dir)
			out, state := start(t, "run", args...)
			if !state.Success() || name != "git" && !strings.Contains(out, "ok") {
				t.Errorf("%v: %q", state, out)
			}
		})
	}
}

func TestLiveKill(t *testing.T) {
	if runtime.GOARCH != "amd64" {
		t.Skip("x32 and int 0x80 are of amd64")
	}
	for _, how := range []string{"x32", "foreign"} {
		t.Run(how, func(t *testing.T) {
			if _, state := start(t, how+" open"); !state.Success() {
				t.Skipf("this kernel has no such door: %v", state) // int 0x80 with ia32_emulation=off
			}
			_, state := start(t, how)
			if ws := state.Sys().(syscall.WaitStatus); !ws.Signaled() || ws.Signal() != unix.SIGSYS {
				t.Errorf("%v, want death by SIGSYS", state)
			}
		})
	}
}
