package hosttools

import (
	"bytes"
	"debug/elf"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/evalbuild/eval/workspace/graph"
)

const static = "\x7fELF\x02\x01\x01\x00\x00\x00\x00\x00\x00\x00\x00\x00\x02\x00\x3e\x00\x01\x00\x00\x00" +
	"\x00\x00\x00\x00\x00\x00\x00\x00\x40\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00\x00" +
	"\x00\x00\x00\x00\x40\x00\x38\x00\x00\x00\x40\x00\x00\x00\x00\x00"

func TestLinks(t *testing.T) {
	w := newWorld(t)
	w.write("usr/bin/dash", static, 0o755)
	w.link("usr/bin/sh", "dash")
	w.link("bin", "usr/bin")
	w.link("lib/node_modules/x/cli", "../../../usr/bin/./sh")
	w.link("abs", w.path("lib/node_modules/x"))
	m, err := w.Program(w.path("bin/sh"))
	w.is(m, err, "bin -> usr/bin", "usr/bin/dash", "usr/bin/sh -> dash")
	if d := digest(static); err == nil && (m[1].Digest != d || !m[1].Executable) {
		t.Errorf("%+v", m[1])
	}
	m, err = w.Program(w.path("abs/cli"))
	w.is(m, err, "abs -> /lib/node_modules/x", "lib/node_modules/x/cli -> ../../../usr/bin/./sh", "usr/bin/dash", "usr/bin/sh -> dash")

	w.link("up", "lib/node_modules/..")
	m, err = w.Data(w.path("up"))
	w.is(m, err, "lib/", "up -> lib/node_modules/..")

	w.link("loop", "pool")
	w.link("pool", "loop")
	_, err = w.Program(w.path("loop"))
	w.fails(err, "tool /loop: more than 40 symbolic links")
	w.link("dangling", "nowhere/x")
	_, err = w.Program(w.path("dangling"))
	w.fails(err, "tool /dangling: leads to /nowhere: no such file or directory")
	if !errors.Is(err, os.ErrNotExist) {
		t.Error(err)
	}
	w.link("null", "/dev/null")
	_, err = w.Data(w.path("null"))
	w.fails(err, "data /null: leads to /dev/null: /dev/null is in /dev, which a sealed process has its own of")
}

func TestRefusedPaths(t *testing.T) {
	w := newWorld(t)
	for _, c := range [][2]string{
		{"/", "is a folder that a sealed process has its own of"},
		{"/tmp", "own of"},
		{"/in", "own of"},
		{"/proc/self/exe", "is in /proc"},
		{"/sys/kernel", "is in /sys"},
		{"/scratch/x", "is in /scratch"},
		{"/old", "own of"},
		{"/.seal", "own of"},
		{"/.probe/x", "is in /.probe"},
		{"bin/sh", "not an absolute path"},
		{"/bin/../bin/sh", "not a clean path, want /bin/sh"},
		{"/bin/", "not a clean path, want /bin"},
		{"", "not an absolute path"},
		{"/a\x00b", "not valid"},
		{"/\xff", "not valid UTF-8"},
	} {
		_, err := w.Program(c[0])
		w.fails(err, c[1])
		_, err = w.Data(c[0])
		w.fails(err, c[1])
	}
	_, err := w.Program(w.write("plain", static, 0o644))
	w.fails(err, "tool /plain: is not executable")
	w.check(os.Mkdir(w.path("folder"), 0o755))
	_, err = w.Program(w.path("folder"))
	w.fails(err, "tool /folder: is a folder")
	for _, text := range []string{"", "echo hi\n", "\xcf\xfa\xed\xfe", "#"} {
		w.restart()
		_, err = w.Program(w.write("text", text, 0o755))
		w.fails(err, "tool /text: is neither a program of this system nor a script")
		w.check(os.Remove(w.path("text")))
	}
}

