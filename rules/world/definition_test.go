package world

import (
	"os"
	"strings"
	"testing"
)

// TestWorldShapes edits the fixture, a line at a time; each edit has an error
// that names the path.
func TestWorldShapes(t *testing.T) {
	text, err := os.ReadFile("testdata/world.star")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct{ old, new, want string }{
		{`"clock": "2026-01-15T12:00:00Z",`, ``, `world.star: root.clock: missing; a string is meant`},
		{`"2026-01-15T12:00:00Z"`, `5`, `world.star: root.clock: a string is meant, not int`},
		{`"clock": "2026`, `"sistems": {}, "clock": "2026`, `world.star: root: there is no "sistems" (did you mean "systems"?)`},
		{`"2026-01-15T12:00:00Z"`, `"yesterday"`, `world.star: root.clock: a time such as 2026-01-15T12:00:00Z is meant`},
		{`"amount": "int"}},
            },
            "operations"`, `"amount": "integer"}},
            },
            "operations"`, `world.star: root.systems.payments.tables.refunds.columns.amount: "integer" is none of string, int, float, bool, json`},
		{`{"key": "id", "prefix": "RF-"`, `{"key": "di", "prefix": "RF-"`, `world.star: root.systems.payments.tables.refunds.key: there is no column "di" (did you mean "id"?)`},
		{`{"key": "id", "prefix": "RF-"`, `{"key": "id", "prefix": None`, `world.star: root.systems.payments.tables.refunds.prefix: a string is meant, not NoneType`},
		{`{"key": "id", "prefix": "RF-"`, `{"key": "amount", "prefix": "RF-"`, `world.star: root.systems.payments.tables.refunds.key: the key is a string, not int`},
		{`"order": "string", "amount"`, `"ID": "string", "amount"`, `world.star: root.systems.payments.tables.refunds.columns.ID: the column "id" differs only in case`},
		{`"order": "string", "amount"`, `"#": "string", "amount"`, `world.star: root.systems.payments.tables.refunds.columns.#: the name "#": a letter or _`},
		{`"crm": {`, `"../crm": {`, `world.star: root.systems.../crm: the name "../crm": a lower-case letter`},
		{`"POST /payments/misbehave": {"fn": misbehave}`, `"POST /payments/misbehave": {"fn": 1}`, `world.star: root.systems.payments.operations.POST /payments/misbehave.fn: a function is meant, not int`},
		{`"POST /payments/misbehave"`, `"SEND /payments/misbehave"`, `world.star: root.systems.payments.operations.SEND /payments/misbehave: METHOD /payments/… is meant`},
		{`"POST /payments/misbehave"`, `"POST /crm/misbehave"`, `world.star: root.systems.payments.operations.POST /crm/misbehave: the path begins with /payments/`},
		{`"POST /payments/misbehave"`, `"POST /payments/a b"`, `world.star: root.systems.payments.operations.POST /payments/a b: "a b" is no part of a path`},
		{`"POST /payments/misbehave"`, `"POST /payments/{a}/{a}"`, `world.star: root.systems.payments.operations.POST /payments/{a}/{a}: the variable "a" stands twice in the path`},
		{`"POST /payments/misbehave"`, `"GET /payments/orders/{order}"`, `world.star: root.systems.payments.operations.GET /payments/orders/{order}: every request for it is one for "GET /payments/orders/{id}", too`},
		{`"POST /payments/misbehave"`, `"GET /payments/orders/id"`, `world.star: root.systems.payments.operations.GET /payments/orders/id: its tool has the name payments_get_orders_id, as that of "GET /payments/orders/{id}" has`},
		{`"POST /payments/misbehave"`, `"POST /payments/` + strings.Repeat("x", 60) + `"`, `world.star: root.systems.payments.operations.POST /payments/` + strings.Repeat("x", 60) + `: the tool's name`},
		{`"params": {"id": "string"}`, `"params": {"id": "string?"}`, `world.star: root.systems.payments.operations.GET /payments/orders/{id}: the variable "id" of the path can't be optional`},
		{`"params": {"order": "string", "text": "string"`, `"params": {"order": "string", "text": "str"`, `world.star: root.systems.crm.operations.POST /crm/orders/{order}/notes.params.text: "str" is none of`},
		{`"idempotency": "none"`, `"idempotency": "body"`, `world.star: root.systems.crm.idempotency: "body" is none of header, none`},
		{`"seed": {"payments": seed_payments}`, `"seed": {"crn": seed_payments}`, `world.star: root.seed.crn: there is no system "crn" (did you mean "crm"?)`},
		{`"seed": {"payments": seed_payments}`, `"seed": {"crm": "x"}`, `world.star: root.seed.crm: a function is meant, not string`},
		{`root = {`, `rot = {`, `open world.star: the text defines no root`},
		{`root = {`, `root = [][0] + {`, `open world.star:114:10: index 0 out of range`},
	} {
		edited := strings.Replace(string(text), c.old, c.new, 1)
		if edited == string(text) {
			t.Fatalf("%q isn't in the fixture", c.old)
		}
		if _, err := ParseWorld("world.star", []byte(edited)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s\nerr = %v\nwant %s", c.new, err, c.want)
		}
	}
}

