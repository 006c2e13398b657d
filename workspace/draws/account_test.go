package draws

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A ledger is a lock that is written for a test of accounts.
type ledger struct {
	testing.TB
	lock *Lock
}

func newLedger(t testing.TB) *ledger {
	l := open(t, lockPath(t))
	l.sync = noSync
	return &ledger{t, l}
}

// draw appends an intent and the draw of each.
func (g *ledger) draw(l graph.Label, run string, ids ...ID) {
	g.Helper()
	for _, id := range ids {
		intent := NewIntent(l, id, run)
		appendOK(g, g.lock, intent)
		appendOK(g, g.lock, intent.Drawn(captureOf(id), 1))
	}
}

func captureOf(id ID) cas.Digest { return cas.BLAKE3.Sum(fmt.Append(nil, id)) }

// terms of the tests: fp is the fingerprint of what judges.
func lookOf(fp string, n int) graph.Look {
	return graph.Look{N: n, Fingerprint: fp, Alpha: 0.05, Effect: 0.5, Margin: 0.2}
}

func termsOf(fp string) *Terms { return &Terms{0.05, 0.5, fp, 0.2} }

// bind and look append looks.
func (g *ledger) bind(l graph.Label, id ID, fp string) {
	g.Helper()
	if line, ok := g.lock.Bind(l, id.Sample, lookOf(fp, 0)); ok {
		appendOK(g, g.lock, line)
	}
}

func (g *ledger) look(l graph.Label, block, fp string, n int, verdict string) {
	g.Helper()
	appendOK(g, g.lock, NewLook(l, block, Looked{
		N: n, Reps: g.lock.Scored(reps(at(block, 1, n))), Fingerprint: fp, Alpha: 0.05, Effect: 0.5, Margin: 0.2, Verdict: verdict, Conclusion: "c-" + verdict,
	}))
}

// at gives the pairs 1 to n of a block and epoch.
func at(block string, epoch, n int) (ids []ID) {
	for i := 1; i <= n; i++ {
		for _, s := range []string{"control", "treatment"} {
			ids = append(ids, identity(graph.Sample{Stream: s, Index: i, Epoch: epoch, Block: block}))
		}
	}
	return ids
}

func reps(ids []ID) (out []Rep) {
	for _, id := range ids {
		out = append(out, Rep{ID: id})
	}
	return out
}

func (g *ledger) account(l graph.Label, fp string, r []Rep) Account {
	g.Helper()
	return g.lock.Account(l, r, lookOf(fp, len(r)/2))
}

// same compares what tests say of an account.
func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func TestAccountOfNothing(t *testing.T) {
	g := newLedger(t)
	a := g.account(labelA, "f", reps(at("b", 1, 1)))
	want := Account{
		Arms: map[string]Arm{"control": {}, "treatment": {}}, Block: "b", Epoch: 1, Fingerprint: "f",
		Looks: []Seen{}, Prior: []Prior{}, Withdrawn: []Withdrawn{}, Schema: AccountSchema,
		Reps: map[string]RepLine{"control-1": {}, "treatment-1": {}},
	}
	same(t, "account", a, want)
}

// TestAccountCounts: what the lines of a block say of its arms and reps.
func TestAccountCounts(t *testing.T) {
	g := newLedger(t)
	ids := at("b", 1, 3) // control-1, treatment-1, …
	g.draw(labelA, runA, ids[0], ids[1])
	intent := NewIntent(labelA, ids[2], runA)
	appendOK(t, g.lock, intent, intent.Abandoned("laptop slept"))
	intent.Run = runB
	appendOK(t, g.lock, intent, intent.Drawn(captureOf(ids[2]), 3))
	appendOK(t, g.lock, NewAdopted(labelA, ids[3], runA, "store", captureOf(ids[3])))
	g.draw(labelA, runB, ids[4], ids[5])
	a := g.account(labelA, "f", reps(ids[:4])) // two of three pairs are used
	same(t, "arms", a.Arms, map[string]Arm{
		"control":   {Abandoned: 1, Attempts: 1 + 1 + 3 + 1, Drawn: 3},
		"treatment": {Adopted: 1, Attempts: 3, Drawn: 3},
	})
	same(t, "reps", a.Reps, map[string]RepLine{
		"control-1":   {Attempts: 1, Capture: digestName(Line{Capture: captureOf(ids[0])})},
		"treatment-1": {Attempts: 1, Capture: digestName(Line{Capture: captureOf(ids[1])})},
		"control-2":   {Attempts: 3, Abandoned: 1, Capture: digestName(Line{Capture: captureOf(ids[2])})},
		"treatment-2": {Attempts: 1, Adopted: true, Capture: digestName(Line{Capture: captureOf(ids[3])})},
	})
	same(t, "pairs drawn in several runs", a.PairsSplit, 1)
	same(t, "prior", a.Prior, []Prior{})
}

