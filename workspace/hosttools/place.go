package hosttools

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"strings"
	"unicode/utf8"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/workspace/graph"
	"github.com/evalbuild/eval/workspace/statcache"
)

// place is where a path leads to.
type place struct {
	links []graph.Mount // the symbolic links on the way, in order
	real  string
	facts facts
}

// maxLinks is how many symbolic links Linux follows in one path.
const maxLinks = 40

// locate resolves a path component by component. Every path gets here, so here
// is where those that a sealed root has for itself are refused.
func (r *Resolver) locate(name string) (place, error) {
	return r.places.get(name, func() (place, error) { return locate(name) })
}

func locate(name string) (place, error) {
	switch {
	case !strings.HasPrefix(name, "/"):
		return place{}, errors.New("not an absolute path")
	case path.Clean(name) != name:
		return place{}, fmt.Errorf("not a clean path, want %s", path.Clean(name))
	case !utf8.ValidString(name) || strings.IndexByte(name, 0) >= 0:
		return place{}, errors.New("the name is not valid UTF-8")
	}
	var p place
	at, rest := "/", strings.TrimPrefix(name, "/")
	if err := reserved(name); err != nil {
		return place{}, err
	}
	for rest != "" {
		var step string
		step, rest, _ = strings.Cut(rest, "/")
		if step == "" || step == "." {
			continue
		}
		if step == ".." {
			at, p.facts = path.Dir(at), facts{}
			continue
		}
		next := path.Join(at, step)
		f, err := lstat(next)
		switch {
		case err != nil && len(p.links) > 0:
			return place{}, fmt.Errorf("leads to %s: %w", next, err)
		case err != nil:
			return place{}, err
		case f.kind() != fs.ModeSymlink:
			at, p.facts = next, f
			continue
		case len(p.links) == maxLinks:
			return place{}, fmt.Errorf("more than %d symbolic links on the way", maxLinks)
		}
		if err := reserved(next); err != nil {
			return place{}, fmt.Errorf("the link %s: %w", next, err)
		}
		target, err := os.Readlink(next)
		if err != nil {
			return place{}, fmt.Errorf("link %s: %w", next, bare(err))
		}
		p.links = append(p.links, graph.Mount{Path: next, Link: target})
		if strings.HasPrefix(target, "/") {
			at, p.facts = "/", facts{}
		}
		rest = target + "/" + rest
	}
	if err := reserved(at); err != nil {
		return place{}, fmt.Errorf("leads to %s: %w", at, err)
	}
	p.real = at
	if p.facts == (facts{}) { // the way ended with "..", or at the folder of a link
		f, err := lstat(at)
		if err != nil {
			return place{}, err
		}
		p.facts = f
	}
	return p, nil
}

// reserved refuses what a sealed root has for itself, and /tmp, which is a
// folder of the process, though what is in it may be a tool.
func reserved(name string) error {
	switch dir := graph.ReservedPath(name); {
	case name == dir || name == "/tmp":
		return fmt.Errorf("%s is a folder that a sealed process has its own of", name)
	case dir != "":
		return fmt.Errorf("%s is in %s, which a sealed process has its own of", name, dir)
	}
	return nil
}

// facts are what lstat says of a file; equal facts, once aged, mean equal bytes.
type facts struct {
	size  int64
	mtime int64 // ns since 1970
	ctime int64
	ino   uint64
	dev   uint64
	mode  uint32 // type and permissions
}

func factsOf(st *unix.Stat_t) facts {
	return facts{
		size: st.Size, mtime: st.Mtim.Nano(), ctime: st.Ctim.Nano(),
		ino: uint64(st.Ino), dev: uint64(st.Dev), mode: uint32(st.Mode),
	}
}

func (f facts) kind() fs.FileMode { return statcache.FileType(f.mode) }

// executable takes any of the three bits: inside, the owner is another.
func (f facts) executable() bool { return f.mode&0o111 != 0 }

func lstat(name string) (facts, error) {
	var st unix.Stat_t
	for {
		err := unix.Lstat(name, &st)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return facts{}, err
		}
		return factsOf(&st), nil
	}
}
