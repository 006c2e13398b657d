package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"strings"
	"testing"
)

// anything has an operation for each way in which a request can be read. What it
// is given is kept and sent back as Starlark writes it, with types and order.
var anything = setting{`
def keep(req, db, emit):
    text = str([req.method, req.path, req.params, req.query, req.body, req.key])
    if len(text) > 5000:
        text = "%d characters" % len(text)
    row = db.insert("rows", text = text, data = req.body)
    emit("kept", subject = row.id, body = req.body)
    return struct(status = 200, body = {"at": req.time, "text": text, "id": row.id})

def see(req, db, emit):
    return struct(status = 200, body = [str(req), len(db.find("rows"))])

def add(req, db, emit):
    row = db.update("sums", "all", n = db.get("sums", id = "all").n + req.body["n"])
    return struct(status = 201, body = row)

def refuse(req, db, emit):
    db.insert("rows", text = "rolled back")
    return struct(status = 409, body = {"error": "no"})

def seed(db, emit, now):
    db.insert("sums", id = "all", n = 0)

root = {"clock": "2026-01-15T12:00:00Z", "systems": {"s": {
    "tables": {
        "rows": {"key": "id", "prefix": "R-", "columns": {"id": "string", "text": "string", "data": "json"}},
        "sums": {"key": "id", "prefix": "", "columns": {"id": "string", "n": "int"}},
    },
    "operations": {
        "POST /s/rows/{x}": {"fn": keep},
        "PUT /s/rows/{x}": {"fn": keep},
        "GET /s/rows/{x}": {"fn": see},
        "POST /s/sums": {"fn": add, "params": {"n": "int"}},
        "PATCH /s/sums/{n}": {"fn": see, "params": {"n": "int", "f": "float?"}},
        "DELETE /s/rows": {"fn": refuse},
    }}}, "seed": {"s": seed}}
`, `
def somebody(request, call):
    call("POST /s/rows/incident", {"a": 1.0})

def cut(body):
    return {"rewritten": str(body)[:100]}

root = {"actor": "agent", "window": 600, "request": {}, "prior_runs": [], "script": None, "after_settlement": somebody, "chaos": [
    {"client": "agent", "operation": "POST /s/rows/{x}", "nth": 3, "mode": "lost_response"},
    {"client": "agent", "operation": "POST /s/rows/{x}", "nth": 4, "mode": "phantom_success"},
    {"client": "agent", "nth": 7, "mode": "error", "status": 429},
    {"client": "agent", "nth": 9, "mode": "unreachable"},
    {"client": "agent", "nth": 11, "mode": "before", "fn": somebody},
    {"client": "agent", "operation": "PUT /s/rows/{x}", "nth": 2, "mode": "rewrite", "fn": cut},
]}
`}

// A dice makes requests.
type dice struct{ *rand.Rand }

func (d dice) pick(texts ...string) string { return texts[d.IntN(len(texts))] }

func (d dice) number() string {
	return d.pick("0", "1", "-7", "1.0", "-0.0", "-0", "1e3", "1E-7", "0.1", "1e20", "1e21", "1e400", "9007199254740991", "9007199254740992",
		"9223372036854775807", "-9223372036854775808", "9223372036854775808", strings.Repeat("9", 400))
}

func (d dice) json(depth int) string {
	switch n := d.IntN(9); {
	case depth < 4 && n < 3:
		var members []string
		for i := range d.IntN(4) {
			name := d.pick("n", "z", "b", "a", "idempotency_key", "x", `\u0000`, "é")
			if d.IntN(10) > 0 {
				name += fmt.Sprint(i) // else it may be given twice
			}
			members = append(members, fmt.Sprintf(`"%s"%s:%s`, name, d.pick("", " "), d.json(depth+1)))
		}
		return "{" + strings.Join(members, d.pick(",", ", ")) + "}"
	case depth < 4 && n == 3:
		var members []string
		for range d.IntN(4) {
			members = append(members, d.json(depth+1))
		}
		return "[" + strings.Join(members, ",") + "]"
	case n < 7:
		return d.number()
	}
	return d.pick(`"x"`, `""`, "null", "true", `"\ud800"`, `"\udcff\u0000\u007f"`, "\"\x7fé\u2028\"", `"<&>"`)
}

func (d dice) body() string {
	switch d.IntN(60) {
	case 0:
		return strings.Repeat(" ", 1<<20+d.IntN(3)-1) + "1" // at the limit and beyond
	case 1:
		return `"` + strings.Repeat("\x7f", 200_000) + `"` // within it, but not in canonical JSON
	case 2:
		n := 98 + d.IntN(6)
		return strings.Repeat("[", n) + "1.0" + strings.Repeat("]", n)
	case 3, 4, 5, 6:
		return d.pick("", " ", "{", "\xff", `"`+"\xff"+`"`, "NaN", `{"a":1,"a":2}`, "1 1", "'x'", "\x00")
	case 7, 8, 9, 10, 11, 12, 13, 14:
		return `{"n":` + d.number() + d.pick("", `, "f": 1`, ` , "f": `+d.number()) + "}"
	}
	return d.json(0)
}

