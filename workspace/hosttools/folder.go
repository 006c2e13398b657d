package hosttools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// maxEntries bounds one folder of data. The largest node_modules known to be in
// use have 300,000 files; 1.5 million are a home folder by mistake.
const maxEntries = 500_000

func (r *Resolver) data(s set, name string) error {
	p, err := r.locate(name)
	if err != nil {
		return err
	}
	programs := []string{p.real}
	if p.facts.kind().IsDir() {
		programs, err = r.folder(s, p)
	} else {
		_, err = r.file(s, name)
	}
	if err != nil {
		return err
	}
	for _, file := range programs {
		r.extension(s, file)
	}
	return nil
}

// folder adds a folder with all in it, and gives the ELF files among that.
func (r *Resolver) folder(s set, p place) (programs []string, err error) {
	if err := r.host.readable(p.facts); err != nil {
		return nil, err
	}
	w := walk{r: r, root: p.real, tree: cas.NewTree(r.stats.fn)}
	if err := w.folder(""); err != nil {
		return nil, err
	}
	tree, err := w.tree.Build()
	if err != nil {
		return nil, err
	}
	s.add(p.links...)
	s.add(graph.Mount{Path: p.real, Source: p.real, Digest: tree.Digest(), Tree: tree})
	return w.programs, nil
}

// extension adds what an ELF file in data needs. A library that can't be read or
// isn't found is left out: the host's loader would fail too, and such files lie
// about, for optional parts that aren't installed.
func (r *Resolver) extension(s set, file string) {
	p, err := r.locate(file)
	if err != nil {
		return
	}
	if o, err := r.object(p); err == nil && o != nil {
		r.elf(s, o, file, false) // not strict: no error
	}
}

// walk makes the tree of a folder.
type walk struct {
	r        *Resolver
	root     string
	tree     *cas.TreeBuilder
	entries  int
	programs []string
}

// folder adds what is in the folder at rel, which is one.
func (w *walk) folder(rel string) error {
	fail := func(name string, err error) error { return fmt.Errorf("%s: %w", name, bare(err)) }
	entries, err := os.ReadDir(path.Join(w.root, rel))
	if err != nil {
		return fail(path.Join(".", rel), err)
	}
	if w.entries += len(entries); w.entries > maxEntries {
		return &hinted{
			fmt.Errorf("has more than %d files", maxEntries),
			"name the folders in it that the program reads",
		}
	}
	if len(entries) == 0 && rel != "" { // an empty root has no entry to make
		empty, err := cas.NewTree(w.r.stats.fn).Build()
		if err != nil {
			return fail(rel, err)
		}
		w.tree.Mount(rel, empty)
	}
	for _, e := range entries {
		name := path.Join(rel, e.Name())
		if err := w.entry(name); err != nil {
			return err
		}
	}
	return nil
}

func (w *walk) entry(rel string) error {
	fail := func(err error) error { return fmt.Errorf("%s: %w", rel, bare(err)) }
	name := path.Join(w.root, rel)
	f, err := lstat(name)
	if err != nil {
		return fail(err)
	}
	if k := f.kind(); k == 0 || k.IsDir() {
		if err := w.r.host.readable(f); err != nil {
			return fail(err)
		}
	}
	switch f.kind() {
	case fs.ModeDir:
		return w.folder(rel)
	case fs.ModeSymlink:
		target, err := os.Readlink(name)
		if err != nil {
			return fail(err)
		}
		w.tree.Symlink(rel, target)
		return nil
	case 0:
	default:
		return fail(errors.New("is a " + kindName(f.kind()) + ", which can't be given to a program"))
	}
	rec, err := w.r.stats.read(name, f)
	if err != nil {
		return fail(err)
	}
	w.tree.File(rel, w.r.stats.digest(rec), rec.executable())
	if rec.elf {
		w.programs = append(w.programs, name)
	}
	return nil
}

func kindName(k fs.FileMode) string {
	switch k {
	case fs.ModeNamedPipe:
		return "named pipe"
	case fs.ModeSocket:
		return "socket"
	}
	return "device"
}