// TestAccountRivals: the lines of two branches that drew the same rep.
func TestAccountRivals(t *testing.T) {
	g := newLedger(t)
	id := rep("control", 1)
	g.draw(labelA, runA, id)
	intent := NewIntent(labelA, id, runB)
	intent.Seq = 1
	drawn := intent.Drawn(cap2, 1)
	drawn.Seq = 2
	path := g.lock.path
	put(t, path, contents(t, path)+text(t, intent)+text(t, drawn))
	g.lock = open(t, path)
	a := g.account(labelA, "f", []Rep{{ID: id}})
	if r := a.Reps["control-1"]; r.Rivals != 1 || r.Attempts != 2 || a.Arms["control"].Drawn != 1 {
		t.Errorf("%+v, %+v", r, a.Arms)
	}
}

// TestAccountBound: what decides is what was settled when nobody had seen a
// reply of the block.
// TestRivalsOfBranches: two branches drew the same reps, in another order; after
// the merge the captures of one of them count for all.
func TestRivalsOfBranches(t *testing.T) {
	ids := at("b", 1, 2)
	var text []byte
	for run, order := range map[string][]int{runA: {0, 1, 2, 3}, runB: {3, 2, 1, 0}} {
		seq := int64(0)
		for _, i := range order {
			line := NewIntent(labelA, ids[i], run)
			for _, x := range []Line{line, line.Drawn(cas.BLAKE3.Sum([]byte(run)), 1)} {
				seq++
				x.Seq = seq
				b, err := encode(x)
				if err != nil {
					t.Fatal(err)
				}
				text = append(text, b...)
			}
		}
	}
	path := lockPath(t)
	put(t, path, string(text))
	l := open(t, path)
	won := l.State(ids[0]).Line.Run
	for _, id := range ids {
		s := l.State(id)
		if s.Line.Run != won || len(s.Rivals) != 1 || s.Rivals[0].Run == won || s.Status != StatusDrawn {
			t.Errorf("%v: %v by %s, rivals %v", id, s.Status, s.Line.Run, s.Rivals)
		}
	}
}

