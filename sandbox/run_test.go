//go:build linux

package sandbox_test

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/hosttools"
)

// hostMounts are the programs with all that they need, and /bin/sh.
func hostMounts(t testing.TB, programs ...string) []graph.Mount {
	t.Helper()
	r := hosttools.New(hosttools.Options{Func: cas.BLAKE3, Now: time.Now})
	var lists [][]graph.Mount
	for _, p := range append([]string{"/bin/sh"}, programs...) {
		m, err := r.Program(p)
		if err != nil {
			t.Fatal(err)
		}
		lists = append(lists, m)
	}
	m, err := hosttools.Merge(lists...)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// newSandbox is a Sandbox that stores nothing, on a machine that has a seal.
func newSandbox(t testing.TB, o sandbox.Options) *sandbox.Sandbox {
	t.Helper()
	if o.Put == nil {
		o.Put = func(r io.Reader) (cas.Digest, error) { return cas.BLAKE3.SumReader(r) }
	}
	s := sandbox.New(o)
	t.Cleanup(s.Close)
	for _, f := range s.Probe() {
		if !f.Live {
			msg := fmt.Sprintf("the seal's layer %s is missing here: %s", f.Layer, f.State)
			if os.Getenv("EVAL_STRICT") != "" {
				t.Fatal(msg)
			}
			t.Skip(msg)
		}
	}
	return s
}

func script(t testing.TB, code string, programs ...string) sandbox.Spec {
	return sandbox.Spec{
		Args:   []string{"/bin/sh", "-c", code},
		Policy: graph.Policy{Limits: graph.DefaultLimits},
		Mounts: hostMounts(t, programs...),
	}
}

func mustRun(t testing.TB, s *sandbox.Sandbox, spec sandbox.Spec) *sandbox.Result {
	t.Helper()
	res, err := s.Run(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if err := res.Record.Verify(); err != nil {
		t.Error(err)
	}
	return res
}

func TestStreamsAndStatus(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `read line; echo "out $line"; echo err >&2; exit 137`)
	spec.Stdin = strings.NewReader("in\n")
	res := mustRun(t, s, spec)
	if string(res.Stdout.Data) != "out in\n" || string(res.Stderr.Data) != "err\n" {
		t.Errorf("stdout %q, stderr %q", res.Stdout.Data, res.Stderr.Data)
	}
	if res.Status != (sandbox.Status{Code: 137}) {
		t.Errorf("exit 137: %v", res.Status)
	}
	if res := mustRun(t, s, script(t, `kill -KILL $$`)); res.Status != (sandbox.Status{Code: -1, Signal: 9}) {
		t.Errorf("killed: %v", res.Status)
	}
}

func TestExecError(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, "")
	spec.Args = []string{"/bin/nothing"}
	_, err := s.Run(context.Background(), spec)
	var no *sandbox.ExecError
	if !errors.As(err, &no) || !errors.Is(err, syscall.ENOENT) {
		t.Errorf("%v", err)
	}
}

// TestEnvironment: the environment is exact, and the same everywhere.
func TestEnvironment(t *testing.T) {
	t.Setenv("SECRET", "x")
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `env; pwd; umask; uname -n; id`, "/usr/bin/env", "/bin/uname", "/usr/bin/id")
	spec.Env = []string{"A=1", "B=" + sandbox.RootMark + "/in/x"}
	got := string(mustRun(t, s, spec).Stdout.Data)
	want := "A=1\nB=/in/x\nHOME=/scratch/home\nLANG=C.UTF-8\nPATH=/usr/local/bin:/usr/bin:/bin\nTMPDIR=/scratch/tmp\nTZ=UTC\n"
	for _, line := range strings.Split(strings.TrimSpace(got), "\n") {
		if strings.HasPrefix(line, "PWD=") || strings.HasPrefix(line, "_=") || strings.HasPrefix(line, "OLDPWD=") {
			got = strings.Replace(got, line+"\n", "", 1) // the shell's own
		}
	}
	lines := strings.Split(strings.TrimSpace(got), "\n")
	n := len(lines) - 4
	slices.Sort(lines[:n])
	if env := strings.Join(lines[:n], "\n") + "\n"; env != want {
		t.Errorf("environment:\n%swant:\n%s", env, want)
	}
	if rest := strings.Join(lines[n:], "|"); rest != "/scratch/work|0022|eval|uid=1000(eval) gid=1000(eval) groups=1000(eval)" {
		t.Errorf("cwd, umask, host name, id: %s", rest)
	}
}

