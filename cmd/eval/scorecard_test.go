package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

// cardOf reads a scorecard that has given fields beside a probe's usual ones.
func cardOf(t *testing.T, fields string) *scorecard {
	t.Helper()
	text := `{"kind":"probe","verdict":"INERT","conclusion":"undetermined","alpha":0.05,"needs_n":18,"p_value":0.5,"p_status":"valid","looks":1`
	if fields != "" {
		text += "," + fields
	}
	c := parseScorecard([]byte(text + "}"))
	if c == nil {
		t.Fatalf("no scorecard: %s", fields)
	}
	return c
}

// TestNote: what weighs most comes first, and at most three things are said.
func TestNote(t *testing.T) {
	const looked = `"looks":3,"p_status":"invalid-after-looks","p_value":null,"e_value":0.4`
	const edited = `"scored_as":"edited-after-draw","as_drawn":`
	for _, c := range []struct{ fields, p, note string }{
		{``, "0.5", "18 reps an arm would tell"},
		{`"looks":null`, "0.5", "18 reps an arm would tell"},
		{looked, "e 0.4", "3 looks: e 0.4 of 20"},
		{`"conclusion":"unmeasured","p_status":"unmeasured","p_value":null,"reps":[{"reasons":["timeout"]}]`, "-", "an arm has no usable rep (timeout)"},
		{edited + `{"verdict":"REGRESSIVE","conclusion":"undetermined","n":3},"needs_n":null`, "0.5", "edited after the draw (was REGRESSIVE)"},
		{edited + `{"verdict":"INERT","conclusion":"equivalent","n":3},"needs_n":null`, "0.5", "edited after the draw (was equivalent)"},
		{edited + `{"verdict":"INERT","conclusion":"undetermined","n":3},"needs_n":null`, "0.5", "edited after the draw (verdict as drawn)"},
		{edited + `null,"needs_n":null`, "0.5", "edited after the draw"},
		{`"redeclared":{"conclusion":"increased"}`, "0.5", "redeclared (would be increased); 18 reps an arm would tell"},
		{`"eligibility":{"reasons":["arms-drawn-apart"]}`, "0.5", "arms drawn apart; 18 reps an arm would tell"},
		{`"epoch":2,"withdrawn":[{"epoch":1,"reason":"x"}]`, "0.5", "epoch 2; 18 reps an arm would tell"},
		{`"withdrawn":[{"rep":"control-1"},{"rep":"control-2"}]`, "0.5", "withdrew 2 reps; 18 reps an arm would tell"},
		{`"arms":{"treatment":{"drawn":12,"used":6}}`, "0.5", "drawn 12, used 6; 18 reps an arm would tell"},
		{`"prior_draws":[{"count":2,"changed":["block"]},{"count":1,"changed":["block","epoch"]}]`, "0.5", "3 prior draws (block, epoch); 18 reps an arm would tell"},
		{`"strength":"fragile","bounds":{"conclusions":["increased","undetermined"]}`, "0.5", "with the degraded reps: increased or undetermined"},
		{
			looked + `,"expect":"increased","expect_met":false,"design":"A/A","epoch":2,` + edited + `null`, "e 0.4",
			"expected increased; 3 looks: e 0.4 of 20; edited after the draw; …; A/A",
		},
	} {
		card := cardOf(t, c.fields)
		if got := card.note(); got != c.note {
			t.Errorf("%s:\n%s, want\n%s", c.fields, got, c.note)
		}
		if got := card.pText(); got != c.p {
			t.Errorf("%s: p is %s, want %s", c.fields, got, c.p)
		}
	}
}

func captured(t *testing.T, outcomes ...string) *scorecard {
	t.Helper()
	var reps []repRow
	for i, o := range outcomes {
		outcome, capture, _ := strings.Cut(o, " ")
		reps = append(reps, repRow{Arm: "control", Index: i + 1, Outcome: outcome, Capture: capture})
	}
	b, err := json.Marshal(reps)
	if err != nil {
		t.Fatal(err)
	}
	return cardOf(t, `"reps":`+string(b))
}

