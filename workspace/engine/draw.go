package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// What is known of draws, before any is made. A draw has its identity from what
// it is given (the rep key), is recorded in the lock of its package, and its
// capture is in the store under the rep key.

// A drawState is what a sampled node is, and what the lock and store have of it.
type drawState struct {
	lock    *draws.Lock
	id      draws.ID
	stopped []draws.ID // former identities, that a limit stopped which has been raised since
	had     bool       // the lock or the store had it before this build
	usd     *float64   // what it cost, as it reported; nil: it didn't
	after   *drawState // of its pair, to be begun first
	reserve float64    // of the budget, while it is being drawn
	begun   chan struct{}
	once    sync.Once // closes begun

	unlocked *UnlockedError // it can't be drawn: a tool of it isn't pinned
}

// findDraw looks a draw up. A nil outcome error with hit false means: it was
// never drawn. adopt says that a capture that only the store has is to be noted
// in the lock.
func (b *build) findDraw(ctx context.Context, n *node, adopt bool) outcome {
	d, err := b.identify(n)
	if err != nil {
		return outcome{err: err}
	}
	n.draw = d
	key, err := n.action.RepKey(b.o.Store.Func(), n.inputs)
	if err != nil {
		return outcome{err: err}
	}
	var found *foundDraw
	for {
		d.id = draws.ID{Key: key, Sample: d.id.Sample}
		next, err := b.lookupDraw(ctx, n, adopt)
		switch {
		case isMiss(err) && n.action.Terms.Withdrawn && found != nil:
			d.id, d.stopped = d.stopped[len(d.stopped)-1], d.stopped[:len(d.stopped)-1]
			out := found.hit(n)
			out.settled = true
			return out
		case isMiss(err) && n.action.Terms.Withdrawn:
			return b.nothingDrawn(n)
		case isMiss(err):
			n.key = d.id.Key
			return b.mustDraw(n)
		case err != nil:
			n.key = d.id.Key
			return drawError(err)
		}
		found = next
		again, err := found.raised(n)
		if err != nil {
			return outcome{err: err, infra: true}
		}
		if again == "" {
			return found.hit(n)
		}
		// The same rep under a raised limit is another draw of it: its key says
		// after which one it is.
		d.stopped = append(d.stopped, d.id)
		key = graph.Key(b.o.Store.Func().Sum([]byte("eval draw again 1\n" + key.String() + "\n" + again)))
	}
}

// identify finds out which draw the node is: its lock, block and sample.
func (b *build) identify(n *node) (*drawState, error) {
	a := n.action
	if b.o.DrawLock == nil {
		return nil, errors.New("no draws.lock can be kept here")
	}
	lock, err := b.lockOf(a.Owner)
	if err != nil {
		return nil, err
	}
	s := *a.Sample
	if a.Block != nil {
		if n.inputs.Block, err = b.blockOf(a.Block); err == nil && a.Terms.Reuse {
			err = b.reuse(n, lock)
		}
		if err != nil {
			return nil, err
		}
		s.Block = n.inputs.Block
	}
	if err := b.notLowered(a, a.Owner, lock, s); err != nil {
		return nil, err
	}
	return &drawState{lock: lock, id: draws.ID{Sample: s}, begun: make(chan struct{})}, nil
}

// lockOf opens the lock of a label's package, once a build.
func (b *build) lockOf(owner graph.Label) (*draws.Lock, error) {
	at := graph.Label{Repo: owner.Repo, Pkg: owner.Pkg}
	return b.locks.get(at, func() (*draws.Lock, error) { return b.o.DrawLock(owner) })
}

// blockOf digests what the arms of a block are given; their inputs are known by
// now, see need.
func (b *build) blockOf(block *graph.Block) (string, error) {
	return b.blocks.get(block, func() (string, error) {
		ins := make([]graph.Inputs, len(block.Arms))
		for i, a := range block.Arms {
			arm := &node{action: a}
			if err := b.takeInputs(arm); err != nil {
				return "", err
			}
			ins[i] = arm.inputs
		}
		return graph.BlockOf(b.o.Store.Func(), block.Arms, ins)
	})
}

