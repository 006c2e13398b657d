package sandbox

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"strconv"
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
const minFD = 64

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
	r := &run{s: s, spec: &spec, plan: Plan{spec.Policy, spec.Mounts, outputFolders(spec.Outputs), spec.Listener, facts}}
	r.slot = s.slots.take()
	defer s.slots.give(r.slot)
	defer r.close()
	if err := r.start(); err != nil {
		return nil, s.diagnose(err)
	}
	return r.finish(ctx)
}

// A run is one sealed process, from its descriptors to its result.
type run struct {
	s    *Sandbox
	spec *Spec
	plan Plan
	slot int

	program  *compiled
	linked   *linked
	fds      []int // to close at the end
	control  *os.File
	death    int // the write end: closing it ends everything
	pid      int
	pidfd    int
	reaped   bool
	scratch  int // descriptor of WorkDir
	listener []int
	group    *cgroup
	out, err *pipe
	egress   *egress.Server
	layers   []Layer
	limits   string
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
	if r.control != nil {
		r.control.Close()
	}
	for _, p := range []*pipe{r.out, r.err} {
		if p != nil {
			p.close()
		}
	}
	if r.linked != nil {
		r.linked.free()
	}
	r.group.remove()
}

func (r *run) kill() { unix.PidfdSendSignal(r.pidfd, unix.SIGKILL, nil, 0) }

// wait returns when PID 1 is dead, and with it every process of the namespace.
func (r *run) wait() unix.WaitStatus {
	var st unix.WaitStatus
	for {
		_, err := unix.Wait4(r.pid, &st, unix.WALL, nil)
		if err != unix.EINTR {
			r.reaped = true
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
	if err != nil {
		return err
	}
	if r.linked, err = link(r.program.Program, runtime.GOARCH, r.bindings(child)); err != nil {
		return err
	}
	if r.group, err = r.s.cgroups.make(r.plan.Policy.Limits); err != nil {
		return &SetupError{Row: -1, Layer: "limits", Call: "make a cgroup", Err: err}
	}
	r.started = time.Now()
	r.pid, r.pidfd, err = start(r.linked, r.program.Clone)
	for _, fd := range child {
		unix.Close(fd)
	}
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
	if err := r.receive(); err != nil {
		return r.rowError(err)
	}
	hello := make([]byte, pid1.HelloSize)
	if _, err := io.ReadFull(r.control, hello); err != nil {
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
		return &SetupError{Row: -1, Layer: "limits", Call: "join a cgroup", Err: err}
	}
	return r.observe(hello)
}

// descriptors makes what the child gets, by symbol.
func (r *run) descriptors() (child map[string]int, err error) {
	child = map[string]int{}
	defer func() {
		if err != nil {
			for _, fd := range child {
				unix.Close(fd)
			}
			err = fmt.Errorf("make descriptors for a sealed process: %w", err)
		}
	}()
	give := func(name string, fd int) error {
		if fd >= minFD {
			child[name] = fd
			return nil
		}
		up, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, minFD)
		unix.Close(fd)
		if err == nil {
			child[name] = up
		}
		return err
	}
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return child, err
	}
	unix.SetNonblock(pair[0], true)
	r.control = os.NewFile(uintptr(pair[0]), "control")
	tv := unix.NsecToTimeval(int64(setupTimeout))
	unix.SetsockoptTimeval(pair[1], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv)
	if err := give("control", pair[1]); err != nil {
		return child, err
	}
	var death [2]int
	if err := unix.Pipe2(death[:], unix.O_CLOEXEC); err != nil {
		return child, err
	}
	r.death = r.keep(death[1])
	if err := give("death", death[0]); err != nil {
		return child, err
	}
	stdin, err := r.stdin()
	if err == nil {
		err = give("stdin", stdin)
	}
	if err != nil {
		return child, err
	}
	for name, at := range map[string]**pipe{"stdout": &r.out, "stderr": &r.err} {
		p, w, err := newPipe(r.plan.Policy.Limits.Output)
		if err != nil {
			return child, err
		}
		*at = p
		if err := give(name, w); err != nil {
			return child, err
		}
	}
	image, err := unix.FcntlInt(uintptr(r.s.image), unix.F_DUPFD_CLOEXEC, minFD)
	if err == nil {
		child["image"] = image
	}
	return child, err
}

