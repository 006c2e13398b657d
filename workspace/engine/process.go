package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Runner runs processes under seals: *sandbox.Sandbox.
type Runner interface {
	Run(context.Context, sandbox.Spec) (*sandbox.Result, error)
}

// runProcess runs the process of an action once, and makes of what it did a
// result, or an error.
func (b *build) runProcess(ctx context.Context, n *node) (cas.Result, error) {
	if b.o.Runner == nil {
		return cas.Result{}, &sandbox.UnavailableError{Layer: "sandbox", Err: errors.New("not supported on this system")}
	}
	a := n.action
	spec, err := b.spec(n, b.stageFile)
	if err != nil {
		return cas.Result{}, err
	}
	res, err := b.o.Runner.Run(ctx, spec)
	if ctx.Err() != nil {
		return cas.Result{}, ctx.Err()
	}
	if err != nil {
		return cas.Result{}, err
	}
	if f := failureOf(a, res); f != nil {
		return cas.Result{}, f
	}
	return b.takeResult(a, res)
}

// A placer puts a file where a seal can bind it.
type placer func(path string, c graph.Content, blob starlark.Blob) (graph.Mount, error)

// unplaced is the placer of who only wants to know what is where.
func unplaced(path string, c graph.Content, _ starlark.Blob) (graph.Mount, error) {
	return graph.Mount{Path: path, Digest: c.Digest, Executable: c.Executable}, nil
}

// spec is what the action's process is given.
func (b *build) spec(n *node, place placer) (sandbox.Spec, error) {
	a := n.action
	mounts, err := b.stage(n, place)
	spec := sandbox.Spec{Args: a.Args, Env: a.Env, Policy: *a.Policy, Mounts: mounts, Listener: a.Sample != nil}
	for _, o := range a.Outputs {
		spec.Outputs = append(spec.Outputs, collect.Output{Path: o.Name, Folder: o.Format == graph.FormatFolder})
	}
	return spec, err
}

// stage puts every input where a seal can bind it, and lists the mounts, those
// of tools included, by path.
func (b *build) stage(n *node, place placer) ([]graph.Mount, error) {
	mounts := slices.Clone(n.inputs.Mounts)
	for i, in := range n.action.Inputs {
		c := n.inputs.Files[i]
		if c.Tree == nil {
			m, err := place("/"+in.Name, c, b.blob(in.File, c.Digest))
			if err != nil {
				return nil, stageError(in.File, err)
			}
			mounts = append(mounts, m)
			continue
		}
		inside, err := b.stageTree("/"+in.Name, c.Tree, place)
		if err != nil {
			return nil, stageError(in.File, err)
		}
		mounts = append(mounts, inside...)
	}
	slices.SortFunc(mounts, func(x, y graph.Mount) int { return strings.Compare(x.Path, y.Path) })
	return mounts, nil
}

// stageFile has the store make a plain file of the blob. An error of reading
// the blob is one of the input, any other the store's.
func (b *build) stageFile(path string, c graph.Content, blob starlark.Blob) (graph.Mount, error) {
	var read error
	source, err := b.o.Store.Stage(c.Digest, c.Executable, func() (io.ReadCloser, error) {
		var rc io.ReadCloser
		if rc, read = blob.Open(); read != nil {
			return nil, read
		}
		return noted{rc, &read}, nil
	})
	if err != nil && read != nil {
		err = read
	}
	var lost *cas.BlobError
	if err != nil && read == nil && !errors.As(err, &lost) {
		err = &storeError{err}
	}
	return graph.Mount{Path: path, Source: source, Digest: c.Digest, Executable: c.Executable}, err
}

// noted keeps the error of reading.
type noted struct {
	io.ReadCloser
	err *error
}

func (r noted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		*r.err = err
	}
	return n, err
}

func stageError(f *graph.File, err error) error {
	var store *storeError
	if errors.As(err, &store) {
		return err
	}
	return &starlark.InputError{File: f, Err: err}
}

// stageTree lists what a folder holds as mounts of its own: its files are in
// the store one by one.
func (b *build) stageTree(at string, tree *cas.Tree, place placer) ([]graph.Mount, error) {
	var out []graph.Mount
	dir := func(p string, t *cas.Tree) error {
		if d := t.Directory(); len(d.Files)+len(d.Directories)+len(d.Symlinks) > 0 {
			return nil
		}
		source := filepath.Join(b.o.State, "empty")
		if err := os.MkdirAll(source, 0o755); err != nil {
			return &storeError{err}
		}
		out = append(out, graph.Mount{Path: p, Source: source, Digest: t.Digest(), Tree: t})
		return nil
	}
	if err := dir(at, tree); err != nil {
		return nil, err
	}
	err := tree.Visit(cas.Visitor{
		Dir: func(p string, t *cas.Tree) error { return dir(at+"/"+p, t) },
		File: func(p string, f cas.FileNode) error {
			m, err := place(at+"/"+p, graph.Content{Digest: f.Digest, Executable: f.Executable}, b.stored(f.Digest))
			out = append(out, m)
			return err
		},
		Symlink: func(p string, l cas.SymlinkNode) error {
			out = append(out, graph.Mount{Path: at + "/" + p, Link: l.Target})
			return nil
		},
	})
	return out, err
}

