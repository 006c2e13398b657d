package cas

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Tree is a finished Merkle tree of Directory messages. It is immutable, so
// that one subtree can hang in any number of trees and is encoded once.
type Tree struct {
	digest Digest
	blob   []byte
	dir    Directory
	below  []*Tree // below[i] is what dir.Directories[i] names
	stored Digest  // of a hollow tree: its message in a store; else zero
}

// Digest gives the digest of the encoded root directory.
func (t *Tree) Digest() Digest { return t.digest }

// HollowTree gives a tree of which only the digest of the root is known, and
// that of the Tree message which has the rest. It can be mounted as what it is;
// it can't be visited. Store.FillTree reads it.
func HollowTree(root, message Digest) *Tree { return &Tree{digest: root, stored: message} }

// Hollow says whether the tree was made by HollowTree.
func (t *Tree) Hollow() bool { return !t.stored.IsZero() }

// HollowError says that a tree has a hollow one in it, or is one, where its
// content is asked for.
type HollowError struct{ Digest Digest }

func (e *HollowError) Error() string {
	return fmt.Sprintf("folder %v: only its digest is known", e.Digest)
}

// whole gives a *HollowError for a hollow tree.
func (t *Tree) whole() error {
	if t.Hollow() {
		return &HollowError{t.digest}
	}
	return nil
}

// Directory gives the root directory, sorted, nothing of a hollow tree. The
// caller must not change it.
func (t *Tree) Directory() Directory { return t.dir }

// Below gives the trees that Directory().Directories name, in that order; nothing
// of a hollow tree. The caller must not change it.
func (t *Tree) Below() []*Tree { return t.below }

// Blobs calls fn with each distinct directory message of the tree, those below
// before those above, so that a store that has a directory has all under it. It
// stops at the first error and returns it; a hollow tree below is a
// *HollowError. The bytes must not be changed.
func (t *Tree) Blobs(fn func(d Digest, b []byte) error) error {
	return t.blobs(map[Digest]bool{}, fn)
}

func (t *Tree) blobs(seen map[Digest]bool, fn func(Digest, []byte) error) error {
	if seen[t.digest] {
		return nil
	}
	seen[t.digest] = true
	if err := t.whole(); err != nil {
		return err
	}
	for _, sub := range t.below {
		if err := sub.blobs(seen, fn); err != nil {
			return err
		}
	}
	return fn(t.digest, t.blob)
}

// Visitor says what to do with the entries of a tree. Functions that are nil
// are not called.
type Visitor struct {
	Dir     func(path string, t *Tree) error
	File    func(path string, f FileNode) error
	Symlink func(path string, l SymlinkNode) error
}

// Visit calls v with each entry below the root, a folder before what is in it,
// in an order that depends on the tree only. Paths are slash-separated and
// relative to the root. A subtree that is mounted twice is visited twice. It
// stops at the first error and returns it; a hollow tree is a *HollowError.
func (t *Tree) Visit(v Visitor) error { return t.visit("", v) }

// Walk is Visit for the files.
func (t *Tree) Walk(fn func(path string, f FileNode) error) error {
	return t.Visit(Visitor{File: fn})
}

func (t *Tree) visit(prefix string, v Visitor) error {
	if err := t.whole(); err != nil {
		return err
	}
	if v.File != nil {
		for _, f := range t.dir.Files {
			if err := v.File(prefix+f.Name, f); err != nil {
				return err
			}
		}
	}
	if v.Symlink != nil {
		for _, l := range t.dir.Symlinks {
			if err := v.Symlink(prefix+l.Name, l); err != nil {
				return err
			}
		}
	}
	for i, d := range t.dir.Directories {
		if v.Dir != nil {
			if err := v.Dir(prefix+d.Name, t.below[i]); err != nil {
				return err
			}
		}
		if err := t.below[i].visit(prefix+d.Name+"/", v); err != nil {
			return err
		}
	}
	return nil
}

// TreeBuilder collects the entries of a Tree in any order. The first error is
// kept and Build returns it.
type TreeBuilder struct {
	fn      Func
	folders map[string]*folder // by path, "" is the root
	err     error
}

// folder is a directory under construction. Its children are folders still
// open or mounted trees.
type folder struct {
	files    []FileNode
	symlinks []SymlinkNode
	open     map[string]*folder
	mounted  []mount
}

type mount struct {
	name string
	tree *Tree
}

// NewTree starts a tree whose directories are digested by fn. Files must have
// digests of the same function.
func NewTree(fn Func) *TreeBuilder {
	return &TreeBuilder{fn: fn, folders: map[string]*folder{"": {}}, err: checkFunc(fn)}
}

