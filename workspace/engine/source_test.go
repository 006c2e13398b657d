package engine

import (
	"context"
	"fmt"
	"io/fs"
	"strings"
	"testing"
)

// A source is not what it was when its digest was taken: the error says so and
// nothing is stored under the key of what it was.
func TestSourceChanges(t *testing.T) {
	large := "1 " + strings.Repeat("x", 3<<20)
	for _, c := range []struct{ name, from, to string }{
		{"large, bytes", large, large[:2<<20] + "y" + large[2<<20+1:]},
		{"large, longer", large, large + "x"},
		{"large, shorter", large, large[:len(large)-1]},
		{"large from small", "1 ", large},
		{"small from large", large, "1 "},
		{"bytes", "1 ", "2 "},
		{"longer", "1 ", "1  "},
		{"shorter", "1 ", "1"},
		{"empty", "1 ", ""},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newFixture(t, `node(name = "a", srcs = ["s"])`)
			f.set("p/s", c.from)
			f.onOpen = func(p string) error { f.set(p, c.to); return nil }
			b := f.run(context.Background())
			f.check(b.err)
			b.counts(t)
			if len(b.Problems) != 1 || b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), "p/s: the file changed while the build ran") {
				t.Fatalf("%+v", b.Problems)
			}
			if n := len(f.stored("ac")); n != 0 {
				t.Errorf("%d results are stored", n)
			}
			f.onOpen = nil
			f.set("p/s", "3 ")
			f.wantRan(f.build(), "a")
			f.wantOutputs(map[string]string{"p/a/out.txt": "3 "})
		})
	}
}

// The source changes while it is shown in the output folder.
func TestExportedSourceChanges(t *testing.T) {
	f := newFixture(t, `show(name = "t", srcs = ["s"], paths = ["x"])`)
	f.set("p/s", "1 ")
	f.build()
	f.set("p/s", "2 ")
	f.onOpen = func(p string) error { f.set(p, "3 "); return nil }
	b := f.run(context.Background())
	if b.err == nil || !strings.Contains(b.err.Error(), "changed while the build ran") {
		t.Errorf("error %v", b.err)
	}
	f.wantOutputs(map[string]string{"p/t/x": "1 "})
}

func TestSourceGone(t *testing.T) {
	for _, at := range []string{"digest", "open"} {
		for _, cause := range []error{fs.ErrNotExist, fs.ErrPermission} {
			t.Run(fmt.Sprint(at, " ", cause), func(t *testing.T) {
				f := newFixture(t, "node(name = 'a', srcs = ['s'])\nnode(name = 'b', srcs = [':a'], salt = 2)\nnode(name = 'c', srcs = ['t'], salt = 3)")
				f.set("p/s", "1 ")
				f.set("p/t", "1 ")
				f.keep = true
				fail := func(p string) error {
					if p == "p/s" {
						return &fs.PathError{Op: "open", Path: p, Err: cause}
					}
					return nil
				}
				if at == "digest" {
					f.onDigest = fail
				} else {
					f.onOpen = fail
				}
				b := f.run(context.Background())
				f.check(b.err)
				b.counts(t)
				if b.Failed != 1 || b.Skipped != 1 || b.Ran != 1 {
					t.Errorf("%+v", b.Report)
				}
				msg := b.Problems[0].Err.Error()
				if b.Problems[0].Infra || !strings.Contains(msg, "p/s") || !strings.Contains(msg, cause.Error()) {
					t.Errorf("%+v", b.Problems)
				}
				f.onDigest, f.onOpen = nil, nil
				f.wantRan(f.build(), "a", "b")
			})
		}
	}
}
