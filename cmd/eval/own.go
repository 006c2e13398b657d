package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

// findOwn finds a program beside the running one, never through PATH.
func findOwn(tools engine.Tools, name string) (graph.Mount, error) {
	own, err := os.Executable()
	if err == nil {
		own, err = filepath.EvalSymlinks(own)
	}
	if err != nil {
		return graph.Mount{}, fmt.Errorf("find %s: %w", name, err)
	}
	p := filepath.Join(filepath.Dir(own), name)
	if real, err := filepath.EvalSymlinks(p); err == nil {
		p = real
	} else if errors.Is(err, os.ErrNotExist) {
		return graph.Mount{}, &ownError{p}
	}
	mounts, err := tools.Data(p)
	if err != nil {
		return graph.Mount{}, fmt.Errorf("find %s: %w", name, err)
	}
	for _, m := range mounts {
		if m.Path == p && m.Link == "" && m.Tree == nil && m.Executable {
			return m, nil
		}
	}
	return graph.Mount{}, fmt.Errorf("find %s: %s is no program", name, p)
}

// An ownError says that a program is not there.
type ownError struct{ path string }

func (e *ownError) Error() string {
	return fmt.Sprintf("find %s: no such file; it comes with eval and is installed beside it", e.path)
}

func (e *ownError) Hints() []string {
	return []string{"`make install` installs them; a copied eval needs the others beside it"}
}