// TestChangedAfterReplies: only a change that drew nothing was made by somebody
// who could know the replies.
func TestChangedAfterReplies(t *testing.T) {
	before := captured(t, "PRESENT a", "PRESENT b")
	before.Verdict = "BEHAVIORAL"
	for _, c := range []struct {
		after *scorecard
		says  bool
		flips int
	}{
		{captured(t, "ABSENT a", "PRESENT b"), true, 1},
		{captured(t, "ABSENT a", "PRESENT c"), false, 1},
		{captured(t, "ABSENT a", "ABSENT c"), false, 2},
		{captured(t, "PRESENT a", "PRESENT b", "PRESENT c"), false, 0},
		{captured(t, "PRESENT a"), false, 0},
	} {
		line := changed(engine.TargetResult{Target: targetNamed("x"), Cause: "f changed"}, before, c.after)
		if got := strings.Contains(line, "f changed after "); got != c.says {
			t.Errorf("%q, of %v", line, c.after.Reps)
		}
		list := flips(before, c.after)
		if len(list) != c.flips {
			t.Errorf("flips %v of %v", list, c.after.Reps)
		}
		for _, f := range list {
			if f.another != (c.after.repsByName()[f.rep].Capture == "c") {
				t.Errorf("another draw: %v of %v", f, c.after.Reps)
			}
		}
	}
	recorded := captured(t, "ABSENT a", "PRESENT b")
	recorded.Looks = nil
	if line := changed(engine.TargetResult{Target: targetNamed("x")}, before, recorded); strings.Contains(line, "replies") {
		t.Errorf("of recorded reps: %s", line)
	}
}

// TestCleanWhileDrawing: the lock of a run that lives is never removed, that of
// one that was killed is.
func TestCleanWhileDrawing(t *testing.T) {
	out := filepath.Join(t.TempDir(), "eval-out")
	dir := filepath.Join(out, runsName)
	run, err := draws.NewRun(dir, strings.NewReader("0123456789abcdef"))
	if err != nil {
		t.Fatal(err)
	}
	dead := strings.Repeat("0", len(run.ID))
	for _, path := range []string{filepath.Join(out, "p", "x", "f"), filepath.Join(dir, dead+".run")} {
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if drawing, err := removeOut(out); err != nil || !drawing {
		t.Fatalf("while a run lives: %v, %v", drawing, err)
	}
	left, err := filepath.Glob(filepath.Join(out, "*", "*"))
	if err != nil || len(left) != 1 || left[0] != filepath.Join(dir, run.ID+".run") || !draws.Alive(dir, run.ID) {
		t.Errorf("left: %v, %v", left, err)
	}
	if err := run.Close(); err != nil {
		t.Fatal(err)
	}
	if drawing, err := removeOut(out); err != nil || drawing {
		t.Errorf("after it: %v, %v", drawing, err)
	}
	if _, err := os.Lstat(out); !os.IsNotExist(err) {
		t.Errorf("eval-out is still there: %v", err)
	}
}

func targetNamed(name string) *starlark.Target {
	return &starlark.Target{Label: graph.Label{Pkg: "p", Name: name}}
}

// TestLineOf: a rep's line is that of the capture which its scorecard names, by
// its own label where two have it.
func TestLineOf(t *testing.T) {
	lock, err := draws.Open(filepath.Join(t.TempDir(), draws.Name))
	if err != nil {
		t.Fatal(err)
	}
	mine, other := graph.Label{Pkg: "p", Name: "x"}, graph.Label{Pkg: "p", Name: "y"}
	captures := []cas.Digest{cas.BLAKE3.Sum([]byte("1")), cas.BLAKE3.Sum([]byte("2"))}
	for i, l := range []graph.Label{mine, other, mine} {
		id := draws.ID{Sample: graph.Sample{Stream: "control", Index: 1, Epoch: i + 1, Block: "b"}}
		id.Key = graph.Key(cas.BLAKE3.Sum([]byte{byte(i)}))
		intent := draws.NewIntent(l, id, strings.Repeat("0", 32))
		if _, err := lock.Append(intent, intent.Drawn(captures[i/2], 1)); err != nil {
			t.Fatal(err)
		}
	}
	for i, c := range captures {
		l, ok := lineOf(lock, mine, "control-1", "blake3:"+c.Hex())
		if want := 1 + 2*i; !ok || l.Sample.Epoch != want || l.Label != mine {
			t.Errorf("capture %d: %v %v, want epoch %d", i+1, l, ok, want)
		}
	}
	if l, ok := lineOf(lock, other, "control-1", "blake3:"+captures[1].Hex()); !ok || l.Label != mine {
		t.Errorf("of a label that was renamed: %v %v", l, ok)
	}
	if l, ok := lineOf(lock, mine, "control-2", "blake3:"+captures[0].Hex()); ok {
		t.Errorf("of another rep: %v", l)
	}
}
