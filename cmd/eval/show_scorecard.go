package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
)

// showLine prints one line of a scorecard: a name and what is to be said of it.
func showLine(name, format string, args ...any) {
	fmt.Fprintln(stdout, strings.TrimRight(fmt.Sprintf("%-14s %s", name, safe(fmt.Sprintf(format, args...))), " "))
}

// print shows a whole scorecard to a person.
func (s *scorecard) print() {
	design := s.Kind
	if s.Design != "" {
		design += ", " + s.Design
	}
	showLine(s.Target, "(%s)", design)
	showLine("conclusion", "%s", orDash(s.Conclusion))
	showLine("verdict", "%s", orDash(s.Verdict))
	if s.Kind != "probe" {
		for _, m := range s.Members {
			text := m.Target
			if m.PHolm != nil {
				text += "  p(Holm) " + figure(m.PHolm)
			}
			if m.Holds != nil && *m.Holds {
				text += " holds"
			}
			showLine("  member", "%s", text)
		}
		showLine("honesty", "%s", s.Honesty)
		return
	}
	showLine("strength", "%s", s.Strength)
	if s.Behavior != "" {
		showLine("behavior", "%s", s.Behavior)
	}
	for _, name := range arms {
		s.printArm(name)
	}
	if d := s.Difference; d.Estimate != nil && d.Newcombe != nil {
		showLine("difference", "%+.3f, 95 %% Newcombe %+.3f to %+.3f", *d.Estimate, (*d.Newcombe)[0], (*d.Newcombe)[1])
	}
	if s.PStatus == "invalid-after-looks" {
		showLine("p", "none: %s; e %s decides, at %.4g (1/alpha, alpha %.4g)", s.PStatus, figure(s.EValue), 1/s.Alpha, s.Alpha)
	} else {
		showLine("p", "Fisher %s (decides, alpha %.4g), Boschloo %s", figure(s.PValue), s.Alpha, figure(s.Boschloo))
	}
	if s.NeedsN != nil {
		showLine("needs", "%d reps an arm to tell a difference of %.4g", *s.NeedsN, s.Effect)
	}
	if s.NeedsEq != nil {
		showLine("", "%d reps an arm to call a difference of 0 equivalent, within %.4g", *s.NeedsEq, s.Margin)
	}
	if !s.Bounds.Agree {
		showLine("bounds", "with the degraded reps counted either way: %s", strings.Join(s.Bounds.Conclusions, " or "))
	}
	if s.anyDegraded() {
		showLine("attrition", "degraded by arm: Fisher %s", figure(s.Bounds.AttritionP))
	}
	if p := s.Discriminator.Proved; len(p) == 2 {
		showLine("discriminator", "%s, proved by %d present and %s", s.Discriminator.Function, p[0], plural(p[1], "absent example", "absent examples"))
	}
	if s.live() {
		s.printHistory()
		s.printSource()
	}
	if s.Eligibility.Eligible {
		if s.live() {
			showLine("eligible", "for coverage")
		}
	} else {
		showLine("not eligible", "%s", strings.Join(s.Eligibility.Reasons, ", "))
	}
	for _, r := range s.Reps {
		showLine("  "+repName(r.Arm, r.Index), "%s %s", r.Outcome, strings.Join(r.Reasons, ", "))
	}
	showLine("honesty", "%s", s.Honesty)
}

func (s *scorecard) anyDegraded() bool {
	for _, a := range s.Arms {
		if a.Usable < a.Used {
			return true
		}
	}
	return false
}

// printArm shows an arm's counts: what draws.lock has beside them only where
// it says more than that each rep was drawn once and used.
func (s *scorecard) printArm(name string) {
	text := "present/usable " + s.armText(name)
	a := s.Arms[name]
	if a.Rate != nil && a.Wilson != nil {
		text += fmt.Sprintf(", rate %.3f, 95 %% Wilson %.3f to %.3f", *a.Rate, (*a.Wilson)[0], (*a.Wilson)[1])
	}
	if a.Drawn != a.Used {
		text += fmt.Sprintf("; drawn %d, used %d", a.Drawn, a.Used)
	}
	if a.Attempts != nil && *a.Attempts != a.Drawn {
		text += fmt.Sprintf("; %d attempts", *a.Attempts)
	}
	for _, x := range []struct {
		n    *int
		what string
	}{{a.Abandoned, "abandoned"}, {a.Adopted, "adopted"}} {
		if x.n != nil && *x.n > 0 {
			text += fmt.Sprintf("; %d %s", *x.n, x.what)
		}
	}
	showLine(name, "%s", text)
}