func TestAccountBound(t *testing.T) {
	ids := at("b", 1, 1)
	for _, c := range []struct {
		name  string
		lines func(*ledger)
		label graph.Label
		want  *Terms
	}{
		{"before the draw", func(g *ledger) { g.bind(labelA, ids[0], "f"); g.draw(labelA, runA, ids...) }, labelA, termsOf("f")},
		{"bound again before the draw", func(g *ledger) {
			g.bind(labelA, ids[0], "e")
			g.bind(labelA, ids[0], "f")
			g.draw(labelA, runA, ids...)
		}, labelA, termsOf("f")},
		{"after the first draw there is nothing to bind", func(g *ledger) {
			g.draw(labelA, runA, ids[0])
			g.bind(labelA, ids[0], "f")
			g.draw(labelA, runA, ids[1])
		}, labelA, termsOf("now")},
		{"too late, by hand", func(g *ledger) {
			g.draw(labelA, runA, ids...)
			g.look(labelA, "b", "f", 0, "UNMEASURED")
		}, labelA, termsOf("now")},
		{"the first look", func(g *ledger) {
			g.draw(labelA, runA, ids...)
			g.look(labelA, "b", "e", 1, "INERT")
			g.look(labelA, "b", "f", 1, "INERT")
		}, labelA, termsOf("e")},
		{"each its own", func(g *ledger) {
			g.bind(labelA, ids[0], "f")
			g.bind(labelB, ids[0], "e")
			g.draw(labelA, runA, ids...)
			appendOK(g, g.lock, NewAdopted(labelB, ids[0], runA, "store", captureOf(ids[0])))
		}, labelB, termsOf("e")},
		{"and not the other's", func(g *ledger) {
			g.bind(labelA, ids[0], "f")
			g.bind(labelB, ids[0], "e")
			g.draw(labelA, runA, ids...)
			appendOK(g, g.lock, NewAdopted(labelB, ids[0], runA, "store", captureOf(ids[0])))
		}, labelA, termsOf("f")},
		{"a label that joins has that of whom it joins", func(g *ledger) {
			g.bind(labelA, ids[0], "f")
			g.draw(labelA, runA, ids...)
			appendOK(g, g.lock, NewAdopted(labelB, ids[0], runA, "store", captureOf(ids[0])))
		}, labelB, termsOf("f")},
		{"another block's", func(g *ledger) {
			g.bind(labelA, at("other", 1, 1)[0], "e")
			g.draw(labelA, runA, at("other", 1, 1)...)
			g.bind(labelA, ids[0], "f")
			g.draw(labelA, runA, ids...)
		}, labelA, termsOf("f")},
	} {
		g := newLedger(t)
		c.lines(g)
		same(t, c.name, g.account(c.label, "now", reps(ids)).Bound, c.want)
	}
	// Each epoch binds anew.
	g := newLedger(t)
	g.bind(labelA, ids[0], "e")
	g.draw(labelA, runA, ids...)
	g.look(labelA, "b", "e", 1, "INERT")
	second := at("b", 2, 1)
	g.bind(labelA, second[0], "f")
	g.draw(labelA, runA, second...)
	unbound := newLedger(t)
	unbound.draw(labelA, runA, ids...)
	unbound.look(labelA, "b", "e", 1, "INERT")
	unbound.draw(labelA, runA, second...)
	same(t, "second epoch, not bound", unbound.account(labelA, "now", append(reps(second), Rep{ID: ids[0], Withdrawn: true})).Bound, termsOf("now"))
	same(t, "second epoch", g.account(labelA, "now", append(reps(second), Rep{ID: ids[0], Withdrawn: true})).Bound, termsOf("f"))
}

// TestAccountLooks: a scoring is no input of itself, and of others it is one
// only where it looked at another number of reps.
func TestAccountLooks(t *testing.T) {
	g := newLedger(t)
	two, four := at("b", 1, 2), at("b", 1, 4)
	g.bind(labelA, two[0], "f")
	g.draw(labelA, runA, two...)
	ns := func(a Account) (out []int) {
		for _, l := range a.Looks {
			out = append(out, l.N)
		}
		return out
	}
	same(t, "never looked at", ns(g.account(labelA, "f", reps(two))), []int(nil))
	g.look(labelA, "b", "f", 2, "INERT")
	same(t, "the same again", ns(g.account(labelA, "f", reps(two))), []int(nil))
	same(t, "another discriminator", ns(g.account(labelA, "e", reps(two))), []int{2})
	same(t, "more reps", ns(g.account(labelA, "f", reps(four))), []int{2})
	g.draw(labelA, runA, four[4:]...)
	g.look(labelA, "b", "f", 4, "INERT")
	same(t, "of four", ns(g.account(labelA, "f", reps(four))), []int{2})
	same(t, "back to two", ns(g.account(labelA, "f", reps(two))), []int{2, 4})
	// A new name of the target has its looks; a target beside it is another.
	same(t, "renamed", ns(g.account(labelB, "f", reps(four))), []int{2})
	appendOK(t, g.lock, NewAdopted(labelB, two[0], runA, "store", captureOf(two[0])))
	g.look(labelA, "b", "f", 3, "INERT")
	g.look(labelB, "b", "e", 4, "INERT")
	same(t, "beside it, of as many reps", ns(g.account(labelA, "f", reps(four))), []int{2, 4, 3})
	same(t, "beside it, of others", ns(g.account(labelA, "f", reps(two))), []int{2, 4, 3, 4})
}

