package main

import (
	"bytes"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbuild/eval/rules/world/program/programtest"
)

// binary is the program that the tests run, built once.
var binary string

func TestMain(m *testing.M) {
	os.Exit(programtest.Build("eval-world", func(path string) int {
		binary = path
		return m.Run()
	}))
}

const worldText = `
def ok(body = None, status = 200):
    return struct(status = status, body = body)

def add(req, db, emit):
    if req.body == "fault":
        fail("on purpose")
    print("adding", req.body)
    r = db.insert("rows", text = str(req.body))
    emit("added", subject = r.id)
    return ok(r)

root = {"clock": "2026-01-15T12:00:00Z", "systems": {"s": {
    "tables": {"rows": {"key": "id", "prefix": "R-", "columns": {"id": "string", "text": "string"}}},
    "operations": {"POST /s/rows": {"fn": add}}}}}
`

const scenarioText = `root = {"actor": "agent", "window": 600, "request": {}, "chaos": [], "prior_runs": []}
`

func startServer(t testing.TB, args ...string) *programtest.Server {
	t.Helper()
	return programtest.Start(t, map[string]string{"world.star": worldText, "scenario.star": scenarioText}, binary, args...)
}

func startServe(t testing.TB) (*programtest.Server, string) {
	t.Helper()
	s := startServer(t, "serve", "--world=world.star", "--scenario=scenario.star")
	return s, s.Serve()
}

func post(t testing.TB, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer http.DefaultClient.CloseIdleConnections() // a client's connections end with it
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func TestServe(t *testing.T) {
	s, url := startServe(t)
	if status, body := post(t, url+"/s/rows", `"x"`); status != 200 || body != `{"id":"R-1","text":"x"}` {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := post(t, url+"/report", `{"success": true, "message": ""}`); status != 200 {
		t.Errorf("report: %d", status)
	}
	code, stderr := s.End()
	if code != 0 || stderr != "adding x\n" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := s.Files(); got != "events.json run.jsonl scenario.star tables.json world.star" {
		t.Errorf("files: %s", got)
	}
	events, err := os.ReadFile(filepath.Join(s.Folder, "events.json"))
	if err != nil || !strings.Contains(string(events), `"kind":"added"`) {
		t.Fatalf("events.json: %s, %v", events, err)
	}
}

// TestServeEndsInTheMiddle closes stdin while a client holds its connection.
func TestServeEndsInTheMiddle(t *testing.T) {
	s, url := startServe(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Half a request: its rest never comes.
	fmt.Fprintf(conn, "POST /s/rows HTTP/1.1\r\nHost: w\r\nContent-Length: 3\r\n\r\n\"x")
	conn.(*net.TCPConn).CloseWrite()
	if code, stderr := s.End(); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if run, err := os.ReadFile(filepath.Join(s.Folder, "run.jsonl")); err != nil || len(run) != 0 {
		t.Errorf("run.jsonl: %q, %v", run, err)
	}
}

func TestServeFault(t *testing.T) {
	s, url := startServe(t)
	for range 2 {
		if status, _ := post(t, url+"/s/rows", `"fault"`); status != 500 {
			t.Errorf("status %d", status)
		}
	}
	code, stderr := s.End()
	if code != 1 || stderr != "eval-world: error: run POST /s/rows: world.star:7:13: fail: on purpose\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if got := s.Files(); got != "scenario.star world.star" {
		t.Errorf("files: %s", got)
	}
}

// TestServeInterrupted: the agent hasn't ended, so nothing is written.
func TestServeInterrupted(t *testing.T) {
	s, url := startServe(t)
	if status, _ := post(t, url+"/s/rows", `"x"`); status != 200 {
		t.Errorf("status %d", status)
	}
	if code, stderr := s.Interrupt(); code != 1 || stderr != "adding x\neval-world: error: read standard input: context canceled\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if got := s.Files(); got != "scenario.star world.star" {
		t.Errorf("files: %s", got)
	}
}

func TestControlSocket(t *testing.T) {
	args := []string{"serve", "--world=world.star", "--scenario=scenario.star"}
	for _, c := range []struct {
		name string
		do   func(s *programtest.Server)
		want string
	}{
		{"ends at once", func(*programtest.Server) {}, "receive listener: standard input ended before one came"},
		{"a message without one", func(s *programtest.Server) { s.Control().Write([]byte("x")) }, "receive listener: the first message carries 0 descriptors, not one"},
		{"two", func(s *programtest.Server) {
			f, _ := programtest.Listener(t)
			defer f.Close()
			s.Hand(f, f)
		}, "receive listener: the first message carries 2 descriptors, not one"},
		{"no socket", func(s *programtest.Server) { s.Hand(os.Stderr) }, "receive listener: the descriptor is no listening socket"},
		{"a socket that doesn't listen", func(s *programtest.Server) {
			f, err := s.Control().File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s.Hand(f)
		}, "receive listener: the descriptor is no listening socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, args...)
			c.do(s)
			code, stderr := s.End()
			if code != 1 || stderr != "eval-world: error: "+c.want+"\n" {
				t.Errorf("exit %d: %s", code, stderr)
			}
			if got := s.Files(); got != "scenario.star world.star" {
				t.Errorf("files: %s", got)
			}
		})
	}
}

func TestCommandLine(t *testing.T) {
	folder := t.TempDir()
	bad := filepath.Join(folder, "bad.star")
	if err := os.WriteFile(bad, []byte("root = {}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"serv", 2, `there is no command "serv" (did you mean "serve"?)`},
		{"serve", 2, "serve: --world=FILE is missing"},
		{"agent --agent=x", 2, `there is no command "agent"`},
		{"--world=x", 2, "eval-world: flag provided but not defined: -world"},
		{"serve --wrld=x", 2, "serve: flag provided but not defined: -wrld"},
		{"serve x", 2, `serve: "x" is not expected: files are given by flags`},
		{"serve --world=/nowhere", 1, "open /nowhere: no such file or directory"},
		{"serve --world=" + bad, 1, "read " + bad + ": root.clock: missing; a string is meant"},
	} {
		cmd := exec.Command(binary, strings.Fields(c.args)...)
		cmd.Dir = folder
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.code || stderr.String() != "eval-world: error: "+c.want+"\n" {
			t.Errorf("%s: exit %d: %s\nwant %d: %s", c.args, code, stderr.String(), c.code, c.want)
		}
	}
	// Standard input that is no socket.
	s := exec.Command(binary, "serve", "--world="+filepath.Join(folder, "w"), "--scenario="+filepath.Join(folder, "s"))
	s.Dir = folder
	for name, text := range map[string]string{"w": worldText, "s": scenarioText} {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	out, _ := s.CombinedOutput()
	if s.ProcessState.ExitCode() != 1 || !strings.HasPrefix(string(out), "eval-world: error: open standard input: it is no socket: ") {
		t.Errorf("exit %d: %s", s.ProcessState.ExitCode(), out)
	}
	if got := programtest.Listing(t, folder); got != "bad.star s w" {
		t.Errorf("files: %s", got)
	}
}
