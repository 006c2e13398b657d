package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Fault is something that Verify found not to be what its inputs give.
type Fault struct {
	Label graph.Label
	Path  string // of the output, below the target's folder
	Where string // "eval-out" or "store"
	Cause string
	// Want is what the recorded bytes give, Got what is there; nil if there
	// is nothing to compare.
	Want, Got []byte
}

// recomputed holds what Verify computed: it trusts no stored result and stores
// none.
type recomputed struct {
	unverifiable atomic.Int64 // seals

	mu     sync.Mutex
	blobs  map[cas.Digest][]byte
	faults []Fault
}

func (r *recomputed) put(f cas.Func, b []byte) cas.Digest {
	d := f.Sum(b)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.blobs[d] = b
	return d
}

func (r *recomputed) get(d cas.Digest) ([]byte, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	b, ok := r.blobs[d]
	return b, ok
}

func (r *recomputed) fault(f Fault) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.faults = append(r.faults, f)
}

// Verify computes every output of the targets again from the sources alone and
// compares: with the result that the store has for the same key, and with the
// copies in the output folder. It stores nothing; a damaged blob that it meets
// is a fault, and goes to the store's quarantine.
func (e *Engine) Verify(ctx context.Context, targets []*starlark.Target) ([]Fault, *Report, error) {
	b := e.newBuild(targets, false)
	if err := b.recomputeAll(ctx); err != nil {
		return nil, b.report(), err
	}
	for _, t := range targets {
		if err := b.compareOut(t); err != nil {
			return nil, b.report(), err
		}
	}
	return b.sortedFaults(), b.verified(), nil
}

// recomputeAll runs the build without trust in any result.
func (b *build) recomputeAll(ctx context.Context) error {
	b.again = &recomputed{blobs: map[cas.Digest][]byte{}}
	return b.run(ctx)
}

func (b *build) sortedFaults() []Fault {
	faults := b.again.faults
	slices.SortFunc(faults, func(x, y Fault) int {
		if c := x.Label.Compare(y.Label); c != 0 {
			return c
		}
		return bytes.Compare([]byte(x.Path+x.Where), []byte(y.Path+y.Where))
	})
	return faults
}

// verified is the report of a build that recomputed.
func (b *build) verified() *Report {
	rep := b.report()
	rep.Unverifiable = int(b.again.unverifiable.Load())
	return rep
}

// recompute is execute for Verify.
func (b *build) recompute(ctx context.Context, n *node) outcome {
	switch {
	case n.draw != nil:
		return b.recordedDraw(ctx, n)
	case n.action.Kind == graph.History:
		out := b.account(n)
		out.hit = false // it was computed, now
		return out
	case n.action.Kind == graph.Run:
		return b.recorded(n)
	}
	contents, err := b.produce(ctx, n)
	if err != nil {
		return b.runError(n, err)
	}
	out := outcome{outputs: make([]output, len(contents))}
	for i, c := range contents {
		out.outputs[i].digest = b.again.put(b.o.Store.Func(), c)
	}
	stored, err := b.lookup(n)
	if isMiss(err) {
		var blob *cas.BlobError
		if errors.As(err, &blob) && blob.Reason == cas.Damaged {
			b.again.fault(Fault{Label: n.action.Owner, Path: n.action.Slot().Path, Where: "store", Cause: err.Error()})
		}
		return out
	}
	if err != nil {
		return outcome{err: err, infra: true}
	}
	for i, o := range stored {
		if o.digest != out.outputs[i].digest {
			got := o.contents
			if !o.inlined {
				got, _ = b.o.Store.Read(o.digest)
			}
			b.again.fault(Fault{
				Label: n.action.Owner, Path: n.action.Outputs[i].File.Path, Where: "store",
				Cause: "the stored result is not what its inputs give", Want: contents[i], Got: got,
			})
		}
	}
	return out
}

// errNotRecorded says why verify can't go on behind a process.
var errNotRecorded = errors.New("its result is not in the store, and verify runs no process; `ev build` makes it")

