package engine

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
)

// takeOutputs sorts what was collected by the action's outputs. They were
// collected as pure; those of a draw become captures.
func (b *build) takeOutputs(class cas.Class, a *graph.Action, collected []collect.File) (cas.Result, error) {
	var r cas.Result
	for _, o := range a.Outputs {
		if o.Fact() {
			continue
		}
		if o.Format != graph.FormatFolder {
			file := cas.OutputFile{Path: o.Name}
			for _, f := range collected {
				if f.Path == o.Name && !f.Folder && f.Link == "" {
					file.Digest, file.Executable = f.Digest, f.Executable
				}
			}
			if file.Digest.IsZero() { // of a run whose failure is a result, too
				file.Digest = b.o.Store.Func().Sum(nil)
			}
			if err := b.promote(class, &file); err != nil {
				return r, err
			}
			r.Files = append(r.Files, file)
			continue
		}
		tree, err := b.folder(o.Name, collected)
		if err != nil {
			return r, fmt.Errorf("output %q: %w", o.Name, err)
		}
		digest, err := b.o.Store.PutTree(class, tree)
		if err != nil {
			return r, &storeError{err}
		}
		r.Folders = append(r.Folders, cas.OutputFolder{Path: o.Name, Tree: digest})
	}
	return r, nil
}

// promote takes a small file that was collected into the result, and makes any
// other one of the class.
func (b *build) promote(class cas.Class, f *cas.OutputFile) error {
	if f.Inlined() {
		return nil
	}
	if f.Digest.Size <= maxInline {
		data, err := b.o.Store.Read(f.Digest)
		if err != nil {
			return &storeError{err}
		}
		f.Contents = data
		return nil
	}
	if class == cas.Pure {
		return nil
	}
	rc, err := b.o.Store.Open(f.Digest)
	if err != nil {
		return &storeError{err}
	}
	_, err = b.o.Store.PutReader(cas.Capture, rc)
	if err := errors.Join(err, rc.Close()); err != nil {
		return &storeError{err}
	}
	return nil
}

// keep stores what an action made, a small file in the result itself.
func (b *build) keep(class cas.Class, name string, data []byte) (cas.OutputFile, error) {
	f := cas.OutputFile{Path: name}
	if len(data) <= maxInline {
		f.Digest, f.Contents = b.o.Store.Func().Sum(data), data
		return f, nil
	}
	var err error
	if f.Digest, err = b.o.Store.Put(class, data); err != nil {
		return f, &storeError{err}
	}
	return f, nil
}

// folder makes the tree of an output folder.
func (b *build) folder(name string, collected []collect.File) (*cas.Tree, error) {
	tree := cas.NewTree(b.o.Store.Func())
	nothing, err := cas.NewTree(b.o.Store.Func()).Build()
	if err != nil {
		return nil, err
	}
	for _, f := range collected {
		rel, ok := strings.CutPrefix(f.Path, name+"/")
		switch {
		case !ok:
		case f.Link != "":
			tree.Symlink(rel, f.Link)
		case f.Folder:
			tree.Mount(rel, nothing)
		default:
			tree.File(rel, f.Digest, f.Executable)
		}
	}
	return tree.Build()
}

// outputsOf finds the action's outputs in a result. A *cas.MissError says which
// is not there.
func (b *build) outputsOf(n *node, r cas.Result) ([]output, error) {
	out := make([]output, len(n.action.Outputs))
	for i, o := range n.action.Outputs {
		if o.Format == graph.FormatFolder {
			for _, x := range r.Folders {
				if x.Path != o.Name {
					continue
				}
				tree, err := b.o.Store.ReadTree(x.Tree)
				var blob *cas.BlobError
				if errors.As(err, &blob) && !x.Root.IsZero() { // the remote has it
					tree, err = cas.HollowTree(x.Root, x.Tree), nil
				}
				if err != nil {
					return nil, err
				}
				out[i] = output{digest: tree.Digest(), tree: tree}
			}
		} else {
			for _, x := range r.Files {
				if x.Path == o.Name {
					out[i] = output{digest: x.Digest, contents: x.Contents, inlined: x.Inlined(), executable: x.Executable}
				}
			}
		}
		if out[i].digest.IsZero() {
			return nil, &cas.MissError{Key: cas.Digest(n.key), Reason: fmt.Sprintf("the result has no output %q", o.Name)}
		}
	}
	return out, nil
}

// linkStays says whether a link at p, below an output folder, leads to
// somewhere in that folder.
func linkStays(p, target string) bool {
	to := path.Join(path.Dir(p), target)
	return target != "" && !path.IsAbs(target) && to != ".." && !strings.HasPrefix(to, "../")
}
