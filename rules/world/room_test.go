package world

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"
)

// TestLogIsBounded: an agent that asks without end is told so, by the bytes that
// the log has, and can still report.
func TestLogIsBounded(t *testing.T) {
	run := func() (files, int) {
		l := begin(t, scene{})
		body := fmt.Sprintf(`{"x": %q}`, strings.Repeat("a", 1<<20-100))
		calls := 0
		for ; calls < 100; calls++ {
			g := l.do("POST /payments/echo/a/b", body)
			if g.status == 507 && g.body == `{"error":"this run has used up its log"}` {
				break
			}
			if g.status != 200 {
				t.Fatalf("call %d: %d %.200s", calls, g.status, g.body)
			}
		}
		for _, op := range []string{refundPath, "GET /nowhere"} {
			l.want(op, refundBody, 507, `{"error":"this run has used up its log"}`)
		}
		if status, body, delivered := l.act.Do(refundPath, map[string]any{"order_id": "1001", "amount": 1}, ""); status != 507 || !delivered {
			t.Errorf("Do: %d %s", status, body)
		}
		l.want("POST /report", `{"success": true}`, 200, `{"ok":true}`)
		return l.finish(), calls
	}
	f, calls := run()
	if len(f.Lines) != calls+1 || len(f.run) < maxLog || len(f.run) > maxLog+3<<20 {
		t.Errorf("%d bytes of %d calls and a report, %d were answered", len(f.run), len(f.Lines)-1, calls)
	}
	if f.refunds("done") != 0 || f.Lines[calls]["report"] == nil {
		t.Error("a call was executed that isn't in the log, or the report isn't there")
	}
	if again, n := run(); n != calls || !bytes.Equal(f.run, again.run) {
		t.Errorf("%d calls, then %d", calls, n)
	}
}

const growing = `
def grow(req, db, emit):
    for i in range(req.body["n"]):
        if req.body["how"] == "insert":
            db.insert("rows", text = req.body["text"])
        if req.body["how"] == "emit":
            emit("grown", subject = "x", text = req.body["text"])
        if req.body["how"] == "update":
            db.update("rows", "one", text = req.body["text"] + str(i))
    return struct(status = 200, body = None)

def seed(db, emit, now):
    db.insert("rows", id = "one")

root = {"clock": "2026-01-15T12:00:00Z", "systems": {"s": {
    "tables": {"rows": {"key": "id", "prefix": "R-", "columns": {"id": "string", "text": "string"}}},
    "operations": {"POST /s/grow": {"fn": grow, "params": {"n": "int", "how": "string", "text": "string"}}}}},
    "seed": {"s": seed}}
`

// TestDatabaseIsBounded: an operation that makes much of little is rolled back,
// however it does it, and what is small still finds room.
func TestDatabaseIsBounded(t *testing.T) {
	w, err := ParseWorld("world.star", []byte(growing))
	if err != nil {
		t.Fatal(err)
	}
	sc := parseScene(t, w, scene{
		defs:  "def after(request, call):\n    if call(\"POST /s/grow\", {\"n\": 100, \"how\": \"insert\", \"text\": \"y\" * 100000}).status != 200:\n        fail(\"no room\")\n",
		after: "after",
	})
	folder := t.TempDir()
	a, err := Start(t.Context(), w, sc, folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	text := strings.Repeat("x", 100_000)
	grow := func(n int, how string, want int) {
		t.Helper()
		status, body, _ := a.Do("POST /s/grow", map[string]any{"n": n, "how": how, "text": text}, fmt.Sprint(n, how, want))
		if status != want {
			t.Errorf("%d %s: %d %s; want %d", n, how, status, body, want)
		}
	}
	grow(1_000_000, "insert", 507)
	grow(1_000_000, "emit", 507)
	grow(600, "update", 200) // 60 MB, but the row stays as large
	grow(300, "insert", 200)
	grow(300, "insert", 507)
	grow(100, "emit", 200)
	grow(1, "insert", 200)
	if err := a.Finish(); err != nil { // others than the agent find room
		t.Fatal(err)
	}
	total := int64(0)
	for _, name := range []string{"run.jsonl", "tables.json", "events.json"} {
		info, err := os.Stat(folder + "/" + name)
		if err != nil {
			t.Fatal(err)
		}
		total += info.Size()
	}
	if total < 100<<20 || total > 256<<20 {
		t.Errorf("the outputs have %d bytes", total)
	}
}
