package engine

import (
	"errors"
	"fmt"
	"os"
	"path"
	"path/filepath"
	"strings"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Locks says what the tools.lock files of a workspace pin; workspace/toolslock
// does.
type Locks interface {
	// Locked gives what is pinned of a tool on a platform: mounts without
	// sources, folders as hollow trees. If nothing is, ok is false, and
	// elsewhere names the platforms on which it is locked.
	Locked(t graph.Tool, p graph.Platform) (mounts []graph.Mount, elsewhere []graph.Platform, ok bool, err error)
}

// An UnlockedError says that no lock pins a tool on this machine's platform.
type UnlockedError struct {
	Tool      graph.Label
	Elsewhere []graph.Platform // where it is locked
}

func (e *UnlockedError) Error() string {
	if len(e.Elsewhere) == 0 {
		return fmt.Sprintf("tool %s is not locked", e.Tool)
	}
	var names []string
	for _, p := range e.Elsewhere {
		names = append(names, p.String())
	}
	return fmt.Sprintf("tool %s is locked for %s only", e.Tool, strings.Join(names, ", "))
}

// Hint says what pins it.
func (e *UnlockedError) Hint() string {
	return fmt.Sprintf("`ev lock %s` pins it as it is on this machine", e.Tool)
}

// Unlocked gives the tools of an action that no lock pins.
func (e *Engine) Unlocked(a *graph.Action) ([]*UnlockedError, error) {
	var out []*UnlockedError
	for _, t := range a.Tools {
		_, elsewhere, ok, err := e.locked(t)
		if err != nil {
			return nil, err
		}
		if !ok {
			out = append(out, &UnlockedError{t.Label, elsewhere})
		}
	}
	return out, nil
}

// locked is Locks.Locked for this machine.
func (e *Engine) locked(t graph.Tool) (mounts []graph.Mount, elsewhere []graph.Platform, ok bool, err error) {
	if e.o.Locks == nil || t.Own != "" { // what comes with the harness is what it is
		return nil, nil, false, nil
	}
	return e.o.Locks.Locked(t, here)
}

// fill reads the folders that other mounts lie in: whether they have these in
// them is then known. All others stay as hollow as they were.
func (b *build) fill(lists [][]graph.Mount) error {
	full := map[string]bool{} // folders with mounts of other lists below
	for _, list := range lists {
		for _, m := range list {
			for dir := path.Dir(m.Path); len(dir) > 1; dir = path.Dir(dir) {
				full[dir] = true
			}
		}
	}
	for i, list := range lists {
		var out []graph.Mount
		for j, m := range list {
			if m.Tree == nil || !m.Tree.Hollow() || !full[m.Path] {
				continue
			}
			if out == nil { // the list is the lock's
				out = append(out, list...)
			}
			tree, err := b.o.Store.FillTree(m.Tree)
			var lost *cas.BlobError
			if errors.As(err, &lost) && b.fetchMount(m) {
				tree, err = b.o.Store.FillTree(m.Tree)
			}
			if err != nil {
				return fmt.Errorf("find out what is in the locked folder %s: %w", m.Path, err)
			}
			out[j].Tree = tree
		}
		if out != nil {
			lists[i] = out
		}
	}
	return nil
}

// sources finds where the pinned mounts are: this machine's file where it is the
// same, else the store's copy; with onlyHost there is no else. The error is a
// *DriftError if they are nowhere.
func (b *build) sources(r *resolution, onlyHost bool) ([]graph.Mount, error) {
	out := make([]graph.Mount, len(r.mounts))
	for i, m := range r.mounts {
		out[i] = m
		tool, ok := r.pinned[m.Path]
		if !ok || m.Link != "" && !onlyHost { // the seal makes links
			continue
		}
		if m.Link == "" {
			out[i].Source = m.Path
		}
		now, err := b.o.Tools.Now(out[i])
		if err == nil && same(now, m) {
			continue
		}
		drift := &DriftError{Tool: tool, Path: m.Path, Locked: m, Here: now, Err: err}
		switch {
		case onlyHost && here.OSFamily == "macos":
			drift.Lost = "on macOS a tool is what this machine has"
		case onlyHost:
			drift.Lost = "without a seal a tool is what this machine has"
		default:
			out[i].Source, err = b.copyOf(m)
			var lost *cas.BlobError
			if errors.As(err, &lost) && b.fetchMount(m) {
				out[i].Source, err = b.copyOf(m)
			}
			switch {
			case err == nil:
				continue
			case !errors.As(err, &lost):
				return nil, &storeError{err}
			case lost.Reason == cas.Damaged:
				drift.Lost = "the store's copy of the locked one is damaged"
			default:
				drift.Lost = "the store doesn't have the locked one"
				if b.o.Remote != nil {
					drift.Lost = "neither the store nor the remote cache has the locked one"
				}
			}
		}
		return nil, &toolError{drift}
	}
	return out, nil
}

// same doesn't ask where the bytes are.
func same(x, y graph.Mount) bool {
	return x.Link == y.Link && x.Digest == y.Digest && x.Executable == y.Executable
}

// copyOf has the store make a file or folder that can be mounted.
func (b *build) copyOf(m graph.Mount) (source string, err error) {
	if m.Tree == nil {
		return b.o.Store.Stage(m.Digest, m.Executable, nil)
	}
	// A folder and not a mount for each of its files: a seal has a descriptor
	// for each, and its record would be another than with this machine's.
	m.Source = filepath.Join(b.o.State, "folders", m.Digest.Hex())
	if now, err := b.o.Tools.Now(m); err == nil && same(now, m) {
		return m.Source, nil
	}
	tree, err := b.o.Store.FillTree(m.Tree)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(filepath.Dir(m.Source), 0o755); err != nil {
		return "", err
	}
	b.sweepCopies(filepath.Dir(m.Source))
	temp, err := os.MkdirTemp(filepath.Dir(m.Source), copyPrefix+"*")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(temp) // what it was, or what was in its place
	if err := b.checkout(tree, temp); err != nil {
		return "", err
	}
	if err := os.Rename(temp, m.Source); err == nil {
		return m.Source, nil
	}
	// Another process was faster, or what is there was touched.
	if now, err := b.o.Tools.Now(m); err == nil && same(now, m) {
		return m.Source, nil
	}
	old := temp + "-old"
	defer os.RemoveAll(old)
	if err := os.Rename(m.Source, old); err != nil {
		return "", err
	}
	return m.Source, os.Rename(temp, m.Source)
}

// copyPrefix begins the names of folders that are being written.
const copyPrefix = "tmp-"

// sweepCopies removes what killed processes left, after a day.
func (b *build) sweepCopies(dir string) {
	old, _ := filepath.Glob(filepath.Join(dir, copyPrefix+"*"))
	for _, p := range old {
		if fi, err := os.Lstat(p); err == nil && b.o.Now().Sub(fi.ModTime()) > 24*time.Hour {
			os.RemoveAll(p)
		}
	}
}

// checkout writes a tree of the store into a folder. Modes are for a process
// that is not of our user, whatever the umask.
func (b *build) checkout(tree *cas.Tree, dir string) error {
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	at := func(p string) string { return filepath.Join(dir, filepath.FromSlash(p)) }
	return tree.Visit(cas.Visitor{
		Dir: func(p string, _ *cas.Tree) error {
			return errors.Join(os.MkdirAll(at(p), 0o755), os.Chmod(at(p), 0o755))
		},
		File: func(p string, f cas.FileNode) error {
			err := b.o.Store.Export(f.Digest, at(p))
			if err == nil && f.Executable {
				err = os.Chmod(at(p), 0o555)
			}
			return err
		},
		Symlink: func(p string, l cas.SymlinkNode) error { return os.Symlink(l.Target, at(p)) },
	})
}

// A DriftError says that what a lock pins of a tool is neither on this machine
// nor in the store: nothing ran, and nothing was drawn.
type DriftError struct {
	Tool   graph.Label
	Path   string
	Locked graph.Mount
	Here   graph.Mount // if Err is nil
	Err    error
	Lost   string // why the locked one can't be had
}

func (e *DriftError) Error() string {
	now := brief(e.Here)
	if e.Err != nil {
		now = e.Err.Error()
	}
	locked := brief(e.Locked)
	if e.Err == nil && e.Here.Digest == e.Locked.Digest && e.Locked.Link == "" {
		locked, now = mode(e.Locked), mode(e.Here)
	}
	return fmt.Sprintf("tool drifted: %s is not what tools.lock pins (locked %s, here %s), and %s", e.Path, locked, now, e.Lost)
}

// Hints are what can be done about it.
func (e *DriftError) Hints() []string {
	return []string{
		fmt.Sprintf("`ev lock %s` pins what is here now: another key, and every rep is drawn again", e.Tool),
		"or fetch the locked blobs from the store or remote cache that has them: --store=DIR, --remote_cache=URL",
	}
}

func brief(m graph.Mount) string {
	if m.Digest.IsZero() {
		return fmt.Sprintf("a link to %q", m.Link)
	}
	return m.Digest.Func.String() + ":" + m.Digest.Hex()[:12] + "…"
}

func mode(m graph.Mount) string {
	if m.Executable {
		return "executable"
	}
	return "not executable"
}
