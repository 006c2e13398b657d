package engine

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
)

// TestLost: what the lock lists and the store lacks is never drawn again.
func TestLost(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	was := f.lockText("p")
	f.lose("treatment-2")
	b := f.run(context.Background())
	f.check(b.err)
	var lost *LostError
	if err := b.problems()["treatment-2"]; !errors.As(err, &lost) || len(b.Problems) != 1 || b.Problems[0].Infra || b.Drawn != 0 {
		t.Fatalf("%v", b.problems())
	}
	if h := lost.Hints(); len(h) != 2 || !strings.Contains(h[0], "--store=DIR") || !strings.Contains(h[1], `epoch = 2, epochs = {1: "blob lost"}`) {
		t.Errorf("hints %q", h)
	}
	// More reps are of no use to a target that can't be scored: none is paid for.
	f.edit("p/BUILD.star", "reps = 2", "reps = 5")
	b = f.run(context.Background())
	if b.Drawn != 0 || len(b.Problems) != 1 || f.lockText("p") != was {
		t.Errorf("drew %d beside a lost one: %v", b.Drawn, b.problems())
	}
	f.edit("p/BUILD.star", "reps = 5", "reps = 2")
	f.consent = Consent{} // and nobody is told that it would be drawn
	b = f.run(context.Background())
	if err := b.problems()["treatment-2"]; !errors.As(err, &lost) {
		t.Errorf("%v", b.problems())
	}
	if got := f.planned(); got != nil {
		t.Errorf("planned %q", got)
	}
	f.consent = Consent{Draws: AnyDraws}
	if f.lockText("p") != was {
		t.Error("the lock changed")
	}
	// Another one in its place is no better.
	s := f.store()
	other := must(s.Lookup(cas.Capture, f.keyOf("control-2")))
	f.check(s.PutResult(cas.Capture, f.keyOf("treatment-2"), other))
	b = f.run(context.Background())
	if err := b.problems()["treatment-2"]; !errors.As(err, &lost) || !strings.Contains(err.Error(), "the store has another one") {
		t.Errorf("%v", b.problems())
	}
	if h := lost.Hints()[0]; !strings.Contains(h, "an empty one, with --store=DIR") {
		t.Errorf("hint %q", h)
	}
	// It goes on in another epoch, without the one that is lost.
	f.lose("treatment-2")
	f.edit("p/BUILD.star", "reps = 2", `reps = 2, epoch = 2, epochs = {1: "blob lost"}`)
	f.draws(4)
	f.wantCard("luck", map[string]string{"epoch": "2", "arms.treatment.drawn": "2", "all_draws": "map[control:[0 4] treatment:[0 3]]"})
	withdrawn := f.card("luck")["withdrawn"].([]any)
	if got := fmt.Sprint(withdrawn); len(withdrawn) != 1 || !strings.Contains(got, "reason:blob lost") || !strings.Contains(got, "counts:map[control:[0 2 2] treatment:[0 1 2]]") || !strings.Contains(got, "verdict:INERT") {
		t.Errorf("withdrawn %s", got)
	}
	f.draws(0)
}

// TestLostForAnother: where the store has another capture than the lock, the
// next epoch goes on without it too.
func TestLostForAnother(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	s := f.store()
	other := must(s.Lookup(cas.Capture, f.keyOf("control-2")))
	f.lose("treatment-2")
	f.check(s.PutResult(cas.Capture, f.keyOf("treatment-2"), other))
	f.edit("p/BUILD.star", "reps = 2", `reps = 2, epoch = 2, epochs = {1: "blob lost"}`)
	f.draws(4)
	f.wantCard("luck", map[string]string{"epoch": "2", "all_draws": "map[control:[0 4] treatment:[0 3]]"})
	if faults, rep, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets()); err != nil || len(faults)+len(rep.Problems) > 0 {
		t.Errorf("%v, %v, %v", faults, rep.Problems, err)
	}
}

// TestEpochs: an epoch or a redraw is never lowered, under no label.
func TestEpochs(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	refused := func(target, old, now, want, hint string) {
		t.Helper()
		build := string(must(f.memory.read("p/BUILD.star")))
		for _, name := range []string{target, "another"} {
			f.edit("p/BUILD.star", fmt.Sprintf("name = %q", target), fmt.Sprintf("name = %q", name))
			f.edit("p/BUILD.star", old, now)
			b := f.run(context.Background())
			f.check(b.err)
			got := b.problems()["treatment-2"]
			var hinted interface{ Hints() []string }
			if b.Drawn != 0 || !errors.As(got, &hinted) || !strings.Contains(got.Error(), want) || !strings.Contains(hinted.Hints()[0], hint) {
				t.Errorf("%s with %q: drew %d: %v", name, now, b.Drawn, b.problems())
			}
			for _, p := range b.Problems {
				if p.Infra {
					t.Errorf("%v is the user's", p.Err)
				}
			}
			f.set("p/BUILD.star", build)
		}
	}
	f.keep = true
	const two = `reps = 2, epoch = 2, epochs = {1: "egress was open"}`
	f.edit("p/BUILD.star", "reps = 2", two)
	f.draws(4)
	was := f.lockText("p")
	refused("luck", two, "reps = 2", "epoch is 1, and draws.lock has reps of //p:luck of epoch 2: an epoch is never lowered", "epoch = 2")
	f.edit("p/BUILD.star", two, two+`, withdraw = {"treatment-2": ["laptop slept"]}`)
	f.draws(1)
	f.wantCard("luck", map[string]string{"arms.treatment.used": "2", "arms.treatment.drawn": "2"})
	refused("luck", `, withdraw = {"treatment-2": ["laptop slept"]}`, "",
		"treatment-2 of //p:luck was withdrawn 1 times by draws.lock, and 0 times here", `withdraw = {"treatment-2": […]} with 1 reasons`)
	f.draws(0)
	if got := f.lockText("p"); !strings.HasPrefix(got, was) {
		t.Error("a line is gone")
	}
	// A second redraw, a third epoch.
	f.edit("p/BUILD.star", `["laptop slept"]`, `["laptop slept", "again"]`)
	f.draws(1)
	f.edit("p/BUILD.star", `epoch = 2, epochs = {1: "egress was open"}`, `epoch = 3, epochs = {1: "egress was open", 2: "x"}`)
	f.draws(4)
	if got := fmt.Sprint(f.card("luck")["withdrawn"]); !strings.Contains(got, "epoch:1") || !strings.Contains(got, "epoch:2") {
		t.Errorf("withdrawn %s", got)
	}
}

