package agent

import (
	"strings"
	"testing"
)

const recorded = `{"call":{"body":{"amount":3,"order":"7"},"delivered":true,"key":null,"n":1,"operation":"POST /pay","path":"/pay","query":{},"reply":{"id":"P-1","sum":3.5},"status":201}}
{"call":{"body":{"amount":3,"order":"7"},"delivered":false,"key":"call-1","n":2,"operation":"POST /pay","path":"/pay","query":{},"reply":null,"status":0}}
{"call":{"body":null,"delivered":true,"key":null,"n":3,"operation":"GET /orders/{id}","path":"/orders/7 8","query":{"b":"x y","a":"é"},"reply":{},"status":200}}
{"call":{"body":null,"delivered":true,"key":null,"method":"PUT","n":4,"operation":"","path":"/nowhere","query":{},"reply":{"error":"no such path"},"status":404}}
{"call":{"body":null,"delivered":true,"key":null,"malformed":"{","n":5,"operation":"POST /pay","path":"/pay","query":{},"reply":{"error":"not JSON"},"status":400}}
{"call":{"body":{"a":1},"delivered":true,"key":null,"n":6,"operation":"POST /pay","path":"/pay","query":{},"raw":"{\"a\": 1.0}","reply":{},"status":200}}
{"report":{"message":"ok","success":true}}
`

var sent = []string{
	pay, pay + " key=call-1", "GET /orders/7%208?a=%C3%A9&b=x+y", "PUT /nowhere", "POST /pay {", `POST /pay {"a": 1.0}`,
}

const reported = `{"message":"ok","success":true}`

