// Package recording serves what an act has left behind.
//
//	events.json ── Recording ── HTTP, chaos ── the extractor
//
// It needs no databases: the extractor's server is a small program.
package recording

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/evalbuild/eval/rules/world/chaos"
	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A Recording serves the events of an act that has ended, to an extractor, under
// chaos of its own. It is an http.Handler.
type Recording struct {
	clocks  []byte // the reply to GET /clock
	systems map[string]map[string]read

	mu    sync.Mutex
	calls *chaos.Counter
}

// A read is what one system gives at one instant.
type read struct {
	clock  int64
	events [][]byte
}

// Parse reads events.json and chaos.json; their names in errors are eventsFile
// and chaosFile.
func Parse(eventsFile string, events []byte, chaosFile string, plan []byte) (*Recording, error) {
	var in struct {
		Instants map[string]struct {
			Clock int64            `json:"clock"`
			Seq   map[string]int64 `json:"seq"`
		} `json:"instants"`
		Events map[string][]json.RawMessage `json:"events"`
	}
	if err := json.Unmarshal(events, &in); err != nil {
		return nil, fmt.Errorf("read %s: %w", eventsFile, err)
	}
	rec := &Recording{systems: map[string]map[string]read{}}
	names := []string{wire.AtStart, wire.AtDone, wire.AtSettled, wire.AtAfter}
	clocks := []byte("{")
	for _, name := range slices.Sorted(slices.Values(names)) {
		if _, ok := in.Instants[name]; !ok {
			return nil, fmt.Errorf("read %s: instants.%s: missing", eventsFile, name)
		}
		clocks = fmt.Appendf(clocks, "%q:%d,", name, in.Instants[name].Clock)
	}
	rec.clocks = append(bytes.TrimSuffix(clocks, []byte(",")), '}')
	for system, all := range in.Events {
		rec.systems[system] = map[string]read{}
		texts := make([][]byte, len(all))
		for i, e := range all {
			texts[i] = e
			var numbered struct {
				Seq int64 `json:"seq"`
			}
			if err := json.Unmarshal(e, &numbered); err != nil || numbered.Seq != int64(i)+1 {
				return nil, fmt.Errorf("read %s: events.%s[%d]: an event with seq = %d is meant", eventsFile, system, i, i+1)
			}
		}
		for _, name := range names {
			n, ok := in.Instants[name].Seq[system]
			if !ok || n < 0 || n > int64(len(all)) {
				return nil, fmt.Errorf("read %s: instants.%s.seq.%s: a number in 0…%d is meant", eventsFile, name, system, len(all))
			}
			rec.systems[system][name] = read{in.Instants[name].Clock, texts[:n]}
		}
	}
	rules, err := rec.readChaos(chaosFile, plan)
	rec.calls = chaos.NewCounter(rules)
	return rec, err
}

func (rec *Recording) readChaos(file string, text []byte) ([]*chaos.Rule, error) {
	v, err := starlark.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	s := shape.Of(file, v)
	var rules []*chaos.Rule
	for _, one := range s.List("a list of rules") {
		r := &chaos.Rule{}
		one.Members("system", "nth", "mode", "status")
		if sys := one.At("system"); !sys.None() {
			r.System = sys.Text()
			if rec.systems[r.System] == nil {
				sys.Failf("there is no system %q", r.System)
			}
		}
		r.ReadWhen(one, chaos.Unreachable, chaos.StaleRead, chaos.Error)
		if r.System != "" {
			rules = append(rules, r)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(rec.systems)) { // each counts its own reads
			own := *r
			own.System = name
			rules = append(rules, &own)
		}
	}
	if s.Err() != nil {
		return nil, fmt.Errorf("read %w", s.Err())
	}
	return rules, nil
}

// ServeHTTP answers GET /clock and GET /{system}/events?at=done|settled|after.
func (rec *Recording) ServeHTTP(w http.ResponseWriter, r *http.Request) { rec.answer(r).Send(w) }

func (rec *Recording) answer(r *http.Request) wire.Answer {
	system, isEvents := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/events")
	instants := rec.systems[system]
	switch {
	case r.URL.Path != "/clock" && (!isEvents || instants == nil):
		return wire.NoRoute(nil)
	case r.Method != http.MethodGet:
		return wire.NoRoute([]string{http.MethodGet})
	case r.URL.Path == "/clock":
		return wire.Answer{Status: http.StatusOK, Body: rec.clocks}
	}
	at := r.URL.Query().Get("at")
	if at != wire.AtDone && at != wire.AtSettled && at != wire.AtAfter {
		return wire.Refusal(http.StatusBadRequest, "at is done, settled or after")
	}
	rec.mu.Lock()
	p := rec.calls.Next(system, "")
	rec.mu.Unlock()
	from := instants[at]
	switch {
	case p.Fails(chaos.Unreachable):
		return wire.Answer{Cut: true}
	case p.Fails(chaos.Error):
		return wire.Failing(p.Failure.Status)
	case p.Fails(chaos.StaleRead):
		from.events = instants[wire.AtStart].events
	}
	body := append(strconv.AppendInt([]byte(`{"clock":`), from.clock, 10), `,"events":[`...)
	body = append(body, bytes.Join(from.events, []byte(","))...)
	return wire.Answer{Status: http.StatusOK, Body: append(body, "]}"...)}
}
