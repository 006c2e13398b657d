package starlark

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
)

// A Portable is a frozen value, with the functions and all else that it
// reaches, as the text of one Starlark file that loads nothing and ends with
// `root = …`. OpenPortable makes the value again, elsewhere.
//
// The text depends on meaning only, as fingerprints do: equal fingerprints have
// equal texts. So names of constants, loads and captured variables are not kept;
// those of functions, parameters and local variables are. It does what the
// original does but for two things: which lists and dicts are one object is not
// kept (all are frozen), and two closures of one def are two functions, so that
// one that calls the other is no recursion.
type Portable struct {
	Text    []byte
	Origins *Origins // where the text's functions come from
}

// Portable prints v, which must be frozen, as must be all that it reaches; the
// files that define its functions must have ended. A value that has no portable
// form (a file, a target, a provider, a depset, a cyclic list, a builtin of the
// loading phase …) is an error that names the path to it.
func (l *Loader) Portable(v sl.Value) (*Portable, error) {
	w := newPortableWalk(l.prints)
	var first []*portableFunction
	if err := w.value(v, "value", &first); err != nil {
		return nil, err
	}
	for i := 0; i < len(w.order); i++ { // it grows
		if err := w.refs(w.order[i]); err != nil {
			return nil, err
		}
	}
	p := newPortablePrinter(w.order)
	if err := p.file(v, first); err != nil {
		return nil, err
	}
	// What can't be parsed should be known here, not where the text is run: the
	// parser has limits of its own.
	text := p.out.Bytes()
	if _, _, err := sl.SourceProgramOptions(dialect, "portable", text, portableNames().Has); err != nil {
		return nil, fmt.Errorf("value: its text can't be read again: %w", err)
	}
	return &Portable{Text: text, Origins: &Origins{marks: p.marks}}, nil
}

// portableNames are what a portable text finds predeclared: what is of use to
// pure functions.
var portableNames = sync.OnceValue(func() sl.StringDict {
	d := sl.StringDict{}
	for _, name := range []string{"PRESENT", "ABSENT", "degraded", "struct", "depset", "sample", "json", "re", "math", "stats"} {
		d[name] = base()[name]
	}
	return d
})

// A portableFunction is a function of a portable text.
type portableFunction struct {
	fn       *sl.Function
	code     *code
	path     string
	refs     []sl.Value          // what code.refs refer to; nil for a member that there isn't
	defaults map[string]sl.Value // by parameter
	children []*portableFunction // found in its defaults and refs, in order
	locals   map[string]bool     // the names that it and its nested functions bind
	name     string              // the global that holds it
	wrapper  string              // the function that makes it, where its own name can't be a global
	done     bool                // printed
}

// lambda says whether it has no name.
func (f *portableFunction) lambda() bool { return f.fn.Name() == "lambda" }

// portableWalk finds the functions of a value. What a function refers to is
// visited after the values that hold the function, so that only a value that
// holds itself is a cycle, and no function that refers to the list it is in.
type portableWalk struct {
	code      closureWalk // for its memory of globals
	functions map[*sl.Function]*portableFunction
	order     []*portableFunction // as found, breadth first
	// found has the functions that each list, dict, set and struct holds. That
	// two are one object must not matter to the order of the text.
	found map[sl.Value][]*portableFunction
	open  map[sl.Value]bool // those on the way
	depth int
}

func newPortableWalk(prints *fingerprinter) *portableWalk {
	return &portableWalk{
		code:      closureWalk{f: prints},
		functions: map[*sl.Function]*portableFunction{},
		found:     map[sl.Value][]*portableFunction{},
		open:      map[sl.Value]bool{},
	}
}

// value checks v and adds the functions that it holds to into.
func (w *portableWalk) value(v sl.Value, path string, into *[]*portableFunction) error {
	if w.depth++; w.depth > maxValueDepth {
		return fmt.Errorf("%s: nested deeper than %d", path[:min(len(path), 80)], maxValueDepth)
	}
	defer func() { w.depth-- }()
	switch v := v.(type) {
	case sl.NoneType, sl.Bool, sl.Int, sl.Float, sl.String, sl.Bytes, outcome:
		return nil
	case sl.Tuple:
		return w.elements(v, path, into)
	case *sl.List, *sl.Set, *sl.Dict, *starlarkstruct.Struct:
		if w.open[v] {
			return fmt.Errorf("%s: a %s that holds itself has no portable form", path, v.Type())
		}
		list, ok := w.found[v]
		if !ok {
			w.open[v] = true
			if err := w.container(v, path, &list); err != nil {
				return err
			}
			delete(w.open, v)
			list = unique(list)
			w.found[v] = list
		}
		*into = append(*into, list...)
		return nil
	case *sl.Function:
		return w.function(v, path, into)
	case *sl.Builtin:
		recv := v.Receiver()
		if recv == nil {
			if _, ok := builtinText(v); !ok {
				return fmt.Errorf("%s: the builtin %s has no portable form", path, v.Name())
			}
			return nil
		}
		switch recv.(type) {
		case sl.String, sl.Bytes, *sl.List, *sl.Dict, *sl.Set:
			return w.value(recv, path+"."+v.Name(), into)
		}
		return fmt.Errorf("%s: a method of a %s has no portable form", path, recv.Type())
	case *starlarkstruct.Module:
		if portableNames()[v.Name] == sl.Value(v) {
			return nil
		}
	case nil:
		return fmt.Errorf("%s is not set", path)
	default:
		if v.Type() == "range" {
			return nil
		}
	}
	return fmt.Errorf("%s: a value of type %s has no portable form", path, v.Type())
}

