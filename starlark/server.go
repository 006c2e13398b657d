package starlark

import (
	"fmt"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// An ownValue is native.world or native.play: a program that comes with the
// harness, as the executable of a run or of its server.
type ownValue struct {
	opaque
	name string
}

func (v ownValue) tool() graph.Tool {
	return graph.Tool{Label: graph.Label{Repo: "eval", Name: v.name}, Own: v.name}
}

// A serverValue is native.server(executable, arguments, inputs, outputs, port):
// what runs beside a run, see graph.Server. inputs maps paths below /in to files:
// no label is in them, so that what is done for one target is done for all.
// outputs maps paths below its working directory to declared files.
type serverValue struct {
	opaque
	program         ownValue
	arguments       sl.Iterable
	inputs, outputs *sl.Dict
	port            int
}

func nativeServer(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	s := serverValue{opaque: opaque{"server"}}
	var program sl.Value
	err := sl.UnpackArgs(b.Name(), args, kwargs, "executable", &program, "arguments", &s.arguments, "inputs", &s.inputs, "outputs", &s.outputs, "port", &s.port)
	if err != nil {
		return nil, err
	}
	var ok bool
	if s.program, ok = program.(ownValue); !ok {
		return nil, fmt.Errorf("%s: executable: native.world or native.play is meant, not %s", b.Name(), aValue(program))
	}
	return s, nil
}

// takeServer makes a run one that has a server beside it; its seal and its
// environment are taken already.
func (c *analysis) takeServer(a *graph.Action, v sl.Value) error {
	if v == nil || v == sl.None {
		return nil
	}
	s, ok := v.(serverValue)
	if !ok {
		return fmt.Errorf("server: native.server(…) is meant, not %s", aValue(v))
	}
	forward, err := graph.ParseForward(s.port, graph.ServerTarget)
	if err != nil {
		return fmt.Errorf("server: %v", err)
	}
	if slices.ContainsFunc(a.Policy.Forward, func(f graph.Forward) bool { return f.Port == forward.Port }) {
		return fmt.Errorf("server: port %d of the seal's forward is where the world is; take another one", s.port)
	}
	a.Policy.Forward = append(slices.Clone(a.Policy.Forward), forward)
	graph.SortForward(a.Policy.Forward)
	url := fmt.Sprintf("%s=http://127.0.0.1:%d", graph.ServerURL, s.port)
	if slices.ContainsFunc(a.Env, func(e string) bool { return strings.HasPrefix(e, graph.ServerURL+"=") }) {
		return fmt.Errorf("server: env sets %s, which says where the world is", graph.ServerURL)
	}
	a.Env = append(a.Env, url)
	slices.Sort(a.Env)
	a.Server = &graph.Server{
		Program: s.program.name,
		Port:    forward.Port,
		Policy:  graph.Policy{Unsealed: a.Policy.Unsealed, Limits: graph.ServerLimits(a.Policy.Limits)},
	}
	at := map[*graph.File]string{}
	for k, v := range s.inputs.Entries() {
		name, ok := sl.AsString(k)
		if _, err := graph.ParseLabel(":"+name, graph.Label{}); !ok || err != nil {
			return fmt.Errorf("server: inputs maps paths below /in to files; %s is no such path", aValue(k))
		}
		f, ok := v.(fileValue)
		if !ok {
			return fmt.Errorf("server: inputs[%q]: a file is meant, not %s", name, aValue(v))
		}
		at[f.file] = graph.RootMark + "/in/" + name
		i, _ := findInput(a, graph.ServerDir+"in/"+name)
		a.Inputs = slices.Insert(a.Inputs, i, graph.Input{Name: graph.ServerDir + "in/" + name, File: f.file})
	}
	for i, v := range elements(s.arguments) {
		s, err := serverWord(at, v)
		if err != nil {
			return fmt.Errorf("server: arguments[%d]: %v", i, err)
		}
		a.Server.Args = append(a.Server.Args, s)
	}
	for k, v := range s.outputs.Entries() {
		name, ok := sl.AsString(k)
		if _, err := graph.ParseLabel(":"+name, graph.Label{}); !ok || err != nil {
			return fmt.Errorf("server: outputs maps paths below its working directory to declared files; %s is no such path", aValue(k))
		}
		if err := c.output(v, a, graph.ServerDir+name); err != nil {
			return fmt.Errorf("server: %v", err)
		}
		a.Outputs[len(a.Outputs)-1].Format = graph.FormatFile
	}
	return nil
}

// serverWord is one argument of a server: a string, one of its files, or a tuple
// of these joined.
func serverWord(at map[*graph.File]string, v sl.Value) (string, error) {
	switch v := v.(type) {
	case sl.String:
		return string(v), checkWord(string(v))
	case fileValue:
		if at[v.file] == "" {
			return "", fmt.Errorf("%s is none of its inputs", v.file.Slash())
		}
		return at[v.file], nil
	case sl.Tuple:
		var b strings.Builder
		for _, x := range v {
			s, err := serverWord(at, x)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("a string, a file or a tuple of these is meant, not %s", aValue(v))
}
