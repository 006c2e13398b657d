package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
)

// version is that of this eval; MODULE.star's eval = ">=…" is compared with it.
const version = "0.1.0"

func versionCommand() *cli.Command {
	return verb("version", "the version of eval and of the language", "", nil, func(_ *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("version takes no arguments")
		}
		fmt.Fprintf(stdout, "eval %s %s/%s\n", version, runtime.GOOS, runtime.GOARCH)
		fmt.Fprintf(stdout, "language: %s\n", starlark.Semantics)
		return nil
	})
}