func TestScripts(t *testing.T) {
	w := newWorld(t)
	w.write("bin/sh", static, 0o755)
	w.write("usr/bin/env", static, 0o755)
	w.write("usr/bin/python3.11", static, 0o755)
	w.write("bin/shadowed", static, 0o755)
	w.write("usr/bin/shadowed", static, 0o644) // not executable: passed over
	w.link("usr/bin/python3", "python3.11")
	python := []string{"usr/bin/env", "usr/bin/python3 -> python3.11", "usr/bin/python3.11"}
	for _, c := range []struct {
		text string
		want []string
	}{
		{"#!W/bin/sh\n", []string{"bin/sh"}},
		{"#! W/bin/sh -e -u \necho\r\n", []string{"bin/sh"}},
		{"#!W/bin/sh", []string{"bin/sh"}},
		{"#!W/bin/./sh\n", []string{"bin/sh"}},
		{"#!W/usr/bin/env python3\n", python},
		{"#!W/usr/bin/env\t-S  python3 -u\n", python},
		{"#!W/usr/bin/env -Spython3 -u\n", python},
		{"#!W/usr/bin/env --split-string=-i A=b -u C python3\n", python},
		{"#!W/usr/bin/env -S A=b W/usr/bin/python3\n", python},
		{"#!W/usr/bin/env shadowed\n", []string{"bin/shadowed", "usr/bin/env"}},
	} {
		text := strings.ReplaceAll(c.text, "W/", w.dir+"/")
		m, err := w.Needs(strings.NewReader(text), int64(len(text)))
		w.is(m, err, c.want...)
		if t.Failed() {
			t.Fatalf("%q", c.text)
		}
	}
	for _, c := range [][2]string{
		{"#!\n", "names no interpreter"},
		{"#!sh\n", `names "sh", which is not an absolute path`},
		{"#!W/bin/sh\r\n", "ends with a carriage return"},
		{"#!W/usr/bin/env python3\r\n", "ends with a carriage return"},
		{"#!W/bin/nope\n", "interpreter /bin/nope: no such file or directory"},
		{"#!W/usr/bin/shadowed\n", "interpreter /usr/bin/shadowed: is not executable"},
		{"#!W/usr/bin/env\n", "env is given no program to run"},
		{"#!W/usr/bin/env -i\n", "env is given no program to run"},
		{"#!W/usr/bin/env -S A=b\n", "env is given no program to run"},
		{"#!W/usr/bin/env python3 -u\n", `env is given "python3 -u" as one name`},
		{"#!W/usr/bin/env -S \"a b\"\n", "quoted"},
		{"#!W/usr/bin/env ./x\n", "relative to the current folder"},
		{"#!W/usr/bin/env ruby\n", `env is to run "ruby", which is in none of /usr/bin:/bin`},
		{"#!W/bin/sh " + strings.Repeat("x", 300) + "\n", "longer than 255 bytes"},
	} {
		text := strings.ReplaceAll(c[0], "W/", w.dir+"/")
		_, err := w.Needs(strings.NewReader(text), int64(len(text)))
		w.fails(err, c[1])
	}

	w.write("s1", "#!"+w.path("bin/sh")+"\n", 0o755)
	w.write("s2", "#!"+w.path("s1")+"\n", 0o755)
	m, err := w.Program(w.write("s3", "#!"+w.path("s2")+"\n", 0o755))
	w.is(m, err, "bin/sh", "s1", "s2", "s3")
	w.write("a", "#!"+w.path("b")+"\n", 0o755)
	w.write("b", "#!"+w.path("a")+"\n", 0o755)
	_, err = w.Program(w.path("a"))
	w.fails(err, "more than 5 scripts are each other's interpreters")
}

func TestDarwin(t *testing.T) {
	w := newWorld(t)
	w.host.goos = "darwin"
	w.write("usr/bin/env", "\xca\xfe\xba\xbe....", 0o755)
	w.write("usr/bin/node", "\xcf\xfa\xed\xfe....", 0o755)
	m, err := w.Program(w.write("x", "#!"+w.path("usr/bin/env")+" node --flag\n", 0o755))
	w.is(m, err, "usr/bin/env", "usr/bin/node", "x")
	_, err = w.Program(w.write("elf", static, 0o755))
	w.fails(err, "is neither a program of this system")
}

