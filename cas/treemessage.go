package cas

import (
	"errors"
	"fmt"
	"slices"
)

// Encode gives the message build.bazel.remote.execution.v2.Tree: the root, then
// each distinct directory below it once, parents before children, in an order
// that depends on the tree only. It is how a folder that an action wrote is kept
// as one blob, where an input is a blob for each directory. It panics if the tree
// is hollow somewhere: it would be a message with holes.
func (t *Tree) Encode() []byte {
	b, err := t.encode()
	if err != nil {
		panic("cas: encode tree: " + err.Error())
	}
	return b
}

func (t *Tree) encode() ([]byte, error) {
	var all [][]byte
	size := 0
	err := t.Blobs(func(_ Digest, b []byte) error { // children first
		all = append(all, b)
		size += 1 + 10 + len(b)
		return nil
	})
	out := make([]byte, 0, size)
	for i, b := range slices.Backward(all) {
		if i == len(all)-1 {
			out = appendBytes(out, 1, b)
		} else {
			out = appendBytes(out, 2, b)
		}
	}
	return out, err
}

// Message gives the digest of the Tree message, as PutTree does. Unless the tree
// is hollow, it is encoded for that.
func (t *Tree) Message() Digest {
	if t.Hollow() {
		return t.stored
	}
	return t.digest.Func.Sum(t.Encode())
}

// maxTreeEntries bounds what Visit of a decoded tree comes to: forty directories
// that each name the next one twice are a small message of 10^12 paths.
const maxTreeEntries = 1 << 24

// DecodeTree reads a Tree message, also one of a server, that has its children
// in another order. Each directory must be as DecodeDirectory wants it.
// Children that nothing refers to are dropped.
func DecodeTree(fn Func, b []byte) (*Tree, error) {
	t, err := decodeTree(fn, b)
	if err != nil {
		return nil, fmt.Errorf("decode tree: %w", err)
	}
	return t, nil
}

func decodeTree(fn Func, b []byte) (*Tree, error) {
	if err := checkFunc(fn); err != nil {
		return nil, err
	}
	d := treeDecoder{directories: map[Digest]*Tree{}, filled: map[Digest]extent{}}
	var root *Tree
	err := eachField(b, func(f field) error {
		if f.num != 1 && f.num != 2 {
			return errUnknown
		}
		msg, err := f.message()
		if err != nil {
			return err
		}
		dir, err := DecodeDirectory(fn, msg)
		if err != nil {
			return err
		}
		t := &Tree{digest: fn.Sum(msg), blob: slices.Clone(msg), dir: dir}
		if f.num == 2 {
			d.directories[t.digest] = t
		} else if root != nil {
			return errTwice
		} else {
			root = t
		}
		return nil
	})
	if err == nil && root == nil {
		err = errors.New("no root")
	}
	if err == nil {
		_, err = d.fill(root, 0)
	}
	if err != nil {
		return nil, err
	}
	return root, nil
}

type treeDecoder struct {
	directories map[Digest]*Tree
	filled      map[Digest]extent
}

// extent is what a tree comes to when it is walked.
type extent struct {
	entries, depth int
}

// fill hangs the children in. Digests allow no cycle, but a chain as long as the
// message is.
func (d *treeDecoder) fill(t *Tree, above int) (all extent, err error) {
	all.entries = len(t.dir.Files) + len(t.dir.Directories) + len(t.dir.Symlinks)
	t.below = make([]*Tree, len(t.dir.Directories))
	for i, node := range t.dir.Directories {
		child := d.directories[node.Digest]
		if child == nil {
			return all, fmt.Errorf("%q: directory %v is missing", node.Name, node.Digest)
		}
		more, filled := d.filled[node.Digest]
		if !filled && above < maxDepth {
			if more, err = d.fill(child, above+1); err != nil {
				return all, err
			}
			d.filled[node.Digest] = more
		}
		t.below[i] = child
		all.entries += more.entries
		all.depth = max(all.depth, more.depth+1)
		if above+all.depth > maxDepth {
			return all, fmt.Errorf("more than %d folders deep", maxDepth)
		}
		if all.entries > maxTreeEntries {
			return all, fmt.Errorf("more than %d entries", maxTreeEntries)
		}
	}
	return all, nil
}

// eachFile calls fn with the files of each directory that isn't in seen, under
// the first path that leads to it.
func (t *Tree) eachFile(seen map[Digest]bool, prefix string, fn func(path string, f FileNode) error) error {
	if seen[t.digest] {
		return nil
	}
	seen[t.digest] = true
	if err := t.whole(); err != nil {
		return err
	}
	for _, f := range t.dir.Files {
		if err := fn(prefix+f.Name, f); err != nil {
			return err
		}
	}
	for i, sub := range t.below {
		if err := sub.eachFile(seen, prefix+t.dir.Directories[i].Name+"/", fn); err != nil {
			return err
		}
	}
	return nil
}

// PutTree stores the Tree message of t and gives its digest, for OutputFolder.
// The files are the caller's to put.
func (s *Store) PutTree(c Class, t *Tree) (Digest, error) {
	if t.digest.Func != s.fn {
		return Digest{}, fmt.Errorf("write tree %v: the store digests by %v", t.digest, s.fn)
	}
	b, err := t.encode()
	if err != nil {
		return Digest{}, fmt.Errorf("write tree %v: %w", t.digest, err)
	}
	return s.Put(c, b)
}

// ReadTree gives the tree whose message has the digest d. The error is a
// *BlobError if that isn't there whole.
func (s *Store) ReadTree(d Digest) (*Tree, error) {
	b, err := s.Read(d)
	if err != nil {
		return nil, err
	}
	t, err := DecodeTree(d.Func, b)
	if err != nil {
		return nil, fmt.Errorf("read tree %v: %w", d, err)
	}
	return t, nil
}

// FillTree gives the whole of a tree that may be hollow. The error is a
// *BlobError if its message isn't there whole.
func (s *Store) FillTree(t *Tree) (*Tree, error) {
	if !t.Hollow() {
		return t, nil
	}
	whole, err := s.ReadTree(t.stored)
	if err != nil {
		return nil, err
	}
	if whole.digest != t.digest {
		return nil, fmt.Errorf("read tree %v: it is that of the folder %v, not of %v", t.stored, whole.digest, t.digest)
	}
	return whole, nil
}
