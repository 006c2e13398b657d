package starlark

import (
	"encoding/json"
	"fmt"
	"math"

	sl "go.starlark.net/starlark"
)

// maxReported is how much is read of what a rep says of its usage.
const maxReported = 64 << 10

// maxUSD is what no rep costs: a program that says more says nothing.
const maxUSD = 1e6

// ReportedUSD is what a rep said that it cost, nil if it didn't.
func ReportedUSD(text []byte) *float64 {
	v, err := sl.Call(new(sl.Thread), sl.NewBuiltin("reported", reported), sl.Tuple{sl.String(text)}, nil)
	if err != nil {
		return nil
	}
	usd, _, _ := v.(*sl.Dict).Get(sl.String("usd"))
	if x, ok := usd.(sl.Float); ok {
		return (*float64)(&x)
	}
	return nil
}

// reported is native.reported(text): what a rep wrote about its usage, which may
// be anything: {"usd": number or None, "usage": {count: n}} of what can be taken
// from it. Counts are those of transcripts: input, cached_input, cache_write,
// output, reasoning.
func reported(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var text string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "text", &text); err != nil {
		return nil, err
	}
	var said map[string]json.RawMessage
	if len(text) <= maxReported {
		_ = json.Unmarshal([]byte(text), &said) // else nothing was said
	}
	number := func(name string) (x float64, ok bool) {
		raw, ok := said[name]
		return x, ok && raw[0] != 'n' && json.Unmarshal(raw, &x) == nil && x >= 0
	}
	usd := sl.Value(sl.None)
	if x, ok := number("usd"); ok && x <= maxUSD {
		usd = sl.Float(x)
	}
	counts := new(sl.Dict)
	for _, name := range []string{"input", "cached_input", "cache_write", "output", "reasoning"} {
		if x, ok := number(name); ok && x == math.Trunc(x) && x <= 1<<53 {
			if err := counts.SetKey(sl.String(name), sl.MakeInt64(int64(x))); err != nil {
				return nil, err
			}
		}
	}
	out := new(sl.Dict)
	if err := out.SetKey(sl.String("usd"), usd); err != nil {
		return nil, err
	}
	return out, out.SetKey(sl.String("usage"), counts)
}

// nativeNetwork is native.network(policy): the hosts that it allows, as seals
// write them.
func nativeNetwork(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var v sl.Value
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "policy", &v); err != nil {
		return nil, err
	}
	p, ok := v.(policyValue)
	if !ok {
		return nil, fmt.Errorf("%s: a policy is meant, not %s", b.Name(), v.Type())
	}
	var out []sl.Value
	for _, e := range p.policy.Network {
		out = append(out, sl.String(e.String()))
	}
	return sl.NewList(out), nil
}
