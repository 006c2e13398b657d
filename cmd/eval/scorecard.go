package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
)

// A scorecard is what the table and the other views read of one. Fields that a
// kind doesn't have are zero.
type scorecard struct {
	Schema     string         `json:"schema"`
	Target     string         `json:"target"`
	Kind       string         `json:"kind"`
	Design     string         `json:"design"`
	Verdict    string         `json:"verdict"`
	Conclusion string         `json:"conclusion"`
	Strength   string         `json:"strength"`
	Behavior   string         `json:"behavior"`
	Alpha      float64        `json:"alpha"`
	Effect     float64        `json:"effect"`
	Margin     float64        `json:"margin"`
	Expect     expectation    `json:"expect"`
	ExpectMet  *bool          `json:"expect_met"`
	Hint       string         `json:"hint"` // what can be done where it is not met
	Arms       map[string]arm `json:"arms"`
	Difference struct {
		Estimate *float64   `json:"estimate"`
		Newcombe *[]float64 `json:"newcombe"`
	} `json:"difference"`
	PValue   *float64 `json:"p_value"`
	PStatus  string   `json:"p_status"`
	EValue   *float64 `json:"e_value"`
	Boschloo *float64 `json:"boschloo_p"`
	NeedsN   *int     `json:"needs_n"`
	NeedsEq  *int     `json:"needs_equivalent"`
	Bounds   struct {
		Agree       bool     `json:"agree"`
		Conclusions []string `json:"conclusions"`
		AttritionP  *float64 `json:"attrition_p"`
	} `json:"bounds"`
	Reps    []repRow `json:"reps"`
	Members []struct {
		Target string   `json:"target"`
		PHolm  *float64 `json:"p_holm"`
		Holds  *bool    `json:"holds"`
	} `json:"members"`
	Discriminator struct {
		Function string `json:"function"`
		Proved   []int  `json:"proved"`
	} `json:"discriminator"`
	Eligibility struct {
		Eligible bool     `json:"eligible"`
		Reasons  []string `json:"reasons"`
	} `json:"eligibility"`
	Honesty string `json:"honesty"`

	// Of live reps; Looks is nil of recorded ones.
	Looks    *int   `json:"looks"`
	Epoch    int    `json:"epoch"`
	ScoredAs string `json:"scored_as"`
	AsDrawn  *struct {
		Verdict    string `json:"verdict"`
		Conclusion string `json:"conclusion"`
		N          int    `json:"n"`
	} `json:"as_drawn"`
	Redeclared *struct {
		Alpha      float64 `json:"alpha"`
		Effect     float64 `json:"effect"`
		Margin     float64 `json:"margin"`
		Conclusion string  `json:"conclusion"`
	} `json:"redeclared"`
	Withdrawn  []withdrawal     `json:"withdrawn"`
	AllDraws   map[string][]int `json:"all_draws"` // present, usable
	PriorDraws []struct {
		Changed    []string `json:"changed"`
		Conclusion string   `json:"conclusion"`
		Count      int      `json:"count"`
		Epoch      int      `json:"epoch"`
		Verdict    string   `json:"verdict"`
	} `json:"prior_draws"`
	Schedule struct {
		Declared   string `json:"declared"`
		Pairs      int    `json:"pairs"`
		PairsSplit int    `json:"pairs_split_over_runs"`
	} `json:"schedule"`
	Seal struct {
		Tier     string   `json:"tier"`
		Limits   any      `json:"limits"` // one word, or several where the reps differ
		Policy   any      `json:"policy"`
		Programs []string `json:"programs"`
	} `json:"seal"`
	Producer json.RawMessage `json:"producer"` // a producer, or one an arm

	raw []byte // all of it
}

// An expectation is one word, or one a lens.
type expectation string

