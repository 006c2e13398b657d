package mcp

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"

	sdk "github.com/modelcontextprotocol/go-sdk/mcp"

	"github.com/evalbuild/eval/rules/world/wire"
)

// A fakeWorld answers a call by its operation and notes it.
type fakeWorld struct {
	answer func(n int, operation string, args map[string]any) (int, any, bool)

	mu    sync.Mutex
	calls []string
}

func (f *fakeWorld) Do(operation string, args map[string]any, key string) (int, any, bool) {
	b, err := json.Marshal(args)
	if err != nil {
		panic(err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, strings.TrimSpace(fmt.Sprintf("%s %s %s", operation, b, key)))
	if f.answer == nil {
		return 200, json.RawMessage(`{"ok":true}`), true
	}
	return f.answer(len(f.calls), operation, args)
}

func (f *fakeWorld) Report(success bool, message string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.calls = append(f.calls, fmt.Sprintf("report %v %s", success, message))
}

var operations = []Operation{
	{Name: "orders_get_id", Pattern: "GET /orders/{id}", Variables: []string{"id"}, Doc: "An order."},
	{Name: "payments_post_refunds", Pattern: "POST /payments/refunds", Doc: "Refund <an order>.", Params: []Param{
		{"order_id", "string", true}, {"amount", "int", true}, {"rate", "float", true}, {"force", "bool", true}, {"extra", "json", true},
	}},
	{Name: "orders_patch_id", Pattern: "PATCH /orders/{id}/lines/{line}", Variables: []string{"id", "line"}, Params: []Param{{"line", "int", false}, {"note", "string", true}}},
	{Name: "orders_post_lines", Pattern: "POST /orders/lines", Params: []Param{{"sku", "string", false}, {"note", "json", true}}},
}

func serve(t *testing.T, world World) string {
	t.Helper()
	h, err := New(operations, world)
	if err != nil {
		t.Fatal(err)
	}
	mux := http.NewServeMux()
	mux.Handle("/mcp", h)
	srv := httptest.NewServer(mux)
	t.Cleanup(srv.Close)
	return srv.URL + "/mcp"
}

func connect(t *testing.T, url string) *sdk.ClientSession {
	t.Helper()
	c := sdk.NewClient(&sdk.Implementation{Name: "test", Version: "1"}, nil)
	s, err := c.Connect(t.Context(), &sdk.StreamableClientTransport{Endpoint: url, DisableStandaloneSSE: true, MaxRetries: -1}, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func call(t *testing.T, s *sdk.ClientSession, tool string, args any) (text string, isError bool) {
	t.Helper()
	r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: tool, Arguments: args})
	if err != nil {
		t.Fatalf("%s: %v", tool, err)
	}
	if len(r.Content) != 1 {
		t.Fatalf("%s: %d contents", tool, len(r.Content))
	}
	return r.Content[0].(*sdk.TextContent).Text, r.IsError
}

type object = map[string]any

func TestList(t *testing.T) {
	s := connect(t, serve(t, new(fakeWorld)))
	r, err := s.ListTools(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]string{}
	for _, tool := range r.Tools {
		b, err := json.Marshal(tool.InputSchema)
		if err != nil {
			t.Fatal(err)
		}
		got[tool.Name] = tool.Description + " " + string(b)
	}
	const key = `"idempotency_key":{"description":"The same key with the same arguments is carried out once.","type":"string"}`
	want := map[string]string{
		"orders_get_id": `An order. {"properties":{"id":{"type":"string"},` + key + `},"required":["id"],"type":"object"}`,
		"payments_post_refunds": `Refund <an order>. {"additionalProperties":false,"properties":{"amount":{"maximum":9007199254740991,"minimum":-9007199254740991,"type":"integer"},"extra":{},"force":{"type":"boolean"},` +
			key + `,"order_id":{"type":"string"},"rate":{"type":"number"}},"type":"object"}`,
		"orders_patch_id": ` {"additionalProperties":false,"properties":{"id":{"type":"string"},` + key +
			`,"line":{"maximum":9007199254740991,"minimum":-9007199254740991,"type":"integer"},"note":{"type":"string"}},"required":["id","line"],"type":"object"}`,
		"orders_post_lines": ` {"additionalProperties":false,"properties":{` + key + `,"note":{},"sku":{"type":"string"}},"required":["sku"],"type":"object"}`,
		"report":            reportTool.Doc + ` {"additionalProperties":false,"properties":{"message":{"type":"string"},"success":{"type":"boolean"}},"required":["success"],"type":"object"}`,
	}
	for name, w := range want {
		if got[name] != w {
			t.Errorf("%s: %s\nwant %s", name, got[name], w)
		}
	}
	if len(got) != len(want) {
		t.Errorf("%d tools, want %d", len(got), len(want))
	}
}

func TestCall(t *testing.T) {
	f := &fakeWorld{answer: func(n int, _ string, _ object) (int, any, bool) {
		return []int{201, 200, 403, 500, 200}[n-1], []any{
			json.RawMessage(`{"id": "RF-1", "note": "<&>"}`), nil, object{"error": "not <yours>"}, nil, []any{1},
		}[n-1], true
	}}
	s := connect(t, serve(t, f))
	for _, c := range []struct {
		tool    string
		args    any
		text    string
		isError bool
	}{
		{"payments_post_refunds", object{"order_id": "1001", "amount": 4500, "rate": 1, "force": true, "extra": []any{nil}}, `{"id":"RF-1","note":"<&>"}`, false},
		{"orders_get_id", object{"id": "7", "any": object{"thing": 1}}, "null", false},
		{"payments_post_refunds", object{"order_id": "1002", "idempotency_key": "k-1"}, `{"status":403,"body":{"error":"not <yours>"}}`, true},
		{"payments_post_refunds", nil, `{"status":500,"body":null}`, true},
		{"orders_patch_id", object{"id": "7", "line": json.Number("9007199254740991")}, "[1]", false},
	} {
		if text, isError := call(t, s, c.tool, c.args); text != c.text || isError != c.isError {
			t.Errorf("%s %v: %s, error %v; want %s", c.tool, c.args, text, isError, c.text)
		}
	}
	want := []string{
		`POST /payments/refunds {"amount":4500,"extra":[null],"force":true,"order_id":"1001","rate":1}`,
		`GET /orders/{id} {"any":{"thing":1},"id":"7"}`,
		`POST /payments/refunds {"order_id":"1002"} k-1`,
		`POST /payments/refunds {}`,
		`PATCH /orders/{id}/lines/{line} {"id":"7","line":9007199254740991}`,
	}
	if got := strings.Join(f.calls, "\n"); got != strings.Join(want, "\n") {
		t.Errorf("the world saw\n%s", got)
	}
}

// TestBadArguments: the world sees none of them.
func TestBadArguments(t *testing.T) {
	f := new(fakeWorld)
	s := connect(t, serve(t, f))
	for _, c := range []struct {
		tool string
		args any
		want string
	}{
		{"orders_get_id", object{}, "orders_get_id: the argument id is missing"},
		{"orders_get_id", nil, "orders_get_id: the argument id is missing"},
		{"orders_get_id", object{"id": 7}, "orders_get_id: the argument id is of type string"},
		{"orders_get_id", object{"id": "7", "idempotency_key": 1}, "orders_get_id: the argument idempotency_key is of type string"},
		{"orders_get_id", []any{"7"}, "orders_get_id: the arguments are an object"},
		{"payments_post_refunds", object{"order": "7"}, "payments_post_refunds: there is no argument order; there are order_id, amount, rate, force, extra, idempotency_key"},
		{"payments_post_refunds", object{"amount": "4500"}, "payments_post_refunds: the argument amount is of type int"},
		{"payments_post_refunds", object{"amount": 4500.5}, "payments_post_refunds: the argument amount is of type int"},
		{"payments_post_refunds", object{"amount": json.Number("9007199254740992")}, "payments_post_refunds: the argument amount is of type int"},
		{"payments_post_refunds", object{"amount": json.Number("-12345678901234567890")}, "payments_post_refunds: the argument amount is of type int"},
		{"payments_post_refunds", object{"rate": true}, "payments_post_refunds: the argument rate is of type float"},
		{"payments_post_refunds", object{"rate": json.Number("1e301")}, "payments_post_refunds: the argument rate is of type float"},
		{"orders_post_lines", object{"note": 1}, "orders_post_lines: the argument sku is missing"},
		{"orders_post_lines", object{"sku": nil}, "orders_post_lines: the argument sku is of type string"},
		{"report", object{}, "report: the argument success is missing"},
		{"report", object{"success": "yes"}, "report: the argument success is of type bool"},
		{"report", object{"success": true, "idempotency_key": "k"}, "report: there is no argument idempotency_key; there are success, message"},
	} {
		if text, isError := call(t, s, c.tool, c.args); text != c.want || !isError {
			t.Errorf("%s %v: %s, error %v; want %s", c.tool, c.args, text, isError, c.want)
		}
	}
	if _, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "crm_get_events"}); err == nil {
		t.Error("a tool that doesn't exist was called")
	}
	if len(f.calls) != 0 {
		t.Errorf("the world saw %v", f.calls)
	}
}