func TestOutputs(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `echo a > a.txt; mkdir -p d/e; echo b > d/e/b; ln -s e/b d/l; mkfifo f; chmod +x a.txt; ln -s /etc/passwd p`,
		"/bin/mkdir", "/bin/ln", "/usr/bin/mkfifo", "/bin/chmod")
	for _, o := range []string{"a.txt", "f", "p", "none"} {
		spec.Outputs = append(spec.Outputs, collect.Output{Path: o})
	}
	spec.Outputs = append(spec.Outputs, collect.Output{Path: "d", Folder: true})
	res := mustRun(t, s, spec)
	var got []string
	for _, f := range res.Outputs {
		got = append(got, fmt.Sprintf("%s %v %q", f.Path, f.Executable, f.Link))
	}
	if want := []string{`a.txt true ""`, `d/e/b false ""`, `d/l false "e/b"`}; !slices.Equal(got, want) {
		t.Errorf("outputs %q", got)
	}
	if !slices.Equal(res.Missing, []string{"none"}) {
		t.Errorf("missing %q", res.Missing)
	}
	got = nil
	for _, r := range res.Rejected {
		got = append(got, r.Path+" "+r.Code())
	}
	if want := []string{"f type", "p link"}; !slices.Equal(got, want) {
		t.Errorf("rejected %q", got)
	}
}

func TestLimits(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	for _, tt := range []struct {
		name, code string
		edit       func(*graph.Limits)
		hit        []string
		check      func(*sandbox.Result) bool
	}{
		{
			"wall", `sleep 60`, func(l *graph.Limits) { l.Wall = 300 * time.Millisecond },
			[]string{"wall"},
			func(r *sandbox.Result) bool { return r.Wall < 20*time.Second },
		},
		{
			"wall, all stopped", `sleep 60 & kill -STOP -1; kill -STOP $$`, func(l *graph.Limits) { l.Wall = 300 * time.Millisecond },
			[]string{"wall"},
			func(r *sandbox.Result) bool { return r.Wall < 20*time.Second },
		},
		{
			"output", `head -c 5000000 /dev/zero`, func(l *graph.Limits) { l.Output = 1000 },
			[]string{"output"},
			func(r *sandbox.Result) bool { return len(r.Stdout.Data) == 1000 && r.Stdout.Total == 5000000 },
		},
		{
			"scratch", `head -c 5000000 /dev/zero > x; true`, func(l *graph.Limits) { l.Scratch = 1 << 20 },
			[]string{"scratch"},
			func(r *sandbox.Result) bool { return r.Status.Code == 0 },
		},
		{
			// Where there is a cgroup the kernel kills it, elsewhere it gets no more.
			"memory", `head -c 300000000 /dev/zero | tail -c 299999999 > /dev/null`, func(l *graph.Limits) { l.Memory = 64 << 20 },
			nil, func(r *sandbox.Result) bool {
				if r.Record.Facts.Cgroup != "none" {
					return slices.Equal(r.Limits, []string{"memory"})
				}
				return r.Status.Code == 1 && strings.Contains(string(r.Stderr.Data), "memory exhausted")
			},
		},
		{
			"processes", `i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done; wait`, func(l *graph.Limits) { l.Processes = 20; l.Wall = 10 * time.Second },
			nil, func(r *sandbox.Result) bool { return strings.Contains(strings.ToLower(string(r.Stderr.Data)), "fork") },
		},
	} {
		spec := script(t, tt.code, "/bin/sleep", "/usr/bin/head", "/usr/bin/tail")
		tt.edit(&spec.Policy.Limits)
		res := mustRun(t, s, spec)
		if tt.hit != nil && !slices.Equal(res.Limits, tt.hit) || !tt.check(res) {
			t.Errorf("%s: limits %q, %v after %v, stdout %d of %d, stderr %.200q", tt.name, res.Limits, res.Status, res.Wall,
				len(res.Stdout.Data), res.Stdout.Total, res.Stderr.Data)
		}
	}
}

