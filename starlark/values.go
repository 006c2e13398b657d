package starlark

import (
	"fmt"
	"path"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// opaque gives a value type the methods that hardly vary.
type opaque struct{ kind string }

func (o opaque) Type() string          { return o.kind }
func (o opaque) Truth() sl.Bool        { return sl.True }
func (o opaque) Freeze()               {}
func (o opaque) String() string        { return "<" + o.kind + ">" }
func (o opaque) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: %s", o.kind) }

// An outcome is what a discriminator returns: PRESENT, ABSENT, or
// degraded(reason).
type outcome struct{ kind, reason string }

var (
	present = outcome{kind: "PRESENT"}
	absent  = outcome{kind: "ABSENT"}
)

func (o outcome) Type() string          { return "outcome" }
func (o outcome) Truth() sl.Bool        { return sl.True }
func (o outcome) Freeze()               {}
func (o outcome) Hash() (uint32, error) { return sl.String(o.kind + o.reason).Hash() }
func (o outcome) AttrNames() []string   { return []string{"kind", "reason"} }
func (o outcome) String() string {
	if o.kind == "DEGRADED" {
		return fmt.Sprintf("degraded(%q)", o.reason)
	}
	return o.kind
}

func (o outcome) Attr(name string) (sl.Value, error) {
	switch name {
	case "kind":
		return sl.String(o.kind), nil
	case "reason":
		return sl.String(o.reason), nil
	}
	return nil, nil
}

func (o outcome) CompareSameType(op syntax.Token, y sl.Value, _ int) (bool, error) {
	return equality(op, o == y.(outcome), o)
}

func (o outcome) writeFingerprint(w *closureWalk, _ string) error {
	w.tag(valInstance)
	w.str("outcome")
	w.str(o.kind)
	w.str(o.reason)
	return nil
}

func equality(op syntax.Token, equal bool, v sl.Value) (bool, error) {
	switch op {
	case syntax.EQL:
		return equal, nil
	case syntax.NEQ:
		return !equal, nil
	}
	return false, fmt.Errorf("%s values have no order", v.Type())
}

// A fileValue is a graph.File in the language. It can't be in a key: what a
// file holds is an input; where it is must not matter.
type fileValue struct {
	opaque
	file *graph.File
}

func newFile(f *graph.File) fileValue { return fileValue{opaque{"File"}, f} }

func (f fileValue) String() string        { return "<File " + f.file.Slash() + ">" }
func (f fileValue) AttrNames() []string   { return []string{"basename", "is_source", "label", "path"} }
func (f fileValue) Hash() (uint32, error) { return sl.String(f.file.Slash()).Hash() }
func (f fileValue) CompareSameType(op syntax.Token, y sl.Value, _ int) (bool, error) {
	return equality(op, f.file == y.(fileValue).file, f)
}

func (f fileValue) Attr(name string) (sl.Value, error) {
	switch name {
	case "path":
		return sl.String(f.file.Slash()), nil
	case "basename":
		return sl.String(path.Base(f.file.Slash())), nil
	case "is_source":
		return sl.Bool(f.file.Source()), nil
	case "label":
		return labelValue{f.file.Label}, nil
	}
	return nil, nil
}

// A labelValue is a graph.Label in the language.
type labelValue struct{ graph.Label }

func (l labelValue) Type() string          { return "Label" }
func (l labelValue) Truth() sl.Bool        { return sl.True }
func (l labelValue) Freeze()               {}
func (l labelValue) Hash() (uint32, error) { return sl.String(l.String()).Hash() }
func (l labelValue) AttrNames() []string   { return []string{"name", "package", "repo"} }
func (l labelValue) CompareSameType(op syntax.Token, y sl.Value, _ int) (bool, error) {
	return equality(op, l == y.(labelValue), l)
}

func (l labelValue) Attr(name string) (sl.Value, error) {
	switch name {
	case "name":
		return sl.String(l.Name), nil
	case "package":
		return sl.String(l.Pkg), nil
	case "repo":
		return sl.String(l.Repo), nil
	}
	return nil, nil
}

func (l labelValue) writeFingerprint(w *closureWalk, _ string) error {
	w.tag(valInstance)
	w.str("Label")
	w.str(l.String())
	return nil
}

// A providerValue is what provider() returns; calling it makes an instance.
// It is known by the file that defines it and its name there.
type providerValue struct {
	opaque
	id     string // file%name, set when the file has ended
	file   graph.Label
	fields []string // sorted; nil: any
	def    syntax.Position
}

func (p *providerValue) Name() string   { return "provider" }
func (p *providerValue) String() string { return "<provider " + p.id + ">" }
func (p *providerValue) Hash() (uint32, error) {
	return sl.String(p.def.String()).Hash()
}

func (p *providerValue) CallInternal(_ *sl.Thread, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	if len(args) > 0 {
		return nil, fmt.Errorf("a provider takes named fields only")
	}
	in := &instance{provider: p, values: make(sl.StringDict, len(kwargs))}
	for _, kv := range kwargs {
		name := string(kv[0].(sl.String))
		if p.fields != nil && !slices.Contains(p.fields, name) {
			return nil, fmt.Errorf("provider %s has no field %q%s", p.short(), name, graph.DidYouMean(name, p.fields))
		}
		in.values[name] = kv[1]
	}
	return in, nil
}

func (p *providerValue) short() string { return p.id[strings.LastIndexByte(p.id, '%')+1:] }

func (p *providerValue) writeFingerprint(w *closureWalk, path string) error {
	if p.id == "" {
		return fmt.Errorf("%s: a provider without a name (assign it to a global)", path)
	}
	w.tag(valProvider)
	w.str(p.id)
	w.count(len(p.fields))
	for _, f := range p.fields {
		w.str(f)
	}
	return nil
}

// An instance is a value made by a provider.
type instance struct {
	provider *providerValue
	values   sl.StringDict
}

func isInstance(v sl.Value) bool { _, ok := v.(*instance); return ok }

func (i *instance) Type() string          { return i.provider.short() }
func (i *instance) Truth() sl.Bool        { return sl.True }
func (i *instance) Freeze()               { i.values.Freeze() }
func (i *instance) Hash() (uint32, error) { return 0, fmt.Errorf("unhashable: %s", i.Type()) }
func (i *instance) AttrNames() []string   { return i.values.Keys() }
func (i *instance) Attr(name string) (sl.Value, error) {
	if v, ok := i.values[name]; ok {
		return v, nil
	}
	if slices.Contains(i.provider.fields, name) {
		return sl.None, nil
	}
	return nil, nil
}

// field is a field's value, None if it was left out.
func (i *instance) field(name string) sl.Value {
	if v := i.values[name]; v != nil {
		return v
	}
	return sl.None
}

func (i *instance) String() string {
	var b strings.Builder
	b.WriteString(i.Type() + "(")
	for n, k := range i.values.Keys() {
		if n > 0 {
			b.WriteString(", ")
		}
		b.WriteString(k + " = " + i.values[k].String())
	}
	return b.String() + ")"
}

func (i *instance) writeFingerprint(w *closureWalk, path string) error {
	w.tag(valInstance)
	if err := i.provider.writeFingerprint(w, path); err != nil {
		return err
	}
	names := i.values.Keys()
	w.count(len(names))
	for _, n := range names {
		w.str(n)
		if err := w.value(i.values[n], path+"."+n); err != nil {
			return err
		}
	}
	return nil
}

// A depset is an immutable set with shared parts; to_list() gives each
// element once, those of the parts first.
type depset struct {
	opaque
	direct     []sl.Value
	transitive []*depset // none that is empty
	depth      int
	frozen     bool
}

// maxDepsetDepth bounds chains of depsets, which are walked by recursion.
const maxDepsetDepth = 3500

func makeDepset(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var direct, transitive *sl.List
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "direct?", &direct, "transitive?", &transitive); err != nil {
		return nil, err
	}
	d := &depset{opaque: opaque{"depset"}}
	if direct != nil {
		for x := range direct.Elements() {
			if _, err := x.Hash(); err != nil {
				return nil, fmt.Errorf("depset: %v", err)
			}
			d.direct = append(d.direct, x)
		}
	}
	if transitive != nil {
		for x := range transitive.Elements() {
			t, ok := x.(*depset)
			if !ok {
				return nil, fmt.Errorf("depset: transitive holds a %s, depsets are meant", x.Type())
			}
			if t.Truth() {
				d.transitive = append(d.transitive, t)
				d.depth = max(d.depth, t.depth+1)
			}
		}
	}
	if d.depth > maxDepsetDepth {
		return nil, fmt.Errorf("depset: a chain of more than %d depsets", maxDepsetDepth)
	}
	return d, nil
}

