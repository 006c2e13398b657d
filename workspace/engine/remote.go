package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// How a build uses a cache that others share: what it asks for, when it brings
// the bytes, and what it sends. A remote costs time at most: whatever is wrong
// with it is a miss, unless it was required.

// A Remote is such a cache; cas/remote has one. A *cas.MissError says that there
// is nothing that counts, whatever the cause. Any other error ends the build: it
// is given where the cache was required, or the store can't be written.
type Remote interface {
	// Find gives the result of key without its blobs; of folders it has Root. want
	// is the capture that is asked for; zero: any, and always of a pure one.
	Find(ctx context.Context, c cas.Class, key, want cas.Digest) (cas.Result, error)
	// Fetch brings what Find found into the store, blobs first.
	Fetch(ctx context.Context, c cas.Class, key, want cas.Digest) error
	// Keep makes sure that the blobs of what Find found are there, to be fetched
	// when they are needed, and notes it for later builds.
	Keep(ctx context.Context, c cas.Class, key cas.Digest) error
	// Send has a result uploaded, unless the remote is known to have it, and returns
	// at once. messages gives the encoded action and command of key; it is called
	// before Send returns, if at all. rival is called once, later and from elsewhere,
	// if another capture is under the key; it may be nil.
	Send(c cas.Class, key cas.Digest, r cas.Result, messages func() (action, command []byte, err error), rival func(capture cas.Digest))
}

// Upload says which results are sent.
type Upload uint8

// What can be sent.
const (
	UploadNothing  Upload = iota
	UploadCaptures        // what was drawn here
	UploadAll             // and pure results that took longer than asking for them
)

// Download says whose bytes are brought, of results that a remote has. Those of
// captures and of scorecards always are.
type Download uint8

// What can be brought.
const (
	DownloadToplevel Download = iota // outputs of requested targets, and what an action that runs here needs
	DownloadAll
	DownloadMinimal // what an action that runs here needs
)

// patience is how long a function runs before the remote is asked whether it has
// the result: longer than a round trip takes on most links. What takes less is
// neither asked for nor sent. Nearly all functions of an eval take under 5 ms.
const patience = 50 * time.Millisecond

// maxAsks is how many questions to the remote are under way at once: over a link
// of 20 ms, 10,000 take a second.
const maxAsks = 256

// askable says whether the remote may have the node's result.
func (b *build) askable(n *node) bool {
	return b.o.Remote != nil && b.again == nil && !n.unshared && !n.alone && !b.twice(n) && n.action.Kind != graph.Write && n.action.Kind != graph.History
}

// worthAsking says whether it is to be asked before the action runs.
func (b *build) worthAsking(n *node) bool {
	if !b.askable(n) {
		return false
	}
	if n.action.Kind == graph.Run {
		return true
	}
	_, slow := b.slow.Load(n.action.Fn.Digest())
	return slow
}

// ask asks the remote for what the store doesn't have.
func (b *build) ask(ctx context.Context, n *node) outcome {
	n.asking = true
	defer func() { n.asking = false }()
	if n.action.Sample != nil {
		return b.findDraw(ctx, n, !b.plan)
	}
	outputs, err := b.find(ctx, n, n.whole)
	switch {
	case err == nil:
		n.remote = true
		return outcome{hit: true, outputs: outputs}
	case isMiss(err):
		return outcome{}
	}
	return outcome{err: err, infra: true}
}

// find gives the outputs of a pure action that the remote has; with whole their
// blobs are in the store then.
func (b *build) find(ctx context.Context, n *node, whole bool) ([]output, error) {
	key := cas.Digest(n.key)
	r, err := b.o.Remote.Find(ctx, cas.Pure, key, cas.Digest{})
	if err != nil {
		return nil, err
	}
	outputs, err := b.outputsOf(n, r)
	here := carried(r)
	switch {
	case err != nil:
		return nil, err
	case b.plan: // it brings what it has to compute with, see foresee
	case whole || here:
		here, err = true, b.o.Remote.Fetch(ctx, cas.Pure, key, cas.Digest{})
	default:
		err = b.o.Remote.Keep(ctx, cas.Pure, key)
	}
	if err == nil && !b.plan && len(r.Folders) > 0 { // now what is in them is known
		if outputs, err = b.outputsOf(n, r); err == nil {
			err = b.linksStay(n, outputs)
		}
	}
	if err != nil {
		return nil, err
	}
	if !here {
		left := n.key
		n.away.Store(&left)
	}
	return outputs, nil
}

