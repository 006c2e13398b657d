package engine

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/workspace/graph"
)

func TestTransitions(t *testing.T) {
	names := stateNames[:]
	want := map[string][]string{
		"waiting":  {"checking", "skipped", "stale"},
		"checking": {"asking", "running", "done", "failed", "stale", "skipped"},
		"asking":   {"running", "done", "failed", "stale", "skipped"},
		"running":  {"done", "failed", "waiting", "skipped"},
		"done":     {"waiting"},
	}
	for from := range state(len(names)) {
		for to := range state(len(names)) {
			ok := slices.Contains(want[from.String()], to.String())
			t.Run(from.String()+" to "+to.String(), func(t *testing.T) {
				a := &graph.Action{}
				a.Outputs = []graph.Output{{Name: "out", File: &graph.File{Path: "o", Action: a}}}
				b := &build{Engine: New(Options{})}
				n := &node{action: a, state: from}
				defer func() {
					if r := recover(); (r == nil) != ok {
						t.Errorf("panic %v", r)
					}
				}()
				b.transition(n, to)
				if n.state != to {
					t.Errorf("it is %s", n.state)
				}
			})
		}
	}
}

// TestTwinEndsWithItsMaker: an action that finds what its twin has just made waits
// until the twin says so, so what needs them gets ready at once.
func TestTwinEndsWithItsMaker(t *testing.T) {
	twin := func(s state) *node {
		a := &graph.Action{}
		a.Outputs = []graph.Output{{Name: "out", File: &graph.File{Path: "o", Action: a}}}
		return &node{action: a, state: s}
	}
	maker, finder := twin(running), twin(checking)
	b := &build{
		Engine: New(Options{}), nodes: []*node{maker, finder},
		byKey: map[graph.Key]*node{maker.key: maker}, parked: map[graph.Key][]*node{},
	}
	made := []output{{inlined: true}}
	if run := b.settle(t.Context(), outcome{node: finder, hit: true, outputs: made}); run != nil || finder.state != running || b.ended != 0 {
		t.Errorf("run %v, the finder is %s", run, finder.state)
	}
	b.settle(t.Context(), outcome{node: maker, outputs: made})
	if maker.state != done || finder.state != done || b.ended != 2 || !maker.ran || finder.ran {
		t.Errorf("maker %s, finder %s, %d ended", maker.state, finder.state, b.ended)
	}
}

// randomDAG declares n nodes that use earlier ones and a few sources. Some are
// twins of others, some make two outputs, some are large.
func randomDAG(r *rand.Rand, n int) string {
	var b strings.Builder
	for i := range n {
		var srcs []string
		for range r.IntN(4) {
			srcs = append(srcs, fmt.Sprintf("%q", fmt.Sprintf("src%d", r.IntN(3))))
		}
		for range min(i, r.IntN(4)) {
			srcs = append(srcs, fmt.Sprintf("%q", fmt.Sprintf(":n%d", r.IntN(i))))
		}
		slices.Sort(srcs)
		srcs = slices.Compact(srcs)
		list, pad := strings.Join(srcs, ", "), 2000*r.IntN(2)
		switch r.IntN(8) {
		case 0:
			fmt.Fprintf(&b, "files(name = 'n%d', content = {'w.txt': '%d'}, pad = %d)\n", i, r.IntN(3), pad)
		case 1:
			fmt.Fprintf(&b, "two(name = 'n%d', srcs = [%s], salt = %d, pad = %d)\n", i, list, r.IntN(3), pad)
		case 2:
			fmt.Fprintf(&b, "node(name = 'n%d', srcs = [%s], fn = parity, pad = %d)\n", i, list, pad)
		default:
			fmt.Fprintf(&b, "node(name = 'n%d', srcs = [%s], salt = %d, pad = %d)\n", i, list, r.IntN(4), pad)
		}
	}
	return b.String()
}

func withSources(f *fixture) *fixture {
	for i := range 3 {
		f.set(fmt.Sprintf("p/src%d", i), fmt.Sprintf("%d ", i+5))
	}
	return f
}