// UnmarshalJSON reads a string or {"policy": …, "outcome": …}.
func (e *expectation) UnmarshalJSON(b []byte) error {
	var lenses map[string]string
	if json.Unmarshal(b, &lenses) == nil && lenses != nil {
		*e = expectation(fmt.Sprintf("policy %s, outcome %s", orDash(lenses["policy"]), orDash(lenses["outcome"])))
		return nil
	}
	return json.Unmarshal(b, (*string)(e))
}

// A repRow is a rep that counts.
type repRow struct {
	Arm     string   `json:"arm"`
	Index   int      `json:"index"`
	Outcome string   `json:"outcome"`
	Reasons []string `json:"reasons"`
	Capture string   `json:"capture"`
}

// An arm is one arm's numbers. What only draws.lock knows is nil of recorded
// reps.
type arm struct {
	Present   int        `json:"present"`
	Usable    int        `json:"usable"`
	Drawn     int        `json:"drawn"`
	Used      int        `json:"used"`
	Adopted   *int       `json:"adopted"`
	Attempts  *int       `json:"attempts"`
	Abandoned *int       `json:"abandoned"`
	Rate      *float64   `json:"rate"`
	Wilson    *[]float64 `json:"wilson"`
}

// A withdrawal is of an epoch, or of a rep.
type withdrawal struct {
	Epoch      int              `json:"epoch"`
	Reason     string           `json:"reason"`
	Rep        string           `json:"rep"`
	Redraw     int              `json:"redraw"`
	Outcome    *string          `json:"outcome"`
	Counts     map[string][]int `json:"counts"` // by arm: present, usable, drawn
	Verdict    *string          `json:"verdict"`
	Conclusion *string          `json:"conclusion"`
}

// arms are the names of a probe's arms.
var arms = []string{"control", "treatment"}

// live says whether the scorecard is of live reps.
func (s *scorecard) live() bool { return s.Looks != nil }

// parseScorecard returns nil for what is no scorecard, or is none at all.
func parseScorecard(data []byte) *scorecard {
	s := &scorecard{raw: data}
	if data == nil || json.Unmarshal(data, s) != nil {
		return nil
	}
	return s
}

// rep is a rep's name, control-1.
func repName(arm string, index int) string { return fmt.Sprintf("%s-%d", arm, index) }

func (s *scorecard) repsByName() map[string]repRow {
	m := make(map[string]repRow, len(s.Reps))
	for _, r := range s.Reps {
		m[repName(r.Arm, r.Index)] = r
	}
	return m
}

// armText is present/usable, and of how many where some are not usable:
// a rate never stands without its n.
func (s *scorecard) armText(arm string) string {
	a, ok := s.Arms[arm]
	if !ok {
		return ""
	}
	text := fmt.Sprintf("%d/%d", a.Present, a.Usable)
	if a.Usable != a.Used {
		text += fmt.Sprintf(" of %d", a.Used)
	}
	return text
}

// figure is a p-value. A scorecard rounds to six decimals, and no p is 0.
func figure(p *float64) string {
	if p == nil {
		return "-"
	}
	if *p == 0 {
		return "<0.000001"
	}
	return fmt.Sprintf("%.4g", *p)
}

func orDash(s string) string {
	if s == "" {
		return "-"
	}
	return s
}

// printTable prints a line a scorecard, the conclusion first.
func printTable(w io.Writer, cards []*scorecard) {
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "TARGET\tCONCLUSION\tVERDICT\tCONTROL\tTREATMENT\tP\tNOTE")
	for _, c := range cards {
		conclusion := c.Conclusion
		if c.Strength == "fragile" {
			conclusion += " (fragile)"
		}
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\t%s\n", safe(c.Target), safe(orDash(conclusion)), safe(orDash(c.Verdict)),
			orDash(c.armText("control")), orDash(c.armText("treatment")), c.pText(), safe(c.note()))
	}
	t.Flush()
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// pText is what decides: the p-value, or after several looks at growing reps
// the e-value, since no p holds then.
func (s *scorecard) pText() string {
	if s.PStatus == "invalid-after-looks" && s.EValue != nil {
		return "e " + figure(s.EValue)
	}
	return figure(s.PValue)
}

