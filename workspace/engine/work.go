package engine

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"runtime"
	"runtime/debug"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// What workers do. They read the engine's parts and the node they were given,
// and write only the fields of that node that nobody reads meanwhile.

// work checks, asks for or runs one action; a panic is handed over, so that whoever
// called the engine can say what it is: a fault of ours.
func (b *build) work(ctx context.Context, n *node, p phase) (out outcome) {
	defer func() {
		if r := recover(); r != nil {
			out = outcome{fault: fmt.Sprintf("%v\n%s", r, debug.Stack())}
		}
	}()
	switch {
	case p == toCheck:
		return b.foreseen(ctx, n, b.check(ctx, n))
	case p == toAsk:
		return b.foreseen(ctx, n, b.ask(ctx, n))
	case b.again != nil:
		return b.recompute(ctx, n)
	case n.draw != nil:
		return b.draw(ctx, n)
	}
	return b.execute(ctx, n)
}

// contentOf is what an input of a finished maker holds.
func (b *build) contentOf(f *graph.File) (graph.Content, error) {
	if f.Source() {
		d, err := b.sourceDigest(f)
		return graph.Content{Digest: d}, err
	}
	o := b.byAction[f.Action].outputs[f.Index]
	return graph.Content{Digest: o.digest, Executable: o.executable, Tree: o.tree}, nil
}

// here is where runs run.
var here = graph.PlatformOf(runtime.GOOS, runtime.GOARCH)

// takeInputs finds out what the node's inputs hold, and what its tools are.
func (b *build) takeInputs(n *node) error {
	n.inputs, n.fields = graph.Inputs{Files: make([]graph.Content, len(n.action.Inputs))}, nil
	for i, in := range n.action.Inputs {
		c, err := b.contentOf(in.File)
		switch {
		case err != nil:
		case n.action.Kind != graph.Run: // a function sees bytes only
			c.Executable = false
		case n.action.Program(in.Name):
			c.Executable = c.Tree == nil
		case in.File.Source():
			if c.Executable, err = b.o.Sources.Executable(in.File.Label); err != nil {
				err = fmt.Errorf("source %s: %w", in.File.Slash(), err)
			}
		}
		if err != nil {
			return err
		}
		n.inputs.Files[i] = c
	}
	var err error
	n.inputs.Platform = b.platform()
	n.inputs.Mounts, err = b.mounts(n)
	return err
}

// check computes the node's key and looks its result up.
func (b *build) check(ctx context.Context, n *node) outcome {
	if err := b.takeInputs(n); err != nil {
		return outcome{err: err}
	}
	if n.action.Sample != nil {
		out := b.findDraw(ctx, n, !b.plan && b.again == nil)
		var lost *LostError
		switch { // see recordedDraw
		case b.worthAsking(n) && (out.err == nil && (!out.hit || out.settled) || out.err != nil && goneFromStore(out.err)):
			return outcome{ask: true}
		case b.again == nil:
			return out
		case errors.As(out.err, &lost):
			return outcome{}
		}
		out.hit = false
		return out
	}
	enc, err := n.action.Encode(b.o.Store.Func(), n.inputs)
	if err != nil {
		return outcome{err: err}
	}
	n.key = enc.Key
	if b.again != nil { // Verify trusts no result
		return outcome{}
	}
	if n.action.Kind == graph.History {
		return b.account(n)
	}
	if b.twice(n) {
		n.why = "it is run twice and compared"
		return outcome{}
	}
	r, outputs, err := b.lookupResult(n)
	if err == nil {
		b.sendPure(n, r, 0)
		return outcome{hit: true, outputs: outputs}
	}
	if !isMiss(err) {
		return outcome{err: err, infra: true}
	}
	n.why = b.missReason(n, err)
	return outcome{ask: b.worthAsking(n)}
}

// foreseen goes on with a miss, out, if a plan has to.
func (b *build) foreseen(ctx context.Context, n *node, out outcome) outcome {
	miss := !out.hit && !out.ask && out.err == nil
	if b.plan && n.feeds && miss && n.action.Kind != graph.Run {
		return b.foresee(ctx, n)
	}
	return out
}

