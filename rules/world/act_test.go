package world

import (
	"bytes"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalbuild/eval/rules/world/recording"
	"github.com/evalbuild/eval/rules/world/wire"
)

func TestOneAct(t *testing.T) {
	l := begin(t, scene{})
	l.want("GET /payments/orders/1001", "", 200, `{"id":"1001","paid":true,"tags":["new"],"total":4500}`)
	l.want(refundPath, refundBody, 201, refundReply)
	l.want("POST /crm/orders/1001/notes", `{"text": "refunded"}`, 200, `{"data":null,"flag":null,"id":"N-1","score":null,"text":"refunded"}`)
	l.want("GET /payments/refunds?order=1001", "", 200, "["+refundReply+"]")
	l.want("POST /report", `{"success": false}`, 200, `{"ok":true}`)
	l.want("POST /report", `{"success": true, "message": "done"}`, 200, `{"ok":true}`)
	f := l.finish()

	// A read doesn't move the clock; a write is at the second before its move.
	if got := f.kinds("payments"); got != "refund_created@0" {
		t.Errorf("payments: %s", got)
	}
	if got := f.kinds("crm"); got != "note_added@1" {
		t.Errorf("crm: %s", got)
	}
	for name, clock := range map[string]int64{"start": start, "done": start + 2, "settled": start + 602, "after": start + 602} {
		if f.Tables[name].Clock != clock || f.Instants[name].Clock != clock {
			t.Errorf("%s: clock %d and %d, want %d", name, f.Tables[name].Clock, f.Instants[name].Clock, clock)
		}
	}
	if f.Instants["start"].Seq["payments"] != 3 || f.Instants["done"].Seq["payments"] != 4 || f.Instants["start"].Seq["crm"] != 0 {
		t.Errorf("seq: %v", f.Instants)
	}
	if f.refunds("start") != 0 || f.refunds("done") != 1 || f.refunds("after") != 1 {
		t.Errorf("tables: %s", f.tables)
	}
	wantRun := `{"call":{"body":null,"delivered":true,"key":null,"n":1,"operation":"GET /payments/orders/{id}","path":"/payments/orders/1001","query":{},"reply":{"id":"1001","paid":true,"tags":["new"],"total":4500},"status":200}}
{"call":{"body":{"amount":4500,"order_id":"1001"},"delivered":true,"key":null,"n":2,"operation":"POST /payments/refunds","path":"/payments/refunds","query":{},"reply":{"amount":4500,"id":"RF-1","order":"1001"},"status":201}}
{"call":{"body":{"text":"refunded"},"delivered":true,"key":null,"n":3,"operation":"POST /crm/orders/{order}/notes","path":"/crm/orders/1001/notes","query":{},"reply":{"data":null,"flag":null,"id":"N-1","score":null,"text":"refunded"},"status":200}}
{"call":{"body":null,"delivered":true,"key":null,"n":4,"operation":"GET /payments/refunds","path":"/payments/refunds","query":{"order":"1001"},"reply":[{"amount":4500,"id":"RF-1","order":"1001"}],"status":200}}
{"report":{"message":"done","success":true}}
`
	if string(f.run) != wantRun {
		t.Errorf("run.jsonl:\n%s\nwant\n%s", f.run, wantRun)
	}
}

func TestSeedEvents(t *testing.T) {
	f := begin(t, scene{}).finish()
	var got []string
	for _, e := range f.Events["payments"] {
		got = append(got, fmt.Sprintf("%d %s %s %d %s %v", e.Seq, e.Kind, e.Subject, e.At-start, e.Actor, e.Attrs))
	}
	want := []string{
		"1 order_paid 1001 -172800 customer map[amount:4500]",
		"2 order_paid 1002 -172800 customer map[amount:4500]",
		fmt.Sprintf("3 seeded 1001 -1 seed map[at:%v]", float64(start)), // nothing of a seed is in the agent's run
	}
	if !slices.Equal(got, want) {
		t.Errorf("events:\n%q\nwant\n%q", got, want)
	}
}

