package shape

import (
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

func of(t *testing.T, text string) Value {
	t.Helper()
	v, err := starlark.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Of("top", v)
}

func TestValue(t *testing.T) {
	s := of(t, `{"s":"x","n":7,"b":true,"z":null,"o":{"k":[1]},"l":[{"a":1},{"a":2}]}`)
	s.Members("s", "n", "b", "z", "o", "l")
	if s.At("s").Text() != "x" || s.At("s").OneOf("w", "x") != "x" || s.At("n").Int() != 7 || s.At("n").Number(7, 7) != 7 || !s.At("b").Flag() {
		t.Error("wrong values")
	}
	if !s.At("z").None() || !s.At("none").None() || s.At("s").None() || s.At("z").Any() != sl.None || s.At("o").At("k").Path() != "top.o.k" {
		t.Error("wrong absences")
	}
	if l := s.At("l").List("a list"); len(l) != 2 || l[1].At("a").Int() != 2 {
		t.Error("wrong list")
	}
	if m := s.At("o").Items("a dict"); len(m) != 1 || m[0].Key != "k" || len(m[0].List("a list")) != 1 {
		t.Error("wrong items")
	}
	if err := s.Err(); err != nil {
		t.Error(err)
	}
}

func TestErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		read func(Value)
		want string
	}{
		{`[]`, func(s Value) { s.Members() }, "top: a dict is meant, not list"},
		{`{"a":1}`, func(s Value) { s.Members("ab") }, `top: there is no "a" (did you mean "ab"?)`},
		{`{}`, func(s Value) { s.At("a").Text() }, "top.a: missing; a string is meant"},
		{`{"a":1}`, func(s Value) { s.At("a").Text() }, "top.a: a string is meant, not int"},
		{`{"a":"blue"}`, func(s Value) { s.At("a").OneOf("x", "y") }, `top.a: "blue" is none of x, y`},
		{`{"a":1.5}`, func(s Value) { s.At("a").Int() }, "top.a: an int is meant, not float"},
		{`{"a":9223372036854775808}`, func(s Value) { s.At("a").Int() }, "top.a: 9223372036854775808 is not in -9223372036854775808…9223372036854775807"},
		{`{"a":3}`, func(s Value) { s.At("a").Number(1, 2) }, "top.a: 3 is not in 1…2"},
		{`{"a":1}`, func(s Value) { s.At("a").Flag() }, "top.a: True or False is meant, not int"},
		{`{"a":1}`, func(s Value) { s.At("a").Function() }, "top.a: a function is meant, not int"},
		{`{}`, func(s Value) { s.At("a").Any() }, "top.a: missing; a value is meant"},
		{`{"a":1}`, func(s Value) { s.At("a").Dict() }, "top.a: a dict is meant, not int"},
		{`{}`, func(s Value) { s.At("a").At("b").Int() }, "top.a.b: missing; an int is meant"},
		{`{"a":"text"}`, func(s Value) { s.At("a").List("a list") }, "top.a: a list is meant, not string"},
		{`{}`, func(s Value) { s.At("a").List("a list") }, "top.a: missing; a list is meant"},
		{`{"a":["x",2]}`, func(s Value) { s.At("a").List("a list")[1].Text() }, "top.a[1]: a string is meant, not int"},
		{`{"a":1,"b":1}`, func(s Value) { s.At("a").Flag(); s.At("b").Flag() }, "top.a: True or False is meant, not int"},
		{`{"A":1}`, func(s Value) { s.At("A").Named(Name{First: Lower, Rest: Lower}, "A", "lower-case letters") }, `top.A: the name "A": lower-case letters are meant`},
		{`{"a":1}`, func(s Value) { s.At("a").Failf("too %s", "small") }, "top.a: too small"},
	} {
		s := of(t, c.text)
		c.read(s)
		if err := s.Err(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v; want %s", c.text, err, c.want)
		}
	}
}
