package workspace

import (
	"errors"
	"io/fs"
	"os"
	"path"
	"slices"
	"strings"
	"sync"
	"unicode/utf8"

	"github.com/evalbuild/eval/workspace/graph"
)

// BuildFile is the name of the file that makes a folder a package.
const BuildFile = "BUILD.star"

// outputs is the folder that a build writes at the root. Only there: a folder
// of that name deeper down is the user's.
const outputs = "eval-out"

// tree is the folder of one repository.
type tree struct {
	repo string // "" or the dependency's name
	path string // absolute
	root *os.Root
	dir  *os.File // the same folder, for fstatat

	readDir func(string) ([]fs.DirEntry, error) // os.ReadDir but in tests

	mu       sync.RWMutex
	listings map[string]*listing // by slash path, "" is the root
	parents  map[string]bool     // folders found to lie below the root; see checkParents
}

func openTree(repo, dir string) (*tree, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return nil, err
	}
	f, err := os.Open(dir)
	if err != nil {
		root.Close()
		return nil, err
	}
	return &tree{
		repo: repo, path: dir, root: root, dir: f, readDir: os.ReadDir,
		listings: map[string]*listing{}, parents: map[string]bool{"": true},
	}, nil
}

func (t *tree) close() error { return errors.Join(t.root.Close(), t.dir.Close()) }

// name is how errors spell a path of the tree: as in a label.
func (t *tree) name(rel string) string {
	if t.repo == "" && rel != "" {
		return printable(rel)
	}
	if t.repo == "" {
		return "//"
	}
	return "@" + t.repo + "//" + printable(rel)
}

func (t *tree) fail(op, rel string, cause error) *fault {
	return &fault{op: op, object: t.name(rel), cause: cause}
}

// listing is the content of a folder, sorted by name.
type listing struct {
	entries []entry
	pkg     bool // it has a BUILD.star, of whatever type: reading it tells what is wrong
	module  bool // it has a MODULE.star
}

type entry struct {
	name string
	mode fs.FileMode // type bits only
}

func (l *listing) find(name string) (entry, bool) {
	i, ok := slices.BinarySearchFunc(l.entries, name, func(e entry, name string) int {
		return strings.Compare(e.name, name)
	})
	if !ok {
		return entry{}, false
	}
	return l.entries[i], true
}

func (l *listing) names(keep func(entry) bool) []string {
	var out []string
	for _, e := range l.entries {
		if keep(e) {
			out = append(out, e.name)
		}
	}
	return out
}

// list reads a folder, once for the life of the workspace. The folder is one
// that reach or a walk has come to by real folders.
func (t *tree) list(dir string) (*listing, error) {
	t.mu.RLock()
	l := t.listings[dir]
	t.mu.RUnlock()
	if l != nil {
		return l, nil
	}
	found, err := t.readDir(t.path + "/" + dir)
	if err != nil {
		return nil, bare(err)
	}
	l = &listing{entries: make([]entry, len(found))}
	for i, e := range found {
		l.entries[i] = entry{e.Name(), e.Type()}
		switch e.Name() {
		case BuildFile:
			l.pkg = true
		case ModuleFile:
			l.module = true
		}
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if first := t.listings[dir]; first != nil {
		return first, nil // all callers see one listing
	}
	t.listings[dir] = l
	return l, nil
}

// off says why the folder e of dir can hold no package, or "". A nested
// workspace takes a look inside, which is the caller's.
func off(dir string, e entry) string {
	switch {
	case e.mode&fs.ModeSymlink != 0:
		return "is a symbolic link, which is not followed to packages"
	case !e.mode.IsDir():
		return "is not a folder"
	case dir == "" && e.name == outputs:
		return "is where a build writes"
	case strings.HasPrefix(e.name, "."):
		return "begins with a dot, so it holds no packages"
	}
	return ""
}

const nestedText = "is a workspace of its own (it has a " + ModuleFile + ")"

// unreached is the error of reach for a folder that packages can't be in.
type unreached struct {
	dir, why string
	missing  bool
}

func (u *unreached) Error() string { return printable(u.dir) + " " + u.why }

func (u *unreached) Unwrap() error {
	if u.missing {
		return fs.ErrNotExist
	}
	return nil
}

// reach lists a folder after checking that each folder on the way to it is one
// that Packages enters; else the error is *unreached.
func (t *tree) reach(dir string) (*listing, error) {
	l, err := t.list("")
	if err != nil || dir == "" {
		return l, err
	}
	at := ""
	for name := range strings.SplitSeq(dir, "/") {
		e, ok := l.find(name)
		here := path.Join(at, name)
		if !ok {
			folders := l.names(func(e entry) bool { return off(at, e) == "" })
			return nil, &unreached{here, "does not exist" + graph.DidYouMean(name, folders), true}
		}
		if why := off(at, e); why != "" {
			return nil, &unreached{here, why, false}
		}
		if l, err = t.list(here); err != nil {
			return nil, &fault{op: "list", object: t.name(here), cause: err}
		}
		if l.module {
			return nil, &unreached{here, nestedText, false}
		}
		at = here
	}
	return l, nil
}

// checkPath accepts clean slash paths below a root, and "" for the root.
func checkPath(p string) error {
	switch {
	case p == "":
		return nil
	case strings.HasPrefix(p, "/"):
		return errors.New("an absolute path, want one below the root")
	case !utf8.ValidString(p):
		return errors.New("the name is not valid UTF-8")
	case strings.ContainsRune(p, 0):
		return errors.New("the name has a NUL byte")
	}
	for seg := range strings.SplitSeq(p, "/") {
		switch seg {
		case "..":
			return errors.New("the path leaves the workspace by \"..\"")
		case ".", "":
			return errors.New("not a clean path")
		}
	}
	return nil
}