// stdin is a file in memory, so that a process that doesn't read doesn't block.
func (r *run) stdin() (int, error) {
	if r.spec.Stdin == nil {
		return unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		return -1, err
	}
	f := os.NewFile(uintptr(fd), "stdin")
	defer f.Close()
	if _, err := io.Copy(f, r.spec.Stdin); err != nil {
		return -1, err
	}
	// Opened again: read-only, at the start.
	return unix.Open("/proc/self/fd/"+strconv.Itoa(fd), unix.O_RDONLY|unix.O_CLOEXEC, 0)
}

func (r *run) bindings(child map[string]int) bindings {
	b := bindings{
		numbers: map[string]uint64{},
		bytes:   map[string][]byte{"byte": make([]byte, 8)},
		vectors: map[string][]string{
			"argv": append([]string{"eval-init"}, sealedStrings(r.spec.Args)...),
			"env":  sealedStrings(environment(r.spec)),
		},
	}
	for name, fd := range child {
		b.numbers[name] = uint64(fd)
	}
	for i, m := range r.spec.Mounts {
		if m.Link == "" {
			b.bytes[fmt.Sprintf("input/%s", m.Digest)] = append([]byte(m.Source), 0)
			b.bytes["stat/"+strconv.Itoa(i)] = make([]byte, statxSize)
		}
	}
	if r.plan.Facts.Variant == VariantUser {
		for name, id := range map[string]int{"uid_map": os.Geteuid(), "gid_map": os.Getegid()} {
			line := fmt.Sprintf("%d %d 1\n", UID, id)
			b.bytes[name] = []byte(line)
			b.numbers[name+"_size"] = uint64(len(line))
		}
	}
	return b
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
	_, err := r.control.Write([]byte{'m'})
	return err
}