func TestIdempotency(t *testing.T) {
	l := begin(t, scene{})
	key := []string{"Idempotency-Key", "k"}
	l.want(refundPath, refundBody, 201, refundReply, key...)
	l.want(refundPath, `{"amount": 4500, "order_id": "1001"}`, 201, refundReply, key...) // the same JSON
	l.want(refundPath, `{"amount": 4501, "order_id": "1001"}`, 422, `{"error":"the Idempotency-Key was used with another request"}`, key...)
	// Another operation's key is another key, also for path variables of one.
	l.want("POST /payments/echo/a/b", "", 200, fmt.Sprintf(`{"actor":"agent","body":null,"key":"k","method":"POST","now":"2026-01-15T11:40:01Z","params":{"a":"a","b":"b"},"path":"/payments/echo/a/b","query":{},"time":%d}`, start+1), key...)
	if g := l.do("POST /payments/echo/a/c", "", key...); g.status != 422 {
		t.Errorf("other path variables: %d", g.status)
	}
	// Errors aren't remembered.
	l.want(refundPath, `{"order_id": "7", "amount": 1}`, 404, `{"error":"no such order"}`, "Idempotency-Key", "e")
	l.want(refundPath, `{"order_id": "1002", "amount": 1}`, 201, `{"amount":1,"id":"RF-2","order":"1002"}`, "Idempotency-Key", "e")
	// A system without it.
	l.want("POST /crm/orders/1/notes", `{"text": "a"}`, 200, `{"data":null,"flag":null,"id":"N-1","score":null,"text":"a"}`, key...)
	l.want("POST /crm/orders/1/notes", `{"text": "a"}`, 200, `{"data":null,"flag":null,"id":"N-2","score":null,"text":"a"}`, key...)
	f := l.finish()
	if f.refunds("done") != 2 || f.kinds("payments") != "refund_created@0 refund_created@1" {
		t.Errorf("%d refunds; %s", f.refunds("done"), f.kinds("payments"))
	}
	if f.Tables["done"].Clock != start+4 {
		t.Errorf("clock + %d", f.Tables["done"].Clock-start)
	}
	if f.Lines[0]["call"]["key"] != "k" {
		t.Errorf("the log's key: %v", f.Lines[0])
	}
}

func TestErrorRollsBack(t *testing.T) {
	l := begin(t, scene{})
	l.want(refundPath, `{"order_id": "7", "amount": 1}`, 404, `{"error":"no such order"}`)
	l.want(refundPath, refundBody, 201, refundReply) // the number RF-1 was not used up
	f := l.finish()
	if f.refunds("done") != 1 || f.kinds("payments") != "refund_created@0" {
		t.Errorf("%d refunds; %s", f.refunds("done"), f.kinds("payments"))
	}
}

func TestDatabase(t *testing.T) {
	l := begin(t, scene{})
	l.want("POST /crm/rows", "", 200, `{"by_flag":["N-2"],"by_json":["N-2"],"by_none":["N-4"],"changed":{"data":[1],"flag":false,"id":"N-1","score":1.5,"text":"changed"},"ids":["N-1","N-2","N-3","N-4"],"nothing":null,"one":1,"order":["N-1","N-2","N-4"]}`)
	l.want("DELETE /crm/notes", "", 204, "")
	// Any bytes that JSON can carry come back.
	l.want("POST /crm/orders/1/notes", `{"text": "a\u0000\"'é\udcff"}`, 200, `{"data":null,"flag":null,"id":"N-5","score":null,"text":"a\u0000\"'é\udcff"}`)
	f := l.finish()
	if got := fmt.Sprint(f.Tables["done"].Clock-start, len(f.Tables["done"].Systems["crm"]["notes"])); got != "3 1" {
		t.Errorf("clock and rows: %s", got)
	}
	if f.Lines[1]["call"]["reply"] != nil || f.Lines[1]["call"]["status"] != 204.0 {
		t.Errorf("204: %v", f.Lines[1])
	}
}