// TestReps: more reps draw those that are missing, fewer say so.
func TestReps(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	f.edit("p/BUILD.star", "reps = 2", "reps = 4")
	f.draws(4)
	f.wantCard("luck", map[string]string{"looks": "2", "p_status": "invalid-after-looks", "p_value": "<nil>", "e_value": "1", "arms.control.drawn": "4"})
	f.edit("p/BUILD.star", "reps = 4", "reps = 2")
	f.draws(0)
	f.wantCard("luck", map[string]string{"looks": "2", "arms.control.drawn": "4", "arms.control.used": "2"})
	// A new name draws none, and has the history of the old one.
	f.edit("p/BUILD.star", `name = "luck"`, `name = "fortune"`)
	f.draws(0)
	f.wantCard("fortune", map[string]string{"looks": "2", "arms.control.drawn": "4", "arms.control.used": "2", "arms.control.adopted": "0"})
	f.draws(0)
}

// TestEditedArms: an edit of the treatment draws both arms anew, unless the
// control is kept and said to be drawn apart.
func TestEditedArms(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	f.set("p/t.md", "Be very lucky.\n")
	if got := f.planned(); len(got) != 4 {
		t.Errorf("planned %q", got)
	}
	f.edit("p/BUILD.star", "reps = 2", "reps = 2, reuse_control = True") // first now
	if got := f.planned(); !slices.Equal(got, []string{"treatment-1", "treatment-2"}) {
		t.Errorf("planned %q", got)
	}
	f.draws(2)
	if got := fmt.Sprint(at(f.card("luck"), "eligibility.reasons")); !strings.Contains(got, "arms-drawn-apart") {
		t.Errorf("reasons %s", got)
	}
	if got := fmt.Sprint(f.card("luck")["prior_draws"]); !strings.Contains(got, "changed:[block]") || !strings.Contains(got, "count:2") || !strings.Contains(got, "verdict:INERT") {
		t.Errorf("prior_draws %s", got)
	}
	f.draws(0)
	f.edit("p/BUILD.star", "reps = 2, reuse_control = True", "reps = 2")
	f.draws(2) // the treatment of this block is there, its control isn't
	f.wantCard("luck", map[string]string{"arms.control.drawn": "2"})
	f.set("p/t.md", "Be lucky.\n") // and back
	f.draws(0)
}

// TestLimits: a rep that a limit stopped is asked again, once, when that limit
// is raised.
func TestLimits(t *testing.T) {
	build := strings.Replace(luck, `tool = ":sh"`, `tool = ":sh", seal = ":s"`, 1)
	f := newDrawFixture(t, `seal(name = "s", wall = "60s", memory = "64MiB")`+build)
	stop := "limit:wall"
	f.jobs = 1
	f.runner.words = func(n int, stdin string) ([]string, error) {
		words := []string{fmt.Sprintf("out:reply %d", n)}
		if strings.Contains(stdin, "---") && stop != "" {
			words = append(words, stop)
		}
		return words, nil
	}
	f.draws(4)
	f.wantCard("luck", map[string]string{"arms.treatment.usable": "0"})
	set := func(old, now string) { f.edit("p/BUILD.star", old, now) }
	set(`memory = "64MiB"`, `memory = "128MiB"`) // not the limit that stopped it
	f.draws(0)
	first := f.captures()
	set(`wall = "60s"`, `wall = "120s"`)
	f.draws(2) // stopped again
	second := f.captures()
	set(`wall = "120s"`, `wall = "30s"`)
	f.draws(0)
	if f.captures() != first {
		t.Error("under a lower limit the first draw counts")
	}
	set(`wall = "30s"`, `wall = "240s"`)
	stop = ""
	f.draws(2)
	f.wantCard("luck", map[string]string{"arms.treatment.usable": "2", "arms.treatment.drawn": "2"})
	if got := fmt.Sprint(f.card("luck")["prior_draws"]); !strings.Contains(got, "changed:[limits]") || !strings.Contains(got, "count:4") {
		t.Errorf("prior_draws %s", got)
	}
	set(`wall = "240s"`, `wall = "600s"`) // nothing stopped it
	f.draws(0)
	set(`wall = "600s"`, `wall = "120s"`)
	f.draws(0)
	if f.captures() != second {
		t.Error("under the second limit the second draw counts")
	}
	for rep, n := range map[string]int{"control-1": 1, "treatment-1": 3} {
		if got := strings.Count(strings.Join(f.lines(), "\n"), "draw "+rep); got != n {
			t.Errorf("%s was drawn %d times, not %d", rep, got, n)
		}
	}
}

// captures are those that the scorecard names, as text.
func (f *drawFixture) captures() string {
	var out []string
	for _, r := range f.card("luck")["reps"].([]any) {
		out = append(out, r.(map[string]any)["capture"].(string))
	}
	return strings.Join(out, " ")
}