func (d dice) key() string {
	return d.pick("", "", "", "k", "k", "k 1", "é", "\u2028", " k", "k ", "a\tb", "a\nb", "\x00", strings.Repeat("k", 255), strings.Repeat("k", 256))
}

func (d dice) long() string { return strings.Repeat(d.pick("x", "/", "'", "é"), d.IntN(9000)) }

// http is a request as bytes.
func (d dice) http() string {
	method := d.pick("POST", "POST", "POST", "POST", "PUT", "PUT", "GET", "PATCH", "DELETE", "HEAD", "OPTIONS", "M-SEARCH", "post")
	path := d.pick("/s/rows/a", "/s/rows/a", "/s/rows/%2f%20%C3%A9", "/s/rows/\xc3\xa9", "/s/rows/%ff", "/s/rows/a;b=c'", "/s/rows/", "/s/rows", "/s/sums", "/s/sums", "/s/sums/"+d.number(),
		"//s/rows/a", "/s/../x", "/s%2frows/a", "*", "http://w/s/rows/a", "/nowhere", "/", "/s/rows/%zz", "/tools", "/report", "/s/rows/#", "/s/rows/"+strings.ReplaceAll(d.long(), "é", "%41"))
	query := d.pick("", "", "", "?a=1&a=2", "?b=2&a=1", "?a;b", "?%zz&x=1", "?%ff=%00&c", "?", "?=5", "?a=b#c", "?q=%ED%A0%80", "?q="+d.long())
	body := d.body()
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s%s HTTP/1.1\r\nHost: w\r\nConnection: close\r\n", method, path, query)
	if key := d.key(); key != "" && !strings.ContainsAny(key, "\n\x00") { // those end a header
		fmt.Fprintf(&b, "Idempotency-Key: %s\r\n", key)
	}
	if d.IntN(5) == 0 && body != "" {
		fmt.Fprintf(&b, "Transfer-Encoding: chunked\r\n\r\n%x\r\n%s\r\n0\r\n\r\n", len(body), body)
	} else {
		fmt.Fprintf(&b, "Content-Length: %d\r\n\r\n%s", len(body), body)
	}
	return b.String()
}

// tool is a call by MCP as bytes.
func (d dice) tool() string {
	name := d.pick("s_post_rows_x", "s_post_rows_x", "s_put_rows_x", "s_get_rows_x", "s_post_sums", "s_patch_sums_n", "s_delete_rows", "report", "nothing")
	args := map[string]any{}
	for range d.IntN(3) {
		args[d.pick("a", "b", "é", "n", "f", "query")] = json.RawMessage(d.json(1))
	}
	switch name {
	case "s_post_sums", "s_patch_sums_n":
		args["n"] = json.RawMessage(d.number())
	case "report":
		args = map[string]any{"success": d.IntN(2) == 0, "message": d.pick("done", "", "\x7f\x00", strings.Repeat("\x7f", 200_000))}
	case "s_post_rows_x", "s_put_rows_x", "s_get_rows_x":
		args["x"] = d.pick("a", "a/b?c#d%é\n", "..", " ", "%zz", d.long())
	}
	if key := d.key(); key != "" {
		args["idempotency_key"] = key
	}
	params, err := json.Marshal(map[string]any{"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": map[string]any{"name": name, "arguments": args}})
	if err != nil { // the dice made JSON that encoding/json refuses
		return d.http()
	}
	if d.IntN(20) == 0 {
		params = append(append([]byte("["), params...), ']')
	}
	return fmt.Sprintf("POST /mcp HTTP/1.1\r\nHost: 127.0.0.1\r\nConnection: close\r\nContent-Type: application/json\r\nAccept: application/json, text/event-stream\r\nContent-Length: %d\r\n\r\n%s", len(params), params)
}

// TestReplayIsFaithful: whatever was asked, in whichever way, the log has it so
// that a fresh act answers the same and ends the same.
func TestReplayIsFaithful(t *testing.T) {
	calls := 0
	for seed := range uint64(10) {
		d := dice{rand.New(rand.NewPCG(seed, 1))}
		files := anything.act(t, func(url string) {
			for range 80 {
				text := d.http()
				if d.IntN(3) == 0 {
					text = d.tool()
				}
				c, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
				if err != nil {
					t.Fatal(err)
				}
				io.WriteString(c, text) // a server that has seen enough may cut
				io.Copy(io.Discard, c)
				c.Close()
			}
		})
		anything.replayed(t, files)
		calls += bytes.Count([]byte(files["run.jsonl"]), []byte(`{"call":`))
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
	if calls < 300 {
		t.Errorf("only %d calls were any", calls)
	}
}