// TestAccountLooksAndDraws: a look before one of the reps was had isn't the one
// that is being made, though nothing else changed: a limit was raised, or a rep
// withdrawn.
func TestAccountLooksAndDraws(t *testing.T) {
	g := newLedger(t)
	ids := at("b", 1, 2)
	g.bind(labelA, ids[0], "f")
	g.draw(labelA, runA, ids...)
	g.look(labelA, "b", "f", 2, "INERT")
	again := ids[3]
	again.Sample.Redraw = 1
	again = identity(again.Sample)
	g.draw(labelA, runA, again)
	now := reps([]ID{ids[0], ids[1], ids[2], again})
	first := g.account(labelA, "f", now)
	if len(first.Looks) != 1 {
		t.Fatalf("looks %v", first.Looks)
	}
	seen := func(verdict string) {
		appendOK(t, g.lock, NewLook(labelA, "b", Looked{
			N: 2, Reps: first.Scored, Fingerprint: "f", Alpha: 0.05, Effect: 0.5, Margin: 0.2, Verdict: verdict, Conclusion: "c",
		}))
	}
	seen("BEHAVIORAL")
	same(t, "scored", g.account(labelA, "f", now), first)
	// A judge that says something else of the same reps hides nothing.
	seen("INERT")
	if got := g.account(labelA, "f", now).Looks; len(got) != 2 || got[1].Verdict != "BEHAVIORAL" {
		t.Errorf("looks %v", got)
	}
}

// TestAccountEarlier: draws that are none of the reps now, and why.
func TestAccountEarlier(t *testing.T) {
	g := newLedger(t)
	g.draw(labelA, runA, at("old", 1, 2)...)
	g.look(labelA, "old", "f", 2, "BEHAVIORAL")
	g.draw(labelA, runA, at("b", 1, 2)...)
	g.look(labelA, "b", "f", 2, "INERT")
	g.draw(labelA, runA, at("b", 2, 1)...)
	g.look(labelA, "b", "f", 1, "REGRESSIVE")
	other := identity(graph.Sample{Stream: "third", Index: 1, Epoch: 3, Block: "b"})
	g.draw(labelA, runA, other)
	stopped := identity(graph.Sample{Stream: "control", Index: 1, Epoch: 3, Block: "b"})
	g.draw(labelA, runA, stopped)
	now := at("b", 3, 1)
	now[0].Key = graph.Key(cap1) // the same sample under a raised limit
	g.draw(labelA, runA, now...)
	redrawn := identity(graph.Sample{Stream: "treatment", Index: 1, Epoch: 3, Redraw: 1, Block: "b"})
	g.draw(labelA, runA, redrawn)
	a := g.account(labelA, "f", []Rep{{ID: now[0], Stopped: []ID{stopped}}, {ID: now[1], Withdrawn: true}, {ID: redrawn}})
	same(t, "prior", a.Prior, []Prior{
		{Changed: []string{"block", "epoch"}, Count: 4, Epoch: 1, Verdict: "BEHAVIORAL", Conclusion: "c-BEHAVIORAL"},
		{Changed: []string{"limits"}, Count: 1, Epoch: 3},
		{Changed: []string{"stream"}, Count: 1, Epoch: 3, Verdict: "REGRESSIVE", Conclusion: "c-REGRESSIVE"},
	})
	same(t, "withdrawn", a.Withdrawn, []Withdrawn{
		{Epoch: 1, Drawn: map[string]int{"control": 2, "treatment": 2}, Verdict: "INERT", Conclusion: "c-INERT"},
		{Epoch: 2, Drawn: map[string]int{"control": 1, "treatment": 1}, Verdict: "REGRESSIVE", Conclusion: "c-REGRESSIVE"},
	})
	same(t, "arms", a.Arms, map[string]Arm{"control": {Attempts: 2, Drawn: 1}, "treatment": {Attempts: 2, Drawn: 1}})
	same(t, "stopped", a.Reps["control-1"].Stopped, 1)
	same(t, "looks of this epoch", a.Looks, []Seen{})
	same(t, "epoch", a.Epoch, 3)
	if l := g.lock.Latest(labelA); l.Epoch("control") != 3 || l.Redraw(redrawn.Sample) != 1 || l.Redraw(stopped.Sample) != 0 || l.Epoch("none") != 0 {
		t.Errorf("latest %+v", l)
	}
	if l := g.lock.Latest(labelB); l.Epoch("control") != 0 {
		t.Errorf("latest of another label %+v", l)
	}
	same(t, "blocks", g.lock.Latest(labelA).Blocks("control"), []string{"b", "old"})
	same(t, "blocks of another label", g.lock.Latest(labelB).Blocks("control"), []string(nil))
	reused := []Rep{{ID: at("old", 1, 1)[0]}, {ID: at("b", 1, 1)[1]}}
	if a := g.account(labelA, "f", reused); !a.DrawnApart || a.Block != "b" {
		t.Errorf("a reused control: %+v", a)
	}
}

