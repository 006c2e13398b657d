package engine

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// A copyJob shows one piece of an output below the output folder.
type copyJob struct {
	node *node // its maker, nil for a source
	file *graph.File
	piece
	dst string
}

// shown lists what is copied to a target's output folder: its outputs, then its
// exports, each path once. Sources among its files are not copied: they are in
// the workspace.
func shown(t *starlark.Target) []starlark.Export {
	var out []starlark.Export
	seen := map[string]bool{}
	add := func(e starlark.Export) {
		if !seen[e.Path] {
			seen[e.Path] = true
			out = append(out, e)
		}
	}
	for _, f := range t.Result.Files {
		if !f.Source() && f.Label == t.Label {
			add(starlark.Export{Path: f.Path, File: f})
		}
	}
	for _, e := range t.Result.Exports {
		add(e)
	}
	return out
}

// shownPaths are the paths of what is shown; that of a folder ends in a slash.
func shownPaths(t *starlark.Target) []string {
	var paths []string
	for _, e := range shown(t) {
		p := e.Path
		if e.File.Folder() {
			p += "/"
		}
		paths = append(paths, p)
	}
	return paths
}

// Folder is a target's output folder.
func (e *Engine) Folder(l graph.Label) string {
	return filepath.Join(e.o.Out, filepath.FromSlash(folderName(l)))
}

func folderName(l graph.Label) string {
	if l.Repo == "" {
		return l.Path()
	}
	return "@" + l.Repo + "/" + l.Path()
}

// export copies the outputs of finished targets to the output folder, where
// they differ from what is there. It returns the makers of outputs that turned
// out to be damaged in the store.
func (b *build) export(ctx context.Context) ([]*node, error) {
	if fi, err := os.Stat(b.o.Out); err == nil && !fi.IsDir() {
		return nil, fmt.Errorf("write %s: it is a file; remove it", b.o.Out)
	}
	var mu sync.Mutex
	var damaged []*node
	var restored atomic.Int64
	whole := map[*starlark.Target]bool{} // and not known to be damaged
	batches := map[*starlark.Target][]copyJob{}
	for _, t := range b.targets {
		if b.exported[t] {
			continue
		}
		complete := true
		for _, n := range b.needs[t] {
			complete = complete && n.state == done
		}
		if !complete { // no half-new folder: a failed target keeps what it had
			continue
		}
		batch, err := b.copies(t)
		if err != nil {
			return nil, err
		}
		// Before all copies: a folder may be where a file was, or the reverse,
		// and a neighbour's folder in one that goes.
		if err := b.prune(t); err != nil {
			return nil, err
		}
		if err := b.tidy(t, batch); err != nil {
			return nil, err
		}
		whole[t], batches[t] = true, batch
	}
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(b.o.Jobs)
	for _, t := range b.targets {
		for batch := batches[t]; len(batch) > 0; {
			part := batch[:min(256, len(batch))]
			batch = batch[len(part):]
			g.Go(func() error {
				for _, c := range part {
					if err := ctx.Err(); err != nil {
						return ErrInterrupted
					}
					wrote, err := b.copyOut(c)
					var blob *cas.BlobError
					switch {
					case errors.As(err, &blob) && c.node != nil:
						mu.Lock()
						damaged = append(damaged, c.node)
						delete(whole, t)
						mu.Unlock()
					case err != nil:
						return fmt.Errorf("write %s: %w", c.dst, err)
					case wrote && (c.node == nil || !c.node.ran):
						restored.Add(1)
					}
				}
				return nil
			})
		}
	}
	err := g.Wait()
	b.restored += int(restored.Load())
	if err != nil {
		return nil, err
	}
	maps.Copy(b.exported, whole)
	return damaged, nil
}

// copies lists what is shown of a finished target.
func (b *build) copies(t *starlark.Target) ([]copyJob, error) {
	var batch []copyJob
	for _, e := range shown(t) {
		dst := func(p string) string { return filepath.Join(b.Folder(t.Label), filepath.FromSlash(p)) }
		if n := b.byAction[e.File.Action]; n != nil && n.away.Load() != nil {
			batch = append(batch, copyJob{n, e.File, piece{path: e.Path, kind: pieceAway, digest: n.outputs[e.File.Index].digest}, dst(e.Path)})
			continue
		}
		pieces, err := b.pieces(e)
		if err != nil {
			return nil, fmt.Errorf("write %s: %w", dst(e.Path), err)
		}
		for _, p := range pieces {
			batch = append(batch, copyJob{b.byAction[e.File.Action], e.File, p, dst(p.path)})
		}
	}
	return batch, nil
}