// linksStay gives a *cas.MissError for a folder with a link that leads out of it.
// No process here can have left it there, so the result is somebody's word.
func (b *build) linksStay(n *node, outputs []output) error {
	for i, o := range outputs {
		if o.tree == nil || o.tree.Hollow() {
			continue
		}
		err := o.tree.Visit(cas.Visitor{Symlink: func(p string, l cas.SymlinkNode) error {
			if linkStays(p, l.Target) {
				return nil
			}
			return &cas.MissError{Key: cas.Digest(n.key), Reason: fmt.Sprintf("output %q: the link %q to %q leads out of it", n.action.Outputs[i].Name, p, l.Target)}
		}})
		if err != nil {
			return err
		}
	}
	return nil
}

// carried says whether a result has all that it names in itself.
func carried(r cas.Result) bool {
	for _, f := range r.Files {
		if !f.Inlined() {
			return false
		}
	}
	return len(r.Folders) == 0 && r.Stdout.IsZero() && r.Stderr.IsZero()
}

// bring fetches what an action that runs needs of others' outputs. If one can't be
// had any more, its maker is to be run here.
func (b *build) bring(ctx context.Context, n *node) (lost []*graph.File, err error) {
	for _, in := range n.action.Inputs {
		if in.File.Source() {
			continue
		}
		maker := b.byAction[in.File.Action]
		if ferr := b.fetch(ctx, maker); ferr != nil && isMiss(ferr) {
			lost, err = append(lost, in.File), &starlark.InputError{File: in.File, Err: ferr}
		} else if ferr != nil {
			return nil, ferr
		}
	}
	return lost, err
}

// fetch brings the outputs of a node that were left on the remote.
func (b *build) fetch(ctx context.Context, n *node) error {
	key := n.away.Load()
	if key == nil {
		return nil
	}
	_, err := b.fetched.get(*key, func() (struct{}, error) {
		return struct{}{}, b.o.Remote.Fetch(ctx, cas.Pure, cas.Digest(*key), cas.Digest{})
	})
	return err
}

// filled gives a tree whose blobs are in the store by now.
func (b *build) filled(t *cas.Tree) (*cas.Tree, error) {
	if !t.Hollow() {
		return t, nil
	}
	return b.o.Store.FillTree(t)
}

// race asks the remote for a function's result while it runs here, once that has
// taken a while. The function's context ends if it was found. wait is to be called
// when the function has ended, and gives the outputs then.
func (b *build) race(ctx context.Context, n *node) (_ context.Context, wait func() []output) {
	if n.action.Kind != graph.Evaluate || !b.askable(n) {
		return ctx, func() []output { return nil }
	}
	running, stop := context.WithCancel(ctx)
	found := make(chan []output, 1)
	timer := time.AfterFunc(patience, func() {
		defer close(found)
		if outputs, err := b.find(running, n, true); err == nil {
			b.slow.Store(n.action.Fn.Digest(), true)
			found <- outputs
			stop()
		}
	})
	return running, func() []output {
		stop()
		if timer.Stop() {
			return nil
		}
		return <-found // it writes to the store under our lock, so it has to end
	}
}

// sendPure has a pure result sent, if it is one to send. took is how long it ran;
// zero: it was there.
func (b *build) sendPure(n *node, r cas.Result, took time.Duration) {
	if b.o.Upload != UploadAll || b.plan || !b.askable(n) || n.action.Kind != graph.Run && took < patience {
		return
	}
	inputs := n.inputs
	b.o.Remote.Send(cas.Pure, cas.Digest(n.key), r, func() (action, command []byte, err error) {
		enc, err := n.action.Encode(b.o.Store.Func(), inputs)
		return enc.Action, enc.Command, err
	}, nil)
}

// sendCapture has the node's capture sent, which its lock lists.
func (b *build) sendCapture(n *node, r cas.Result) {
	if b.o.Upload == UploadNothing || b.plan || !b.askable(n) {
		return
	}
	owner, lock, id := n.action.Owner, n.draw.lock, n.draw.id
	b.o.Remote.Send(cas.Capture, cas.Digest(id.Key), r, nil, func(capture cas.Digest) {
		b.noteSurplus(owner, lock, id, capture)
	})
}

