package starlark

import (
	"fmt"
	"sync"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// A portableValue is a Portable in the language, which actions.write takes in
// place of a string.
type portableValue struct {
	opaque
	*Portable
}

func (p portableValue) String() string { return fmt.Sprintf("<portable, %d bytes>", len(p.Text)) }

// A portableEntry is the text of one value, printed once however many actions
// write it.
type portableEntry struct {
	once     sync.Once
	portable *Portable
	captures bool // some captured variable could yet be bound anew
	err      error
}

// nativePortable is native.portable(value), of a rule's implementation: value is
// frozen, and returned as an opaque value that holds its text.
func nativePortable(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var v sl.Value
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "value", &v); err != nil {
		return nil, err
	}
	c, err := analysisOf(t, b)
	if err != nil {
		return nil, err
	}
	e := &portableEntry{}
	switch v.(type) {
	case *sl.Function, *sl.Dict, *sl.List, *starlarkstruct.Struct:
		x, _ := c.loader.portables.LoadOrStore(v, e)
		e = x.(*portableEntry)
	}
	e.once.Do(func() { e.print(c.loader, v) })
	if e.err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), e.err)
	}
	if e.captures { // the text is right now; it must be at the end
		check, err := newCellCheck(c.loader.prints, functionsOnly(v), t.CallFrame(1).Pos)
		if err != nil {
			return nil, err
		}
		c.checks = append(c.checks, check)
	}
	return portableValue{opaque{"portable"}, e.portable}, nil
}

func (e *portableEntry) print(l *Loader, v sl.Value) {
	if e.err = freeze(v); e.err != nil {
		return
	}
	if e.portable, e.err = l.Portable(v); e.err != nil {
		return
	}
	captures, err := l.prints.captures(functionsOnly(v))
	e.captures, e.err = len(captures) > 0, err
}

// analysisOf is the analysis in whose implementation b is called.
func analysisOf(t *sl.Thread, b *sl.Builtin) (*analysis, error) {
	c, _ := t.Local(analysisKey).(*analysis)
	if c == nil {
		return nil, fmt.Errorf("%s works only in the implementation of a rule", b.Name())
	}
	return c, nil
}
