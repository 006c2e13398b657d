package agent

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A Definition is a scripted agent, as its agent.star says.
type Definition struct {
	Script  sl.Value // function(task, call); None only with the profile no_calls
	Profile string
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
	o := wire.Open("root", root)
	o.Only("script", "profile", "task", "request")
	d := &Definition{
		Script:  o.Value("script"),
		Profile: o.String("profile"),
		Task:    o.String("task"),
		Request: o.Object("request").Dict(),
	}
	if o.Err() == nil {
		var known bool
		if d.does, known = profiles[d.Profile]; !known {
			o.Failf("profile", "no profile %q; there are %s", d.Profile, strings.Join(slices.Sorted(maps.Keys(profiles)), ", "))
		}
		if _, callable := d.Script.(sl.Callable); !callable && !d.does.idle {
			o.Failf("script", "a function is meant, not %s", d.Script.Type())
		}
	}
	if err := o.Err(); err != nil {
		return nil, fmt.Errorf("open %s: %w", name, err)
	}
	return d, nil
}
