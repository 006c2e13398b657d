package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// state is where an action is; see the picture in the package doc.
type state uint8

const (
	waiting state = iota
	checking
	asking
	running
	done
	failed
	skipped
	stale
)

var stateNames = [...]string{"waiting", "checking", "asking", "running", "done", "failed", "skipped", "stale"}

func (s state) String() string { return stateNames[s] }

// legal lists the transitions there are; any other is a fault of ours.
var legal = map[state][]state{
	waiting:  {checking, skipped, stale},
	checking: {asking, running, done, failed, stale, skipped},
	asking:   {running, done, failed, stale, skipped},
	running:  {done, failed, waiting, skipped},
	done:     {waiting}, // its result turned out to be damaged
}

// build is one run of the state machine. Only the goroutine in run touches
// it; workers get a node and give back an outcome.
type build struct {
	*Engine
	plan      bool
	again     *recomputed // of Verify, else nil
	targets   []*starlark.Target
	requested map[graph.Label]bool // the targets' labels
	nodes     []*node              // in an order in which inputs come first
	byAction  map[*graph.Action]*node
	needs     map[*starlark.Target][]*node
	owned     map[graph.Label][]*node // by the target that declared the action

	ready    []*node
	active   int
	byKey    map[graph.Key]*node   // running
	parked   map[graph.Key][]*node // wait for byKey
	ended    int
	stopping bool
	problems []Problem
	restored int
	exported map[*starlark.Target]bool
	unseen   bool     // its looks could not be kept: it shows no scorecard
	resolved sync.Map // toolsKey -> *resolution

	asks    []*node  // to be asked for
	slow    sync.Map // digests of functions that a remote had a result of, when it took long here
	fetched memo[graph.Key, struct{}]

	wanted []*node // draws that nobody has; see dispatchDraws
	// unscorable are targets with a rep that can't be had: no other is drawn for
	// them.
	unscorable map[graph.Label]bool
	checks     int // being worked on, or asked for
	spending   spending
	locks      memo[graph.Label, *draws.Lock]
	blocks     memo[*graph.Block, string]
	latest     memo[labelIn, draws.Latest]
	bound      memo[boundPlace, struct{}]
	recovered  memo[*draws.Lock, struct{}]
}

// transition is the one place where a state changes.
func (b *build) transition(n *node, to state) {
	if !slices.Contains(legal[n.state], to) {
		panic(fmt.Sprintf("engine: %s: no way from %s to %s", n.action.Slot(), n.state, to))
	}
	from := n.state
	n.state = to
	switch to {
	case done:
		if n.alone { // not before: until then whoever needs its blobs is to miss them
			n.away.Store(nil)
		}
		for _, u := range n.users {
			if u.open--; u.open == 0 && u.state == waiting {
				b.ready = append(b.ready, u)
			}
		}
	case failed, skipped, stale:
		for _, u := range n.users {
			if u.state != waiting {
				continue
			}
			if to == stale {
				u.why = fmt.Sprintf("%s would be made anew", n.action.Outputs[0].File.Path)
				b.transition(u, stale)
			} else {
				b.transition(u, skipped)
			}
			b.end(u, outcome{})
		}
	case waiting:
		if from == done { // its users wait again
			for _, u := range n.users {
				u.open++
			}
			b.ended--
		}
	}
}

// maxDamage is how often one result may be made again. The second time it was
// fresh: whatever damages it will do so again.
const maxDamage = 3

// remake makes finished actions check again; their damaged blobs are gone, so
// the checks miss and they run. It reports whether one of them was damaged too
// often.
func (b *build) remake(makers []*node) (tooOften bool) {
	for _, n := range makers {
		if n.state != done { // it or something before it was reopened already
			continue
		}
		if n.damaged++; n.damaged > maxDamage {
			tooOften = true
			continue
		}
		b.reopen(n)
	}
	b.ready = slices.DeleteFunc(b.ready, func(n *node) bool { return n.open > 0 })
	return tooOften
}

// reopen takes a finished action back to the start, and those that used its
// outputs: they wait for it.
func (b *build) reopen(n *node) {
	b.transition(n, waiting)
	if n.open == 0 {
		b.ready = append(b.ready, n)
	}
	for _, u := range n.users {
		if u.state == done {
			b.reopen(u)
		}
	}
}