// recorded takes the stored result of a process for what it did, when every
// byte of it is there and right and its seal's record holds.
func (b *build) recorded(n *node) outcome {
	r, outputs, err := b.lookupResult(n)
	if isMiss(err) {
		var blob *cas.BlobError
		if errors.As(err, &blob) && blob.Reason == cas.Damaged {
			return b.storeFault(n, err)
		}
		return outcome{err: fmt.Errorf("%w (%w)", errNotRecorded, err)}
	}
	if err != nil {
		return outcome{err: err, infra: true}
	}
	return b.checkRecorded(n, r, outputs, r.Aux[AuxSeal], n.action.Policy.Limits)
}

// recordedDraw takes a capture for what a rep did, as recorded does. That a rep
// was never drawn is no fault of the numbers: there are none.
func (b *build) recordedDraw(ctx context.Context, n *node) outcome {
	out := b.findDraw(ctx, n, false)
	if out.err != nil {
		return b.storeFault(n, out.err)
	}
	if !out.hit {
		return outcome{err: errors.New("it was never drawn: there is nothing to verify")}
	}
	if !n.draw.had { // withdrawn, and not there
		return out
	}
	r, _, err := b.o.Store.LookupCapture(cas.Digest(n.key), n.draw.lock.State(n.draw.id).Line.Capture)
	if err != nil {
		return b.storeFault(n, err)
	}
	var record []byte
	exit := ExitFacts{LimitsSet: limitsSet(n.action.Policy.Limits)}
	for i, o := range n.action.Outputs {
		x := out.outputs[i]
		if o.Format != graph.FormatSeal && o.Format != graph.FormatExit {
			continue
		}
		data := x.contents
		if !x.inlined {
			if data, err = b.o.Store.Read(x.digest); err != nil {
				return b.storeFault(n, err)
			}
		}
		if o.Format == graph.FormatSeal {
			record = data
		} else if err := json.Unmarshal(data, &exit); err != nil {
			return b.storeFault(n, err)
		}
	}
	if record == nil {
		record = r.Aux[AuxSeal]
	}
	return b.checkRecorded(n, r, out.outputs, record, exit.LimitsSet.limits())
}

func (b *build) storeFault(n *node, err error) outcome {
	b.again.fault(Fault{Label: n.action.Owner, Path: n.action.Slot().Path, Where: "store", Cause: err.Error()})
	return outcome{err: err}
}

// checkRecorded reads all blobs of what a process did, and judges the record of
// its seal, which it had with these limits.
func (b *build) checkRecorded(n *node, r cas.Result, outputs []output, record []byte, limits graph.Limits) outcome {
	digests := []cas.Digest{r.Stdout, r.Stderr}
	for _, f := range r.Files {
		if !f.Inlined() {
			digests = append(digests, f.Digest)
		}
	}
	for _, o := range outputs {
		if o.tree == nil {
			continue
		}
		for _, e := range entries(o.tree) {
			digests = append(digests, e.digest) // zero of what is no file
		}
	}
	for _, d := range digests {
		if d.IsZero() {
			continue
		}
		rc, err := b.o.Store.Open(d)
		if err == nil {
			_, err = io.Copy(io.Discard, rc)
			rc.Close()
		}
		if err != nil {
			return b.storeFault(n, err)
		}
	}
	if b.o.VerifySeal != nil && !n.action.Policy.Unsealed { // which has none to hold
		spec, err := b.spec(n, unplaced)
		if err != nil {
			return outcome{err: err, infra: true}
		}
		spec.Policy.Limits = limits
		switch err := b.o.VerifySeal(record, spec); {
		case errors.Is(err, sandbox.ErrUnverifiable):
			b.again.unverifiable.Add(1)
		case err != nil:
			return b.storeFault(n, fmt.Errorf("the seal's record: %w", err))
		}
		if n.action.Server != nil {
			if out := b.checkServer(n, r.Aux[AuxServerSeal], limits); out.err != nil {
				return out
			}
		}
	}
	for i, o := range outputs {
		if o.inlined {
			b.again.put(o.digest.Func, o.contents)
			outputs[i].inlined = false
		}
	}
	return outcome{hit: true, outputs: outputs}
}

