package main

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// A scorecard is what the table and the other views read of one. Fields that a
// kind doesn't have are zero.
type scorecard struct {
	Schema     string  `json:"schema"`
	Target     string  `json:"target"`
	Kind       string  `json:"kind"`
	Design     string  `json:"design"`
	Verdict    string  `json:"verdict"`
	Conclusion string  `json:"conclusion"`
	Strength   string  `json:"strength"`
	Behavior   string  `json:"behavior"`
	Alpha      float64 `json:"alpha"`
	Margin     float64 `json:"margin"`
	Expect     string  `json:"expect"`
	ExpectMet  *bool   `json:"expect_met"`
	Hint       string  `json:"hint"` // what can be done where it is not met
	ScoredAs   string  `json:"scored_as"`
	Arms       map[string]struct {
		Present int        `json:"present"`
		Usable  int        `json:"usable"`
		Drawn   int        `json:"drawn"`
		Used    int        `json:"used"`
		Rate    *float64   `json:"rate"`
		Wilson  *[]float64 `json:"wilson"`
	} `json:"arms"`
	Difference struct {
		Estimate *float64   `json:"estimate"`
		Newcombe *[]float64 `json:"newcombe"`
	} `json:"difference"`
	PValue   *float64 `json:"p_value"`
	Boschloo *float64 `json:"boschloo_p"`
	NeedsN   *int     `json:"needs_n"`
	NeedsEq  *int     `json:"needs_equivalent"`
	Bounds   struct {
		Agree       bool     `json:"agree"`
		Conclusions []string `json:"conclusions"`
		AttritionP  *float64 `json:"attrition_p"`
	} `json:"bounds"`
	Reps []struct {
		Arm     string   `json:"arm"`
		Index   int      `json:"index"`
		Outcome string   `json:"outcome"`
		Reasons []string `json:"reasons"`
		Capture string   `json:"capture"`
	} `json:"reps"`
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
}

// parseScorecard returns nil for what is no scorecard, or is none at all.
func parseScorecard(data []byte) *scorecard {
	s := new(scorecard)
	if data == nil || json.Unmarshal(data, s) != nil {
		return nil
	}
	return s
}

// rep is a rep's name, control-1.
func repName(arm string, index int) string { return fmt.Sprintf("%s-%d", arm, index) }

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
			orDash(c.armText("control")), orDash(c.armText("treatment")), figure(c.PValue), safe(c.note()))
	}
	t.Flush()
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(w, strings.TrimRight(line, " \n"))
	}
}

// note is the most useful thing to say of a scorecard in a few words.
func (c *scorecard) note() string {
	var parts []string
	if c.ExpectMet != nil && !*c.ExpectMet {
		parts = append(parts, "expected "+c.Expect)
	}
	switch {
	case c.Strength == "fragile":
		parts = append(parts, "with the degraded reps: "+strings.Join(c.Bounds.Conclusions, " or "))
	case c.Conclusion == "unmeasured":
		note := "an arm has no usable rep"
		for _, r := range c.Reps {
			if len(r.Reasons) > 0 {
				note += " (" + r.Reasons[0] + ")"
				break
			}
		}
		parts = append(parts, note)
	case c.Conclusion == "undetermined" && c.NeedsN != nil:
		parts = append(parts, fmt.Sprintf("%d reps an arm would tell", *c.NeedsN))
	}
	if c.Design == "A/A" {
		parts = append(parts, "A/A")
	}
	return strings.Join(parts, "; ")
}
