package wire

import (
	"fmt"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"
)

// An Object is a JSON object, or a dict of the same shape, whose members are
// read with their types. The first thing that is wrong is kept and returned by
// Err; what is read after it is zero.
type Object struct {
	path string
	dict sl.IterableMapping
	err  *error
}

// Open reads v, which errors call path.
func Open(path string, v sl.Value) Object {
	o := Object{path: path, err: new(error)}
	return o.of(v)
}

func (o Object) of(v sl.Value) Object {
	d, ok := v.(sl.IterableMapping)
	if !ok {
		o.fail(o.path, "an object", v)
	}
	o.dict = d
	return o
}

// Err is the first error of o and of all that was reached from it.
func (o Object) Err() error { return *o.err }

// Failf keeps an error about the member name.
func (o Object) Failf(name, format string, args ...any) {
	if *o.err == nil {
		*o.err = fmt.Errorf("%s: %s", o.at(name), fmt.Sprintf(format, args...))
	}
}

func (o Object) at(name string) string { return strings.TrimPrefix(o.path+"."+name, ".") }

func (o Object) fail(path, meant string, got sl.Value) {
	if *o.err != nil {
		return
	}
	if got == nil {
		*o.err = fmt.Errorf("%s: missing; %s is meant", path, meant)
		return
	}
	*o.err = fmt.Errorf("%s: %s is meant, not %s", path, meant, got.Type())
}

func (o Object) get(name string) sl.Value {
	if *o.err != nil || o.dict == nil {
		return nil
	}
	v, ok, err := o.dict.Get(sl.String(name))
	if err != nil || !ok {
		return nil
	}
	return v
}

// Only refuses members with other names.
func (o Object) Only(names ...string) {
	if *o.err != nil {
		return
	}
	for _, item := range o.dict.Items() {
		if name, _ := sl.AsString(item[0]); !slices.Contains(names, name) {
			*o.err = fmt.Errorf("%s: no member of that name is known", o.at(name))
			return
		}
	}
}

// Has says whether there is a member of that name.
func (o Object) Has(name string) bool { return o.get(name) != nil }

// Value is a member of any type.
func (o Object) Value(name string) sl.Value {
	v := o.get(name)
	if v == nil {
		o.fail(o.at(name), "a value", nil)
		return sl.None
	}
	return v
}

func (o Object) String(name string) string {
	v := o.get(name)
	s, ok := v.(sl.String)
	if !ok {
		o.fail(o.at(name), "a string", v)
	}
	return string(s)
}

// OptionalString is nil where the member is null.
func (o Object) OptionalString(name string) *string {
	if o.get(name) == sl.None {
		return nil
	}
	s := o.String(name)
	return &s
}

func (o Object) Bool(name string) bool {
	v := o.get(name)
	b, ok := v.(sl.Bool)
	if !ok {
		o.fail(o.at(name), "true or false", v)
	}
	return bool(b)
}

// Int is a member that is an integer of 64 bits.
func (o Object) Int(name string) int64 {
	v := o.get(name)
	i, ok := v.(sl.Int)
	if !ok {
		o.fail(o.at(name), "an integer", v)
		return 0
	}
	n, ok := i.Int64()
	if !ok {
		o.Failf(name, "%v has more than 64 bits", i)
	}
	return n
}

// Object is a member that is an object itself.
func (o Object) Object(name string) Object {
	inner := Object{path: o.at(name), err: o.err}
	v := o.get(name)
	if v == nil {
		o.fail(inner.path, "an object", nil)
		return inner
	}
	return inner.of(v)
}

// Dict is the value of o as it stands.
func (o Object) Dict() sl.Value {
	if o.dict == nil {
		return new(sl.Dict)
	}
	return o.dict
}

// Names lists the members in the order of the text.
func (o Object) Names() []string {
	var names []string
	if o.dict == nil {
		return nil
	}
	for _, item := range o.dict.Items() {
		name, ok := sl.AsString(item[0])
		if !ok {
			o.fail(o.path, "a string as key", item[0])
		}
		names = append(names, name)
	}
	return names
}

func (o Object) list(name string) []sl.Value {
	v := o.get(name)
	l, ok := v.(sl.Indexable)
	if _, text := v.(sl.String); !ok || text {
		o.fail(o.at(name), "a list", v)
		return nil
	}
	out := make([]sl.Value, l.Len())
	for i := range out {
		out[i] = l.Index(i)
	}
	return out
}

// Objects is a list of objects.
func (o Object) Objects(name string) []Object {
	var out []Object
	for i, v := range o.list(name) {
		inner := Object{path: fmt.Sprintf("%s[%d]", o.at(name), i), err: o.err}
		out = append(out, inner.of(v))
	}
	return out
}

// Strings is a list of strings.
func (o Object) Strings(name string) []string {
	var out []string
	for i, v := range o.list(name) {
		s, ok := v.(sl.String)
		if !ok {
			o.fail(fmt.Sprintf("%s[%d]", o.at(name), i), "a string", v)
		}
		out = append(out, string(s))
	}
	return out
}
