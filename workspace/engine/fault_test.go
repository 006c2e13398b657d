package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/evalbuild/eval/workspace/graph"
)

// Blobs (large) and inlined outputs (small) in one chain.
const chain = `
node(name = "a", srcs = ["s"], salt = 1, pad = 3000)
node(name = "b", srcs = [":a"], salt = 2, pad = 2000)
node(name = "c", srcs = [":b"], salt = 3)
node(name = "d", srcs = [":c"], salt = 4, pad = 1500)
`

// Every file of the store is spoilt in every way; the next build is right, runs
// at most the action that made the file, and says why in a line.
func TestDamagedStore(t *testing.T) {
	f := newFixture(t, chain)
	f.set("p/s", "1 ")
	f.build()
	want := f.outputs()
	if n := len(f.stored("cas")); n != 3 {
		t.Fatalf("%d blobs: the test proves nothing", n)
	}
	for _, kind := range []string{"cas", "ac"} {
		for i := range f.stored(kind) {
			for _, d := range damages {
				for _, clean := range []bool{false, true} {
					t.Run(fmt.Sprintf("%s %d %s clean=%v", kind, i, d.name, clean), func(t *testing.T) {
						f.TB = t
						p := f.stored(kind)[i]
						f.check(d.do(p))
						if clean {
							f.check(os.RemoveAll(f.out()))
						}
						b := f.run(context.Background())
						f.check(b.err)
						f.wantOutputs(want)
						// A blob that rotted below the file system is found when
						// it is read, and nothing reads it while eval-out stands.
						silent := kind == "cas" && d.name == "rot" && !clean
						ran := b.slots(Ran)
						if len(ran) > 1 || len(ran) == 0 != silent {
							t.Errorf("ran %q", ran)
						}
						for _, e := range b.events {
							if e.Status == Ran && (e.Why == "" || strings.Contains(e.Why, "\n") || len(e.Why) > 120) {
								t.Errorf("why: %q", e.Why)
							}
						}
						if silent {
							f.check(os.RemoveAll(f.out()))
							f.run(context.Background())
						}
						f.wantRan(f.build())
					})
				}
			}
		}
	}
}

// A maker and its user are both found damaged while they are copied.
func TestDamageFoundByExport(t *testing.T) {
	for _, jobs := range []int{1, 8} {
		f := newFixture(t, chain)
		f.jobs = jobs
		f.set("p/s", "1 ")
		f.build()
		want := f.outputs()
		for _, p := range f.stored("cas") {
			f.check(rot(p))
		}
		f.check(os.RemoveAll(f.out()))
		b := f.run(context.Background())
		f.check(b.err)
		if ran := b.slots(Ran); !slices.Equal(ran, []string{"a", "b", "d"}) {
			t.Errorf("ran %q", ran)
		}
		if last := b.events[len(b.events)-1]; last.Done != 4 || last.Total != 4 || b.Ran != 3 || b.Disk != 1 {
			t.Errorf("counts %d/%d: %+v", last.Done, last.Total, b.Report)
		}
		f.wantOutputs(want)
		f.wantRan(f.build())
	}
}

// Damage is found when another action that must run reads its input; that one
// has more damaged inputs than an action gets tries.
func TestDamageFoundByReading(t *testing.T) {
	const n = 9
	var text strings.Builder
	// first, second and third are twins that park: all are set back together,
	// and only the inputs of one are known to be damaged.
	for _, u := range []string{"first", "second", "third"} {
		in := "in"
		if u == "third" {
			in = "like"
		}
		var srcs []string
		for i := range n {
			if u != "second" {
				fmt.Fprintf(&text, "node(name = '%s%d', srcs = ['s'], salt = %d, pad = 2000)\n", in, i, i+1)
			}
			srcs = append(srcs, fmt.Sprintf("':%s%d'", in, i))
		}
		fmt.Fprintf(&text, "node(name = %q, srcs = [%s, 't'], salt = 99)\n", u, strings.Join(srcs, ","))
	}
	for _, jobs := range []int{1, 8} {
		f := newFixture(t, text.String())
		f.jobs = jobs
		f.set("p/s", "1 ")
		f.set("p/t", "1 ")
		f.build()
		for _, p := range f.stored("cas") {
			f.check(rot(p))
		}
		f.set("p/t", "2 ")
		b := f.run(context.Background())
		f.check(b.err)
		if len(b.Problems) > 0 || b.Ran != n+1 || b.Skipped > 0 {
			t.Fatalf("%v %+v", b.Problems, b.Report)
		}
		fresh := newFixture(t, text.String())
		fresh.set("p/s", "1 ")
		fresh.set("p/t", "2 ")
		fresh.build()
		f.wantOutputs(fresh.outputs())
		f.wantRan(f.build())
	}
}

