package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace"
	"github.com/evalbuild/eval/workspace/draws"
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
		drawing, err := removeOut(out)
		if err != nil {
			return failf(exitInfra, "clean: %v", err)
		}
		if drawing {
			fmt.Fprintln(stdout, "eval-out is emptied, but for the locks of a build that is drawing; `ev build` restores it from the store")
			return nil
		}
		fmt.Fprintln(stdout, "eval-out is removed; `ev build` restores it from the store")
		return nil
	})
}

// removeOut removes the output folder, but no lock of a run that lives: others
// would take its reps for abandoned, and draw them a second time.
func removeOut(out string) (drawing bool, err error) {
	entries, err := os.ReadDir(out)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	for _, e := range entries {
		if e.Name() == runsName && e.IsDir() {
			continue
		}
		if err := os.RemoveAll(filepath.Join(out, e.Name())); err != nil {
			return false, err
		}
	}
	runs := filepath.Join(out, runsName)
	draws.Sweep(runs)
	for _, dir := range []string{runs, out} {
		// Not RemoveAll: a run may begin at any time.
		if err := os.Remove(dir); errors.Is(err, unix.ENOTEMPTY) || errors.Is(err, unix.EEXIST) {
			return true, nil
		} else if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return false, err
		}
	}
	return false, nil
}