// printHistory shows what draws.lock tells of how the number came about.
func (s *scorecard) printHistory() {
	showLine("bound", "alpha %.4g, effect %.4g, margin %.4g: as they were at the first draw, they decide", s.Alpha, s.Effect, s.Margin)
	if r := s.Redeclared; r != nil {
		showLine("redeclared", "alpha %.4g, effect %.4g, margin %.4g since: would be %s, is %s", r.Alpha, r.Effect, r.Margin, r.Conclusion, s.Conclusion)
	}
	showLine("looks", "scored at %s", plural(*s.Looks, "number of reps", "different numbers of reps"))
	if s.ScoredAs == "edited-after-draw" {
		was := "; how it was as drawn isn't known: it was never scored so"
		if d := s.AsDrawn; d != nil {
			was = fmt.Sprintf("; as drawn: %s %s (%s an arm)", d.Verdict, d.Conclusion, plural(d.N, "rep", "reps"))
		}
		showLine("scored as", "edited after the draw%s", was)
	} else {
		showLine("scored as", "%s", s.ScoredAs)
	}
	showLine("epoch", "%d", s.Epoch)
	for _, w := range s.Withdrawn {
		showLine("withdrawn", "%s", w.text())
	}
	if s.drewMore() {
		var parts []string
		for _, name := range arms {
			if c := s.AllDraws[name]; len(c) == 2 {
				parts = append(parts, fmt.Sprintf("%s %d/%d", name, c[0], c[1]))
			}
		}
		showLine("all draws", "%s, with what was withdrawn", strings.Join(parts, ", "))
	}
	for _, p := range s.PriorDraws {
		verdict := "never scored"
		if p.Verdict != "" {
			verdict = "then " + p.Verdict + " " + p.Conclusion
		}
		showLine("prior draws", "%d of epoch %d, changed since: %s; %s", p.Count, p.Epoch, strings.Join(p.Changed, ", "), verdict)
	}
	split := ""
	if n := s.Schedule.PairsSplit; n > 0 {
		split = fmt.Sprintf("; %d of %s drawn in different runs", n, plural(s.Schedule.Pairs, "pair", "pairs"))
	}
	showLine("schedule", "%s%s", s.Schedule.Declared, split)
}

// text is a withdrawal in one line.
func (w withdrawal) text() string {
	orNone := func(s *string) string {
		if s == nil || *s == "" {
			return ""
		}
		return *s
	}
	if w.Rep != "" {
		outcome := orNone(w.Outcome)
		if outcome == "" {
			outcome = "not there"
		}
		return fmt.Sprintf("%s redraw %d of epoch %d: %s (%s)", w.Rep, w.Redraw, w.Epoch, outcome, w.Reason)
	}
	var parts []string
	for _, name := range arms {
		if c := w.Counts[name]; len(c) == 3 {
			parts = append(parts, fmt.Sprintf("%s %d/%d of %d drawn", name, c[0], c[1], c[2]))
		}
	}
	verdict := strings.TrimSpace(orNone(w.Verdict) + " " + orNone(w.Conclusion))
	if verdict == "" {
		verdict = "never scored"
	}
	return fmt.Sprintf("epoch %d: %s; %s (%s)", w.Epoch, strings.Join(parts, ", "), verdict, w.Reason)
}

// drewMore says whether reps that were withdrawn are here beside those that
// count.
func (s *scorecard) drewMore() bool {
	for _, name := range arms {
		if c := s.AllDraws[name]; len(c) == 2 && (c[0] != s.Arms[name].Present || c[1] != s.Arms[name].Usable) {
			return true
		}
	}
	return false
}

// A source is a producer as a scorecard has it.
type source struct {
	Driver  string   `json:"driver"`
	Model   string   `json:"model"`
	Effort  string   `json:"effort"`
	Program string   `json:"program"`
	Network []string `json:"network"`
}

// printSource shows what the reps were drawn from, and under which seals.
func (s *scorecard) printSource() {
	var one source
	if json.Unmarshal(s.Producer, &one) == nil && one.Driver != "" {
		showLine("producer", "%s", one.text())
	} else {
		var two map[string]source
		_ = json.Unmarshal(s.Producer, &two) // none are shown then
		for _, name := range arms {
			if p, ok := two[name]; ok {
				showLine("producer", "%s: %s", name, p.text())
			}
		}
	}
	showLine("seal", "tier %s, limits %s, %s", s.Seal.Tier, words(s.Seal.Limits), plural(len(s.Seal.Programs), "program", "programs"))
}

// text is a producer in one line.
func (p source) text() string {
	parts := []string{p.Driver + " " + p.Program}
	for _, x := range [][2]string{{"model", p.Model}, {"effort", p.Effort}} {
		if x[1] != "" {
			parts = append(parts, x[0]+" "+x[1])
		} else {
			parts = append(parts, "no "+x[0]+" declared")
		}
	}
	if len(p.Network) > 0 {
		return strings.Join(append(parts, "network "+strings.Join(p.Network, " ")), ", ")
	}
	return strings.Join(append(parts, "no network"), ", ")
}

// words is a word of a scorecard, or several where the reps differ.
func words(v any) string {
	list, ok := v.([]any)
	if !ok {
		list = []any{v}
	}
	var out []string
	for _, x := range list {
		if x == nil {
			x = "unknown"
		}
		out = append(out, fmt.Sprint(x))
	}
	return strings.Join(out, " or ")
}

// printCost shows cost.json, which stands beside the scorecard, if it is there.
func printCost(eng *engine.Engine, t *starlark.Target) {
	data, err := os.ReadFile(filepath.Join(eng.Folder(t.Label), "cost.json"))
	if err != nil {
		return
	}
	var cost struct {
		Subject struct {
			USD     float64 `json:"usd"`
			Unknown int     `json:"unknown"`
		} `json:"subject"`
		Reps map[string]json.RawMessage `json:"reps"`
	}
	if err := json.Unmarshal(data, &cost); err != nil {
		showLine("cost", "unknown: %v", err)
		return
	}
	showLine("cost", "%s for %s, as they reported", costText(engine.Cost{USD: cost.Subject.USD, Unknown: cost.Subject.Unknown}), plural(len(cost.Reps), "rep", "reps"))
}