func TestHTTP(t *testing.T) {
	l := begin(t, scene{})
	for _, c := range []struct {
		operation, body string
		status          int
		reply           string
	}{
		{"POST /payments/incident", refundBody, 404, `{"error":"there is no such path"}`}, // internal
		{"GET /payments/events", "", 404, `{"error":"there is no such path"}`},
		{"GET /payments/events?at=done", "", 404, `{"error":"there is no such path"}`},
		{"GET /", "", 404, `{"error":"there is no such path"}`},
		{"GET /payments/orders//", "", 404, `{"error":"there is no such path"}`},
		{"GET /payments/orders/", "", 404, `{"error":"there is no such path"}`},
		{"GET /mcp", "", 404, `{"error":"there is no such path"}`},
		{"PUT /payments/refunds", "", 405, `{"error":"the method is not allowed here"}`},
		{"POST /tools", "", 405, `{"error":"the method is not allowed here"}`},
		{"GET /report", "", 405, `{"error":"the method is not allowed here"}`},
		{"POST /report", `{"success": "yes"}`, 400, `{"error":"{\"success\": true or false, \"message\": \"…\"} is meant"}`},
		{"POST /report", `[]`, 400, `{"error":"{\"success\": true or false, \"message\": \"…\"} is meant"}`},
		{refundPath, `{"order_id"`, 400, `{"error":"the body is not JSON: offset 11: ':' is missing after the key"}`},
		{refundPath, `{"order_id": 1001, "amount": 4500}`, 400, `{"error":"order_id: string is meant"}`},
		{refundPath, `[1]`, 400, `{"error":"the body is a JSON object"}`},
		{refundPath, `"` + strings.Repeat("x", wire.MaxBody) + `"`, 413, `{"error":"the body has more than 1048576 bytes"}`},
	} {
		l.want(c.operation, c.body, c.status, c.reply)
	}
	if g := l.do("DELETE /payments/refunds", ""); g.header.Get("Allow") != "GET, POST" || g.header.Get("Date") != "" {
		t.Errorf("headers of 405: %v", g.header)
	}
	if g := l.do("GET /payments/refunds", "", "X-Big", strings.Repeat("x", 32<<10)); g.status != http.StatusRequestHeaderFieldsTooLarge {
		t.Errorf("a header of 32 KiB: %d", g.status)
	}
	// Escapes are part of a segment; a literal goes before a variable.
	l.want("POST /payments/echo/a%2Fb/%C3%A9?q=1&q=2&r=%20", `{"x":[1]}`, 200,
		fmt.Sprintf(`{"actor":"agent","body":{"x":[1]},"key":null,"method":"POST","now":"2026-01-15T11:40:00Z","params":{"a":"a/b","b":"é"},"path":"/payments/echo/a%%2Fb/%%C3%%A9","query":{"q":"1","r":" "},"time":%d}`, start))
	f := l.finish()
	malformed := 0
	for _, line := range f.Lines {
		c := line["call"]
		if c["malformed"] == `{"order_id"` && c["body"] == nil && c["operation"] == refundPath {
			malformed++
		}
		if c["operation"] == "" && c["method"] == nil {
			t.Errorf("no method, so it can't be replayed: %v", c)
		}
	}
	if malformed != 1 || len(f.Lines) != 14 {
		t.Errorf("%d of %d calls are malformed", malformed, len(f.Lines))
	}
	if f.Lines[12]["call"]["method"] != "DELETE" {
		t.Errorf("call 13: %v", f.Lines[12])
	}
}

