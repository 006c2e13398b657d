package agent

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// twoCalls makes a first call, and a second whatever came of it.
const twoCalls = `
def script(task, call):
    first = call("POST /pay", {"order": task.request["order"], "amount": 3})
    print(first.ok, first.status, first.body)
    call("GET /orders/" + task.request["order"])
`

func definition(t *testing.T, script, profile string) *Definition {
	t.Helper()
	d, err := Open("agent.star", []byte(script+fmt.Sprintf("\nroot = {\"script\": script, \"profile\": %q, \"task\": \"Pay 7.\", \"request\": {\"order\": \"7\"}}\n", profile)))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

const (
	pay    = `POST /pay {"amount":3,"order":"7"}`
	look   = `GET /orders/7`
	done   = `{"message":"the task is done","success":true}`
	lost   = `{"message":"POST /pay was not answered","success":false}`
	failed = `{"message":"POST /pay was answered with %d","success":false}`
)

func TestProfiles(t *testing.T) {
	fails := func(status int) string { return fmt.Sprintf(failed, status) }
	k1, k2 := pay+" key=call-1", look+" key=call-2"
	ok := scripted{201, `{"id":"P-1"}`}
	no := func(status int) scripted { return scripted{status, `{"error":"no"}`} }
	for _, c := range []struct {
		profile string
		replies []scripted // of POST /pay
		seen    []string
		report  string
	}{
		{"plain", []scripted{ok}, []string{pay, look}, done},
		{"plain", []scripted{no(cutHere)}, []string{pay, look}, lost},
		{"plain", []scripted{no(403)}, []string{pay, look}, fails(403)},
		{"plain", []scripted{no(429), ok}, []string{pay, look}, fails(429)},
		{"plain", []scripted{no(500), ok}, []string{pay, look}, fails(500)},

		{"retry_without_key", []scripted{ok}, []string{pay, look}, done},
		{"retry_without_key", []scripted{no(cutHere), ok}, []string{pay, pay, look}, done},
		{"retry_without_key", []scripted{no(429), ok}, []string{pay, pay, look}, done},
		{"retry_without_key", []scripted{no(500), no(503), ok}, []string{pay, pay, pay, look}, done},
		{"retry_without_key", []scripted{no(cutHere)}, []string{pay, pay, pay}, lost},
		{"retry_without_key", []scripted{no(429), no(cutHere), no(500), ok}, []string{pay, pay, pay}, fails(500)},
		{"retry_without_key", []scripted{no(403), ok}, []string{pay}, fails(403)},
		{"retry_without_key", []scripted{no(cutHere), no(404), ok}, []string{pay, pay}, fails(404)},

		{"retry_with_key", []scripted{ok}, []string{k1, k2}, done},
		{"retry_with_key", []scripted{no(cutHere), ok}, []string{k1, k1, k2}, done},
		{"retry_with_key", []scripted{no(429)}, []string{k1, k1, k1}, fails(429)},
		{"retry_with_key", []scripted{no(403)}, []string{k1}, fails(403)},

		{"stop_on_error", []scripted{ok}, []string{pay, look}, done},
		{"stop_on_error", []scripted{no(cutHere), ok}, []string{pay}, lost},
		{"stop_on_error", []scripted{no(429), ok}, []string{pay}, fails(429)},
		{"stop_on_error", []scripted{no(403)}, []string{pay}, fails(403)},

		{"claim_success_on_error", []scripted{ok}, []string{pay, look}, done},
		{"claim_success_on_error", []scripted{no(cutHere)}, []string{pay}, done},
		{"claim_success_on_error", []scripted{no(403)}, []string{pay}, done},
		{"claim_success_on_error", []scripted{no(500)}, []string{pay}, done},

		{"follow_instructions_in_text", []scripted{ok}, []string{pay, look}, done},
		{"follow_instructions_in_text", []scripted{no(403)}, []string{pay, look}, fails(403)},
		{"follow_instructions_in_text", []scripted{no(cutHere)}, []string{pay, look}, lost},

		{"no_calls", []scripted{ok}, nil, done},
	} {
		f := &fakeWorld{replies: map[string][]scripted{"POST /pay": c.replies}}
		t.Run(fmt.Sprint(c.profile, c.replies), func(t *testing.T) {
			if err := definition(t, twoCalls, c.profile).Run(t.Context(), f.start(t), func(string) {}); err != nil {
				t.Fatal(err)
			}
			f.wants(t, c.seen, c.report)
		})
	}
}

// TestReplies: what a script gets.
func TestReplies(t *testing.T) {
	for _, c := range []struct {
		reply scripted
		want  string
	}{
		{scripted{201, `{"id":"P-1","n":2}`}, `True 201 {"id": "P-1", "n": 2}`},
		{scripted{204, ""}, "True 204 None"},
		{scripted{302, "null"}, "True 302 None"},
		{scripted{404, `{"error":"no"}`}, `False 404 {"error": "no"}`},
		{scripted{cutHere, ""}, "False 0 None"},
	} {
		var printed []string
		f := &fakeWorld{replies: map[string][]scripted{"POST /pay": {c.reply}}}
		if err := definition(t, twoCalls, "plain").Run(t.Context(), f.start(t), func(s string) { printed = append(printed, s) }); err != nil {
			t.Fatal(err)
		}
		if got := strings.Join(printed, "\n"); got != c.want {
			t.Errorf("%v: %s; want %s", c.reply, got, c.want)
		}
	}
}

func TestTask(t *testing.T) {
	f := new(fakeWorld)
	d := definition(t, `
def script(task, call):
    call("PUT /notes/%s?q=1" % task.request["order"], body = [task.text, None, 1.5])
`, "plain")
	if err := d.Run(t.Context(), f.start(t), func(string) {}); err != nil {
		t.Fatal(err)
	}
	f.wants(t, []string{`PUT /notes/7?q=1 ["Pay 7.",null,1.5]`}, done)
}

// TestFaults: what is wrong with the script or the world is never a report.
func TestFaults(t *testing.T) {
	for _, c := range []struct{ name, script, want string }{
		{"error", "def script(task, call):\n    call(\"POST /pay\")\n    inner()\ndef inner():\n    fail(\"oops\")\n", "oops"},
		{"backtrace", "def script(task, call):\n    inner()\ndef inner():\n    fail(\"oops\")\n", "agent.star:2:10: in script"},
		{"endless", "def script(task, call):\n    for _ in range(1000000000):\n        pass\n", "Starlark computation cancelled"},
		{"parameters", "def script(task):\n    pass\n", "accepts 1 positional argument"},
		{"method", "def script(task, call):\n    call(\"LOOK /pay\")\n", "is meant"},
		{"path", "def script(task, call):\n    call(\"GET orders\")\n", "begins with /"},
		{"body", "def script(task, call):\n    call(\"POST /pay\", call)\n", "no JSON form"},
		{"reply", "def script(task, call):\n    call(\"GET /text\")\n", "reply to GET /text: not JSON"},
	} {
		f := &fakeWorld{replies: map[string][]scripted{"GET /text": {{200, "hello"}}}}
		err := definition(t, c.script, "claim_success_on_error").Run(t.Context(), f.start(t), func(string) {})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want %q", c.name, err, c.want)
		}
		if f.report != "" {
			t.Errorf("%s: reported %s", c.name, f.report)
		}
	}
}