func TestLibraries(t *testing.T) {
	w := newWorld(t)
	ld := w.loader("lib64/ld.so.2")
	w.elf("lib/libc.so.6", elfFile{soname: "libc.so.6", needed: []string{"ld.so.2"}})
	w.elf("usr/lib/libz.so.1.2", elfFile{soname: "libz.so.1", needed: []string{"libc.so.6"}})
	w.link("usr/lib/libz.so.1", "libz.so.1.2")
	base := []string{"lib/libc.so.6", "lib64/ld.so.2"}
	prog := func(rel string, f elfFile) ([]graph.Mount, error) {
		f.interpreter = ld
		return w.Program(w.elf(rel, f))
	}
	m, err := prog("bin/plain", elfFile{needed: []string{"libz.so.1", "libc.so.6"}})
	w.is(m, err, "bin/plain", base[0], base[1], "usr/lib/libz.so.1 -> libz.so.1.2", "usr/lib/libz.so.1.2")

	// A library for another machine, and a file that is none, are passed over.
	w.elf("lib/libq.so", elfFile{machine: elf.EM_AARCH64})
	w.write("opt/q/libq.so", "INPUT(libq.so.1)", 0o644)
	w.elf("usr/lib/libq.so", elfFile{})
	m, err = prog("bin/q", elfFile{needed: []string{"libq.so"}, runpath: w.path("opt/q") + "::relative"})
	w.is(m, err, "bin/q", "lib64/ld.so.2", "usr/lib/libq.so")

	// RUNPATH counts for the object's own needs only, RPATH for all below it.
	w.elf("opt/lib/liba.so", elfFile{needed: []string{"libb.so"}})
	w.elf("opt/lib/libb.so", elfFile{})
	_, err = prog("opt/bin/run", elfFile{needed: []string{"liba.so"}, runpath: "$ORIGIN/../lib"})
	w.fails(err, "tool /opt/bin/run: needs library libb.so (for /opt/lib/liba.so), which is in none of /lib:/usr/lib")
	var h interface{ Hint() string }
	if !errors.As(err, &h) || !strings.Contains(h.Hint(), "ldconfig") {
		t.Error("no hint")
	}
	m, err = prog("opt/bin/r", elfFile{needed: []string{"liba.so"}, rpath: "${ORIGIN}/../lib"})
	w.is(m, err, "lib64/ld.so.2", "opt/bin/r", "opt/lib/liba.so", "opt/lib/libb.so")
	_, err = prog("opt/bin/both", elfFile{needed: []string{"liba.so"}, rpath: "$ORIGIN/../lib", runpath: w.path("none")})
	w.fails(err, "needs library liba.so, which is in none of /none:/lib:/usr/lib")

	// What the program loaded is there for those after it, by name and soname.
	w.elf("opt/lib/libsame.so.1.0", elfFile{soname: "libsame.so.1"})
	w.elf("opt/lib/libuser.so", elfFile{needed: []string{"libsame.so.1"}})
	m, err = prog("opt/bin/same", elfFile{needed: []string{w.path("opt/lib/libsame.so.1.0"), "libuser.so"}, runpath: "$ORIGIN/../lib"})
	w.is(m, err, "lib64/ld.so.2", "opt/bin/same", "opt/lib/libsame.so.1.0", "opt/lib/libuser.so")

	_, err = prog("bin/rel", elfFile{needed: []string{"./libx.so"}})
	w.fails(err, "needs library ./libx.so, a path relative to the current folder")
	_, err = prog("bin/origin", elfFile{needed: []string{"$ORIGIN/libx.so"}})
	w.fails(err, "needs library $ORIGIN/libx.so, which isn't there")
	_, err = w.Program(w.elf("bin/alien", elfFile{interpreter: w.path("lib/ld-other.so")}))
	w.fails(err, "tool /bin/alien: needs the loader /lib/ld-other.so: no such file or directory")
	_, err = w.Program(w.elf("bin/arm", elfFile{interpreter: ld, machine: elf.EM_AARCH64}))
	w.fails(err, "needs the loader /lib64/ld.so.2: is no ELF file for the same machine")

	// An input of the build brings what it looks for beside itself.
	b := elfFile{interpreter: ld, needed: []string{"libc.so.6", "libmine.so"}, runpath: "$ORIGIN"}.bytes()
	m, err = w.Needs(bytes.NewReader(b), int64(len(b)))
	w.is(m, err, base...)
	b = elfFile{interpreter: ld, needed: []string{"libmine.so"}}.bytes()
	_, err = w.Needs(bytes.NewReader(b), int64(len(b)))
	w.fails(err, "needs library libmine.so, which is in none of")
	b = elfFile{}.bytes()
	m, err = w.Needs(bytes.NewReader(b), int64(len(b)))
	w.is(m, err)
}

