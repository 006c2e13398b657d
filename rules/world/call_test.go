package world

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"strings"
	"testing"

	"github.com/evalbuild/eval/rules/world/wire"
)

// extras are what the log has of a call beside what every call has.
func extras(call map[string]any) string {
	var out []string
	for _, name := range []string{"method", "malformed", "raw", "oversize"} {
		if v, ok := call[name]; ok {
			out = append(out, fmt.Sprintf("%s=%v", name, v))
		}
	}
	return strings.Join(out, " ")
}

// TestBodiesInTheLog: what canonical JSON would make another value of is kept as
// it came, and nothing else is.
func TestBodiesInTheLog(t *testing.T) {
	l := begin(t, scene{})
	deep := strings.Repeat("[", 100) + "1" + strings.Repeat("]", 100)
	del := `"` + strings.Repeat("\x7f", wire.MaxBody/2) + `"` // \u007f each
	cases := []struct {
		body   string
		status int
		extra  string
	}{
		{`{"b": 1, "a": [1e-7, 0.5, 12345678901234567890, -0, "é\u0000\udcff"]}`, 200, ""},
		{`1.0`, 200, "raw=1.0"},
		{`{"z": [{"y": 1e3}]}`, 200, `raw={"z": [{"y": 1e3}]}`},
		{`[-0.0]`, 200, "raw=[-0.0]"},
		{`1e20`, 200, "raw=1e20"}, // written as an int of 21 digits
		{`1e21`, 200, ""},
		{`null`, 200, ""},
		{" \n", 200, ""},
		{deep, 200, ""},
		{"[" + deep + "]", 400, "malformed=[" + deep + "]"},
		{"\xff", 400, "malformed=\ufffd"}, // encoding/json of the test reads it so
		{del, 200, "raw=" + del},
		{strings.Repeat(" ", wire.MaxBody+1), 413, fmt.Sprintf("oversize=%v", float64(wire.MaxBody+1))},
		{strings.Repeat("x", 3*wire.MaxBody), 413, fmt.Sprintf("oversize=%v", float64(wire.MaxBody+1))},
	}
	for _, c := range cases {
		if g := l.do("POST /payments/echo/a/b", c.body); g.status != c.status {
			t.Errorf("%.60s: %d %.200s; want %d", c.body, g.status, g.body, c.status)
		}
	}
	f := l.finish()
	for i, c := range cases {
		if got := extras(f.Lines[i]["call"]); got != c.extra {
			t.Errorf("%.60s: the log has %.200s; want %.200s", c.body, got, c.extra)
		}
	}
}

// TestNoCalls: what couldn't be sent again is refused, and isn't in the log.
func TestNoCalls(t *testing.T) {
	l := begin(t, scene{})
	long := "/payments/echo/a/" + strings.Repeat("x", wire.MaxTarget)
	for _, c := range []struct {
		operation string
		headers   []string
		status    int
	}{
		{"HEAD /payments/refunds", nil, 405},
		{"OPTIONS /tools", nil, 405},
		{"M-SEARCH /nowhere", nil, 405},
		{"get /payments/refunds", nil, 405},
		{refundPath, []string{"Idempotency-Key", "a\tb"}, 400},
		{refundPath, []string{"Idempotency-Key", strings.Repeat("k", 256)}, 400},
		{"POST /nowhere", []string{"Idempotency-Key", "a\tb"}, 400},
		{"POST " + long, nil, 414},
		{"POST /payments/echo/a/b?q=" + strings.Repeat("'", wire.MaxTarget/3), nil, 414}, // %27 each
	} {
		g := l.do(c.operation, "", c.headers...)
		if g.status != c.status || (g.body == "") != strings.HasPrefix(c.operation, "HEAD") {
			t.Errorf("%.60s: %d %.200s; want %d", c.operation, g.status, g.body, c.status)
		}
		if g.status == 405 && g.header.Get("Allow") != "GET, POST, PUT, PATCH, DELETE" {
			t.Errorf("%s: %v", c.operation, g.header)
		}
	}
	for _, first := range []string{"GET *", "GET http://w", "GET a:b"} {
		conn, err := net.Dial("tcp", strings.TrimPrefix(l.url, "http://"))
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(conn, "%s HTTP/1.1\r\nHost: w\r\n\r\n", first)
		resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
		if err != nil || resp.StatusCode != 400 {
			t.Errorf("%s: %+v, %v", first, resp, err)
		}
		conn.Close()
	}
	for _, c := range []struct {
		operation string
		args      map[string]any
		key       string
		status    int
	}{
		{refundPath, nil, "a\nb", 400},
		{refundPath, nil, " a", 400},
		{refundPath, nil, "a ", 400},
		{refundPath, nil, strings.Repeat("k", 256), 400},
		{"GET /payments/orders/{id}", map[string]any{"id": strings.Repeat("/", wire.MaxTarget/3)}, "", 414},
		{"GET /payments/refunds", map[string]any{"order": strings.Repeat("x", wire.MaxTarget)}, "", 414},
	} {
		if status, body, delivered := l.act.Do(c.operation, c.args, c.key); status != c.status || !delivered {
			t.Errorf("%s, key %.20q: %d %s", c.operation, c.key, status, body)
		}
	}
	// What is just within the bounds is a call.
	if g := l.do(refundPath, refundBody, "Idempotency-Key", strings.Repeat("é", 127)); g.status != 201 {
		t.Errorf("a key of 254 bytes: %d %s", g.status, g.body)
	}
	if g := l.do("POST "+long[:wire.MaxTarget], ""); g.status != 200 {
		t.Errorf("a target of %d bytes: %d", wire.MaxTarget, g.status)
	}
	if f := l.finish(); len(f.Lines) != 2 {
		t.Errorf("%d calls in the log, want 2", len(f.Lines))
	}
}

// TestLongMessage: a report can always be sent again.
func TestLongMessage(t *testing.T) {
	l := begin(t, scene{})
	l.want("POST /report", `{"success": true, "message": "`+strings.Repeat("\x7f", wire.MaxBody-100)+`"}`, 200, `{"ok":true}`)
	if f := l.finish(); len(f.Lines[0]["report"]["message"].(string)) != 64<<10 || len(f.run) > wire.MaxBody {
		t.Errorf("the message has %d bytes of the report's %d", len(f.Lines[0]["report"]["message"].(string)), len(f.run))
	}
}
