// Package shape reads definitions of a world and what its programs write: values of
// Starlark or JSON with known members. Every error names the path to what is wrong, and the first one
// of a file is kept, so that reading code is straight; what is read after it is
// zero.
package shape

import (
	"fmt"
	"math"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Value is a value of a file together with the path to it.
type Value struct {
	path string
	v    sl.Value // nil: there is none
	err  *error
}

// Of is the whole of what is read; errors call it path.
func Of(path string, v sl.Value) Value { return Value{path: path, v: v, err: new(error)} }

// Path is the path to s, for errors of later.
func (s Value) Path() string { return s.path }

// Err is the first error of all that was read with s.
func (s Value) Err() error { return *s.err }

// Failf keeps an error about s.
func (s Value) Failf(format string, args ...any) {
	if *s.err == nil {
		*s.err = fmt.Errorf("%s: %s", s.path, fmt.Sprintf(format, args...))
	}
}

// meant says that something else stands where what is meant.
func (s Value) meant(what string) {
	if s.v == nil {
		s.Failf("missing; %s is meant", what)
		return
	}
	s.Failf("%s is meant, not %s", what, s.v.Type())
}

// None says whether the value is absent, by itself or as None.
func (s Value) None() bool { return s.v == nil || s.v == sl.None }

// Members checks that the value is a dict with no other keys than these.
func (s Value) Members(names ...string) {
	for _, m := range s.Items("a dict") {
		name := m.Key
		if !slices.Contains(names, name) {
			s.Failf("there is no %q%s", name, graph.DidYouMean(name, names))
		}
	}
}

// At is the member of that name; of what is no dict there is none.
func (s Value) At(name string) Value {
	out := Value{path: s.path + "." + name, err: s.err}
	if d, ok := s.v.(sl.Mapping); ok {
		if v, found, err := d.Get(sl.String(name)); err == nil && found {
			out.v = v
		}
	}
	return out
}

// A Member is one entry of a dict.
type Member struct {
	Key string
	Value
}

// Items are the entries of a dict in its order.
func (s Value) Items(what string) []Member {
	d, ok := s.v.(sl.IterableMapping)
	if !ok {
		s.meant(what)
		return nil
	}
	var out []Member
	for _, kv := range d.Items() {
		key, ok := sl.AsString(kv[0])
		if !ok {
			s.Failf("a key is a string, not %s", kv[0].Type())
			return nil
		}
		out = append(out, Member{key, Value{path: s.path + "." + key, v: kv[1], err: s.err}})
	}
	return out
}

// List are the elements of a list.
func (s Value) List(what string) []Value {
	l, ok := s.v.(sl.Indexable)
	if _, text := s.v.(sl.String); !ok || text {
		s.meant(what)
		return nil
	}
	out := make([]Value, l.Len())
	for i := range out {
		out[i] = Value{path: fmt.Sprintf("%s[%d]", s.path, i), v: l.Index(i), err: s.err}
	}
	return out
}

// Text is a string.
func (s Value) Text() string {
	t, ok := sl.AsString(s.v)
	if !ok {
		s.meant("a string")
	}
	return t
}

// OneOf is a string that is one of words.
func (s Value) OneOf(words ...string) string {
	t := s.Text()
	if !slices.Contains(words, t) {
		s.Failf("%q is none of %s%s", t, strings.Join(words, ", "), graph.DidYouMean(t, words))
	}
	return t
}

// Letters and digits, as names of definitions have them.
const (
	Lower   = "abcdefghijklmnopqrstuvwxyz"
	Letters = "ABCDEFGHIJKLMNOPQRSTUVWXYZ" + Lower
	Digits  = "0123456789"
)

// A Name says which characters a name may begin with and consist of. Compiling
// regular expressions for it took 1 % of an act.
type Name struct{ First, Rest string }

// Fits says whether name is such a name.
func (n Name) Fits(name string) bool {
	return name != "" && strings.Contains(n.First, name[:1]) && strings.Trim(name, n.Rest) == ""
}

// Named says that name, the key of s, is no such name; meant is how one looks.
func (s Value) Named(n Name, name, meant string) {
	if !n.Fits(name) {
		s.Failf("the name %q: %s are meant", name, meant)
	}
}

// Number is an integer in lo…hi.
func (s Value) Number(lo, hi int64) int64 {
	i, ok := s.v.(sl.Int)
	if !ok {
		s.meant("an int")
		return 0
	}
	n, ok := i.Int64()
	if !ok || n < lo || n > hi {
		s.Failf("%v is not in %d…%d", i, lo, hi)
	}
	return n
}

// Int is an integer of 64 bits.
func (s Value) Int() int64 { return s.Number(math.MinInt64, math.MaxInt64) }

// Any is a value of any type.
func (s Value) Any() sl.Value {
	if s.v == nil {
		s.meant("a value")
		return sl.None
	}
	return s.v
}

// Flag is True or False.
func (s Value) Flag() bool {
	b, ok := s.v.(sl.Bool)
	if !ok {
		s.meant("True or False")
	}
	return bool(b)
}

// Function is anything that can be called.
func (s Value) Function() sl.Callable {
	fn, ok := s.v.(sl.Callable)
	if !ok {
		s.meant("a function")
	}
	return fn
}

// Dict is a value that has a JSON form as an object.
func (s Value) Dict() sl.Value {
	if _, ok := s.v.(sl.IterableMapping); !ok {
		s.meant("a dict")
		return new(sl.Dict)
	}
	return s.v
}
