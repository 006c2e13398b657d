package extract

import (
	"cmp"
	"fmt"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/starlark"
)

// An event is what a system says that happened.
type event struct {
	system  string
	seq, at int64 // number in its system, from 1; Unix seconds of the virtual clock
	kind    string
	subject string
	actor   string
	attrs   map[string]sl.Value
	dict    sl.Value // attrs as they came
}

// readEvents reads the reply of GET /{system}/events at an instant whose clock
// is known.
func readEvents(system string, clock int64, body []byte) ([]event, error) {
	v, err := starlark.ParseJSON(body)
	if err != nil {
		return nil, err
	}
	s := shape.Of("reply", v)
	s.Members("clock", "events")
	if at := s.At("clock").Int(); at != clock {
		s.At("clock").Failf("%d, and the instant's is %d", at, clock)
	}
	var out []event
	last := int64(0)
	for _, x := range s.At("events").List("a list of events") {
		x.Members("seq", "kind", "subject", "at", "actor", "attrs")
		e := event{
			system: system, seq: x.At("seq").Int(), at: x.At("at").Int(),
			kind: x.At("kind").Text(), subject: x.At("subject").Text(), actor: x.At("actor").Text(),
			attrs: map[string]sl.Value{}, dict: x.At("attrs").Dict(),
		}
		for _, m := range x.At("attrs").Items("a dict") {
			e.attrs[m.Key] = m.Any()
		}
		if e.seq <= last {
			x.At("seq").Failf("%d after %d", e.seq, last)
		}
		last = e.seq
		out = append(out, e)
	}
	return out, s.Err()
}

// A history is what events were when they were read first: system and number to
// the event as JSON.
type history map[string]string

// add fails if an event is not what it was: a log is only added to.
func (h history) add(events []event) error {
	for _, e := range events {
		text, err := e.appendJSON(nil)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%s %d", e.system, e.seq)
		if was, ok := h[name]; ok && was != string(text) {
			return fmt.Errorf("event %d is %s; it was %s", e.seq, text, was)
		}
		h[name] = string(text)
	}
	return nil
}

// inOrder sorts events of several systems by time; of one second, by system.
func inOrder(events []event) {
	slices.SortFunc(events, func(a, b event) int {
		return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.system, b.system), cmp.Compare(a.seq, b.seq))
	})
}

func (e event) appendJSON(b []byte) ([]byte, error) {
	attrs, err := starlark.AppendJSON(nil, e.dict)
	if err != nil {
		return nil, fmt.Errorf("event %d of %s: %w", e.seq, e.system, err)
	}
	return fmt.Appendf(b, `{"actor":%s,"at":%d,"attrs":%s,"kind":%s,"seq":%d,"subject":%s,"system":%s}`,
		quote(e.actor), e.at, attrs, quote(e.kind), e.seq, quote(e.subject), quote(e.system)), nil
}

// quote writes s as canonical JSON, which every string has.
func quote(s string) []byte {
	b, _ := starlark.AppendJSON(nil, sl.String(s))
	return b
}
