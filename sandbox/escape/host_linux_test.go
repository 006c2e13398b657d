package escape

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"
)

// A host is what attempts are made on: what this machine has for them, below
// one folder, and how ev and the controls are started in it.
type host struct {
	dir     string
	vars    map[string]string // what attempts are told
	env     []string
	planted []*os.File // descriptors for ev and the controls
	tty     *os.File   // their stdin, a terminal if there is one
}

// serial tells hosts of one process apart where names are the machine's.
var serial atomic.Int64

// newHost fills a folder of its own, all of which is gone after the test.
func newHost(t *testing.T) *host {
	t.Helper()
	h := &host{dir: t.TempDir()}
	for _, d := range []string{"home", "tmp", "store", "tests", "ws/p", "ws/.git", "path"} {
		h.must(t, os.MkdirAll(h.path(d), 0o755))
	}
	for name, text := range map[string]string{
		"secret": "secret\n", "home/secret": "secret\n", "ws/.git/HEAD": "ref: refs/heads/fix\n", "ws/p/input.txt": "input\n", "ws/p/expected.txt": "42\n",
	} {
		h.must(t, os.WriteFile(h.path(name), []byte(text), 0o644))
	}
	id := strconv.Itoa(os.Getpid())
	secret := "needle" + id + "elddeen!"
	h.vars = map[string]string{
		"SECRET_FILE": h.path("home/secret"), "HOST_DIR": h.dir, "TEST_TMPDIR": h.path("tests"), "WORKSPACE": h.path("ws"), "STORE": h.path("store"),
		"HARNESS": id, "FIRST": "", "HELPER": h.helper(t), "NEEDLE": reverse(secret), "ABSTRACT": fmt.Sprintf("eval-escape-%s-%d", id, serial.Add(1)), "SOCKET": h.path("socket"),
		"TCP": listen(t, "tcp", "127.0.0.1:0"), "SHM": sharedMemory(t), "MQ": messageQueue(t), "DISK": disk(),
		"EXPECTED": h.path("ws/p/expected.txt"),
	}
	h.vars["FIRST"] = h.vars["HELPER"] // inside it is PID 1: that of the host is nobody's to try
	listen(t, "unix", h.vars["SOCKET"])
	listen(t, "unix", "@"+h.vars["ABSTRACT"])
	h.plant(t)
	h.terminal(t)
	h.env = []string{
		"HOME=" + h.path("home"), "TMPDIR=" + h.path("tmp"), "PATH=" + h.path("path") + ":" + systemPath, "LANG=C.UTF-8", "TZ=UTC",
		"EVAL_ESCAPE_SECRET=" + secret, "MARK=" + h.path("tests/ran"),
	}
	for _, f := range []string{"bwrap", "cat", "git", "ip", "ldconfig", "mount", "newgidmap", "newuidmap", "nsenter", "python3", "runsc", "sh", "unshare"} {
		h.must(t, os.WriteFile(h.path("path/"+f), []byte("#!/bin/sh\necho \"$0\" >> \"$MARK\"\n"), 0o755))
	}
	return h
}

const systemPath = "/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin"

func (h *host) path(elem string) string { return filepath.Join(h.dir, elem) }

func (h *host) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func reverse(s string) string {
	b := []byte(s)
	slices.Reverse(b)
	return string(b)
}

// helper is a process that is there to be reached.
func (h *host) helper(t *testing.T) string {
	cmd := exec.Command(binary("attempt"), "-1", "sleep", "10m")
	h.must(t, cmd.Start())
	t.Cleanup(func() {
		if err := cmd.Process.Signal(syscall.Signal(0)); err != nil {
			t.Errorf("the helper was ended by something else: %v", err)
		}
		cmd.Process.Kill()
		cmd.Wait()
	})
	return strconv.Itoa(cmd.Process.Pid)
}

func listen(t *testing.T, network, addr string) string {
	t.Helper()
	ln, err := net.Listen(network, addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { ln.Close() })
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			c.Close()
		}
	}()
	return ln.Addr().String()
}

func sharedMemory(t *testing.T) string {
	t.Helper()
	key := 0x65760000 + int(serial.Add(1))<<16 + os.Getpid()&0xffff
	id, err := unix.SysvShmGet(key, 4096, unix.IPC_CREAT|unix.IPC_EXCL|0o600)
	if err != nil {
		t.Fatalf("shared memory: %v", err)
	}
	t.Cleanup(func() { unix.SysvShmCtl(id, unix.IPC_RMID, nil) })
	return strconv.Itoa(key)
}

func messageQueue(t *testing.T) string {
	t.Helper()
	name := fmt.Sprintf("eval-escape-%d-%d", os.Getpid(), serial.Add(1))
	text := append([]byte(name), 0)
	fd, _, errno := unix.RawSyscall6(unix.SYS_MQ_OPEN, uintptr(unsafe.Pointer(&text[0])), unix.O_CREAT|unix.O_EXCL|unix.O_RDWR, 0o600, 0, 0, 0)
	if errno != 0 {
		t.Logf("no message queues here: %v", errno)
		return name
	}
	unix.Close(int(fd))
	t.Cleanup(func() { unix.RawSyscall(unix.SYS_MQ_UNLINK, uintptr(unsafe.Pointer(&text[0])), 0, 0) })
	return name
}

