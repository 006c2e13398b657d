package remote

import (
	"errors"
	"fmt"

	"github.com/evalbuild/eval/cas"
)

// retree gives the tree with digests of fn, that of each file from double.
func retree(t *cas.Tree, fn cas.Func, double func(cas.Digest) (cas.Digest, error)) (*cas.Tree, error) {
	return retreed(t, fn, double, map[cas.Digest]*cas.Tree{})
}

func retreed(t *cas.Tree, fn cas.Func, double func(cas.Digest) (cas.Digest, error), done map[cas.Digest]*cas.Tree) (*cas.Tree, error) {
	if made := done[t.Digest()]; made != nil {
		return made, nil
	}
	b := cas.NewTree(fn)
	dir := t.Directory()
	for _, f := range dir.Files {
		d, err := double(f.Digest)
		if err != nil {
			return nil, err
		}
		b.File(f.Name, d, f.Executable)
	}
	for _, l := range dir.Symlinks {
		b.Symlink(l.Name, l.Target)
	}
	for i, g := range dir.Directories {
		sub, err := retreed(t.Below()[i], fn, double, done)
		if err != nil {
			return nil, err
		}
		b.Mount(g.Name, sub)
	}
	made, err := b.Build()
	if err == nil {
		done[t.Digest()] = made
	}
	return made, err
}

// pairTrees walks two trees that should be one in two functions, and notes which
// files are the same. Any difference is an error.
func pairTrees(local, server *cas.Tree, found doubles) error {
	return pairTree(local, server, found, newDoubles())
}

func pairTree(local, server *cas.Tree, found, walked doubles) error {
	if was, ok := walked.server[local.Digest()]; ok && was == server.Digest() {
		return nil
	}
	a, b := local.Directory(), server.Directory()
	if len(a.Files) != len(b.Files) || len(a.Directories) != len(b.Directories) || len(a.Symlinks) != len(b.Symlinks) {
		return errors.New("the numbers of entries differ")
	}
	for i, f := range a.Files {
		if f.Name != b.Files[i].Name || f.Executable != b.Files[i].Executable {
			return fmt.Errorf("%q is %q", f.Name, b.Files[i].Name)
		}
		if err := found.add(f.Digest, b.Files[i].Digest); err != nil {
			return fmt.Errorf("%q: %w", f.Name, err)
		}
	}
	for i, l := range a.Symlinks {
		if l != b.Symlinks[i] {
			return fmt.Errorf("link %q differs", l.Name)
		}
	}
	for i, g := range a.Directories {
		if g.Name != b.Directories[i].Name {
			return fmt.Errorf("folder %q is %q", g.Name, b.Directories[i].Name)
		}
		if err := pairTree(local.Below()[i], server.Below()[i], found, walked); err != nil {
			return fmt.Errorf("%q: %w", g.Name, err)
		}
	}
	// A directory's sizes agree in both functions, as long as those of hashes do.
	return walked.add(local.Digest(), server.Digest())
}
