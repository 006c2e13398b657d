package starlark

import (
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"time"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// sealInfo is what makes a target a seal: a policy, which only native.policy
// makes, and variables that every run under it has.
var sealInfo = builtinProvider("SealInfo", "policy", "env")

// A policyValue is a graph.Policy in the language.
type policyValue struct {
	opaque
	policy graph.Policy
}

// takeSeal sets the action's policy: that of the target v, or without one the
// default, which has no network. It returns the seal's variables.
func (c *analysis) takeSeal(a *graph.Action, v sl.Value) (map[string]string, error) {
	policy := graph.Policy{Limits: graph.DefaultLimits}
	env := map[string]string{}
	if v != nil && v != sl.None {
		t, ok := v.(targetValue)
		if !ok {
			return nil, fmt.Errorf("seal: a target of the rule seal is meant, not %s", aValue(v))
		}
		in := t.provider(sealInfo)
		if in == nil {
			return nil, fmt.Errorf("seal: %s is a %s, which is no seal", t.dep.label, t.kind())
		}
		p, ok := in.field("policy").(policyValue)
		if !ok {
			return nil, fmt.Errorf("seal: %s: SealInfo.policy is none that the rule seal has made", t.dep.label)
		}
		policy = p.policy
		var err error
		if env, err = envOf(in.field("env")); err != nil {
			return nil, fmt.Errorf("seal: %s: %v", t.dep.label, err)
		}
	}
	policy.Unsealed = c.loader.opts.Unsealed
	a.Policy = &policy
	return env, nil
}

// envOf checks a dict of variables.
func envOf(v sl.Value) (map[string]string, error) {
	env := map[string]string{}
	d, ok := v.(*sl.Dict)
	if v == sl.None {
		return env, nil
	}
	if !ok {
		return nil, fmt.Errorf("env is a dict of strings, not %s", aValue(v))
	}
	for k, v := range d.Entries() {
		name, ok := sl.AsString(k)
		value, ok2 := sl.AsString(v)
		if !ok || !ok2 {
			return nil, fmt.Errorf("env maps strings to strings, not %s to %s", k.Type(), v.Type())
		}
		if err := checkEnvName(name); err != nil {
			return nil, fmt.Errorf("env: %v", err)
		}
		if err := checkWord(value); err != nil {
			return nil, fmt.Errorf("env[%q] %v", name, err)
		}
		env[name] = value
	}
	return env, nil
}

// nativePolicy is native.policy(network, forward, memory, processes, wall,
// scratch, output, env): what a seal allows, with an error for what can't be
// meant.
func nativePolicy(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var network, processes, memory, wall, scratch, output, env sl.Value
	var forward *sl.Dict
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "network", &network, "forward", &forward, "memory", &memory, "processes", &processes,
		"wall", &wall, "scratch", &scratch, "output", &output, "env", &env); err != nil {
		return nil, err
	}
	v := policyValue{opaque: opaque{"policy"}}
	var err error
	if v.policy.Network, err = endpoints(network); err != nil {
		return nil, fmt.Errorf("network: %v", err)
	}
	if v.policy.Forward, err = forwards(forward); err != nil {
		return nil, err
	}
	l := &v.policy.Limits
	for _, f := range []struct {
		name  string
		value sl.Value
		to    *int64
	}{{"memory", memory, &l.Memory}, {"scratch", scratch, &l.Scratch}, {"output", output, &l.Output}} {
		if *f.to, err = parseSize(f.value); err != nil {
			return nil, fmt.Errorf("%s: %v", f.name, err)
		}
	}
	if l.Processes, err = parseCount(processes); err != nil {
		return nil, fmt.Errorf("processes: %v", err)
	}
	if l.Wall, err = parseWall(wall); err != nil {
		return nil, fmt.Errorf("wall: %v", err)
	}
	_, err = envOf(env)
	return v, err
}

