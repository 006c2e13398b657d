package starlark

import (
	"fmt"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// An attrValue is the type of one attribute of a rule.
type attrValue struct {
	opaque
	of        string // string, int, …
	mandatory bool
	dflt      sl.Value
	choices   []string     // strings: the allowed ones
	union     []*attrValue // one_of over types
}

// attrTypes are the members of attr but for one_of, and what an attribute that
// was not written holds. A value is anything at all: it is frozen, and what its
// functions capture is checked as that of a function attribute.
var attrTypes = func() sl.StringDict {
	d := sl.StringDict{
		"string": sl.String(""), "int": sl.MakeInt(0), "float": sl.Float(0), "bool": sl.False,
		"label": sl.None, "label_list": sl.NewList(nil), "string_list": sl.NewList(nil),
		"string_dict": new(sl.Dict), "function": sl.None, "value": sl.None,
	}
	d.Freeze() // implementations that run in parallel share them
	return d
}()

func makeAttr(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	a := &attrValue{opaque: opaque{"attr"}, of: strings.TrimPrefix(b.Name(), "attr.")}
	var doc string
	var values *sl.List
	pairs := []any{"default?", &a.dflt, "mandatory?", &a.mandatory, "doc?", &doc}
	if a.of == "string" {
		pairs = append(pairs, "values?", &values)
	}
	if err := sl.UnpackArgs(b.Name(), args, kwargs, pairs...); err != nil {
		return nil, err
	}
	if values != nil {
		var err error
		if a.choices, err = stringList(values); err != nil {
			return nil, fmt.Errorf("%s: values: %v", b.Name(), err)
		}
	}
	return a, a.checkDefault()
}

// makeOneOf is attr.one_of: several strings are the allowed ones, several
// attr types the types that may stand there.
func makeOneOf(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	a := &attrValue{opaque: opaque{"attr"}, of: "one_of"}
	var doc string
	if err := sl.UnpackArgs(b.Name(), nil, kwargs, "default?", &a.dflt, "mandatory?", &a.mandatory, "doc?", &doc); err != nil {
		return nil, err
	}
	if len(args) == 1 {
		if list, ok := args[0].(*sl.List); ok {
			args = nil
			for x := range list.Elements() {
				args = append(args, x)
			}
		}
	}
	for _, x := range args {
		switch x := x.(type) {
		case sl.String:
			a.choices = append(a.choices, string(x))
		case *attrValue:
			a.union = append(a.union, x)
		default:
			return nil, fmt.Errorf("%s: takes strings or attr types, not %s", b.Name(), x.Type())
		}
	}
	if len(args) == 0 || len(a.choices) > 0 && len(a.union) > 0 {
		return nil, fmt.Errorf("%s: takes either the allowed strings or the allowed attr types", b.Name())
	}
	return a, a.checkDefault()
}

func (a *attrValue) checkDefault() error {
	if a.dflt == nil || a.dflt == sl.None {
		return nil
	}
	if err := freeze(a.dflt); err != nil {
		return fmt.Errorf("default: %v", err)
	}
	if err := a.check(a.dflt); err != nil {
		return fmt.Errorf("default: %v", err)
	}
	return nil
}

// zero is the value of an attribute that was not written.
func (a *attrValue) zero() sl.Value {
	if a.dflt != nil {
		return a.dflt
	}
	if len(a.choices) > 0 {
		return sl.String(a.choices[0])
	}
	if v, ok := attrTypes[a.of]; ok {
		return v
	}
	return sl.None
}

// check says what is wrong with v, if anything.
func (a *attrValue) check(v sl.Value) error {
	wrong := func(want string) error { return fmt.Errorf("%s is meant, not %s", want, v.Type()) }
	switch a.of {
	case "one_of":
		if len(a.union) > 0 {
			var wants []string
			for _, u := range a.union {
				err := u.check(v)
				if err == nil {
					return nil
				}
				wants = append(wants, u.of)
			}
			return wrong("one of " + strings.Join(wants, ", "))
		}
		fallthrough
	case "string", "label":
		s, ok := sl.AsString(v)
		if !ok {
			return wrong("a " + strings.Replace(a.of, "one_of", "string", 1))
		}
		if len(a.choices) > 0 && !slices.Contains(a.choices, s) {
			return fmt.Errorf("%q is none of %s%s", s, strings.Join(a.choices, ", "), graph.DidYouMean(s, a.choices))
		}
	case "int":
		if _, ok := v.(sl.Int); !ok {
			return wrong("an int")
		}
	case "float":
		switch v.(type) {
		case sl.Int, sl.Float:
		default:
			return wrong("a float")
		}
	case "bool":
		if _, ok := v.(sl.Bool); !ok {
			return wrong("a bool")
		}
	case "label_list", "string_list":
		if _, ok := v.(sl.String); ok {
			return wrong("a list of strings")
		}
		_, err := stringList(v)
		return err
	case "string_dict":
		d, ok := v.(*sl.Dict)
		if !ok {
			return wrong("a dict of strings")
		}
		for _, kv := range d.Items() {
			for _, x := range kv {
				if _, ok := x.(sl.String); !ok {
					return fmt.Errorf("a dict of strings is meant; it holds a %s", x.Type())
				}
			}
		}
	case "function":
		if _, ok := v.(*sl.Function); !ok {
			if _, ok := v.(sl.String); ok {
				return fmt.Errorf("a function is meant: its name without quotes, after a load")
			}
			return wrong("a function")
		}
	}
	return nil
}

// labels lists the labels written in v, an attribute of type a.
func (a *attrValue) labels(v sl.Value) []string {
	switch a.of {
	case "label":
		if s, ok := sl.AsString(v); ok {
			return []string{s}
		}
	case "label_list":
		list, _ := stringList(v)
		return list
	case "one_of":
		for _, u := range a.union {
			if u.check(v) == nil {
				return u.labels(v)
			}
		}
	}
	return nil
}
