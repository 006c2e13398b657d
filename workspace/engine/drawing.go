package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
)

// How a draw is made: an intent in the lock, the process, its capture in the
// store, the draw in the lock. Killed at any point, what the lock or the store
// has is found by the next build; what neither has was never had.

// A Run is the process that draws, for the lines of locks.
type Run struct {
	ID    string
	Alive func(id string) bool // says so of any run
}

// maxAttempts is how often a rep is begun when what fails is the machine or the
// network.
const maxAttempts = 3

// backOff is the wait before the second attempt; it doubles.
const backOff = 2 * time.Second

// draw makes the draw of a node that nobody had when it was checked.
func (b *build) draw(ctx context.Context, n *node) (out outcome) {
	d := n.draw
	defer n.begin() // whatever happens, the other of its pair need not wait longer
	if d.after != nil {
		select {
		case <-d.after.begun:
		case <-ctx.Done():
			return outcome{err: ctx.Err()}
		}
	}
	unlock, err := b.o.Store.Lock(ctx, cas.Digest(d.id.Key))
	if err != nil {
		return outcome{err: err, infra: true}
	}
	defer unlock()
	// Only the store may have it: a process was killed before it wrote its line,
	// or another workspace with the same rep shares the store.
	found, err := b.lookupDraw(ctx, n, true)
	if err == nil {
		return found.hit(n)
	} else if !isMiss(err) {
		return drawError(err)
	}
	if lost, err := b.bring(ctx, n); err != nil { // before it is begun: nothing is abandoned
		return outcome{err: err, infra: true, damaged: lost}
	}
	line, err := b.intend(n)
	var drawn *draws.DrawnError
	if errors.As(err, &drawn) { // by another process, since the check
		if found, err = b.lookupDraw(ctx, n, false); err != nil {
			return drawError(err)
		}
		return found.hit(n)
	}
	if err != nil {
		return intentError(err)
	}
	n.begin()
	return b.attempts(ctx, n, line)
}

// begin tells the other of the pair that this one has begun.
func (n *node) begin() { n.draw.once.Do(func() { close(n.draw.begun) }) }

// intend writes the node's intent, after what binds its scoring.
func (b *build) intend(n *node) (draws.Line, error) {
	d, owner := n.draw, n.action.Owner
	run, err := b.o.Run()
	if err != nil {
		return draws.Line{}, err
	}
	if err := b.recoverLock(d.lock, run); err != nil {
		return draws.Line{}, err
	}
	if err := b.bind(n); err != nil {
		return draws.Line{}, err
	}
	intent := draws.NewIntent(owner, d.id, run.ID)
	_, err = d.lock.Append(intent)
	var open *draws.OpenError
	if errors.As(err, &open) && !run.Alive(open.Intent.Run) { // it died since
		if _, err = d.lock.Recover(run.ID, run.Alive); err == nil {
			_, err = d.lock.Append(intent)
		}
	}
	return intent, err
}

// recoverLock closes, once a build, what runs that died have left open.
func (b *build) recoverLock(lock *draws.Lock, run *Run) error {
	_, err := b.recovered.get(lock, func() (struct{}, error) {
		_, err := lock.Recover(run.ID, run.Alive)
		return struct{}{}, err
	})
	return err
}

// adopt notes a capture that only the store or the remote has in the lock.
func (b *build) adopt(n *node, capture cas.Digest, from string) error {
	d := n.draw
	run, err := b.o.Run()
	if err == nil {
		err = b.recoverLock(d.lock, run)
	}
	if err == nil {
		_, err = d.lock.Append(draws.NewAdopted(n.action.Owner, d.id, run.ID, from, capture))
	}
	var open *draws.OpenError
	if errors.As(err, &open) { // whoever draws it will write its own line
		return nil
	}
	return err
}

func intentError(err error) outcome {
	var open *draws.OpenError
	if errors.As(err, &open) {
		return outcome{err: &hintedError{
			fmt.Errorf("another build is drawing it: %w", err),
			[]string{"wait for it, and build again"},
		}}
	}
	return outcome{err: err, infra: true}
}