func TestRandomGraphs(t *testing.T) {
	for seed := range uint64(12) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			r := rand.New(rand.NewPCG(seed, 0))
			text := randomDAG(r, 40)
			var first map[string]string
			for _, jobs := range []int{1, 8} {
				f := withSources(newFixture(t, text))
				f.jobs = jobs
				b := f.build()
				keys := map[graph.Key]int{}
				for _, e := range b.events {
					if e.Status == Ran {
						keys[e.Key]++
					}
				}
				for k, n := range keys {
					if n > 1 {
						t.Errorf("key %s ran %d times", k, n)
					}
				}
				if len(keys) != b.Ran {
					t.Errorf("%d keys ran, the report says %d", len(keys), b.Ran)
				}
				if first == nil {
					first = f.outputs()
				} else {
					f.wantOutputs(first)
				}
				f.wantRan(f.build()) // nothing
				f.set("p/src1", "77 ")
				f.build()
				fresh := withSources(newFixture(t, text))
				fresh.set("p/src1", "77 ")
				fresh.build()
				f.wantOutputs(fresh.outputs())
			}
		})
	}
}

// Random damage in the middle of random graphs: every mix of reopened, parked
// and retried actions has to come to its end with the right bytes.
func TestRandomDamage(t *testing.T) {
	rounds := uint64(24)
	if testing.Short() {
		rounds = 6
	}
	for seed := range rounds {
		r := rand.New(rand.NewPCG(seed, 1))
		f := withSources(newFixture(t, randomDAG(r, 30)))
		f.jobs = 1 + int(seed%2)*7
		f.build()
		want := f.outputs()
		for round := range 3 {
			for _, p := range f.stored("cas") {
				if r.IntN(3) == 0 {
					f.check(damages[r.IntN(len(damages))].do(p))
				}
			}
			for _, p := range f.stored("ac") {
				if r.IntN(4) == 0 {
					f.check(damages[3].do(p))
				}
			}
			if round != 1 {
				f.check(removeAll(f.out()))
			}
			b := f.run(context.Background())
			if b.err != nil || len(b.Problems) > 0 || b.Skipped > 0 {
				t.Fatalf("seed %d: %v %v, %d skipped", seed, b.err, b.Problems, b.Skipped)
			}
			if last := b.events[len(b.events)-1]; last.Done != b.Actions {
				t.Errorf("seed %d: the last event says %d/%d", seed, last.Done, last.Total)
			}
			for _, e := range b.events {
				if e.Status == Ran && (e.Why == "" || strings.Contains(e.Why, "\n")) {
					t.Errorf("seed %d: %s ran because %q", seed, e.Action.Slot(), e.Why)
				}
			}
			if b := f.build(); b.Ran > 0 && round != 1 {
				t.Errorf("seed %d: %q ran again", seed, b.slots(Ran))
			}
			f.wantOutputs(want)
			if t.Failed() {
				t.Fatalf("seed %d", seed)
			}
		}
	}
}

const failing = `
node(name = "bad", fn = boom, srcs = ["s"])
node(name = "user", srcs = [":bad"])
node(name = "user2", srcs = [":user", ":good"])
node(name = "good", srcs = ["s"], salt = 2)
node(name = "better", srcs = [":good"], salt = 3)
`

func TestKeepGoing(t *testing.T) {
	f := newFixture(t, failing)
	f.set("p/s", "1 ")
	f.keep = true
	b := f.run(context.Background())
	f.check(b.err)
	b.counts(t)
	for status, want := range map[Status][]string{
		Failed:  {"bad"},
		Skipped: {"user", "user2"},
		Ran:     {"better", "good"},
	} {
		if got := b.slots(status); !slices.Equal(got, want) {
			t.Errorf("%s: %q, not %q", status, got, want)
		}
	}
	if len(b.Problems) != 1 || b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), "boom") {
		t.Errorf("problems %+v", b.Problems)
	}
	if diff := cmp.Diff([]string{"better/out.txt", "good/out.txt"}, names(f.outputs())); diff != "" {
		t.Error(diff)
	}
	want := map[string]Status{"bad": Failed, "user": Failed, "user2": Failed, "good": Ran, "better": Ran}
	for _, r := range b.Report.Targets {
		if r.Status != want[r.Target.Label.Name] {
			t.Errorf("target %s: %s", r.Target.Label, r.Status)
		}
	}
	// A failed action stored nothing: it runs again, and the others don't.
	b = f.run(context.Background())
	b.counts(t)
	if b.Ran != 0 || b.Disk != 2 || b.Failed != 1 {
		t.Errorf("second build: %+v", b.Report)
	}
}

