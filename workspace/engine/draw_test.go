package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
)

// TestDrawOnce: each rep is drawn once, in the order of the schedule, whatever
// the number of workers; a second build draws none and writes nothing.
func TestDrawOnce(t *testing.T) {
	var history string
	for _, jobs := range []int{1, 8} {
		f := newDrawFixture(t, strings.Replace(luck, "reps = 2", "reps = 3", 1))
		f.jobs = jobs
		b := f.draws(6)
		if want := (Cost{Unknown: 6}); b.Spent != want {
			t.Errorf("spent %+v", b.Spent)
		}
		var begun []string
		for _, l := range f.lines() {
			if rep, ok := strings.CutPrefix(l, "intent "); ok {
				begun = append(begun, rep)
			}
		}
		for i, pair := range [][2]string{{"control-1", "treatment-1"}, {"treatment-2", "control-2"}, {"control-3", "treatment-3"}} {
			if first, second := slices.Index(begun, pair[0]), slices.Index(begun, pair[1]); first < 0 || first > second {
				t.Errorf("jobs %d, pair %d: %q", jobs, i+1, begun)
			}
		}
		if c := f.countsOf("luck"); c != (draws.Counts{Intents: 6, Draws: 6, Looks: 2, Attempts: 6}) {
			t.Errorf("counts %+v", c)
		}
		if first := f.lock().Lines()[0]; first.Kind != draws.Look || first.N != 0 || first.Alpha != 0.05 {
			t.Errorf("nothing was bound before the first draw: %+v", first)
		}
		for _, spec := range f.took() {
			if spec.Stdin != nil && !spec.Listener {
				t.Errorf("a rep without a listener")
			}
		}
		was := f.lockText("p")
		again := f.draws(0)
		f.wantRan(again)
		if again.Saved != (Cost{Unknown: 6}) || f.lockText("p") != was {
			t.Errorf("the second build: %+v, the lock changed: %v", again.Saved, f.lockText("p") != was)
		}
		f.wantCard("luck", map[string]string{
			"arms.control.drawn": "3", "arms.treatment.attempts": "3", "arms.control.abandoned": "0", "scored_as": "drawn", "looks": "1",
		})
		// Only captures differ: which reply is whose is the runner's chance.
		account := f.lessCaptures()
		if history != "" && account != history {
			t.Errorf("history.json of one and eight workers:\n%s\n%s", history, account)
		}
		history = account
	}
}

// lessCaptures is history.json without the digests of captures.
func (f *drawFixture) lessCaptures() string {
	h := f.shown("luck", "history.json")
	for _, rep := range h["reps"].(map[string]any) {
		delete(rep.(map[string]any), "capture")
	}
	return fmt.Sprint(h)
}

// TestPrompts is the rule of prompts, by bytes, as the process gets them.
func TestPrompts(t *testing.T) {
	for _, c := range []struct{ question, treatment, wantQuestion, wantTreatment string }{
		{"Roll.\n", "Be lucky.\n", "Roll.", "Be lucky.\n\n---\n\nRoll."},
		{"Roll.", "Be lucky.", "Roll.", "Be lucky.\n\n---\n\nRoll."},
		{"Roll.\n\n", "\nBe lucky.\n\n", "Roll.\n", "\nBe lucky.\n\n\n---\n\nRoll.\n"},
		{"Roll.\r\n", "Be\r\nlucky.\r\n", "Roll.\r", "Be\r\nlucky.\r\n\n---\n\nRoll.\r"},
		{"", "", "", "\n\n---\n\n"},
		{"\n", "---\n", "", "---\n\n---\n\n"},
		{"a\xff\x00b\n", "\xef\xbb\xbfé\u2028\n", "a\xff\x00b", "\xef\xbb\xbfé\u2028\n\n---\n\na\xff\x00b"},
	} {
		f := newDrawFixture(t, strings.Replace(luck, "reps = 2", "reps = 1", 1))
		f.set("p/q.md", c.question)
		f.set("p/t.md", c.treatment)
		f.jobs = 1
		var got []string
		f.runner.words = func(_ int, stdin string) ([]string, error) {
			got = append(got, stdin)
			return []string{"out:x"}, nil
		}
		f.draws(2)
		if want := []string{c.wantQuestion, c.wantTreatment}; !slices.Equal(got, want) {
			t.Errorf("%q, %q: asked %q, not %q", c.question, c.treatment, got, want)
		}
	}
}

