package agent

import (
	"context"
	"errors"
	"fmt"

	"go.starlark.net/lib/json"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// openPortable runs a portable file and returns its root, frozen.
func openPortable(name string, text []byte) (sl.Value, error) {
	names := sl.StringDict{"json": json.Module, "struct": sl.NewBuiltin("struct", starlarkstruct.Make)}
	thread := &sl.Thread{Name: name}
	thread.SetMaxExecutionSteps(stepLimit)
	globals, err := sl.ExecFileOptions(&syntax.FileOptions{Set: true}, thread, name, text, names)
	if err != nil {
		return nil, backtrace(err)
	}
	root, ok := globals["root"]
	if !ok {
		return nil, fmt.Errorf("%s: no root", name)
	}
	globals.Freeze()
	return root, nil
}

// callPortable calls a function of a portable file. Its error holds the
// Starlark backtrace.
func callPortable(ctx context.Context, fn sl.Value, args sl.Tuple, kwargs []sl.Tuple, steps uint64, print func(string)) (sl.Value, error) {
	thread := &sl.Thread{Name: "agent", Print: func(_ *sl.Thread, msg string) { print(msg) }}
	thread.SetMaxExecutionSteps(steps)
	stop := context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
	defer stop()
	v, err := sl.Call(thread, fn, args, kwargs)
	return v, backtrace(err)
}

func backtrace(err error) error {
	var ee *sl.EvalError
	if errors.As(err, &ee) {
		return errors.New(ee.Backtrace())
	}
	return err
}