// names are paths below the package's folder.
func names(files map[string]string) []string {
	var out []string
	for _, p := range keysOf(files) {
		out = append(out, strings.TrimPrefix(p, "p/"))
	}
	return out
}

func TestStopAtFirstFailure(t *testing.T) {
	f := newFixture(t, failing)
	f.set("p/s", "1 ")
	f.jobs = 1
	b := f.run(context.Background())
	f.check(b.err)
	b.counts(t)
	if b.Failed != 1 || b.Ran > 1 || b.Skipped < 3 {
		t.Errorf("%+v", b.Report)
	}
	for range 20 { // whoever is running meanwhile
		f.jobs = 8
		b = f.run(context.Background())
		f.check(b.err)
		b.counts(t)
	}
}

func TestTwins(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "node(name = 'twin%02d', srcs = ['s'], pad = %d)\nnode(name = 'user%02d', srcs = [':twin%02d'], salt = %d)\n", i, 2000, i, i, i)
	}
	f := newFixture(t, text.String())
	f.set("p/s", "1 ")
	f.jobs = 8
	b := f.build()
	ran := 0
	for _, s := range b.slots(Ran) {
		if strings.HasPrefix(s, "twin") {
			ran++
		}
	}
	if ran != 1 {
		t.Errorf("%d twins ran", ran)
	}
	for _, e := range b.events {
		if e.Status == Disk && e.Why != "" {
			t.Errorf("%s didn't run, and says why: %s", e.Action.Slot(), e.Why)
		}
	}
	out := f.outputs()
	for i := range 20 {
		if out[fmt.Sprintf("p/twin%02d/out.txt", i)] != out["p/twin00/out.txt"] {
			t.Errorf("twin %d has another result", i)
		}
	}
}

func TestTwinsFailAlike(t *testing.T) {
	var text strings.Builder
	for i := range 20 {
		fmt.Fprintf(&text, "node(name = 'twin%02d', fn = boom, srcs = ['s'])\nnode(name = 'user%02d', srcs = [':twin%02d'])\n", i, i, i)
	}
	f := newFixture(t, text.String())
	f.set("p/s", "1 ")
	f.keep, f.jobs = true, 8
	b := f.run(context.Background())
	f.check(b.err)
	b.counts(t)
	if b.Failed != 20 || b.Skipped != 20 || b.Ran != 0 || b.Disk != 0 {
		t.Errorf("%d failed, %d skipped, %d ran, %d from disk", b.Failed, b.Skipped, b.Ran, b.Disk)
	}
	for _, e := range b.events {
		if e.Status == Failed && e.Err == nil {
			t.Errorf("%s failed without an error", e.Action.Slot())
		}
	}
}

// An output of an action that two outputs of are used waits for it once.
func TestTwoOutputs(t *testing.T) {
	f := newFixture(t, `
two(name = "t", srcs = ["s"], pad = 2000)
node(name = "u", srcs = [":t"])
node(name = "v", srcs = [":t", ":u"])
`)
	f.set("p/s", "1 ")
	f.wantRan(f.build(), "t a.txt", "u", "v")
	f.wantRan(f.build())
	f.set("p/s", "2 ")
	f.wantRan(f.build(), "t a.txt", "u", "v")
}

func TestWorkerPanicReachesOwner(t *testing.T) {
	f := newFixture(t, `node(name = "a", srcs = ["s"])`)
	f.set("p/s", "1 ")
	f.onOpen = func(string) error { panic("ours") }
	defer func() {
		if r := recover(); r == nil || !strings.Contains(fmt.Sprint(r), "ours") {
			t.Errorf("recovered %v", r)
		}
	}()
	f.run(context.Background())
	t.Error("no panic")
}

