package main

import (
	"net/http"

	"github.com/evalbuild/eval/rules/world"
	"github.com/evalbuild/eval/rules/world/mcp"
)

// toolServer gives the agent the act's operations through MCP.
func toolServer(act *world.Act) (http.Handler, error) {
	var ops []mcp.Operation
	for _, op := range act.Operations() {
		tool := mcp.Operation{Name: op.Name, Pattern: op.Pattern, Variables: op.Variables, Doc: op.Doc}
		for _, p := range op.Params {
			tool.Params = append(tool.Params, mcp.Param(p))
		}
		ops = append(ops, tool)
	}
	return mcp.New(ops, act)
}
