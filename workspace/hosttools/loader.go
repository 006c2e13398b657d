package hosttools

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"github.com/evalbuild/eval/workspace/graph"
)

// loader is what this package has to know of a dynamic loader.
type loader struct {
	mounts []graph.Mount // the file, links on the way, what it reads
	path   string        // "": not known which one a library will meet
	soname string
	musl   bool
	dirs   []string // searched when nothing else says where
	cached bool     // glibc: looks into /etc/ld.so.cache before dirs
}

// provides reports whether a needed name is the loader itself. That of musl is
// the C library too, and takes these names for its own wherever they are.
func (l *loader) provides(name string) bool {
	if l.musl {
		for _, own := range [...]string{"c", "pthread", "rt", "m", "dl", "util", "xnet"} {
			if strings.HasPrefix(name, "lib"+own+".") {
				return true
			}
		}
	}
	return l.path != "" && (name == path.Base(l.path) || name == l.soname)
}

// arch is what loaders call a machine.
type arch struct {
	triplet  string // of Debian's folders
	platform string // $PLATFORM
	glibc    string // the usual loader
	musl     string
}

var arches = map[elf.Machine]arch{
	elf.EM_X86_64:  {"x86_64-linux-gnu", "x86_64", "/lib64/ld-linux-x86-64.so.2", "/lib/ld-musl-x86_64.so.1"},
	elf.EM_AARCH64: {"aarch64-linux-gnu", "aarch64", "/lib/ld-linux-aarch64.so.1", "/lib/ld-musl-aarch64.so.1"},
	elf.EM_386:     {"i386-linux-gnu", "i686", "/lib/ld-linux.so.2", "/lib/ld-musl-i386.so.1"},
}

type loaderKey struct {
	path    string
	class   elf.Class
	machine elf.Machine
}

// loaderOf gives the loader of a program, or the one that a library will
// probably meet: that of the C library it was linked with, else of the machine's.
func (r *Resolver) loaderOf(o *object) (*loader, error) {
	name := o.interpreter
	if name == "" {
		a := arches[o.machine]
		names := []string{a.glibc, a.musl}
		if slices.ContainsFunc(o.needed, func(n string) bool { return strings.HasPrefix(n, "libc.musl-") }) {
			slices.Reverse(names)
		}
		for _, n := range names {
			if _, err := r.locate(n); err == nil {
				name = n
				break
			}
		}
	}
	return r.loaders.get(loaderKey{name, o.class, o.machine}, func() (*loader, error) {
		if name == "" {
			return &loader{dirs: r.libraryDirs(arches[o.machine], nil)}, nil
		}
		return r.readLoader(name, o)
	})
}

const maxLoader = 64 << 20 // a musl or a debug build is 10 MB at most

func (r *Resolver) readLoader(name string, o *object) (*loader, error) {
	s := set{}
	p, err := r.file(s, name)
	var self *object
	if err == nil {
		self, err = r.object(p)
	}
	if err == nil && (self == nil || self.class != o.class || self.machine != o.machine) {
		err = errors.New("is no ELF file for the same machine")
	}
	if err == nil && p.facts.size > maxLoader {
		err = errors.New("is too large to be one")
	}
	var content []byte
	if err == nil {
		content, err = readFile(p.real)
	}
	if err != nil {
		return nil, &hinted{
			fmt.Errorf("needs the loader %s: %w", name, err),
			"the program was built for another system or C library; install that one, or a build of the program for this system",
		}
	}
	l := &loader{path: name, soname: self.soname, musl: strings.HasPrefix(path.Base(name), "ld-musl-")}
	if l.musl {
		if l.dirs, err = r.muslDirs(s, name); err != nil {
			return nil, err
		}
	} else {
		l.dirs = r.libraryDirs(arches[o.machine], content)
		l.cached = bytes.Contains(content, []byte("\x00"+r.host.loaderCache+"\x00"))
	}
	l.mounts = s.list()
	return l, nil
}

func readFile(name string) ([]byte, error) {
	f, err := openFile(name)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLoader))
	return b, bare(err)
}

// libraryDirs gives the folders that a glibc searches at the end. They are
// fixed when it is built, differ between distributions, and stand in it as
// strings "/usr/lib/". If it has none of those known here, all are tried.
func (r *Resolver) libraryDirs(a arch, content []byte) []string {
	if r.host.libraries != nil {
		return r.host.libraries
	}
	known := []string{"/lib64", "/usr/lib64", "/lib", "/usr/lib"}
	if a.triplet != "" {
		known = append([]string{"/lib/" + a.triplet, "/usr/lib/" + a.triplet}, known...)
	}
	var built []string
	for _, dir := range known {
		if bytes.Contains(content, []byte("\x00"+dir+"/\x00")) {
			built = append(built, dir)
		}
	}
	if built == nil {
		return known
	}
	return built
}

// muslDirs gives the folders that musl searches, and adds the file that may
// list others: /etc/ld-musl-ARCH.path, separated by newlines or colons.
func (r *Resolver) muslDirs(s set, name string) ([]string, error) {
	file := path.Join(r.host.muslPaths, strings.TrimSuffix(path.Base(name), ".so.1")+".path")
	if _, err := r.locate(file); err != nil {
		if r.host.libraries != nil {
			return r.host.libraries, nil
		}
		return []string{"/lib", "/usr/local/lib", "/usr/lib"}, nil
	}
	p, err := r.file(s, file)
	if err != nil {
		return nil, fmt.Errorf("needs %s: %w", file, err)
	}
	b, err := readFile(p.real)
	if err != nil {
		return nil, fmt.Errorf("needs %s: %w", file, err)
	}
	return strings.FieldsFunc(string(b), func(c rune) bool { return c == '\n' || c == ':' }), nil
}

// readLoaderCache reads ld.so.cache into the paths of each name. The format is
// glibc's (sysdeps/generic/dl-cache.h): a header of 48 bytes that begins with
// the magic, entries {flags i32, name u32, path u32, os u32, hwcap u64}, strings;
// offsets are from the header, which may stand behind a table of an older format.
// Paths for some processors only are left out. A file that can't be read is an
// empty one, as it is for the loader.
func readLoaderCache(file string) map[string][]string {
	const magic, header, entry = "glibc-ld.so.cache1.1", 48, 24
	f, err := os.Open(file)
	if err != nil {
		return nil
	}
	defer f.Close()
	b, err := io.ReadAll(io.LimitReader(f, maxLoader))
	start := bytes.Index(b, []byte(magic))
	if err != nil || start < 0 || len(b)-start < header {
		return nil
	}
	b = b[start:]
	order := binary.NativeEndian
	n := uint64(order.Uint32(b[len(magic):]))
	if n > uint64(len(b)-header)/entry {
		return nil
	}
	text := func(at uint32) string {
		if uint64(at) >= uint64(len(b)) {
			return ""
		}
		end := bytes.IndexByte(b[at:min(len(b), int(at)+4096)], 0)
		return string(b[at:][:max(end, 0)])
	}
	paths := make(map[string][]string, n)
	for i := range n {
		e := b[header+i*entry:]
		name, to := text(order.Uint32(e[4:])), text(order.Uint32(e[8:]))
		if name != "" && order.Uint64(e[16:]) == 0 && path.IsAbs(to) {
			paths[name] = append(paths[name], path.Clean(to))
		}
	}
	return paths
}