func TestConsent(t *testing.T) {
	build := luck + `
producer(name = "priced", driver = "command", tool = ":sh", price = "0.50usd")
producer(name = "free", driver = "command", tool = ":sh", price = "free")
probe(name = "dear", question = "q.md", treatment = "t.md", producer = ":priced", discriminator = six, reps = 2)
probe(name = "gift", question = "q.md", treatment = "t.md", producer = ":free", discriminator = six, reps = 1)
`
	const usd = `usage.json={"usd":0.25}`
	for _, c := range []struct {
		name, target string
		consent      Consent
		words        string
		drawn        int
		denied       int
		budget       bool
		cause        string
		spent        Cost
	}{
		{name: "forbid", target: "luck", denied: 4, cause: "nothing may be drawn here"},
		{name: "some", target: "luck", consent: Consent{Draws: 3}, drawn: 3, denied: 1, cause: "3 is the most", spent: Cost{Unknown: 3}},
		{name: "enough", target: "luck", consent: Consent{Draws: 4}, drawn: 4, spent: Cost{Unknown: 4}},
		{name: "unknown price", target: "luck", consent: Consent{Draws: AnyDraws, Budget: 5}, denied: 4, budget: true, cause: "its price isn't known"},
		{name: "unknown price allowed", target: "luck", consent: Consent{Draws: AnyDraws, Budget: 5, Unpriced: true}, drawn: 4, spent: Cost{Unknown: 4}},
		{name: "spent by what it said", target: "luck", consent: Consent{Draws: AnyDraws, Budget: 0.5, Unpriced: true}, words: usd, drawn: 2, denied: 2, budget: true, cause: "the budget of $0.50 is reached: $0.5 spent, $0.25 expected", spent: Cost{USD: 0.5}},
		// Two may cost 0.50 each; they cost less, so that a third fits.
		{name: "reserved", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 1}, words: usd, drawn: 3, denied: 1, budget: true, cause: "$0.75 spent, $0.5 expected", spent: Cost{USD: 0.75}},
		{name: "reserved and silent", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 1}, drawn: 2, denied: 2, budget: true, cause: "$1 spent", spent: Cost{Unknown: 2}},
		{name: "too dear", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 0.49}, denied: 4, budget: true, cause: "$0 spent, $0.5 expected"},
		{name: "free", target: "gift", consent: Consent{Draws: AnyDraws, Budget: 0.01}, drawn: 2, spent: Cost{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newDrawFixture(t, build)
			f.consent, f.keep = c.consent, false
			f.runner.words = func(int, string) ([]string, error) { return strings.Fields(c.words), nil }
			b := f.run(context.Background(), c.target)
			f.check(b.err)
			if b.Drawn != c.drawn || len(b.Problems) != c.denied || b.Spent != c.spent {
				t.Errorf("drew %d, %d denied, spent %+v: %v", b.Drawn, len(b.Problems), b.Spent, b.problems())
			}
			for rep, err := range b.problems() {
				var denied *DeniedError
				if !errors.As(err, &denied) || denied.Rep != rep || denied.Budget != c.budget || !strings.Contains(denied.Cause, c.cause) || denied.Why != "it was never drawn" {
					t.Errorf("%s: %v", rep, err)
				}
			}
			if got := f.countsOf(c.target); got.Intents != c.drawn || got.Draws != c.drawn {
				t.Errorf("the lock: %+v", got)
			}
			if c.denied > 0 { // what needs no draw is made all the same
				if got := b.slots(Ran); !slices.Contains(got, c.target+" prompts/control.txt") {
					t.Errorf("ran %q", got)
				}
			}
			f.consent = Consent{Draws: AnyDraws}
			f.draws(2*map[string]int{"luck": 2, "dear": 2, "gift": 1}[c.target]-c.drawn, c.target)
		})
	}
}

// TestPlanDraws: a plan says which reps would be drawn, and writes nothing.
func TestPlanDraws(t *testing.T) {
	f := newDrawFixture(t, luck)
	if got := f.planned(); !slices.Equal(got, []string{"control-1", "control-2", "treatment-1", "treatment-2"}) {
		t.Errorf("planned %q", got)
	}
	if _, err := os.Stat(f.lockPath("p")); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("a plan made a lock: %v", err)
	}
	f.draws(4)
	was := f.lockText("p")
	if got := f.planned(); got != nil {
		t.Errorf("planned %q", got)
	}
	f.check(os.Remove(f.lockPath("p"))) // the store has them all
	if got := f.planned(); got != nil || f.lockText("p") != "" {
		t.Errorf("planned %q, or wrote", got)
	}
	f.draws(0)
	if c := f.countsOf("luck"); c.Adopted != 4 || c.Draws != 0 || c.Intents != 0 {
		t.Errorf("counts %+v", c)
	}
	f.wantCard("luck", map[string]string{"arms.control.adopted": "2", "arms.control.attempts": "2"})
	f.check(os.WriteFile(f.lockPath("p"), []byte(was), 0o644))
	f.draws(0)
}

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

