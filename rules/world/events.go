package world

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

	"github.com/evalbuild/eval/starlark"
)

// A Recording serves the events of an act that has ended, to an extractor, under
// chaos of its own. It is an http.Handler.
type Recording struct {
	clocks  []byte // the reply to GET /clock
	systems map[string]map[string]read

	mu    sync.Mutex
	chaos *chaos
}

// A read is what one system gives at one instant.
type read struct {
	clock  int64
	events [][]byte
}

// ParseRecording reads events.json and chaos.json; their names in errors are
// eventsFile and chaosFile.
func ParseRecording(eventsFile string, events []byte, chaosFile string, chaos []byte) (*Recording, error) {
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
	names := []string{atStart, atDone, atSettled, atAfter}
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
	rules, err := rec.readChaos(chaosFile, chaos)
	rec.chaos = newChaos(rules)
	return rec, err
}

func (rec *Recording) readChaos(file string, text []byte) ([]*rule, error) {
	v, err := starlark.ParseJSON(text)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	s := shape{path: file, v: v, err: new(error)}
	var rules []*rule
	for _, one := range s.list("a list of rules") {
		r := &rule{}
		one.members("system", "nth", "mode", "status")
		if sys := one.at("system"); !sys.none() {
			r.system = sys.text()
			if rec.systems[r.system] == nil {
				sys.failf("there is no system %q", r.system)
			}
		}
		r.readWhen(one, []string{modeUnreachable, modeStaleRead, modeError})
		if r.system != "" {
			rules = append(rules, r)
			continue
		}
		for _, name := range slices.Sorted(maps.Keys(rec.systems)) { // each counts its own reads
			own := *r
			own.system = name
			rules = append(rules, &own)
		}
	}
	if *s.err != nil {
		return nil, fmt.Errorf("read %w", *s.err)
	}
	return rules, nil
}

// ServeHTTP answers GET /clock and GET /{system}/events?at=done|settled|after.
func (rec *Recording) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	system, isEvents := strings.CutSuffix(strings.TrimPrefix(r.URL.Path, "/"), "/events")
	instants := rec.systems[system]
	switch {
	case r.URL.Path != "/clock" && (!isEvents || instants == nil):
		write(w, noRoute(nil))
		return
	case r.Method != http.MethodGet:
		write(w, noRoute([]string{http.MethodGet}))
		return
	case r.URL.Path == "/clock":
		write(w, answer{reply: reply{http.StatusOK, rec.clocks}})
		return
	}
	at := r.URL.Query().Get("at")
	if at != atDone && at != atSettled && at != atAfter {
		write(w, answer{reply: errorReply(http.StatusBadRequest, "at is done, settled or after")})
		return
	}
	rec.mu.Lock()
	p := rec.chaos.next(system, "")
	rec.mu.Unlock()
	from := instants[at]
	switch {
	case p.fails(modeUnreachable):
		write(w, answer{cut: true})
		return
	case p.fails(modeError):
		status := p.failure.status
		write(w, answer{reply: errorReply(status, statusText(status)), retry: status == http.StatusTooManyRequests})
		return
	case p.fails(modeStaleRead):
		from.events = instants[atStart].events
	}
	body := append(strconv.AppendInt([]byte(`{"clock":`), from.clock, 10), `,"events":[`...)
	body = append(body, bytes.Join(from.events, []byte(","))...)
	write(w, answer{reply: reply{http.StatusOK, append(body, "]}"...)}})
}