// reuse gives the node the latest block in which its stream was drawn with the
// same inputs, if there is one.
func (b *build) reuse(n *node, lock *draws.Lock) error {
	first := *n.action
	sample := *first.Sample
	sample.Index, sample.Redraw = 1, 0
	first.Sample = &sample
	for _, block := range b.latestOf(lock, first.Owner).Blocks(sample.Stream) {
		in := n.inputs
		in.Block = block
		key, err := first.RepKey(b.o.Store.Func(), in)
		if err != nil {
			return err
		}
		if lock.State(draws.ID{Key: key, Sample: graph.Sample{Stream: sample.Stream, Index: 1, Epoch: sample.Epoch, Block: block}}).Line.Kind != "" {
			n.inputs.Block = block
			return nil
		}
	}
	return nil
}

// notLowered refuses an epoch or a redraw below what the lock has of a label:
// what was withdrawn stays withdrawn.
func (b *build) notLowered(a *graph.Action, label graph.Label, lock *draws.Lock, s graph.Sample) error {
	if a.Terms.Withdrawn {
		return nil
	}
	at := b.latestOf(lock, label)
	if e := at.Epoch(s.Stream); e > s.Epoch {
		return &hintedError{
			fmt.Errorf("epoch is %d, and draws.lock has reps of %s of epoch %d: an epoch is never lowered", s.Epoch, label, e),
			[]string{fmt.Sprintf("epoch = %d and a reason for each lower one in epochs = {…}", e)},
		}
	}
	if r := at.Redraw(s); r > s.Redraw {
		return &hintedError{
			fmt.Errorf("%s-%d of %s was withdrawn %d times by draws.lock, and %d times here: what was withdrawn stays so", s.Stream, s.Index, label, r, s.Redraw),
			[]string{fmt.Sprintf("withdraw = {\"%s-%d\": […]} with %d reasons", s.Stream, s.Index, r)},
		}
	}
	return nil
}

// A labelIn is a label by the lines of one lock: after a move, two may have lines
// of it.
type labelIn struct {
	lock  *draws.Lock
	label graph.Label
}

// latestOf looks, once a build, how far a label has gone.
func (b *build) latestOf(lock *draws.Lock, label graph.Label) draws.Latest {
	at, _ := b.latest.get(labelIn{lock, label}, func() (draws.Latest, error) { return lock.Latest(label), nil }) // no error
	return at
}

// A foundDraw is a capture with its outputs.
type foundDraw struct {
	outputs []output
	exit    ExitFacts
	usd     *float64
}

func (f *foundDraw) hit(n *node) outcome {
	n.draw.had, n.draw.usd = true, f.usd
	n.key = n.draw.id.Key
	return outcome{hit: true, outputs: f.outputs}
}

// lookupDraw looks one identity up in the lock and in the store: a *cas.MissError
// says that neither has it.
func (b *build) lookupDraw(ctx context.Context, n *node, adopt bool) (*foundDraw, error) {
	d := n.draw
	state := d.lock.State(d.id)
	locked := state.Line.Kind != ""
	lost := func(err error) error {
		if n.action.Terms.Withdrawn { // perhaps that is why
			return &cas.MissError{Key: cas.Digest(d.id.Key), Reason: "withdrawn and lost"}
		}
		return &LostError{Owner: n.action.Owner, ID: d.id, Capture: state.Line.Capture, Err: err}
	}
	r, surplus, err := b.o.Store.LookupCapture(cas.Digest(d.id.Key), state.Line.Capture)
	from := fromStore
	other := err == nil && locked && !b.isCapture(r, state.Line.Capture)
	if n.asking && (other || err != nil && goneFromStore(err) && !deleted(err)) {
		r, from, err = b.fetchDraw(ctx, n, state.Line.Capture, err)
		n.remote = from == fromRemote
	}
	switch {
	case err != nil && locked && goneFromStore(err):
		return nil, lost(err)
	case err != nil:
		return nil, err
	}
	if locked { // under the label that drew it, too: a new name is no way around
		if err := b.notLowered(n.action, state.Line.Label, d.lock, d.id.Sample); err != nil {
			return nil, err
		}
	}
	digest, err := CaptureDigest(b.o.Store.Func(), r)
	if err != nil {
		return nil, err
	}
	if locked && digest != state.Line.Capture {
		return nil, lost(&otherError{digest})
	}
	outputs, err := b.outputsOf(n, r)
	if err != nil {
		return nil, err
	}
	f := &foundDraw{outputs: outputs}
	if err := b.readFacts(n, f); err != nil {
		return nil, err
	}
	if adopt && !d.lock.Has(n.action.Owner, d.id) { // also of what another label drew
		if err := b.adopt(n, digest, from); err != nil {
			return nil, err
		}
	}
	if from == fromStore && !surplus {
		b.sendCapture(n, r)
	}
	return f, nil
}

