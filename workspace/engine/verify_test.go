package engine

import (
	"context"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
)

func (f *fixture) verify() ([]Fault, *Report) {
	f.Helper()
	f.keep = true
	faults, rep, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets())
	f.check(err)
	return faults, rep
}

const verified = chain + `
show(name = "shown", srcs = ["s", ":a"], paths = ["s.txt", "a.txt"])
node(name = "twin", srcs = ["s"], salt = 1, pad = 3000)
files(name = "w", content = {"x/y.txt": "1"})
`

func TestVerify(t *testing.T) {
	f := newFixture(t, verified)
	f.set("p/s", "1 ")
	keys := map[string]cas.Digest{}
	for _, e := range f.build().events {
		keys[slotName(e.Action)] = cas.Digest(e.Key)
	}
	const earlier = "it is as an earlier build wrote it, and not what the recorded bytes give now"
	const differs, stored = "it is not what the recorded bytes give", "the stored result is not what its inputs give"
	out := func(elem ...string) func(func(string) error) error {
		return func(do func(string) error) error { return do(f.out(append([]string{"p"}, elem...)...)) }
	}
	put := func(key cas.Digest, b []byte) {
		s := f.store()
		d, err := s.Put(cas.Pure, b)
		f.check(err)
		f.check(s.Delete(key))
		f.check(s.PutResult(cas.Pure, key, cas.Result{Files: []cas.OutputFile{{Path: "out", Digest: d}}}))
	}
	for _, c := range []struct {
		name  string
		spoil func() error
		want  []string // label path where cause
	}{
		{"nothing", func() error { return nil }, nil},
		{"eval-out edited", func() error { return out("b", "out.txt")(damages[0].do) }, []string{"//p:b out.txt eval-out: " + differs}},
		{"and time kept", func() error { return out("b", "out.txt")(rot) }, []string{"//p:b out.txt eval-out: " + differs}},
		{"missing of several", func() error { return os.Remove(f.out("p", "shown", "s.txt")) }, []string{"//p:shown s.txt eval-out: it is missing"}},
		{"nothing built", func() error { return os.RemoveAll(f.out("p", "c")) }, []string{"//p:c  eval-out: nothing of it is built; run `ev build` first"}},
		{"no file", func() error {
			p := f.out("p", "shown", "s.txt")
			f.check(os.Remove(p))
			return os.Mkdir(p, 0o755)
		}, []string{"//p:shown s.txt eval-out: it is no regular file"}},
		{"store", func() error { put(keys["c"], []byte("99 ")); return nil }, []string{"//p:c out.txt store: " + stored}},
		{"store, large", func() error { put(keys["d"], []byte(strings.Repeat("9", 3000))); return nil }, []string{"//p:d out.txt store: " + stored}},
		{"store of twins", func() error { put(keys["a"], []byte("98 ")); return nil }, []string{"//p:a out.txt store: " + stored, "//p:twin out.txt store: " + stored}},
		{"source", func() error { f.set("p/s", "4 "); return nil }, []string{
			"//p:a out.txt eval-out: " + earlier, "//p:b out.txt eval-out: " + earlier, "//p:c out.txt eval-out: " + earlier,
			"//p:d out.txt eval-out: " + earlier, "//p:shown a.txt eval-out: " + earlier, "//p:shown s.txt eval-out: " + earlier,
			"//p:twin out.txt eval-out: " + earlier,
		}},
		{"result gone", func() error { return f.store().Delete(keys["b"]) }, nil},
		{"store gone", func() error { return os.RemoveAll(f.storeDir()) }, nil},
	} {
		t.Run(c.name, func(t *testing.T) {
			f.TB = t
			f.check(os.RemoveAll(f.dir))
			f.set("p/s", "1 ")
			f.build()
			f.check(c.spoil())
			f.store() // makes its folders, if they are gone
			before := snapshot(t, f.dir, true)
			faults, rep := f.verify()
			sameFiles(t, snapshot(t, f.dir, true), before)
			var got []string
			for _, x := range faults {
				got = append(got, x.Label.String()+" "+x.Path+" "+x.Where+": "+x.Cause)
			}
			if !slices.Equal(got, c.want) {
				t.Errorf("found\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
			if len(rep.Problems) > 0 {
				t.Error(rep.Problems)
			}
		})
	}
}

func TestVerifyShowsBoth(t *testing.T) {
	f := newFixture(t, verified)
	f.set("p/s", "1 ")
	f.build()
	f.check(rewrite(f.out("p", "c", "out.txt"), false, func([]byte) []byte { return []byte("edited") }))
	faults, _ := f.verify()
	if len(faults) != 1 || string(faults[0].Got) != "edited" || string(faults[0].Want) == "" {
		t.Errorf("%+v", faults)
	}
}

// What can't be computed is a problem, and the rest is verified all the same.
func TestVerifyFailing(t *testing.T) {
	f := newFixture(t, verified)
	f.set("p/s", "1 ")
	f.build()
	f.declare("p", verified+`node(name = "bad", fn = boom, srcs = [":a"])`)
	f.check(damages[0].do(f.out("p", "d", "out.txt")))
	faults, rep := f.verify()
	if len(rep.Problems) != 1 || len(faults) != 1 || faults[0].Label.Name != "d" {
		t.Errorf("%+v %+v", faults, rep.Problems)
	}
}

func TestPlan(t *testing.T) {
	const text = `
node(name = "odd", srcs = ["s"], fn = parity, pad = 2000)
node(name = "above", srcs = [":odd"], salt = 1)
node(name = "top", srcs = [":above", "s"], salt = 2)
node(name = "beside", srcs = ["u"], salt = 3)
`
	f := newFixture(t, text)
	f.set("p/s", "1 ")
	f.set("p/u", "1 ")
	f.check(os.MkdirAll(f.out(), 0o755))
	f.check(os.MkdirAll(f.state(), 0o755))
	plan := func() (stale []string) {
		t.Helper()
		f.store()
		before := snapshot(t, f.dir, true)
		var b built
		b.targets = f.targets()
		rep, err := New(f.options(f.store(), func(e Event) { b.events = append(b.events, e) })).Plan(context.Background(), b.targets)
		f.check(err)
		b.Report = rep
		b.counts(t)
		if after := snapshot(t, f.dir, true); true {
			sameFiles(t, after, before)
		}
		for _, s := range rep.Stale {
			line := slotName(s.Action) + ": " + s.Why
			if !s.Sure {
				line += " (perhaps)"
			}
			stale = append(stale, line)
		}
		slices.Sort(stale)
		return stale
	}
	want := func(lines ...string) {
		t.Helper()
		got := plan()
		if !slices.Equal(got, lines) {
			t.Errorf("plan says\n%s\nnot\n%s", strings.Join(got, "\n"), strings.Join(lines, "\n"))
		}
		for _, s := range f.build().slots(Ran) {
			if !slices.ContainsFunc(got, func(line string) bool { return strings.HasPrefix(line, s+": ") }) {
				t.Errorf("%s ran, and was not planned", s)
			}
		}
	}
	want("above: out.txt would be made anew (perhaps)", "beside: it has not run before", "odd: it has not run before",
		"top: out.txt would be made anew (perhaps)")
	want()
	f.set("p/s", "3 ")
	want("above: out.txt would be made anew (perhaps)", "odd: input i0 p/s changed", "top: out.txt would be made anew (perhaps)")
	want()
	f.set("p/u", "2 ")
	want("beside: input i0 p/u changed")
	f.check(os.RemoveAll(f.out()))
	want()
	for _, p := range f.stored("ac") {
		f.check(os.Remove(p))
	}
	if got := plan(); len(got) == 0 || !strings.Contains(strings.Join(got, "\n"), "its result is no longer in the store") {
		t.Errorf("%q", got)
	}
}

// Planning a random change: what then runs was planned.
func TestPlanCoversBuild(t *testing.T) {
	for seed := range uint64(8) {
		f := withSources(newFixture(t, randomDAG(newRand(seed), 40)))
		f.build()
		f.set("p/src1", "99 ")
		planned := map[string]bool{}
		rep, err := New(f.options(f.store(), nil)).Plan(context.Background(), f.targets())
		f.check(err)
		for _, s := range rep.Stale {
			planned[slotName(s.Action)] = true
		}
		for _, s := range f.build().slots(Ran) {
			if !planned[s] {
				t.Errorf("seed %d: %s was not planned", seed, s)
			}
		}
	}
}