// disk is a block device of the machine, if one can be seen.
func disk() string {
	for _, d := range []string{"/dev/vda", "/dev/sda", "/dev/nvme0n1", "/dev/xvda", "/dev/loop0"} {
		if fi, err := os.Stat(d); err == nil && fi.Mode()&os.ModeDevice != 0 {
			return d
		}
	}
	return "/dev/no-disk"
}

// plant makes the descriptors that nobody inside may have: a file, a folder, a
// socket, and one with a high number.
func (h *host) plant(t *testing.T) {
	t.Helper()
	var want strings.Builder
	h.planted = make([]*os.File, 200)
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	h.must(t, err)
	h.planted[2] = os.NewFile(uintptr(pair[0]), "socket")
	t.Cleanup(func() { unix.Close(pair[1]) })
	for at, name := range map[int]string{0: "secret", 1: "home", 199: "home/secret"} {
		f, err := os.Open(h.path(name))
		h.must(t, err)
		h.planted[at] = f
	}
	for _, f := range h.planted {
		if f == nil {
			continue
		}
		t.Cleanup(func() { f.Close() })
		var st unix.Stat_t
		h.must(t, unix.Fstat(int(f.Fd()), &st))
		fmt.Fprintf(&want, "%d:%d,", st.Dev, st.Ino)
	}
	h.vars["PLANTED"] = want.String()
	var st unix.Stat_t
	h.must(t, unix.Stat(os.DevNull, &st))
	h.vars["NULL"] = fmt.Sprintf("%d:%d,", st.Dev, st.Ino)
}

// terminal opens a new one.
func (h *host) terminal(t *testing.T) {
	t.Helper()
	open := func() (*os.File, error) {
		master, err := unix.Open("/dev/ptmx", unix.O_RDWR|unix.O_NOCTTY|unix.O_CLOEXEC, 0)
		if err != nil {
			return nil, err
		}
		t.Cleanup(func() { unix.Close(master) })
		if err := unix.IoctlSetPointerInt(master, unix.TIOCSPTLCK, 0); err != nil {
			return nil, err
		}
		n, err := unix.IoctlGetInt(master, unix.TIOCGPTN)
		if err != nil {
			return nil, err
		}
		return os.OpenFile("/dev/pts/"+strconv.Itoa(n), os.O_RDWR|unix.O_NOCTTY, 0)
	}
	tty, err := open()
	if err != nil {
		t.Logf("no terminal here: %v", err)
		tty, err = os.Open(os.DevNull)
		h.must(t, err)
	}
	t.Cleanup(func() { tty.Close() })
	h.tty = tty
}

// ev runs the command, with the terminal as its own and descriptors that it
// doesn't know of.
func (h *host) ev(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	cmd := h.evCommand(args...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode(), out.String(), errs.String()
}

func (h *host) evCommand(args ...string) *exec.Cmd {
	cmd := exec.Command(binary("ev"), append([]string{args[0], "--store=" + h.path("store")}, args[1:]...)...)
	cmd.Dir, cmd.Env, cmd.Stdin, cmd.ExtraFiles = h.path("ws"), h.env, h.tty, h.planted
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: strings.HasPrefix(h.tty.Name(), "/dev/pts/")}
	return cmd
}

// controls makes all attempts of rows that have a control for this user, some
// at a time.
func (h *host) controls(noPython bool) []string {
	out := make([]string, len(rows()))
	sem := make(chan bool, runtime.NumCPU()+1)
	var wg sync.WaitGroup
	for i, r := range rows() {
		if r.control.who&me() == 0 || r.in == python && noPython {
			continue
		}
		wg.Go(func() {
			sem <- true
			defer func() { <-sem }()
			var err error
			if out[i], err = h.outside(r); err != nil {
				out[i] = fmt.Sprintf("%v %s", err, errorOutput(err))
			}
		})
	}
	wg.Wait()
	return out
}

// outside makes a row's attempt as a child of the test, in a folder of its own
// and with an input of its own, which attempts may change.
func (h *host) outside(r row) (result string, err error) {
	dir, err := os.MkdirTemp(h.dir, "outside")
	if err == nil {
		err = os.Mkdir(dir+"/p", 0o755)
	}
	for _, f := range []string{"input.txt", "expected.txt"} {
		if err == nil {
			err = os.WriteFile(dir+"/p/"+f, []byte("input\n"), 0o644)
		}
	}
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	again := 1
	if r.twice {
		again = 2
	}
	for range again {
		argv := commandOf(r)
		cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
		cmd.Dir, cmd.Stdin, cmd.ExtraFiles = dir, h.tty, h.planted
		cmd.Env = slices.Clone(h.env)
		for name, value := range h.vars {
			cmd.Env = append(cmd.Env, name+"="+value)
		}
		cmd.Env = append(cmd.Env, "PATH="+systemPath, "TMPDIR="+dir, "INPUT="+dir+"/p/input.txt") // the last counts
		b, err := cmd.Output()
		if err != nil {
			return "", err
		}
		result = resultOf(r, string(b))
	}
	return result, nil
}

func errorOutput(err error) string {
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return string(exit.Stderr)
	}
	return ""
}
