package hosttools

import (
	"errors"
	"fmt"
	"path"
	"strings"

	"github.com/evalbuild/eval/workspace/graph"
)

// file adds the regular file at a path, and the links on the way.
func (r *Resolver) file(s set, name string) (place, error) {
	p, err := r.locate(name)
	if err != nil {
		return place{}, err
	}
	switch {
	case p.facts.kind().IsDir():
		return place{}, errors.New("is a folder")
	case p.facts.kind() != 0:
		return place{}, errors.New("is not a file")
	}
	if err := r.host.readable(p.facts); err != nil {
		return place{}, err
	}
	rec, err := r.stats.read(p.real, p.facts)
	if err != nil {
		return place{}, err
	}
	s.add(p.links...)
	s.add(graph.Mount{Path: p.real, Source: p.real, Digest: r.stats.digest(rec), Executable: rec.executable()})
	return p, nil
}

// object gives what a loader sees in a file, nil if it isn't an ELF file.
func (r *Resolver) object(p place) (*object, error) {
	return r.objects.get(p.real, func() (*object, error) {
		f, err := openFile(p.real)
		if err != nil {
			return nil, err
		}
		defer f.Close()
		var magic [len(elfMagic)]byte
		if n, _ := f.ReadAt(magic[:], 0); n < len(magic) || string(magic[:]) != elfMagic {
			return nil, nil
		}
		return parseELF(f, p.facts.size)
	})
}

// loaded is an object in the order in which a loader comes to them.
type loaded struct {
	*object
	path string  // as it was found, which makes $ORIGIN; "" if that isn't known
	by   *loaded // the first that needed it
}

// elf adds what an ELF file needs, breadth first as loaders do: a library that
// is there by its name is not looked for again, wherever the next one would
// find it. What isn't found is an error if strict.
func (r *Resolver) elf(s set, o *object, name string, strict bool) error {
	if o.interpreter == "" && len(o.needed) == 0 {
		return nil // static, or not for a loader
	}
	l, err := r.loaderOf(o)
	if err != nil {
		if strict {
			return err
		}
		return nil
	}
	if o.interpreter != "" {
		s.add(l.mounts...)
	}
	have := map[string]bool{o.soname: true}
	queue := []*loaded{{object: o, path: name}}
	for len(queue) > 0 {
		at := queue[0]
		queue = queue[1:]
		for _, need := range at.needed {
			if have[need] || l.provides(need) {
				continue
			}
			have[need] = true
			lib, searched := r.search(l, at, need)
			if lib.object == nil {
				beside := at.path == "" && strings.Contains(at.rpath+at.runpath+need, "ORIGIN")
				if strict && !beside {
					return missing(need, at, searched)
				}
				continue
			}
			s.add(lib.mounts...)
			have[lib.soname] = true
			queue = append(queue, &loaded{object: lib.object, path: lib.path, by: at})
		}
	}
	return nil
}

func missing(need string, at *loaded, searched []string) error {
	who := ""
	if at.by != nil {
		who = " (for " + at.path + ")"
	}
	where := ", a path relative to the current folder"
	switch {
	case path.IsAbs(need), strings.HasPrefix(need, "$"):
		where = ", which isn't there or isn't for the same machine"
	case !strings.Contains(need, "/"):
		where = ", which is in none of " + strings.Join(searched, ":")
	}
	return &hinted{
		fmt.Errorf("needs library %s%s%s", need, who, where),
		"install it; a folder of its own is listed in /etc/ld.so.conf.d and made known by ldconfig (LD_LIBRARY_PATH is not looked at)",
	}
}

// library is a library that was found; its object is nil if it wasn't.
type library struct {
	*object
	path   string
	mounts []graph.Mount
}

type libraryKey struct {
	loader *loader
	name   string
	as     loaderKey // class and machine: a loader has one, a missing loader doesn't
}