func TestTools(t *testing.T) {
	l := begin(t, scene{})
	want := `[{"description":"","name":"crm_delete_notes","operation":"DELETE /crm/notes","params":{}},` +
		`{"description":"","name":"payments_get_echo_fixed_b","operation":"GET /payments/echo/fixed/{b}","params":{}},` +
		`{"description":"","name":"payments_get_echo_a_b","operation":"GET /payments/echo/{a}/{b}","params":{}},`
	g := l.do("GET /tools", "")
	if !strings.HasPrefix(g.body, want) || !strings.Contains(g.body, `{"description":"Refund an order.","name":"payments_post_refunds","operation":"POST /payments/refunds","params":{"amount":"int","order_id":"string"}}`) || strings.Contains(g.body, "incident") {
		t.Errorf("tools: %s", g.body)
	}
	if f := l.finish(); len(f.run) != 0 {
		t.Errorf("looking at the tools is no call: %s", f.run)
	}
}

func TestDo(t *testing.T) {
	l := begin(t, scene{chaos: chaosRule("lost_response", `"operation": "POST /payments/refunds", "nth": 2`)})
	check := func(operation string, args map[string]any, key string, want string) {
		t.Helper()
		status, body, delivered := l.act.Do(operation, args, key)
		if got := fmt.Sprintf("%d %s %v", status, body, delivered); got != want {
			t.Errorf("Do(%s, %v): %s\nwant %s", operation, args, got, want)
		}
	}
	check(refundPath, map[string]any{"order_id": "1001", "amount": 4500.0}, "", "201 "+refundReply+" true")
	check(refundPath, map[string]any{"order_id": "1001", "amount": 1}, "k", "0 %!s(<nil>) false")
	check(refundPath, map[string]any{"order_id": "1001", "amount": 1}, "k", `201 {"amount":1,"id":"RF-2","order":"1001"} true`)
	check("GET /payments/orders/{id}", nil, "", `400 {"error":"id is missing"} true`)
	check("GET /payments/orders/{id}", map[string]any{"id": "a/b"}, "", `404 {"error":"no such order"} true`)
	check("GET /payments/refunds", map[string]any{"order": 1001}, "", `200 [{"amount":4500,"id":"RF-1","order":"1001"},{"amount":1,"id":"RF-2","order":"1001"}] true`)
	check("POST /payments/incident", nil, "", `404 {"error":"there is no such path"} true`)
	l.act.Report(true, "by tool")
	f := l.finish()
	// The log is that of the same calls by HTTP.
	l2 := begin(t, scene{chaos: chaosRule("lost_response", `"operation": "POST /payments/refunds", "nth": 2`)})
	l2.do(refundPath, refundBody)
	l2.do(refundPath, `{"order_id": "1001", "amount": 1}`, "Idempotency-Key", "k")
	l2.do(refundPath, `{"order_id": "1001", "amount": 1}`, "Idempotency-Key", "k")
	l2.do("GET /payments/orders/a%2Fb", "")
	l2.do("GET /payments/refunds?order=1001", "")
	l2.do("POST /payments/incident", "")
	l2.do("POST /report", `{"success": true, "message": "by tool"}`)
	if f2 := l2.finish(); !bytes.Equal(f.run, f2.run) {
		t.Errorf("by Do:\n%s\nby HTTP:\n%s", f.run, f2.run)
	}
}

func TestPriorRuns(t *testing.T) {
	l := begin(t, scene{
		defs: `
def script(task, call):
    if task.text != "Refund it." or task.request["amount"] != 7:
        fail("task: %s" % task)
    if call("POST /payments/incident", {}).status != 404:
        fail("an agent sees no internal operation")
    r = call("GET /payments/refunds?order=1001")
    if not r.ok or r.status != 200:
        fail("%s" % r)
    r = call("POST /payments/refunds", task.request)
    if r.status != 201 or r.body["amount"] != 7:
        fail("%s" % r)
`,
		script: "script",
		priors: `
{"request": {"order_id": "1002", "amount": 7}, "task": "Refund it.", "ago": 60},
{"request": {"order_id": "1001", "amount": 7}, "task": "Refund it.", "ago": 7200},
{"request": {"order_id": "1002", "amount": 7}, "task": "Refund it.", "ago": 60},`,
		chaos: chaosRule("unreachable", `"nth": 1`), // counts the agent's calls only
	})
	if g := l.do(refundPath, refundBody); g.status != 0 {
		t.Errorf("the first call: %d", g.status)
	}
	f := l.finish()
	var got []string
	for _, e := range f.Events["payments"][3:] {
		got = append(got, fmt.Sprintf("%s %d %s", e.Subject, e.At-start, e.Actor))
	}
	if want := []string{"1001 -7200 agent", "1002 -60 agent", "1002 -59 agent"}; !slices.Equal(got, want) {
		t.Errorf("events %q, want %q", got, want)
	}
	if f.Instants["start"].Seq["payments"] != 6 || f.refunds("start") != 3 || f.Tables["start"].Clock != start {
		t.Errorf("start: %v", f.Instants["start"])
	}
	if len(f.Lines) != 1 {
		t.Errorf("run.jsonl holds a prior run's calls: %s", f.run)
	}
}

