package engine

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
)

// How a run with a server runs: two processes, each in a seal of its own. The
// seal of the run makes a listening socket inside of it; the server is handed
// that very socket, over a socket pair that is its stdin, and the end of the
// pair tells it that the run has ended. Nothing else is in common.

// A processed run is what its process did, and what its server did, if it has one.
type processed struct {
	*sandbox.Result
	server *sandbox.Result
}

// own is a program that comes with the harness, as it is inside.
func (b *build) own(name string) (graph.Mount, error) {
	if b.o.Own == nil {
		return graph.Mount{}, fmt.Errorf("no %s comes with this harness", name)
	}
	m, err := b.o.Own(name)
	m.Path = "/" + name
	return m, err
}

// serverMount adds what the key of a pure run has of its server's program.
func (b *build) serverMount(a *graph.Action, mounts []graph.Mount) ([]graph.Mount, error) {
	if a.Server == nil || a.Sample != nil {
		return mounts, nil
	}
	m, err := b.own(a.Server.Program)
	if err != nil {
		return nil, err
	}
	m.Path = "/" + graph.ServerDir + a.Server.Program
	mounts = append(slices.Clone(mounts), m)
	slices.SortFunc(mounts, func(x, y graph.Mount) int { return strings.Compare(x.Path, y.Path) })
	return mounts, nil
}

// serverSpec is how the server's process runs. program is its mount.
func (b *build) serverSpec(n *node, place placer, program graph.Mount) (sandbox.Spec, error) {
	s := n.action.Server
	mounts, err := b.stageInputs(n, graph.ServerDir, place)
	mounts = append(mounts, program)
	slices.SortFunc(mounts, func(x, y graph.Mount) int { return strings.Compare(x.Path, y.Path) })
	spec := sandbox.Spec{Args: append([]string{program.Path}, s.Args...), Policy: s.Policy, Mounts: mounts}
	// It serves one client: what Go sets up for each processor is a fifth of a start.
	spec.Env = []string{"GOMAXPROCS=1"}
	if n.onlyHost() {
		spec.Args[0] = program.Source
	}
	for _, o := range n.action.Outputs {
		if o.Served() {
			spec.Outputs = append(spec.Outputs, collect.Output{Path: strings.TrimPrefix(o.Name, graph.ServerDir)})
		}
	}
	return spec, err
}

// A serverError says that a run's server failed. What the run did then counts
// for nothing, whatever it was: it is no fault of the agent's.
type serverError struct{ Err *RunError }

func (e *serverError) Error() string { return "its world: " + e.Err.Error() }
func (e *serverError) Unwrap() error { return e.Err }

// Hints are none: a run's are about its seal, and a server has no other.
func (e *serverError) Hints() []string { return nil }

// errServerEnded ends a run whose server is gone.
var errServerEnded = errors.New("its world ended before it")

// serve runs a run's process beside its server.
func (b *build) serve(ctx context.Context, n *node, spec sandbox.Spec) (processed, error) {
	program, err := b.own(n.action.Server.Program)
	if err != nil {
		return processed{}, &toolError{err}
	}
	beside, err := b.serverSpec(n, b.stageFile, program)
	if err != nil {
		return processed{}, err
	}
	pair, err := socketPair()
	if err != nil {
		return processed{}, fmt.Errorf("make a socket pair for a world: %w", err)
	}
	control := os.NewFile(uintptr(pair[1]), "control")
	defer control.Close()
	ours, err := unixConn(pair[0])
	if err != nil {
		return processed{}, fmt.Errorf("make a socket pair for a world: %w", err)
	}
	defer ours.Close()
	beside.Control = control
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	type ended struct {
		res *sandbox.Result
		err error
	}
	server := make(chan ended, 1)
	go func() {
		res, err := b.o.Runner.Run(ctx, beside)
		server <- ended{res, err}
		cancel(errServerEnded)
	}()
	spec.Serve = func(listener *os.File) error {
		defer listener.Close()
		_, _, err := ours.WriteMsgUnix([]byte{'L'}, unix.UnixRights(int(listener.Fd())), nil)
		if errors.Is(err, unix.EPIPE) || errors.Is(err, unix.ECONNRESET) { // it will say why itself
			return nil
		}
		return err
	}
	res, err := b.o.Runner.Run(ctx, spec)
	if err != nil && !errors.Is(err, errServerEnded) {
		cancel(err)
	}
	ours.Close()
	end := <-server
	switch {
	case err != nil && !errors.Is(err, errServerEnded):
		return processed{}, err
	case end.err != nil:
		return processed{}, fmt.Errorf("its world: %w", end.err)
	}
	if f := serverFailure(n.action, end.res); f != nil {
		b.locate(n, f.Err)
		return processed{}, f
	}
	if err != nil { // it went without a word
		return processed{}, err
	}
	return processed{res, end.res}, nil
}

// socketPair makes a pair that no other process inherits. macOS can't say so as
// it makes one, so no process may start in between.
func socketPair() ([2]int, error) {
	syscall.ForkLock.RLock()
	defer syscall.ForkLock.RUnlock()
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM, 0)
	if err == nil {
		unix.CloseOnExec(pair[0])
		unix.CloseOnExec(pair[1])
	}
	return pair, err
}

func unixConn(fd int) (*net.UnixConn, error) {
	f := os.NewFile(uintptr(fd), "control")
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	return c.(*net.UnixConn), nil
}

// serverFailure judges what a server did; nil if its outputs count.
func serverFailure(a *graph.Action, res *sandbox.Result) *serverError {
	served := graph.Action{Policy: &a.Server.Policy}
	for _, o := range a.Outputs {
		if o.Served() {
			o.Name = strings.TrimPrefix(o.Name, graph.ServerDir)
			served.Outputs = append(served.Outputs, o)
		}
	}
	if f := failureOf(&served, res); f != nil {
		return &serverError{f}
	}
	return nil
}

// locate gives places in the text that a process was given, where it says them,
// those of the files that the text was made from.
func (b *build) locate(n *node, e *RunError) {
	said := string(e.Stderr.Data)
	for _, in := range n.action.Inputs {
		if a := in.File.Action; a != nil && a.Origins != nil {
			name := "/" + strings.TrimPrefix(in.Name, graph.ServerDir)
			if in.Name == graph.StdinName {
				name = "standard input" // as the programs of the harness call it
			}
			said = a.Origins.Rewrite(name, said)
		}
	}
	e.Stderr.Data = []byte(said)
}

// serverOf is the program that the record of a server's seal says it was.
func serverOf(record []byte, name string) (graph.Mount, error) {
	r, err := sandbox.DecodeRecord(record)
	if err != nil {
		return graph.Mount{}, err
	}
	for _, m := range r.Mounts {
		if m.Path == "/"+name {
			d, err := cas.ParseDigest(m.Digest)
			return graph.Mount{Path: m.Path, Digest: d, Executable: true}, err
		}
	}
	return graph.Mount{}, fmt.Errorf("no %s was inside", name)
}
