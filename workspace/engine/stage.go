package engine

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// A placer puts a file where a seal can bind it.
type placer func(path string, c graph.Content, blob starlark.Blob) (graph.Mount, error)

// unplaced is the placer of who only wants to know what is where.
func unplaced(path string, c graph.Content, _ starlark.Blob) (graph.Mount, error) {
	return graph.Mount{Path: path, Digest: c.Digest, Executable: c.Executable}, nil
}

// spec is what the action's process is given.
func (b *build) spec(n *node, place placer) (sandbox.Spec, error) {
	a := n.action
	mounts := slices.Clone(n.inputs.Mounts)
	if n.bound != nil {
		mounts = slices.Clone(n.bound)
	}
	mounts = slices.DeleteFunc(mounts, func(m graph.Mount) bool { return strings.HasPrefix(m.Path, "/"+graph.ServerDir) })
	inside, err := b.stageInputs(n, "", place)
	mounts = append(mounts, inside...)
	slices.SortFunc(mounts, func(x, y graph.Mount) int { return strings.Compare(x.Path, y.Path) })
	spec := sandbox.Spec{Args: a.Args, Env: a.Env, Policy: *a.Policy, Mounts: mounts, Listener: a.Sample != nil}
	if own := a.Tools[0].Own; own != "" && n.onlyHost() { // tools are where they are
		spec.Args = slices.Clone(spec.Args)
		spec.Args[0] = mounts[slices.IndexFunc(mounts, func(m graph.Mount) bool { return m.Path == "/"+own })].Source
	}
	for _, o := range a.Outputs {
		if o.Fact() || o.Served() {
			continue
		}
		spec.Outputs = append(spec.Outputs, collect.Output{Path: o.Name, Folder: o.Format == graph.FormatFolder})
	}
	return spec, err
}

// stageInputs puts the inputs of the run's process (of is "") or of its server
// (ServerDir) where a seal can bind them, and lists the mounts.
func (b *build) stageInputs(n *node, of string, place placer) ([]graph.Mount, error) {
	var mounts []graph.Mount
	for i, in := range n.action.Inputs {
		if in.Name == graph.StdinName || strings.HasPrefix(in.Name, graph.ServerDir) != (of != "") {
			continue
		}
		c, at := n.inputs.Files[i], "/"+strings.TrimPrefix(in.Name, of)
		if c.Tree == nil {
			m, err := place(at, c, b.blob(in.File, c.Digest))
			if err != nil {
				return nil, stageError(in.File, err)
			}
			mounts = append(mounts, m)
			continue
		}
		inside, err := b.stageTree(at, c.Tree, place)
		if err != nil {
			return nil, stageError(in.File, err)
		}
		mounts = append(mounts, inside...)
	}
	return mounts, nil
}

// stageFile has the store make a plain file of the blob. An error of reading
// the blob is one of the input, any other the store's.
func (b *build) stageFile(path string, c graph.Content, blob starlark.Blob) (graph.Mount, error) {
	var read error
	source, err := b.o.Store.Stage(c.Digest, c.Executable, func() (io.ReadCloser, error) {
		var rc io.ReadCloser
		if rc, read = blob.Open(); read != nil {
			return nil, read
		}
		return noted{rc, &read}, nil
	})
	if err != nil && read != nil {
		err = read
	}
	var lost *cas.BlobError
	if err != nil && read == nil && !errors.As(err, &lost) {
		err = &storeError{err}
	}
	return graph.Mount{Path: path, Source: source, Digest: c.Digest, Executable: c.Executable}, err
}

// noted keeps the error of reading.
type noted struct {
	io.ReadCloser
	err *error
}

func (r noted) Read(p []byte) (int, error) {
	n, err := r.ReadCloser.Read(p)
	if err != nil && err != io.EOF {
		*r.err = err
	}
	return n, err
}

func stageError(f *graph.File, err error) error {
	var store *storeError
	if errors.As(err, &store) {
		return err
	}
	return &starlark.InputError{File: f, Err: err}
}

// stageTree lists what a folder holds as mounts of its own: its files are in
// the store one by one.
func (b *build) stageTree(at string, tree *cas.Tree, place placer) ([]graph.Mount, error) {
	tree, err := b.filled(tree)
	if err != nil {
		return nil, err
	}
	var out []graph.Mount
	dir := func(p string, t *cas.Tree) error {
		if d := t.Directory(); len(d.Files)+len(d.Directories)+len(d.Symlinks) > 0 {
			return nil
		}
		source := filepath.Join(b.o.State, "empty")
		if err := os.MkdirAll(source, 0o755); err != nil {
			return &storeError{err}
		}
		out = append(out, graph.Mount{Path: p, Source: source, Digest: t.Digest(), Tree: t})
		return nil
	}
	if err := dir(at, tree); err != nil {
		return nil, err
	}
	err = tree.Visit(cas.Visitor{
		Dir: func(p string, t *cas.Tree) error { return dir(at+"/"+p, t) },
		File: func(p string, f cas.FileNode) error {
			m, err := place(at+"/"+p, graph.Content{Digest: f.Digest, Executable: f.Executable}, b.stored(f.Digest))
			out = append(out, m)
			return err
		},
		Symlink: func(p string, l cas.SymlinkNode) error {
			out = append(out, graph.Mount{Path: at + "/" + p, Link: l.Target})
			return nil
		},
	})
	return out, err
}

// stored is a blob of the store.
func (b *build) stored(d cas.Digest) starlark.Blob {
	return starlark.Blob{Digest: d, Open: func() (io.ReadCloser, error) { return b.o.Store.Open(d) }}
}
