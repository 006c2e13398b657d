package sandbox

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
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
	v2     string // v2: where groups can be made, with both controllers

	mu     *sync.Mutex
	groups map[int]*cgroup // by slot
	serial int64           // tells the Sandboxes of one process apart
}

var sandboxes atomic.Int64

func (c *cgroups) mode() string {
	switch {
	case c.v2 != "":
		return "v2"
	case c.memory != "" && c.pids != "":
		return "v1"
	}
	return "none"
}

// groupPrefix begins the names of our groups: PREFIX PID - SERIAL - SLOT. What a killed
// harness leaves is found by it.
const groupPrefix = "eval-"

// findCgroups reads where we are and tries what we may do there, by doing.
func findCgroups() (cgroups, error) {
	c := cgroups{mu: new(sync.Mutex), groups: map[int]*cgroup{}, serial: sandboxes.Add(1)}
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
				// A group with processes can't hand controllers to groups below
				// it, unless it is the tree's root: ours are beside our own.
				for _, d := range []string{filepath.Dir(dir), dir} {
					on, _ := os.ReadFile(filepath.Join(d, "cgroup.subtree_control"))
					has := strings.Fields(string(on))
					if c.v2 == "" && slices.Contains(has, "memory") && slices.Contains(has, "pids") && c.usable(d, "memory.max") {
						c.v2 = d
					}
				}
			}
		}
	}
	return c, nil
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
func (c *cgroups) usable(dir, file string) bool {
	sweepGroups(dir)
	probe := filepath.Join(dir, c.name("probe"))
	if os.Mkdir(probe, 0o755) != nil {
		return false
	}
	_, err := os.Stat(filepath.Join(probe, file))
	return os.Remove(probe) == nil && err == nil
}

func (c *cgroups) name(what string) string {
	return fmt.Sprintf("%s%d-%d-%s", groupPrefix, os.Getpid(), c.serial, what)
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
		// A process that isn't there may be in another pid namespace: whoever
		// lives holds a lock too.
		group := filepath.Join(dir, e.Name())
		f, err := os.Open(group)
		if err != nil {
			continue
		}
		err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
		f.Close()
		if err != nil {
			continue
		}
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

// A cgroup is where the runs of one slot are counted, one after the other; nil
// counts nothing. It stays between runs: making and removing it, and opening
// its files, would cost as much as all namespaces but the network's.
type cgroup struct {
	dirs   []string // memory and pids; one of v2
	limits graph.Limits
	locks  []*os.File // of each folder: locked while we live
	procs  []*os.File // cgroup.procs of each
	events []event
}

// An event is a counter of times that a limit was run into.
type event struct {
	limit, counter string
	file           *os.File
	seen           int64
}

// of gives the group of a slot, with limits. There are groups: mode isn't none.
func (c *cgroups) of(slot int, l graph.Limits) (*cgroup, error) {
	c.mu.Lock()
	g := c.groups[slot]
	c.mu.Unlock()
	if g == nil {
		var err error
		if g, err = c.make(slot); err != nil {
			return nil, err
		}
		c.mu.Lock()
		c.groups[slot] = g
		c.mu.Unlock()
	}
	if g.limits != l {
		if err := g.set(l, c.v2 != ""); err != nil {
			return nil, err
		}
	}
	_, err := g.hit() // what a run before hit and, cancelled, never asked for
	return g, err
}

func (c *cgroups) make(slot int) (*cgroup, error) {
	name := c.name(strconv.Itoa(slot))
	g := &cgroup{dirs: []string{filepath.Join(c.memory, name), filepath.Join(c.pids, name)}}
	g.events = []event{{limit: "memory", counter: "oom_kill"}, {limit: "processes", counter: "max"}}
	files := []string{g.dirs[0] + "/memory.oom_control", g.dirs[1] + "/pids.events"}
	if c.v2 != "" {
		dir := filepath.Join(c.v2, name)
		g.dirs, files = []string{dir}, []string{dir + "/memory.events", dir + "/pids.events"}
	}
	var err error
	for _, d := range g.dirs {
		if err = os.Mkdir(d, 0o755); err != nil {
			break
		}
		var f *os.File
		if f, err = os.Open(d); err != nil {
			break
		}
		g.locks = append(g.locks, f)
		if err = unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
			break
		}
		if f, err = os.OpenFile(d+"/cgroup.procs", os.O_WRONLY, 0); err != nil {
			break
		}
		g.procs = append(g.procs, f)
	}
	for i := range g.events {
		if err == nil {
			g.events[i].file, err = os.Open(files[i])
		}
	}
	if err != nil {
		g.remove()
		return nil, err
	}
	return g, nil
}

// set writes limits.
func (g *cgroup) set(l graph.Limits, v2 bool) error {
	g.limits = graph.Limits{}                                                                  // half of them may be written
	memory, processes := strconv.FormatInt(l.Memory, 10), strconv.FormatInt(l.Processes+1, 10) // and PID 1
	dir := g.dirs[0]
	files := [][2]string{{g.dirs[len(g.dirs)-1] + "/pids.max", processes}}
	// Swap would let a process go on beyond its limit; a kernel that doesn't
	// count it has no such file.
	if v2 {
		files = append(files, [][2]string{{dir + "/memory.max", memory}, {dir + "/memory.oom.group", "1"}, {dir + "/memory.swap.max", "0"}}...)
	} else {
		// The sum of memory and swap may never be less than memory alone: up, it
		// is first, and down, last.
		files = append(files, [][2]string{{dir + "/memory.memsw.limit_in_bytes", "-1"}, {dir + "/memory.limit_in_bytes", memory}, {dir + "/memory.memsw.limit_in_bytes", memory}}...)
	}
	for _, f := range files {
		if err := writeFile(f[0], f[1]); err != nil && !(errors.Is(err, os.ErrNotExist) && strings.Contains(f[0], "sw")) {
			return err
		}
	}
	g.limits = l
	return nil
}

// writeFile writes to a file that is there, in one call.
func writeFile(name, content string) error {
	fd, err := retry(func() (int, error) { return unix.Open(name, unix.O_WRONLY|unix.O_CLOEXEC, 0) })
	if err == nil {
		// To lower a limit takes a while, and Go's own signals come meanwhile.
		_, err = retry(func() (int, error) { return unix.Write(fd, []byte(content)) })
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
	for _, f := range g.procs {
		if _, err := f.WriteString(strconv.Itoa(pid)); err != nil {
			return err
		}
	}
	return nil
}

// hit lists the limits that were run into since it was asked last.
func (g *cgroup) hit() ([]string, error) {
	if g == nil {
		return nil, nil
	}
	var out []string
	for i := range g.events {
		e := &g.events[i]
		b := make([]byte, 512)
		n, err := e.file.ReadAt(b, 0)
		if err != nil && err != io.EOF {
			return nil, err
		}
		for line := range bytes.Lines(b[:n]) {
			f := strings.Fields(string(line))
			if len(f) != 2 || f[0] != e.counter {
				continue
			}
			if v, _ := strconv.ParseInt(f[1], 10, 64); v != e.seen {
				e.seen = v
				out = append(out, e.limit)
			}
		}
	}
	return out, nil
}

func (g *cgroup) remove() {
	for _, f := range append(g.procs, g.locks...) {
		f.Close()
	}
	for _, e := range g.events {
		if e.file != nil {
			e.file.Close()
		}
	}
	for _, d := range g.dirs {
		removeGroup(d)
	}
}

// close removes all groups.
func (c *cgroups) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for slot, g := range c.groups {
		g.remove()
		delete(c.groups, slot)
	}
}