// TestSurvivors: what outlives the target is counted, and gone.
func TestSurvivors(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	start := time.Now()
	res := mustRun(t, s, script(t, `(setsid sleep 99 &) ; (setsid sh -c 'trap "" TERM HUP; sleep 98' &); echo done`, "/bin/sleep", "/usr/bin/setsid"))
	if res.Survivors < 2 || string(res.Stdout.Data) != "done\n" {
		t.Errorf("%d survivors, stdout %q", res.Survivors, res.Stdout.Data)
	}
	if time.Since(start) > 20*time.Second {
		t.Error("a survivor that holds stdout holds the harness")
	}
	if left := processes(t, "sleep\x0099"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// processes lists the pids whose command line contains a text.
func processes(t *testing.T, text string) []int {
	t.Helper()
	dirs, err := filepath.Glob("/proc/[0-9]*")
	if err != nil {
		t.Fatal(err)
	}
	var out []int
	for _, d := range dirs {
		line, _ := os.ReadFile(d + "/cmdline")
		stat, _ := os.ReadFile(d + "/stat")
		if bytes.Contains(line, []byte(text)) && !bytes.Contains(stat, []byte(") Z ")) {
			pid, _ := strconv.Atoi(filepath.Base(d))
			out = append(out, pid)
		}
	}
	return out
}

// TestForward: a declared port leads to its one target, and only there.
func TestForward(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			line, _ := bufio.NewReader(c).ReadString('\n')
			fmt.Fprintf(c, "you said %s", line)
			c.Close()
		}
	}()
	const code = `exec 3<>/dev/tcp/127.0.0.1/8080 && echo hello >&3 && cat <&3
(exec 4<>/dev/tcp/127.0.0.1/8081) 2>&1 || echo refused`
	spec := sandbox.Spec{
		Args:   []string{"/bin/bash", "-c", code},
		Policy: graph.Policy{Limits: graph.DefaultLimits, Forward: []graph.Forward{{Port: 8080, Target: ln.Addr().String()}}},
		Mounts: hostMounts(t, "/bin/bash", "/bin/cat"),
	}
	res := mustRun(t, s, spec)
	if got := string(res.Stdout.Data); !strings.HasPrefix(got, "you said hello\n") || !strings.HasSuffix(got, "refused\n") {
		t.Errorf("stdout %q, stderr %q", got, res.Stderr.Data)
	}
	if len(res.Egress) != 1 || res.Egress[0].Via != "forward" || res.Egress[0].Verdict != "allowed" || res.Egress[0].Received != 15 {
		t.Errorf("egress %+v", res.Egress)
	}
}

// TestListenerRefuses: a listener without a network refuses and logs.
func TestListenerRefuses(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := sandbox.Spec{
		Args:     []string{"/bin/bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/3128 && printf 'CONNECT example.com:443 HTTP/1.1\r\n\r\n' >&3 && cat <&3`},
		Policy:   graph.Policy{Limits: graph.DefaultLimits},
		Mounts:   hostMounts(t, "/bin/bash", "/bin/cat"),
		Listener: true,
	}
	res := mustRun(t, s, spec)
	if !strings.HasPrefix(string(res.Stdout.Data), "HTTP/1.1 403 ") {
		t.Errorf("stdout %q, stderr %q", res.Stdout.Data, res.Stderr.Data)
	}
	if len(res.Egress) != 1 || res.Egress[0].Host != "example.com" || res.Egress[0].Verdict != "refused" {
		t.Errorf("egress %+v", res.Egress)
	}
}

// TestSourceGone: a source that isn't what it was is the machine's fault, and
// nothing runs.
func TestSourceGone(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, "echo ran")
	file := filepath.Join(t.TempDir(), "a")
	spec.Mounts = append(spec.Mounts, graph.Mount{Path: "/in/a", Source: file, Digest: cas.BLAKE3.Sum(nil)})
	slices.SortFunc(spec.Mounts, func(a, b graph.Mount) int { return strings.Compare(a.Path, b.Path) })
	if _, err := s.Run(context.Background(), spec); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
	if err := os.Symlink("/etc/passwd", file); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Run(context.Background(), spec); err == nil || !strings.Contains(err.Error(), "no longer what it was") {
		t.Errorf("a link in its place: %v", err)
	}
}

// TestCancel: an interrupted run ends everything, and is no result.
func TestCancel(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(200*time.Millisecond, cancel)
	if _, err := s.Run(ctx, script(t, "sleep 97", "/bin/sleep")); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if left := processes(t, "sleep\x0097"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// TestParallel: runs side by side, while the harness collects garbage and
// takes signals, don't disturb each other.
func TestParallel(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `cat`, "/bin/cat")
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			for j := range 10 {
				spec := spec
				word := fmt.Sprintf("%d %d", i, j)
				spec.Stdin = strings.NewReader(word)
				res, err := s.Run(context.Background(), spec)
				if err != nil || string(res.Stdout.Data) != word {
					t.Errorf("%s: %v %v", word, res, err)
				}
			}
		})
	}
	done := make(chan struct{})
	go func() { wg.Wait(); close(done) }()
	for {
		select {
		case <-done:
			return
		case <-time.After(time.Millisecond):
			_ = make([]byte, 1<<20)
			syscall.Kill(os.Getpid(), syscall.SIGWINCH)
		}
	}
}

// TestCancelledLimit: a limit that a cancelled run hit is not the next one's.
func TestCancelledLimit(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `(i=0; while [ $i -lt 60 ]; do sleep 5 & i=$((i+1)); done); exec sleep 60`, "/bin/sleep")
	spec.Policy.Limits.Processes = 20
	ctx, cancel := context.WithTimeout(context.Background(), 500*time.Millisecond)
	defer cancel()
	if _, err := s.Run(ctx, spec); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if res := mustRun(t, s, script(t, `true`)); len(res.Limits) > 0 {
		t.Errorf("limits %q", res.Limits)
	}
}

