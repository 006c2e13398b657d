//go:build unix

package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox/collect"
)

// A stage is a folder that stands for the root where the root can't be
// changed: without a seal, and on macOS. Inputs are links to their sources; host
// tools are where they are.
type stage struct{ root string }

// stagePrefix begins the names of stages; a killed harness leaves its own.
const stagePrefix = "eval-stage-"

func newStage(spec *Spec) (*stage, error) {
	dir, err := os.MkdirTemp("", stagePrefix)
	if err == nil {
		dir, err = filepath.EvalSymlinks(dir) // macOS: /tmp is /private/tmp
	}
	if err != nil {
		return nil, fmt.Errorf("make a stage: %w", err)
	}
	s := &stage{dir}
	for _, d := range []string{InDir, WorkDir, HomeDir, TempDir} {
		if err = os.MkdirAll(dir+d, 0o755); err != nil {
			break
		}
	}
	for _, d := range outputFolders(spec.Outputs) {
		if err == nil {
			err = os.MkdirAll(filepath.Join(dir+WorkDir, d), 0o755)
		}
	}
	for _, m := range spec.Mounts {
		if err != nil {
			break
		}
		if !strings.HasPrefix(m.Path, InDir+"/") {
			continue
		}
		if err = os.MkdirAll(filepath.Dir(dir+m.Path), 0o755); err != nil {
			break
		}
		target := m.Source
		if m.Link != "" {
			target = m.Link
		}
		err = os.Symlink(target, dir+m.Path)
	}
	if err != nil {
		s.remove()
		return nil, fmt.Errorf("make a stage: %w", err)
	}
	return s, nil
}

func (s *stage) remove() { os.RemoveAll(s.root) }

// sweepStages removes what killed harnesses left, after a day.
func sweepStages(now time.Time) {
	old, _ := filepath.Glob(filepath.Join(os.TempDir(), stagePrefix+"*"))
	for _, dir := range old {
		if fi, err := os.Lstat(dir); err == nil && fi.IsDir() && now.Sub(fi.ModTime()) > 24*time.Hour {
			os.RemoveAll(dir)
		}
	}
}

// run runs the spec on the stage; wrap may put a program in front.
func (s *stage) run(ctx context.Context, spec *Spec, extraEnv []string, wrap func(argv []string) []string, put collect.Put) (*Result, error) {
	limits := spec.Policy.Limits
	limited, cancel := context.WithTimeout(ctx, limits.Wall)
	defer cancel()
	argv := wrap(rooted(spec.Args, s.root))
	cmd := exec.CommandContext(limited, argv[0], argv[1:]...)
	cmd.Dir = s.root + WorkDir
	cmd.Env = append(rooted(environment(spec), s.root), extraEnv...)
	cmd.Stdin = spec.Stdin
	if spec.Control != nil {
		cmd.Stdin = spec.Control
	}
	stdout, stderr := &capped{max: limits.Output}, &capped{max: limits.Output}
	cmd.Stdout, cmd.Stderr = stdout, stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // one group, to be killed as one, and no terminal
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = time.Second // a survivor holding stdout must not hold us
	start := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, &ExecError{Path: argv[0], Err: errors.Unwrap(err)}
	}
	err := cmd.Wait()
	survivors := 0
	if killGroup(cmd.Process.Pid) == nil { // one is certain, more can't be told
		survivors = 1
	}
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) && !errors.Is(err, exec.ErrWaitDelay) && limited.Err() == nil {
		return nil, fmt.Errorf("wait for %s: %w", argv[0], err)
	}
	res := &Result{
		Wall: time.Since(start), Survivors: survivors, Stdout: stdout.stream(), Stderr: stderr.stream(),
		Status: Status{Code: cmd.ProcessState.ExitCode()},
	}
	if ws, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		res.Status.Signal = int(ws.Signal())
	}
	if limited.Err() != nil {
		res.Limits = append(res.Limits, "wall")
	}
	if res.Stdout.Truncated() || res.Stderr.Truncated() {
		res.Limits = append(res.Limits, "output")
	}
	if len(spec.Outputs) == 0 {
		return res, nil
	}
	dir, err := os.Open(s.root + WorkDir)
	if err != nil {
		return nil, fmt.Errorf("collect outputs: %w", err)
	}
	defer dir.Close()
	c, err := collect.Collect(ctx, int(dir.Fd()), spec.Outputs, collect.Limits{Bytes: limits.Output}, put)
	if err != nil {
		return nil, fmt.Errorf("collect outputs: %w", err)
	}
	res.Outputs, res.Missing, res.Rejected = c.Files, c.Missing, c.Rejected
	return res, nil
}

// killGroup kills what is left of a process's session; an error says that
// nothing was.
func killGroup(pid int) error { return unix.Kill(-pid, unix.SIGKILL) }

// capped keeps the start of what is written, and counts all of it.
type capped struct {
	buf bytes.Buffer
	max int64
	n   int64
}

func (c *capped) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	if room := c.max - int64(c.buf.Len()); room > 0 {
		c.buf.Write(p[:min(int64(len(p)), room)])
	}
	return len(p), nil
}

func (c *capped) stream() Stream { return Stream{Data: c.buf.Bytes(), Total: c.n} }
