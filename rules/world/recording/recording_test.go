package recording

import (
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/rules/world/wire"
)

const recorded = `{"instants": {
 "start": {"clock": 100, "seq": {"crm": 0, "payments": 1}}, "done": {"clock": 110, "seq": {"crm": 1, "payments": 2}},
 "settled": {"clock": 710, "seq": {"crm": 1, "payments": 2}}, "after": {"clock": 771, "seq": {"crm": 1, "payments": 3}}},
 "events": {"crm": [{"seq":1,"kind":"n"}], "payments": [{"seq":1,"kind":"a"},{"seq":2,"kind":"b"},{"seq":3,"kind":"c"}]}}`

func TestRecording(t *testing.T) {
	for _, c := range []struct {
		chaos string
		reads []string // "path: status body", in order
	}{
		{`[]`, []string{
			`/clock: 200 {"after":771,"done":110,"settled":710,"start":100}`,
			`/payments/events?at=done: 200 {"clock":110,"events":[{"seq":1,"kind":"a"},{"seq":2,"kind":"b"}]}`,
			`/payments/events?at=settled: 200 {"clock":710,"events":[{"seq":1,"kind":"a"},{"seq":2,"kind":"b"}]}`,
			`/payments/events?at=after: 200 {"clock":771,"events":[{"seq":1,"kind":"a"},{"seq":2,"kind":"b"},{"seq":3,"kind":"c"}]}`,
			`/payments/events?at=start: 400 {"error":"at is done, settled or after"}`,
			`/payments/events: 400 {"error":"at is done, settled or after"}`,
			`/tickets/events?at=done: 404 {"error":"there is no such path"}`,
			`/payments/refunds: 404 {"error":"there is no such path"}`,
			`/: 404 {"error":"there is no such path"}`,
		}},
		{`[{"system": "payments", "nth": 1, "mode": "stale_read", "status": 0}]`, []string{
			`/crm/events?at=done: 200 {"clock":110,"events":[{"seq":1,"kind":"n"}]}`,
			`/payments/events?at=done: 200 {"clock":110,"events":[{"seq":1,"kind":"a"}]}`,
			`/payments/events?at=settled: 200 {"clock":710,"events":[{"seq":1,"kind":"a"},{"seq":2,"kind":"b"}]}`,
		}},
		{`[{"system": null, "nth": null, "mode": "stale_read", "status": 0}]`, []string{
			`/crm/events?at=done: 200 {"clock":110,"events":[]}`,
		}},
		{`[{"system": "crm", "nth": 2, "mode": "unreachable"}, {"system": "crm", "nth": 3, "mode": "error", "status": 503}, {"nth": null, "mode": "error", "status": 429}]`, []string{
			`/crm/events?at=done: 429 {"error":"Too Many Requests"}`,
			`/crm/events?at=settled: 0 `,
			`/crm/events?at=after: 503 {"error":"Service Unavailable"}`,
			`/payments/events?at=after: 429 {"error":"Too Many Requests"}`,
			`/clock: 200 {"after":771,"done":110,"settled":710,"start":100}`,
		}},
	} {
		rec, err := Parse("events.json", []byte(recorded), "chaos.json", []byte(c.chaos))
		if err != nil {
			t.Fatal(err)
		}
		srv := httptest.NewServer(rec)
		defer srv.Close()
		client, err := wire.NewClient(srv.URL, time.Minute)
		if err != nil {
			t.Fatal(err)
		}
		for _, want := range c.reads {
			path, _, _ := strings.Cut(want, ": ")
			r, err := client.Do(t.Context(), wire.Request{Method: "GET", Target: path})
			if err != nil {
				t.Fatal(err)
			}
			if got := path + ": " + strconv.Itoa(r.Status) + " " + strings.TrimSuffix(string(r.Body), "\n"); got != want {
				t.Errorf("%s\ngot  %s\nwant %s", c.chaos, got, want)
			}
		}
		if r, err := client.Do(t.Context(), wire.Request{Method: "POST", Target: "/crm/events?at=done"}); err != nil || r.Status != 405 {
			t.Errorf("POST: %d, %v", r.Status, err)
		}
	}
}

func TestRecordingShapes(t *testing.T) {
	for _, c := range []struct{ old, new, chaos, want string }{
		{`"seq":3`, `"seq":4`, `[]`, `read events.json: events.payments[2]: an event with seq = 3 is meant`},
		{`"settled"`, `"later"`, `[]`, `read events.json: instants.settled: missing`},
		{`"payments": 3}`, `"payments": 4}`, `[]`, `read events.json: instants.after.seq.payments: a number in 0…3 is meant`},
		{`"instants"`, `instants`, `[]`, `read events.json: invalid character`},
		{``, ``, `{}`, `read chaos.json: a list of rules is meant, not dict`},
		{``, ``, `[`, `read chaos.json: offset 1`},
		{``, ``, `[{"mode": "lost_response"}]`, `read chaos.json[0].mode: "lost_response" is none of unreachable, stale_read, error`},
		{``, ``, `[{"mode": "unreachable", "system": "x"}]`, `read chaos.json[0].system: there is no system "x"`},
	} {
		_, err := Parse("events.json", []byte(strings.Replace(recorded, c.old, c.new, 1)), "chaos.json", []byte(c.chaos))
		if err == nil || !strings.HasPrefix(err.Error(), c.want) {
			t.Errorf("err = %v\nwant %s", err, c.want)
		}
	}
}