// endpoints reads the allowed hosts, sorted, each once.
func endpoints(v sl.Value) ([]graph.Endpoint, error) {
	list, err := stringList(v)
	if err != nil {
		return nil, err
	}
	if _, ok := v.(sl.String); ok {
		return nil, fmt.Errorf("a list of strings is meant, not string")
	}
	ports := map[string][]uint16{}
	for _, s := range list {
		e, err := graph.ParseEndpoint(s)
		if err != nil {
			return nil, err
		}
		ports[e.Host] = append(ports[e.Host], e.Ports...)
	}
	var out []graph.Endpoint
	for host, p := range ports {
		slices.Sort(p)
		out = append(out, graph.Endpoint{Host: host, Ports: slices.Compact(p)})
	}
	slices.SortFunc(out, func(a, b graph.Endpoint) int { return strings.Compare(a.Host, b.Host) })
	return out, nil
}

// forwards reads {port: "HOST:PORT"}, sorted by port.
func forwards(d *sl.Dict) ([]graph.Forward, error) {
	var out []graph.Forward
	for k, v := range d.Entries() {
		port, err := sl.AsInt32(k)
		target, ok := sl.AsString(v)
		if err != nil || !ok {
			return nil, fmt.Errorf("forward maps ports to targets, as in {8080: \"127.0.0.1:11434\"}, not %s to %s", aValue(k), aValue(v))
		}
		f, err := graph.ParseForward(port, target)
		if err == nil && target == graph.ServerTarget {
			err = fmt.Errorf("forward %d: %q is no HOST:PORT", port, target)
		}
		if err != nil {
			return nil, err
		}
		out = append(out, f)
	}
	graph.SortForward(out)
	return out, nil
}

var sizeUnits = []struct {
	name  string
	bytes int64
}{{"KiB", 1 << 10}, {"MiB", 1 << 20}, {"GiB", 1 << 30}, {"TiB", 1 << 40}}

// parseSize reads "1GiB", "512MiB", "64KiB" or a number of bytes.
func parseSize(v sl.Value) (int64, error) {
	meant := fmt.Errorf("a size is written \"1GiB\", \"512MiB\", \"64KiB\", or as a number of bytes, not %s", showValue(v, 60))
	if i, ok := v.(sl.Int); ok {
		n, ok := i.Int64()
		if !ok || n < 1 {
			return 0, meant
		}
		return n, nil
	}
	s, ok := sl.AsString(v)
	if !ok {
		return 0, meant
	}
	unit := int64(1)
	for _, u := range sizeUnits {
		if rest, ok := strings.CutSuffix(s, u.name); ok {
			s, unit = rest, u.bytes
			break
		}
	}
	n, err := parseDigits(s)
	if err != nil || n < 1 || n > math.MaxInt64/unit {
		return 0, meant
	}
	return n * unit, nil
}

// parseDigits reads a number without sign, space or leading zeros.
func parseDigits(s string) (int64, error) {
	if s == "" || s[0] < '1' || s[0] > '9' {
		return 0, fmt.Errorf("no number")
	}
	return strconv.ParseInt(s, 10, 64)
}

// maxProcesses is a quarter of what Linux can number: a group can't have more
// than that.
const maxProcesses = 1 << 20

func parseCount(v sl.Value) (int64, error) {
	i, ok := v.(sl.Int)
	n, ok2 := i.Int64()
	if !ok || !ok2 || n < 1 || n > maxProcesses {
		return 0, fmt.Errorf("a number from 1 to %d is meant, not %s", maxProcesses, showValue(v, 60))
	}
	return n, nil
}

// maxWall is a bound against slips of the pen.
const maxWall = 7 * 24 * time.Hour

// parseWall reads "120s", "2m" or "1h30m".
func parseWall(v sl.Value) (time.Duration, error) {
	s, ok := sl.AsString(v)
	d, err := time.ParseDuration(s)
	if !ok || err != nil || strings.ContainsAny(s, "+-.µnu ") || d < time.Millisecond {
		return 0, fmt.Errorf("a time is written \"120s\", \"2m\" or \"1h30m\", not %s", showValue(v, 60))
	}
	if d > maxWall {
		return 0, fmt.Errorf("%s is longer than a week", s)
	}
	return d, nil
}