// foresee computes what a plan needs to know which draws there will be: the
// prompts, say. It stores nothing but the inputs that it brings. If one of them
// can't be had, its maker would run again, and what n gives isn't known.
func (b *build) foresee(ctx context.Context, n *node) outcome {
	lost, err := b.bring(ctx, n)
	if len(lost) > 0 {
		return outcome{}
	}
	if err != nil {
		return outcome{err: err, infra: true}
	}
	contents, err := b.produce(ctx, n)
	if err != nil {
		if out := b.runError(n, err); len(out.damaged) == 0 {
			return out
		}
		return outcome{}
	}
	out := outcome{hit: true, outputs: make([]output, len(contents))}
	for i, c := range contents {
		out.outputs[i] = output{digest: b.o.Store.Func().Sum(c), contents: c, inlined: true}
	}
	n.planned, n.sure = true, true
	return out
}

// explained is the node's explanation, made once; after a check only.
func (n *node) explained() []graph.Field {
	if n.fields == nil {
		n.fields = n.action.Explain(n.inputs)
	}
	return n.fields
}

// isMiss says that there is no result, and that one may be made: not so of a
// capture that draws.lock lists, whatever the store says of it.
func isMiss(err error) bool {
	var miss *cas.MissError
	var lost *LostError
	return errors.As(err, &miss) && !errors.As(err, &lost)
}

// maxInline is the size up to which an output is kept in its action's result
// and not as a blob: with outcomes of some 300 bytes a rep, that halves the
// files of a store and the time to score 10,000 reps.
const maxInline = 1024

// lookup returns the outputs of a complete result.
func (b *build) lookup(n *node) ([]output, error) {
	_, outputs, err := b.lookupResult(n)
	return outputs, err
}

func (b *build) lookupResult(n *node) (cas.Result, []output, error) {
	r, err := b.o.Store.Lookup(cas.Pure, cas.Digest(n.key))
	if err != nil {
		return r, nil, err
	}
	outputs, err := b.outputsOf(n, r)
	if err == nil {
		if err = b.linksStay(n, outputs); err != nil {
			outputs = nil
		}
	}
	var blob *cas.BlobError
	if errors.As(err, &blob) { // gone since the look-up
		err = &cas.MissError{Key: cas.Digest(n.key), Reason: "an output of its result is " + blob.Reason.String(), Err: err}
	}
	return r, outputs, err
}

// execute runs the action under the lock of its key, unless another process
// did it meanwhile, and stores the result.
func (b *build) execute(ctx context.Context, n *node) outcome {
	key := cas.Digest(n.key)
	unlock, err := b.o.Store.Lock(ctx, key)
	if err != nil {
		return outcome{err: err, infra: true}
	}
	defer unlock()
	stored, err := b.lookup(n)
	if err == nil && !b.twice(n) {
		return outcome{hit: true, outputs: stored}
	}
	if lost, err := b.bring(ctx, n); err != nil {
		return outcome{err: err, infra: true, damaged: lost}
	}
	running, found := b.race(ctx, n)
	result, outputs, err := b.perform(running, n, true)
	if outputs := found(); outputs != nil {
		n.remote = true
		return outcome{hit: true, outputs: outputs}
	}
	if err == nil && b.twice(n) {
		err = b.compare(ctx, n, outputs, stored)
	}
	if err != nil {
		return b.runError(n, err)
	}
	if stored != nil { // only where it was run twice: equal, so it stays
		return outcome{outputs: stored}
	}
	err = b.o.Store.PutResult(cas.Pure, key, result)
	var blob *cas.BlobError
	if errors.As(err, &blob) { // a damaged one of its content was in its place, and somebody has found out since
		if result, outputs, err = b.perform(ctx, n, true); err != nil {
			return b.runError(n, err)
		}
		err = b.o.Store.PutResult(cas.Pure, key, result)
	}
	if err != nil {
		return outcome{err: err, infra: true}
	}
	b.sendPure(n, result, n.took)
	return outcome{outputs: outputs}
}