func (d *depset) Truth() sl.Bool { return len(d.direct) > 0 || len(d.transitive) > 0 }
func (d *depset) Freeze() {
	if d.frozen { // parts are shared, and may be frozen from several goroutines
		return
	}
	d.frozen = true
	for _, x := range d.direct { // hashable, yet a function may hold a list
		x.Freeze()
	}
	for _, t := range d.transitive {
		t.Freeze()
	}
}
func (d *depset) AttrNames() []string { return []string{"to_list"} }
func (d *depset) Attr(name string) (sl.Value, error) {
	if name != "to_list" {
		return nil, nil
	}
	return sl.NewBuiltin("to_list", func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
		if err := sl.UnpackArgs("to_list", args, kwargs); err != nil {
			return nil, err
		}
		list, err := b.Receiver().(*depset).list()
		return sl.NewList(list), err
	}).BindReceiver(d), nil
}

func (d *depset) list() ([]sl.Value, error) {
	var out []sl.Value
	seenSets, seen := map[*depset]bool{}, new(sl.Set)
	var visit func(*depset) error
	visit = func(d *depset) error {
		if seenSets[d] {
			return nil
		}
		seenSets[d] = true
		for _, t := range d.transitive {
			if err := visit(t); err != nil {
				return err
			}
		}
		for _, x := range d.direct {
			had, err := seen.Has(x)
			if err != nil {
				return err
			}
			if !had {
				if err := seen.Insert(x); err != nil {
					return err
				}
				out = append(out, x)
			}
		}
		return nil
	}
	return out, visit(d)
}

func (d *depset) writeFingerprint(w *closureWalk, path string) error {
	list, err := d.list()
	if err != nil {
		return err
	}
	w.tag(valDepset)
	return w.value(sl.Tuple(list), path)
}
