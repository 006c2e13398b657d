package workspace

import (
	"errors"
	"io/fs"
	"slices"
	"unicode/utf8"
)

// Glob gives the files of a package that match a pattern of include and none of
// exclude, as slash paths relative to the package, sorted, each once.
//
// In a pattern, * and ? match within a segment, [a-z] is a class, ** stands for
// any number of folders (at the end: for all that is below). A name that begins
// with a dot is matched only by a segment that begins with one.
//
// Files only; a symbolic link to a file below the root is one, a link to a
// folder is not, and a link that is dangling or leaves the root is an error if
// it matches. BUILD.star never matches. Glob enters no other package, no
// nested workspace, and not the root's eval-out.
func (w *Workspace) Glob(repo, pkg string, include, exclude []string) ([]string, error) {
	const op = "glob in"
	t, err := w.tree(repo)
	if err != nil {
		return nil, err
	}
	if err := checkPath(pkg); err != nil {
		return nil, t.fail(op, pkg, err)
	}
	g := globber{tree: t, pkg: pkg}
	if g.include, err = parsePatterns(include); err != nil {
		return nil, t.fail(op, pkg, err)
	}
	if g.exclude, err = parsePatterns(exclude); err != nil {
		return nil, t.fail(op, pkg, err)
	}
	l, err := t.reach(pkg)
	if err != nil {
		return nil, t.fail(op, pkg, err)
	}
	for _, p := range g.include {
		g.dotted = g.dotted || slices.ContainsFunc(p, func(s segment) bool { return s.dotted })
	}
	if err := g.walk(pkg, "", l, start(g.include), start(g.exclude)); err != nil {
		return nil, err
	}
	slices.Sort(g.found) // the walk's order is by folder: a/b before a-b
	return g.found, nil
}

func parsePatterns(texts []string) ([]pattern, error) {
	out := make([]pattern, len(texts))
	for i, s := range texts {
		var err error
		if out[i], err = parsePattern(s); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// globber is one call of Glob. It walks the folders once for all patterns.
type globber struct {
	*tree
	pkg              string
	include, exclude []pattern
	dotted           bool // some include can match a name that begins with a dot
	found            []string
}

// walk visits the folder dir, which is rel below the package.
func (g *globber) walk(dir, rel string, l *listing, in, ex states) error {
	for _, e := range l.entries {
		if e.mode.IsDir() {
			if err := g.enter(dir, rel, e, in, ex); err != nil {
				return err
			}
			continue
		}
		if e.name == BuildFile || !in.matches(g.include, e.name) || ex.matches(g.exclude, e.name) {
			continue
		}
		file := join(dir, e.name)
		switch {
		case e.mode&fs.ModeSymlink != 0:
			isFile, err := g.linkToFile(file)
			if err != nil {
				return g.fail("glob", file, err)
			}
			if !isFile {
				continue
			}
		case !e.mode.IsRegular():
			continue
		}
		if !utf8.ValidString(e.name) {
			return g.fail("glob", file, errors.New("the name is not valid UTF-8"))
		}
		g.found = append(g.found, join(rel, e.name))
	}
	return nil
}

func (g *globber) enter(dir, rel string, e entry, in, ex states) error {
	if dir == "" && e.name == outputs {
		return nil
	}
	in, left := in.enter(g.include, e.name)
	if !left {
		return nil
	}
	ex, _ = ex.enter(g.exclude, e.name)
	if !g.dotted && ex.all(g.exclude) {
		return nil // node_modules/** need not be read to be excluded
	}
	sub := join(dir, e.name)
	l, err := g.list(sub)
	if err != nil {
		return g.fail("glob", sub, err)
	}
	if l.pkg || l.module {
		return nil
	}
	return g.walk(sub, join(rel, e.name), l, in, ex)
}

// linkToFile reports whether a symbolic link leads to a regular file.
func (t *tree) linkToFile(rel string) (bool, error) {
	info, err := t.root.Stat(rel)
	if err != nil {
		return false, t.linkFault(rel, err)
	}
	return info.Mode().IsRegular(), nil
}