// TestTwinDraws: targets with the same reps draw them once, in one package and in
// two, and the locks of all say so after the first build.
func TestTwinDraws(t *testing.T) {
	for _, jobs := range []int{1, 8} {
		twin := strings.Replace(luck, `name = "luck"`, `name = "twin"`, 1)
		_, twin, _ = strings.Cut(twin, "\nprobe")
		f := newDrawFixture(t, luck+"probe"+twin)
		f.jobs = jobs
		f.set("o/q.md", "Roll.\n")
		f.set("o/t.md", "Be lucky.\n")
		f.set("o/BUILD.star", drawHead+luck)
		f.pkgs = append(f.pkgs, "o")
		f.draws(4)
		if f.runner.count != 4 {
			t.Errorf("%d processes", f.runner.count)
		}
		locks := []string{f.lockText("p"), f.lockText("o")}
		shown := f.outputs()
		if c, d := f.countsOf("luck"), f.countsOf("twin"); c.Draws+c.Adopted != 4 || d.Draws+d.Adopted != 4 {
			t.Errorf("counts %+v, %+v", c, d)
		}
		for range 2 {
			f.draws(0)
			if now := []string{f.lockText("p"), f.lockText("o")}; !slices.Equal(now, locks) {
				t.Errorf("jobs %d: a second build wrote:\n%s%s", jobs, strings.TrimPrefix(now[0], locks[0]), strings.TrimPrefix(now[1], locks[1]))
			}
			f.wantOutputs(shown)
		}
	}
}

// TestTwoDiscriminators: probes that judge the same reps by other functions are
// each bound before the first reply; one that joins them later is not.
func TestTwoDiscriminators(t *testing.T) {
	_, probe, _ := strings.Cut(luck, "\nprobe")
	named := func(name, fn string) string {
		return "probe" + strings.NewReplacer(`"luck"`, fmt.Sprintf("%q", name), "discriminator = six", "discriminator = "+fn).Replace(probe)
	}
	fn := "def one(rep): return ABSENT\n"
	for _, first := range []string{"drawn", "adopted"} {
		f := newDrawFixture(t, fn+luck+named("other", "one"))
		f.jobs = 8
		f.draws(4)
		if first == "adopted" {
			f.check(os.Remove(f.lockPath("p")))
			f.draws(0)
		}
		f.wantCard("luck", map[string]string{"scored_as": "drawn", "looks": "1"})
		f.wantCard("other", map[string]string{"scored_as": "drawn", "looks": "1"})
		lock, shown := f.lockText("p"), f.outputs()
		f.wantRan(f.draws(0))
		f.wantOutputs(shown)
		if f.lockText("p") != lock {
			t.Errorf("%s: a second build wrote %s", first, strings.TrimPrefix(f.lockText("p"), lock))
		}
		f.redeclare("def two(rep): return PRESENT\n" + fn + luck + named("other", "one") + named("third", "two"))
		for range 2 {
			f.draws(0)
			f.wantCard("luck", map[string]string{"scored_as": "drawn"})
			f.wantCard("third", map[string]string{"scored_as": "edited-after-draw"})
		}
		// An edit behind a new name.
		f.redeclare("def three(rep): return PRESENT if rep.reply else ABSENT\n" + strings.Replace(luck, "discriminator = six", "discriminator = three", 1))
		f.edit("p/BUILD.star", `name = "luck"`, `name = "new"`)
		f.draws(0)
		f.wantCard("new", map[string]string{"scored_as": "edited-after-draw"})
	}
}

// TestOtherClone: a clone with the same lock and store draws nothing and comes
// to the same bytes.
func TestOtherClone(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	want := f.outputs()
	other := newDrawFixture(t, luck)
	other.jobs = 1
	f.check(os.Symlink(f.storeDir(), other.storeDir()))
	other.consent = Consent{}
	f.check(os.WriteFile(other.lockPath("p"), []byte(f.lockText("p")), 0o644))
	other.draws(0)
	other.wantOutputs(want)
	if other.lockText("p") != f.lockText("p") {
		t.Error("the lock of the clone changed")
	}
}

// TestTwinOfPair: the second of a pair isn't held up by a first that waits for
// its twin in another target.
func TestTwinOfPair(t *testing.T) {
	f := newDrawFixture(t, "")
	f.set("pair.star", `
def _impl(ctx):
    outs = []
    for stream in ["a", "b"]:
        exit = ctx.actions.declare_file(stream + ".json")
        ctx.actions.run(
            executable = ctx.attr.tool,
            arguments = [ctx.attr.text] if stream == "b" else [],
            exit = exit,
            sample = sample(stream = stream, index = 1),
        )
        outs.append(exit)
    return [DefaultInfo(files = outs)]

pair = rule(_impl, attrs = {"tool": attr.label(), "text": attr.string()})
`)
	f.set("p/BUILD.star", `load("//:pair.star", "pair")`+"\n"+drawHead+`
pair(name = "x", tool = ":sh", text = "one")
pair(name = "y", tool = ":sh", text = "two")
`)
	f.runner.words = nil
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b := f.run(ctx)
	f.check(b.err)
	if b.Drawn != 3 || len(b.Problems) > 0 {
		t.Errorf("drew %d: %v", b.Drawn, b.problems())
	}
}
