package world

import (
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"
)

var position = regexp.MustCompile(`\w+\.star:\d+:\d+: `)

// failsWith says whether err begins with want, positions in .star files apart.
func failsWith(err error, want string) bool {
	return err != nil && strings.HasPrefix(position.ReplaceAllString(err.Error(), ""), want)
}

// TestFaults has every mistake of an operation: the request and all later ones
// are answered with 500, and nothing is written.
func TestFaults(t *testing.T) {
	const run = "run POST /payments/misbehave: "
	for how, want := range map[string]string{
		"fail":       "fail: on purpose",
		"none":       "it returned None; ok(…) or error(…) is meant",
		"dict":       `it returned {"status": 200, "body": None}; ok(…) or error(…) is meant`,
		"status":     "it returned the status 42; 200…599 is meant",
		"body":       "its reply: a value of type builtin_function_or_method has no JSON form",
		"no_content": "it returned a body with the status 204, which has none",
		"steps":      "Starlark computation cancelled: more than 10000000 steps",
		"table":      `db.get: payments has no table "refund" (did you mean "refunds"?)`,
		"column":     `db.insert refunds: there is no column "amout" (did you mean "amount"?)`,
		"type":       "db.insert refunds: column amount: int is meant, not string",
		"big":        "db.insert refunds: column amount: 1180591620717411303424 has more than 64 bits",
		"duplicate":  "db.insert orders: there is a row with the key 1001 already",
		"missing":    `db.update orders: there is no row with the key "77"`,
		"delete":     `db.delete orders: there is no row with the key "77"`,
		"rekey":      "db.update orders: the key id can't be changed",
		"positional": "db.get: the table's name is meant, and columns by name",
		"subject":    "emit: subject is missing",
		"number":     "emit: subject is a string that isn't empty, not 5",
	} {
		t.Run(how, func(t *testing.T) {
			l := begin(t, scene{})
			l.want(refundPath, refundBody, 201, refundReply)
			ended := `{"error":"the world has ended"}`
			l.want("POST /payments/misbehave", fmt.Sprintf(`{"how": %q}`, how), 500, ended)
			for _, op := range []string{refundPath, "GET /tools", "POST /report", "GET /nowhere", "GET /mcp"} {
				l.want(op, `{"success": true}`, 500, ended)
			}
			if status, _, delivered := l.act.Do("GET /payments/refunds", nil, ""); status != 500 || !delivered {
				t.Errorf("Do: %d %v", status, delivered)
			}
			err := l.act.Finish()
			if !failsWith(err, run+want) {
				t.Fatalf("err = %v\nwant %s%s", err, run, want)
			}
			if strings.Contains(want, "db.") && !strings.HasPrefix(err.Error(), run+"world.star:") {
				t.Errorf("no position: %v", err)
			}
			l.act.Close()
			if entries, _ := os.ReadDir(l.folder); len(entries) != 0 {
				t.Errorf("left behind: %v", entries)
			}
		})
	}
}

func TestFaultsOfScenarios(t *testing.T) {
	call := `
def bad(*args):
    fail("in bad")

def unknown(request, call):
    call("POST /payments/refundz")

def inner(request, call):
    call("POST /payments/misbehave", {"how": "none"})

def script(task, call):
    call("POST /payments/refunds", {"order_id": "1001", "amount": 1})
    call("POST /payments/refunds", {"order_id": "1001", "amount": 1})
`
	for _, c := range []struct {
		name string
		s    scene
		want string
	}{
		{"before", scene{chaos: `{"client": "agent", "mode": "before", "fn": bad},`}, "run before POST /payments/refunds: fail: in bad"},
		{"before calls what isn't there", scene{chaos: `{"client": "agent", "mode": "before", "fn": unknown},`}, `run before POST /payments/refunds: call "POST /payments/refundz": there is no such operation`},
		{"before calls what fails", scene{chaos: `{"client": "agent", "mode": "before", "fn": inner},`}, "run before POST /payments/refunds: run POST /payments/misbehave: it returned None"},
		{"rewrite", scene{chaos: `{"client": "agent", "mode": "rewrite", "fn": bad},`}, "rewrite reply of POST /payments/refunds: fail: in bad"},
		{"rewrite to no JSON", scene{chaos: `{"client": "agent", "mode": "rewrite", "fn": struct},`}, "rewrite reply of POST /payments/refunds: struct: unexpected positional"},
		{"after_settlement", scene{after: "bad"}, "run after_settlement: fail: in bad"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.s.defs = call
			l := begin(t, c.s)
			l.do(refundPath, refundBody)
			if err := l.act.Finish(); !failsWith(err, c.want) {
				t.Errorf("err = %v\nwant %s", err, c.want)
			}
		})
	}
	for want, s := range map[string]scene{
		"run scenario.star: root.prior_runs[0]: fail: in bad": {script: "bad", priors: `{"request": {}, "task": "", "ago": 5},`},
		// Its second write would be at the start, where the agent's run begins.
		"run scenario.star: root.prior_runs[0]: it lasts beyond the start: ago = 1 is too short": {script: "script", priors: `{"request": {}, "task": "", "ago": 1},`},
	} {
		s.defs = call
		w := fixtureWorld(t)
		if _, err := Start(t.Context(), w, parseScene(t, w, s), t.TempDir(), nil); !failsWith(err, want) {
			t.Errorf("err = %v\nwant %s", err, want)
		}
	}
}

// TestPanicIsAFault shows that a fault of ours is never a reply, either.
func TestPanicIsAFault(t *testing.T) {
	l := begin(t, scene{})
	l.act.databases["payments"] = nil
	if g := l.do(refundPath, refundBody); g.status != 0 {
		t.Errorf("status %d", g.status)
	}
	l.want("GET /tools", "", 500, `{"error":"the world has ended"}`)
	if err := l.act.Finish(); err == nil || !strings.HasPrefix(err.Error(), "internal fault: ") {
		t.Errorf("err = %v", err)
	}
}
