package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func coverageCommand() *cli.Command {
	return verb("coverage", "how many items of a denominator are measured, and by what; run nothing", "DENOMINATOR [PATTERN...]",
		append(slices.Clone(loadFlags), flagJobs),
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runCoverage) })
}

func runCoverage(ctx context.Context, s *session) error {
	if len(s.args) == 0 {
		return usageErrorf("coverage wants a denominator, and maybe patterns of probes; //... without").
			hint("ev query 'kind(denominator, //...)' lists denominators")
	}
	t, err := s.one(ctx, s.args[0])
	if err != nil {
		return err
	}
	d := denominatorOf(t)
	if d == nil {
		return usageErrorf("coverage %s: it is a %s; a denominator is meant", t.Label, t.Kind)
	}
	patterns := s.args[1:]
	if len(patterns) == 0 {
		patterns = []string{"//..."}
	}
	list, err := s.targets(ctx, patterns)
	if err != nil {
		return err
	}
	probes := slices.DeleteFunc(list, func(t *starlark.Target) bool { return t.Result.Scorecard == nil })
	eng := s.engine(engine.Options{KeepGoing: true})
	rep, err := eng.Plan(ctx, probes)
	if err != nil {
		return err
	}
	printProblems(rep)
	gone, err := s.deletedDraws()
	if err != nil {
		return err
	}
	c := newCoverage(d, s.measurements(eng, rep))
	c.print(gone)
	return verdictOf(rep, true)
}

// A denominator is what its target wrote.
type denominator struct {
	Schema   string            `json:"schema"`
	Items    []string          `json:"items"`
	Excluded map[string]string `json:"excluded"` // item -> argument
	M        int               `json:"m"`
}

// denominatorOf reads a denominator from the action that writes it, built or
// not; nil if the target is none.
func denominatorOf(t *starlark.Target) *denominator {
	for _, a := range t.Result.Actions {
		d := new(denominator)
		if a.Kind == graph.Write && json.Unmarshal(a.Content, d) == nil && d.Schema == "eval.denominator/1" {
			return d
		}
	}
	return nil
}

// A measurement is what a probe has to say of items.
type measurement struct {
	label      string
	items      []string
	conclusion string
	counts     string // whether it counts, and why not
	eligible   bool
}

// concludes says whether the probe counts and tells the arms apart, or alike.
func (m measurement) concludes() bool {
	return m.eligible && slices.Contains([]string{"increased", "decreased", "equivalent"}, m.conclusion)
}

// measurements reads the scorecards that a plan found up to date, by their
// digests from the store: what eval-out holds anybody may have written.
func (s *session) measurements(eng *engine.Engine, rep *engine.Report) []measurement {
	draws := drawers(rep.Stale)
	var out []measurement
	for _, t := range rep.Targets {
		m := measurement{label: t.Target.Label.String(), items: itemsOf(t.Target, t.Scorecard), conclusion: "-"}
		card := parseScorecard(t.Scorecard)
		_, built := eng.Slot(t.Target.Result.Scorecard.Action.Slot())
		switch {
		case t.Status == engine.Failed || t.Status == engine.Skipped:
			m.counts = "failed"
		case t.Status == engine.Stale && !built:
			m.counts = "not built"
		case t.Status == engine.Stale && draws[t.Target.Label]:
			m.counts = "out of date: its reps would be drawn"
		case t.Status == engine.Stale: // an edit of the harness touches no rep
			m.counts = "out of date: its reps would be scored again"
		case card == nil:
			m.counts = "not eligible: its scorecard is no object of the known fields"
		default:
			m.conclusion, m.eligible, m.counts = orDash(card.Conclusion), card.Eligibility.Eligible, s.counts(t.Target, card)
		}
		out = append(out, m)
	}
	return out
}

// drawers are the targets of which a build would draw reps.
func drawers(stale []engine.StaleAction) map[graph.Label]bool {
	out := map[graph.Label]bool{}
	for _, a := range stale {
		if a.Action.Sample != nil {
			out[a.Action.Owner] = true
		}
	}
	return out
}

