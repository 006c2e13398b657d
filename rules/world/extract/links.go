package extract

import (
	"fmt"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/starlark"
)

// A Plan says what to read: links.json.
type Plan struct {
	Systems []string
	Links   []Link
}

// A Link says that events of Kind tie their subject to the value of Attr: a
// ticket to its order.
type Link struct{ Kind, Attr string }

// ParsePlan reads {"systems": ["crm"], "links": [{"kind": "ticket_opened",
// "attr": "order"}]}.
func ParsePlan(text []byte) (*Plan, error) {
	v, err := starlark.ParseJSON(text)
	if err != nil {
		return nil, err
	}
	s, p := shape.Of("links", v), new(Plan)
	s.Members("systems", "links")
	for _, name := range s.At("systems").List("a list of names") {
		p.Systems = append(p.Systems, name.Text())
	}
	for _, l := range s.At("links").List("a list of links") {
		l.Members("kind", "attr")
		p.Links = append(p.Links, Link{l.At("kind").Text(), l.At("attr").Text()})
	}
	for i, name := range p.Systems {
		if slices.Contains(p.Systems[:i], name) {
			s.At("systems").Failf("%q is named twice", name)
		}
	}
	return p, s.Err()
}

// links lists the pairs of [subject, value] that the events make, sorted, each
// once. An event without the attribute ties nothing; a number ties as its digits,
// since subjects are strings.
func (p *Plan) links(events []event) ([][2]string, error) {
	out := [][2]string{}
	for _, e := range events {
		for _, l := range p.Links {
			if l.Kind != e.kind {
				continue
			}
			switch v := e.attrs[l.Attr].(type) {
			case nil, sl.NoneType:
			case sl.String:
				out = append(out, [2]string{e.subject, string(v)})
			case sl.Int:
				out = append(out, [2]string{e.subject, v.String()})
			default:
				return nil, fmt.Errorf("event %d of %s: attribute %s: %s links to nothing", e.seq, e.system, l.Attr, v.Type())
			}
		}
	}
	slices.SortFunc(out, func(a, b [2]string) int { return slices.Compare(a[:], b[:]) })
	return slices.Compact(out), nil
}