// noteSurplus notes in the lock that the remote had another capture first.
func (b *build) noteSurplus(owner graph.Label, lock *draws.Lock, id draws.ID, capture cas.Digest) {
	run, err := b.o.Run()
	if err == nil {
		_, err = lock.Append(draws.NewSurplus(owner, id, run.ID, fromRemote, capture))
	}
	if b.o.Print != nil {
		msg := fmt.Sprintf("%v: the remote cache had another capture of it first; both are kept, draws.lock says so", id)
		if err != nil {
			msg += "; or would, but for: " + err.Error()
		}
		b.o.Print(owner, msg)
	}
}

// fetchDraw brings a capture that the store didn't have whole, and tells where it
// was: here is what the store said, nil if it has another one than the lock names.
// That stays, and what is brought is kept beside it. A plan leaves the bytes where they are.
func (b *build) fetchDraw(ctx context.Context, n *node, want cas.Digest, here error) (r cas.Result, from string, err error) {
	key := cas.Digest(n.draw.id.Key)
	if !b.plan {
		// Another process may be drawing it: what it will record is not to be
		// forestalled by what is brought now.
		unlock, err := b.o.Store.Lock(ctx, key)
		if err != nil {
			return r, fromStore, err
		}
		defer unlock()
		if r, _, err := b.o.Store.LookupCapture(key, want); err == nil && (want.IsZero() || b.isCapture(r, want)) {
			return r, fromStore, nil
		}
	}
	r, err = b.findCapture(ctx, n, want)
	if err == nil && !b.plan {
		// No other one than was looked at: there is no way back once the store has it.
		if want, err = CaptureDigest(b.o.Store.Func(), r); err == nil {
			err = b.o.Remote.Fetch(ctx, cas.Capture, key, want)
		}
		if err == nil {
			r, _, err = b.o.Store.LookupCapture(key, want)
		}
	}
	var miss *cas.MissError
	switch {
	case err == nil:
		return r, fromRemote, nil
	case errors.As(err, &miss) && here == nil: // the store has another one
		r, _, err = b.o.Store.LookupCapture(key, want)
		return r, fromStore, err
	case errors.As(err, &miss):
		return r, fromStore, fmt.Errorf("%w; %s", here, miss.Reason)
	}
	return r, fromStore, err
}

// findCapture finds a capture of the node that can be used. One that can't is a
// miss: brought into the store or noted in a lock, it would be evidence.
func (b *build) findCapture(ctx context.Context, n *node, want cas.Digest) (cas.Result, error) {
	key := cas.Digest(n.draw.id.Key)
	r, err := b.o.Remote.Find(ctx, cas.Capture, key, want)
	if err != nil {
		return r, err
	}
	outputs, err := b.outputsOf(n, r)
	for i, o := range n.action.Outputs {
		if err == nil && o.Format == graph.FormatExit && outputs[i].inlined {
			if bad := json.Unmarshal(outputs[i].contents, new(ExitFacts)); bad != nil {
				err = fmt.Errorf("%s: %w", o.Name, bad)
			}
		}
	}
	if err != nil {
		if b.o.Print != nil && n.asking { // once, and not again when it was drawn
			b.o.Print(n.action.Owner, fmt.Sprintf("%v: what the remote cache has is no capture of it, and doesn't count: %v", n.draw.id, err))
		}
		return r, &cas.MissError{Key: key, Reason: "what the remote cache has is no capture of this rep: " + err.Error(), Err: err}
	}
	return r, nil
}

// forestalled says whether somebody else's capture of the node came to the remote
// while this one was drawn. Theirs counts then, and is in the store. With an error
// that isn't known: ours is to be kept all the same, since it was paid for.
func (b *build) forestalled(ctx context.Context, n *node, ours cas.Digest) (bool, error) {
	if !b.askable(n) {
		return false, nil
	}
	r, err := b.findCapture(ctx, n, cas.Digest{})
	if err != nil {
		if isMiss(err) {
			err = nil
		}
		return false, err
	}
	theirs, err := CaptureDigest(b.o.Store.Func(), r)
	if err != nil || theirs == ours {
		return false, err
	}
	err = b.o.Remote.Fetch(ctx, cas.Capture, cas.Digest(n.draw.id.Key), theirs)
	if isMiss(err) { // gone, or not what it said: ours is the one there is
		return false, nil
	}
	return err == nil, err
}