// copyOut makes dst a copy of the piece; it says whether it had to write.
func (b *build) copyOut(c copyJob) (bool, error) {
	fi, err := os.Lstat(c.dst)
	there := err == nil
	switch {
	case c.kind == pieceAway: // what an earlier build had there is not it
		if !there || fi.Mode().IsRegular() && cas.Stamped(fi, c.digest) {
			return false, nil
		}
		if err := b.noLinks(filepath.Dir(c.dst)); err != nil {
			return false, err
		}
		return false, os.RemoveAll(c.dst)
	case c.kind == pieceFolder:
		if there && fi.IsDir() {
			return false, nil
		}
		if err := b.noLinks(filepath.Dir(c.dst)); err != nil {
			return false, err
		}
		return false, os.MkdirAll(c.dst, 0o755)
	case there && fi.IsDir():
		return false, fmt.Errorf("a folder is in the way; remove it, or run `ev clean`")
	case c.kind == pieceLink:
		if to, err := os.Readlink(c.dst); err == nil && to == c.link {
			return false, nil
		}
		if err := b.noLinks(filepath.Dir(c.dst)); err != nil {
			return false, err
		}
		return true, link(c.link, c.dst)
	case there && fi.Mode().IsRegular() && cas.Stamped(fi, c.digest) && fi.Mode()&0o100 != 0 == c.executable:
		return false, nil
	}
	if err := b.noLinks(filepath.Dir(c.dst)); err != nil {
		return false, err
	}
	if err := b.copyFile(c); err != nil || !c.executable {
		return true, err
	}
	return true, os.Chmod(c.dst, 0o555)
}

func (b *build) copyFile(c copyJob) error {
	if c.node != nil && !c.node.outputs[c.file.Index].inlined {
		return b.o.Store.Export(c.digest, c.dst)
	}
	rc, err := b.blob(c.file, c.digest).Open()
	if err != nil {
		return err
	}
	defer rc.Close()
	return cas.ExportReader(rc, c.digest, c.dst)
}

// noLinks refuses to write through a symbolic link below the output folder: it
// could lead anywhere. The output folder itself may be one.
func (b *build) noLinks(dir string) error {
	for ; len(dir) > len(b.o.Out); dir = filepath.Dir(dir) {
		if fi, err := os.Lstat(dir); err == nil && fi.Mode()&os.ModeSymlink != 0 {
			return fmt.Errorf("%s is a symbolic link; remove it", dir)
		}
	}
	return nil
}

// prune removes outputs of earlier builds of the target that it no longer has.
func (b *build) prune(t *starlark.Target) error {
	if b.slotsCurrent(t, true) {
		return nil
	}
	now := map[string]bool{}
	for _, p := range shownPaths(t) {
		now[p] = true
	}
	var old []string
	for _, p := range b.slots.load(t.Label).Outputs {
		if !now[p] {
			old = append(old, p)
		}
	}
	if len(old) == 0 {
		return nil
	}
	// A Root, since a damaged record must not reach outside the folder.
	folder, err := os.OpenRoot(b.Folder(t.Label))
	if err != nil {
		return nil // no folder, nothing to remove
	}
	defer folder.Close()
	for _, p := range old {
		if dir, ok := strings.CutSuffix(p, "/"); ok { // all that is in it is of that output
			if !fs.ValidPath(dir) || dir == "." { // a damaged record
				continue
			}
			if err := folder.RemoveAll(dir); err != nil {
				return fmt.Errorf("remove old output %s of %s: %w", p, t.Label, err)
			}
			continue
		}
		if fi, err := folder.Lstat(p); err != nil || fi.IsDir() {
			continue // a folder is none of ours, perhaps a neighbour's
		}
		if err := folder.Remove(p); err != nil && !errors.Is(err, os.ErrNotExist) {
			return fmt.Errorf("remove old output %s of %s: %w", p, t.Label, err)
		}
		for dir := path.Dir(p); dir != "." && folder.Remove(dir) == nil; dir = path.Dir(dir) {
		}
	}
	return nil
}
