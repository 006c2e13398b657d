package engine

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
)

type pieceKind uint8

const (
	pieceFile pieceKind = iota
	pieceFolder
	pieceLink
	pieceAway // left on the remote
)

// A piece is one path of what is shown of an output: the file that it is, or
// of a folder each file, folder and link in it.
type piece struct {
	path       string // below the target's output folder
	kind       pieceKind
	digest     cas.Digest
	executable bool
	link       string
}

// pieces lists what is shown of an export whose maker has finished, a folder
// before what is in it.
func (b *build) pieces(e starlark.Export) ([]piece, error) {
	c, err := b.contentOf(e.File)
	if err != nil {
		return nil, err
	}
	if c.Tree == nil {
		return []piece{{path: e.Path, digest: c.Digest, executable: c.Executable}}, nil
	}
	out := []piece{{path: e.Path, kind: pieceFolder}}
	tree, err := b.filled(c.Tree)
	if err != nil {
		return nil, err
	}
	err = tree.Visit(cas.Visitor{
		Dir: func(p string, _ *cas.Tree) error {
			out = append(out, piece{path: e.Path + "/" + p, kind: pieceFolder})
			return nil
		},
		File: func(p string, f cas.FileNode) error {
			out = append(out, piece{path: e.Path + "/" + p, digest: f.Digest, executable: f.Executable})
			return nil
		},
		Symlink: func(p string, l cas.SymlinkNode) error {
			if !linkStays(p, l.Target) { // collected ones do; a result may come from elsewhere
				return fmt.Errorf("output %s: the link %q to %q leads out of its folder", e.Path, p, l.Target)
			}
			out = append(out, piece{path: e.Path + "/" + p, kind: pieceLink, link: l.Target})
			return nil
		},
	})
	return out, err
}

// tidy removes from the output folders of t what is not of them, or is another
// kind of thing than is to be there.
func (b *build) tidy(t *starlark.Target, batch []copyJob) error {
	var folders []starlark.Export
	for _, e := range shown(t) {
		if e.File.Folder() {
			folders = append(folders, e)
		}
	}
	if len(folders) == 0 {
		return nil
	}
	pieces := make([]piece, len(batch))
	for i, c := range batch {
		pieces[i] = c.piece
	}
	root, err := os.OpenRoot(b.Folder(t.Label))
	if err != nil {
		return nil // no folder, nothing to remove
	}
	defer root.Close()
	for _, e := range folders {
		for _, p := range b.strangers(b.Folder(t.Label), e.Path, pieces) {
			if err := root.RemoveAll(p); err != nil {
				return fmt.Errorf("remove %s from an output of %s: %w", p, t.Label, err)
			}
		}
	}
	return nil
}

// strangers lists what is at or below the path of an output folder, in a
// target's folder, and is none of its pieces; of a folder that is none only
// itself.
func (b *build) strangers(folder, at string, pieces []piece) []string {
	kinds := map[string]pieceKind{}
	for _, p := range pieces {
		kinds[p.path] = p.kind
	}
	var out []string
	top := filepath.Join(folder, filepath.FromSlash(at))
	filepath.WalkDir(top, func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			if errors.Is(err, fs.ErrNotExist) {
				return nil
			}
			return err
		}
		rel, err := filepath.Rel(folder, p)
		if err != nil {
			return err
		}
		rel = filepath.ToSlash(rel)
		kind, ok := kinds[rel]
		if ok && kind == kindOf(d.Type()) {
			return nil
		}
		out = append(out, rel)
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	return out
}

func kindOf(m fs.FileMode) pieceKind {
	switch {
	case m.IsDir():
		return pieceFolder
	case m&fs.ModeSymlink != 0:
		return pieceLink
	}
	return pieceFile // what else there may be is replaced as a file would be
}

// link makes dst a symbolic link, whatever was there.
func link(target, dst string) error {
	if err := os.MkdirAll(filepath.Dir(dst), 0o755); err != nil {
		return err
	}
	temp := path.Join(filepath.Dir(dst), ".eval-tmp-link-"+path.Base(dst))
	if err := errors.Join(ignoreAbsent(os.Remove(temp)), os.Symlink(target, temp)); err != nil {
		return err
	}
	return os.Rename(temp, dst)
}

func ignoreAbsent(err error) error {
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	return err
}