// checkServer judges the record of the seal of a server, whose run had these
// limits. Of a draw the program is
// what the record says: the key has its version only.
func (b *build) checkServer(n *node, record []byte, limits graph.Limits) outcome {
	program, err := serverOf(record, n.action.Server.Program)
	if err != nil {
		return b.storeFault(n, fmt.Errorf("the record of its world's seal: %w", err))
	}
	for _, m := range n.inputs.Mounts {
		if m.Path == "/"+graph.ServerDir+n.action.Server.Program && m.Digest != program.Digest {
			return b.storeFault(n, fmt.Errorf("its world was %s, not %s", short(program.Digest), short(m.Digest)))
		}
	}
	spec, err := b.serverSpec(n, unplaced, program)
	if err != nil {
		return outcome{err: err, infra: true}
	}
	spec.Policy.Limits = graph.ServerLimits(limits)
	switch err := b.o.VerifySeal(record, spec); {
	case errors.Is(err, sandbox.ErrUnverifiable):
		b.again.unverifiable.Add(1)
	case err != nil:
		return b.storeFault(n, fmt.Errorf("the record of its world's seal: %w", err))
	}
	return outcome{}
}

// compareOut compares a target's copies with what was recomputed.
func (b *build) compareOut(t *starlark.Target) error {
	folder := b.Folder(t.Label)
	outputs := shown(t)
	missing := 0
	var faults []Fault
	total := 0
	for _, e := range outputs {
		if n := b.byAction[e.File.Action]; n != nil && n.state != done {
			continue // reported as a problem
		}
		pieces, err := b.pieces(e)
		if err != nil {
			return err
		}
		for _, p := range pieces {
			total++
			fault := Fault{Label: t.Label, Path: p.path, Where: "eval-out"}
			err := b.comparePiece(filepath.Join(folder, filepath.FromSlash(p.path)), p, &fault)
			if errors.Is(err, os.ErrNotExist) && b.targetResult(t).Status == Failed {
				continue // it was never finished, which is a problem of its own
			}
			if errors.Is(err, os.ErrNotExist) {
				missing++
			}
			if fault.Cause != "" {
				faults = append(faults, fault)
			}
		}
		if e.File.Folder() {
			for _, p := range b.strangers(folder, e.Path, pieces) {
				faults = append(faults, Fault{Label: t.Label, Path: p, Where: "eval-out", Cause: "it is not of that output"})
			}
		}
	}
	if missing == total && missing > 0 {
		faults = []Fault{{Label: t.Label, Where: "eval-out", Cause: "nothing of it is built; run `ev build` first"}}
	}
	b.again.faults = append(b.again.faults, faults...)
	return nil
}

// comparePiece compares one copy with what it is to be, and says in fault what
// is wrong with it; the error is that of reading the copy.
func (b *build) comparePiece(dst string, p piece, fault *Fault) error {
	switch p.kind {
	case pieceFolder, pieceLink:
		fi, err := os.Lstat(dst)
		switch {
		case err != nil:
		case p.kind == pieceFolder && !fi.IsDir():
			fault.Cause = "it is no folder"
		case p.kind == pieceLink:
			if to, err := os.Readlink(dst); err != nil || to != p.link {
				fault.Cause = fmt.Sprintf("it is not the link to %q that was recorded", p.link)
			}
		}
		return missingCause(err, fault)
	}
	got, data, err := readOutput(dst, b.o.Store.Func())
	switch {
	case err != nil:
	case got == p.digest:
	default:
		fault.Cause = "it is not what the recorded bytes give"
		if fi, err := os.Lstat(dst); err == nil && cas.Stamped(fi, got) { // as build left it
			fault.Cause = "it is as an earlier build wrote it, and not what the recorded bytes give now"
		}
		fault.Got = data
		fault.Want, _ = b.again.get(p.digest)
	}
	return missingCause(err, fault)
}

func missingCause(err error, fault *Fault) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		fault.Cause = "it is missing"
	case err != nil:
		fault.Cause = err.Error()
	}
	return err
}

// keepForDiff is the size up to which a differing file is kept to show how.
const keepForDiff = 1 << 20

func readOutput(path string, f cas.Func) (cas.Digest, []byte, error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return cas.Digest{}, nil, err
	}
	if !fi.Mode().IsRegular() {
		return cas.Digest{}, nil, fmt.Errorf("it is no regular file")
	}
	file, err := os.Open(path)
	if err != nil {
		return cas.Digest{}, nil, err
	}
	defer file.Close()
	if fi.Size() > keepForDiff {
		d, err := f.SumReader(file)
		return d, nil, err
	}
	data, err := io.ReadAll(file)
	return f.Sum(data), data, err
}
