package main

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace"
)

// version is that of this eval; MODULE.star's eval = ">=…" is compared with it.
const version = "0.1.0"

func versionCommand() *cli.Command {
	return verb("version", "the version of eval and of the language", "", nil, func(*cli.Context, *settings) error {
		fmt.Printf("eval %s %s/%s\n", version, runtime.GOOS, runtime.GOARCH)
		fmt.Printf("language: %s\n", starlark.Semantics)
		return nil
	})
}

func cleanCommand() *cli.Command {
	return verb("clean", "remove eval-out; the store keeps all results", "", nil, func(_ *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("clean takes no arguments: it removes all of eval-out")
		}
		cwd, err := os.Getwd()
		if err != nil {
			return failf(exitInfra, "%v", err)
		}
		root, err := workspace.Find(cwd)
		if err != nil {
			return userError(err)
		}
		out := filepath.Join(root, "eval-out")
		if fi, err := os.Lstat(out); err == nil && !fi.IsDir() {
			return failf(exitFailed, "clean: eval-out is no folder; it is left alone")
		}
		if err := os.RemoveAll(out); err != nil {
			return failf(exitInfra, "clean: %v", err)
		}
		fmt.Println("eval-out is removed; `ev build` restores it from the store")
		return nil
	})
}