// search finds a needed library as ld.so(8) says, without LD_LIBRARY_PATH:
// DT_RPATH of the object and of those that it was loaded for, unless the object
// has a DT_RUNPATH, then that, the cache, the loader's own folders. musl knows
// no difference between the two and has no cache.
func (r *Resolver) search(l *loader, at *loaded, need string) (lib library, searched []string) {
	if strings.Contains(need, "/") {
		for _, name := range at.expand(need) {
			if lib, ok := r.try(name, at.object); ok {
				return lib, nil
			}
		}
		return library{}, nil
	}
	if at.runpath == "" || l.musl {
		for o := at; o != nil; o = o.by {
			if o.runpath == "" || l.musl {
				searched = append(searched, o.dirs(o.rpath)...)
			}
			if l.musl {
				searched = append(searched, o.dirs(o.runpath)...)
			}
		}
	} else {
		searched = at.dirs(at.runpath)
	}
	for _, dir := range searched {
		if lib, ok := r.try(path.Join(dir, need), at.object); ok {
			return lib, nil
		}
	}
	lib, _ = r.libraries.get(libraryKey{l, need, loaderKey{class: at.class, machine: at.machine}}, func() (library, error) {
		return r.searchSystem(l, at.object, need), nil
	})
	return lib, append(searched, l.dirs...)
}

// searchSystem looks where every object's libraries are. The cache has the last
// word, but becomes a mount only if the loader would do something else without:
// it changes with every package that is installed, and with it all keys.
func (r *Resolver) searchSystem(l *loader, o *object, need string) library {
	var plain, cached library
	for _, dir := range l.dirs {
		var ok bool
		if plain, ok = r.try(path.Join(dir, need), o); ok {
			break
		}
	}
	if !l.cached {
		return plain
	}
	for _, name := range r.cached()[need] {
		var ok bool
		if cached, ok = r.try(name, o); ok {
			break
		}
	}
	if cached.object == nil || cached.object == plain.object {
		return plain // objects are kept by real path
	}
	s := set{}
	s.add(cached.mounts...)
	if _, err := r.file(s, r.host.loaderCache); err != nil {
		return plain // gone since it was read
	}
	cached.mounts = s.list()
	return cached
}

// try gives the library at a path if it is one for the machine of o. Loaders
// pass over everything else.
func (r *Resolver) try(name string, o *object) (library, bool) {
	p, err := r.locate(name)
	if err != nil || p.facts.kind() != 0 {
		return library{}, false
	}
	found, err := r.object(p)
	if err != nil || found == nil || found.class != o.class || found.machine != o.machine {
		return library{}, false
	}
	s := set{}
	if _, err := r.file(s, name); err != nil {
		return library{}, false
	}
	return library{found, name, s.list()}, true
}

// maxDirs bounds what one DT_RPATH has searched for each library; those of Nix
// have about a hundred folders.
const maxDirs = 1000

// dirs gives the folders of a DT_RPATH or DT_RUNPATH. Those that are relative to
// the current folder are no part of this machine.
func (o *loaded) dirs(list string) []string {
	var dirs []string
	for entry := range strings.SplitSeq(list, ":") {
		for _, dir := range o.expand(entry) {
			if path.IsAbs(dir) && len(dirs) < maxDirs {
				dirs = append(dirs, dir)
			}
		}
	}
	return dirs
}

// expand puts the tokens of ld.so(8) in. $LIB is one of two folders, depending
// on the distribution. Nothing comes out if $ORIGIN isn't known.
func (o *loaded) expand(s string) []string {
	if !strings.Contains(s, "$") {
		return []string{path.Clean(s)}
	}
	a := arches[o.machine]
	var out []string
	for _, lib := range [...]string{"lib/" + a.triplet, "lib64"} {
		t := strings.NewReplacer(
			"${ORIGIN}", path.Dir(o.path), "$ORIGIN", path.Dir(o.path),
			"${LIB}", lib, "$LIB", lib, "${PLATFORM}", a.platform, "$PLATFORM", a.platform,
		).Replace(s)
		if o.path == "" && strings.Contains(s, "ORIGIN") {
			continue
		}
		if t = path.Clean(t); len(out) == 0 || out[0] != t {
			out = append(out, t)
		}
	}
	return out
}
