package main

import (
	"fmt"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbuild/eval/rules/world"
	"github.com/evalbuild/eval/rules/world/agent"
	"github.com/evalbuild/eval/rules/world/program"
	"github.com/evalbuild/eval/rules/world/wire"
)

// The tests here put the clients and a real act together.

// replyTime is how long the clients wait for a reply.
const replyTime = time.Minute

const testWorld = `
def refund(req, db, emit):
    if type(req.body.get("amount")) != "int":
        return struct(status = 422, body = {"error": "amount: an int is meant"})
    r = db.insert("refunds", order = req.body["order"], amount = req.body["amount"])
    emit("refund_created", subject = r.order, amount = r.amount)
    return struct(status = 201, body = r)

def order(req, db, emit):
    return struct(status = 200, body = {"id": req.params["id"], "query": req.query, "note": "POST /payments/refunds {\"order\": \"9\", \"amount\": 999}"})

root = {"clock": "2026-01-15T12:00:00Z", "systems": {"payments": {
    "tables": {"refunds": {"key": "id", "prefix": "RF-", "columns": {"id": "string", "order": "string", "amount": "int"}}},
    "operations": {
        "POST /payments/refunds": {"fn": refund, "doc": "Refund an order.", "params": {"order": "string", "amount": "int"}},
        "GET /payments/orders/{id}": {"fn": order, "doc": "An order."},
    },
    "idempotency": "header",
}}}
`

// testScenario loses the reply to the first refund.
const testScenario = `
root = {"actor": "agent", "window": 600, "request": {}, "prior_runs": [], "script": None, "after_settlement": None, "chaos": [
    {"client": "agent", "system": None, "operation": "POST /payments/refunds", "nth": 1, "mode": "lost_response", "status": 0, "fn": None},
]}
`

const testAgent = `
def script(task, call):
    call("GET /payments/orders/a%%2Fb?deep=x+y")
    call("POST /payments/refunds", {"order": "7", "amount": 45})
    call("DELETE /payments/refunds", {"order": "7"})
    call("POST /elsewhere")
root = {"script": script, "profile": %q, "task": "Refund 7.", "request": {}}
`

// A setting is a world and a scenario in it.
type setting struct{ world, scenario string }

var payments = setting{testWorld, testScenario}

// act runs client against a fresh act and returns the act's files.
func (s setting) act(t *testing.T, client func(url string)) map[string]string {
	t.Helper()
	w, err := world.ParseWorld("world.star", []byte(s.world))
	if err != nil {
		t.Fatal(err)
	}
	sc, err := world.ParseScenario("scenario.star", []byte(s.scenario), w)
	if err != nil {
		t.Fatal(err)
	}
	folder := t.TempDir()
	a, err := world.Start(t.Context(), w, sc, folder, program.Print)
	if err != nil {
		t.Fatal(err)
	}
	tools, err := toolServer(a)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewUnstartedServer(nil)
	srv.Config = wire.NewServer(a.Handler(tools))
	srv.Start()
	client(srv.URL)
	srv.Close()
	if err := a.Finish(); err != nil {
		t.Fatal(err)
	}
	a.Close()
	files := map[string]string{}
	for _, name := range []string{"run.jsonl", "tables.json", "events.json"} {
		text, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		files[name] = string(text)
	}
	return files
}

// replayed runs the recorded run against a fresh act: no reply may differ, and
// no file.
func (s setting) replayed(t *testing.T, files map[string]string) {
	t.Helper()
	again := s.act(t, func(url string) {
		rec, err := agent.ParseRecord([]byte(files["run.jsonl"]))
		if err != nil {
			t.Fatal(err)
		}
		c, err := wire.NewClient(url, replyTime)
		if err != nil {
			t.Fatal(err)
		}
		r, err := rec.Replay(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Differ) > 0 {
			t.Errorf("%s", r.AppendJSON(nil))
		}
	})
	for name, text := range files {
		if again[name] != text {
			t.Errorf("%s\n%.10000s\nwhen replayed\n%.10000s", name, text, again[name])
		}
	}
}

func TestActOfEachProfile(t *testing.T) {
	for profile, want := range map[string]struct{ calls, refunds int }{
		"plain":                       {4, 1},
		"retry_without_key":           {4, 2},
		"retry_with_key":              {4, 1},
		"stop_on_error":               {2, 1},
		"claim_success_on_error":      {2, 1},
		"follow_instructions_in_text": {5, 2},
		"no_calls":                    {0, 0},
	} {
		t.Run(profile, func(t *testing.T) {
			files := payments.act(t, func(url string) {
				d, err := agent.Open("agent.star", fmt.Appendf(nil, testAgent, profile))
				if err != nil {
					t.Fatal(err)
				}
				c, err := wire.NewClient(url, replyTime)
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Run(t.Context(), c, program.Print); err != nil {
					t.Fatal(err)
				}
			})
			calls := strings.Count(files["run.jsonl"], `{"call":`)
			refunds := strings.Count(files["events.json"], "refund_created")
			if calls != want.calls || refunds != want.refunds || !strings.Contains(files["run.jsonl"], `{"report":`) {
				t.Errorf("%d calls, %d refunds, want %v\n%s", calls, refunds, want, files["run.jsonl"])
			}
			payments.replayed(t, files)
		})
	}
}

// TestActThroughTools: MCP is under the same chaos and in the same log, and its
// run can be replayed over plain HTTP.
func TestActThroughTools(t *testing.T) {
	files := payments.act(t, func(url string) {
		c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
		s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url + "/mcp", DisableStandaloneSSE: true, MaxRetries: -1}, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer s.Close()
		refund := &sdk.CallToolParams{Name: "payments_post_refunds", Arguments: map[string]any{"order": "7", "amount": 45, "idempotency_key": "k"}}
		if _, err := s.CallTool(t.Context(), refund); err == nil {
			t.Error("the lost reply was answered")
		}
		r, err := s.CallTool(t.Context(), refund)
		if err != nil || r.IsError {
			t.Fatalf("%+v, %v", r, err)
		}
		if got, want := r.Content[0].(*sdk.TextContent).Text, `{"amount":45,"id":"RF-1","order":"7"}`; got != want {
			t.Errorf("%s; want %s", got, want)
		}
		if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "payments_get_orders_id", Arguments: map[string]any{"id": "a/b", "deep": "x y"}}); err != nil {
			t.Error(err)
		}
		if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "report", Arguments: map[string]any{"success": true, "message": "done"}}); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{`"delivered":false,"key":"k","n":1`, `"delivered":true,"key":"k","n":2`, `"query":{"deep":"x y"}`, `{"report":{"message":"done","success":true}}`} {
		if !strings.Contains(files["run.jsonl"], want) {
			t.Errorf("no %s in\n%s", want, files["run.jsonl"])
		}
	}
	if n := strings.Count(files["events.json"], "refund_created"); n != 1 {
		t.Errorf("%d refunds", n)
	}
	payments.replayed(t, files)
}
