package hosttools

import (
	"debug/elf"
	"encoding/binary"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// elfFile makes a file that a loader could read, with nothing to execute.
type elfFile struct {
	interpreter, soname, rpath, runpath string
	needed                              []string
	machine                             elf.Machine // zero is the usual one
	tail                                string      // further bytes, such as the strings of a loader
}

func (f elfFile) bytes() []byte {
	if f.machine == 0 {
		f.machine = elf.EM_X86_64
	}
	strs := "\x00"
	text := func(s string) uint64 {
		at := len(strs)
		strs += s + "\x00"
		return uint64(at)
	}
	var dyn [][2]uint64
	add := func(tag elf.DynTag, s string) {
		if s != "" {
			dyn = append(dyn, [2]uint64{uint64(tag), text(s)})
		}
	}
	for _, n := range f.needed {
		add(elf.DT_NEEDED, n)
	}
	add(elf.DT_SONAME, f.soname)
	add(elf.DT_RPATH, f.rpath)
	add(elf.DT_RUNPATH, f.runpath)
	const head, each, base = 64, 56, 0x400000
	strAt := uint64(head + 3*each)
	dynAt := strAt + uint64(len(strs))
	dyn = append(dyn, [2]uint64{uint64(elf.DT_STRTAB), base + strAt}, [2]uint64{})
	interpAt := dynAt + uint64(16*len(dyn))
	end := interpAt + uint64(len(f.interpreter)) + 1

	b := append([]byte(elfMagic), byte(elf.ELFCLASS64), byte(elf.ELFDATA2LSB), 1)
	b = append(b, make([]byte, 9)...)
	b = binary.LittleEndian.AppendUint16(b, uint16(elf.ET_DYN))
	b = binary.LittleEndian.AppendUint16(b, uint16(f.machine))
	b = binary.LittleEndian.AppendUint32(b, 1)
	for _, n := range []uint64{0, head, 0} {
		b = binary.LittleEndian.AppendUint64(b, n)
	}
	b = binary.LittleEndian.AppendUint32(b, 0)
	for _, n := range []uint16{head, each, 3, 64, 0, 0} {
		b = binary.LittleEndian.AppendUint16(b, n)
	}
	segment := func(kind elf.ProgType, at, size uint64) {
		b = binary.LittleEndian.AppendUint32(b, uint32(kind))
		b = binary.LittleEndian.AppendUint32(b, 5)
		for _, n := range []uint64{at, base + at, base + at, size, size, 8} {
			b = binary.LittleEndian.AppendUint64(b, n)
		}
	}
	segment(elf.PT_LOAD, 0, end)
	segment(elf.PT_DYNAMIC, dynAt, uint64(16*len(dyn)))
	if f.interpreter != "" {
		segment(elf.PT_INTERP, interpAt, uint64(len(f.interpreter))+1)
	} else {
		segment(elf.PT_NULL, 0, 0)
	}
	b = append(b, strs...)
	for _, d := range dyn {
		b = binary.LittleEndian.AppendUint64(binary.LittleEndian.AppendUint64(b, d[0]), d[1])
	}
	return append(append(append(b, f.interpreter...), 0), f.tail...)
}

// loaderCache makes a file in the format of ld.so.cache.
func loaderCache(pairs ...[2]string) []byte {
	const magic, header, entry = "glibc-ld.so.cache1.1", 48, 24
	b := make([]byte, header+entry*len(pairs))
	copy(b, magic)
	binary.NativeEndian.PutUint32(b[len(magic):], uint32(len(pairs)))
	for i, p := range pairs {
		e := header + entry*i
		for j, s := range p {
			binary.NativeEndian.PutUint32(b[e+4+4*j:], uint32(len(b)))
			b = append(append(b, s...), 0)
		}
	}
	return b
}

// world is a folder with a Resolver for which it is the machine.
type world struct {
	testing.TB
	dir string
	now time.Time
	*Resolver
}

func newWorld(t testing.TB) *world {
	t.Helper()
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Dir(dir), 0o755); err != nil { // for tests of an ordinary user
		t.Fatal(err)
	}
	w := &world{TB: t, dir: dir, now: time.Now().Add(time.Hour)}
	w.restart()
	return w
}

// restart makes the Resolver of another process.
func (w *world) restart() {
	w.Resolver = New(Options{Cache: w.path("state/hosttools"), Now: func() time.Time { return w.now }})
	w.host = host{
		goos: "linux", path: []string{w.path("usr/bin"), w.path("bin")}, loaderCache: w.path("etc/ld.so.cache"),
		muslPaths: w.path("etc"), libraries: []string{w.path("lib"), w.path("usr/lib")},
	}
}

func (w *world) path(rel string) string { return filepath.Join(w.dir, rel) }

func (w *world) check(err error) {
	w.Helper()
	if err != nil {
		w.Fatal(err)
	}
}

func (w *world) write(rel, content string, mode os.FileMode) string {
	w.Helper()
	name := w.path(rel)
	w.check(os.MkdirAll(filepath.Dir(name), 0o755))
	w.check(os.WriteFile(name, []byte(content), mode))
	return name
}

func (w *world) elf(rel string, f elfFile) string { return w.write(rel, string(f.bytes()), 0o755) }

func (w *world) link(rel, target string) string {
	w.Helper()
	name := w.path(rel)
	w.check(os.MkdirAll(filepath.Dir(name), 0o755))
	w.check(os.Symlink(target, name))
	return name
}

// loader makes a glibc, or by its name a musl.
func (w *world) loader(rel string) string {
	return w.elf(rel, elfFile{soname: filepath.Base(rel), tail: "\x00" + w.path("etc/ld.so.cache") + "\x00"})
}

// lines spells mounts below the world: "path", "path -> target" or "path/" of a folder.
func (w *world) lines(mounts []graph.Mount) []string {
	var list []string
	for _, m := range mounts {
		s := strings.TrimPrefix(m.Path, w.dir+"/")
		switch {
		case m.Link != "":
			s += " -> " + strings.Replace(m.Link, w.dir, "", 1)
		case m.Tree != nil:
			s += "/"
		}
		if (m.Link != "") != (m.Source == "") || (m.Link != "") != m.Digest.IsZero() || m.Source != "" && m.Source != m.Path {
			w.Errorf("mount %+v", m)
		}
		list = append(list, s)
	}
	return list
}

func (w *world) is(mounts []graph.Mount, err error, want ...string) {
	w.Helper()
	if err != nil {
		w.Error(err)
	} else if got := w.lines(mounts); !slices.Equal(got, want) {
		w.Errorf("\n got %q\nwant %q", got, want)
	}
}

func (w *world) fails(err error, want string) {
	w.Helper()
	if err == nil || !strings.Contains(strings.ReplaceAll(err.Error(), w.dir, ""), want) {
		w.Errorf("got %v, want …%s…", err, want)
	}
}

func digest(s string) cas.Digest { return cas.BLAKE3.Sum([]byte(s)) }
