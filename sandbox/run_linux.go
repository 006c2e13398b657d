package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/sandbox/pid1"
	"github.com/evalbuild/eval/workspace/graph"
)

// setupTimeout bounds what the child does before it says hello, and each wait
// of it for us.
const setupTimeout = 30 * time.Second

// minFD is above all descriptors that a program sets by number.
const minFD = 16

// Run runs one process under its seal and returns what it did. A target that
// fails is a Result. Errors are an *UnavailableError, a *SetupError, the
// context's, or of the machine; in each case nothing of the target is left.
func (s *Sandbox) Run(ctx context.Context, spec Spec) (*Result, error) {
	if spec.Policy.Unsealed {
		return s.runUnsealed(ctx, spec)
	}
	facts, err := s.Facts()
	if err != nil {
		return nil, err
	}
	var stdin []byte
	if spec.Stdin != nil {
		if stdin, err = io.ReadAll(spec.Stdin); err != nil {
			return nil, fmt.Errorf("read stdin for a sealed process: %w", err)
		}
	}
	for attempt := 1; ; attempt++ {
		if spec.Stdin != nil {
			spec.Stdin = bytes.NewReader(stdin)
		}
		res, err := s.runOnce(ctx, spec, facts)
		// Somebody else's child, cloned while the store wrote the program, may
		// hold it open for writing until it has closed what it doesn't need.
		// Nothing of the target ran.
		if attempt < 5 && errors.Is(err, unix.ETXTBSY) {
			time.Sleep(time.Duration(attempt) * 5 * time.Millisecond)
			continue
		}
		// A group can be made here, but nothing moved into it: that is found out
		// by the first run, and then the limits are per process.
		if errors.Is(err, errJoin) && errors.Is(err, os.ErrPermission) && facts.Cgroup != "none" {
			facts = s.withoutCgroups()
			continue
		}
		return res, err
	}
}

func (s *Sandbox) runOnce(ctx context.Context, spec Spec, facts Facts) (*Result, error) {
	r := &run{s: s, spec: &spec, plan: Plan{spec.Policy, spec.Mounts, outputFolders(spec.Outputs), spec.Listener, facts}}
	r.slot = s.slots.take()
	defer s.slots.give(r.slot)
	defer r.close()
	if err := r.start(); err != nil {
		return nil, s.diagnose(err)
	}
	return r.finish(ctx)
}

var errJoin = errors.New("the process can't be moved")

// A run is one sealed process, from its descriptors to its result.
type run struct {
	s    *Sandbox
	spec *Spec
	plan Plan
	slot int

	program  *compiled
	linked   *linked
	fds      []int // to close at the end
	control  int   // PID 1's end of the talk
	passing  int   // where descriptors come out
	pid      int
	pidfd    int
	mu       sync.Mutex
	reaped   bool
	scratch  int // descriptor of WorkDir
	listener []int
	group    *cgroup
	stdout   stream
	stderr   stream
	egress   *egress.Server
	layers   []Layer
	started  time.Time
}

func (r *run) keep(fd int) int {
	r.fds = append(r.fds, fd)
	return fd
}

// close ends what is still running, and waits for it: no path leaves a process.
func (r *run) close() {
	if r.pid != 0 && !r.reaped {
		r.kill()
		r.wait()
	}
	if r.egress != nil {
		r.egress.Close()
	}
	for _, fd := range r.fds {
		unix.Close(fd)
	}
	if r.linked != nil {
		r.s.giveArena(r.linked.arena)
	}
}

// kill ends everything. Timers call it too, perhaps when the run is over: then
// the descriptor may be another run's.
func (r *run) kill() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.reaped {
		unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0)
	}
}

// wait returns when PID 1 is dead, and with it every process of the namespace.
func (r *run) wait() unix.WaitStatus {
	var st unix.WaitStatus
	for {
		_, err := unix.Wait4(r.pid, &st, unix.WALL, nil)
		if err != unix.EINTR {
			r.mu.Lock()
			r.reaped = true
			r.mu.Unlock()
			return st
		}
	}
}