// A source that can't be had any more when a damaged blob is to be made again:
// its user is not reached, and nothing waits for ever.
func TestDamageThatCannotBeMended(t *testing.T) {
	f := newFixture(t, `
node(name = "a", srcs = ["s"], pad = 2000)
node(name = "b", srcs = [":a", "t"], salt = 2)
node(name = "c", srcs = [":b"], salt = 3)
`)
	f.set("p/s", "1 ")
	f.set("p/t", "1 ")
	f.build()
	for _, p := range f.stored("cas") {
		f.check(rot(p))
	}
	f.set("p/t", "2 ")
	f.onOpen = func(p string) error {
		if p == "p/s" {
			return errors.New("the disk is gone")
		}
		return nil
	}
	b := f.run(context.Background())
	f.check(b.err)
	if b.Failed != 1 || b.Skipped != 2 || b.event("a").Status != Failed || b.event("c").Status != Skipped {
		t.Errorf("%+v", b.Report)
	}
	if last := b.events[len(b.events)-1]; last.Done != 3 {
		t.Errorf("the last event says %d/%d", last.Done, last.Total)
	}
}

// An action that is queued when its input is reopened leaves the queue: it must
// not be checked with what the input was.
func TestReopenUnqueues(t *testing.T) {
	b := &build{Engine: New(Options{})}
	first, input := &node{state: done}, &node{state: done}
	queued, finished := &node{}, &node{state: done}
	first.users = []*node{input, input}
	input.users = []*node{queued, finished, finished}
	b.ready = []*node{queued}
	if b.remake([]*node{input, first, finished}) {
		t.Error("once is too often")
	}
	if !slices.Equal(b.ready, []*node{first}) {
		t.Errorf("%d are queued", len(b.ready))
	}
	for _, n := range []*node{input, queued, finished} {
		if n.state != waiting || n.open == 0 {
			t.Errorf("%s with %d open inputs", n.state, n.open)
		}
	}
}

// Something damages the store each time: an error, not a loop.
func TestDamageForEver(t *testing.T) {
	const text = `
node(name = "a", srcs = ["s"], pad = 2000)
node(name = "b", srcs = [":a", "t"], salt = 2)
`
	t.Run("reading", func(t *testing.T) {
		f := newFixture(t, text)
		f.set("p/s", "1 ")
		f.set("p/t", "1 ")
		f.keep = true
		runs := 0
		// b reads i0, which is a, after t is digested: spoil it just before.
		f.onDigest = func(p string) error {
			if p == "p/t" {
				runs++
				for _, blob := range f.stored("cas") {
					f.check(rot(blob))
				}
			}
			return nil
		}
		b := f.run(context.Background())
		f.check(b.err)
		if len(b.Problems) != 1 || !b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), "damaged") {
			t.Errorf("%+v", b.Problems)
		}
		if runs != maxDamage+1 {
			t.Errorf("%d tries", runs)
		}
		f.onDigest = nil
		f.build()
	})
	t.Run("copying", func(t *testing.T) {
		f := newFixture(t, text)
		f.set("p/s", "1 ")
		f.set("p/t", "1 ")
		f.build()
		f.check(os.RemoveAll(f.out()))
		var b built
		b.targets = f.targets()
		b.Report, b.err = New(f.options(f.store(), func(e Event) {
			if e.Action.Owner.Name == "b" { // the last one to end before copying
				for _, blob := range f.stored("cas") {
					f.check(rot(blob))
				}
			}
		})).Build(context.Background(), b.targets)
		if b.err == nil || !strings.Contains(b.err.Error(), "damages it each time") {
			t.Errorf("error %v", b.err)
		}
		f.build()
	})
}