// outcome is what a worker found out.
type outcome struct {
	node    *node
	hit     bool // a result was there
	ask     bool // none is here: the remote is to be asked
	settled bool // a hit, but of a withdrawn rep that may have been drawn elsewhere
	outputs []output
	err     error
	infra   bool
	damaged []*graph.File // inputs to be made again
	fault   any           // a panic, to go on in the owner's goroutine
	start   time.Time
	wall    time.Duration
	worker  int
}

// A phase is what a worker does with an action.
type phase uint8

const (
	toCheck phase = iota
	toAsk
	toRun
)

// A job is one action to run or to ask for, or several to check: a check takes
// some 30 µs, of which handing a single one over was a third.
type job struct {
	nodes []*node
	phase phase
}

const maxChecks = 64

// run drives the machine until nothing is left to do.
func (b *build) run(ctx context.Context) error {
	outcomes := make(chan []outcome)
	workers := func(count int) chan job {
		jobs := make(chan job)
		for w := range count {
			go func() {
				for j := range jobs {
					outs := make([]outcome, len(j.nodes))
					for i, n := range j.nodes {
						start := b.o.Now()
						outs[i] = b.work(ctx, n, j.phase)
						outs[i].node, outs[i].start, outs[i].wall, outs[i].worker = n, start, b.o.Now().Sub(start), w
					}
					outcomes <- outs
				}
			}()
		}
		return jobs
	}
	jobs := workers(b.o.Jobs)
	defer close(jobs)
	var asks chan job // who asks waits for a network, not for a core
	if b.o.Remote != nil {
		asks = workers(maxAsks)
		defer close(asks)
	}
	var misses []*node // run before new checks: finish what was begun
	cancelled := ctx.Done()
	for {
		var next, question job
		var send, ask chan job
		if len(b.asks) > 0 && !b.stopping {
			question, ask = job{b.asks[:1:1], toAsk}, asks
		}
		switch {
		case b.stopping:
		case len(misses) > 0:
			next, send = job{misses[:1], toRun}, jobs
		case len(b.ready) == 0 && b.checks == 0 && len(b.wanted) > 0:
			if misses = b.dispatchDraws(); len(misses) > 0 || len(b.ready) > 0 {
				continue
			}
		case len(b.ready) > 0:
			n := min(maxChecks, 1+len(b.ready)/(2*b.o.Jobs))
			next, send = job{b.ready[:n:n], toCheck}, jobs
		}
		if send == nil && ask == nil && b.active == 0 {
			break
		}
		select {
		case <-cancelled:
			b.stopping, cancelled = true, nil
		case ask <- question:
			b.active++
			b.asks = b.asks[1:]
		case send <- next:
			b.active++
			if next.phase == toRun {
				misses = misses[1:]
			} else {
				b.ready = b.ready[len(next.nodes):]
				b.checks += len(next.nodes)
				for _, n := range next.nodes {
					b.transition(n, checking)
				}
			}
		case outs := <-outcomes:
			b.active--
			for _, out := range outs {
				if out.fault != nil {
					panic(out.fault)
				}
				if s := out.node.state; s == asking || s == checking && !out.ask {
					b.checks--
				}
				if n := b.settle(ctx, out); n != nil {
					misses = append(misses, n)
				}
			}
		}
	}
	for _, n := range b.nodes { // what the stop left over
		switch n.state {
		case waiting, checking, asking, running:
			b.transition(n, skipped)
			b.end(n, outcome{})
		}
	}
	if ctx.Err() != nil {
		return ErrInterrupted
	}
	return nil
}

