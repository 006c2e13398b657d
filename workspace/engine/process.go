package engine

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"slices"
	"time"

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

// runProcess runs the process of a pure action once, and makes of what it did a
// result, or an error.
func (b *build) runProcess(ctx context.Context, n *node) (cas.Result, error) {
	res, err := b.process(ctx, n)
	if err != nil {
		return cas.Result{}, err
	}
	if f := failureOf(n.action, res.Result); f != nil {
		b.locate(n, f)
		return cas.Result{}, f
	}
	return b.takeResult(cas.Pure, n.action, res, 1)
}

// process runs the action's process; what it did may be no result.
func (b *build) process(ctx context.Context, n *node) (processed, error) {
	if b.o.Runner == nil {
		return processed{}, &sandbox.UnavailableError{Layer: "reap", Err: errors.New("no process can be run on this system")}
	}
	if err := b.bindTools(n); err != nil {
		return processed{}, err
	}
	spec, err := b.spec(n, b.stageFile)
	if err != nil {
		return processed{}, err
	}
	if i := n.inputIndex(graph.StdinName); i >= 0 {
		f := n.action.Inputs[i].File
		// Whole before the process begins: damage is found at the end.
		data, err := starlark.ReadBlob(b.blob(f, n.inputs.Files[i].Digest))
		if err != nil {
			return processed{}, &starlark.InputError{File: f, Err: err}
		}
		spec.Stdin = bytes.NewReader(data)
	}
	var res processed
	if n.action.Server != nil {
		res, err = b.serve(ctx, n, spec)
	} else {
		res.Result, err = b.o.Runner.Run(ctx, spec)
	}
	if ctx.Err() != nil {
		return processed{}, ctx.Err()
	}
	if err != nil {
		return processed{}, err
	}
	return res, b.checkTools(n)
}

// The names of what a run's result has beside its outputs.
const (
	AuxSeal = "seal" // the seal's record: sandbox.DecodeRecord
	AuxRun  = "run"  // JSON of RunFacts

	// The same of its server, if it has one.
	AuxServerSeal = "server seal"
	AuxServerRun  = "server run"
)

// RunFacts are what is kept of how a process ended. No time is among them: a
// result says what, not when. The fields are in the order of their keys, which
// is that of canonical JSON.
type RunFacts struct {
	Egress    []egress.Attempt    `json:"egress"`
	Limits    []string            `json:"limits"`
	Rejected  []collect.Rejection `json:"rejected"`
	Status    sandbox.Status      `json:"status"`
	Stderr    int64               `json:"stderr_bytes"`
	Stdout    int64               `json:"stdout_bytes"`
	Survivors int                 `json:"survivors"`
}

// ExitFacts are how a process ended, as an output of its action (exit.json). The
// fields are in the order of their keys.
type ExitFacts struct {
	Attempts  int                 `json:"attempts"` // how often it was begun
	Limits    []string            `json:"limits"`   // that stopped it
	LimitsSet LimitsSet           `json:"limits_set"`
	Rejected  []collect.Rejection `json:"rejected"`
	Status    sandbox.Status      `json:"status"`
	Stderr    int64               `json:"stderr_bytes"`
	Stdout    int64               `json:"stdout_bytes"`
	Survivors int                 `json:"survivors"`
}

// LimitsSet are the limits that a process had, in bytes and milliseconds.
type LimitsSet struct {
	Memory    int64 `json:"memory"`
	Output    int64 `json:"output"`
	Processes int64 `json:"processes"`
	Scratch   int64 `json:"scratch"`
	WallMS    int64 `json:"wall_ms"`
}

func limitsSet(l graph.Limits) LimitsSet {
	return LimitsSet{l.Memory, l.Output, l.Processes, l.Scratch, l.Wall.Milliseconds()}
}

// limits are those that were set.
func (l LimitsSet) limits() graph.Limits {
	return graph.Limits{
		Memory: l.Memory, Output: l.Output, Processes: l.Processes, Scratch: l.Scratch, Wall: time.Duration(l.WallMS) * time.Millisecond,
	}
}

