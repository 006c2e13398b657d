package cas

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// references are the blobs that results name, by function and hash: the name of
// a blob's file doesn't have the size.
type references struct {
	s     *Store
	blobs map[Digest]*reference
	trees map[Digest][]Digest // what is in a Tree message
}

type reference struct {
	count  int  // pure results
	pinned bool // by a capture
	tree   bool // it is a Tree message
	files  []heldFile
}

// heldFile is a file of a blob. One blob may have two: packed and as it is.
type heldFile struct {
	path    string
	size    int64
	changed time.Time
}

func newReferences(s *Store) *references {
	return &references{s: s, blobs: map[Digest]*reference{}, trees: map[Digest][]Digest{}}
}

func (r *references) of(d Digest) *reference {
	d.Size = 0
	b := r.blobs[d]
	if b == nil {
		b = new(reference)
		r.blobs[d] = b
	}
	return b
}

// ofRecord gives what the record names, a blob twice if it is named twice. The
// error says that not all of it is known.
func (r *references) ofRecord(key Digest, rec *record) ([]*reference, error) {
	if rec.err != nil {
		return nil, rec.err
	}
	result, err := DecodeResult(key.Func, rec.msg)
	if err != nil {
		return nil, err
	}
	var out []*reference
	result.eachBlob(func(_ string, d Digest) error { // fn gives no error
		out = append(out, r.of(d))
		return nil
	})
	for _, f := range result.Folders {
		r.of(f.Tree).tree = true
		files, err := r.inTree(f.Tree)
		if err != nil {
			return out, err
		}
		for _, d := range files {
			out = append(out, r.of(d))
		}
	}
	return out, nil
}

func (r *references) inTree(d Digest) ([]Digest, error) {
	if files, ok := r.trees[d]; ok {
		return files, nil
	}
	t, err := r.s.ReadTree(d)
	if err != nil {
		return nil, err
	}
	var files []Digest
	t.eachFile(map[Digest]bool{}, "", func(_ string, f FileNode) error {
		files = append(files, f.Digest)
		return nil
	})
	r.trees[d] = files
	return files, nil
}

// eachFile calls fn with each file of a kind (cas, ac ...) that has a hash in its
// name, and with the digest but for its size. Others aren't ours. An error of fn
// ends it; folders that can't be read don't, but give the error at the end.
func (r *root) eachFile(ctx context.Context, kind string, fn func(path, name string, d Digest) error) (first error) {
	list := func(elem ...string) []string {
		names, err := readDir(r.path(elem...))
		if first == nil {
			first = err
		}
		return names
	}
	for _, f := range [2]Func{BLAKE3, SHA256} {
		for _, folder := range list(kind, f.String()) {
			dir := r.path(kind, f.String(), folder)
			for _, name := range list(kind, f.String(), folder) {
				if err := ctx.Err(); err != nil {
					return err
				}
				hash, err := parseHash(strings.TrimSuffix(strings.TrimSuffix(name, packedSuffix), executableSuffix))
				if err != nil {
					continue
				}
				if err := fn(filepath.Join(dir, name), name, Digest{Func: f, Hash: hash}); err != nil {
					return err
				}
			}
		}
	}
	return first
}

// readDir gives the names in a folder, none if it doesn't exist.
func readDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, ignoreAbsent(err)
}
