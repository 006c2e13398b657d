package escape

import (
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestNoSeal: where a seal can't be had, an action doesn't run, and nothing
// stands in for it. The machine is one whose engine for containers forbids new
// user namespaces.
func TestNoSeal(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	b := newBuild(h)
	b.add("x", row{in: native, try: "list /"}, "")
	b.write(t, h)
	cmd := h.evCommand("build", "//p:x")
	control := h.evCommand("build", "//p:x")
	cmd.Args = append([]string{"attempt", "-1", "confined"}, cmd.Args...)
	cmd.Args[3] = binary("ev")
	cmd.Path = binary("attempt")
	out, err := cmd.CombinedOutput()
	if cmd.ProcessState == nil || cmd.ProcessState.ExitCode() != 5 || !strings.Contains(string(out), "ev doctor") {
		t.Errorf("%v\n%s", err, out)
	}
	if _, err := os.Stat(h.path("ws/eval-out/p/x")); err == nil {
		t.Error("there is an output")
	}
	if out, err := control.CombinedOutput(); err != nil {
		t.Errorf("without the filter: %v\n%s", err, out)
	}
}

// TestNothingByPath: no program is looked for in PATH.
func TestNothingByPath(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	b := newBuild(h)
	b.add("x", row{in: shell, try: "cat \"$INPUT\""}, "")
	b.write(t, h)
	for _, args := range [][]string{{"build", "//p:x"}, {"doctor"}} {
		cmd := h.evCommand(args...)
		if args[0] == "doctor" {
			cmd.Args = []string{"ev", "doctor"}
		}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v: %v\n%s", args, err, out)
		}
	}
	mark := h.path("tests/ran")
	if b, err := os.ReadFile(mark); err == nil {
		t.Errorf("these ran: %s", b)
	}
	cmd := exec.Command("/bin/sh", "-c", "bwrap")
	cmd.Env = h.env
	if err := cmd.Run(); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(mark); err != nil {
		t.Errorf("the control left no mark: %v", err)
	}
}

// TestOutputsAreData: what an action makes is no part of the workspace that the
// next build reads, and nothing of it is run.
func TestOutputsAreData(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	b := newBuild(h)
	b.add("x", row{in: shell, outs: []string{"d/"}, try: `mkdir -p d/.git/hooks
for f in d/BUILD.star d/MODULE.star d/.evalrc; do echo 'fail("loaded")' > $f; done
printf '[core]\n\tfsmonitor = touch %s\n' "$TEST_TMPDIR/ran" > d/.git/config
printf '#!/bin/sh\necho hook >> %s\n' "$TEST_TMPDIR/ran" > d/.git/hooks/post-checkout; chmod +x d/.git/hooks/post-checkout; echo ok`}, "")
	b.write(t, h)
	for range 2 {
		if code, stdout, stderr := h.ev(t, "build", "//..."); code != 0 {
			t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
		}
	}
	made := h.path("ws/eval-out/p/x/d")
	if _, err := os.Stat(filepath.Join(made, "BUILD.star")); err != nil {
		t.Fatal(err)
	}
	cmd := h.evCommand("build", "//...")
	cmd.Dir = made // a workspace of its own, by its looks: that is the user's to enter
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Errorf("the control loaded nothing:\n%s", out)
	}
	if b, err := os.ReadFile(h.path("tests/ran")); err == nil {
		t.Errorf("these ran: %s", b)
	}
}

// TestNothingPrivileged: no program of ours has, or wants, more rights than its
// caller.
func TestNothingPrivileged(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"ev", "attempt"} {
		fi, err := os.Stat(binary(name))
		if err != nil || fi.Mode()&(fs.ModeSetuid|fs.ModeSetgid) != 0 {
			t.Errorf("%s: %v %v", name, fi.Mode(), err)
		}
	}
}