// perform runs the action once. It stores large outputs if keep is set; a
// process's are in the store in any case.
func (b *build) perform(ctx context.Context, n *node, keep bool) (cas.Result, []output, error) {
	if n.action.Kind == graph.Run {
		result, err := b.runProcess(ctx, n)
		if err != nil {
			return result, nil, err
		}
		outputs, err := b.outputsOf(n, result)
		return result, outputs, err
	}
	contents, err := b.produce(ctx, n)
	if err != nil {
		return cas.Result{}, nil, err
	}
	result := cas.Result{}
	for i, c := range contents {
		file := cas.OutputFile{Path: n.action.Outputs[i].Name, Contents: c}
		if keep {
			if file, err = b.keep(cas.Pure, file.Path, c); err != nil {
				return result, nil, err
			}
		} else {
			file.Digest = b.o.Store.Func().Sum(c)
		}
		result.Files = append(result.Files, file)
	}
	outputs, err := b.outputsOf(n, result)
	return result, outputs, err
}

func (b *build) produce(ctx context.Context, n *node) ([][]byte, error) {
	if n.action.Kind == graph.Write {
		return [][]byte{n.action.Content}, nil
	}
	blobs := make([]starlark.Blob, len(n.action.Inputs))
	for i, in := range n.action.Inputs {
		blobs[i] = b.blob(in.File, n.inputs.Files[i].Digest)
	}
	var print func(string)
	if b.o.Print != nil {
		print = func(msg string) { b.o.Print(n.action.Owner, msg) }
	}
	start := b.o.Now()
	defer func() { n.took = b.o.Now().Sub(start) }()
	return starlark.Evaluate(ctx, n.action, blobs, print)
}

// runError sorts the error of a run: whose fault, and what to do.
func (b *build) runError(n *node, err error) outcome {
	var in *starlark.InputError
	if !errors.As(err, &in) {
		var store *storeError
		if errors.As(err, &store) {
			return outcome{err: err, infra: true}
		}
		if n.action.Kind == graph.Run {
			return runOutcome(err)
		}
		return outcome{err: err}
	}
	var blob *cas.BlobError
	if errors.As(err, &blob) && !in.File.Source() {
		return outcome{err: err, infra: true, damaged: []*graph.File{in.File}}
	}
	return outcome{err: err, infra: !in.File.Source()}
}

// blob opens an input; the bytes are checked against the digest in the key.
func (b *build) blob(f *graph.File, d cas.Digest) starlark.Blob {
	if !f.Source() {
		o := b.byAction[f.Action].outputs[f.Index]
		if b.again != nil {
			o.contents, o.inlined = b.again.get(d)
		}
		if o.inlined {
			return starlark.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(o.contents)), nil }}
		}
		return starlark.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return b.o.Store.Open(d) }}
	}
	return starlark.Blob{Digest: d, Open: func() (io.ReadCloser, error) {
		rc, err := b.o.Sources.Open(f.Label)
		if err != nil {
			return nil, err
		}
		if d.Size <= maxSmall {
			return readSmall(rc, d)
		}
		return &sourceReader{ReadCloser: rc, hash: d.Func.New(), want: d}, nil
	}}
}

// errChanged says that a source is not what it was when its digest was taken.
var errChanged = errors.New("the file changed while the build ran; build again")

// maxSmall is the size up to which a source is read whole: hashing it at once
// is several times cheaper than through a hash.Hash, which is 10 kB large.
const maxSmall = 256 << 10

func readSmall(rc io.ReadCloser, d cas.Digest) (io.ReadCloser, error) {
	defer rc.Close()
	buf := make([]byte, d.Size+1) // one more, to notice a file that grew
	n, err := io.ReadFull(rc, buf)
	if err != nil && err != io.EOF && err != io.ErrUnexpectedEOF {
		return nil, err
	}
	if d.Func.Sum(buf[:n]) != d {
		return nil, errChanged
	}
	return io.NopCloser(bytes.NewReader(buf[:n])), nil
}

// sourceReader fails at the end of a source that changed since it was hashed.
type sourceReader struct {
	io.ReadCloser
	hash hash.Hash
	n    int64
	want cas.Digest
}

func (r *sourceReader) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	r.hash.Write(p[:n])
	r.n += int64(n)
	if err == io.EOF && (r.n != r.want.Size || string(r.hash.Sum(nil)) != string(r.want.Hash[:])) {
		return n, errChanged
	}
	return n, err
}
