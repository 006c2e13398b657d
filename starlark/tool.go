package starlark

import (
	"fmt"

	"github.com/evalbuild/eval/workspace/graph"
)

// A DeclaredTool is a target that actions can run.
type DeclaredTool struct {
	graph.Tool
	File *graph.File // the program, if it is one of the build, else nil
}

// Tool gives what actions get of a target that was analysed, nil if it is no
// tool.
func (t *Target) Tool() (*DeclaredTool, error) {
	if t.Result == nil || t.Result.providers[toolInfo] == nil {
		return nil, nil
	}
	var a graph.Action
	if err := addTool(&a, targetValue{dep: dep{label: t.Label, target: t}}); err != nil {
		return nil, &Error{Pos: t.Pos, Msg: fmt.Sprintf("%s %s: %v", t.Kind, t.Label, err)}
	}
	d := &DeclaredTool{Tool: a.Tools[0]}
	if i, found := findInput(&a, d.Input); found {
		d.File = a.Inputs[i].File
	}
	return d, nil
}
