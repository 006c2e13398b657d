package workspace

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

// Options are what Open can't find on disk.
type Options struct {
	StatCache string           // the file that keeps digests; "" is none
	Version   string           // of this eval, "0.1.2"; "" fits every module
	Now       func() time.Time // nil is time.Now
}

// A Workspace is an open root with its module and dependencies.
type Workspace struct {
	module Module
	trees  map[string]*tree // by repository; "" is the root
	stats  *statCache
}

// Find gives the folder with MODULE.star at or above dir, as an absolute path.
func Find(dir string) (string, error) {
	start, err := filepath.Abs(dir)
	if err != nil {
		return "", &fault{op: "find workspace", object: dir, cause: bare(err)}
	}
	if info, err := os.Stat(start); err != nil {
		return "", &fault{op: "find workspace", object: dir, cause: bare(err)}
	} else if !info.IsDir() {
		return "", &fault{op: "find workspace", object: dir, cause: errors.New("not a folder")}
	}
	var looked []string
	for at := start; ; at = filepath.Dir(at) {
		found, err := hasModule(at)
		if err != nil {
			return "", &fault{op: "find workspace", object: dir, cause: err}
		}
		if found {
			return at, nil
		}
		looked = append(looked, at)
		if at == filepath.Dir(at) {
			break
		}
	}
	return "", &fault{
		op: "find workspace", object: dir,
		cause: said{"no " + ModuleFile + " in " + strings.Join(looked, ", "), fs.ErrNotExist},
		hint:  `write ` + ModuleFile + ` at the root of your project: module(name = "my_evals")`,
	}
}

// hasModule reports whether a folder is the root of a workspace. A MODULE.star
// that can't be one is an error: taking a folder above for the root instead
// would be a surprise.
func hasModule(dir string) (bool, error) {
	name := filepath.Join(dir, ModuleFile)
	if _, err := os.Lstat(name); errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	info, err := os.Stat(name)
	switch {
	case err != nil:
		return false, fmt.Errorf("%s: %w", name, bare(err))
	case info.IsDir():
		return false, fmt.Errorf("%s is a directory, a file is meant", name)
	case !info.Mode().IsRegular():
		return false, fmt.Errorf("%s is not a regular file", name)
	}
	return true, nil
}

// Open reads MODULE.star in root and checks that its dependencies are there.
func Open(root string, o Options) (*Workspace, error) {
	abs, err := filepath.Abs(root)
	if err != nil {
		return nil, &fault{op: "open workspace", object: root, cause: bare(err)}
	}
	found, err := hasModule(abs)
	if err == nil && !found {
		err = said{"no " + ModuleFile + " in it", fs.ErrNotExist}
	}
	if err != nil {
		return nil, &fault{op: "open workspace", object: root, cause: err}
	}
	top, err := openTree("", abs)
	if err != nil {
		return nil, &fault{op: "open workspace", object: root, cause: bare(err)}
	}
	w := &Workspace{trees: map[string]*tree{"": top}}
	if err := w.declare(o); err != nil {
		w.Close()
		return nil, err
	}
	now := o.Now
	if now == nil {
		now = time.Now
	}
	w.stats = &statCache{file: o.StatCache, fn: w.module.Digest, root: abs, now: now}
	return w, nil
}

// declare evaluates MODULE.star and opens the dependencies.
func (w *Workspace) declare(o Options) error {
	top := w.trees[""]
	f, err := top.open("read", ModuleFile)
	if err != nil {
		return err
	}
	defer f.Close()
	src, err := io.ReadAll(io.LimitReader(f, maxModuleBytes+1))
	if err == nil && len(src) > maxModuleBytes {
		err = fmt.Errorf("more than %d KiB", maxModuleBytes>>10)
	}
	if err != nil {
		return &fault{op: "read", object: ModuleFile, cause: bare(err)}
	}
	m, err := parseModule(src, o.Version)
	if err != nil {
		return err
	}
	w.module = m.module
	for i, d := range w.module.Dependencies {
		t, err := openDependency(top.path, d)
		if err != nil {
			return &moduleError{
				pos:  m.paths[i],
				text: fmt.Sprintf("dependency: %q: path = %q: %v", d.Name, d.Path, err), cause: err,
				hint: "a path is relative to the root of this workspace, " + top.path,
			}
		}
		w.trees[d.Name] = t
	}
	return nil
}

func openDependency(root string, d Dependency) (*tree, error) {
	dir := filepath.Join(root, filepath.FromSlash(d.Path))
	if dir == root {
		return nil, errors.New("this is the workspace itself")
	}
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, said{"no such folder", err}
	case err != nil:
		return nil, bare(err)
	case !info.IsDir():
		return nil, errors.New("not a folder")
	}
	found, err := hasModule(dir)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, said{"the folder has no " + ModuleFile, fs.ErrNotExist}
	}
	t, err := openTree(d.Name, dir)
	return t, bare(err)
}

// Close lets go of the roots. It doesn't save the stat cache.
func (w *Workspace) Close() error {
	var errs []error
	for _, t := range w.trees {
		errs = append(errs, t.close())
	}
	return errors.Join(errs...)
}

// Module gives what MODULE.star declares. Its slices are not to be changed.
func (w *Workspace) Module() Module { return w.module }

// Canonical gives "" for the name of the workspace's own module, and every
// other repository as it is, also an unknown one.
func (w *Workspace) Canonical(repo string) string {
	if repo == w.module.Name {
		return ""
	}
	return repo
}

// Root gives the absolute path of a repository's folder.
func (w *Workspace) Root(repo string) (string, error) {
	t, err := w.tree(repo)
	if err != nil {
		return "", err
	}
	return t.path, nil
}

func (w *Workspace) tree(repo string) (*tree, error) {
	if t := w.trees[w.Canonical(repo)]; t != nil {
		return t, nil
	}
	if repo == builtin {
		return nil, &fault{op: "find module", object: "@" + repo, cause: errors.New("its rules are in the binary, not in a folder")}
	}
	var names []string
	for name := range w.trees {
		if name != "" {
			names = append(names, name)
		}
	}
	if w.module.Name != "" {
		names = append(names, w.module.Name)
	}
	slices.Sort(names)
	return nil, &fault{
		op: "find module", object: "@" + repo,
		cause: errors.New("no such module" + graph.DidYouMean(repo, append(names, builtin))),
		hint: fmt.Sprintf("declare it in %s: dependency(name = %q, path = \"../%s\"); "+
			"the dependencies of a dependency are not followed", ModuleFile, repo, repo),
	}
}