// TestNoLeak: neither a run nor one that fails to start leaves a descriptor.
func TestNoLeak(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	count := func() int {
		t.Helper()
		fds, err := os.ReadDir("/proc/self/fd")
		if err != nil {
			t.Fatal(err)
		}
		return len(fds)
	}
	ok, bad := script(t, "true"), script(t, "true")
	ok.Stdin = strings.NewReader("x")
	bad.Policy.Limits.Scratch = -1 // what no file system can have
	mustRun(t, s, ok)
	before := count()
	for range 5 {
		ok.Stdin = strings.NewReader("x")
		mustRun(t, s, ok)
		if _, err := s.Run(context.Background(), bad); err == nil {
			t.Fatal("a scratch folder of -1 bytes")
		}
	}
	if n := count(); n > before {
		t.Errorf("%d descriptors, before %d", n, before)
	}
}

// TestUnsealed: without a seal the same spec runs on a stage, and the record
// says what it is.
func TestUnsealed(t *testing.T) {
	s := sandbox.New(sandbox.Options{Put: func(r io.Reader) (cas.Digest, error) { return cas.BLAKE3.SumReader(r) }})
	file := filepath.Join(t.TempDir(), "a")
	if err := os.WriteFile(file, []byte("content\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	spec := sandbox.Spec{
		Args:    []string{"/bin/sh", "-c", `cat "$1" > out.txt; echo "$HOME"`, "sh", sandbox.RootMark + "/in/p/a"},
		Policy:  graph.Policy{Unsealed: true, Limits: graph.DefaultLimits},
		Mounts:  []graph.Mount{{Path: "/in/p/a", Source: file, Digest: cas.BLAKE3.Sum([]byte("content\n"))}},
		Outputs: []collect.Output{{Path: "out.txt"}},
	}
	res, err := s.Run(context.Background(), spec)
	if err != nil {
		t.Fatal(err)
	}
	if len(res.Outputs) != 1 || res.Outputs[0].Digest != cas.BLAKE3.Sum([]byte("content\n")) {
		t.Errorf("outputs %+v, stderr %q", res.Outputs, res.Stderr.Data)
	}
	home := strings.TrimSpace(string(res.Stdout.Data))
	if !strings.HasSuffix(home, "/scratch/home") {
		t.Errorf("HOME is %q", home)
	}
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("the stage is still there: %v", err)
	}
	if res.Record.Tier != "none" || res.Record.Verify() == nil {
		t.Errorf("the record of an unsealed run says %q and verifies", res.Record.Tier)
	}
	spec.Args = []string{"/bin/sh", "-c", "sleep 95 & sleep 95"}
	spec.Policy.Limits.Wall = 200 * time.Millisecond
	res, err = s.Run(context.Background(), spec)
	if err != nil || !slices.Equal(res.Limits, []string{"wall"}) {
		t.Errorf("wall: %+v %v", res, err)
	}
	if left := processes(t, "sleep\x0095"); len(left) > 0 {
		t.Errorf("still there: %v", left)
	}
}

// TestTwins: two mounts with the same bytes, of different files.
func TestTwins(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := script(t, `cat /in/a /in/b; test -x /in/b && echo x`, "/bin/cat")
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"a": 0o444, "b": 0o555} {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, []byte("same\n"), mode); err != nil {
			t.Fatal(err)
		}
		spec.Mounts = append(spec.Mounts, graph.Mount{Path: "/in/" + name, Source: file, Digest: cas.BLAKE3.Sum([]byte("same\n"))})
	}
	slices.SortFunc(spec.Mounts, func(a, b graph.Mount) int { return strings.Compare(a.Path, b.Path) })
	if got := string(mustRun(t, s, spec).Stdout.Data); got != "same\nsame\nx\n" {
		t.Errorf("%q", got)
	}
}

// TestEgressOfShortLife: a process that asks and is gone has asked.
func TestEgressOfShortLife(t *testing.T) {
	s := newSandbox(t, sandbox.Options{})
	spec := sandbox.Spec{
		Args:   []string{"/bin/bash", "-c", `exec 3<>/dev/tcp/127.0.0.1/8080; echo x >&3`},
		Policy: graph.Policy{Limits: graph.DefaultLimits, Forward: []graph.Forward{{Port: 8080, Target: "127.0.0.1:1"}}},
		Mounts: hostMounts(t, "/bin/bash"),
	}
	for i := range 40 {
		if res := mustRun(t, s, spec); len(res.Egress) != 1 {
			t.Fatalf("run %d: %+v, stderr %q", i, res.Egress, res.Stderr.Data)
		}
	}
}
