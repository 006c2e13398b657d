package extract

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

const clock = `{"start":100,"done":110,"settled":710,"after":770}`

// fakeEvents answers GET /clock, and "/crm/events?at=done" with the text under
// that name; "cut" cuts the connection, a number is a status.
type fakeEvents struct {
	replies map[string]string
	seen    []string
}

func (f *fakeEvents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	target := r.URL.RequestURI()
	f.seen = append(f.seen, r.Method+" "+target)
	reply, ok := f.replies[target]
	var status int
	switch n, _ := fmt.Sscanf(reply, "%d", &status); {
	case !ok && target == "/clock":
		reply = clock
	case !ok:
		reply = fmt.Sprintf(`{"clock":%d,"events":[]}`, map[string]int{"done": 110, "settled": 710, "after": 770}[r.URL.Query().Get("at")])
	case reply == "cut":
		panic(http.ErrAbortHandler)
	case n == 1:
		w.WriteHeader(status)
		reply = `{"error":"no"}`
	}
	fmt.Fprint(w, reply)
}

func run(t *testing.T, f *fakeEvents, plan string) (*Facts, error) {
	t.Helper()
	srv := httptest.NewServer(f)
	defer srv.Close()
	c, err := wire.NewClient(srv.URL, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	p, err := ParsePlan([]byte(plan))
	if err != nil {
		t.Fatal(err)
	}
	return p.Run(t.Context(), c)
}

const twoSystems = `{"systems":["tickets","crm"],"links":[{"kind":"ticket_opened","attr":"order"}]}`

func ev(seq, at int, kind, subject, attrs string) string {
	return fmt.Sprintf(`{"seq":%d,"kind":%q,"subject":%q,"at":%d,"actor":"agent","attrs":%s}`, seq, kind, subject, at, attrs)
}

func page(clock int, events ...string) string {
	return fmt.Sprintf(`{"clock":%d,"events":[%s]}`, clock, strings.Join(events, ","))
}

func TestFacts(t *testing.T) {
	opened := ev(1, 90, "ticket_opened", "T-1", `{"order":"1001"}`)
	f := &fakeEvents{replies: map[string]string{
		"/tickets/events?at=done":    page(110, opened, ev(2, 101, "ticket_opened", "T-2", `{"order":7}`), ev(5, 101, "ticket_opened", "T-2", `{"order":7}`)),
		"/crm/events?at=done":        page(110, ev(1, 101, "note", "1001", `{"z":1,"a":[2.50,null]}`)),
		"/tickets/events?at=settled": page(710, opened),
		"/crm/events?at=settled":     "503",
		"/tickets/events?at=after":   "cut",
		"/crm/events?at=after":       page(770),
	}}
	facts, err := run(t, f, twoSystems)
	if err != nil {
		t.Fatal(err)
	}
	got, err := facts.AppendFacts(nil)
	if err != nil {
		t.Fatal(err)
	}
	const (
		t1 = `{"actor":"agent","at":90,"attrs":{"order":"1001"},"kind":"ticket_opened","seq":1,"subject":"T-1","system":"tickets"}`
		t2 = `{"actor":"agent","at":101,"attrs":{"order":7},"kind":"ticket_opened","seq":2,"subject":"T-2","system":"tickets"}`
		t5 = `{"actor":"agent","at":101,"attrs":{"order":7},"kind":"ticket_opened","seq":5,"subject":"T-2","system":"tickets"}`
		c1 = `{"actor":"agent","at":101,"attrs":{"a":[2.5,null],"z":1},"kind":"note","seq":1,"subject":"1001","system":"crm"}`
	)
	want := `{"clock":{"after":770,"done":110,"settled":710,"start":100},"reads":{` +
		`"after":{"events":[],"links":[],"unreachable":["tickets"]},` +
		`"done":{"events":[` + strings.Join([]string{t1, c1, t2, t5}, ",") + `],"links":[["T-1","1001"],["T-2","7"]],"unreachable":[]},` +
		`"settled":{"events":[` + t1 + `],"links":[["T-1","1001"]],"unreachable":["crm"]}}}` + "\n"
	if string(got) != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	if got, want := string(facts.AppendReach(nil)), `{"unreachable":["tickets"]}`+"\n"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	// A failure is tied to the nth read of a system, so the order is part of the format.
	order := []string{"GET /clock"}
	for _, at := range []string{"done", "settled", "after"} {
		order = append(order, "GET /tickets/events?at="+at, "GET /crm/events?at="+at)
	}
	if !slices.Equal(f.seen, order) {
		t.Errorf("read %v", f.seen)
	}
	v, err := starlark.ParseJSON(got)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := starlark.AppendJSON(nil, v); err != nil || string(again)+"\n" != string(got) {
		t.Errorf("not canonical: %s, %v", again, err)
	}
}

// TestStale: an earlier state with the clock of the instant is a read like any
// other; the next one corrects it.
func TestStale(t *testing.T) {
	e1, e2 := ev(1, 90, "order_made", "1001", "{}"), ev(2, 101, "refund_created", "1001", "{}")
	facts, err := run(t, &fakeEvents{replies: map[string]string{
		"/crm/events?at=done":    page(110, e1),
		"/crm/events?at=settled": page(710, e1, e2),
		"/crm/events?at=after":   page(770, e1, e2),
	}}, `{"systems":["crm"],"links":[]}`)
	if err != nil {
		t.Fatal(err)
	}
	var n []int
	for _, r := range facts.reads {
		n = append(n, len(r.events))
	}
	if !slices.Equal(n, []int{1, 2, 2}) {
		t.Errorf("events at each read: %v", n)
	}
	// A read like the one before it is not written again.
	text, err := facts.AppendFacts(nil)
	if err != nil || !strings.Contains(string(text), `"reads":{"after":"settled","done":{`) || !strings.Contains(string(text), `"settled":{"events"`) {
		t.Errorf("%s, %v", text, err)
	}
}

// TestRewritten: an event that is another one at a later read is a fault.
func TestRewritten(t *testing.T) {
	_, err := run(t, &fakeEvents{replies: map[string]string{
		"/crm/events?at=done":    page(110, ev(1, 90, "order_made", "1001", `{"a":1}`)),
		"/crm/events?at=settled": page(710, ev(1, 90, "order_made", "1001", `{"a":2}`)),
	}}, `{"systems":["crm"],"links":[]}`)
	if err == nil || !strings.Contains(err.Error(), "read events of crm at settled: event 1 is ") {
		t.Error(err)
	}
}

func TestUnreachableIsSorted(t *testing.T) {
	f := &fakeEvents{replies: map[string]string{"/tickets/events?at=after": "403", "/crm/events?at=after": "500"}}
	facts, err := run(t, f, twoSystems)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := string(facts.AppendReach(nil)), `{"unreachable":["crm","tickets"]}`+"\n"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct{ target, reply, want string }{
		{"/clock", "cut", "read clock: answered with status 0"},
		{"/clock", "404", "read clock: answered with status 404"},
		{"/clock", `{"start":1,"done":2,"settled":3}`, "read clock: reply.after: missing"},
		{"/clock", `{"start":1,"done":2,"settled":1,"after":3}`, "read clock: reply.settled: 1 is before done"},
		{"/clock", `{"start":1,"done":2,"settled":3,"after":3,"now":4}`, `read clock: reply: there is no "now"`},
		{"/crm/events?at=settled", "302", "read events of crm at settled: answered with status 302"},
		{"/crm/events?at=settled", "", "read events of crm at settled: offset 0"},
		{"/crm/events?at=settled", "[]", "a dict is meant, not list"},
		{"/crm/events?at=settled", page(711), "clock: 711, and the instant's is 710"},
		{"/crm/events?at=settled", `{"clock":710}`, "events: missing; a list of events is meant"},
		{"/crm/events?at=settled", page(710, "3"), "events[0]: a dict is meant, not int"},
		{"/crm/events?at=settled", page(710, ev(0, 1, "k", "s", "{}")), "events[0].seq: 0 after 0"},
		{"/crm/events?at=settled", page(710, ev(2, 1, "k", "s", "{}"), ev(2, 1, "k", "s", "{}")), "events[1].seq: 2 after 2"},
		{"/crm/events?at=settled", page(710, ev(3, 1, "k", "s", "{}"), ev(2, 1, "k", "s", "{}")), "events[1].seq: 2 after 3"},
		{"/crm/events?at=settled", page(710, ev(1, 1, "k", "s", "[]")), "events[0].attrs: a dict is meant, not list"},
		{"/crm/events?at=settled", page(710, strings.Replace(ev(1, 1, "k", "s", "{}"), `"kind":"k"`, `"kind":null`, 1)), "events[0].kind: a string is meant, not NoneType"},
		{"/crm/events?at=settled", page(710, strings.Replace(ev(1, 1, "k", "s", "{}"), `"at":1`, `"at":1.5`, 1)), "events[0].at: an int is meant, not float"},
		{"/crm/events?at=settled", page(710, strings.Replace(ev(1, 1, "k", "s", "{}"), `"actor":`, `"who":`, 1)), `events[0]: there is no "who"`},
		{"/crm/events?at=settled", page(710, ev(1, 1, "ticket_opened", "s", `{"order":["x"]}`)), "link subjects at settled: event 1 of crm: attribute order: list links to nothing"},
	} {
		_, err := run(t, &fakeEvents{replies: map[string]string{c.target: c.reply}}, twoSystems)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s: %v; want %q", c.target, c.reply, err, c.want)
		}
	}
}

func TestLinksWithoutValue(t *testing.T) {
	facts, err := run(t, &fakeEvents{replies: map[string]string{
		"/crm/events?at=done": page(110, ev(1, 1, "ticket_opened", "T-1", "{}"), ev(2, 1, "ticket_opened", "T-2", `{"order":null}`), ev(3, 1, "other", "T-3", `{"order":"1"}`)),
	}}, twoSystems)
	if err != nil || len(facts.reads[0].links) != 0 {
		t.Errorf("%v, %v", facts, err)
	}
}

func TestParsePlanRefuses(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "offset 0"},
		{"[]", "links: a dict is meant"},
		{`{"systems":["a"]}`, "links.links: missing"},
		{`{"systems":["a","b","a"],"links":[]}`, `links.systems: "a" is named twice`},
		{`{"systems":["a"],"links":[{"kind":"k"}]}`, "links.links[0].attr: missing"},
		{`{"systems":["a"],"links":[],"chaos":[]}`, `links: there is no "chaos"`},
	} {
		if _, err := ParsePlan([]byte(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.text, err, c.want)
		}
	}
}