func TestOutputFolderTouched(t *testing.T) {
	f := newFixture(t, chain)
	f.set("p/s", "1 ")
	f.build()
	want := f.outputs()
	for name, spoil := range map[string]func(p string) error{
		"edited":    func(p string) error { return rewrite(p, false, func(b []byte) []byte { return append(b, "more"...) }) },
		"same size": func(p string) error { return rewrite(p, false, flip) },
		"deleted":   os.Remove,
		"touched":   func(p string) error { return os.Chtimes(p, fixedNow(), fixedNow()) },
		"symlink": func(p string) error {
			return errors.Join(os.Remove(p), os.Symlink(filepath.Join(f.dir, "elsewhere"), p))
		},
	} {
		t.Run(name, func(t *testing.T) {
			f.TB = t
			f.check(spoil(f.out("p", "b", "out.txt")))
			b := f.build()
			f.wantRan(b)
			if b.Restored != 1 {
				t.Errorf("%d restored", b.Restored)
			}
			f.wantOutputs(want)
		})
	}
	t.Run("folder", func(t *testing.T) {
		f.TB = t
		p := f.out("p", "b", "out.txt")
		f.check(errors.Join(os.Remove(p), os.Mkdir(p, 0o755), os.WriteFile(filepath.Join(p, "mine"), nil, 0o644)))
		b := f.run(context.Background())
		if b.err == nil || !strings.Contains(b.err.Error(), "a folder is in the way") || !strings.Contains(b.err.Error(), p) {
			t.Errorf("error %v", b.err)
		}
		if _, err := os.Stat(filepath.Join(p, "mine")); err != nil {
			t.Error(err)
		}
		f.check(os.RemoveAll(p))
		f.build()
		f.wantOutputs(want)
	})
	fi, err := os.Stat(f.out("p", "a", "out.txt"))
	f.check(err)
	if fi.Mode().Perm() != 0o444 {
		t.Errorf("mode %v", fi.Mode())
	}
}

func TestPrune(t *testing.T) {
	f := newFixture(t, `files(name = "t", content = {"a.txt": "1", "sub/deep/b.txt": "2", "c": "3", "d/e": "4"})`)
	f.declare("p/t", `files(name = "neighbour", content = {"n.txt": "5"})`)
	f.build()
	mine := f.out("p", "t", "notes.txt")
	f.check(os.WriteFile(mine, []byte("mine"), 0o644))
	// b.txt and its folders go; c becomes a folder, d a file.
	f.declare("p", `files(name = "t", content = {"a.txt": "1", "c/f": "6", "d": "7"})`)
	f.build()
	want := map[string]string{
		"p/t/a.txt": "1 ", "p/t/c/f": "6 ", "p/t/d": "7 ",
		"p/t/neighbour/n.txt": "5 ", "p/t/notes.txt": "mine",
	}
	f.wantOutputs(want)
	if _, err := os.Stat(f.out("p", "t", "sub")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("sub: %v", err)
	}
	// An output and then a neighbour of the same name.
	f.declare("p", `files(name = "t", content = {"x": "8", "y/z": "8"})`)
	f.build()
	f.declare("p", `files(name = "t", content = {"w": "9"})`)
	f.declare("p/t", `files(name = "x", content = {"n.txt": "10"})`+"\n"+`files(name = "y", content = {"z": "11"})`)
	f.build()
	f.wantOutputs(map[string]string{
		"p/t/w": "9 ", "p/t/x/n.txt": "10 ", "p/t/y/z": "11 ", "p/t/notes.txt": "mine",
		"p/t/neighbour/n.txt": "5 ", // its target is gone, and with it who would prune it
	})
}

// A target without actions of its own has outputs too.
func TestPruneExports(t *testing.T) {
	f := newFixture(t, `show(name = "t", srcs = ["s", "u"], paths = ["x/s", "x/u"])`)
	f.set("p/s", "1 ")
	f.set("p/u", "2 ")
	f.build()
	f.wantOutputs(map[string]string{"p/t/x/s": "1 ", "p/t/x/u": "2 "})
	f.declare("p", `show(name = "t", srcs = ["u"], paths = ["x/u"])`)
	f.build()
	f.wantOutputs(map[string]string{"p/t/x/u": "2 "})
	f.declare("p", `show(name = "t")`)
	f.build()
	f.wantOutputs(map[string]string{})
}

// A target that fails keeps what it had, and old outputs go when it is whole
// again: also if nothing has to run for that.
func TestPruneAfterFailure(t *testing.T) {
	const good = `node(name = "dep", srcs = ["s"], salt = 1)
node(name = "t", srcs = [":dep"], salt = 2, out = "%s")`
	f := newFixture(t, fmt.Sprintf(good, "old.txt"))
	f.set("p/s", "1 ")
	f.build()
	f.declare("p", fmt.Sprintf(good, "new.txt"))
	f.check(errors.Join(os.MkdirAll(f.out("p", "t", "new.txt"), 0o755)))
	for range 3 {
		if b := f.run(context.Background()); b.err == nil {
			t.Fatal("a folder in the way is no error")
		}
	}
	f.check(os.Remove(f.out("p", "t", "new.txt")))
	// As if the build that made it had been killed before it pruned.
	f.check(os.WriteFile(f.out("p", "t", "old.txt"), nil, 0o644))
	f.wantRan(f.build())
	if got := keysOf(f.outputs()); !slices.Equal(got, []string{"p/dep/out.txt", "p/t/new.txt"}) {
		t.Errorf("outputs %q", got)
	}
}

// slotPath is where the slots of p's target are.
func (f *fixture) slotPath(name string) string {
	return (&slots{dir: f.state()}).path(graph.Label{Pkg: "p", Name: name})
}