// isCapture says whether r is the capture of this digest.
func (b *build) isCapture(r cas.Result, capture cas.Digest) bool {
	d, err := CaptureDigest(b.o.Store.Func(), r)
	return err == nil && d == capture
}

// deleted says that a person deleted the capture: it isn't fetched back.
func deleted(err error) bool {
	var tombstone *cas.TombstoneError
	return errors.As(err, &tombstone)
}

// goneFromStore says that the store was read, and hasn't the capture whole.
func goneFromStore(err error) bool {
	var miss *cas.MissError
	var incomplete *cas.IncompleteError
	var tombstone *cas.TombstoneError
	var other *otherError
	return errors.As(err, &miss) || errors.As(err, &incomplete) || errors.As(err, &tombstone) || errors.As(err, &other)
}

// CaptureDigest identifies what was kept of a draw.
func CaptureDigest(f cas.Func, r cas.Result) (cas.Digest, error) {
	b, err := r.Encode()
	return f.Sum(b), err
}

// usageName is the optional output in which a rep says what it used.
const usageName = "usage.json"

// readFacts reads how the draw ended and what it cost.
func (b *build) readFacts(n *node, f *foundDraw) error {
	for i, o := range n.action.Outputs {
		if o.Format != graph.FormatExit && o.Name != usageName {
			continue
		}
		data := f.outputs[i].contents
		if !f.outputs[i].inlined {
			var err error
			data, err = b.o.Store.Read(f.outputs[i].digest)
			var blob *cas.BlobError
			if b.plan && errors.As(err, &blob) { // on the remote, and large: what can't be known yet
				continue
			}
			if err != nil {
				return err
			}
		}
		if o.Name == usageName {
			f.usd = starlark.ReportedUSD(data)
		} else if err := json.Unmarshal(data, &f.exit); err != nil {
			return fmt.Errorf("%s of capture %s: %w", o.Name, short(cas.Digest(n.draw.id.Key)), err)
		}
	}
	return nil
}

// raised says under which limit it was stopped that is higher now, "" if it
// wasn't: "wall 120s".
func (f *foundDraw) raised(n *node) (string, error) {
	had, now := f.exit.LimitsSet.limits(), n.action.Policy.Limits
	var out []string
	for _, name := range f.exit.Limits {
		if !slices.Contains(graph.LimitNames, name) {
			return "", fmt.Errorf("a capture was stopped by the limit %q, which this version doesn't know", name)
		}
		if now.Value(name) > had.Value(name) {
			out = append(out, name+" "+had.Named(name))
		}
	}
	return strings.Join(out, ", "), nil
}

// nothingDrawn is the result of a withdrawn rep that isn't there.
func (b *build) nothingDrawn(n *node) outcome {
	empty := b.o.Store.Func().Sum(nil)
	if b.again != nil {
		b.again.put(b.o.Store.Func(), nil)
	}
	out := outcome{hit: true, settled: true, outputs: make([]output, len(n.action.Outputs))}
	for i := range out.outputs {
		out.outputs[i] = output{digest: empty, inlined: true}
	}
	n.key = n.draw.id.Key
	return out
}

