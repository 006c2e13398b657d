package sandbox

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
)

func (s *Sandbox) host() host {
	return host{files: os.DirFS("/"), root: os.Geteuid() == 0, dumpable: s.dumpable}
}

func hintLandlock(errno unix.Errno) string {
	_, hint := host{files: os.DirFS("/")}.explain("landlock", errno)
	return hint
}

// diagnose tells a machine that can't give the seal from one that failed to:
// what the kernel refuses for good is an *UnavailableError.
func (s *Sandbox) diagnose(err error) error {
	var setup *SetupError
	if !errors.As(err, &setup) {
		return err
	}
	var errno syscall.Errno
	if !errors.As(setup.Err, &errno) || setup.Layer == "mount" && strings.HasPrefix(setup.Call, "open_tree") {
		return err
	}
	switch errno {
	case unix.EPERM, unix.EACCES, unix.ENOSYS, unix.EINVAL, unix.EUSERS, unix.EOPNOTSUPP, unix.ENOSPC:
		cause, hint := s.host().explain(setup.Layer, errno)
		if cause != "" {
			return &UnavailableError{Layer: setup.Layer, Err: fmt.Errorf("%w: %s", err, cause), Hint: hint}
		}
		return &UnavailableError{Layer: setup.Layer, Err: err}
	}
	return err
}

// optional are the layers that a seal can be put up without: when one fails,
// Probe goes on without it, to find out about the others. Never does Run.
var optional = map[string]bool{"proc": true, "seccomp": true, "landlock": true, "limits": true, "uts": true, "env": true, "session": true, "egress": true}

// Probe finds out by doing what of a seal this machine gives: it puts one up,
// with a listener, up to the word to go, and takes it down. One finding for
// each of LayerNames, in that order. Nothing is remembered from one call to the next.
func (s *Sandbox) Probe() []Finding {
	failed := map[string]error{}
	if _, err := s.Facts(); err != nil {
		layer := "reap"
		var no *UnavailableError
		if errors.As(err, &no) {
			layer = no.Layer
		}
		failed[layer] = err
	}
	states := map[string]Layer{}
	for _, ns := range []struct {
		layer string
		flag  uint64
	}{
		{"user", 0},
		{"mount", cloneNewNS},
		{"pid", cloneNewPID},
		{"net", cloneNewNet},
		{"ipc", cloneNewIPC},
		{"uts", cloneNewUTS},
		{"cgroup", cloneNewCgroup},
	} {
		if err := s.cloneOnly(cloneNewUser | ns.flag); err != nil {
			failed[ns.layer] = &SetupError{Row: -1, Layer: ns.layer, Call: fmt.Sprintf("clone(0x%x)", cloneNewUser|ns.flag), Err: err}
			if ns.layer == "user" {
				break // nothing goes without it
			}
		}
	}
	reached := len(failed) == 0
	for reached {
		r, err := s.probeOnce(failed)
		for _, l := range r.layers {
			states[l.Name] = l
		}
		if err == nil {
			break
		}
		layer := "reap"
		var setup *SetupError
		if errors.As(err, &setup) {
			layer = setup.Layer
		}
		again := failed[layer] == nil && optional[layer]
		failed[layer] = err
		reached = again
	}
	return s.findings(failed, states, reached)
}

// probeOnce puts a seal up without the layers that failed before.
func (s *Sandbox) probeOnce(without map[string]error) (*run, error) {
	facts, err := s.Facts()
	if err != nil {
		return &run{}, err
	}
	t := &Sandbox{o: s.o}
	if _, err := t.Facts(); err != nil {
		return &run{}, err
	}
	t.edit = func(p *Program) {
		for name := range without {
			switchOff(p, name)
		}
	}
	t.forgive = without
	spec := &Spec{Args: []string{"/none"}, Policy: graph.Policy{Limits: graph.DefaultLimits}, Listener: true}
	r := &run{s: t, spec: spec, plan: Plan{Policy: spec.Policy, Listener: true, Facts: facts}}
	defer t.Close()
	defer r.close()
	return r, r.start()
}

// switchOff takes a layer's rows out of a program. For Probe and tests.
func switchOff(p *Program, layer string) {
	kept := p.Rows[:0:0]
	for _, r := range p.Rows {
		// Descriptors are counted: what passes them out stays.
		if r.Layer != layer || layer == "egress" && r.FD < 0 && r.Call == "sendmsg" {
			kept = append(kept, r)
		}
	}
	p.Rows = kept
}

// cloneOnly makes a child with new namespaces that ends at once.
func (s *Sandbox) cloneOnly(flags uint64) error {
	t, err := layOut(Program{Rows: []Row{{Call: "getpid", FD: -1}}}, runtime.GOARCH)
	if err != nil {
		return err
	}
	l, err := t.bind(bindings{}, nil)
	if err != nil {
		return err
	}
	defer l.free()
	pid, pidfd, err := start(l, flags)
	if err != nil {
		return err
	}
	unix.Close(pidfd)
	for {
		if _, err := unix.Wait4(pid, nil, unix.WALL, nil); err != unix.EINTR {
			return nil
		}
	}
}

func (s *Sandbox) findings(failed map[string]error, states map[string]Layer, complete bool) []Finding {
	h := s.host()
	var out []Finding
	for _, name := range LayerNames {
		f := Finding{Layer: name}
		switch err, l := failed[name], states[name]; {
		case err != nil:
			f.State = err.Error()
			f.Cause, f.Hint = h.explain(name, err)
		case l.Name != "":
			f.Live, f.State = true, l.State
			if l.Detail != "" {
				f.State += ": " + l.Detail
			}
		case complete:
			f.Live, f.State = true, Applied
		default:
			f.Untried, f.State = true, "a layer that it needs is missing"
		}
		if name == "limits" && f.Live {
			f.State = grade(s.facts)
			if s.facts.Cgroup != "none" {
				f.State += " (" + s.facts.Cgroup + " cgroups)"
			}
			if s.facts.Cgroup == "none" {
				f.Cause = "no cgroup can be made here, so memory is bounded for each process alone: " + s.cgroupCause()
				f.Hint = "on systemd: systemd-run --user --scope ev build …"
			} else if s.facts.Cgroup == "v1" {
				f.Cause = "the cgroup tree is v1 or hybrid"
			}
		}
		out = append(out, f)
	}
	return out
}

// cgroupCause says why no group can be made.
func (s *Sandbox) cgroupCause() string {
	mounts, err := cgroupMounts()
	if err != nil {
		return err.Error()
	}
	for _, c := range []string{"memory", ""} {
		root, ok := mounts[c]
		if !ok {
			continue
		}
		self, _ := os.ReadFile("/proc/self/cgroup")
		for line := range strings.Lines(string(self)) {
			parts := strings.SplitN(strings.TrimSpace(line), ":", 3)
			if len(parts) == 3 && parts[1] == c {
				if err := unix.Access(filepath.Join(root, parts[2]), unix.W_OK); err != nil {
					return fmt.Sprintf("%s: %v", filepath.Join(root, parts[2]), err)
				}
				return "the controllers memory and pids aren't delegated to this process's group"
			}
		}
	}
	return "no cgroup tree is mounted"
}