// TestKilled: a build that is killed at any time leaves no process and no mount
// a second later, and no cgroup and no file for temporary use after the next
// start.
func TestKilled(t *testing.T) {
	t.Parallel()
	needSeal(t)
	h := newHost(t)
	mark := "88" + strconv.Itoa(os.Getpid())
	b := newBuild(h)
	for i := range 4 {
		b.add("long"+strconv.Itoa(i), row{in: shell, try: fmt.Sprintf("(sleep %s%d &) ; sleep %[1]s%[2]d", mark, i)}, "")
	}
	b.add("short", row{in: shell, try: "echo ok"}, "")
	b.write(t, h)
	if code, stdout, stderr := h.ev(t, "build", "//p:short"); code != 0 { // and tools are known
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	before := mounts(t)
	seen := 0
	var groups []string
	for i := range 10 {
		cmd := h.evCommand("build", "--keep_going", "--jobs=4", "//p:all")
		h.must(t, cmd.Start())
		if i%2 == 0 { // after they all began, so that not all die in the cradle
			until(func() bool { return len(processes(t, "sleep\x00"+mark)) >= 8 })
		}
		time.Sleep(time.Duration(rand.IntN(250)) * time.Millisecond)
		seen = max(seen, len(processes(t, "sleep\x00"+mark)))
		h.must(t, cmd.Process.Kill())
		cmd.Wait()
		groups = append(groups, "eval-"+strconv.Itoa(cmd.Process.Pid)+"-")
	}
	if seen < 8 {
		t.Errorf("the most that ran at a time were %d", seen)
	}
	living := func() []int { return append(processes(t, "sleep\x00"+mark), processes(t, h.path("store"))...) }
	start := time.Now()
	until(func() bool { return len(living()) == 0 })
	if left := living(); len(left) > 0 || time.Since(start) > 5*time.Second {
		t.Errorf("still there: %v, after %v", left, time.Since(start))
	}
	for _, m := range mounts(t) {
		if !slices.Contains(before, m) && (strings.Contains(m, h.dir) || strings.Contains(m, "subset=pid") || strings.Contains(m, " /scratch")) {
			t.Errorf("new mount %s", m)
		}
	}
	if code, stdout, stderr := h.ev(t, "build", "//p:short"); code != 0 {
		t.Fatalf("exit code %d\n%s%s", code, stdout, stderr)
	}
	if cmd := h.evCommand("doctor"); cmd != nil { // looks for cgroups, and so sweeps, whatever the build had to do
		cmd.Args = []string{"ev", "doctor"}
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("doctor: %v\n%s", err, out)
		}
	}
	for _, g := range cgroups(t) {
		for _, name := range groups {
			if strings.HasPrefix(filepath.Base(g), name) {
				t.Errorf("cgroup %s", g)
			}
		}
	}
	for _, dir := range []string{"tmp", "home"} {
		entries, err := os.ReadDir(h.path(dir))
		h.must(t, err)
		for _, e := range entries {
			if e.Name() != "secret" {
				t.Errorf("%s/%s is left", dir, e.Name())
			}
		}
	}
	// A file that was being written lies in the store until it is a day old.
	entries, err := os.ReadDir(h.path("store/tmp"))
	h.must(t, err)
	for _, e := range entries {
		if !e.Type().IsRegular() {
			t.Errorf("store/tmp/%s is left, a %v", e.Name(), e.Type())
		}
	}
}

// until waits for a condition, not for ever.
func until(done func() bool) {
	for end := time.Now().Add(30 * time.Second); !done() && time.Now().Before(end); {
		time.Sleep(10 * time.Millisecond)
	}
}

func mounts(t *testing.T) []string {
	t.Helper()
	b, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		t.Fatal(err)
	}
	return strings.Split(strings.TrimSpace(string(b)), "\n")
}

// cgroups lists the folders of groups that are named as ours.
func cgroups(t *testing.T) []string {
	t.Helper()
	var out []string
	filepath.WalkDir("/sys/fs/cgroup", func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "eval-") {
			out = append(out, p)
			return filepath.SkipDir
		}
		return nil
	})
	return out
}