// stored is a blob of the store.
func (b *build) stored(d cas.Digest) starlark.Blob {
	return starlark.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return b.o.Store.Open(d) }}
}

// The names of what a run's result has beside its outputs.
const (
	AuxSeal = "seal" // the seal's record: sandbox.DecodeRecord
	AuxRun  = "run"  // JSON of RunFacts
)

// RunFacts are what is kept of how a process ended. No time is among them: a
// result says what, not when. The fields are in the order of their keys, which
// is that of canonical JSON.
type RunFacts struct {
	Egress    []egress.Attempt `json:"egress"`
	Limits    []string         `json:"limits"`
	Rejected  []Rejected       `json:"rejected"`
	Status    RunStatus        `json:"status"`
	Stderr    int64            `json:"stderr_bytes"`
	Stdout    int64            `json:"stdout_bytes"`
	Survivors int              `json:"survivors"`
}

// A RunStatus is how a process ended: an exit code, or a signal.
type RunStatus struct {
	Code   int `json:"code"`
	Signal int `json:"signal"`
}

// A Rejected is an output that was not taken.
type Rejected struct {
	Path   string `json:"path"`
	Reason string `json:"reason"`
}

// takeResult makes the result of a process that did all that it was to do.
func (b *build) takeResult(a *graph.Action, res *sandbox.Result) (cas.Result, error) {
	r, err := b.takeOutputs(a, res.Outputs)
	if err != nil {
		return r, err
	}
	for _, s := range []struct {
		data []byte
		to   *cas.Digest
	}{{res.Stdout.Data, &r.Stdout}, {res.Stderr.Data, &r.Stderr}} {
		if len(s.data) > 0 && err == nil {
			*s.to, err = b.o.Store.Put(cas.Pure, s.data)
		}
	}
	if err != nil {
		return r, &storeError{err}
	}
	facts := RunFacts{
		Egress: append([]egress.Attempt{}, res.Egress...), Limits: append([]string{}, res.Limits...), Rejected: []Rejected{},
		Status: RunStatus{res.Status.Code, res.Status.Signal},
		Stdout: res.Stdout.Total, Stderr: res.Stderr.Total, Survivors: res.Survivors,
	}
	for _, x := range res.Rejected {
		facts.Rejected = append(facts.Rejected, Rejected{strings.ToValidUTF8(x.Path, "\ufffd"), x.Reason})
	}
	run, err := json.Marshal(facts)
	r.Aux = map[string][]byte{AuxSeal: res.Record.Encode(), AuxRun: run}
	return r, err
}

// A storeError is the store's fault, or the disk's.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// takeOutputs sorts what was collected by the action's outputs.
func (b *build) takeOutputs(a *graph.Action, collected []collect.File) (cas.Result, error) {
	var r cas.Result
	for _, o := range a.Outputs {
		if o.Format != graph.FormatFolder {
			for _, f := range collected {
				if f.Path == o.Name {
					r.Files = append(r.Files, cas.OutputFile{Path: f.Path, Digest: f.Digest, Executable: f.Executable})
				}
			}
			continue
		}
		tree, err := b.folder(o.Name, collected)
		if err != nil {
			return r, fmt.Errorf("output %q: %w", o.Name, err)
		}
		digest, err := b.o.Store.PutTree(cas.Pure, tree)
		if err != nil {
			return r, &storeError{err}
		}
		r.Folders = append(r.Folders, cas.OutputFolder{Path: o.Name, Tree: digest})
	}
	return r, nil
}

// folder makes the tree of an output folder.
func (b *build) folder(name string, collected []collect.File) (*cas.Tree, error) {
	tree := cas.NewTree(b.o.Store.Func())
	nothing, err := cas.NewTree(b.o.Store.Func()).Build()
	if err != nil {
		return nil, err
	}
	for _, f := range collected {
		rel, ok := strings.CutPrefix(f.Path, name+"/")
		switch {
		case !ok:
		case f.Link != "":
			tree.Symlink(rel, f.Link)
		case f.Folder:
			tree.Mount(rel, nothing)
		default:
			tree.File(rel, f.Digest, f.Executable)
		}
	}
	return tree.Build()
}

// A RunError says that a process ran, and that what it did is no result. Such
// a run is not stored.
type RunError struct {
	Status         sandbox.Status
	Limits         []string // that stopped it
	Missing        []string // outputs that were not made
	Rejected       []collect.Rejection
	Stdout, Stderr sandbox.Stream

	policy *graph.Policy
}

