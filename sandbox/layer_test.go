//go:build linux

package sandbox

import (
	"context"
	"errors"
	"os"
	"reflect"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

// layerOff are edits that take one layer out of a program, as a fault of ours
// might. What can't be taken out without harm to the host isn't: the mount and
// pid namespaces, and the pivot.
var layerOff = map[string]func(*Program){
	"net":      func(p *Program) { p.Clone &^= cloneNewNet },
	"ipc":      func(p *Program) { p.Clone &^= cloneNewIPC },
	"cgroup":   func(p *Program) { p.Clone &^= cloneNewCgroup },
	"seccomp":  func(p *Program) { switchOff(p, "seccomp") },
	"landlock": func(p *Program) { switchOff(p, "landlock") },
	"caps":     func(p *Program) { switchOff(p, "caps") },
	"limits":   func(p *Program) { switchOff(p, "limits") },
	"root":     func(p *Program) { dropRow(p, "mount_setattr", "/") },
	"proc":     func(p *Program) { editRow(p, "mount", "proc", 4, str("")) },
	"dev": func(p *Program) {
		editRow(p, "mknodat", "/dev/zero", 1, str("/dev/kmsg"))
		editRow(p, "move_mount", "/dev/zero", 3, str("/dev/kmsg"))
	},
	"fds": func(p *Program) {
		n := len(p.Rows) - 1
		p.Rows = append(p.Rows[:n:n], Row{Layer: "fds", Call: "dup3", Args: []Operand{num(0), num(6), num(0)}, FD: 6}, p.Rows[n])
	},
	"uts": func(p *Program) { p.Clone &^= cloneNewUTS; switchOff(p, "uts") },
}

func dropRow(p *Program, call, arg string) {
	for i, r := range p.Rows {
		for _, a := range r.Args {
			if r.Call == call && a.text == arg {
				p.Rows = append(p.Rows[:i:i], p.Rows[i+1:]...)
				return
			}
		}
	}
	panic("no row " + call + " " + arg)
}

func editRow(p *Program, call, arg string, i int, to Operand) {
	for _, r := range p.Rows {
		for _, a := range r.Args {
			if r.Call == call && a.text == arg {
				r.Args[i] = to
				return
			}
		}
	}
	panic("no row " + call + " " + arg)
}

func needSeal(t *testing.T, s *Sandbox) {
	for _, f := range s.Probe() {
		if !f.Live {
			if os.Getenv("EVAL_STRICT") != "" {
				t.Fatalf("layer %s is missing: %s", f.Layer, f.State)
			}
			t.Skipf("layer %s is missing: %s", f.Layer, f.State)
		}
	}
}

// TestLayerOff: with any layer gone, what PID 1 probes and what is read of it
// say which, and the target doesn't run.
func TestLayerOff(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	needSeal(t, s)
	for layer, edit := range layerOff {
		s := New(Options{})
		t.Cleanup(s.Close)
		s.edit = edit
		res, err := s.Run(context.Background(), Spec{Args: []string{"/none"}, Policy: graph.Policy{Limits: graph.DefaultLimits}})
		var setup *SetupError
		if !errors.As(err, &setup) || setup.Layer != layer {
			t.Errorf("%s: %+v %v", layer, res, err)
		}
	}
}

// TestRowFails: the error names the row that failed, and its errno.
func TestRowFails(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	needSeal(t, s)
	at := 0
	s.edit = func(p *Program) {
		for i, r := range p.Rows {
			if r.Call == "mkdirat" && r.Args[1].text == WorkDir {
				at = i
				r.Args[1] = str("/nowhere/work")
			}
		}
	}
	_, err := s.Run(context.Background(), Spec{Args: []string{"/none"}, Policy: graph.Policy{Limits: graph.DefaultLimits}})
	var setup *SetupError
	if !errors.As(err, &setup) || setup.Row != at || setup.Layer != "root" || !errors.Is(err, unix.ENOENT) {
		t.Errorf("%v", err)
	}
	if want := `mkdirat(-100, "/nowhere/work", 0x1ed)`; setup != nil && setup.Call != want {
		t.Errorf("call %s, want %s", setup.Call, want)
	}
}

// TestHarnessUnchanged: what the child does to itself doesn't reach us.
func TestHarnessUnchanged(t *testing.T) {
	s := New(Options{})
	t.Cleanup(s.Close)
	needSeal(t, s)
	before := ownPosture(t)
	for range 5 {
		s.Run(context.Background(), Spec{Args: []string{"/none"}, Policy: graph.Policy{Limits: graph.DefaultLimits}})
	}
	if after := ownPosture(t); after != before {
		t.Errorf("before %+v\nafter  %+v", before, after)
	}
}

type posture struct {
	uid, gid, umask, dumpable, noNewPrivs, seccomp int
	core                                           unix.Rlimit
	cwd                                            string
	mask                                           unix.Sigset_t
}

func ownPosture(t *testing.T) (p posture) {
	t.Helper()
	p.uid, p.gid = os.Getuid(), os.Getgid()
	p.umask = unix.Umask(0o22)
	unix.Umask(p.umask)
	p.dumpable, _ = unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0)
	p.noNewPrivs, _ = unix.PrctlRetInt(unix.PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0)
	p.seccomp, _ = unix.PrctlRetInt(unix.PR_GET_SECCOMP, 0, 0, 0, 0)
	unix.Getrlimit(unix.RLIMIT_CORE, &p.core)
	p.cwd, _ = os.Getwd()
	unix.PthreadSigmask(unix.SIG_SETMASK, nil, &p.mask)
	return p
}

