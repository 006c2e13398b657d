package wire

import (
	"slices"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

func open(t *testing.T, text string) Object {
	t.Helper()
	v, err := starlark.ParseJSON([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return Open("top", v)
}

func TestObject(t *testing.T) {
	o := open(t, `{"s":"x","n":7,"b":true,"z":null,"o":{"k":[1]},"l":[{"a":1},{"a":2}],"t":["p","q"]}`)
	o.Only("s", "n", "b", "z", "o", "l", "t")
	if o.String("s") != "x" || o.Int("n") != 7 || !o.Bool("b") || o.OptionalString("z") != nil || *o.OptionalString("s") != "x" || o.Value("z") != sl.None {
		t.Error("wrong values")
	}
	if l := o.Objects("l"); len(l) != 2 || l[1].Int("a") != 2 {
		t.Error("wrong objects")
	}
	if !slices.Equal(o.Strings("t"), []string{"p", "q"}) || !slices.Equal(o.Object("o").Names(), []string{"k"}) || o.Has("none") || !o.Has("z") {
		t.Error("wrong lists")
	}
	if err := o.Err(); err != nil {
		t.Error(err)
	}
}

func TestObjectErrors(t *testing.T) {
	for _, c := range []struct {
		text string
		read func(Object)
		want string
	}{
		{`[]`, func(Object) {}, "top: an object is meant, not list"},
		{`{"a":1}`, func(o Object) { o.Only("b") }, "top.a: no member of that name is known"},
		{`{}`, func(o Object) { o.String("a") }, "top.a: missing; a string is meant"},
		{`{"a":1}`, func(o Object) { o.String("a") }, "top.a: a string is meant, not int"},
		{`{"a":1}`, func(o Object) { o.OptionalString("a") }, "top.a: a string is meant, not int"},
		{`{"a":1.5}`, func(o Object) { o.Int("a") }, "top.a: an integer is meant, not float"},
		{`{"a":9223372036854775808}`, func(o Object) { o.Int("a") }, "top.a: 9223372036854775808 has more than 64 bits"},
		{`{"a":1}`, func(o Object) { o.Bool("a") }, "top.a: true or false is meant, not int"},
		{`{}`, func(o Object) { o.Value("a") }, "top.a: missing; a value is meant"},
		{`{}`, func(o Object) { o.Object("a").Int("b") }, "top.a: missing; an object is meant"},
		{`{"a":{"b":""}}`, func(o Object) { o.Object("a").Int("b") }, "top.a.b: an integer is meant, not string"},
		{`{"a":"text"}`, func(o Object) { o.Objects("a") }, "top.a: a list is meant, not string"},
		{`{"a":[{},[]]}`, func(o Object) { o.Objects("a") }, "top.a[1]: an object is meant, not list"},
		{`{"a":["x",2]}`, func(o Object) { o.Strings("a") }, "top.a[1]: a string is meant, not int"},
		{`{"a":1,"b":1}`, func(o Object) { o.Bool("a"); o.Bool("b") }, "top.a: true or false is meant, not int"},
		{`{"a":1}`, func(o Object) { o.Failf("a", "too %s", "small") }, "top.a: too small"},
	} {
		o := open(t, c.text)
		c.read(o)
		if err := o.Err(); err == nil || err.Error() != c.want {
			t.Errorf("%s: %v; want %s", c.text, err, c.want)
		}
	}
}