// failureOf judges what a process did; nil if it is a result.
func failureOf(a *graph.Action, res *sandbox.Result) *RunError {
	e := &RunError{
		Status: res.Status, Limits: res.Limits, Missing: res.Missing, Rejected: res.Rejected,
		Stdout: res.Stdout, Stderr: res.Stderr, policy: a.Policy,
	}
	if res.Status.Code != 0 || res.Status.Signal != 0 || len(e.Limits)+len(e.Missing)+len(e.Rejected) > 0 {
		return e
	}
	return nil
}

// Error says what happened, in order of what explains most, and then what the
// process had to say.
func (e *RunError) Error() string {
	var causes []string
	for _, l := range e.Limits {
		causes = append(causes, fmt.Sprintf("the %s limit of %s was reached", l, e.policy.Limits.Named(l)))
	}
	if len(e.Limits) == 0 && (e.Status.Code != 0 || e.Status.Signal != 0) {
		causes = append(causes, e.Status.String())
	}
	if len(causes) == 0 { // a process that failed makes no outputs: that says nothing more
		for _, p := range e.Missing {
			causes = append(causes, fmt.Sprintf("output %q was not made", p))
		}
	}
	for i, r := range e.Rejected {
		if i == maxNamed {
			causes = append(causes, fmt.Sprintf("and %d more", len(e.Rejected)-i))
			break
		}
		causes = append(causes, fmt.Sprintf("output %q was rejected: %s", r.Path, r.Reason))
	}
	return strings.Join(causes, "; ") + said("stderr", e.Stderr) + said("stdout", e.Stdout)
}

// Hints are what can be done about it.
func (e *RunError) Hints() []string {
	var out []string
	for _, l := range e.Limits {
		out = append(out, fmt.Sprintf("raise %s in the seal(…) of the action", l))
	}
	if len(e.Limits) == 0 && e.Status == (sandbox.Status{}) && len(e.Missing) > 0 {
		out = append(out, "outputs are made in the working directory; $(out NAME) is their path")
	}
	return out
}

const (
	maxNamed = 5   // rejected outputs
	maxSaid  = 20  // lines of a stream
	maxLine  = 400 // bytes of one
)

// said gives the last lines of a stream, indented.
func said(name string, s sandbox.Stream) string {
	text := bytes.TrimRight(s.Data, "\n")
	if len(text) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %s:", name)
	lines := bytes.Split(text, []byte("\n"))
	if n := len(lines) - maxSaid; n > 0 {
		fmt.Fprintf(&b, " (the last %d of %d lines)", maxSaid, len(lines))
		lines = lines[n:]
	}
	for _, l := range lines {
		more := ""
		if len(l) > maxLine {
			l, more = l[:maxLine], "…"
		}
		b.WriteString("\n    " + string(l) + more)
	}
	if s.Truncated() {
		fmt.Fprintf(&b, "\n    … (%d bytes were written, %d are kept)", s.Total, len(s.Data))
	}
	return b.String()
}

// runOutcome sorts the error of a run that isn't of its inputs: the process's
// own fault, a seal that can't be had, or the machine's.
func runOutcome(err error) outcome {
	var failed *RunError
	var differs *DeterminismError
	var exec *sandbox.ExecError
	var unavailable *sandbox.UnavailableError
	if errors.As(err, &failed) || errors.As(err, &differs) || errors.As(err, &exec) || errors.As(err, &unavailable) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return outcome{err: err}
	}
	return outcome{err: err, infra: true}
}

// outputsOf finds the action's outputs in a result. A *cas.MissError says which
// is not there.
func (b *build) outputsOf(n *node, r cas.Result) ([]output, error) {
	out := make([]output, len(n.action.Outputs))
	for i, o := range n.action.Outputs {
		if o.Format == graph.FormatFolder {
			for _, x := range r.Folders {
				if x.Path != o.Name {
					continue
				}
				tree, err := b.o.Store.ReadTree(x.Tree)
				if err != nil {
					return nil, err
				}
				out[i] = output{digest: tree.Digest(), tree: tree}
			}
		} else {
			for _, x := range r.Files {
				if x.Path == o.Name {
					out[i] = output{digest: x.Digest, contents: x.Contents, inlined: x.Inlined(), executable: x.Executable}
				}
			}
		}
		if out[i].digest.IsZero() {
			return nil, &cas.MissError{Key: cas.Digest(n.key), Reason: fmt.Sprintf("the result has no output %q", o.Name)}
		}
	}
	return out, nil
}

// linkStays says whether a link at p, below an output folder, leads to
// somewhere in that folder.
func linkStays(p, target string) bool {
	to := path.Join(path.Dir(p), target)
	return target != "" && !path.IsAbs(target) && to != ".." && !strings.HasPrefix(to, "../")
}
