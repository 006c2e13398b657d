package sandbox

import (
	"cmp"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox/pid1"
	"github.com/evalbuild/eval/workspace/graph"
)

// platform is what a Sandbox keeps on Linux.
type platform struct {
	slots    slots
	once     sync.Once
	facts    Facts
	factsErr error
	found    bool // the fields below are set
	image    int  // a file in memory with PID 1's program
	dumpable bool // the harness was, before any child changed it
	own      namespaces
	cgroups  cgroups

	// Of Probe and tests: edit changes programs, and forgive lists layers that
	// need not be there. Never set by New.
	edit    func(*Program)
	forgive map[string]error

	mu     sync.Mutex
	cache  []*compiled // programs of the last plans
	arenas [][]byte    // memory of linked programs, for use again
}

// Facts finds out, once, what programs are compiled from here.
func (s *Sandbox) Facts() (Facts, error) {
	s.once.Do(func() { s.factsErr = s.find() })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.facts, s.factsErr
}

func (s *Sandbox) find() error {
	s.facts = Facts{Arch: runtime.GOARCH, Variant: VariantUser, Cgroup: "none", Proc: "subset"}
	if os.Geteuid() == 0 {
		s.facts.Variant = VariantRoot
	}
	if n, err := unix.PrctlRetInt(unix.PR_GET_DUMPABLE, 0, 0, 0, 0); err == nil {
		s.dumpable = n == 1
	}
	abi, _, errno := unix.RawSyscall(unix.SYS_LANDLOCK_CREATE_RULESET, 0, 0, 1)
	if errno != 0 {
		return &UnavailableError{Layer: "landlock", Err: errno, Hint: hintLandlock(errno)}
	}
	s.facts.Landlock = int(abi)
	var err error
	if s.own, err = namespacesOf("self"); err != nil {
		return fmt.Errorf("find the seal's facts: %w", err)
	}
	if s.cgroups, err = findCgroups(); err == nil {
		s.facts.Cgroup = s.cgroups.mode()
	}
	s.facts.Ceilings = ceilings()
	image, err := pid1.Image(runtime.GOARCH)
	if err != nil {
		return &UnavailableError{Layer: "reap", Err: err}
	}
	if s.image, err = memoryFile("eval-init", image); err != nil {
		return &UnavailableError{Layer: "reap", Err: err}
	}
	s.found = true
	return nil
}

// withoutCgroups gives up control groups, for good.
func (s *Sandbox) withoutCgroups() Facts {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.facts.Cgroup = "none"
	return s.facts
}

// ceilings reads the hard limits that a seal could run into.
func ceilings() string {
	var out []string
	for resource, name := range rlimitNames {
		var l unix.Rlimit
		if unix.Getrlimit(resource, &l) == nil && l.Max < 1<<40 && l.Max != 0 {
			out = append(out, fmt.Sprintf("%s=%d", name, l.Max))
		}
	}
	slices.Sort(out)
	return strings.Join(out, " ")
}

// Close removes what a Sandbox keeps between runs. Nothing may run any more.
func (s *Sandbox) Close() {
	if s.found {
		s.cgroups.close()
		unix.Close(s.image)
	}
	for _, a := range s.arenas {
		unix.Munmap(a)
	}
	s.arenas = nil
}

// memoryFile is a file in memory that nobody can change.
func memoryFile(name string, content []byte) (int, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		return -1, fmt.Errorf("memfd_create %s: %w", name, err)
	}
	if n, werr := unix.Write(fd, content); werr != nil || n < len(content) {
		err = fmt.Errorf("%d of %d bytes: %w", max(n, 0), len(content), cmp.Or[error](werr, io.ErrShortWrite))
	} else {
		_, err = unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SEAL|unix.F_SEAL_WRITE|unix.F_SEAL_SHRINK|unix.F_SEAL_GROW)
	}
	if err != nil {
		unix.Close(fd)
		return -1, fmt.Errorf("write %s: %w", name, err)
	}
	return fd, nil
}

// uid is the outer uid of a slot. Two harnesses of one root share the range:
// their processes can't see each other, and no limit counts by outer uid.
func (s *Sandbox) uid(slot int) uint32 {
	return s.o.UIDBase + uint32(os.Getpid()%256)<<8 + uint32(slot%256)
}

// restoreDumpable undoes what a child's set*id did to the memory that it
// shared with us: without it nobody could debug us, or read our /proc.
func (s *Sandbox) restoreDumpable() {
	if s.dumpable {
		unix.Prctl(unix.PR_SET_DUMPABLE, 1, 0, 0, 0)
	}
}

// A compiled is a program with its digest and the plan that it is of.
type compiled struct {
	Program
	*template
	digest string
	plan   Plan
}

// compile compiles a plan, or remembers the last ones: other inputs make another
// program, but the reps of one question share theirs, as runs of a bench do.
func (s *Sandbox) compile(p *Plan) (*compiled, error) {
	s.mu.Lock()
	for _, c := range s.cache {
		if samePlan(&c.plan, p) {
			s.mu.Unlock()
			return c, nil
		}
	}
	s.mu.Unlock()
	prog, err := Compile(*p)
	if err != nil {
		return nil, err
	}
	if s.edit != nil {
		s.edit(&prog)
	}
	t, err := layOut(prog, runtime.GOARCH)
	if err != nil {
		return nil, err
	}
	c := &compiled{prog, t, prog.Digest(), *p}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cache = append(s.cache, c)
	if len(s.cache) > 8 {
		s.cache = s.cache[1:]
	}
	return c, nil
}

// arena gives memory for a linked program, nil if there is none to use again.
func (s *Sandbox) arena() []byte {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := len(s.arenas)
	if n == 0 {
		return nil
	}
	a := s.arenas[n-1]
	s.arenas = s.arenas[:n-1]
	return a
}

// giveArena takes memory back that no child uses any more.
func (s *Sandbox) giveArena(a []byte) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.arenas) < 64 && len(a) <= 1<<20 {
		s.arenas = append(s.arenas, a)
	} else {
		unix.Munmap(a)
	}
}

// samePlan compares what programs are made of: not the sources of mounts.
func samePlan(a, b *Plan) bool {
	return a.Facts == b.Facts && a.Listener == b.Listener && a.Policy.Limits == b.Policy.Limits &&
		slices.Equal(a.Policy.Forward, b.Policy.Forward) && slices.Equal(a.Folders, b.Folders) && (len(a.Policy.Network) > 0) == (len(b.Policy.Network) > 0) &&
		slices.EqualFunc(a.Mounts, b.Mounts, func(x, y graph.Mount) bool {
			return x.Path == y.Path && x.Digest == y.Digest && x.Link == y.Link && (x.Tree == nil) == (y.Tree == nil)
		})
}

// listenerOf makes a Go listener of a listening descriptor, which stays ours.
func listenerOf(fd int) (net.Listener, error) {
	dup, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	f := os.NewFile(uintptr(dup), "listener")
	defer f.Close()
	ln, err := net.FileListener(f)
	if err != nil {
		return nil, &SetupError{Row: -1, Layer: "egress", Call: "take over a listener", Err: err}
	}
	return ln, nil
}

func leUint64(b []byte) uint64 { return binary.LittleEndian.Uint64(b) }
func leUint32(b []byte) uint32 { return binary.LittleEndian.Uint32(b) }