// start puts the seal up, up to the word to go.
func (r *run) start() error {
	var err error
	if r.program, err = r.s.compile(&r.plan); err != nil {
		return fmt.Errorf("compile the seal: %w", err)
	}
	sources, err := statSources(r.spec.Mounts)
	if err != nil {
		return err
	}
	child, err := r.descriptors()
	closeChild := sync.OnceFunc(func() {
		for _, fd := range child {
			unix.Close(fd)
		}
	})
	defer closeChild()
	if err != nil {
		return fmt.Errorf("make descriptors for a sealed process: %w", err)
	}
	if r.linked, err = r.program.bind(r.bindings(child), r.s.arena()); err != nil {
		return err
	}
	if r.plan.Facts.Cgroup != "none" {
		if r.group, err = r.s.cgroups.of(r.slot, r.plan.Policy.Limits); err != nil {
			return &SetupError{Row: -1, Layer: "limits", Call: "make a cgroup", Err: err}
		}
	}
	r.started = time.Now()
	r.pid, r.pidfd, err = start(r.linked, r.program.Clone)
	closeChild()
	if err != nil {
		r.pid = 0
		return &SetupError{Row: -1, Layer: "user", Call: fmt.Sprintf("clone(0x%x)", r.program.Clone), Err: err}
	}
	r.keep(r.pidfd)
	if r.plan.Facts.Variant == VariantRoot {
		if err := r.mapSlot(); err != nil {
			return err
		}
	}
	hello := make([]byte, pid1.HelloSize)
	for n := 0; n < len(hello); {
		m, err := retry(func() (int, error) { return unix.Read(r.control, hello[n:]) })
		if err == nil && m == 0 {
			err = io.EOF
		}
		if err != nil {
			return r.rowError(err)
		}
		n += m
	}
	if err := r.receive(); err != nil { // it is there: it came before
		return r.rowError(err)
	}
	if r.plan.Facts.Variant == VariantRoot {
		r.s.restoreDumpable()
	}
	if err := r.linked.unexpected(); err != nil {
		return err
	}
	if err := sources.check(r.linked); err != nil {
		return err
	}
	if err := r.group.join(r.pid); err != nil {
		return &SetupError{Row: -1, Layer: "limits", Call: "join a cgroup", Err: fmt.Errorf("%w: %w", errJoin, err)}
	}
	return r.observe(hello)
}

// mapSlot gives the child of a root harness its uid: one that nobody else has.
func (r *run) mapSlot() error {
	uid := r.s.uid(r.slot)
	for _, file := range []string{"uid_map", "gid_map"} {
		name := fmt.Sprintf("/proc/%d/%s", r.pid, file)
		if err := os.WriteFile(name, fmt.Appendf(nil, "%d %d 1\n", UID, uid), 0); err != nil {
			return r.rowError(&SetupError{Row: -1, Layer: "user", Call: "write " + file, Err: errors.Unwrap(err)})
		}
	}
	if _, err := unix.Write(r.control, []byte{'m'}); err != nil {
		return r.rowError(err)
	}
	return nil
}

// rowError waits for a child that went silent and says at which row.
func (r *run) rowError(cause error) error {
	r.kill()
	st := r.wait()
	if r.plan.Facts.Variant == VariantRoot {
		r.s.restoreDumpable()
	}
	if err := r.linked.failure(); err != nil {
		var row *SetupError
		if errors.As(err, &row) && row.Row == len(r.linked.rows)-1 && errors.Is(err, unix.E2BIG) {
			return &ExecError{Path: sealedStrings(r.spec.Args)[0], Err: unix.E2BIG} // the user's words
		}
		if errors.Is(err, unix.EMFILE) && row != nil {
			row.Err = fmt.Errorf("%w: each of %d inputs and tools is a descriptor for a while; raise the hard limit of open files (ulimit -Hn)", row.Err, len(r.spec.Mounts))
		}
		return err
	}
	var setup *SetupError
	if errors.As(cause, &setup) {
		return cause
	}
	if errors.Is(cause, unix.EAGAIN) {
		cause = fmt.Errorf("it said nothing for %v", setupTimeout)
	}
	if errors.Is(cause, io.EOF) || errors.Is(cause, io.ErrUnexpectedEOF) {
		cause = fmt.Errorf("it ended (%s)", statusOf(int32(st)))
	}
	return &SetupError{Row: -1, Layer: "reap", Call: "wait for PID 1", Err: cause}
}

