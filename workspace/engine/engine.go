package engine

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// Sources reads source files.
type Sources interface {
	Digest(graph.Label) (cas.Digest, error)
	Open(graph.Label) (io.ReadCloser, error)
	// Executable says whether the file's owner may execute it.
	Executable(graph.Label) (bool, error)
}

// Options are an Engine's parts.
type Options struct {
	Store     *cas.Store
	Sources   Sources
	State     string // folder for slots; of this workspace alone
	Out       string // eval-out
	Jobs      int    // actions at once; 0: as many as there are cores
	KeepGoing bool
	Now       func() time.Time
	Print     func(label graph.Label, msg string) // print() of running actions, may be nil
	Event     func(Event)                         // called by one goroutine at a time, may be nil

	Runner Runner // nil: no process can run here
	Tools  Tools  // nil: no tool can be found here
	// Own finds a program that comes with the harness; its Path doesn't count.
	// Nil: there are none.
	Own   func(name string) (graph.Mount, error)
	Locks Locks // nil: no tool is locked
	// Recorded stands for this machine when what ran elsewhere is verified; tools
	// are not looked for then. nil: this machine.
	Recorded *Recorded
	// DrawLock opens the draws.lock of a label's package; it is asked once a build
	// and package. nil: nothing can be drawn here.
	DrawLock func(owner graph.Label) (*draws.Lock, error)
	Run      func() (*Run, error) // the process as one that draws
	Consent  Consent
	// Watch watches the machine while a rep runs: stop says how it stood still or
	// slept, "" if it didn't. thrashed says that the rep ran into its memory limit:
	// what the machine's memory suffered may be its own doing. nil: not watched.
	Watch func() (stop func(thrashed bool) string)
	Sleep func(context.Context, time.Duration) error // nil: real time

	Remote   Remote // nil: none
	Upload   Upload
	Download Download

	// CheckDeterminism runs every pure action of the requested targets twice,
	// whatever is stored, and compares.
	CheckDeterminism bool
	// VerifySeal judges the record of the seal of what a spec describes; Verify
	// calls it, may be nil. The spec's mounts have no sources.
	VerifySeal func(record []byte, spec sandbox.Spec) error
}

// An Engine serves one build: it remembers slots as they were before it.
type Engine struct {
	o     Options
	slots *slots
}

// New returns an Engine.
func New(o Options) *Engine {
	if o.Jobs <= 0 {
		o.Jobs = runtime.GOMAXPROCS(0)
	}
	if o.Event == nil {
		o.Event = func(Event) {}
	}
	if o.Watch == nil {
		o.Watch = func() func(bool) string { return func(bool) string { return "" } }
	}
	if o.Sleep == nil {
		o.Sleep = sleep
	}
	return &Engine{o: o, slots: &slots{dir: o.State}}
}

// Status says how an action came by its result.
type Status string

// The statuses of actions.
const (
	Ran  Status = "ran"
	Disk Status = "disk"
	// Remotely: another machine ran it, and a remote cache had it.
	Remotely Status = "remote"
	Failed   Status = "failed"
	Skipped  Status = "skipped" // an input failed, or the build stopped before
	Stale    Status = "stale"   // plan only: it would run
)

// An Event tells of one action that came to an end.
type Event struct {
	Action *graph.Action
	Key    graph.Key
	Draw   draws.ID // which draw it is; zero if it is none, or not yet known
	Status Status
	Why    string // of a run: what changed
	Err    error
	Start  time.Time
	Wall   time.Duration
	Took   time.Duration // of a function that ran: without looking up and storing; else 0
	Worker int
	USD    *float64 // what a draw cost, as it reported; nil: unknown, or no draw
	Done   int      // actions that have ended
	Total  int
}

// A Problem is why an action failed.
type Problem struct {
	Action *graph.Action
	Err    error
	Infra  bool // ours or the machine's fault, not the user's
}

// TargetResult is what became of one requested target.
type TargetResult struct {
	Target *starlark.Target
	Status Status // Ran: something of it ran; Remotely: on another machine; Disk: nothing had to; Failed; Skipped; Stale
	// Scorecard is the target's scorecard and Digest its digest; nil and zero
	// if it has none or it was not made.
	Scorecard []byte
	Digest    cas.Digest
	// Before is what the scorecard was in the last build here, nil if that was
	// the same or is lost, and Cause what changed since. Of a Build only.
	Before  []byte
	Cause   string
	Scored  bool // the action of the scorecard ran
	Outputs int

	read func(path string) ([]byte, error)
}

// Output reads one of the target's outputs as this build or plan has it: of a
// plan, what is in the store already.
func (r TargetResult) Output(path string) ([]byte, error) { return r.read(path) }

