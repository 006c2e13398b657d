package extract

import (
	"fmt"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
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
	o := wire.Open("links", v)
	o.Only("systems", "links")
	p := &Plan{Systems: o.Strings("systems")}
	for _, l := range o.Objects("links") {
		l.Only("kind", "attr")
		p.Links = append(p.Links, Link{l.String("kind"), l.String("attr")})
	}
	for i, s := range p.Systems {
		if slices.Contains(p.Systems[:i], s) {
			o.Failf("systems", "%q is named twice", s)
		}
	}
	return p, o.Err()
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
