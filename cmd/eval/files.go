package main

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules"
	"github.com/evalbuild/eval/workspace"
	"github.com/evalbuild/eval/workspace/graph"
)

// files is the workspace as the language sees it, with the built-in rules as
// the module @eval everywhere but in the workspace of that name.
type files struct{ *workspace.Workspace }

const builtinRepo = "eval"

func (f files) Canonical(repo string) (string, error) {
	repo = f.Workspace.Canonical(repo)
	if repo == "" || repo == builtinRepo {
		return repo, nil
	}
	_, err := f.Root(repo)
	return repo, err
}

func builtinName(rel string) (string, error) {
	name, ok := strings.CutPrefix(rel, "rules/")
	if !ok || strings.Contains(name, "/") {
		return "", fmt.Errorf("read @eval//%s: the built-in module has only @eval//rules:NAME.star", filepath.Dir(rel))
	}
	return name, nil
}

func (f files) ReadFile(repo, rel string) ([]byte, error) {
	if repo != builtinRepo {
		return f.ReadHead(repo, rel, maxStar+1) // the loader refuses more
	}
	name, err := builtinName(rel)
	if err != nil {
		return nil, err
	}
	data, err := rules.Files.ReadFile(name)
	if errors.Is(err, fs.ErrNotExist) {
		var names []string
		entries, _ := rules.Files.ReadDir(".")
		for _, e := range entries {
			names = append(names, e.Name())
		}
		return nil, fmt.Errorf("there is no built-in file %s%s", name, graph.DidYouMean(name, names))
	}
	return data, err
}

// maxStar is what the loader takes of one file.
const maxStar = 16 << 20

func (f files) ReadHead(repo, rel string, n int) ([]byte, error) {
	file, err := f.OpenFile(repo, rel)
	if err != nil {
		return nil, err
	}
	defer file.Close()
	return io.ReadAll(io.LimitReader(file, int64(n)))
}

func (f files) HasPackage(repo, pkg string) (bool, error) {
	if repo == builtinRepo {
		return false, nil
	}
	return f.Workspace.HasPackage(repo, pkg)
}

func (f files) IsFile(repo, rel string) error {
	if repo == builtinRepo {
		_, err := f.ReadFile(repo, rel)
		return err
	}
	return f.Workspace.IsFile(repo, rel)
}

// sources reads source files for the engine.
type sources files

func (s sources) Digest(l graph.Label) (cas.Digest, error) {
	return s.Workspace.Digest(l.Repo, l.Path())
}

func (s sources) Open(l graph.Label) (io.ReadCloser, error) {
	return s.Workspace.OpenFile(l.Repo, l.Path())
}

func (s sources) Executable(l graph.Label) (bool, error) {
	return s.Workspace.Executable(l.Repo, l.Path())
}
