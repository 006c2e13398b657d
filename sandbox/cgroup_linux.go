package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

// cgroups says where this process may make control groups for what it runs.
//
// Three worlds: v2 with controllers that were delegated to us; v1, where each
// controller has a tree of its own; and the hybrid, v1 with a v2 tree that has
// no controllers. All else is none, and limits are per process.
type cgroups struct {
	memory string // v1: folder of our own group in the memory tree, "" if it can't be used
	pids   string
	v2     string // our group in the v2 tree, if it has both controllers for children
	next   *atomic.Int64
}

func (c cgroups) mode() string {
	switch {
	case c.v2 != "":
		return "v2"
	case c.memory != "" && c.pids != "":
		return "v1"
	}
	return "none"
}

// groupPrefix begins the names of our groups: PREFIX PID - N. What a killed
// harness leaves is found by it.
const groupPrefix = "eval-"

// findCgroups reads where we are and tries what we may do there, by doing.
func findCgroups() (cgroups, error) {
	c := cgroups{next: new(atomic.Int64)}
	mounts, err := cgroupMounts()
	if err != nil {
		return c, err
	}
	self, err := os.ReadFile("/proc/self/cgroup")
	if err != nil {
		return c, err
	}
	for line := range strings.Lines(string(self)) {
		parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(parts) != 3 {
			continue
		}
		for _, controller := range strings.Split(parts[1], ",") {
			root, ok := mounts[controller]
			if !ok {
				continue
			}
			dir := filepath.Join(root, parts[2])
			switch controller {
			case "memory":
				if c.usable(dir, "memory.limit_in_bytes") {
					c.memory = dir
				}
			case "pids":
				if c.usable(dir, "pids.max") {
					c.pids = dir
				}
			case "":
				on, _ := os.ReadFile(filepath.Join(dir, "cgroup.subtree_control"))
				if has := strings.Fields(string(on)); contains(has, "memory") && contains(has, "pids") && c.usable(dir, "memory.max") {
					c.v2 = dir
				}
			}
		}
	}
	return c, nil
}

