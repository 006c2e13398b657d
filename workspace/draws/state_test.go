package draws

import (
	"errors"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStates(t *testing.T) {
	l := open(t, lockPath(t))
	id := rep("control", 1)
	intent := NewIntent(labelA, id, runA)
	is := func(want Status, open, abandoned, attempts int) {
		t.Helper()
		for _, l := range []*Lock{l, open2(t, l)} { // as kept and as read again
			s := l.State(id)
			if s.Status != want || len(s.Open) != open || s.Abandoned != abandoned || s.Attempts != attempts {
				t.Errorf("%v open %d abandoned %d attempts %d, want %v %d %d %d", s.Status, len(s.Open), s.Abandoned, s.Attempts, want, open, abandoned, attempts)
			}
		}
	}
	refused := func(want error, lines ...Line) {
		t.Helper()
		before := l.Lines()
		if _, err := l.Append(lines...); err == nil || want != nil && !errors.Is(err, want) {
			t.Errorf("got %v, want %v", err, want)
		}
		if diff := cmp.Diff(before, l.Lines()); diff != "" {
			t.Errorf("a refused line is there: %s", diff)
		}
	}
	is(StatusNone, 0, 0, 0)
	refused(ErrNoIntent, intent.Drawn(cap1, 1))
	refused(ErrNoIntent, intent.Abandoned("x"))
	refused(ErrNoIntent, intent, NewIntent(labelA, id, runB).Drawn(cap1, 1)) // all or none
	is(StatusNone, 0, 0, 0)

	appendOK(t, l, intent)
	is(StatusIntent, 1, 0, 0)
	var busy *OpenError
	for _, x := range []Line{intent, NewIntent(labelB, id, runB), NewAdopted(labelA, id, runB, "store", cap2)} {
		if _, err := l.Append(x); !errors.As(err, &busy) || busy.Intent.Run != runA {
			t.Errorf("got %v, want that run %s is open", err, runA)
		}
	}
	appendOK(t, l, intent.Abandoned("stall"))
	is(StatusAbandoned, 0, 1, 0)
	appendOK(t, l, NewIntent(labelA, id, runB))
	is(StatusIntent, 1, 1, 0)
	appendOK(t, l, NewIntent(labelA, id, runB).Drawn(cap1, 3))
	is(StatusDrawn, 0, 1, 3)

	var drawn *DrawnError
	if _, err := l.Append(NewIntent(labelB, id, runA)); !errors.Is(err, ErrDrawn) || !errors.As(err, &drawn) || drawn.Line.Capture != cap1 {
		t.Errorf("an intent for what is drawn: %v", err)
	}
	var rival *RivalError
	for _, x := range []Line{intent.Drawn(cap2, 1), NewAdopted(labelA, id, runA, "store", cap2)} {
		_, err := l.Append(x)
		if !errors.As(err, &rival) || !strings.Contains(err.Error(), cap1.String()) || !strings.Contains(err.Error(), cap2.String()) {
			t.Errorf("a second capture: %v", err)
		}
	}
	n := len(l.Lines())
	if got := appendOK(t, l, intent.Drawn(cap1, 9)); got[0].Seq != int64(n) || len(l.Lines()) != n {
		t.Errorf("the same capture again gives %v, %d lines", got, len(l.Lines()))
	}
	appendOK(t, l, NewAdopted(labelB, id, runA, "//p:a", cap1)) // another label's use of it
	if len(l.Lines()) != n+1 || len(l.State(id).Rivals) != 0 || l.State(id).Line.Kind != Draw {
		t.Errorf("adopted by another label: %+v", l.State(id))
	}
	if got, want := l.Counts(labelA), (Counts{Intents: 2, Draws: 1, Abandoned: 1, Attempts: 3}); got != want {
		t.Errorf("counts %+v, want %+v", got, want)
	}

	id = rep("control", 2)
	appendOK(t, l, NewAdopted(labelA, id, runA, "remote", cap2))
	is(StatusAdopted, 0, 0, 0)
}

func open2(t *testing.T, l *Lock) *Lock { return open(t, l.path) }

func TestLooks(t *testing.T) {
	l := open(t, lockPath(t))
	more := seen
	more.N = 12
	for _, x := range []Looked{seen, seen, more, seen} { // the second says nothing new
		appendOK(t, l, NewLook(labelA, "b", x))
	}
	appendOK(t, l, NewLook(labelA, "c", seen), NewLook(labelB, "b", seen))
	var ns []int
	for _, x := range l.Looks(labelA, "b") {
		ns = append(ns, x.N)
	}
	if !slices.Equal(ns, []int{6, 12, 6}) || len(l.Looks(labelA, "c")) != 1 || l.Counts(labelA).Looks != 4 {
		t.Errorf("looks %v, %v", ns, l.Lines())
	}
}

// TestOrderDoesNotMatter: what a merge may make of lines, any order and any
// repetition, means one thing.
func TestOrderDoesNotMatter(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	a := NewIntent(labelA, rep("control", 1), runA)
	b := NewIntent(labelA, rep("control", 1), runB)
	lines := []Line{a, a.Drawn(cap1, 1), b, b.Abandoned("x"), b, b.Drawn(cap2, 2), NewLook(labelA, "b", seen)}
	for i, seq := range []int64{1, 2, 1, 2, 3, 4, 3} {
		lines[i].Seq = seq
	}
	var texts []string
	for _, x := range lines {
		texts = append(texts, text(t, x))
	}
	want, err := parse("x", []byte(strings.Join(texts, "")), nil)
	if err != nil {
		t.Fatal(err)
	}
	s := want.state(a.ID)
	if s.Status != StatusDrawn || s.Line.Capture != cap1 || len(s.Rivals) != 1 || s.Rivals[0].Capture != cap2 || s.Abandoned != 1 || s.Attempts != 3 {
		t.Fatalf("two branches: %+v", s)
	}
	for range 200 {
		some := append(slices.Clone(texts), texts[r.IntN(len(texts))])
		r.Shuffle(len(some), func(i, j int) { some[i], some[j] = some[j], some[i] })
		got, err := parse("x", []byte(strings.Join(some, "")), nil)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.Equal(got.lines, want.lines) || cmp.Diff(*got.state(a.ID), *s, cmp.AllowUnexported(State{})) != "" {
			t.Fatalf("%q gives %v", some, got.lines)
		}
	}
}

// TestInterleavings: whatever two writers do in turns, through two Locks, the
// file is the union of what was taken, with seq without gaps.
func TestInterleavings(t *testing.T) {
	for seed := range uint64(60) {
		r := rand.New(rand.NewPCG(seed, 3))
		path := lockPath(t)
		locks := []*Lock{open(t, path), open(t, path)}
		for _, l := range locks {
			l.sync = noSync
		}
		var taken []Line
		for range 40 {
			w := r.IntN(2)
			i := NewIntent(labelA, rep("control", 1+r.IntN(6)), runID(w))
			x := []Line{i, i.Drawn(cap1, 1), i.Abandoned("x"), NewAdopted(labelA, i.ID, i.Run, "s", cap1), NewLook(labelA, "b", seen)}[r.IntN(5)]
			out, err := locks[w].Append(x)
			if err == nil && !slices.Contains(taken, out[0]) {
				taken = append(taken, out[0])
			}
		}
		got := open(t, path).Lines()
		if !slices.Equal(got, taken) {
			t.Fatalf("seed %d: the file has %v, taken were %v", seed, got, taken)
		}
		for i, x := range got {
			if x.Seq != int64(i+1) {
				t.Fatalf("seed %d: line %d has seq %d", seed, i+1, x.Seq)
			}
		}
	}
}