// receive takes the descriptors that the child passes out.
func (r *run) receive() error {
	want := 1 + len(r.plan.ports())
	conn, err := r.control.SyscallConn()
	if err != nil {
		return err
	}
	r.control.SetReadDeadline(time.Now().Add(setupTimeout))
	defer r.control.SetReadDeadline(time.Time{})
	b, oob := make([]byte, 1), make([]byte, unix.CmsgSpace(4*want))
	var n, oobn int
	var recvErr error
	if err := conn.Read(func(fd uintptr) bool {
		n, oobn, _, _, recvErr = unix.Recvmsg(int(fd), b, oob, unix.MSG_CMSG_CLOEXEC)
		return recvErr != unix.EAGAIN && recvErr != unix.EINTR
	}); err != nil {
		return err
	}
	if recvErr != nil || n == 0 {
		return errors.Join(recvErr, io.EOF)
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil || len(msgs) != 1 {
		return fmt.Errorf("no descriptors from the child: %w", err)
	}
	fds, err := unix.ParseUnixRights(&msgs[0])
	for _, fd := range fds {
		r.keep(fd)
	}
	if err != nil || len(fds) != want {
		return fmt.Errorf("%d descriptors from the child, not %d", len(fds), want)
	}
	r.scratch, r.listener = fds[0], fds[1:]
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
		return err
	}
	var setup *SetupError
	if errors.As(cause, &setup) {
		return cause
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
	if _, err := r.control.Write([]byte{pid1.Go}); err != nil {
		return nil, &SetupError{Row: -1, Layer: "reap", Call: "say go", Err: err}
	}
	var limits []string
	wall := time.AfterFunc(r.plan.Policy.Limits.Wall-time.Since(r.started), r.kill)
	stop := context.AfterFunc(ctx, r.kill)
	msg := make([]byte, pid1.EndSize)
	_, endErr := io.ReadFull(r.control, msg)
	if !wall.Stop() && endErr != nil {
		limits = append(limits, "wall")
	}
	stop()
	st := r.wait()
	res := &Result{Wall: time.Since(r.started), Limits: limits}
	res.Stdout, res.Stderr = r.out.wait(), r.err.wait()
	if r.egress != nil {
		res.Egress = r.egress.Close()
		r.egress = nil
	}
	if err := ctx.Err(); err != nil && endErr != nil {
		return nil, context.Cause(ctx)
	}
	res.Limits = append(res.Limits, r.group.hit()...)
	switch end, err := pid1.DecodeEnd(msg); {
	case endErr == nil && err != nil:
		return nil, &SetupError{Row: -1, Layer: "reap", Call: "read PID 1's report", Err: err}
	case endErr == nil && end.ExecErrno != 0:
		return nil, &ExecError{Path: sealedStrings(r.spec.Args)[0], Err: unix.Errno(end.ExecErrno)}
	case endErr == nil:
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
	lns := make([]net.Listener, len(r.listener))
	for i, fd := range r.listener {
		var err error
		if lns[i], err = listenerOf(fd); err != nil {
			return &SetupError{Row: -1, Layer: "egress", Call: "take over a listener", Err: err}
		}
	}
	if r.plan.Listener || len(r.plan.Policy.Network) > 0 {
		go r.egress.ServeProxy(context.Background(), lns[0])
		lns = lns[1:]
	}
	for i, f := range r.plan.Policy.Forward {
		go r.egress.ServeForward(context.Background(), lns[i], f)
	}
	return nil
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

// statxSize is the size of a struct statx.
const statxSize = 256

// A sourceStat is what a mount's source is, seen from out here.
type sourceStat struct {
	mount int
	path  string
	st    unix.Stat_t
}

type sourceStats []sourceStat

func statSources(mounts []graph.Mount) (sourceStats, error) {
	out := make(sourceStats, 0, len(mounts))
	for i, m := range mounts {
		if m.Link != "" {
			continue
		}
		s := sourceStat{mount: i, path: m.Source}
		if err := unix.Lstat(m.Source, &s.st); err != nil {
			return nil, fmt.Errorf("mount %s: %w", m.Path, &os.PathError{Op: "lstat", Path: m.Source, Err: err})
		}
		want := uint32(unix.S_IFREG)
		if m.Tree != nil {
			want = unix.S_IFDIR
		}
		if s.st.Mode&unix.S_IFMT != want {
			return nil, fmt.Errorf("mount %s: %s is no longer what it was", m.Path, m.Source)
		}
		out = append(out, s)
	}
	return out, nil
}

// check compares what the child bound with what was meant: between the two, a
// link could have been put on the way.
func (ss sourceStats) check(l *linked) error {
	for _, s := range ss {
		b := l.bytes("stat/"+strconv.Itoa(s.mount), statxSize)
		ino := leUint64(b[32:])
		dev := unix.Mkdev(leUint32(b[136:]), leUint32(b[140:]))
		if ino != s.st.Ino || dev != uint64(s.st.Dev) {
			return &SetupError{Row: -1, Layer: "mount", Call: "bind " + s.path, Err: errors.New("another file was there when it was bound")}
		}
	}
	return nil
}

// A pipe takes in what the process writes, up to a limit; it reads on beyond
// it, so that a loud process isn't stopped by a full pipe but by its own end.
type pipe struct {
	file *os.File
	done chan struct{}
	buf  bytes.Buffer
	n    int64
}

func newPipe(limit int64) (p *pipe, write int, err error) {
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC); err != nil {
		return nil, -1, err
	}
	unix.SetNonblock(fds[0], true)
	p = &pipe{file: os.NewFile(uintptr(fds[0]), "pipe"), done: make(chan struct{})}
	go func() {
		defer close(p.done)
		n, _ := io.Copy(&p.buf, io.LimitReader(p.file, limit))
		more, _ := io.Copy(io.Discard, p.file)
		p.n = n + more
	}()
	return p, fds[1], nil
}

// wait returns when all writers are gone, which is when the namespace is dead.
func (p *pipe) wait() Stream {
	<-p.done
	return Stream{Data: p.buf.Bytes(), Total: p.n}
}

func (p *pipe) close() { p.file.Close() }
