package main

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

// shims are the verbs that `eval VERB …` reaches in a shell: the shell's own
// eval runs its arguments as a command, so `eval build //x` runs `build //x`.
var shims = []string{"build", "plan"}

func shellenvCommand() *cli.Command {
	return verb("shellenv", "shell code that makes `eval build //…` work where eval is a builtin", "", nil, func(_ *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("shellenv takes no arguments")
		}
		exe, err := os.Executable()
		if err != nil {
			return failf(exitInfra, "shellenv: %v", err)
		}
		_, data, err := storeRoots(s)
		if err != nil {
			return err
		}
		dir := filepath.Join(data, "shims")
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return failf(exitInfra, "shellenv: %v", err)
		}
		for _, name := range shims {
			script := fmt.Sprintf("#!/bin/sh\nexec %s %s \"$@\"\n", shellQuote(exe), name)
			if err := writeShim(filepath.Join(dir, name), script); err != nil {
				return failf(exitInfra, "shellenv: %v", err)
			}
		}
		fmt.Fprintf(stdout, "export PATH=%s:\"$PATH\"\n", shellQuote(dir))
		return nil
	})
}

// writeShim replaces a shim in one step, so that another shell never runs half
// of one.
func writeShim(path, script string) error {
	if old, err := os.ReadFile(path); err == nil && string(old) == script {
		return nil
	}
	return replaceFile(path, []byte(script), 0o755)
}

// replaceFile gives a file its content in one step.
func replaceFile(path string, data []byte, mode fs.FileMode) error {
	tmp, err := os.CreateTemp(filepath.Dir(path), ".eval-tmp-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(data)
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Chmod(tmp.Name(), mode)
	}
	if err == nil {
		err = os.Rename(tmp.Name(), path)
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

func shellQuote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
