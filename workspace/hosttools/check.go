package hosttools

import (
	"errors"
	"fmt"
	"os"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// errChanged says that what was bound isn't what the key says.
var errChanged = errors.New("changed while the build ran; build again")

// Check looks again at mounts that this Resolver gave, after they were used: a
// tool is bound where it is, and another file there makes another result. It
// costs an lstat a file. An error names what changed.
func (r *Resolver) Check(mounts []graph.Mount) error {
	for _, m := range mounts {
		if err := r.check(m); err != nil {
			return fmt.Errorf("%s: %w", m.Path, bare(err))
		}
	}
	return nil
}

func (r *Resolver) check(m graph.Mount) error {
	now, err := r.Now(m)
	if err != nil || now.Link != m.Link || now.Digest != m.Digest || now.Executable != m.Executable {
		return errChanged
	}
	return nil
}

// Now gives what is at a mount's place at this moment: a link if the mount is
// one, else what its Source has, which must be a file or, if it has a Tree, a
// folder.
func (r *Resolver) Now(m graph.Mount) (graph.Mount, error) {
	now := graph.Mount{Path: m.Path, Source: m.Source}
	if m.Link != "" {
		target, err := os.Readlink(m.Path)
		now.Link = target
		return now, bare(err)
	}
	f, err := lstat(m.Source)
	switch {
	case err != nil:
		return now, err
	case m.Tree != nil && !f.kind().IsDir():
		return now, errors.New("is no longer a folder")
	case m.Tree == nil && f.kind() != 0:
		return now, errors.New("is no longer a file")
	}
	if err := r.host.readable(f); err != nil {
		return now, err
	}
	if m.Tree != nil {
		w := walk{r: r, root: m.Source, tree: cas.NewTree(r.stats.fn)}
		if err := w.folder(""); err != nil {
			return now, err
		}
		now.Tree, err = w.tree.Build()
		if err == nil {
			now.Digest = now.Tree.Digest()
		}
		return now, err
	}
	rec, err := r.stats.read(m.Source, f)
	now.Digest, now.Executable = r.stats.digest(rec), rec.executable()
	return now, err
}

// readable refuses what a sealed process couldn't read although we can: under
// root it runs as another uid, and modes are not in keys.
func (h host) readable(f facts) error {
	need, word := uint32(0o004), "read"
	switch {
	case f.kind().IsDir():
		need, word = 0o005, "enter"
	case f.executable():
		need, word = 0o005, "execute"
	}
	if !h.others || f.mode&need == need {
		return nil
	}
	return &hinted{
		fmt.Errorf("mode %04o: a sealed process is not root and could not %s it", f.mode&0o7777, word),
		"chmod o+rX it, or build as its owner",
	}
}