// TestHas: a label has what a line of its own says, not what another drew.
func TestHas(t *testing.T) {
	g := newLedger(t)
	id := rep("control", 1)
	if g.lock.Has(labelA, id) {
		t.Error("nothing is drawn")
	}
	g.draw(labelA, runA, id)
	if !g.lock.Has(labelA, id) || g.lock.Has(labelB, id) {
		t.Error("it is A's, and not B's")
	}
	appendOK(t, g.lock, NewAdopted(labelB, id, runA, "store", captureOf(id)))
	if !g.lock.Has(labelB, id) {
		t.Error("B adopted it")
	}
}

// TestAccountOrder: git's merge=union gives the lines of two branches in any
// order; the account is the same.
func TestAccountOrder(t *testing.T) {
	g := newLedger(t)
	ids := at("b", 1, 4)
	g.bind(labelA, ids[0], "f")
	g.draw(labelA, runA, ids...)
	for i, l := range []graph.Label{labelA, labelB, labelA} {
		appendOK(t, g.lock, NewAdopted(l, ids[i], runB, "store", captureOf(ids[i])))
	}
	lines := strings.SplitAfter(strings.TrimSuffix(contents(t, g.lock.path), "\n"), "\n")
	lines[len(lines)-1] += "\n"
	for n := range 30 { // two branches that looked at the same time
		l := NewLook([]graph.Label{labelA, labelB}[n%2], "b", Looked{
			N: 2 + n%3, Fingerprint: []string{"e", "f"}[n%2], Alpha: 0.05, Effect: 0.5, Margin: 0.2, Verdict: fmt.Sprint(n), Conclusion: "c",
		})
		l.Seq = 30
		lines = append(lines, text(t, l))
	}
	random := rand.New(rand.NewPCG(1, 2))
	var want Account
	for i := range 20 {
		path := filepath.Join(t.TempDir(), Name)
		put(t, path, strings.Join(lines, ""))
		a := open(t, path).Account(labelA, reps(ids[:6]), lookOf("f", 3))
		b, err := a.JSON()
		if err != nil || b[len(b)-1] != '\n' {
			t.Fatal(err)
		}
		if i == 0 {
			want = a
		} else if !reflect.DeepEqual(a, want) {
			t.Fatalf("%s", cmp.Diff(want, a))
		}
		random.Shuffle(len(lines), func(i, j int) { lines[i], lines[j] = lines[j], lines[i] })
	}
	if len(want.Looks) < 10 {
		t.Errorf("%d looks: the test proves little", len(want.Looks))
	}
}
