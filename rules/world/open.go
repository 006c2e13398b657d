package world

import (
	"context"
	"errors"
	"fmt"

	"go.starlark.net/lib/json"
	"go.starlark.net/lib/math"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"
)

// openPortable runs a self-contained Starlark file and returns its root, frozen.
func openPortable(name string, text []byte) (sl.Value, error) {
	predeclared := sl.StringDict{
		"struct": sl.NewBuiltin("struct", starlarkstruct.Make),
		"json":   json.Module,
		"math":   math.Module,
	}
	thread := &sl.Thread{Name: name}
	limitSteps(thread, stepLimit)
	globals, err := sl.ExecFileOptions(&syntax.FileOptions{Set: true}, thread, name, text, predeclared)
	if err != nil {
		return nil, withBacktrace(err)
	}
	root, ok := globals["root"]
	if !ok {
		return nil, fmt.Errorf("%s: the file doesn't set root", name)
	}
	root.Freeze()
	return root, nil
}

// callPortable calls fn with a limit of steps. An error of the function holds
// its Starlark backtrace.
func callPortable(ctx context.Context, fn sl.Value, args sl.Tuple, kwargs []sl.Tuple, steps uint64, print func(string)) (sl.Value, error) {
	thread := &sl.Thread{Name: "world", Print: func(_ *sl.Thread, msg string) {
		if print != nil {
			print(msg)
		}
	}}
	limitSteps(thread, steps)
	stop := context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
	defer stop()
	v, err := sl.Call(thread, fn, args, kwargs)
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	return v, withBacktrace(err)
}

func limitSteps(t *sl.Thread, steps uint64) {
	t.SetMaxExecutionSteps(steps)
	t.OnMaxSteps = func(t *sl.Thread) { t.Cancel(fmt.Sprintf("more than %d steps", steps)) }
}

func withBacktrace(err error) error {
	var ee *sl.EvalError
	if errors.As(err, &ee) {
		return errors.New(ee.Msg + "\n" + ee.CallStack.String())
	}
	return err
}
