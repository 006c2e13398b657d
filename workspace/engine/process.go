package engine

import (
	"context"
	"encoding/json"
	"errors"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
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
		return cas.Result{}, &sandbox.UnavailableError{Layer: "reap", Err: errors.New("no process can be run on this system")}
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
	if err := b.checkTools(n); err != nil {
		return cas.Result{}, err
	}
	if f := failureOf(a, res); f != nil {
		return cas.Result{}, f
	}
	return b.takeResult(a, res)
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
	Egress    []egress.Attempt    `json:"egress"`
	Limits    []string            `json:"limits"`
	Rejected  []collect.Rejection `json:"rejected"`
	Status    sandbox.Status      `json:"status"`
	Stderr    int64               `json:"stderr_bytes"`
	Stdout    int64               `json:"stdout_bytes"`
	Survivors int                 `json:"survivors"`
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
		Egress: append([]egress.Attempt{}, res.Egress...), Limits: append([]string{}, res.Limits...),
		Rejected: append([]collect.Rejection{}, res.Rejected...), Status: res.Status,
		Stdout: res.Stdout.Total, Stderr: res.Stderr.Total, Survivors: res.Survivors,
	}
	run, err := json.Marshal(facts)
	r.Aux = map[string][]byte{AuxSeal: res.Record.Encode(), AuxRun: run}
	return r, err
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
