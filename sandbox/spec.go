package sandbox

import (
	"fmt"
	"io"
	"os"
	"syscall"
	"time"

	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/graph"
)

// Where things are inside.
const (
	InDir   = "/in"           // inputs, at their workspace paths
	WorkDir = "/scratch/work" // the working directory, where outputs are collected
	HomeDir = "/scratch/home"
	TempDir = "/scratch/tmp" // also seen as /tmp
)

// RootMark stands in Args and Env before each path of an input
// ("\x00/in/pkg/a.txt"). Under a seal it disappears; where the root can't be
// changed (--seal=none, macOS) it becomes the folder that stands for the root.
// Programs of the host are where they always are, without a mark.
const RootMark = graph.RootMark

// A Spec is one process to run under a seal.
type Spec struct {
	Args    []string // argv; Args[0] is a path inside
	Env     []string // NAME=value, sorted; HOME TMPDIR PATH TZ LANG … and the proxy variables are added unless named
	Policy  graph.Policy
	Mounts  []graph.Mount    // sorted by Path; nothing else is inside
	Stdin   io.Reader        // nil: empty
	Control *os.File         // a socket that is the process's stdin instead; it stays the caller's
	Outputs []collect.Output // what is collected from WorkDir
	// Listener asks for an egress listener even without a network: it refuses
	// and logs. Sampled actions always have one.
	Listener bool
	// Serve is given the socket that listens where the policy forwards to
	// graph.ServerTarget, before the process begins; it owns it. Nobody here
	// keeps it: when its owner closes it, nothing answers inside.
	Serve func(*os.File) error
}

// Status is how the target ended.
type Status struct {
	Code   int `json:"code"`   // exit code; -1 if a signal ended it
	Signal int `json:"signal"` // 0 if it exited
}

// String says "exit code 3" or "signal 9 (killed)".
func (s Status) String() string {
	if s.Signal != 0 {
		return fmt.Sprintf("signal %d (%v)", s.Signal, syscall.Signal(s.Signal))
	}
	return fmt.Sprintf("exit code %d", s.Code)
}

// A Stream is the start of what the process wrote to stdout or stderr, up to
// the output limit.
type Stream struct {
	Data  []byte
	Total int64 // bytes written, also those beyond the limit
}

// Truncated says that Data is not all.
func (s Stream) Truncated() bool { return s.Total > int64(len(s.Data)) }

// A Result is what the process did: facts, no judgement.
type Result struct {
	Status         Status
	Limits         []string // that stopped it, in this order: wall, memory, processes, scratch, output
	Survivors      int      // processes that outlived the target by the grace period
	Stdout, Stderr Stream
	Outputs        []collect.File
	Missing        []string // declared outputs that it didn't make
	Rejected       []collect.Rejection
	Egress         []egress.Attempt
	Wall           time.Duration
	Record         Record
}

// An ExecError says that the target could not be started: the program isn't
// one, or something that it needs isn't inside. It is the user's.
type ExecError struct {
	Path string
	Err  error
}

func (e *ExecError) Error() string { return fmt.Sprintf("start %s: %v", e.Path, e.Err) }

func (e *ExecError) Unwrap() error { return e.Err }

// A SetupError says that the seal could not be put up: which row failed, and
// how. The target did not run.
type SetupError struct {
	Row   int    // in the program; -1: before or after it
	Layer string // mount, seccomp, …
	Call  string // as in the program, with symbolic operands
	Err   error
}

func (e *SetupError) Error() string {
	if e.Row < 0 {
		return fmt.Sprintf("set up the seal: %s: %s: %v", e.Layer, e.Call, e.Err)
	}
	return fmt.Sprintf("set up the seal: row %d (%s): %s: %v", e.Row, e.Layer, e.Call, e.Err)
}

func (e *SetupError) Unwrap() error { return e.Err }

// An UnavailableError says that this machine can't give the seal asked for.
type UnavailableError struct {
	Layer string
	Err   error
	Hint  string
}

func (e *UnavailableError) Error() string {
	return fmt.Sprintf("the seal can't be had here: %s: %v", e.Layer, e.Err)
}

func (e *UnavailableError) Unwrap() error { return e.Err }
