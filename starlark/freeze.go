package starlark

import (
	"fmt"
	"strings"

	sl "go.starlark.net/starlark"
)

// The interpreter's own Freeze recurses along every path to a function, since
// functions, tuples and structs don't remember that they are frozen: a nested
// function that refers to itself overflows the stack, which no Go program
// survives, and files that load each other's functions in layers take
// exponential time. So the same way is gone here first, within bounds.
const (
	maxFreezeDepth = 10_000
	maxFreezeSteps = 5_000_000
)

// freeze freezes v, or says why it can't be.
func freeze(v sl.Value) error {
	w := freezeWalk{seen: map[sl.Value]bool{}}
	if err := w.visit(v, 0); err != nil {
		return err
	}
	v.Freeze()
	return nil
}

type freezeWalk struct {
	seen  map[sl.Value]bool // what remembers that it is frozen
	steps int
}

func (w *freezeWalk) visit(v sl.Value, depth int) (err error) {
	switch v.(type) {
	case sl.String, sl.Int, sl.NoneType, sl.Bool, sl.Float, sl.Bytes:
		return nil
	}
	if depth > maxFreezeDepth {
		return fmt.Errorf("a value is nested deeper than %d, or a nested function refers to itself", maxFreezeDepth)
	}
	if w.steps++; w.steps > maxFreezeSteps {
		return fmt.Errorf("functions or tuples share so much that there are more than %d ways to them", maxFreezeSteps)
	}
	each := func(v sl.Value) {
		if err == nil && v != nil {
			err = w.visit(v, depth+1)
		}
	}
	switch v := v.(type) {
	case *sl.List:
		if !w.enter(v) || v.Len() > 0 && isFrozen(v.SetIndex(0, v.Index(0))) {
			return nil
		}
		for i := range v.Len() {
			each(v.Index(i))
		}
	case *sl.Dict:
		if !w.enter(v) {
			return nil
		}
		for k, x := range v.Entries() {
			if each(k); err == nil {
				each(x)
			}
		}
	case *sl.Set:
		if w.enter(v) {
			for x := range v.Elements() {
				each(x)
			}
		}
	case sl.Tuple:
		for _, x := range v {
			each(x)
		}
	case *sl.Function:
		for i := range v.NumFreeVars() {
			_, x := v.FreeVar(i)
			each(x)
		}
		for i := range v.NumParams() {
			each(v.ParamDefault(i))
		}
	case *sl.Builtin:
		each(v.Receiver())
	case *ruleValue:
		each(v.impl)
	case *instance:
		for _, x := range v.values {
			each(x)
		}
	case *depset:
		if !w.enter(v) || v.frozen {
			return nil
		}
		for _, x := range v.direct {
			each(x)
		}
		for _, x := range v.transitive {
			each(x)
		}
	case sl.HasAttrs: // a struct
		if v.Type() != "struct" {
			return nil
		}
		for _, name := range v.AttrNames() {
			x, err := v.Attr(name)
			if err != nil {
				return err
			}
			each(x)
		}
	}
	return err
}

func (w *freezeWalk) enter(v sl.Value) bool {
	if w.seen[v] {
		return false
	}
	w.seen[v] = true
	return true
}

// isFrozen reads the error of writing to a list what it holds.
func isFrozen(err error) bool { return err != nil && strings.Contains(err.Error(), "frozen") }
