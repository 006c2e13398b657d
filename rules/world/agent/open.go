package agent

import "github.com/evalbuild/eval/starlark"

// Scripts are portable texts, which actions have written.
var (
	openPortable = starlark.OpenPortable
	callPortable = starlark.CallPortable
)
