package engine

import (
	"context"
	"errors"
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

const evident = `
action(name = "a", tool = ":sh", args = ["a.txt=@", "b.txt=b"], srcs = ["s"], outs = ["a.txt", "b.txt"])
node(name = "n", srcs = ["s"], salt = 1, pad = 3000)
`

// TestEvidence: what Evidence gives is enough to give the same outputs with a
// store that has nothing else, on a machine without the tools.
func TestEvidence(t *testing.T) {
	f := newRunFixture(t, evident)
	f.set("p/s", "1 ")
	f.build()
	store := f.store()
	ev, err := New(f.options(store, nil)).Evidence(context.Background(), f.targets("a")[0])
	f.check(err)
	if len(ev.Faults)+len(ev.Report.Problems) > 0 || len(ev.Processes) != 1 || len(ev.Processes[0].Results) != 1 || len(ev.Tools) != 1 {
		t.Fatalf("%+v", ev)
	}
	if d := cmp.Diff([]Shown{{"a.txt", []byte("p/s 1\n")}, {"b.txt", []byte("b")}}, ev.Outputs); d != "" {
		t.Error(d)
	}
	if !slices.Equal(ev.Tools[0].Tools, []graph.Label{{Pkg: "p", Name: "sh"}}) || len(ev.Tools[0].Mounts) != 1 || ev.Tools[0].Mounts[0].Path != "/bin/sh" {
		t.Errorf("tools: %+v", ev.Tools)
	}

	dir := t.TempDir()
	other, err := cas.Open(cas.Options{Cache: dir, Data: dir})
	f.check(err)
	for _, x := range ev.Processes[0].Results[0].Result.Files {
		b, err := store.Read(x.Digest)
		f.check(err)
		_, err = other.Put(cas.Pure, b)
		f.check(err)
	}
	kr := ev.Processes[0].Results[0]
	f.check(other.PutResult(cas.Pure, cas.Digest(kr.Key), kr.Result))
	recorded := &Recorded{here, func(tools []graph.Label) ([]graph.Mount, error) {
		if !slices.Equal(tools, ev.Tools[0].Tools) {
			return nil, errors.New("other tools")
		}
		return ev.Tools[0].Mounts, nil
	}}
	again := func(r *Recorded) *Evidence {
		o := f.options(other, nil)
		o.Out, o.Tools, o.Runner, o.Recorded = "", nil, nil, r
		ev, err := New(o).Evidence(context.Background(), f.targets("a")[0])
		f.check(err)
		return ev
	}
	if got := again(recorded); len(got.Faults)+len(got.Report.Problems) > 0 || cmp.Diff(ev.Outputs, got.Outputs) != "" {
		t.Errorf("%+v", got)
	}
	// The platform and the mounts are in the key: with others it is no result.
	if got := again(&Recorded{graph.Platform{OSFamily: "plan9", ISA: "z80"}, recorded.Mounts}); len(got.Report.Problems) != 1 {
		t.Errorf("another platform: %+v", got)
	}
	if got := again(&Recorded{here, func([]graph.Label) ([]graph.Mount, error) { return nil, nil }}); len(got.Report.Problems) != 1 {
		t.Errorf("no tools: %+v", got)
	}
}

func TestEvidenceFinds(t *testing.T) {
	f := newRunFixture(t, evident)
	f.set("p/s", "1 ")
	evidence := func(name string) *Evidence {
		f.Helper()
		ev, err := New(f.options(f.store(), nil)).Evidence(context.Background(), f.targets(name)[0])
		f.check(err)
		return ev
	}
	if ev := evidence("a"); len(ev.Report.Problems) != 1 || !errors.Is(ev.Report.Problems[0].Err, errNotRecorded) || len(ev.Outputs) > 0 {
		t.Errorf("nothing is built: %+v", ev)
	}
	f.build()
	f.check(os.Chmod(f.out("p", "n", "out.txt"), 0o644))
	f.check(os.WriteFile(f.out("p", "n", "out.txt"), []byte("x"), 0o644))
	if ev := evidence("n"); len(ev.Faults) != 1 || ev.Faults[0].Where != "eval-out" {
		t.Errorf("an output was edited: %+v", ev)
	}
	f.check(os.Remove(f.out("p", "n", "out.txt")))
	if ev := evidence("n"); len(ev.Faults) != 1 {
		t.Errorf("an output is missing: %+v", ev)
	}
}
