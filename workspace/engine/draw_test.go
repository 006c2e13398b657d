package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

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
	delete(h, "scored")
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
		{name: "reserved and silent", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 1}, drawn: 2, denied: 2, budget: true, cause: "$1 spent", spent: Cost{USD: 1}},
		// Two at once, and they cost twice what was declared: the third knows.
		{name: "overdrawn", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 2.5}, words: `usage.json={"usd":1}`, drawn: 2, denied: 2, budget: true, cause: "$2 spent, $1 expected", spent: Cost{USD: 2}},
		{name: "too dear", target: "dear", consent: Consent{Draws: AnyDraws, Budget: 0.49}, denied: 4, budget: true, cause: "$0 spent, $0.5 expected"},
		{name: "free", target: "gift", consent: Consent{Draws: AnyDraws, Budget: 0.01}, drawn: 2, spent: Cost{}},
	} {
		t.Run(c.name, func(t *testing.T) {
			f := newDrawFixture(t, build)
			f.consent, f.keep, f.jobs = c.consent, false, 2
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

// TestBlind: a discriminator sees nothing that tells the arm. One that shows all
// it can see shows the same of equal replies; with the arms' producers swapped,
// each reply is judged as before.
func TestBlind(t *testing.T) {
	const build = `
def tell(rep):
    seen = [dir(rep), rep.reply, rep.commands, rep.usage, [[dir(e), e] for e in rep.events], str(rep)]
    return degraded(str(seen))

producer(name = "x", driver = "command", tool = ":sh", args = ["out:it is six"])
producer(name = "y", driver = "command", tool = ":sh", args = ["out:it is one"])
probe(name = "same", question = "q.md", treatment = "t.md", producer = ":x", discriminator = tell, reps = 2)
probe(name = "xy", question = "q.md", producer = {"control": ":x", "treatment": ":y"}, discriminator = six, reps = 2)
probe(name = "yx", question = "q.md", producer = {"control": ":y", "treatment": ":x"}, discriminator = six, reps = 2)
`
	f := newDrawFixture(t, build)
	f.runner.words = nil
	f.draws(12)
	outcome := func(target, rep string) string { return fmt.Sprint(f.shown(target, "reps/"+rep+"/outcome.json")) }
	reasons := outcome("same", "control-1")
	if !strings.Contains(reasons, "it is six") {
		t.Fatalf("the discriminator says nothing: %s", reasons)
	}
	for _, word := range []string{"control", "treatment", "luck", "Roll", "q.md", "t.md", "same", "index"} {
		if strings.Contains(at(f.shown("same", "reps/control-1/outcome.json"), "reasons").([]any)[0].(map[string]any)["detail"].(string), word) {
			t.Errorf("the discriminator sees %q: %s", word, reasons)
		}
	}
	for _, rep := range []string{"treatment-1", "control-2", "treatment-2"} {
		if got := outcome("same", rep); got != reasons {
			t.Errorf("%s is seen otherwise than control-1:\n%s\n%s", rep, got, reasons)
		}
	}
	for i := 1; i <= 2; i++ {
		for _, swap := range [][2]string{{"control", "treatment"}, {"treatment", "control"}} {
			x, y := fmt.Sprintf("%s-%d", swap[0], i), fmt.Sprintf("%s-%d", swap[1], i)
			if a, b := outcome("xy", x), outcome("yx", y); a != b {
				t.Errorf("%s of xy and %s of yx differ:\n%s\n%s", x, y, a, b)
			}
		}
	}
	f.wantCard("xy", map[string]string{"verdict": "REGRESSIVE"})
	f.wantCard("yx", map[string]string{"verdict": "BEHAVIORAL"})
}

// TestFileJudges: a program of the workspace that judges is the same one before
// the draw and after it, and another one when it was edited.
func TestFileJudges(t *testing.T) {
	f := newDrawFixture(t, strings.Replace(luck, "discriminator = six", `discriminator = ":judge"`, 1)+`tool(name = "judge", path = "judge.sh")`+"\n")
	f.set("p/judge.sh", "one")
	f.runner.words = func(int, string) ([]string, error) { return []string{"out:reply"}, nil }
	f.draws(4)
	f.wantCard("luck", map[string]string{"scored_as": "drawn"})
	f.draws(0)
	f.set("p/judge.sh", "two")
	f.draws(0)
	f.wantCard("luck", map[string]string{"scored_as": "edited-after-draw", "as_drawn.n": "2"})
}

// TestProgramJudges: how a program ends is its judgement, and a result that is
// kept; what is neither 0 nor 1 is its fault.
func TestProgramJudges(t *testing.T) {
	f := newDrawFixture(t, strings.Replace(luck, "discriminator = six", `discriminator = ":judge"`, 1)+`tool(name = "judge", path = "/bin/env")`+"\n")
	judged := "code:0"
	f.runner.words = func(_ int, stdin string) ([]string, error) {
		if stdin == "reply" {
			return strings.Fields(judged), nil
		}
		return []string{"out:reply"}, nil
	}
	for _, c := range []struct{ words, control, problem string }{
		{"code:0", "[2 2]", ""},
		{"code:1", "[0 2]", ""},
		{"code:2", "", "the discriminator ended with exit code 2"},
		{"code:0 limit:wall", "", "the discriminator ended with wall"},
		{"code:0 reject:x", "", "0 (present) or 1 (absent) is meant"},
		{"code:1 survivor:1", "", "0 (present) or 1 (absent) is meant"},
	} {
		judged = c.words
		f.tools["/bin/env"] = c.words // another program
		b := f.run(context.Background())
		f.check(b.err)
		if c.problem == "" {
			for rep, err := range b.problems() {
				t.Errorf("%s: %s: %v", c.words, rep, err)
			}
			card := f.card("luck")
			if got := fmt.Sprintf("[%v %v]", at(card, "arms.control.present"), at(card, "arms.control.usable")); got != c.control {
				t.Errorf("%s: %s", c.words, got)
			}
			f.wantRan(f.draws(0))
			continue
		}
		found := false
		for _, p := range b.Problems {
			found = found || strings.Contains(p.Err.Error(), c.problem) && !p.Infra
		}
		if !found || b.Drawn != 0 {
			t.Errorf("%s: %v", c.words, b.problems())
		}
	}
	// The first draw was judged by a program that said 0.
	f.tools["/bin/env"] = "code:1"
	judged = "code:1"
	f.draws(0)
	f.wantCard("luck", map[string]string{"scored_as": "edited-after-draw", "as_drawn": "map[conclusion:undetermined n:2 verdict:INERT]"})
}