func TestScenarioShapes(t *testing.T) {
	w := fixtureWorld(t)
	rule := func(more string) scene { return scene{chaos: `{"client": "agent", ` + more + `},`} }
	for _, c := range []struct {
		s    scene
		want string
	}{
		{scene{chaos: `{"client": "extractor", "mode": "unreachable"},`}, `root.chaos[0].client: "extractor" is none of agent`},
		{rule(`"mode": "lost"`), `root.chaos[0].mode: "lost" is none of lost_response,`},
		{rule(`"mode": "stale_read"`), `root.chaos[0].mode: "stale_read" is none of`},
		{rule(`"mode": "error"`), `root.chaos[0].status: missing; an int is meant`},
		{rule(`"mode": "error", "status": 200`), `root.chaos[0].status: 200 is not in 400…599`},
		{rule(`"mode": "unreachable", "nth": 0`), `root.chaos[0].nth: 0 is not in 1…1000000`},
		{rule(`"mode": "before"`), `root.chaos[0].fn: missing; a function is meant`},
		{rule(`"mode": "unreachable", "fn": len`), `root.chaos[0].fn: unreachable takes no function`},
		{rule(`"mode": "unreachable", "system": "cmr"`), `root.chaos[0].system: there is no system "cmr" (did you mean "crm"?)`},
		{rule(`"mode": "unreachable", "operation": "POST /payments/refund"`), `root.chaos[0].operation: there is no operation "POST /payments/refund" (did you mean "POST /payments/refunds"?)`},
		{rule(`"mode": "unreachable", "operation": "POST /payments/incident"`), `root.chaos[0].operation: "POST /payments/incident" is internal`},
		{rule(`"mode": "unreachable", "system": "crm", "operation": "POST /payments/refunds"`), `root.chaos[0].operation: "POST /payments/refunds" is no operation of crm`},
		{rule(`"mode": "unreachable", "when": 1`), `root.chaos[0]: there is no "when"`},
		{scene{priors: `{"request": {}, "task": "", "ago": 1},`}, `root.script: prior runs need a script`},
		{scene{priors: `{"request": {}, "task": "", "ago": "2h"},`, script: "len"}, `root.prior_runs[0].ago: an int is meant, not string`},
		{scene{priors: `{"request": [], "task": "", "ago": 1},`, script: "len"}, `root.prior_runs[0].request: a dict is meant, not list`},
		{scene{after: "5"}, `root.after_settlement: a function is meant, not int`},
		{scene{chaos: `"all",`}, `root.chaos[0]: a dict is meant, not string`},
	} {
		if _, err := ParseScenario("scenario.star", []byte(c.s.text()), w); err == nil || !strings.HasPrefix(err.Error(), "read scenario.star: "+c.want) {
			t.Errorf("err = %v\nwant %s", err, c.want)
		}
	}
}

func TestOperations(t *testing.T) {
	op := fixtureWorld(t).operation("POST /crm/orders/{order}/notes")
	if op.Name != "crm_post_orders_order_notes" || op.Method != "POST" || op.Path != "/crm/orders/{order}/notes" ||
		len(op.Variables) != 1 || op.Variables[0] != "order" || len(op.Params) != 3 || op.Params[1] != (Param{"text", "string", false}) || op.Params[2] != (Param{"score", "float", true}) {
		t.Errorf("%+v", op)
	}
}

func TestParseAgo(t *testing.T) {
	for s, want := range map[string]int64{"": 1, "2d": 172800, "3h": 10800, "10m": 600, "5s": 5} {
		if got, err := parseAgo(s, 1); got != want || err != nil {
			t.Errorf("%q: %d, %v", s, got, err)
		}
	}
	for _, s := range []string{"0s", "-1d", "d", "5", "1w", "99999999d", "1.5h", "5é"} {
		if got, err := parseAgo(s, 1); err == nil {
			t.Errorf("%q is taken as %d", s, got)
		}
	}
}