// settle decides what follows from an outcome. It returns a node to run.
func (b *build) settle(ctx context.Context, out outcome) *node {
	n := out.node
	if n.draw != nil && n.state == running {
		b.spending.settle(n, out)
	}
	switch {
	case ctx.Err() != nil && errors.Is(out.err, ctx.Err()):
		b.transition(n, skipped)
		b.end(n, out)
	case len(out.damaged) > 0:
		b.retry(n, out)
	case out.ask:
		b.transition(n, asking)
		b.asks = append(b.asks, n)
	case out.err != nil:
		if n.action.Sample != nil && n.state != running {
			b.unscorable[n.action.Owner] = true
		}
		b.fail(n, out)
	case n.state != running && !out.hit:
		return b.miss(n, out)
	case n.state != running && n.draw == nil && b.byKey[n.key] != nil && b.again == nil:
		// Its twin has just made it, and will say so. Both end at once: the draws
		// that need them are to be known together, before one is made.
		return b.start(n)
	default:
		n.ran = n.ran || n.state == running && !out.hit
		n.setOutputs(out.outputs)
		b.spending.saw(n)
		key := n.key
		b.transition(n, done)
		b.end(n, out)
		if b.byKey[key] == n {
			b.unpark(key, out)
		}
	}
	return nil
}

// retry has the damaged inputs of n made again, and then n.
func (b *build) retry(n *node, out outcome) {
	makers := make([]*node, len(out.damaged))
	for i, f := range out.damaged {
		makers[i] = b.byAction[f.Action]
		// One that isn't done was reopened already, and a worker may have it.
		if makers[i].state == done && makers[i].away.Load() != nil {
			makers[i].alone = true
		}
	}
	if b.remake(makers) {
		b.fail(n, out)
		return
	}
	key := n.key
	twins := b.parked[key] // their inputs are files of the same content
	delete(b.byKey, key)
	delete(b.parked, key)
	for _, t := range append(twins, n) {
		b.transition(t, waiting)
		if t.open == 0 {
			b.ready = append(b.ready, t)
		}
	}
}

// miss decides about an action without a result: run it, wait for a twin with
// the same key, or (plan) note it.
func (b *build) miss(n *node, out outcome) *node {
	if b.plan {
		n.sure = true
		b.transition(n, stale)
		b.end(n, out)
		return nil
	}
	if n.draw != nil && b.again == nil {
		b.wanted = append(b.wanted, n)
		return nil
	}
	return b.start(n)
}

// start makes a node one that runs, or that waits for the one of the same key.
func (b *build) start(n *node) *node {
	b.transition(n, running)
	if b.byKey[n.key] != nil && b.again == nil { // Verify reports on each
		b.parked[n.key] = append(b.parked[n.key], n)
		return nil
	}
	b.byKey[n.key] = n
	return n
}

// unpark gives the twins of a finished action its result.
func (b *build) unpark(key graph.Key, out outcome) {
	delete(b.byKey, key)
	for _, twin := range b.parked[key] {
		if twin.draw != nil { // it finds the capture, and its own lock is to list it
			b.transition(twin, waiting)
			b.ready = append(b.ready, twin)
			continue
		}
		twin.setOutputs(out.outputs)
		b.transition(twin, done)
		b.end(twin, outcome{start: out.start, worker: out.worker})
	}
	delete(b.parked, key)
}

func (b *build) fail(n *node, out outcome) {
	b.problems = append(b.problems, Problem{n.action, out.err, out.infra})
	key := n.key
	b.transition(n, failed)
	b.end(n, out)
	if b.byKey[key] == n { // twins would fail alike
		delete(b.byKey, key)
		for _, twin := range b.parked[key] {
			b.transition(twin, failed)
			b.end(twin, out)
		}
		delete(b.parked, key)
	}
	// Without a seal, what needs no process is built all the same.
	// Nor does a draw that may not be made stop what needs none.
	var unavailable *sandbox.UnavailableError
	var denied *DeniedError
	var lost *LostError // all that is lost is to be known at once
	if out.infra || !b.o.KeepGoing && !errors.As(out.err, &unavailable) && !errors.As(out.err, &denied) && !errors.As(out.err, &lost) {
		b.stopping = true
	}
}

// end reports an action that came to its end.
func (b *build) end(n *node, out outcome) {
	b.ended++
	why := n.why
	if n.status() == Disk { // a twin or another process ran it
		why = ""
	}
	e := Event{
		Action: n.action, Key: n.key, Status: n.status(), Why: why, Err: out.err, USD: n.usd(),
		Start: out.start, Wall: out.wall, Took: n.took, Worker: out.worker, Done: b.ended, Total: len(b.nodes),
	}
	if n.draw != nil {
		e.Draw = n.draw.id
	}
	b.o.Event(e)
}
