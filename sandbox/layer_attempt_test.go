//go:build linux

package sandbox

import (
	"context"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// layerAttempts are attempts that the full seal refuses, and that succeed once
// the layers are off and nobody looks: so each of them is what refuses it. Where
// another layer refuses it as well, depth says which, and a second row has both
// off. What a layer changes and no attempt can use is read as posture instead.
var layerAttempts = []struct {
	off     string // layers, by space
	try     string // words for escape/attempt
	full    string // what comes of it under the full seal
	without string // and without them
}{
	{"net", "udp 127.0.0.1:9", "ENETUNREACH", "ok"},
	{"net", "tcp $TCP", "EACCES", "EACCES"}, // depth: Landlock, where it knows ports
	{"net landlock", "tcp $TCP", "EACCES", "ok"},
	{"ipc", "shm $SHM", "ENOENT", "ok"},
	{"uts", "hostname", "eval", "$HOSTNAME"},
	{"cgroup", "target /proc/self/ns/cgroup", "", "$CGROUP"}, // posture: what it hides is names
	{"proc", "open /proc/meminfo", "ENOENT", "ok"},
	{"proc", "open /proc/sys/kernel/random/boot_id", "ENOENT", "ok"},
	{"proc", "write /proc/sys/kernel/core_pattern", "ENOENT", "EACCES"}, // depth: user, it isn't the host's root
	{"dev", "open /dev/kmsg", "ENOENT", "ok"},
	{"caps", "value prctl 39 0 0 0 0", "1", "0"},  // posture: no_new_privs; depth: nosuid mounts
	{"caps", "value prctl 23 21 0 0 0", "0", "1"}, // posture: CAP_SYS_ADMIN is in the bounding set
	{"seccomp", "ptrace", "EPERM", "ok"},
	{"seccomp", "call io_uring_setup 0 0", "ENOSYS", "EFAULT"},
	{"seccomp", "call add_key @user @escape @x 1 -2", "EPERM", "ok"},
	{"seccomp", "call socket 16 3 0", "EAFNOSUPPORT", "ok"},
	{"seccomp", "spawn 0x10000000", "EPERM", "ok"},
	{"landlock", "open /.seal", "EACCES", "ok"},
	{"landlock", "oom 500", "EACCES", "ok"},
	{"landlock", "bind 0.0.0.0:0", "EACCES", "ok"},
	{"limits", "rlimit 7 8192", "EPERM", "ok"},
	{"limits", "rlimit 11 2048", "EPERM", "ok"},
	{"root", "may /", "EROFS", "ok"},
	{"root", "create /new", "EROFS", "EACCES"}, // depth: Landlock
	{"root landlock", "create /new", "EROFS", "ok"},
	{"readonly", "write /in/file", "EROFS", "EACCES"}, // depth: Landlock
	{"landlock", "write /in/file", "EROFS", "EROFS"},  // depth: the mount
	{"readonly landlock", "write /in/file", "EROFS", "ok"},
	{"fds", "call fcntl 6 1 0", "EBADF", "ok"},
	{"session", "value getsid 0", "1", "0"}, // posture: the session of the harness, which has no number inside; depth: no /dev/tty
	{"env", "value umask 0", "18", "63"},
}

// moreOff are layers that the harness's look at PID 1 doesn't miss, so that
// TestLayerOff has nothing to say of them.
var moreOff = map[string]func(*Program){
	"session": func(p *Program) { switchOff(p, "session") },
	"env":     func(p *Program) { dropCall(p, "umask") },
	// Only the flags of inputs; those of devices have a layer of their own.
	"readonly": func(p *Program) {
		for i := len(p.Rows) - 1; i >= 0; i-- {
			if r := p.Rows[i]; r.Layer == "mount" && r.Call == "mount_setattr" {
				p.Rows = append(p.Rows[:i:i], p.Rows[i+1:]...)
			}
		}
	},
}

func dropCall(p *Program, call string) {
	for i, r := range p.Rows {
		if r.Call == call {
			p.Rows = append(p.Rows[:i:i], p.Rows[i+1:]...)
			return
		}
	}
	panic("no row " + call)
}

func TestLayerAttempts(t *testing.T) {
	needSeal(t, New(Options{}))
	dir := t.TempDir()
	program := filepath.Join(os.Getenv("EVAL_ESCAPE_BIN"), "attempt") // where it can't be built, as in sandbox/escape
	if os.Getenv("EVAL_ESCAPE_BIN") == "" {
		program = filepath.Join(dir, "attempt")
		build := exec.Command("go", "build", "-o", program, "./escape/attempt")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file, []byte("x"), 0o666); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(file, 0o666); err != nil { // whoever is inside may, but for the seal
		t.Fatal(err)
	}
	words := hostWords(t)
	old := unix.Umask(0o077)
	defer unix.Umask(old)
	for _, a := range layerAttempts {
		sp := Spec{
			Args: append([]string{"/in/attempt"}, strings.Fields(words.Replace(a.try))...), Policy: graph.Policy{Limits: graph.DefaultLimits},
			Mounts: []graph.Mount{
				{Path: "/in/attempt", Source: program, Digest: cas.BLAKE3.Sum([]byte(program)), Executable: true},
				{Path: "/in/file", Source: file, Digest: cas.BLAKE3.Sum([]byte("x"))},
			},
		}
		got := attempted(t, New(Options{}), sp)
		if want := words.Replace(a.full); got != want && want != "" || want == "" && got == words.Replace(a.without) {
			t.Errorf("%s under the full seal came to %q, not %q", a.try, got, want)
		}
		s := New(Options{})
		s.forgive = map[string]error{}
		for _, layer := range strings.Fields(a.off) {
			s.forgive[layer] = nil
		}
		s.edit = func(p *Program) {
			for layer := range s.forgive {
				if f := layerOff[layer]; f != nil {
					f(p)
				} else {
					moreOff[layer](p)
				}
			}
		}
		if got, want := attempted(t, s, sp), words.Replace(a.without); got != want {
			t.Errorf("%s without %s came to %q, not %q", a.try, a.off, got, want)
		}
	}
	for _, layer := range []string{"net", "ipc", "uts", "cgroup", "proc", "dev", "caps", "seccomp", "landlock", "limits", "root", "readonly", "fds", "session", "env"} {
		has := false
		for _, a := range layerAttempts {
			has = has || a.off == layer
		}
		if !has {
			t.Errorf("no attempt depends on %s", layer)
		}
	}
}

// attempted runs one attempt and gives its result.
func attempted(t *testing.T, s *Sandbox, sp Spec) string {
	t.Helper()
	defer s.Close()
	s.o.Put = func(r io.Reader) (cas.Digest, error) { return cas.BLAKE3.SumReader(r) }
	res, err := s.Run(context.Background(), sp)
	if err != nil {
		return err.Error()
	}
	_, result, _ := strings.Cut(strings.TrimSpace(string(res.Stdout.Data)), " ")
	if result == "" {
		return "stderr: " + string(res.Stderr.Data)
	}
	return result
}

// hostWords are what attempts are told of the host.
func hostWords(t *testing.T) *strings.Replacer {
	t.Helper()
	name, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	group, err := os.Readlink("/proc/self/ns/cgroup")
	if err != nil {
		t.Fatal(err)
	}
	return strings.NewReplacer("$TCP", listen(t), "$SHM", sharedMemory(t), "$HOSTNAME", name, "$CGROUP", group)
}

// listen is a service of the host.
func listen(t *testing.T) string {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	return ln.Addr().String()
}

// sharedMemory is a segment that everybody may have.
func sharedMemory(t *testing.T) string {
	t.Helper()
	key := 0x76650000 | os.Getpid()&0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o666)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	return strconv.Itoa(key)
}