// mustDraw is the outcome of a check of what was never drawn: a miss, if it can
// be drawn at all.
func (b *build) mustDraw(n *node) outcome {
	if b.again != nil { // it isn't, here
		return outcome{}
	}
	free, err := b.Unlocked(n.action)
	if err != nil {
		return outcome{err: err}
	}
	n.why = b.drawReason(n)
	if len(free) > 0 { // what is drawn must say with what: see dispatchDraws
		n.draw.unlocked = free[0]
		n.why += "; " + free[0].Error()
	}
	return outcome{}
}

// drawReason says in a few words why a rep is to be drawn.
func (b *build) drawReason(n *node) string {
	s := n.draw.id.Sample
	state := n.draw.lock.State(n.draw.id)
	switch {
	case len(n.draw.stopped) > 0:
		return "a limit that stopped it was raised"
	case state.Abandoned > 0 || len(state.Open) > 0:
		return "it was begun and never finished"
	case s.Redraw > 0:
		return "it was withdrawn"
	case s.Epoch > 1:
		return fmt.Sprintf("epoch %d has no such rep yet", s.Epoch)
	}
	r := b.slots.load(n.action.Owner)
	if last := r.record(n.action.Slot().Path); last != nil && last.Now.Key != n.key.String() && wasDraw(r.fields(&last.Now)) {
		if why := Summarize(Diff(r.fields(&last.Now), n.explained())); why != "" {
			return why
		}
	}
	return "it was never drawn"
}

// wasDraw says whether an explanation is of a draw: another thing in its slot, such
// as a scripted agent, is no reason.
func wasDraw(fields []graph.Field) bool {
	return slices.ContainsFunc(fields, func(f graph.Field) bool { return f.Name == "sample stream" })
}

// A LostError says that the lock lists a draw whose capture isn't there.
type LostError struct {
	Owner   graph.Label
	ID      draws.ID
	Capture cas.Digest
	Err     error
}

func (e *LostError) Error() string {
	return fmt.Sprintf("%v was drawn (capture %s), and the store doesn't have it: %v", e.ID, short(e.Capture), e.Err)
}

func (e *LostError) Unwrap() error { return e.Err }

// Hints are what can be done; a new draw behind the user's back is not.
func (e *LostError) Hints() []string {
	epoch := e.ID.Sample.Epoch
	where := "1. fetch it from where it is: --remote_cache=URL, --store=DIR, or `ev publish --import=FILE` of a published set"
	var other *otherError
	if errors.As(e.Err, &other) { // two branches drew it, say
		where = "1. a store keeps the capture that it has: take another store, or an empty one, with --store=DIR, and fetch it there, with --remote_cache=URL or `ev publish --import=FILE` of a published set"
	}
	return []string{
		where,
		fmt.Sprintf("2. epoch = %d, epochs = {%d: \"blob lost\"} draws all reps again, withdraw = {\"%s-%d\": [\"blob lost\"]} that one; both say so", epoch+1, epoch, e.ID.Sample.Stream, e.ID.Sample.Index),
	}
}

// An otherError says that the store has another capture than the lock.
type otherError struct{ has cas.Digest }

func (e *otherError) Error() string { return "the store has another one, " + short(e.has) }

// A hintedError is the user's, with what to do.
type hintedError struct {
	error
	hints []string
}

func (e *hintedError) Hints() []string { return e.hints }
func (e *hintedError) Unwrap() error   { return e.error }

// short is a digest that people can compare.
func short(d cas.Digest) string { return d.Func.String() + ":" + d.Hex()[:12] }

// drawError sorts an error of looking a draw up: lost evidence is the user's to
// decide about, what can't be read is the machine's.
func drawError(err error) outcome {
	var lost *LostError
	var hinted *hintedError
	return outcome{err: err, infra: !errors.As(err, &lost) && !errors.As(err, &hinted) && !goneFromStore(err)}
}