// TestSamePlan: each field of what a plan is made of tells two programs apart,
// or is known not to be in them.
func TestSamePlan(t *testing.T) {
	notInPrograms := map[string]bool{
		"Mount.Source": true, "Mount.Executable": true, // Tree: whether it is nil
		"Policy.Unsealed": true, "Policy.Network": true, // Network: whether it is empty
	}
	edits := map[string]func(*Plan){
		"Plan.Facts":       func(p *Plan) { p.Facts.Landlock = 3 },
		"Plan.Listener":    func(p *Plan) { p.Listener = !p.Listener },
		"Plan.Folders":     func(p *Plan) { p.Folders = []string{"x"} },
		"Plan.Policy":      func(p *Plan) { p.Policy.Network = nil },
		"Plan.Mounts":      func(p *Plan) { p.Mounts = p.Mounts[1:] },
		"Policy.Forward":   func(p *Plan) { p.Policy.Forward = nil },
		"Policy.Limits":    func(p *Plan) { p.Policy.Limits = graph.Limits{} },
		"Limits.Memory":    func(p *Plan) { p.Policy.Limits.Memory++ },
		"Limits.Scratch":   func(p *Plan) { p.Policy.Limits.Scratch++ },
		"Limits.Output":    func(p *Plan) { p.Policy.Limits.Output++ },
		"Limits.Processes": func(p *Plan) { p.Policy.Limits.Processes++ },
		"Limits.Wall":      func(p *Plan) { p.Policy.Limits.Wall++ },
		"Mount.Path":       func(p *Plan) { p.Mounts[1].Path += "x" },
		"Mount.Digest":     func(p *Plan) { p.Mounts[1].Digest = sum("other") },
		"Mount.Tree":       func(p *Plan) { p.Mounts[4].Tree = nil },
		"Mount.Link":       func(p *Plan) { p.Mounts[0].Link = "x" },
	}
	for _, typ := range []reflect.Type{
		reflect.TypeFor[Plan](), reflect.TypeFor[graph.Policy](), reflect.TypeFor[graph.Limits](), reflect.TypeFor[graph.Mount](),
	} {
		for i := range typ.NumField() {
			name := typ.Name() + "." + typ.Field(i).Name
			edit := edits[name]
			if edit == nil {
				if !notInPrograms[name] {
					t.Errorf("samePlan: is %s in programs?", name)
				}
				continue
			}
			a, b := somePlan(), somePlan()
			if edit(&b); samePlan(&a, &b) {
				t.Errorf("plans that differ in %s are the same", name)
			}
		}
	}
}
