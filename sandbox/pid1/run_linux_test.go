package pid1

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"runtime"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// The test binary has two other roles, chosen by the environment: to prepare
// what the trampoline would, as the first process of new namespaces, and
// execute the image; and to attack PID 1 as its target.
const (
	roleVar  = "PID1_TEST_ROLE"
	prepare  = "prepare"
	attack   = "attack"
	insideID = 1000
	// An unused uid outside. If root's tests ran as root outside too, root's
	// files would be the target's: a seal has a uid of its own for each slot.
	outsideID = 387654

	imageFD  = 5
	binaryFD = 6
	limit    = 20 * time.Second
)

func TestMain(m *testing.M) {
	switch os.Getenv(roleVar) {
	case prepare:
		fmt.Fprintln(os.Stderr, "prepare:", prepareAndExec())
		os.Exit(96)
	case attack:
		attackFirst()
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// prepareAndExec is what runs between the clone and PID 1 in these tests.
// With the word "direct" as first argument it executes the target itself: the
// control, which shows that there was something to protect.
func prepareAndExec() error {
	os.Unsetenv(roleVar)
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount private: %w", err)
	}
	if err := unix.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount proc: %w", err)
	}
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("clear ambient capabilities: %w", err)
	}
	signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGCHLD)
	unix.CloseOnExec(imageFD)
	unix.CloseOnExec(binaryFD)
	runtime.LockOSThread()
	var all unix.Sigset_t
	for i := range all.Val {
		all.Val[i] = ^all.Val[i]
	}
	if err := unix.PthreadSigmask(unix.SIG_SETMASK, &all, nil); err != nil {
		return fmt.Errorf("block signals: %w", err)
	}
	if os.Args[0] == "direct" {
		return fmt.Errorf("exec target: %w", unix.Exec(os.Args[1], os.Args[1:], os.Environ()))
	}
	path, err := unix.BytePtrFromString("")
	if err != nil {
		return err
	}
	argv, err := syscall.SlicePtrFromStrings(os.Args)
	if err != nil {
		return err
	}
	envp, err := syscall.SlicePtrFromStrings(os.Environ())
	if err != nil {
		return err
	}
	return fmt.Errorf("execveat: %w", execveat(imageFD, path, argv, envp))
}

// A process is an image that runs.
type process struct {
	t       testing.TB
	cmd     *exec.Cmd
	control *os.File // our end
	death   *os.File // the write end
	stdout  *os.File // the read end, closed when nobody holds the other
	stderr  *lockedBuffer
}

type options struct {
	plain  bool     // an ordinary child, in no namespace
	direct bool     // the control, see prepareAndExec
	env    []string // of the target
	stdin  *os.File
	runner []string // an emulator, with plain
	arch   string   // of the image; "" is the host's
	dead   bool     // the death pipe is closed from the start
}

// start starts an image with the target's argv.
func start(t testing.TB, o options, argv ...string) *process {
	t.Helper()
	p, err := launch(t, o, argv...)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func launch(t testing.TB, o options, argv ...string) (*process, error) {
	t.Helper()
	arch := o.arch
	if arch == "" {
		arch = runtime.GOARCH
	}
	elf, err := Image(arch)
	if err != nil {
		return nil, err
	}
	memfd, err := inMemory(elf)
	if err != nil {
		return nil, err
	}
	defer memfd.Close()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	control, theirs := os.NewFile(uintptr(pair[0]), "control"), os.NewFile(uintptr(pair[1]), "control'")
	if err := unix.SetNonblock(pair[1], false); err != nil {
		return nil, err
	}
	defer theirs.Close()
	deathRead, death, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer deathRead.Close()
	stdout, stdoutWrite, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	defer stdoutWrite.Close()
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return nil, err
	}
	defer self.Close()
	p := &process{t: t, control: control, death: death, stdout: stdout, stderr: &lockedBuffer{}}
	_ = control.SetDeadline(time.Now().Add(limit))
	_ = stdout.SetDeadline(time.Now().Add(limit))
	if o.dead {
		death.Close()
	}

	p.cmd = &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", imageFD), Args: append([]string{"pid1"}, argv...), Dir: "/",
		Env:        append([]string{"PATH=/usr/bin:/bin"}, o.env...),
		WaitDelay:  limit, // for one that outlives PID 1 and holds stderr
		ExtraFiles: []*os.File{deathRead, theirs, memfd, self}, Stdout: stdoutWrite, Stderr: p.stderr,
	}
	if o.stdin != nil {
		p.cmd.Stdin = o.stdin
	}
	if o.runner != nil {
		p.cmd.Path, p.cmd.Args = o.runner[0], append(append([]string{}, o.runner...), p.cmd.Path)
		p.cmd.Args = append(p.cmd.Args, argv...)
	}
	if !o.plain {
		if o.direct {
			p.cmd.Args[0] = "direct"
		}
		p.cmd.Path = fmt.Sprintf("/proc/self/fd/%d", binaryFD)
		p.cmd.Env = append(p.cmd.Env, roleVar+"="+prepare)
		p.cmd.SysProcAttr = namespaced()
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	t.Cleanup(func() {
		p.stop()
		if t.Failed() && p.stderr.String() != "" {
			t.Logf("stderr of %q: %s", argv, p.stderr)
		}
	})
	return p, nil
}