// finish says go, and takes in what the process did.
func (r *run) finish(ctx context.Context) (*Result, error) {
	if err := r.serve(); err != nil {
		return nil, err
	}
	if _, err := unix.Write(r.control, []byte{pid1.Go}); err != nil {
		return nil, &SetupError{Row: -1, Layer: "reap", Call: "say go", Err: err}
	}
	stop := context.AfterFunc(ctx, r.kill)
	late, watchErr := r.watch(r.started.Add(r.plan.Policy.Limits.Wall))
	stop()
	if watchErr != nil {
		r.kill()
	}
	st := r.wait()
	if watchErr != nil {
		return nil, fmt.Errorf("watch a sealed process: %w", watchErr)
	}
	msg := make([]byte, pid1.EndSize+1)
	n, _ := retry(func() (int, error) { return unix.Read(r.control, msg) }) // all of it is there, or nothing will come
	ended := n == pid1.EndSize
	res := &Result{Wall: time.Since(r.started)}
	if late && !ended {
		res.Limits = []string{"wall"}
	}
	res.Stdout, res.Stderr = r.stdout.stream(), r.stderr.stream()
	if r.egress != nil {
		res.Egress = r.egress.Close()
		r.egress = nil
	}
	if ctx.Err() != nil && !ended {
		return nil, context.Cause(ctx)
	}
	hit, err := r.group.hit()
	if err != nil {
		return nil, &SetupError{Row: -1, Layer: "limits", Call: "read a cgroup's events", Err: err}
	}
	res.Limits = append(res.Limits, hit...)
	switch end, err := pid1.DecodeEnd(msg[:max(n, 0)]); {
	case ended && err != nil:
		return nil, &SetupError{Row: -1, Layer: "reap", Call: "read PID 1's report", Err: err}
	case ended && end.ExecErrno != 0:
		return nil, &ExecError{Path: sealedStrings(r.spec.Args)[0], Err: unix.Errno(end.ExecErrno)}
	case ended:
		res.Status, res.Survivors = statusOf(end.WaitStatus), int(end.Survivors)
	case len(res.Limits) > 0:
		res.Status = Status{Code: -1, Signal: int(unix.SIGKILL)}
	default:
		return nil, &SetupError{Row: -1, Layer: "reap", Call: "read PID 1's report", Err: fmt.Errorf("it ended without one (%s)", statusOf(int32(st)))}
	}
	if full(r.scratch) {
		res.Limits = append(res.Limits, "scratch")
	}
	if res.Stdout.Truncated() || res.Stderr.Truncated() {
		res.Limits = append(res.Limits, "output")
	}
	if err := r.collect(ctx, res); err != nil {
		return nil, err
	}
	res.Record = r.record()
	return res, nil
}

// serve listens for what the process asks of the network. A listener that was
// made inside keeps the namespace it was made in.
func (r *run) serve() error {
	if len(r.listener) == 0 {
		return nil
	}
	r.egress = r.s.newEgress(r.plan.Policy.Network)
	fds := r.listener
	if r.plan.Listener || len(r.plan.Policy.Network) > 0 {
		ln, err := listenerOf(fds[0])
		if err != nil {
			return err
		}
		r.egress.ServeProxy(ln)
		fds = fds[1:]
	}
	for i, f := range r.plan.Policy.Forward {
		if f.Target == graph.ServerTarget {
			if err := r.handOut(fds[i]); err != nil {
				return err
			}
			continue
		}
		ln, err := listenerOf(fds[i])
		if err != nil {
			return err
		}
		r.egress.ServeForward(ln, f)
	}
	return nil
}

// handOut gives a listener away.
func (r *run) handOut(fd int) error {
	r.fds = slices.DeleteFunc(r.fds, func(x int) bool { return x == fd })
	return r.spec.Serve(os.NewFile(uintptr(fd), "listener"))
}

func (r *run) collect(ctx context.Context, res *Result) error {
	if len(r.spec.Outputs) == 0 {
		return nil
	}
	c, err := collect.Collect(ctx, r.scratch, r.spec.Outputs, collect.Limits{Bytes: r.plan.Policy.Limits.Output}, r.s.o.Put)
	if err != nil {
		return fmt.Errorf("collect outputs: %w", err)
	}
	res.Outputs, res.Missing, res.Rejected = c.Files, c.Missing, c.Rejected
	return nil
}

// full says whether a file system has no room left.
func full(fd int) bool {
	var st unix.Statfs_t
	return unix.Fstatfs(fd, &st) == nil && (st.Bavail == 0 || st.Ffree == 0)
}

func statusOf(raw int32) Status {
	ws := unix.WaitStatus(raw)
	if ws.Signaled() {
		return Status{Code: -1, Signal: int(ws.Signal())}
	}
	return Status{Code: ws.ExitStatus()}
}