func TestEarlyCutOff(t *testing.T) {
	f := newFixture(t, `
node(name = "odd", srcs = ["s"], fn = parity)
node(name = "above", srcs = [":odd"], salt = 1)
node(name = "top", srcs = [":above"], salt = 2)
node(name = "straight", srcs = ["s"], salt = 3)
`)
	f.set("p/s", "3 ")
	f.wantRan(f.build(), "above", "odd", "straight", "top")
	f.set("p/s", "5 ") // still odd
	b := f.build()
	f.wantRan(b, "odd", "straight")
	if got := b.slots(Disk); !slices.Equal(got, []string{"above", "top"}) {
		t.Errorf("from the store: %q", got)
	}
	f.set("p/s", "4 ")
	f.wantRan(f.build(), "above", "odd", "straight", "top")
	f.set("p/s", "3 ") // all known
	f.wantRan(f.build())
	if got := f.outputs()["p/odd/out.txt"]; got != "1 " {
		t.Errorf("odd says %q", got)
	}
}

func TestInterrupt(t *testing.T) {
	var text strings.Builder
	for i := range 6 {
		fmt.Fprintf(&text, "node(name = 'done%d', srcs = ['s'], salt = %d)\n", i, i)
	}
	for i := range 4 {
		fmt.Fprintf(&text, "node(name = 'spin%d', srcs = [':done%d'], fn = FN, salt = %d)\nnode(name = 'user%d', srcs = [':spin%d'], salt = 9%d)\n", i, i, 50+i, i, i, i)
	}
	f := newFixture(t, "FN = spin\n"+text.String())
	f.set("p/s", "1 ")
	f.jobs = 4
	before := goroutines()
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	var b built
	b.targets = f.targets()
	b.Report, b.err = New(f.options(f.store(), func(e Event) {
		b.events = append(b.events, e)
		if len(b.slots(Ran)) == 6 {
			cancel()
		}
	})).Build(ctx, b.targets)
	if !errors.Is(b.err, ErrInterrupted) {
		t.Fatal(b.err)
	}
	b.counts(t)
	f.wantRan(b, "done0", "done1", "done2", "done3", "done4", "done5")
	if len(b.Problems) != 0 || b.Skipped != 8 {
		t.Errorf("%+v", b.Report)
	}
	if after := settledGoroutines(before); after > before {
		t.Errorf("%d goroutines, %d before", after, before)
	}
	if h, ok := New(f.options(f.store(), nil)).Slot(b.event("done0").Action.Slot()); !ok || h.Why != "it has not run before" {
		t.Errorf("the slot of a finished action: %+v", h)
	}
	f.declare("p", "FN = mix\n"+text.String())
	f.wantRan(f.build(), "spin0", "spin1", "spin2", "spin3", "user0", "user1", "user2", "user3")
}

func TestInterruptedBefore(t *testing.T) {
	f := newFixture(t, `node(name = "a", srcs = ["s"])`)
	f.set("p/s", "1 ")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := f.run(ctx)
	if !errors.Is(b.err, ErrInterrupted) {
		t.Fatal(b.err)
	}
	b.counts(t)
	if b.Failed > 0 || len(b.Problems) > 0 {
		t.Errorf("%+v", b.Report)
	}
	f.wantOutputs(map[string]string{})
	f.build()
}

// A deadline is an interruption like any other, not a failure of an action.
func TestDeadline(t *testing.T) {
	f := newFixture(t, `node(name = "a", srcs = ["s"], fn = spin)`)
	f.set("p/s", "1 ")
	ctx, cancel := newDeadline()
	f.onOpen = func(string) error { cancel(); return nil }
	b := f.run(ctx)
	if !errors.Is(b.err, ErrInterrupted) || len(b.Problems) > 0 {
		t.Errorf("%v %+v", b.err, b.Problems)
	}
	b.counts(t)
}

// Whoever says context.Canceled of a source while nothing was cancelled has
// failed, and is heard.
func TestForeignCancel(t *testing.T) {
	f := newFixture(t, "node(name = 'a', srcs = ['s'])\nnode(name = 'b', srcs = ['s'])")
	f.set("p/s", "1 ")
	f.onOpen = func(string) error { return context.Canceled }
	b := f.run(context.Background())
	f.check(b.err)
	b.counts(t)
	if len(b.Problems) == 0 {
		t.Error("no problem is told")
	}
}