// TestWorldBreaks: what the world did wrong is not told as an error of the script.
func TestWorldBreaks(t *testing.T) {
	f := &fakeWorld{replies: map[string][]scripted{"POST /pay": {{200, "{"}}}}
	err := definition(t, twoCalls, "plain").Run(t.Context(), f.start(t), func(string) {})
	if err == nil || !strings.HasPrefix(err.Error(), "reply to POST /pay: not JSON") || f.report != "" {
		t.Errorf("%v, report %q", err, f.report)
	}
}

func TestReportRefused(t *testing.T) {
	for _, reply := range []scripted{{cutHere, ""}, {500, `{"error":"fault"}`}} {
		f := &fakeWorld{replies: map[string][]scripted{"POST /report": {reply}}}
		if err := definition(t, twoCalls, "no_calls").Run(t.Context(), f.start(t), func(string) {}); err == nil {
			t.Errorf("%v: no error", reply)
		}
	}
}

func TestInterrupted(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	stop()
	f := new(fakeWorld)
	if err := definition(t, twoCalls, "plain").Run(ctx, f.start(t), func(string) {}); !errors.Is(err, context.Canceled) || f.report != "" {
		t.Errorf("%v, report %q", err, f.report)
	}
}

func TestOpen(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{`root = [`, "agent.star:1"},
		{`x = 1`, "root"},
		{`root = []`, "root: a dict is meant, not list"},
		{`root = {"script": None, "profile": "no_calls", "task": "x", "request": {}}`, ""},
		{`root = {"script": None, "profile": "plain", "task": "x", "request": {}}`, "root.script: a function is meant, not NoneType"},
		{`root = {"script": len, "profile": "brave", "task": "x", "request": {}}`, `root.profile: "brave" is none of claim_success_on_error, follow_`},
		{`root = {"script": len, "profile": "plain", "task": 1, "request": {}}`, "root.task: a string is meant, not int"},
		{`root = {"script": len, "profile": "plain", "task": "x", "request": []}`, "root.request: a dict is meant, not list"},
		{`root = {"script": len, "profile": "plain", "task": "x"}`, "root.request: missing"},
		{`root = {"script": len, "profile": "plain", "task": "x", "request": {}, "chaos": []}`, `root: there is no "chaos"`},
	} {
		_, err := Open("agent.star", []byte(c.text))
		if c.want == "" && err != nil || c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)) {
			t.Errorf("%s: %v; want %q", c.text, err, c.want)
		}
	}
}
