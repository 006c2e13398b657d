package world

import (
	"testing"
)

func TestLostResponseCommits(t *testing.T) {
	l := begin(t, scene{chaos: chaosRule("lost_response", `"operation": "POST /payments/refunds", "nth": 1`)})
	l.want(refundPath, refundBody, 0, "", "Idempotency-Key", "k")
	l.want(refundPath, refundBody, 201, refundReply, "Idempotency-Key", "k") // the reply was remembered
	l.want(refundPath, refundBody, 201, `{"amount":4500,"id":"RF-2","order":"1001"}`)
	f := l.finish()
	if f.refunds("done") != 2 || f.kinds("payments") != "refund_created@0 refund_created@1" {
		t.Errorf("%d refunds; %s", f.refunds("done"), f.kinds("payments"))
	}
	if c := f.Lines[0]["call"]; c["delivered"] != false || c["status"] != 0.0 || c["reply"] != nil || c["operation"] != refundPath {
		t.Errorf("the log: %v", c)
	}
}

func TestPhantomSuccessLeavesNothing(t *testing.T) {
	l := begin(t, scene{chaos: chaosRule("phantom_success", `"system": "payments", "operation": "POST /payments/refunds", "nth": 1`)})
	l.want(refundPath, refundBody, 201, refundReply, "Idempotency-Key", "k")
	if f := l.act.clock.now; f != start {
		t.Errorf("the clock moved to %d", f)
	}
	l.want("GET /payments/refunds", "", 200, "[]")
	// No reply is remembered: another body under the key is a first one.
	l.want(refundPath, `{"order_id": "1002", "amount": 3}`, 201, `{"amount":3,"id":"RF-1","order":"1002"}`, "Idempotency-Key", "k")
	f := l.finish()
	if f.refunds("done") != 1 || f.kinds("payments") != "refund_created@0" {
		t.Errorf("%d refunds; %s", f.refunds("done"), f.kinds("payments"))
	}
	if c := f.Lines[0]["call"]; c["delivered"] != true || c["status"] != 201.0 {
		t.Errorf("the log: %v", c)
	}
}

func TestChaosErrors(t *testing.T) {
	l := begin(t, scene{chaos: chaosRule("error", `"system": "payments", "status": 429, "nth": 1`) +
		chaosRule("error", `"status": 403, "nth": 2`) + chaosRule("unreachable", `"system": "crm"`) + chaosRule("error", `"operation": "POST /payments/refunds", "status": 599, "nth": 3`)})
	g := l.do(refundPath, refundBody)
	if g.status != 429 || g.body != `{"error":"Too Many Requests"}` || g.header.Get("Retry-After") != "0" {
		t.Errorf("429: %v", g)
	}
	g = l.do(refundPath, refundBody)
	if g.status != 403 || g.body != `{"error":"Forbidden"}` || g.header.Get("Retry-After") != "" {
		t.Errorf("403: %v", g)
	}
	l.want("POST /crm/rows", "", 0, "")
	l.want(refundPath, refundBody, 599, `{"error":"Error"}`)
	l.want("POST /crm/orders/1/notes", "not json", 0, "") // it never got there
	l.want(refundPath, refundBody, 201, refundReply)
	f := l.finish()
	if f.refunds("done") != 1 || f.Tables["done"].Clock != start+1 || len(f.Events["crm"]) != 0 {
		t.Errorf("something was executed: %s", f.tables)
	}
}

func TestBeforeAndRewrite(t *testing.T) {
	s := scene{
		defs: `
def human(request, call):
    r = call("POST /payments/refunds", {"order_id": request["order_id"], "amount": 1}, actor = "human")
    if (r.status, r.body["amount"]) != (201, 1):
        fail("%s" % r)

def inject(body):
    body["note"] = "POST /payments/refunds {}"
    return body

def twice(body):
    return [body, body]
`,
		chaos: `
{"client": "agent", "mode": "before", "operation": "POST /payments/refunds", "nth": 1, "fn": human},
{"client": "agent", "mode": "rewrite", "operation": "GET /payments/orders/{id}", "fn": inject},
{"client": "agent", "mode": "rewrite", "operation": "GET /payments/orders/{id}", "nth": 2, "fn": twice},
{"client": "agent", "mode": "lost_response", "operation": "POST /payments/refunds", "nth": 1},
`,
	}
	l := begin(t, s)
	l.want(refundPath, refundBody, 0, "") // before goes with lost_response
	l.want("GET /payments/refunds", "", 200, `[{"amount":1,"id":"RF-1","order":"1001"},{"amount":4500,"id":"RF-2","order":"1001"}]`)
	injected := `{"id":"1001","note":"POST /payments/refunds {}","paid":true,"tags":["new"],"total":4500}`
	l.want("GET /payments/orders/1001", "", 200, injected)
	l.want("GET /payments/orders/1001", "", 200, "["+injected+","+injected+"]")
	// An error's body is another thing: a function over it would be a fault that
	// an agent can bring about.
	l.want("GET /payments/orders/7", "", 404, `{"error":"no such order"}`)
	f := l.finish()
	if e := f.Events["payments"]; e[3].Actor != "human" || e[3].At != start || e[4].Actor != "agent" || e[4].At != start+1 {
		t.Errorf("events: %v", e[3:])
	}
	if len(f.Lines) != 5 || f.Lines[2]["call"]["reply"].(map[string]any)["note"] == nil {
		t.Errorf("the log has what the agent saw: %s", f.run)
	}
}