func TestReport(t *testing.T) {
	f := new(fakeWorld)
	s := connect(t, serve(t, f))
	call(t, s, "report", object{"success": false, "message": "no luck"})
	call(t, s, "report", object{"success": true})
	if got, want := strings.Join(f.calls, ";"), "report false no luck;report true "; got != want {
		t.Errorf("%s; want %s", got, want)
	}
}

// TestLostReply: the call is made once, its reply is never seen, and the next
// call finds a server as if nothing was.
func TestLostReply(t *testing.T) {
	f := &fakeWorld{answer: func(n int, _ string, _ object) (int, any, bool) {
		return 200, object{"secret": n}, n != 2
	}}
	url := serve(t, f)
	s := connect(t, url)
	call(t, s, "orders_get_id", object{"id": "1"})
	if r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "orders_get_id", Arguments: object{"id": "2"}}); err == nil {
		t.Errorf("the lost reply was answered: %+v", r)
	}
	if text, isError := call(t, s, "orders_get_id", object{"id": "3"}); text != `{"secret":3}` || isError {
		t.Errorf("after the lost reply: %s", text)
	}
	if len(f.calls) != 3 {
		t.Errorf("the world saw %v", f.calls)
	}
}

// TestLostReplyOnTheWire: not a byte comes back, whatever the client's protocol.
func TestLostReplyOnTheWire(t *testing.T) {
	f := &fakeWorld{answer: func(_ int, _ string, args object) (int, any, bool) {
		return 200, strings.Repeat("x", 1<<16), args["id"] != "1" // more than net/http keeps back
	}}
	url := serve(t, f)
	const one = `{"jsonrpc":"2.0","id":%[1]d,"method":"tools/call","params":{"name":"orders_get_id","arguments":{"id":"%[1]d"}}}`
	for _, c := range []struct{ version, body string }{
		{"", fmt.Sprintf(one, 1)},
		{"2025-03-26", fmt.Sprintf(one, 1)},
		{"2025-06-18", fmt.Sprintf(one, 1)},
		{"2025-11-25", fmt.Sprintf(one, 1)},
	} {
		req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		req.Header.Set(exchangeHeader, "1000") // a client can't choose another's exchange
		if c.version != "" {
			req.Header.Set("MCP-Protocol-Version", c.version)
		}
		resp, err := http.DefaultClient.Do(req)
		if err == nil {
			resp.Body.Close()
			t.Errorf("version %q: answered with %s", c.version, resp.Status)
		}
	}
	if len(f.calls) != 4 {
		t.Errorf("%d calls of 4", len(f.calls))
	}
}