func TestLoaderCache(t *testing.T) {
	w := newWorld(t)
	ld := w.loader("lib64/ld.so.2")
	w.elf("lib/liba.so", elfFile{})
	w.elf("lib/libb.so", elfFile{})
	w.elf("opt/libb.so", elfFile{tail: "newer"})
	w.elf("opt/libc.so", elfFile{})
	w.link("alias", "lib")
	w.write("etc/ld.so.cache", "garbage before it......."+string(loaderCache(
		[2]string{"liba.so", w.path("alias/liba.so")}, [2]string{"libb.so", w.path("opt/libb.so")}, [2]string{"libc.so", w.path("gone/libc.so")},
		[2]string{"libc.so", w.path("opt/libc.so")}, [2]string{"libd.so", "relative"},
	)), 0o644)
	prog := func(rel string, needed ...string) ([]graph.Mount, error) {
		return w.Program(w.elf(rel, elfFile{interpreter: ld, needed: needed}))
	}
	m, err := prog("a", "liba.so") // the same file either way
	w.is(m, err, "a", "lib/liba.so", "lib64/ld.so.2")
	m, err = prog("b", "libb.so") // another than without the cache
	w.is(m, err, "b", "etc/ld.so.cache", "lib64/ld.so.2", "opt/libb.so")
	m, err = prog("c", "libc.so") // only there
	w.is(m, err, "c", "etc/ld.so.cache", "lib64/ld.so.2", "opt/libc.so")
	_, err = prog("d", "libd.so")
	w.fails(err, "needs library libd.so")

	// A loader that has no such string, as that of NixOS, reads no cache.
	ld = w.elf("nix/ld.so.2", elfFile{soname: "ld.so.2"})
	m, err = prog("e", "libb.so")
	w.is(m, err, "e", "lib/libb.so", "nix/ld.so.2")
}

func TestMusl(t *testing.T) {
	w := newWorld(t)
	ld := w.loader("lib/ld-musl-x86_64.so.1")
	w.elf("apk/libz.so.1", elfFile{runpath: w.path("deep"), needed: []string{"libc.musl-x86_64.so.1", "libdeep.so"}})
	w.elf("deep/libdeep.so", elfFile{needed: []string{"libdeeper.so", "libpthread.so.0"}})
	w.elf("deep/libdeeper.so", elfFile{})
	w.write("etc/ld-musl-x86_64.path", w.path("none")+"\n"+w.path("apk"), 0o644)
	m, err := w.Program(w.elf("bin/x", elfFile{interpreter: ld, needed: []string{"libz.so.1"}}))
	w.is(m, err, "apk/libz.so.1", "bin/x", "deep/libdeep.so", "deep/libdeeper.so", "etc/ld-musl-x86_64.path", "lib/ld-musl-x86_64.so.1")
	w.check(os.Remove(w.path("etc/ld-musl-x86_64.path")))
	w.restart()
	w.host.libraries = nil
	l, err := w.readLoader(ld, &object{class: elf.ELFCLASS64, machine: elf.EM_X86_64})
	if err != nil || strings.Join(l.dirs, ":") != "/lib:/usr/local/lib:/usr/lib" {
		t.Error(l, err)
	}
}
