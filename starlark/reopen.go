package starlark

import (
	"context"
	"errors"
	"fmt"
	"strings"

	sl "go.starlark.net/starlark"
)

// OpenPortable runs a portable text and returns its root, frozen. name stands in
// errors and backtraces. The text finds the names PRESENT, ABSENT, degraded,
// struct, depset, sample, json, re, math and stats; it can load nothing, and its
// top level takes at most 100,000,000 steps.
func OpenPortable(name string, text []byte) (sl.Value, error) {
	return openPortable(name, text, loadSteps)
}

func openPortable(name string, text []byte, steps uint64) (sl.Value, error) {
	if len(text) > maxPortableBytes {
		return nil, &Error{Pos: name, Msg: fmt.Sprintf("%d bytes; at most %d can be opened", len(text), maxPortableBytes)}
	}
	if line, what := badLine(text); line > 0 {
		return nil, &Error{Pos: fmt.Sprintf("%s:%d:1", name, line), Msg: what}
	}
	_, program, err := sl.SourceProgramOptions(dialect, name, text, portableNames().Has)
	if err != nil {
		return nil, wrapError(err)
	}
	thread := &sl.Thread{Name: name, Load: func(*sl.Thread, string) (sl.StringDict, error) {
		return nil, fmt.Errorf("a portable text loads nothing")
	}}
	thread.SetMaxExecutionSteps(steps)
	thread.OnMaxSteps = stepsExceeded(steps)
	globals, err := program.Init(thread, portableNames())
	if err != nil {
		return nil, wrapError(err)
	}
	for _, g := range globals.Keys() { // functions share them
		if err := freeze(globals[g]); err != nil {
			return nil, &Error{Pos: name, Msg: fmt.Sprintf("the global %s: %v", g, err)}
		}
	}
	root, ok := globals[rootName]
	if !ok {
		return nil, &Error{Pos: name, Msg: "the text defines no " + rootName}
	}
	return root, nil
}

// A CallError is why a call of CallPortable failed. Error tells all of it: where,
// what, and below it a line for each Starlark call that led there, the innermost
// last.
type CallError struct{ Err *Error }

func (e *CallError) Error() string {
	var b strings.Builder
	b.WriteString(e.Err.Error())
	for _, line := range e.Err.Stack {
		b.WriteString("\n  " + line)
	}
	return b.String()
}

// Unwrap returns the error with its parts.
func (e *CallError) Unwrap() error { return e.Err }

// CallPortable calls fn, which OpenPortable returned or its root holds. It may
// take so many steps (0 stands for those of an evaluate action) and ends early,
// with ctx's error, when ctx does. print is where print() goes; nil drops it.
// Arguments needn't be frozen, and calls may run at the same time if theirs are
// apart. A failure of the function is a *CallError.
func CallPortable(ctx context.Context, fn sl.Value, args sl.Tuple, steps uint64, print func(string)) (sl.Value, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if steps == 0 {
		steps = evaluateSteps
	}
	thread := &sl.Thread{Name: "call", Print: func(_ *sl.Thread, msg string) {
		if print != nil {
			print(msg)
		}
	}}
	thread.SetMaxExecutionSteps(steps)
	thread.OnMaxSteps = stepsExceeded(steps)
	stop := context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
	defer stop()
	v, err := sl.Call(thread, fn, args, nil)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	var ee *sl.EvalError
	if errors.As(err, &ee) {
		return nil, &CallError{evalError(ee)}
	}
	return v, err
}
