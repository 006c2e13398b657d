package world

import "github.com/evalbuild/eval/starlark"

// Definitions are portable texts, which actions have written.
var (
	openPortable = starlark.OpenPortable
	callPortable = starlark.CallPortable
)