// stop ends all and frees the descriptors. It may be called again.
func (p *process) stop() {
	p.death.Close()
	p.control.Close()
	p.stdout.Close()
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait()
}

func inMemory(elf []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("elf", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	f := os.NewFile(uintptr(fd), "memfd")
	if _, err := f.Write(elf); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// executable makes a target of a program: as stdin it is /proc/self/fd/0.
func executable(tb testing.TB, p *program) *os.File {
	tb.Helper()
	be := map[string]*backend{"amd64": amd64, "arm64": arm64}[runtime.GOARCH]
	if be == nil {
		tb.Skip("no back end for " + runtime.GOARCH)
	}
	p.reserve(8)
	elf, err := image(p, be)
	if err != nil {
		tb.Fatal(err)
	}
	f, err := inMemory(elf)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { f.Close() })
	return f
}

func namespaced() *syscall.SysProcAttr {
	outside := outsideID
	if os.Geteuid() != 0 {
		outside = os.Geteuid()
	}
	group := outside
	if os.Geteuid() != 0 {
		group = os.Getegid()
	}
	const sysAdmin = 21
	return &syscall.SysProcAttr{
		Cloneflags:  syscall.CLONE_NEWUSER | syscall.CLONE_NEWPID | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{ContainerID: insideID, HostID: outside, Size: 1}},
		GidMappings: []syscall.SysProcIDMap{{ContainerID: insideID, HostID: group, Size: 1}},
		Credential:  &syscall.Credential{Uid: insideID, Gid: insideID, NoSetGroups: true},
		AmbientCaps: []uintptr{sysAdmin},
		Setsid:      true,
	}
}

// needNamespaces skips, with the kernel's reason, where PID 1 can't be one.
func needNamespaces(t testing.TB) {
	t.Helper()
	if err := namespaces(); err != nil {
		skip(t, "user, pid and mount namespaces with a fresh procfs", err)
	}
}

var namespaces = sync.OnceValue(func() error {
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return err
	}
	defer self.Close()
	var stderr bytes.Buffer
	cmd := &exec.Cmd{
		Path: fmt.Sprintf("/proc/self/fd/%d", binaryFD), Args: []string{"direct", "/bin/true"}, Dir: "/",
		Env: []string{roleVar + "=" + prepare}, ExtraFiles: []*os.File{self, self, self, self},
		Stderr: &stderr, SysProcAttr: namespaced(),
	}
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%w: %s", err, strings.TrimSpace(stderr.String()))
	}
	return nil
})

func skip(t testing.TB, feature string, err error) {
	t.Helper()
	if os.Getenv("EVAL_STRICT") == "1" {
		t.Fatalf("EVAL_STRICT: no %s: %v", feature, err)
	}
	t.Skipf("no %s: %v", feature, err)
}

func (p *process) hello() []int64 {
	p.t.Helper()
	b := make([]byte, HelloSize)
	if n, err := io.ReadFull(p.control, b); err != nil {
		p.t.Fatalf("hello: %d bytes: %v", n, err)
	}
	raw, err := DecodeHello(b)
	if err != nil {
		p.t.Fatal(err)
	}
	return raw
}

func (p *process) say(b byte) {
	p.t.Helper()
	if _, err := p.control.Write([]byte{b}); err != nil {
		p.t.Fatal(err)
	}
}

// end reads the last message, after which PID 1 exits with 0.
func (p *process) end() End {
	p.t.Helper()
	b, err := io.ReadAll(p.control)
	if err != nil {
		p.t.Fatal(err)
	}
	e, err := DecodeEnd(b)
	if err != nil {
		p.t.Fatal(err)
	}
	if code := p.exitCode(); code != ExitDone {
		p.t.Fatalf("PID 1 exited with %d", code)
	}
	return e
}

// run is all of it.
func (p *process) run() End {
	p.t.Helper()
	p.hello()
	p.say(Go)
	return p.end()
}

func (p *process) exitCode() int {
	p.t.Helper()
	err := p.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, fs.ErrClosed) {
		p.t.Fatal(err)
	}
	return p.cmd.ProcessState.ExitCode()
}

// output reads the target's output until nobody is left who could write any.
func (p *process) output() string {
	p.t.Helper()
	b, err := io.ReadAll(p.stdout)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(b)
}

type lockedBuffer struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lockedBuffer) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}