// TestManyCalls: 1,000 from eight clients at once; every hundredth reply is lost.
func TestManyCalls(t *testing.T) {
	f := &fakeWorld{answer: func(_ int, _ string, args object) (int, any, bool) {
		return 200, args, !strings.HasSuffix(args["id"].(string), "00")
	}}
	url := serve(t, f)
	var all sync.WaitGroup
	for c := range 8 {
		s := connect(t, url)
		all.Go(func() {
			for n := range 125 {
				id := fmt.Sprint(1000 + c*125 + n)
				r, err := s.CallTool(t.Context(), &sdk.CallToolParams{Name: "orders_get_id", Arguments: object{"id": id}})
				lost := strings.HasSuffix(id, "00")
				if lost != (err != nil) {
					t.Errorf("call %s: %v", id, err)
				}
				if err == nil && r.Content[0].(*sdk.TextContent).Text != `{"id":"`+id+`"}` {
					t.Errorf("call %s got another's reply: %v", id, r.Content[0])
				}
			}
		})
	}
	all.Wait()
	if len(f.calls) != 1000 {
		t.Errorf("%d calls of 1000", len(f.calls))
	}
}

func TestTransport(t *testing.T) {
	f := new(fakeWorld)
	url := serve(t, f)
	const call = `{"jsonrpc":"2.0","id":1,"method":"tools/call","params":{"name":"orders_get_id","arguments":{"id":"1"}}}`
	for _, c := range []struct {
		method, body string
		status       int
		kind         string
	}{
		{"GET", "", http.StatusMethodNotAllowed, "text/plain; charset=utf-8"},
		{"POST", strings.Repeat(" ", wire.MaxBody+1), http.StatusRequestEntityTooLarge, "application/json"},
		{"POST", "[" + call + "]", http.StatusBadRequest, "application/json"},
		{"POST", " [" + call + "," + call + "]", http.StatusBadRequest, "application/json"},
		{"POST", "[]", http.StatusBadRequest, "application/json"},
		{"POST", `{"jsonrpc":"2.0","id":1,"method":"tools/list"}`, http.StatusOK, "application/json"}, // no event stream, no session
	} {
		req, err := http.NewRequestWithContext(t.Context(), c.method, url, strings.NewReader(c.body))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set("Content-Type", "application/json")
		req.Header.Set("Accept", "application/json, text/event-stream")
		resp, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		resp.Body.Close()
		if resp.StatusCode != c.status || resp.Header.Get("Content-Type") != c.kind || resp.Header.Get("Mcp-Session-Id") != "" {
			t.Errorf("%s of %d bytes: %s, %v", c.method, len(c.body), resp.Status, resp.Header)
		}
	}
	if len(f.calls) != 0 {
		t.Errorf("the world saw %v", f.calls)
	}
}

func TestNewRefuses(t *testing.T) {
	for _, c := range []struct {
		ops  []Operation
		want string
	}{
		{[]Operation{{Name: "a", Pattern: "GET /a/b", Params: []Param{{"x", "date", false}}}}, `tool a: parameter x: there is no type "date"`},
		{[]Operation{{Name: "a", Pattern: "GET /a/b", Params: []Param{{"x", "int", false}, {"x", "int", false}}}}, "tool a: parameter x: the name is taken"},
		{[]Operation{{Name: "a", Pattern: "GET /a/b", Params: []Param{{"idempotency_key", "string", false}}}}, "the name is taken"},
		{[]Operation{{Name: "a", Pattern: "GET /a/b"}, {Name: "a", Pattern: "GET /a/c"}}, "tool a: the name is taken by GET /a/b"},
		{[]Operation{{Name: "report", Pattern: "POST /a/b"}}, "tool report: the name is taken by the report"},
		{[]Operation{{Name: "a", Pattern: "GET /a/{idempotency_key}", Variables: []string{"idempotency_key"}}}, "path variable idempotency_key: the name is taken"},
	} {
		if _, err := New(c.ops, new(fakeWorld)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v; want %q", c.ops, err, c.want)
		}
	}
}