// counts says whether a scorecard counts. Any rule may write one that says that
// it is eligible: if it is not of the built-in ones, it is named.
func (s *session) counts(t *starlark.Target, card *scorecard) string {
	if !card.Eligibility.Eligible {
		reasons := card.Eligibility.Reasons
		if len(reasons) == 0 {
			reasons = []string{"no reason is given"}
		}
		return "not eligible: " + strings.Join(reasons, ", ")
	}
	text := "eligible"
	if card.ScoredAs == "edited-after-draw" {
		text += ", re-scored"
	}
	builtin := strings.HasPrefix(t.Rule(), "@"+builtinRepo+"//rules:") ||
		s.ws.Module().Name == builtinRepo && strings.HasPrefix(t.Rule(), "//rules:")
	if !builtin {
		text += ", by the rule " + t.Rule()
	}
	return text
}

// itemsOf are the items that a target measures: its canonical treatment, and
// those of its tags item=ITEM. A scorecard that says what its treatment was is
// believed; else the attributes are.
func itemsOf(t *starlark.Target, card []byte) []string {
	items := map[string]bool{}
	for _, tag := range t.Tags {
		if item, ok := strings.CutPrefix(tag, "item="); ok {
			items[item] = true
		}
	}
	var said struct {
		Treatment json.RawMessage `json:"treatment"`
	}
	if json.Unmarshal(card, &said) == nil && said.Treatment != nil {
		var item string
		if json.Unmarshal(said.Treatment, &item) == nil && item != "" { // null is none
			items[item] = true
		}
	} else if starlark.AttrText(t.Attrs["treatment_source"]) == "canonical" {
		for _, l := range t.Labels("treatment") {
			items[l.String()] = true
		}
	}
	return slices.Sorted(maps.Keys(items))
}

// A coverage counts a denominator's items by what measures them.
type coverage struct {
	d         *denominator
	of        map[string][]measurement // by item
	measured  int
	concluded int
	none      int // measurements of no item
}

func newCoverage(d *denominator, list []measurement) *coverage {
	c := &coverage{d: d, of: map[string][]measurement{}}
	known := map[string]bool{}
	for _, item := range d.Items {
		known[item] = true
	}
	for _, m := range list {
		found := false
		for _, item := range m.items {
			if known[item] {
				c.of[item] = append(c.of[item], m)
				found = true
			}
		}
		if !found {
			c.none++
		}
	}
	for _, item := range d.Items {
		if _, excluded := d.Excluded[item]; excluded {
			continue
		}
		if slices.ContainsFunc(c.of[item], func(m measurement) bool { return m.eligible }) {
			c.measured++
		}
		if slices.ContainsFunc(c.of[item], measurement.concludes) {
			c.concluded++
		}
	}
	return c
}

// print prints the counts, then every item with all its probes, the excluded
// ones last; what was drawn for targets that are gone, whose items nobody knows
// any more, stands by itself.
func (c *coverage) print(gone []goneDraws) {
	fmt.Fprintf(stdout, "measured %d of %d, of which %d conclude\n", c.measured, c.d.M, c.concluded)
	var table strings.Builder
	t := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	row := func(cells ...string) {
		for i, cell := range cells {
			cells[i] = safe(cell)
		}
		fmt.Fprintln(t, strings.Join(cells, "\t"))
	}
	row("ITEM", "PROBE", "CONCLUSION", "COUNTS")
	for _, excluded := range []bool{false, true} {
		for _, item := range c.d.Items {
			argument, out := c.d.Excluded[item]
			if out != excluded {
				continue
			}
			if out {
				row(item, "-", "-", "excluded: "+argument)
			} else if len(c.of[item]) == 0 {
				row(item, "-", "-", "no probe")
			}
			for _, m := range c.of[item] {
				row(item, m.label, m.conclusion, m.counts)
			}
		}
	}
	t.Flush()
	for line := range strings.Lines(table.String()) {
		fmt.Fprintln(stdout, strings.TrimRight(line, " \n"))
	}
	if len(gone) > 0 {
		fmt.Fprintln(stdout, "no targets any more, of items that are not known:")
	}
	for _, g := range gone {
		fmt.Fprintf(stdout, "  %s: deleted or renamed; %s in %s\n", safe(g.label.String()), plural(g.draws, "draw", "draws"), safe(g.lock))
	}
	if c.none > 0 {
		fmt.Fprintf(stdout, "%s none of these items\n", plural(c.none, "other target with a scorecard measures", "other targets with scorecards measure"))
	}
}
