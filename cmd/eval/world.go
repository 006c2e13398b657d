package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

// findWorld finds eval-world beside the running binary, never through PATH.
func findWorld(tools engine.Tools) (graph.Mount, error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return graph.Mount{}, fmt.Errorf("find eval-world: %w", err)
	}
	p := filepath.Join(filepath.Dir(own), filepath.Base(graph.WorldProgram))
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real
	} else if errors.Is(err, os.ErrNotExist) {
		return graph.Mount{}, &worldError{p}
	}
	mounts, err := tools.Data(p)
	if err != nil {
		return graph.Mount{}, fmt.Errorf("find eval-world: %w", err)
	}
	for _, m := range mounts {
		if m.Path == p && m.Link == "" && m.Tree == nil && m.Executable {
			return m, nil
		}
	}
	return graph.Mount{}, fmt.Errorf("find eval-world: %s is no program", p)
}

// A worldError says that the program is not there.
type worldError struct{ path string }

func (e *worldError) Error() string {
	return fmt.Sprintf("find eval-world: %s: no such file; it comes with eval and is installed beside it", e.path)
}

func (e *worldError) Hints() []string {
	return []string{"`make install` installs both; a copied binary needs the other one beside it"}
}