// A Report is what a build or a plan did.
type Report struct {
	Targets  []TargetResult
	Problems []Problem
	Stale    []StaleAction // plan only
	Actions  int           // needed by the targets
	Ran      int
	Disk     int
	Remote   int
	Failed   int
	Skipped  int
	// Unverifiable counts, for Verify, seals whose records are of versions that
	// this program doesn't compile.
	Unverifiable int
	Restored     int // outputs written to eval-out that no action of this build made

	Drawn int  // of Ran: reps
	Spent Cost // by them
	Saved Cost // by reps that were had before
}

// A StaleAction is one that plan found would run.
type StaleAction struct {
	Action *graph.Action
	Key    graph.Key // zero if not Sure
	Why    string
	// Sure is false if it is only known that an input will be made anew: it
	// may come out the same.
	Sure bool
	USD  *float64 // of a draw: what it would cost; nil: not known
}

// ErrInterrupted is returned with the report of what was done.
var ErrInterrupted = errors.New("interrupted")

// Build makes the targets' files, and copies them to the output folder.
// Failures of actions are in the report; the error is ErrInterrupted, or a
// fault that stopped everything.
func (e *Engine) Build(ctx context.Context, targets []*starlark.Target) (*Report, error) {
	b := e.newBuild(targets, false)
	var err error
	for {
		err = b.run(ctx)
		// Before anybody sees a number: a look that can't be kept is none.
		if lerr := b.takeLooks(); lerr != nil {
			b.unseen, err = true, cmp.Or(err, lerr)
		}
		if err != nil {
			break
		}
		// An output found damaged while it is copied is made again, and copied
		// again.
		var again []*node
		again, err = b.export(ctx)
		if err != nil || len(again) == 0 || b.stopping {
			break
		}
		if b.remake(again) {
			err = fmt.Errorf("write %s: the store damages it each time that it is made", again[0].action.Outputs[0].File.Slash())
			break
		}
	}
	rep := b.report()
	for i := range rep.Targets {
		b.change(&rep.Targets[i])
	}
	if serr := b.saveSlots(); serr != nil && err == nil {
		err = serr
	}
	return rep, err
}

// Plan finds out what Build would run. It stores nothing; a damaged blob that it
// meets goes to the store's quarantine, as always.
func (e *Engine) Plan(ctx context.Context, targets []*starlark.Target) (*Report, error) {
	b := e.newBuild(targets, true)
	err := b.run(ctx)
	return b.report(), err
}

func (b *build) report() *Report {
	r := &Report{Actions: len(b.nodes), Problems: b.problems, Restored: b.restored}
	for _, n := range b.nodes {
		if n.draw != nil && n.state == done && !n.action.Terms.Withdrawn {
			if n.ran {
				r.Drawn++
				r.Spent.add(n)
			} else {
				r.Saved.add(n)
			}
		}
		switch n.status() {
		case Ran:
			r.Ran++
		case Disk:
			r.Disk++
		case Remotely:
			r.Remote++
		case Failed:
			r.Failed++
		case Skipped:
			r.Skipped++
		case Stale:
			r.Stale = append(r.Stale, b.staleAction(n))
		}
	}
	for _, t := range b.targets {
		r.Targets = append(r.Targets, b.targetResult(t))
	}
	return r
}

func (b *build) staleAction(n *node) StaleAction {
	s := StaleAction{Action: n.action, Key: n.key, Why: n.why, Sure: n.sure}
	if n.action.Sample != nil {
		if usd, known := b.expect(n); known {
			s.USD = &usd
		}
	}
	return s
}

func (b *build) targetResult(t *starlark.Target) TargetResult {
	res := TargetResult{Target: t, Status: Disk}
	rank := map[Status]int{Disk: 0, Remotely: 1, Ran: 2, Stale: 3, Skipped: 4, Failed: 5}
	for _, n := range b.needs[t] {
		if s := n.status(); rank[s] > rank[res.Status] {
			res.Status = s
		}
	}
	res.Outputs = len(shown(t))
	res.read = func(path string) ([]byte, error) {
		for _, x := range shown(t) {
			n := b.byAction[x.File.Action]
			if x.Path == path && n != nil && n.state == done && !n.planned {
				return starlark.ReadBlob(b.blob(x.File, n.outputs[x.File.Index].digest))
			}
		}
		return nil, fmt.Errorf("read %s of %s: it is not made", path, t.Label)
	}
	if f := t.Result.Scorecard; f != nil && !b.unseen {
		n := b.byAction[f.Action]
		if n != nil && n.state == done {
			res.Digest, res.Scored = n.outputs[f.Index].digest, n.ran
			res.Scorecard, _ = starlark.ReadBlob(b.blob(f, res.Digest)) // nil if damage came between: the next build tells
		}
	}
	return res
}

func (e *Engine) sourceDigest(f *graph.File) (cas.Digest, error) {
	d, err := e.o.Sources.Digest(f.Label)
	if err != nil {
		return d, fmt.Errorf("source %s: %w", f.Slash(), err)
	}
	return d, nil
}
