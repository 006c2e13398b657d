package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace"
)

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
		fmt.Fprintln(stdout, "eval-out is removed; `ev build` restores it from the store")
		return nil
	})
}
