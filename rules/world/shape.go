package world

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// A shape is a value of a definition file together with the path to it, which
// every error names. The first error of a file is kept, so that reading code is
// straight; what is read after it is zero.
type shape struct {
	path string
	v    sl.Value // nil: there is none
	err  *error
}

func rootShape(file string, v sl.Value) shape {
	return shape{path: file + ": root", v: v, err: new(error)}
}

func (s shape) failf(format string, args ...any) {
	if *s.err == nil {
		*s.err = fmt.Errorf("%s: %s", s.path, fmt.Sprintf(format, args...))
	}
}

// meant says that something else stands where what is meant.
func (s shape) meant(what string) {
	if s.v == nil {
		s.failf("missing; %s is meant", what)
		return
	}
	s.failf("%s is meant, not %s", what, s.v.Type())
}

// none says whether the value is absent, by itself or as None.
func (s shape) none() bool { return s.v == nil || s.v == sl.None }

// members checks that the value is a dict with no other keys than these.
func (s shape) members(names ...string) {
	for _, m := range s.items("a dict") {
		name := m.key
		if !slices.Contains(names, name) {
			s.failf("there is no %q%s", name, graph.DidYouMean(name, names))
		}
	}
}

// at is the member of that name; of what is no dict there is none.
func (s shape) at(name string) shape {
	out := shape{path: s.path + "." + name, err: s.err}
	if d, ok := s.v.(sl.Mapping); ok {
		if v, found, err := d.Get(sl.String(name)); err == nil && found {
			out.v = v
		}
	}
	return out
}

// A member is one entry of a dict.
type member struct {
	key string
	shape
}

// items are the entries of a dict in its order.
func (s shape) items(what string) []member {
	d, ok := s.v.(sl.IterableMapping)
	if !ok {
		s.meant(what)
		return nil
	}
	var out []member
	for _, kv := range d.Items() {
		key, ok := sl.AsString(kv[0])
		if !ok {
			s.failf("a key is a string, not %s", kv[0].Type())
			return nil
		}
		out = append(out, member{key, shape{path: s.path + "." + key, v: kv[1], err: s.err}})
	}
	return out
}

// list are the elements of a list; of what is absent there are none.
func (s shape) list(what string) []shape {
	if s.none() {
		return nil
	}
	l, ok := s.v.(sl.Indexable)
	if _, text := s.v.(sl.String); !ok || text {
		s.meant(what)
		return nil
	}
	out := make([]shape, l.Len())
	for i := range out {
		out[i] = shape{path: fmt.Sprintf("%s[%d]", s.path, i), v: l.Index(i), err: s.err}
	}
	return out
}

func (s shape) text() string {
	t, ok := sl.AsString(s.v)
	if !ok {
		s.meant("a string")
	}
	return t
}

// oneOf is a string that is one of words.
func (s shape) oneOf(words ...string) string {
	t := s.text()
	if !slices.Contains(words, t) {
		s.failf("%q is none of %s%s", t, strings.Join(words, ", "), graph.DidYouMean(t, words))
	}
	return t
}

// named is a string that the pattern matches whole.
func (s shape) named(re *regexp.Regexp, name string) {
	if !re.MatchString(name) {
		s.failf("the name %q doesn't match %s", name, re)
	}
}

// number is an integer in lo…hi.
func (s shape) number(lo, hi int64) int64 {
	i, ok := s.v.(sl.Int)
	if !ok {
		s.meant("an int")
		return 0
	}
	n, ok := i.Int64()
	if !ok || n < lo || n > hi {
		s.failf("%v is not in %d…%d", i, lo, hi)
	}
	return n
}

func (s shape) flag() bool {
	b, ok := s.v.(sl.Bool)
	if !ok {
		s.meant("True or False")
	}
	return bool(b)
}

func (s shape) function() sl.Callable {
	fn, ok := s.v.(sl.Callable)
	if !ok {
		s.meant("a function")
	}
	return fn
}

// dict is a value that has a JSON form as an object.
func (s shape) dict() sl.Value {
	if _, ok := s.v.(sl.IterableMapping); !ok {
		s.meant("a dict")
		return new(sl.Dict)
	}
	return s.v
}