func TestHostileSlots(t *testing.T) {
	f := newFixture(t, `files(name = "t", content = {"a.txt": "1"})`)
	f.build()
	f.check(os.MkdirAll(f.out("p", "other"), 0o755))
	f.check(os.MkdirAll(filepath.Join(f.dir, "outside"), 0o755))
	for _, p := range []string{filepath.Join(f.dir, "victim"), filepath.Join(f.dir, "outside", "victim"), f.out("victim"), f.out("p", "other", "victim")} {
		f.check(os.WriteFile(p, nil, 0o644))
	}
	f.check(os.Symlink(filepath.Join(f.dir, "outside"), f.out("p", "t", "link")))
	before := snapshot(t, f.dir, false)
	hostile := slotFile{Label: "//p:t", Outputs: []string{
		"../../../victim", "../../victim", "../other/victim", filepath.Join(f.dir, "victim"), "x/../../other/victim",
		"link/victim", ".", "..", "", "/", "\x00", "a.txt/x", "link/../victim", strings.Repeat("x", 5000),
	}}
	body, err := json.Marshal(hostile)
	f.check(err)
	f.check(os.WriteFile(f.slotPath("t"), append([]byte(slotHeader+"0\n"), body...), 0o644))
	f.wantRan(f.build())
	after := snapshot(t, f.dir, false)
	for p := range before {
		if _, ok := after[p]; !ok {
			t.Errorf("%s is gone", p)
		}
	}
}

// Whatever is in a slot file, builds go on.
func TestDamagedSlots(t *testing.T) {
	f := newFixture(t, `many(name = "t", n = 5, srcs = ["s"])`)
	f.set("p/s", "1 ")
	f.build()
	whole, err := os.ReadFile(f.slotPath("t"))
	f.check(err)
	head, body, _ := strings.Cut(string(whole), "\n")
	spoilt := map[string]string{
		"empty": "", "garbage": "\x00\xff garbage", "half": string(whole[:len(whole)/2]), "header": head, "other label": strings.Replace(string(whole), "//p:t", "//p:u", 1),
		"null": head + "\nnull", "list": head + "\n[]", "strings": head + "\n" + strings.ReplaceAll(body, `"fields":[`, `"fields":[-1,99999999,`),
		"bad keys":      head + "\n" + strings.ReplaceAll(body, "blake3:", "blake4:"),
		"bad outs":      head + "\n" + strings.ReplaceAll(body, `"out":[`, `"out":["",`),
		"table":         head + "\n" + strings.ReplaceAll(body, `\u0000`, ""),
		"two records":   head + "\n" + strings.Replace(body, `"records":[`, `"records":[{"path":"sum.txt"},`, 1),
		"no newline":    strings.Replace(string(whole), "\n", " ", 1),
		"wrong stamp":   strings.Replace(string(whole), head, slotHeader+strings.Repeat("0", 32), 1),
		"other version": strings.Replace(string(whole), slotHeader, "eval slots 9 ", 1),
	}
	salt := 0
	for name, content := range spoilt {
		t.Run(name, func(t *testing.T) {
			f.TB = t
			f.check(os.WriteFile(f.slotPath("t"), []byte(content), 0o644))
			target := f.targets()[0]
			eng := New(f.options(f.store(), nil))
			eng.Before(target, f.store().Func().Sum(nil))
			eng.Slot(target.Result.Scorecard.Action.Slot())
			_, err := eng.Plan(context.Background(), f.targets())
			f.check(err)
			f.wantRan(f.build())
			salt++
			f.set("p/s", fmt.Sprintf("%d ", 100+salt))
			f.check(os.WriteFile(f.slotPath("t"), []byte(content), 0o644))
			if b := f.build(); b.Ran != 6 {
				t.Errorf("%d ran", b.Ran)
			}
			if h, ok := New(f.options(f.store(), nil)).Slot(target.Result.Scorecard.Action.Slot()); !ok || len(h.Fields) == 0 {
				t.Errorf("the slot was not written anew: %+v", h)
			}
			f.set("p/s", "1 ")
			f.build()
		})
	}
	t.Run("folder", func(t *testing.T) {
		f.TB = t
		f.check(errors.Join(os.Remove(f.slotPath("t")), os.MkdirAll(filepath.Join(f.slotPath("t"), "x"), 0o755)))
		b := f.run(context.Background())
		if len(b.Problems) > 0 || b.Failed > 0 || b.Skipped > 0 {
			t.Errorf("%+v", b.Report)
		}
		if b.err != nil && !strings.Contains(b.err.Error(), "save slots of //p:t") {
			t.Error(b.err)
		}
	})
}
