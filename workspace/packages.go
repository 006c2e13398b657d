package workspace

import (
	"errors"
	"slices"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Packages gives the packages at and below the folder prefix, sorted by path;
// "" is the root. It enters no folder that begins with a dot or is a symbolic
// link, no nested workspace, and not the root's eval-out. A prefix that is, or
// lies in, such a folder is an error, as is a folder that can't be read.
func (w *Workspace) Packages(repo, prefix string) ([]string, error) {
	const op = "list packages"
	t, err := w.tree(repo)
	if err != nil {
		return nil, err
	}
	if err := checkPath(prefix); err != nil {
		return nil, t.fail(op, prefix, err)
	}
	l, err := t.reach(prefix)
	if err != nil {
		return nil, t.fail(op, prefix, err)
	}
	var found []string
	if err := t.packages(prefix, l, &found); err != nil {
		return nil, err
	}
	slices.Sort(found)
	return found, nil
}

// packages adds the packages at and below dir.
func (t *tree) packages(dir string, l *listing, found *[]string) error {
	if l.pkg {
		if !utf8.ValidString(dir) {
			return t.fail("list packages", dir, errors.New("the name is not valid UTF-8"))
		}
		*found = append(*found, dir)
	}
	for _, e := range l.entries {
		if off(dir, e) != "" {
			continue
		}
		sub := join(dir, e.name)
		l, err := t.list(sub)
		if err != nil {
			return t.fail("list packages", sub, err)
		}
		if l.module {
			continue
		}
		if err := t.packages(sub, l, found); err != nil {
			return err
		}
	}
	return nil
}

// HasPackage reports whether Packages(repo, "") holds pkg.
func (w *Workspace) HasPackage(repo, pkg string) (bool, error) {
	t, err := w.tree(repo)
	if err != nil {
		return false, err
	}
	if err := checkPath(pkg); err != nil {
		return false, t.fail("find package", pkg, err)
	}
	l, err := t.reach(pkg)
	if out := (*unreached)(nil); errors.As(err, &out) {
		return false, nil
	}
	if err != nil {
		return false, err
	}
	return l.pkg, nil
}

// join is path.Join for parts that are clean; "" is the root.
func join(dir, name string) string {
	if dir == "" {
		return name
	}
	return dir + "/" + name
}

// parent is path.Dir with "" for the root.
func parent(rel string) string {
	if i := strings.LastIndexByte(rel, '/'); i >= 0 {
		return rel[:i]
	}
	return ""
}

// printable quotes a name that would garble a terminal.
func printable(name string) string {
	bad := func(r rune) bool { return r == utf8.RuneError || !unicode.IsPrint(r) }
	if strings.IndexFunc(name, bad) >= 0 {
		return strconv.Quote(name)
	}
	return name
}