func TestAfterSettlement(t *testing.T) {
	l := begin(t, scene{
		defs: `
def undo(request, call):
    r = call("POST /payments/incident", {"order_id": request["order_id"], "amount": 1}, actor = "bank")
    if r.status != 201 or r.body["id"] != "RF-2":
        fail("%s" % r)
    call("POST /payments/incident", {"order_id": "1002", "amount": 2})
`,
		after: "undo",
	})
	l.do(refundPath, refundBody)
	f := l.finish()
	if got := f.kinds("payments"); got != "refund_created@0 refund_created@661 refund_created@662" {
		t.Errorf("events: %s", got)
	}
	if e := f.Events["payments"]; e[4].Actor != "bank" || e[5].Actor != "someone" {
		t.Errorf("actors: %v", e)
	}
	if f.refunds("settled") != 1 || f.refunds("after") != 3 || f.Tables["after"].Clock != start+663 || f.Tables["settled"].Clock != start+601 {
		t.Errorf("instants: %s", f.tables)
	}
	if s := f.Instants; s["done"].Seq["payments"] != 4 || s["settled"].Seq["payments"] != 4 || s["after"].Seq["payments"] != 6 {
		t.Errorf("seq: %v", s)
	}
}

// TestConcurrent has eight clients at once: the log is a possible order, and
// what it says is what happened.
func TestConcurrent(t *testing.T) {
	l := begin(t, scene{chaos: chaosRule("error", `"nth": 5, "status": 503`)})
	var wg sync.WaitGroup
	for c := range 8 {
		wg.Go(func() {
			for i := range 10 {
				l.do(refundPath, fmt.Sprintf(`{"order_id": "1001", "amount": %d}`, 100*c+i))
			}
		})
	}
	wg.Wait()
	f := l.finish()
	if len(f.Lines) != 80 || f.refunds("done") != 79 {
		t.Fatalf("%d calls, %d refunds", len(f.Lines), f.refunds("done"))
	}
	next := 0
	for i, line := range f.Lines {
		c := line["call"]
		if c["n"] != float64(i+1) {
			t.Fatalf("line %d: %v", i, c)
		}
		if i == 4 {
			if c["status"] != 503.0 {
				t.Errorf("the fifth call: %v", c)
			}
			continue
		}
		row := f.Tables["done"].Systems["payments"]["refunds"][next]
		next++
		if c["reply"].(map[string]any)["id"] != row["id"] || row["amount"] != c["body"].(map[string]any)["amount"] {
			t.Errorf("call %d: %v, but the row is %v", i+1, c, row)
		}
	}
}

func TestSameBytes(t *testing.T) {
	one := func() files {
		l := begin(t, scene{
			chaos: chaosRule("lost_response", `"nth": 2`) + chaosRule("phantom_success", `"nth": 4`),
		})
		l.do("POST /crm/rows", "")
		l.do(refundPath, refundBody)
		l.do(refundPath, refundBody, "Idempotency-Key", "z")
		l.do(refundPath, refundBody)
		l.do("GET /nowhere?b=1&a=2", "")
		l.do("POST /report", `{"success": true}`)
		return l.finish()
	}
	a, b := one(), one()
	if !bytes.Equal(a.run, b.run) || !bytes.Equal(a.tables, b.tables) || !bytes.Equal(a.events, b.events) {
		t.Error("two runs of the same calls differ")
	}
}

