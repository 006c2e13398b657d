package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbuild/eval/rules/world/mcp"
)

// A fakeWorld loses the reply of its second call and refuses the third.
type fakeWorld struct {
	calls  int
	report string
}

func (f *fakeWorld) Do(_ string, args map[string]any, _ string) (int, any, bool) {
	f.calls++
	return []int{200, 0, 403}[(f.calls-1)%3], args, f.calls%3 != 2
}

func (f *fakeWorld) Report(success bool, message string) {
	f.report = fmt.Sprint(success, " ", message)
}

func TestRun(t *testing.T) {
	call := `{"tool":"a_post_b","arguments":{"x":%d}}`
	for _, c := range []struct {
		calls  int
		rest   string
		stdout string
		report string
	}{
		{1, "", "a_post_b: {\"x\":0}\n", "true Do it."},
		{3, "", "a_post_b: {\"x\":0}\na_post_b: no reply\na_post_b: {\"status\":403,\"body\":{\"x\":2}}\n", "false Do it."},
		{2, `,"report":{"success":true,"message":"sure"}`, "a_post_b: {\"x\":0}\na_post_b: no reply\n", "true sure"},
		{0, "", "", "true Do it."},
	} {
		f := new(fakeWorld)
		h, err := mcp.New([]mcp.Operation{{Name: "a_post_b", Pattern: "POST /a/b"}}, f)
		if err != nil {
			t.Fatal(err)
		}
		mux := http.NewServeMux()
		mux.Handle("/mcp", h)
		srv := httptest.NewServer(mux)
		var calls []string
		for n := range c.calls {
			calls = append(calls, fmt.Sprintf(call, n))
		}
		text := `{"calls":[` + strings.Join(calls, ",") + `]` + c.rest + `}`
		if !json.Valid([]byte(text)) {
			t.Fatal(text)
		}
		file := filepath.Join(t.TempDir(), "plan.json")
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		var out strings.Builder
		if err := run(t.Context(), []string{file}, srv.URL, strings.NewReader("Do it.\nNow."), &out); err != nil {
			t.Fatal(err)
		}
		srv.Close()
		if out.String() != c.stdout || f.report != c.report || f.calls != c.calls {
			t.Errorf("%s: %s report %s, %d calls", text, out.String(), f.report, f.calls)
		}
	}
}

func TestRunRefuses(t *testing.T) {
	file := filepath.Join(t.TempDir(), "plan.json")
	if err := os.WriteFile(file, []byte(`{"calls":[{"tool":"none"}]}`), 0o644); err != nil {
		t.Fatal(err)
	}
	f := new(fakeWorld)
	h, err := mcp.New(nil, f)
	if err != nil {
		t.Fatal(err)
	}
	srv := httptest.NewServer(http.StripPrefix("/mcp", h))
	defer srv.Close()
	for _, c := range []struct {
		args []string
		url  string
		task string
		want string
	}{
		{nil, srv.URL, "x", "usage"},
		{[]string{file}, "", "x", "usage"},
		{[]string{file + "x"}, srv.URL, "x", "no such file"},
		{[]string{file}, srv.URL, "", "standard input is empty"},
		{[]string{file}, srv.URL + "/elsewhere", "x", "connect"},
		{[]string{file}, srv.URL, "x", "call none: there is no such tool"},
	} {
		if err := run(t.Context(), c.args, c.url, strings.NewReader(c.task), new(strings.Builder)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%v %s: %v; want %s", c.args, c.url, err, c.want)
		}
	}
	if f.report != "" {
		t.Errorf("reported %s", f.report)
	}
}