// attempts runs the rep until it is one. Its intent is open; it is closed here
// in any case.
func (b *build) attempts(ctx context.Context, n *node, line draws.Line) outcome {
	abandon := func(out outcome, why string) outcome {
		if _, err := n.draw.lock.Append(line.Abandoned(why)); err != nil {
			return outcome{err: errors.Join(out.err, err), infra: true}
		}
		return out
	}
	for attempt := 1; ; attempt++ {
		watch := b.o.Watch()
		res, err := b.process(ctx, n)
		stalled := watch(res.Result != nil && slices.Contains(res.Limits, "memory"))
		if ctx.Err() != nil {
			return abandon(outcome{err: ctx.Err()}, "interrupted")
		}
		out, cause := infrastructure(res.Result, err, stalled)
		switch {
		case cause == "" && err != nil:
			return abandon(b.runError(n, err), err.Error())
		case cause == "":
			return b.record(ctx, n, line, res, attempt)
		case out.err != nil: // no use in trying again
			return abandon(out, cause)
		case attempt == maxAttempts:
			return abandon(outcome{
				err:   fmt.Errorf("no draw after %d attempts: %s", attempt, cause),
				infra: true,
			}, fmt.Sprintf("%d attempts: %s", attempt, cause))
		}
		wait := backOff << (attempt - 1)
		if b.o.Print != nil {
			b.o.Print(n.action.Owner, fmt.Sprintf("%s: attempt %d of %d is no draw: %s; again in %v", repName(n.action.Sample), attempt, maxAttempts, cause, wait))
		}
		if err := b.o.Sleep(ctx, wait); err != nil {
			return abandon(outcome{err: err}, "interrupted")
		}
	}
}

// infrastructure says what of a run is the machine's or the network's doing, so
// that it is no draw: the first rows of the table in docs/draws.md. cause is ""
// if nothing is; out.err is set if another attempt would come to the same.
func infrastructure(res *sandbox.Result, err error, stalled string) (out outcome, cause string) {
	var unavailable *sandbox.UnavailableError
	var store *storeError
	var setup *sandbox.SetupError
	var input *starlark.InputError
	switch {
	case errors.As(err, &input): // it is made again, or the user changed it: nothing ran
		return outcome{}, ""
	case errors.As(err, &unavailable):
		return outcome{err: err}, err.Error()
	case errors.As(err, &store):
		return outcome{err: err, infra: true}, err.Error()
	case errors.As(err, &setup):
		return outcome{}, err.Error()
	case err != nil:
		if out := runOutcome(err); out.infra {
			return outcome{}, err.Error()
		}
		return outcome{}, ""
	case stalled != "":
		return outcome{}, stalled
	}
	// A program that ended well got along without what it didn't reach.
	if n := len(res.Egress); n > 0 && (res.Status != sandbox.Status{} || len(res.Limits) > 0) {
		last := res.Egress[n-1]
		if last.Verdict == egress.Refused && (last.Reason == egress.NoName || last.Reason == egress.NoDial) {
			return outcome{}, fmt.Sprintf("%s:%d can't be reached (%s)", last.Host, last.Port, last.Reason)
		}
	}
	return outcome{}, ""
}

// record keeps what a rep came to, and says so in the lock: from there on it is
// evidence.
func (b *build) record(ctx context.Context, n *node, line draws.Line, res processed, attempts int) outcome {
	key := cas.Digest(line.Key)
	r, err := b.takeResult(cas.Capture, n.action, res, attempts)
	var digest cas.Digest
	if err == nil {
		digest, err = CaptureDigest(b.o.Store.Func(), r)
	}
	var outage error // of a remote that is required: told when the rep is safe
	if err == nil {
		var other bool
		if other, outage = b.forestalled(ctx, n, digest); other {
			return b.yield(ctx, n, line, digest, r)
		}
		err = b.o.Store.PutResult(cas.Capture, key, r)
	}
	if err != nil { // a full disk, say: it was paid for, and is lost
		if _, lerr := n.draw.lock.Append(line.Abandoned("the capture could not be stored: " + err.Error())); lerr != nil {
			err = errors.Join(err, lerr)
		}
		return outcome{err: fmt.Errorf("keep the capture: %w", err), infra: true}
	}
	if _, err := n.draw.lock.Append(line.Drawn(digest, attempts)); err != nil {
		// The store has it, and the next build finds it there.
		return outcome{err: err, infra: true}
	}
	if outage != nil {
		return outcome{err: outage, infra: true}
	}
	b.sendCapture(n, r)
	b.sendTools(n)
	outputs, err := b.outputsOf(n, r)
	if err != nil {
		return outcome{err: err, infra: true}
	}
	f := foundDraw{outputs: outputs}
	if err := b.readFacts(n, &f); err != nil {
		return outcome{err: err, infra: true}
	}
	n.draw.usd = f.usd
	return outcome{outputs: outputs}
}