// yield keeps what was drawn as surplus, and adopts what the remote has instead.
func (b *build) yield(ctx context.Context, n *node, line draws.Line, ours cas.Digest, r cas.Result) outcome {
	key := cas.Digest(line.Key)
	err := b.o.Store.PutResult(cas.Capture, cas.SurplusKey(key, ours), r)
	if err != nil {
		return outcome{err: fmt.Errorf("keep the surplus capture: %w", err), infra: true}
	}
	theirs, err := b.o.Store.Lookup(cas.Capture, key)
	var first cas.Digest
	if err == nil {
		first, err = CaptureDigest(b.o.Store.Func(), theirs)
	}
	if err == nil {
		_, err = n.draw.lock.Append(draws.NewAdopted(line.Label, line.ID, line.Run, fromRemote, first), draws.NewSurplus(line.Label, line.ID, line.Run, "run", ours))
	}
	if err != nil {
		return outcome{err: err, infra: true}
	}
	if b.o.Upload != UploadNothing {
		b.o.Remote.Send(cas.Capture, key, r, nil, nil)
	}
	if b.o.Print != nil {
		b.o.Print(n.action.Owner, fmt.Sprintf("%v: while it was drawn the remote cache got a capture of it, which counts; this one is kept as surplus", line.ID))
	}
	own, found := new(foundDraw), new(foundDraw)
	if own.outputs, err = b.outputsOf(n, r); err == nil {
		err = b.readFacts(n, own)
	}
	if err == nil {
		found, err = b.lookupDraw(ctx, n, false)
	}
	if err != nil {
		return drawError(err)
	}
	n.draw.usd = own.usd // it was paid for all the same
	return outcome{outputs: found.outputs}
}

// fromRemote is where a capture that was adopted came from, as locks spell it; a
// server's name is nobody else's business.
const (
	fromStore  = "store"
	fromRemote = "remote"
)

// A mount that a lock pins is shared as a result of its own: a machine that has
// another version can then draw with the locked one.
func mountResult(f cas.Func, m graph.Mount) (key cas.Digest, r cas.Result) {
	text := "eval locked mount 1\n" + m.Digest.String()
	if m.Tree == nil {
		r.Files = []cas.OutputFile{{Path: "file", Digest: m.Digest}}
	} else {
		text += "\n" + m.Tree.Message().String()
		r.Folders = []cas.OutputFolder{{Path: "folder", Tree: m.Tree.Message()}}
	}
	return f.Sum([]byte(text)), r
}

// sendTools sends what locked tools are, with which something was drawn.
func (b *build) sendTools(n *node) {
	if b.o.Upload == UploadNothing || !b.askable(n) {
		return
	}
	res, err := b.resolution(n)
	if err != nil {
		return // it was found before
	}
	for _, m := range res.mounts {
		if _, pinned := res.pinned[m.Path]; !pinned || m.Link != "" {
			continue
		}
		blob := m.Digest
		if m.Tree != nil {
			blob = m.Tree.Message()
		}
		if b.o.Store.Has(blob) == nil { // else it was locked elsewhere, and sent from there
			key, r := mountResult(b.o.Store.Func(), m)
			b.o.Remote.Send(cas.Pure, key, r, nil, nil)
		}
	}
}

// fetchMount brings a mount that neither this machine nor the store has; it says
// whether it did. The remote bounds how long that takes.
func (b *build) fetchMount(m graph.Mount) bool {
	if b.o.Remote == nil || b.again != nil || m.Link != "" {
		return false
	}
	key, want := mountResult(b.o.Store.Func(), m)
	ctx := context.Background()
	r, err := b.o.Remote.Find(ctx, cas.Pure, key, cas.Digest{})
	if err != nil {
		return false
	}
	for i := range r.Folders {
		r.Folders[i].Root = cas.Digest{}
	}
	is, err := CaptureDigest(b.o.Store.Func(), r)
	wanted, werr := CaptureDigest(b.o.Store.Func(), want)
	if err != nil || werr != nil || is != wanted { // it is somebody else's word
		return false
	}
	return b.o.Remote.Fetch(ctx, cas.Pure, key, cas.Digest{}) == nil
}
