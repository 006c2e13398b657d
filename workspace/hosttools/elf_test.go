package hosttools

import (
	"bytes"
	"debug/elf"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// TestAgainstDebugELF compares with the reader of sections on what is there.
func TestAgainstDebugELF(t *testing.T) {
	var files []string
	for _, pattern := range []string{"/usr/bin/*", "/usr/lib/*.so*", "/usr/lib/*/*.so*", "/usr/lib64/*.so*"} {
		found, _ := filepath.Glob(pattern)
		files = append(files, found[:min(len(found), 200)]...)
	}
	compared := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			continue
		}
		defer f.Close()
		want, err := elf.NewFile(f)
		if err != nil {
			continue
		}
		fi, err := f.Stat()
		if err != nil {
			t.Fatal(err)
		}
		got, err := parseELF(f, fi.Size())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		needed, _ := want.ImportedLibraries()
		text := func(tag elf.DynTag) string { s, _ := want.DynString(tag); return strings.Join(s, "") }
		interpreter := ""
		for _, p := range want.Progs {
			if p.Type == elf.PT_INTERP {
				b := make([]byte, p.Filesz)
				p.ReadAt(b, 0)
				interpreter = strings.TrimRight(string(b), "\x00")
			}
		}
		if !slices.Equal(got.needed, needed) || got.soname != text(elf.DT_SONAME) || got.rpath != text(elf.DT_RPATH) ||
			got.runpath != text(elf.DT_RUNPATH) || got.interpreter != interpreter || got.class != want.Class || got.machine != want.Machine {
			t.Errorf("%s: %+v, %v", name, got, needed)
		}
		compared++
	}
	t.Logf("compared %d files", compared)
}

func TestDamagedELF(t *testing.T) {
	whole := elfFile{interpreter: "/lib/ld", needed: []string{"liba", "libb"}, soname: "me", runpath: "/x"}.bytes()
	o, err := parseELF(bytes.NewReader(whole), int64(len(whole)))
	if err != nil || o.interpreter != "/lib/ld" || !slices.Equal(o.needed, []string{"liba", "libb"}) || o.soname != "me" || o.runpath != "/x" {
		t.Fatal(o, err)
	}
	for n := range whole {
		if _, err := parseELF(bytes.NewReader(whole[:n]), int64(n)); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
		// The file has become shorter than lstat said.
		if _, err := parseELF(bytes.NewReader(whole[:n]), int64(len(whole))); err == nil {
			t.Errorf("ends at %d: no error", n)
		}
	}
	w := newWorld(t)
	_, err = w.Program(w.write("x", string(whole[:100]), 0o755))
	w.fails(err, "tool /x: damaged ELF file: program headers: unexpected EOF")
}

func FuzzELF(f *testing.F) {
	f.Add(elfFile{interpreter: "/lib/ld", needed: []string{"liba", "libb"}, rpath: "$ORIGIN"}.bytes())
	f.Add([]byte(static))
	if b, err := os.ReadFile("/usr/bin/true"); err == nil {
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		o, err := parseELF(bytes.NewReader(b), int64(len(b)))
		if (o == nil) == (err == nil) {
			t.Error(o, err)
		}
		if err == nil && len(o.needed) > maxNeeded {
			t.Error(len(o.needed))
		}
	})
}

func FuzzNeeds(f *testing.F) {
	for _, s := range []string{"#!/bin/sh\n", "#!/usr/bin/env -S a=b x\n", "#!\t/a", elfMagic} {
		f.Add([]byte(s))
	}
	f.Add(elfFile{interpreter: "/lib64/ld-linux-x86-64.so.2", needed: []string{"libc.so.6"}, rpath: "$LIB:$ORIGIN"}.bytes())
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := New(Options{}).Needs(bytes.NewReader(b), int64(len(b)))
		if err != nil {
			return
		}
		for _, m := range m {
			if reserved(m.Path) != nil {
				t.Errorf("%q gives %+v", b, m)
			}
		}
		if _, err := Merge(m); err != nil {
			t.Error(err)
		}
	})
}

func FuzzTables(f *testing.F) {
	f.Add(encodeTable(map[string]record{"/a": {at: 5}, "/b": {elf: true}}, 1, 1))
	f.Add(loaderCache([2]string{"a", "/a"}))
	f.Fuzz(func(t *testing.T, b []byte) {
		name := filepath.Join(t.TempDir(), "cache")
		if err := os.WriteFile(name, b, 0o644); err != nil {
			t.Fatal(err)
		}
		readLoaderCache(name)
		if records, kept, err := decodeTable(b, 1, 10); err == nil && !bytes.Equal(encodeTable(records, kept, 1), b) && len(records) > 0 {
			t.Log("another encoding")
		}
	})
}
