// Package rules carries the built-in rules, which are Starlark files, inside
// of the binary: in the workspace named eval @eval//rules:probe.star is the
// file beside this one, anywhere else it is the embedded copy.
package rules

import "embed"

// Files holds rules/*.star under their base names.
//
//go:embed *.star
var Files embed.FS