// File adds a file at a relative, slash-separated path.
func (b *TreeBuilder) File(path string, d Digest, executable bool) {
	dir, name := b.split(path)
	if d.Func != b.fn {
		b.fail(path, fmt.Errorf("digest %v in a tree of %v", d, b.fn))
	}
	dir.files = append(dir.files, FileNode{Name: name, Digest: d, Executable: executable})
}

// Symlink adds a symbolic link. The target isn't resolved or checked to exist.
func (b *TreeBuilder) Symlink(path, target string) {
	dir, name := b.split(path)
	dir.symlinks = append(dir.symlinks, SymlinkNode{Name: name, Target: target})
}

// Mount hangs a finished tree at path, which no other entry may reach into. An
// empty tree makes an empty folder. A hollow one gives the tree above the digest
// that the whole one would.
func (b *TreeBuilder) Mount(path string, t *Tree) {
	dir, name := b.split(path)
	if t.digest.Func != b.fn {
		b.fail(path, fmt.Errorf("tree of %v in a tree of %v", t.digest.Func, b.fn))
	}
	dir.mounted = append(dir.mounted, mount{name, t})
}

func (b *TreeBuilder) fail(path string, cause error) {
	if b.err == nil {
		b.err = fmt.Errorf("tree %s: %w", path, cause)
	}
}

// split opens the folders above path. The names are checked by Build, since
// every folder's encoding checks its own; only the depth is bounded here.
func (b *TreeBuilder) split(path string) (dir *folder, name string) {
	i := strings.LastIndexByte(path, '/')
	if i < 0 {
		return b.folders[""], path
	}
	name = path[i+1:]
	if path[0] == '/' {
		b.fail(path, errors.New("path is absolute"))
		return &folder{}, name
	}
	if dir := b.folders[path[:i]]; dir != nil {
		return dir, name
	}
	if strings.Count(path, "/") >= maxDepth {
		b.fail(path, fmt.Errorf("more than %d folders deep", maxDepth))
		return &folder{}, name
	}
	return b.openFolder(path[:i]), name
}

// maxDepth bounds the recursion of Build and Visit, and the cost of one path
// that is all slashes. PATH_MAX leaves room for 2048 one-letter folders.
const maxDepth = 2048

func (b *TreeBuilder) openFolder(path string) *folder {
	if f := b.folders[path]; f != nil {
		return f
	}
	above, name := b.folders[""], path
	if i := strings.LastIndexByte(path, '/'); i >= 0 {
		above, name = b.openFolder(path[:i]), path[i+1:]
	}
	f := &folder{}
	if above.open == nil {
		above.open = map[string]*folder{}
	}
	above.open[name] = f
	b.folders[path] = f
	return f
}

// Build encodes the tree. It is an error if a path was given twice or as two
// kinds, leads through something that isn't a folder, isn't clean and relative,
// or if a mounted tree shares its path with other entries. Errors read
// "tree PATH: cause". The builder may not be used afterwards.
func (b *TreeBuilder) Build() (*Tree, error) {
	if b.err != nil {
		return nil, b.err
	}
	return b.build("", b.folders[""])
}

func (b *TreeBuilder) build(prefix string, f *folder) (*Tree, error) {
	trees := make(map[string]*Tree, len(f.open)+len(f.mounted))
	dir := Directory{Files: f.files, Symlinks: f.symlinks}
	for _, m := range f.mounted {
		trees[m.name] = m.tree
		dir.Directories = append(dir.Directories, DirectoryNode{Name: m.name, Digest: m.tree.digest})
	}
	for _, name := range slices.Sorted(maps.Keys(f.open)) { // so that one tree has one first error
		sub, err := b.build(prefix+name+"/", f.open[name])
		if err != nil {
			return nil, err
		}
		trees[name] = sub
		dir.Directories = append(dir.Directories, DirectoryNode{Name: name, Digest: sub.digest})
	}
	return b.finish(prefix, dir, trees)
}

func (b *TreeBuilder) finish(prefix string, dir Directory, trees map[string]*Tree) (*Tree, error) {
	dir = dir.sorted()
	if err := dir.check(); err != nil {
		var bad *nameError
		if errors.As(err, &bad) {
			return nil, fmt.Errorf("tree %s: %w", prefix+bad.name, bad.cause)
		}
		return nil, fmt.Errorf("tree %s: %w", prefix, err)
	}
	t := &Tree{blob: dir.encode(), dir: dir, below: make([]*Tree, len(dir.Directories))}
	t.digest = b.fn.Sum(t.blob)
	for i, d := range dir.Directories {
		t.below[i] = trees[d.Name]
	}
	return t, nil
}