// maxNotes is how much the table says of one scorecard; `ev show` says all.
const maxNotes = 3

// note is the most useful to say of a scorecard in a few words: what weighs
// most comes first.
func (s *scorecard) note() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if s.ExpectMet != nil && !*s.ExpectMet {
		add("expected %s", s.Expect)
	}
	switch {
	case s.Strength == "fragile":
		add("with the degraded reps: %s", strings.Join(s.Bounds.Conclusions, " or "))
	case s.Conclusion == "unmeasured":
		note := "an arm has no usable rep"
		for _, r := range s.Reps {
			if len(r.Reasons) > 0 {
				note += " (" + r.Reasons[0] + ")"
				break
			}
		}
		add("%s", note)
	}
	if s.live() {
		s.drawNotes(add)
	}
	if s.Strength != "fragile" && s.Conclusion == "undetermined" && s.PStatus != "invalid-after-looks" {
		switch {
		case s.Design == "A/A" && s.NeedsEq != nil:
			add("%d reps an arm would call it equivalent", *s.NeedsEq)
		case s.Design != "A/A" && s.NeedsN != nil && *s.NeedsN > s.used():
			add("%d reps an arm would tell", *s.NeedsN)
		}
	}
	if len(parts) > maxNotes {
		parts = append(parts[:maxNotes], "…")
	}
	if s.Design == "A/A" {
		parts = append(parts, "A/A")
	}
	return strings.Join(parts, "; ")
}

// drawNotes adds what draws.lock tells of how the number came about.
// used is how many reps the smaller arm has.
func (s *scorecard) used() int { return min(s.Arms["control"].Used, s.Arms["treatment"].Used) }

func (s *scorecard) drawNotes(add func(format string, args ...any)) {
	if s.PStatus == "invalid-after-looks" {
		add("%d looks: e %s of %.4g", *s.Looks, figure(s.EValue), 1/s.Alpha)
	}
	if s.ScoredAs == "edited-after-draw" {
		add("edited after the draw%s", s.wasDrawn())
	}
	if r := s.Redeclared; r != nil {
		add("redeclared (would be %s)", r.Conclusion)
	}
	if slices.Contains(s.Eligibility.Reasons, "judge-not-deterministic") {
		add("judged otherwise before")
	}
	if slices.Contains(s.Eligibility.Reasons, "history-unknown") {
		add("found in the store, looks unknown")
	}
	if slices.Contains(s.Eligibility.Reasons, "arms-drawn-apart") {
		add("arms drawn apart")
	}
	if s.Epoch > 1 {
		add("epoch %d", s.Epoch)
	}
	single := 0
	for _, w := range s.Withdrawn {
		if w.Rep != "" {
			single++
		}
	}
	if single > 0 {
		add("withdrew %s", plural(single, "rep", "reps"))
	}
	for _, name := range arms {
		if a := s.Arms[name]; a.Drawn > a.Used {
			add("drawn %d, used %d", a.Drawn, a.Used)
			break
		}
	}
	prior, changed := 0, []string(nil)
	for _, p := range s.PriorDraws {
		prior += p.Count
		changed = append(changed, p.Changed...)
	}
	if prior > 0 {
		slices.Sort(changed)
		add("%s (%s)", plural(prior, "prior draw", "prior draws"), strings.Join(slices.Compact(changed), ", "))
	}
}

// wasDrawn says what the discriminator of the first draw concluded, where that
// is known: " (was INERT)".
func (s *scorecard) wasDrawn() string {
	switch d := s.AsDrawn; {
	case d == nil:
		return ""
	case d.Verdict != s.Verdict:
		return " (was " + d.Verdict + ")"
	case d.Conclusion != s.Conclusion:
		return " (was " + d.Conclusion + ")"
	}
	return " (verdict as drawn)"
}