// unique leaves the first of each.
func unique(list []*portableFunction) []*portableFunction {
	seen := map[*portableFunction]bool{}
	return slices.DeleteFunc(list, func(f *portableFunction) bool {
		was := seen[f]
		seen[f] = true
		return was
	})
}

func (w *portableWalk) elements(list sl.Iterable, path string, into *[]*portableFunction) error {
	i := 0
	for x := range sl.Elements(list) {
		if err := w.value(x, index(path, i), into); err != nil {
			return err
		}
		i++
	}
	return nil
}

func (w *portableWalk) container(v sl.Value, path string, into *[]*portableFunction) error {
	switch v := v.(type) {
	case *sl.Dict:
		for _, kv := range v.Items() {
			if err := w.value(kv[0], path+" key", into); err != nil {
				return err
			}
			if err := w.value(kv[1], path+"["+showValue(kv[0], 60)+"]", into); err != nil {
				return err
			}
		}
	case *starlarkstruct.Struct:
		if c := v.Constructor(); c != sl.Value(starlarkstruct.Default) {
			return fmt.Errorf("%s: a %s has no portable form", path, showValue(c, 60))
		}
		for _, name := range v.AttrNames() {
			x, err := v.Attr(name)
			if err != nil {
				return err
			}
			if err := w.value(x, path+"."+name, into); err != nil {
				return err
			}
		}
	case sl.Iterable:
		return w.elements(v, path, into)
	}
	return nil
}

func (w *portableWalk) function(fn *sl.Function, path string, into *[]*portableFunction) error {
	f, ok := w.functions[fn]
	if !ok {
		c, err := w.code.f.code(fn)
		if err != nil {
			return fmt.Errorf("%s: %v", path, err)
		}
		f = &portableFunction{fn: fn, code: c, path: path, locals: localNames(c.fn), defaults: map[string]sl.Value{}}
		w.functions[fn] = f
		w.order = append(w.order, f)
	}
	*into = append(*into, f)
	if w.open[fn] {
		return fmt.Errorf("%s: a function in its own default has no portable form", path)
	}
	if ok {
		return nil
	}
	w.open[fn] = true
	defer delete(w.open, fn)
	for i := range fn.NumParams() {
		if d := fn.ParamDefault(i); d != nil {
			name, _ := fn.Param(i)
			f.defaults[name] = d
			if err := w.value(d, path+" default", &f.children); err != nil {
				return err
			}
		}
	}
	return nil
}

// refs visits what a function refers to.
func (w *portableWalk) refs(f *portableFunction) error {
	for _, r := range f.code.refs {
		v, name := w.code.refValue(f.fn, r), r.name
		switch r.scope {
		case resolve.Free:
			b, _ := f.fn.FreeVar(r.free)
			name = b.Name
		case resolve.Predeclared:
			if known, ok := portableNames()[name]; !ok || known != f.fn.Module().Predeclared()[name] {
				return fmt.Errorf("%s → %s: the name has no meaning in a portable text", functionName(f.fn), name)
			}
		}
		f.refs = append(f.refs, v)
		if v == nil && r.member != "" {
			continue // an error when it is called, there as here
		}
		if err := w.value(v, functionName(f.fn)+" → "+name, &f.children); err != nil {
			return err
		}
	}
	return nil
}

// builtinText is how a portable text names a builtin.
func builtinText(b *sl.Builtin) (string, bool) {
	id, ok := builtinIDs[b]
	if !ok {
		return "", false
	}
	text, _, _ := strings.Cut(id, "@")
	head, name, _ := strings.Cut(text, ".")
	v, ok := portableNames()[head]
	if !ok {
		v = sl.Universe[head]
	}
	return text, member(v, name) == sl.Value(b)
}
