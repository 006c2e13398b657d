package draws

import (
	"errors"
	"testing"

	"github.com/evalbuild/eval/cas"
)

// TestSurplus: a run that finds that another's capture came first adopts it, and
// what it drew itself is listed, said once, and counted; attempts stay those of
// what counts.
func TestSurplus(t *testing.T) {
	g := newLedger(t)
	ids := at("b", 1, 1)
	theirs, ours := cas.BLAKE3.Sum([]byte("theirs")), cas.BLAKE3.Sum([]byte("ours"))
	surplus := NewSurplus(labelA, ids[0], runA, "run", ours)
	if _, err := g.lock.Append(surplus); !errors.Is(err, ErrNoCapture) {
		t.Fatalf("a surplus of nothing: %v", err)
	}
	intent := NewIntent(labelA, ids[0], runA)
	appendOK(t, g.lock, intent, NewAdopted(labelA, ids[0], runA, "remote", theirs), surplus)
	n := len(g.lock.Lines())
	appendOK(t, g.lock, surplus)
	appendOK(t, g.lock, NewSurplus(labelA, ids[0], runA, "remote", theirs)) // it is the one that counts
	if got := len(g.lock.Lines()); got != n {
		t.Errorf("%d lines after saying the same again, want %d", got, n)
	}
	s := g.lock.State(ids[0])
	if s.Line.Capture != theirs || len(s.Open) != 0 || len(s.Rivals) != 0 || len(s.Surplus) != 1 || s.Surplus[0].Capture != ours {
		t.Errorf("state %+v", s)
	}
	a := g.account(labelA, "f", reps(ids))
	if a.Arms["control"].Surplus != 1 || a.Arms["treatment"].Surplus != 0 || a.Reps["control-1"].Surplus != 1 || a.Arms["control"].Drawn != 1 {
		t.Errorf("account %+v", a)
	}
	again := open(t, g.lock.path)
	if got := again.State(ids[0]).Surplus; len(got) != 1 {
		t.Errorf("read again: surplus %v", got)
	}
	if c := again.Counts(labelA); c.Surplus != 1 || c.Adopted != 1 {
		t.Errorf("counts %+v", c)
	}
}

// TestSurplusOfBranches: one branch's draw is the other's surplus. After a merge
// each capture is listed once, whatever the order of the lines.
func TestSurplusOfBranches(t *testing.T) {
	one, two := newLedger(t), newLedger(t)
	id := at("b", 1, 1)[0]
	a, b := cas.BLAKE3.Sum([]byte("a")), cas.BLAKE3.Sum([]byte("b"))
	first := NewIntent(labelA, id, runA)
	appendOK(t, one.lock, first, first.Drawn(a, 1))
	second := NewIntent(labelA, id, runB)
	appendOK(t, two.lock, second, second.Drawn(b, 1), NewSurplus(labelA, id, runB, "remote", a))
	for _, order := range [][]*ledger{{one, two}, {two, one}} {
		var text string
		for _, g := range order {
			text += contents(t, g.lock.path)
		}
		path := lockPath(t)
		put(t, path, text)
		s := open(t, path).State(id)
		if s.Line.Capture != a || len(s.Rivals) != 1 || s.Rivals[0].Capture != b || len(s.Surplus) != 0 {
			t.Errorf("merged: counts %v, rivals %v, surplus %v", s.Line.Capture, s.Rivals, s.Surplus)
		}
	}
}