// takeResult makes the result of what a process did.
func (b *build) takeResult(class cas.Class, a *graph.Action, res processed, attempts int) (cas.Result, error) {
	made := res.Outputs
	if res.server != nil {
		for _, f := range res.server.Outputs {
			f.Path = graph.ServerDir + f.Path
			made = append(made, f)
		}
	}
	r, err := b.takeOutputs(class, a, made)
	if err != nil {
		return r, err
	}
	sealed := false
	for _, o := range a.Outputs {
		if !o.Fact() {
			continue
		}
		data, err := factOf(o.Format, a, res.Result, attempts)
		if err != nil {
			return r, err
		}
		f, err := b.keep(class, o.Name, data)
		if err != nil {
			return r, err
		}
		r.Files = append(r.Files, f)
		sealed = sealed || o.Format == graph.FormatSeal
	}
	for _, s := range []struct {
		data []byte
		to   *cas.Digest
	}{{res.Stdout.Data, &r.Stdout}, {res.Stderr.Data, &r.Stderr}} {
		if len(s.data) > 0 && err == nil {
			*s.to, err = b.o.Store.Put(class, s.data)
		}
	}
	if err != nil {
		return r, &storeError{err}
	}
	r.Aux = map[string][]byte{}
	if !sealed || a.Sample == nil { // else the outputs say all of it
		if err := keepRun(&r, AuxSeal, AuxRun, res.Result); err != nil {
			return r, err
		}
	}
	if res.server != nil {
		err = keepRun(&r, AuxServerSeal, AuxServerRun, res.server)
	}
	return r, err
}

// keepRun keeps beside a result what is known of a process.
func keepRun(r *cas.Result, seal, run string, res *sandbox.Result) error {
	facts := RunFacts{
		Egress: append([]egress.Attempt{}, res.Egress...), Limits: append([]string{}, res.Limits...),
		Rejected: append([]collect.Rejection{}, res.Rejected...), Status: res.Status,
		Stdout: res.Stdout.Total, Stderr: res.Stderr.Total, Survivors: res.Survivors,
	}
	b, err := json.Marshal(facts)
	r.Aux[seal], r.Aux[run] = res.Record.Encode(), b
	return err
}

// factOf is an output that the harness makes.
func factOf(format string, a *graph.Action, res *sandbox.Result, attempts int) ([]byte, error) {
	switch format {
	case graph.FormatStdout:
		return res.Stdout.Data, nil
	case graph.FormatStderr:
		return res.Stderr.Data, nil
	case graph.FormatSeal:
		return res.Record.Encode(), nil
	case graph.FormatEgress:
		var b []byte
		for _, e := range res.Egress {
			line, err := json.Marshal(e)
			if err != nil {
				return nil, err
			}
			b = append(append(b, line...), '\n')
		}
		return b, nil
	case graph.FormatExit:
		b, err := json.Marshal(ExitFacts{
			Attempts: attempts, Limits: limitsHit(res), LimitsSet: limitsSet(a.Policy.Limits),
			Rejected: append([]collect.Rejection{}, res.Rejected...), Status: res.Status,
			Stderr: res.Stderr.Total, Stdout: res.Stdout.Total, Survivors: res.Survivors,
		})
		return append(b, '\n'), err
	}
	panic("engine: no fact " + format)
}

// limitsHit are the limits that stopped a process, or cut what it said.
func limitsHit(res *sandbox.Result) []string {
	hit := append([]string{}, res.Limits...)
	large := func(r collect.Rejection) bool { return r.Code() == collect.Bytes }
	if slices.ContainsFunc(res.Rejected, large) && !slices.Contains(hit, "output") {
		hit = append(hit, "output")
	}
	return hit
}

// A storeError is the store's fault, or the disk's.
type storeError struct{ err error }

func (e *storeError) Error() string { return e.err.Error() }
func (e *storeError) Unwrap() error { return e.err }

// runOutcome sorts the error of a run that isn't of its inputs: the process's
// own fault, a seal that can't be had, or the machine's.
func runOutcome(err error) outcome {
	var failed *RunError
	var differs *DeterminismError
	var exec *sandbox.ExecError
	var unavailable *sandbox.UnavailableError
	var tool *toolError
	if errors.As(err, &tool) || errors.As(err, &failed) || errors.As(err, &differs) || errors.As(err, &exec) || errors.As(err, &unavailable) ||
		errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded) {
		return outcome{err: err}
	}
	return outcome{err: err, infra: true}
}
