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
	if m.Link != "" {
		if target, err := os.Readlink(m.Path); err != nil || target != m.Link {
			return errChanged
		}
		return nil
	}
	var now cas.Digest
	if m.Tree != nil {
		w := walk{r: r, root: m.Source, tree: cas.NewTree(r.stats.fn)}
		if err := w.folder(""); err != nil {
			return errChanged
		}
		tree, err := w.tree.Build()
		if err != nil {
			return err
		}
		now = tree.Digest()
	} else {
		f, err := lstat(m.Source)
		if err != nil || f.kind() != 0 || f.executable() != m.Executable {
			return errChanged
		}
		rec, err := r.stats.read(m.Source, f)
		if err != nil {
			return err
		}
		now = r.stats.digest(rec)
	}
	if now != m.Digest {
		return errChanged
	}
	return nil
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
