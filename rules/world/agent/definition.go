package agent

import (
	"fmt"
	"maps"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/starlark"
)

// A Definition is a scripted agent, as its agent.star says.
type Definition struct {
	Script  sl.Callable // function(task, call); nil with the profile no_calls
	Task    string
	Request sl.Value // a dict

	does profile
}

// Open reads a portable file whose root is {"script", "profile", "task",
// "request"}. The name is for messages.
func Open(name string, text []byte) (*Definition, error) {
	root, err := starlark.OpenPortable(name, text)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	s := shape.Of("root", root)
	s.Members("script", "profile", "task", "request")
	d := &Definition{
		does:    profiles[s.At("profile").OneOf(slices.Sorted(maps.Keys(profiles))...)],
		Task:    s.At("task").Text(),
		Request: s.At("request").Dict(),
	}
	if !d.does.idle {
		d.Script = s.At("script").Function()
	}
	if err := s.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return d, nil
}
