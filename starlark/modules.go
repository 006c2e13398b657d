package starlark

import (
	"fmt"
	"regexp"
	"sync"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/rules/stats"
)

// The modules json, re and stats. Each member is a builtin with a version of
// its own; see builtinIDs.

func jsonModule() *starlarkstruct.Module {
	return &starlarkstruct.Module{Name: "json", Members: sl.StringDict{
		"encode": pureBuiltin("json.encode", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var v sl.Value
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "x", &v); err != nil {
				return nil, err
			}
			out, err := AppendJSON(nil, v)
			if err != nil {
				return nil, fmt.Errorf("json.encode: %v", err)
			}
			return sl.String(out), nil
		}),
		"decode": pureBuiltin("json.decode", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var s string
			var dflt sl.Value
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "x", &s, "default?", &dflt); err != nil {
				return nil, err
			}
			v, err := ParseJSON([]byte(s))
			if err != nil {
				if dflt != nil {
					return dflt, nil
				}
				return nil, fmt.Errorf("json.decode: %v", err)
			}
			return v, nil
		}),
	}}
}

// maxPattern bounds a pattern's length: RE2 runs in linear time, but its
// program grows with the pattern.
const maxPattern = 10_000

var patterns sync.Map // string -> *regexp.Regexp

func compileRE(pattern string) (*regexp.Regexp, error) {
	if r, ok := patterns.Load(pattern); ok {
		return r.(*regexp.Regexp), nil
	}
	if len(pattern) > maxPattern {
		return nil, fmt.Errorf("a pattern of %d bytes; at most %d", len(pattern), maxPattern)
	}
	r, err := regexp.Compile(pattern)
	if err != nil {
		return nil, err
	}
	patterns.Store(pattern, r)
	return r, nil
}

// reModule is RE2 (Go's regexp): no back-references, linear time.
func reModule() *starlarkstruct.Module {
	member := func(name string, fn func(r *regexp.Regexp, s, repl string, n int) sl.Value) *sl.Builtin {
		return pureBuiltin("re."+name, 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var pattern, s, repl string
			n := -1
			pairs := []any{"pattern", &pattern}
			if name == "sub" {
				pairs = append(pairs, "repl", &repl)
			}
			pairs = append(pairs, "s", &s)
			if name == "split" {
				pairs = append(pairs, "n?", &n)
			}
			if err := sl.UnpackArgs(b.Name(), args, kwargs, pairs...); err != nil {
				return nil, err
			}
			r, err := compileRE(pattern)
			if err != nil {
				return nil, fmt.Errorf("%s: %v", b.Name(), err)
			}
			return fn(r, s, repl, n), nil
		})
	}
	groups := func(s string, at []int) sl.Value {
		if at == nil {
			return sl.None
		}
		out := make(sl.Tuple, len(at)/2)
		for i := range out {
			out[i] = sl.None
			if at[2*i] >= 0 {
				out[i] = sl.String(s[at[2*i]:at[2*i+1]])
			}
		}
		return out
	}
	texts := func(list []string) sl.Value {
		out := make([]sl.Value, len(list))
		for i, x := range list {
			out[i] = sl.String(x)
		}
		return sl.NewList(out)
	}
	return &starlarkstruct.Module{Name: "re", Members: sl.StringDict{
		// search: the groups of the first match (0 is the whole), or None.
		"search": member("search", func(r *regexp.Regexp, s, _ string, _ int) sl.Value {
			return groups(s, r.FindStringSubmatchIndex(s))
		}),
		// match: the same, anchored at the start.
		"match": member("match", func(r *regexp.Regexp, s, _ string, _ int) sl.Value {
			at := r.FindStringSubmatchIndex(s)
			if at != nil && at[0] != 0 {
				// A later alternative may match at 0 where the leftmost doesn't
				// begin there: it would have been leftmost. So there is none.
				at = nil
			}
			return groups(s, at)
		}),
		"findall": member("findall", func(r *regexp.Regexp, s, _ string, _ int) sl.Value {
			if r.NumSubexp() == 0 {
				return texts(r.FindAllString(s, -1))
			}
			var out []sl.Value
			for _, at := range r.FindAllStringSubmatchIndex(s, -1) {
				g := groups(s, at).(sl.Tuple)[1:]
				if len(g) == 1 {
					out = append(out, g[0])
				} else {
					out = append(out, g)
				}
			}
			return sl.NewList(out)
		}),
		"sub":   member("sub", func(r *regexp.Regexp, s, repl string, _ int) sl.Value { return sl.String(r.ReplaceAllString(s, repl)) }),
		"split": member("split", func(r *regexp.Regexp, s, _ string, n int) sl.Value { return texts(r.Split(s, n)) }),
		"escape": pureBuiltin("re.escape", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var s string
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "s", &s); err != nil {
				return nil, err
			}
			return sl.String(regexp.QuoteMeta(s)), nil
		}),
	}}
}