func contains(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

// cgroupMounts gives the mount point of each v1 controller; "" is v2's.
func cgroupMounts() (map[string]string, error) {
	f, err := os.Open("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	defer f.Close()
	out := map[string]string{}
	for sc := bufio.NewScanner(f); sc.Scan(); {
		before, after, ok := strings.Cut(sc.Text(), " - ")
		left, right := strings.Fields(before), strings.Fields(after)
		if !ok || len(left) < 5 || len(right) < 3 {
			continue
		}
		switch right[0] {
		case "cgroup2":
			out[""] = left[4]
		case "cgroup":
			for _, o := range strings.Split(right[2], ",") {
				out[o] = left[4]
			}
		}
	}
	return out, nil
}

// usable makes a group below dir and removes it again. On the way it sweeps
// what killed harnesses left.
func (c cgroups) usable(dir, file string) bool {
	sweepGroups(dir)
	probe := filepath.Join(dir, c.name("probe"))
	if os.Mkdir(probe, 0o755) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(probe, file))
	return os.Remove(probe) == nil && err == nil
}

func (c cgroups) name(what string) string {
	return fmt.Sprintf("%s%d-%s", groupPrefix, os.Getpid(), what)
}

// sweepGroups ends and removes the groups of harnesses that are no more.
func sweepGroups(dir string) {
	entries, _ := os.ReadDir(dir)
	for _, e := range entries {
		rest, ours := strings.CutPrefix(e.Name(), groupPrefix)
		pid, _, ok := strings.Cut(rest, "-")
		n, err := strconv.Atoi(pid)
		if !ours || !ok || err != nil || n == os.Getpid() || syscall.Kill(n, 0) != syscall.ESRCH {
			continue
		}
		group := filepath.Join(dir, e.Name())
		os.WriteFile(filepath.Join(group, "cgroup.kill"), []byte("1"), 0)
		removeGroup(group)
	}
}

// removeGroup removes a group whose processes are dying.
func removeGroup(dir string) {
	for range 100 {
		if err := unix.Rmdir(dir); err != unix.EBUSY {
			return
		}
		time.Sleep(time.Millisecond)
	}
}

// A cgroup is where one run is counted; nil counts nothing.
type cgroup struct {
	memory, pids string // folders; equal for v2
	v2           bool
}

// make makes a group with limits.
func (c cgroups) make(l graph.Limits) (*cgroup, error) {
	if c.mode() == "none" {
		return nil, nil
	}
	name := c.name(strconv.FormatInt(c.next.Add(1), 10))
	g := &cgroup{memory: filepath.Join(c.memory, name), pids: filepath.Join(c.pids, name)}
	files := [][2]string{
		{g.memory + "/memory.limit_in_bytes", strconv.FormatInt(l.Memory, 10)},
		{g.pids + "/pids.max", strconv.FormatInt(l.Processes+1, 10)},
	}
	dirs := []string{g.memory, g.pids}
	if c.v2 != "" {
		g = &cgroup{memory: filepath.Join(c.v2, name), v2: true}
		g.pids = g.memory
		dirs = dirs[:1]
		dirs[0] = g.memory
		files = [][2]string{
			{g.memory + "/memory.max", strconv.FormatInt(l.Memory, 10)},
			{g.memory + "/memory.oom.group", "1"},
			{g.pids + "/pids.max", strconv.FormatInt(l.Processes+1, 10)},
		}
	}
	for _, d := range dirs {
		if err := os.Mkdir(d, 0o755); err != nil {
			g.remove()
			return nil, err
		}
	}
	for _, f := range files {
		if err := writeFile(f[0], f[1]); err != nil {
			g.remove()
			return nil, err
		}
	}
	// Swap would let a process go on beyond its limit; a kernel without swap
	// accounting has no such file.
	for _, f := range [][2]string{{"memory.memsw.limit_in_bytes", strconv.FormatInt(l.Memory, 10)}, {"memory.swap.max", "0"}} {
		if err := writeFile(filepath.Join(g.memory, f[0]), f[1]); err != nil && !errors.Is(err, os.ErrNotExist) {
			g.remove()
			return nil, err
		}
	}
	return g, nil
}

// writeFile writes to a file that is there, in one call.
func writeFile(name, content string) error {
	fd, err := unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0)
	if err == nil {
		_, err = unix.Write(fd, []byte(content))
		unix.Close(fd)
	}
	if err != nil {
		return &os.PathError{Op: "write " + content + " to", Path: name, Err: err}
	}
	return nil
}

func (g *cgroup) join(pid int) error {
	if g == nil {
		return nil
	}
	if err := writeFile(g.memory+"/cgroup.procs", strconv.Itoa(pid)); err != nil || g.v2 {
		return err
	}
	return writeFile(g.pids+"/cgroup.procs", strconv.Itoa(pid))
}

// hit lists the limits that were run into.
func (g *cgroup) hit() []string {
	if g == nil {
		return nil
	}
	var out []string
	if g.v2 && counter(g.memory+"/memory.events", "oom_kill") > 0 || !g.v2 && counter(g.memory+"/memory.oom_control", "oom_kill") > 0 {
		out = append(out, "memory")
	}
	if counter(g.pids+"/pids.events", "max") > 0 {
		out = append(out, "processes")
	}
	return out
}

// counter reads a line NAME N.
func counter(file, name string) int64 {
	b, _ := os.ReadFile(file)
	for line := range bytes.Lines(b) {
		if f := strings.Fields(string(line)); len(f) == 2 && f[0] == name {
			n, _ := strconv.ParseInt(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func (g *cgroup) remove() {
	if g == nil {
		return
	}
	removeGroup(g.memory)
	if !g.v2 {
		removeGroup(g.pids)
	}
}