func TestStartLeavesNothing(t *testing.T) {
	w := fixtureWorld(t)
	w.system("payments").seed = w.operation("POST /payments/misbehave").fn // takes (req, db, emit): fails
	folder := t.TempDir()
	if _, err := Start(t.Context(), w, parseScene(t, w, scene{}), folder, nil); err == nil || !strings.HasPrefix(err.Error(), "seed payments: ") {
		t.Errorf("err = %v", err)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
}

// TestParams: what an agent leaves out never makes an operation fail.
func TestParams(t *testing.T) {
	l := begin(t, scene{})
	l.want(refundPath, `{"order_id": "1001"}`, 400, `{"error":"amount is missing: int is meant"}`)
	l.want(refundPath, `{"order_id": "1001", "amount": null}`, 400, `{"error":"amount is missing: int is meant"}`)
	l.want(refundPath, "", 400, `{"error":"order_id is missing: string is meant"}`)
	l.want("GET /payments/refunds?limit=x", "", 400, `{"error":"limit: int is meant"}`)
	// An int is one that no addition of an operation's makes overflow.
	l.want(refundPath, `{"order_id": "1001", "amount": 9007199254740992}`, 400, `{"error":"amount: int is meant"}`)
	l.want(refundPath, `{"order_id": "1001", "amount": -9223372036854775808}`, 400, `{"error":"amount: int is meant"}`)
	l.want(refundPath, `{"order_id": "1001", "amount": 1180591620717411303424}`, 400, `{"error":"amount: int is meant"}`)
	l.want(refundPath, `{"order_id": "1002", "amount": -9007199254740991}`, 201, `{"amount":-9007199254740991,"id":"RF-1","order":"1002"}`)
	l.want("GET /payments/refunds?limit=9007199254740992", "", 400, `{"error":"limit: int is meant"}`)
	l.want("GET /payments/numbered/12a", "", 400, `{"error":"n: int is meant"}`)
	l.want("GET /payments/numbered/9007199254740992", "", 400, `{"error":"n: int is meant"}`)
	l.want("GET /payments/numbered/-7", "", 404, `{"error":"no such order"}`)
	l.want("GET /payments/refunds?limit=7&order=1001", "", 200, "[]")
	l.want("GET /payments/orders/1001", "", 200, `{"id":"1001","paid":true,"tags":["new"],"total":4500}`)
	l.want("POST /crm/orders/1/notes", `{"text": "a", "score": null}`, 200, `{"data":null,"flag":null,"id":"N-1","score":null,"text":"a"}`)
	status, body, delivered := l.act.Do(refundPath, map[string]any{"order_id": "1001"}, "")
	if status != 400 || !delivered || fmt.Sprintf("%s", body) != `{"error":"amount is missing: int is meant"}` {
		t.Errorf("a call of a tool: %d %s, %v", status, body, delivered)
	}
	if g := l.do("GET /tools", ""); !strings.Contains(g.body, `"params":{"limit":"int?","order":"string?"}`) {
		t.Errorf("%s", g.body)
	}
	l.finish()
}

// TestRecordingOfAct serves what an act wrote.
func TestRecordingOfAct(t *testing.T) {
	l := begin(t, scene{})
	l.do(refundPath, refundBody)
	rec, err := recording.Parse("events.json", l.finish().events, "chaos.json", []byte("[]"))
	if err != nil {
		t.Fatal(err)
	}
	url, _ := serveOn(t, rec)
	g := ask(t, "GET", url+"/payments/events?at=done", "")
	if want := `,{"actor":"agent","at":1768477200,"attrs":{"amount":4500},"kind":"refund_created","seq":4,"subject":"1001"}]}`; !strings.HasSuffix(g.body, want) {
		t.Errorf("%s\nwant …%s", g.body, want)
	}
}