// statsModule exposes rules/stats. All figures but the p of
// fisher and boschloo, which are compared with alpha, are rounded to six decimals,
// so that scorecards are the same bytes on every machine.
func statsModule() *starlarkstruct.Module {
	pair := func(lo, hi float64) sl.Value { return sl.Tuple{number(lo), number(hi)} }
	interval := func(name string, f func(k, n int, confidence float64) (float64, float64, error)) *sl.Builtin {
		return pureBuiltin("stats."+name, 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var k, n int
			confidence := floatArg(0.95)
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "k", &k, "n", &n, "confidence?", &confidence); err != nil {
				return nil, err
			}
			lo, hi, err := f(k, n, float64(confidence))
			if err != nil {
				return nil, fmt.Errorf("%s: %v", b.Name(), err)
			}
			return pair(lo, hi), nil
		})
	}
	table := func(name string, f func(a, b, c, d int) (float64, error)) *sl.Builtin {
		return pureBuiltin("stats."+name, 1, func(_ *sl.Thread, bi *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var a, b, c, d int
			if err := sl.UnpackArgs(bi.Name(), args, kwargs, "a", &a, "b", &b, "c", &c, "d", &d); err != nil {
				return nil, err
			}
			p, err := f(a, b, c, d)
			if err != nil {
				return nil, fmt.Errorf("%s: %v", bi.Name(), err)
			}
			return sl.Float(p), nil // not rounded: it is compared with alpha
		})
	}
	list := func(name string, f func([]float64) (sl.Value, error)) *sl.Builtin {
		return pureBuiltin("stats."+name, 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var xs sl.Iterable
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "xs", &xs); err != nil {
				return nil, err
			}
			floats, err := floatList(xs)
			if err != nil {
				return nil, fmt.Errorf("%s: %v", b.Name(), err)
			}
			v, err := f(floats)
			if err != nil {
				return nil, fmt.Errorf("%s: %v", b.Name(), err)
			}
			return v, nil
		})
	}
	scalar := func(f func([]float64) (float64, error)) func([]float64) (sl.Value, error) {
		return func(xs []float64) (sl.Value, error) {
			x, err := f(xs)
			return number(x), err
		}
	}
	return &starlarkstruct.Module{Name: "stats", Members: sl.StringDict{
		"wilson":          interval("wilson", stats.Wilson),
		"clopper_pearson": interval("clopper_pearson", stats.ClopperPearson),
		"fisher":          table("fisher", stats.Fisher),
		"boschloo":        table("boschloo", stats.Boschloo),
		"newcombe": pureBuiltin("stats.newcombe", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var k1, n1, k2, n2 int
			confidence := floatArg(0.95)
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "k1", &k1, "n1", &n1, "k2", &k2, "n2", &n2, "confidence?", &confidence); err != nil {
				return nil, err
			}
			d, lo, hi, err := stats.NewcombeDifference(k1, n1, k2, n2, float64(confidence))
			if err != nil {
				return nil, fmt.Errorf("%s: %v", b.Name(), err)
			}
			return sl.Tuple{number(d), number(lo), number(hi)}, nil
		}),
		"holm": list("holm", func(ps []float64) (sl.Value, error) {
			var out []sl.Value
			for _, p := range stats.Holm(ps) {
				out = append(out, number(p))
			}
			return sl.NewList(out), nil
		}),
		"e_value": pureBuiltin("stats.e_value", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var k, n int
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "k", &k, "n", &n); err != nil {
				return nil, err
			}
			if k < 0 || k > n {
				return nil, fmt.Errorf("%s: k = %d is not in 0…%d", b.Name(), k, n)
			}
			return number(stats.EValue(k, n)), nil
		}),
		"needs_n": pureBuiltin("stats.needs_n", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var p1, p2 floatArg
			power, alpha := floatArg(0.8), floatArg(0.05)
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "p1", &p1, "p2", &p2, "power?", &power, "alpha?", &alpha); err != nil {
				return nil, err
			}
			if n, ok := stats.NeedsN(float64(p1), float64(p2), float64(power), float64(alpha), 2000); ok {
				return sl.MakeInt(n), nil
			}
			return sl.None, nil
		}),
		"needs_equivalent": pureBuiltin("stats.needs_equivalent", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var rate, margin floatArg
			power, alpha := floatArg(0.8), floatArg(0.05)
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "rate", &rate, "margin", &margin, "power?", &power, "alpha?", &alpha); err != nil {
				return nil, err
			}
			if n, ok := stats.NeedsEquivalent(float64(rate), float64(margin), float64(power), float64(alpha), 100_000); ok {
				return sl.MakeInt(n), nil
			}
			return sl.None, nil
		}),
		"smallest_fisher_p": pureBuiltin("stats.smallest_fisher_p", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var n int
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "n", &n); err != nil {
				return nil, err
			}
			return number(stats.SmallestFisherP(n)), nil
		}),
		"significant": pureBuiltin("stats.significant", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var p, alpha floatArg
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "p", &p, "alpha", &alpha); err != nil {
				return nil, err
			}
			return sl.Bool(stats.Significant(float64(p), float64(alpha))), nil
		}),
		"round": pureBuiltin("stats.round", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var x floatArg
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "x", &x); err != nil {
				return nil, err
			}
			return number(float64(x)), nil
		}),
		"mean":   list("mean", scalar(stats.Mean)),
		"median": list("median", scalar(stats.Median)),
		"stddev": list("stddev", scalar(stats.StdDev)),
	}}
}

// A floatArg takes ints too: JSON makes 1.0 an int.
type floatArg float64

func (f *floatArg) Unpack(v sl.Value) error {
	x, ok := sl.AsFloat(v)
	if !ok {
		return fmt.Errorf("got %s, want a number", v.Type())
	}
	*f = floatArg(x)
	return nil
}

// number rounds to six decimals.
func number(x float64) sl.Value { return sl.Float(stats.Round(x)) }

func floatList(xs sl.Iterable) ([]float64, error) {
	var out []float64
	for x := range sl.Elements(xs) {
		f, ok := sl.AsFloat(x)
		if !ok {
			return nil, fmt.Errorf("numbers are meant; the list holds a %s", x.Type())
		}
		out = append(out, f)
	}
	return out, nil
}
