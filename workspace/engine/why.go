package engine

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Change is one field that differs between two actions of a slot.
type Change struct {
	Name       string
	From, To   string // "" if the field is new or gone
	FromNote   string
	ToNote     string
	onlyDetail bool
}

// String is the change in one line.
func (c Change) String() string {
	// A param's note is its value, shortened, and its value a digest: the
	// digest is worth showing only where the note doesn't tell.
	notes := c.FromNote != c.ToNote
	show := func(value, note string) string {
		switch {
		case note == "" || value == "":
			return value
		case notes && strings.HasPrefix(c.Name, "param "):
			return note
		}
		return note + " " + value
	}
	switch {
	case c.From == "":
		return fmt.Sprintf("%s is new: %s", c.Name, show(c.To, c.ToNote))
	case c.To == "":
		return fmt.Sprintf("%s is gone: %s", c.Name, show(c.From, c.FromNote))
	}
	return fmt.Sprintf("%s: %s → %s", c.Name, show(c.From, c.FromNote), show(c.To, c.ToNote))
}

// Diff lists the fields that differ, in the order of the newer action, then
// those that are gone. Fields named "code …" only tell where inside a function
// the difference is.
func Diff(before, after []graph.Field) []Change {
	var out []Change
	change := func(o, n graph.Field) {
		if o.Value != n.Value {
			out = append(out, Change{Name: n.Name, From: o.Value, To: n.Value, FromNote: o.Note, ToNote: n.Note})
		}
	}
	// Most pairs of explanations have the same fields in the same order.
	for len(before) > 0 && len(after) > 0 && before[0].Name == after[0].Name {
		change(before[0], after[0])
		before, after = before[1:], after[1:]
	}
	// A function and a param may reach one helper: names are not unique.
	old := make(map[string][]graph.Field, len(before))
	for _, f := range before {
		old[f.Name] = append(old[f.Name], f)
	}
	matched := map[string]int{}
	for _, f := range after {
		if same := old[f.Name]; matched[f.Name] < len(same) {
			change(same[matched[f.Name]], f)
			matched[f.Name]++
		} else {
			out = append(out, Change{Name: f.Name, To: f.Value, ToNote: f.Note})
		}
	}
	for _, f := range before {
		if matched[f.Name]--; matched[f.Name] < 0 {
			out = append(out, Change{Name: f.Name, From: f.Value, FromNote: f.Note})
		}
	}
	for i := range out {
		out[i].onlyDetail = strings.HasPrefix(out[i].Name, "code ")
	}
	return out
}

// words are the two sides of a change that says more than a digest: of an
// argument, a variable or a setting of the seal.
func (c Change) words() (from, to string) {
	kind, _, _ := strings.Cut(c.Name, " ")
	if kind != "arg" && kind != "env" && kind != "seal" || c.From == "" || c.To == "" {
		return "", ""
	}
	return shorten(c.From), shorten(c.To)
}

// shorten cuts a long word, and shows an odd one quoted.
func shorten(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "…"
	}
	if strings.ContainsAny(s, "\n\r\t ") {
		return strconv.Quote(s)
	}
	return s
}

// Summarize says in one line what changed.
func Summarize(changes []Change) string {
	var main, code []string
	for _, c := range changes {
		if c.onlyDetail {
			if c.From != "" && c.To != "" {
				code = append(code, strings.TrimPrefix(c.Name, "code "))
			}
			continue
		}
		name := c.Name
		if note := c.ToNote; note != "" {
			name += " " + note
		}
		switch {
		case c.From == "":
			name += " is new"
		case c.To == "":
			name += " is gone"
		default:
			name += " changed"
		}
		if from, to := c.words(); from != to {
			name += fmt.Sprintf(": %s → %s", from, to)
		}
		main = append(main, name)
	}
	const most = 3
	if n := len(main); n > most {
		main = append(main[:most], fmt.Sprintf("%d more", n-most))
	}
	s := strings.Join(main, ", ")
	if len(code) > 0 {
		if n := len(code); n > most {
			code = append(code[:most], fmt.Sprintf("%d more", n-most))
		}
		s += " (edited: " + strings.Join(code, ", ") + ")"
	}
	return s
}

// missReason says why an action has no result: what changed since the slot
// was last filled, or what happened to the result.
func (b *build) missReason(n *node, err error) string {
	last := b.slots.load(n.action.Owner)
	r := last.record(n.action.Slot().Path)
	if r != nil && r.Now.Key != n.key.String() {
		if s := Summarize(Diff(last.fields(&r.Now), n.explained())); s != "" {
			return s
		}
		return "the action changed"
	}
	var miss *cas.MissError
	if errors.As(err, &miss) && (r != nil || miss.Err != nil) {
		if miss.Err == nil {
			return "its result is no longer in the store"
		}
		return miss.Reason
	}
	return "it has not run before"
}