func replay(t *testing.T, text string, f *fakeWorld) string {
	t.Helper()
	rec, err := ParseRecord([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	r, err := rec.Replay(t.Context(), f.start(t))
	if err != nil {
		t.Fatal(err)
	}
	return string(r.AppendJSON(nil))
}

func TestReplayEqual(t *testing.T) {
	f := &fakeWorld{replies: map[string][]scripted{
		"POST /pay":    {{201, ` {"sum": 3.50, "id": "P-1"}`}, {cutHere, ""}, {400, `{"error":"not JSON"}`}, {200, "{}"}},
		"PUT /nowhere": {{404, `{"error":"no such path"}`}},
	}}
	if got, want := replay(t, recorded, f), `{"calls":6,"differ":[]}`+"\n"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	f.wants(t, sent, reported)
}

func TestReplayDiffers(t *testing.T) {
	f := &fakeWorld{replies: map[string][]scripted{
		"POST /pay":    {{cutHere, ""}, {201, `{"id":"P-2"}`}, {400, `{"error":"not JSON"}`}, {200, "{}"}},
		"PUT /nowhere": {{405, `{"error":"no such path"}`}},
	}}
	want := `{"calls":6,"differ":[` +
		`{"n":1,"operation":"POST /pay","recorded":{"reply":{"id":"P-1","sum":3.5},"status":201},"replayed":{"reply":null,"status":0}},` +
		`{"n":2,"operation":"POST /pay","recorded":{"reply":null,"status":0},"replayed":{"reply":{"id":"P-2"},"status":201}},` +
		`{"n":4,"operation":"","recorded":{"reply":{"error":"no such path"},"status":404},"replayed":{"reply":{"error":"no such path"},"status":405}}]}` + "\n"
	if got := replay(t, recorded, f); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
	f.wants(t, sent, reported)
}

// TestReplayOversize sends as much as the world would have read.
func TestReplayOversize(t *testing.T) {
	f := new(fakeWorld)
	replay(t, `{"call":{"body":null,"delivered":true,"key":null,"n":1,"operation":"POST /pay","oversize":1048577,"path":"/pay","query":{},"reply":{},"status":200}}`, f)
	f.wants(t, []string{"POST /pay " + strings.Repeat(" ", 1048577)}, "")
}

func TestReplayWithoutReport(t *testing.T) {
	f := new(fakeWorld)
	if got, want := replay(t, "", f), `{"calls":0,"differ":[]}`+"\n"; got != want {
		t.Errorf("%s; want %s", got, want)
	}
	f.wants(t, nil, "")
}

func TestParseRecordRefuses(t *testing.T) {
	lines := strings.SplitAfter(recorded, "\n")
	for _, c := range []struct{ text, want string }{
		{"\n", "line 1: offset 0"},
		{lines[0] + "\n", "line 2: offset 0"},
		{"[]", "line 1: a dict is meant, not list"},
		{"{}", "line 1.call: missing"},
		{`{"event":{}}`, `line 1: there is no "event"`},
		{lines[1], "line 1.call.n: 2, and 1 is next"},
		{lines[0] + lines[0], "line 2.call.n: 1, and 2 is next"},
		{lines[6] + lines[0], "line 2: the report is the last line"},
		{`{"report":{"success":"yes","message":""}}`, "line 1.report.success: True or False is meant"},
		{`{"report":{"success":true}}`, "line 1.report.message: missing"},
		{strings.Replace(lines[0], `"status":201`, `"status":0`, 1), "line 1.call.delivered: true, with the status 0"},
		{strings.Replace(lines[0], `"delivered":true`, `"delivered":false`, 1), "line 1.call.delivered: false, with the status 201"},
		{strings.Replace(lines[1], `"reply":null`, `"reply":{}`, 1), "line 1.call.delivered: false"},
		{strings.Replace(lines[0], `"operation":"POST /pay"`, `"operation":""`, 1), "line 1.call.method: missing"},
		{strings.Replace(lines[0], `"operation":"POST /pay"`, `"operation":"LOOK /pay"`, 1), "GET, POST, PUT, PATCH or DELETE is meant"},
		{strings.Replace(lines[0], `"path":"/pay"`, `"path":"pay"`, 1), "begins with /"},
		{strings.Replace(lines[0], `"query":{}`, `"query":{"a":1}`, 1), "line 1.call.query.a: a string is meant"},
		{strings.Replace(lines[0], `"key":null`, `"key":1`, 1), "line 1.call.key: a string is meant"},
		{strings.Replace(lines[0], `"key":null`, `"key":"a\nb"`, 1), "control character"},
		{strings.Replace(lines[0], `"key":null`, `"key":"a "`, 1), "a space at an end"},
		{strings.Replace(lines[0], `"n":1`, `"n":1,"raw":7`, 1), "line 1.call.raw: a string is meant"},
		{strings.Replace(lines[0], `"n":1`, `"n":1,"oversize":1048576`, 1), "line 1.call.oversize: 1048576 is not in 1048577…2097152"},
		{strings.Replace(lines[0], `"n":1`, `"n":1,"oversize":9000000000000`, 1), "line 1.call.oversize: 9000000000000 is not in"},
	} {
		_, err := ParseRecord([]byte(c.text))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.text, err, c.want)
		}
	}
}

func TestEscaped(t *testing.T) {
	for path, want := range map[string]string{
		"/orders/7":      "/orders/7",
		"/orders/10%2F2": "/orders/10%2F2",
		"/orders/7 8":    "/orders/7%208",
		"/orders/7?8#9":  "/orders/7%3F8%239",
		"/orders/100%":   "/orders/100%25",
		"/orders/é":      "/orders/%C3%A9",
	} {
		if got := escaped(path); got != want {
			t.Errorf("%s: %s; want %s", path, got, want)
		}
	}
}

// FuzzParseRecord: what is accepted can be sent, and is numbered.
func FuzzParseRecord(f *testing.F) {
	f.Add([]byte(recorded))
	for line := range strings.SplitAfterSeq(recorded, "\n") {
		f.Add([]byte(line))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		rec, err := ParseRecord(text)
		if err != nil {
			return
		}
		for i, c := range rec.Calls {
			if c.N != int64(i+1) {
				t.Errorf("call %d has the number %d", i+1, c.N)
			}
			if err := c.Request.Check(); err != nil {
				t.Error(err)
			}
			if (c.Answer.Status == 0) && c.Answer.Body != "null" {
				t.Errorf("a lost reply has the body %s", c.Answer.Body)
			}
		}
	})
}
