package sandbox

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox/pid1"
	"github.com/evalbuild/eval/workspace/graph"
)

// namespaces are the inode numbers of a process's namespaces, by layer.
type namespaces map[string]uint64

// nsFiles are the layers that are namespaces, and their files.
var nsFiles = [...][2]string{
	{"user", "user"}, {"mount", "mnt"}, {"pid", "pid"}, {"net", "net"}, {"ipc", "ipc"}, {"uts", "uts"}, {"cgroup", "cgroup"},
}

func namespacesOf(pid string) (namespaces, error) {
	dir, err := unix.Open("/proc/"+pid+"/ns", unix.O_PATH|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer unix.Close(dir)
	out := namespaces{}
	for _, f := range nsFiles {
		var st unix.Stat_t
		if err := unix.Fstatat(dir, f[1], &st, 0); err != nil {
			return nil, fmt.Errorf("namespace %s: %w", f[1], err)
		}
		out[f[0]] = st.Ino
	}
	return out, nil
}

// observe reads what can be read of PID 1, which waits for the word to go
// inside of all layers, and what its probes came to. Anything that is not as
// it must be is a *SetupError: the target doesn't run.
func (r *run) observe(hello []byte) error {
	raw, err := pid1.DecodeHello(hello)
	if err != nil {
		return &SetupError{Row: -1, Layer: "reap", Call: "read PID 1's hello", Err: err}
	}
	layers := map[string]*Layer{}
	for _, name := range LayerNames {
		layers[name] = &Layer{Name: name, State: Applied}
	}
	observed := func(name string) { layers[name].State = Observed }
	for i, p := range pid1.Probes {
		if !p.Holds(raw[i]) {
			if r.s.forgiven(p.Layer) {
				continue
			}
			return &SetupError{Row: -1, Layer: p.Layer, Call: "probe " + p.Name, Err: fmt.Errorf("returned %d", raw[i])}
		}
		l := layers[p.Layer]
		if l.State = Probed; l.Detail != "" {
			l.Detail += "; "
		}
		l.Detail += p.Name + " = " + resultName(raw[i])
	}
	ns, err := namespacesOf(strconv.Itoa(r.pid))
	if err != nil {
		return &SetupError{Row: -1, Layer: "pid", Call: "read the namespaces of PID 1", Err: err}
	}
	for name, ino := range ns {
		if ino == r.s.own[name] && !r.s.forgiven(name) {
			return &SetupError{Row: -1, Layer: name, Call: "observe the namespace", Err: errors.New("it is the harness's own")}
		}
		observed(name)
	}
	status, err := r.status()
	if err != nil {
		return &SetupError{Row: -1, Layer: "caps", Call: "read the status of PID 1", Err: err}
	}
	for _, e := range status.expect(r.outer()) {
		if e.got != e.want && !r.s.forgiven(e.layer) {
			return &SetupError{Row: -1, Layer: e.layer, Call: "observe " + e.field, Err: fmt.Errorf("%q, not %q", e.got, e.want)}
		}
		observed(e.layer)
	}
	if err := r.observeLimits(); err != nil {
		return &SetupError{Row: -1, Layer: "limits", Call: "observe limits", Err: err}
	}
	observed("limits")
	// An ordinary user can't list the descriptors of a process that isn't
	// dumpable: there, PID 1's probe has to do.
	if r.plan.Facts.Variant == VariantRoot {
		fds, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", r.pid))
		if err != nil {
			return &SetupError{Row: -1, Layer: "fds", Call: "read the descriptors of PID 1", Err: err}
		}
		if len(fds) != pid1.ControlFD+1 && !r.s.forgiven("fds") {
			return &SetupError{Row: -1, Layer: "fds", Call: "observe descriptors", Err: fmt.Errorf("%d are open, not 0 to %d", len(fds), pid1.ControlFD)}
		}
		observed("fds")
	}
	for _, name := range LayerNames {
		if want := layerState(r.plan.Facts, name); layers[name].State != want && !r.s.forgiven(name) {
			return &SetupError{Row: -1, Layer: name, Call: "observe the layer", Err: fmt.Errorf("it is %s, not %s", layers[name].State, want)}
		}
		r.layers = append(r.layers, *layers[name])
	}
	return nil
}

func (s *Sandbox) forgiven(layer string) bool {
	_, ok := s.forgive[layer]
	return ok
}

// outer is who the process is outside.
func (r *run) outer() int {
	if r.plan.Facts.Variant == VariantRoot {
		return int(r.s.uid(r.slot))
	}
	return os.Geteuid()
}

// observeLimits compares the limits of PID 1, and the group it is in, with what
// they must be.
func (r *run) observeLimits() error {
	if r.s.forgiven("limits") {
		return nil
	}
	b, err := readProc(r.pid, "limits")
	if err != nil {
		return err
	}
	for resource, want := range limitsOf(&r.plan) {
		title := limitTitles[resource]
		i := bytes.Index(b, []byte(title))
		if i < 0 {
			return fmt.Errorf("no line %q", title)
		}
		line, _, _ := bytes.Cut(b[i+len(title):], []byte("\n"))
		f := strings.Fields(string(line))
		if n := strconv.FormatInt(want, 10); len(f) < 2 || f[0] != n || f[1] != n {
			return fmt.Errorf("%s: %s, not %s", title, line, n)
		}
	}
	if r.group == nil {
		return nil
	}
	if b, err = readProc(r.pid, "cgroup"); err != nil {
		return err
	}
	for _, dir := range r.group.dirs {
		if !bytes.Contains(b, []byte("/"+filepath.Base(dir)+"\n")) {
			return fmt.Errorf("it is not in the group %s", dir)
		}
	}
	return nil
}

// limitTitles are the names of limits in /proc/PID/limits.
var limitTitles = map[int]string{
	rlimitCore: "Max core file size", rlimitData: "Max data size", rlimitFsize: "Max file size", rlimitMemlock: "Max locked memory",
	rlimitMsgqueue: "Max msgqueue size", rlimitNice: "Max nice priority", rlimitNofile: "Max open files", rlimitNproc: "Max processes",
	rlimitRtprio: "Max realtime priority", rlimitSigpending: "Max pending signals", rlimitStack: "Max stack size",
}

// readProc reads a short file of a process.
func readProc(pid int, name string) ([]byte, error) {
	fd, err := retry(func() (int, error) {
		return unix.Open(fmt.Sprintf("/proc/%d/%s", pid, name), unix.O_RDONLY|unix.O_CLOEXEC, 0)
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 8<<10)
	n, err := retry(func() (int, error) { return unix.Read(fd, b) })
	return b[:max(n, 0)], err
}

func resultName(n int64) string {
	if n < 0 {
		return unix.ErrnoName(unix.Errno(-n))
	}
	return strconv.FormatInt(n, 10)
}

// procStatus is /proc/PID/status, by field.
type procStatus map[string]string

func (r *run) status() (procStatus, error) {
	b, err := readProc(r.pid, "status")
	if err != nil {
		return nil, err
	}
	out := procStatus{}
	for line := range bytes.Lines(b) {
		name, value, _ := strings.Cut(string(line), ":")
		out[name] = strings.Join(strings.Fields(value), " ")
	}
	return out, nil
}

type expectation struct{ layer, field, got, want string }

// expect lists what status must say of a sealed process with an outer uid.
func (s procStatus) expect(uid int) []expectation {
	id := strings.TrimSpace(strings.Repeat(strconv.Itoa(uid)+" ", 4))
	out := []expectation{
		{"user", "Uid", s["Uid"], id},
		{"pid", "NSpid", lastField(s["NSpid"]), "1"},
		{"caps", "NoNewPrivs", s["NoNewPrivs"], "1"},
		{"seccomp", "Seccomp", s["Seccomp"], "2"},
		{"session", "NSsid", lastField(s["NSsid"]), "1"},
		{"env", "Umask", s["Umask"], "0022"},
	}
	for _, set := range []string{"CapInh", "CapPrm", "CapEff", "CapBnd", "CapAmb"} {
		out = append(out, expectation{"caps", set, strings.TrimLeft(s[set], "0"), ""})
	}
	return out
}

func lastField(s string) string {
	f := strings.Fields(s)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

// record is what is written about this run.
func (r *run) record() Record {
	return Record{
		Schema: recordSchema, Tier: TierFull, SealVersion: graph.SealVersion, Compiler: CompilerVersion,
		Policy: policyRecord(r.plan.Policy), PolicyHash: policyRecord(r.plan.Policy).digest(),
		Mounts: mountRecords(r.spec.Mounts), Folders: append([]string{}, r.plan.Folders...), Listener: r.plan.Listener,
		Facts: r.plan.Facts, Program: r.program.digest, Layers: r.layers,
		Limits: grade(r.plan.Facts), Notes: limitNotes(r.plan.Facts),
		Kernel: kernel(), NotSealed: notSealed,
	}
}
