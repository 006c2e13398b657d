package extract

import (
	"context"
	"fmt"
	"net/http"
	"net/url"
	"slices"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// instants are the moments that are read, in order. The last one is what the
// final verdict is about.
var instants = []string{wire.AtDone, wire.AtSettled, wire.AtAfter}

// Facts is what could be read.
type Facts struct {
	clock map[string]int64 // start and the instants: Unix seconds
	reads []read           // one an instant
}

type read struct {
	unreachable []string // sorted
	events      []event
	links       [][2]string
}

// same says whether two reads gave the same. Events are told apart by their
// numbers: those of a system never change.
func (r read) same(other read) bool {
	number := func(a, b event) bool { return a.system == b.system && a.seq == b.seq }
	return slices.Equal(r.unreachable, other.unreachable) && slices.Equal(r.links, other.links) && slices.EqualFunc(r.events, other.events, number)
}

// Run reads all systems of the plan at each instant.
func (p *Plan) Run(ctx context.Context, world *wire.Client) (*Facts, error) {
	f := new(Facts)
	known := history{}
	var err error
	if f.clock, err = readClock(ctx, world); err != nil {
		return nil, fmt.Errorf("read clock: %w", err)
	}
	for _, at := range instants {
		var r read
		for _, system := range p.Systems {
			reply, err := world.Do(ctx, wire.Request{Method: http.MethodGet, Target: "/" + url.PathEscape(system) + "/events?at=" + at})
			if err != nil {
				return nil, fmt.Errorf("read events of %s at %s: %w", system, at, err)
			}
			if reply.Failed() {
				r.unreachable = append(r.unreachable, system)
				continue
			}
			if reply.Status != http.StatusOK {
				return nil, fmt.Errorf("read events of %s at %s: answered with status %d", system, at, reply.Status)
			}
			events, err := readEvents(system, f.clock[at], reply.Body)
			if err != nil {
				return nil, fmt.Errorf("read events of %s at %s: %w", system, at, err)
			}
			if err := known.add(events); err != nil {
				return nil, fmt.Errorf("read events of %s at %s: %w", system, at, err)
			}
			r.events = append(r.events, events...)
		}
		slices.Sort(r.unreachable)
		inOrder(r.events)
		if r.links, err = p.links(r.events); err != nil {
			return nil, fmt.Errorf("link subjects at %s: %w", at, err)
		}
		f.reads = append(f.reads, r)
	}
	return f, nil
}

func readClock(ctx context.Context, world *wire.Client) (map[string]int64, error) {
	reply, err := world.Do(ctx, wire.Request{Method: http.MethodGet, Target: "/clock"})
	if err != nil {
		return nil, err
	}
	if reply.Status != http.StatusOK {
		return nil, fmt.Errorf("answered with status %d", reply.Status)
	}
	v, err := starlark.ParseJSON(reply.Body)
	if err != nil {
		return nil, err
	}
	s := shape.Of("reply", v)
	names := append([]string{wire.AtStart}, instants...)
	s.Members(names...)
	clock := map[string]int64{}
	for i, name := range names {
		clock[name] = s.At(name).Int()
		if i > 0 && clock[name] < clock[names[i-1]] {
			s.At(name).Failf("%d is before %s", clock[name], names[i-1])
		}
	}
	return clock, s.Err()
}

// AppendFacts appends facts.json: {"clock": {instant: seconds}, "reads":
// {instant: {"events", "links", "unreachable"}}}. A read that is as the one before
// it is only the name of that: three times the same would be most of a verdict's
// time.
func (f *Facts) AppendFacts(b []byte) ([]byte, error) {
	b = fmt.Appendf(b, `{"clock":{"after":%d,"done":%d,"settled":%d,"start":%d},"reads":{`,
		f.clock["after"], f.clock["done"], f.clock["settled"], f.clock["start"])
	order := slices.Clone(instants)
	slices.Sort(order) // canonical JSON
	for i, at := range order {
		if i > 0 {
			b = append(b, ',')
		}
		n := slices.Index(instants, at)
		r := f.reads[n]
		if n > 0 && r.same(f.reads[n-1]) {
			b = fmt.Appendf(b, `%s:%s`, quote(at), quote(instants[n-1]))
			continue
		}
		b = fmt.Appendf(b, `%s:{"events":[`, quote(at))
		for i, e := range r.events {
			if i > 0 {
				b = append(b, ',')
			}
			var err error
			if b, err = e.appendJSON(b); err != nil {
				return nil, err
			}
		}
		b = append(b, `],"links":[`...)
		for i, l := range r.links {
			if i > 0 {
				b = append(b, ',')
			}
			b = fmt.Appendf(b, `[%s,%s]`, quote(l[0]), quote(l[1]))
		}
		b = append(appendNames(append(b, `],"unreachable":`...), r.unreachable), '}')
	}
	return append(b, "}}\n"...), nil
}

// AppendReach appends reach.json: who could not be reached at the last read.
func (f *Facts) AppendReach(b []byte) []byte {
	b = append(b, `{"unreachable":`...)
	return append(appendNames(b, f.reads[len(f.reads)-1].unreachable), "}\n"...)
}

func appendNames(b []byte, names []string) []byte {
	b = append(b, '[')
	for i, name := range names {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(b, quote(name)...)
	}
	return append(b, ']')
}
