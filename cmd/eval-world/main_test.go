package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// program is the binary that the tests run, built once.
var program string

func TestMain(m *testing.M) { os.Exit(runTests(m)) }

func runTests(m *testing.M) int {
	dir, err := os.MkdirTemp("", "eval-world-*")
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	defer os.RemoveAll(dir)
	program = filepath.Join(dir, "eval-world")
	if out, err := exec.Command("go", "build", "-trimpath", "-o", program, ".").CombinedOutput(); err != nil {
		fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
		return 1
	}
	return m.Run()
}

const worldText = `
def ok(body = None, status = 200):
    return struct(status = status, body = body)

def add(req, db, emit):
    if req.body == "fault":
        fail("on purpose")
    print("adding", req.body)
    r = db.insert("rows", text = req.body)
    emit("added", subject = r.id)
    return ok(r)

root = {"name": "w", "clock": "2026-01-15T12:00:00Z", "systems": {"s": {
    "tables": {"rows": {"key": "id", "prefix": "R-", "columns": {"id": "string", "text": "string"}}},
    "operations": {"POST /s/rows": {"fn": add}}}}}
`

const scenarioText = `root = {"actor": "agent", "window": 600, "request": {}, "task": "add a row"}
`

// A server is the program with a control socket. Its files are in its folder.
type server struct {
	t       testing.TB
	cmd     *exec.Cmd
	folder  string
	control *net.UnixConn
	stderr  bytes.Buffer
}

func startServer(t testing.TB, args ...string) *server {
	t.Helper()
	s := &server{t: t, folder: t.TempDir()}
	for name, text := range map[string]string{"world.star": worldText, "scenario.star": scenarioText} {
		if err := os.WriteFile(filepath.Join(s.folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM, 0)
	if err != nil {
		t.Fatal(err)
	}
	ours, theirs := os.NewFile(uintptr(fds[0]), "control"), os.NewFile(uintptr(fds[1]), "stdin")
	syscall.CloseOnExec(fds[0]) // or the program would hold its own end open
	defer ours.Close()
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	if err != nil {
		t.Fatal(err)
	}
	s.control = conn.(*net.UnixConn)
	t.Cleanup(func() { s.control.Close() })
	s.cmd = exec.CommandContext(t.Context(), program, args...)
	s.cmd.Dir, s.cmd.Stdin, s.cmd.Stderr = s.folder, theirs, &s.stderr
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// hand sends descriptors in one message.
func (s *server) hand(files ...*os.File) {
	s.t.Helper()
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	if _, _, err := s.control.WriteMsgUnix([]byte("l"), syscall.UnixRights(fds...), nil); err != nil {
		s.t.Fatal(err)
	}
}

// listener makes a listener that only the server holds after hand.
func (s *server) listener() (file *os.File, url string) {
	s.t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		s.t.Fatal(err)
	}
	defer ln.Close()
	f, err := ln.(*net.TCPListener).File()
	if err != nil {
		s.t.Fatal(err)
	}
	return f, "http://" + ln.Addr().String()
}

// end closes the control socket and returns how the program ended.
func (s *server) end() (code int, stderr string) {
	s.t.Helper()
	s.control.Close()
	err := s.cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		s.t.Fatal(err)
	}
	return s.cmd.ProcessState.ExitCode(), s.stderr.String()
}

func serve(t testing.TB) (*server, string) {
	t.Helper()
	s := startServer(t, "serve", "--world=world.star", "--scenario=scenario.star")
	f, url := s.listener()
	s.hand(f)
	f.Close()
	return s, url
}

func post(t testing.TB, url, body string) (int, string) {
	t.Helper()
	resp, err := http.Post(url, "application/json", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, strings.TrimSpace(string(b))
}

func listing(t *testing.T, folder string) string {
	t.Helper()
	entries, err := os.ReadDir(folder)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return strings.Join(names, " ")
}

func TestServe(t *testing.T) {
	s, url := serve(t)
	if status, body := post(t, url+"/s/rows", `"x"`); status != 200 || body != `{"id":"R-1","text":"x"}` {
		t.Errorf("%d %s", status, body)
	}
	if status, _ := post(t, url+"/report", `{"success": true, "message": ""}`); status != 200 {
		t.Errorf("report: %d", status)
	}
	code, stderr := s.end()
	if code != 0 || stderr != "adding x\n" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := listing(t, s.folder); got != "events.json run.jsonl scenario.star tables.json world.star" {
		t.Errorf("files: %s", got)
	}
	events, err := os.ReadFile(filepath.Join(s.folder, "events.json"))
	if err != nil || !strings.Contains(string(events), `"kind":"added"`) {
		t.Fatalf("events.json: %s, %v", events, err)
	}

	// The second server serves what the first wrote.
	if err := os.WriteFile(filepath.Join(s.folder, "chaos.json"), []byte("[]"), 0o644); err != nil {
		t.Fatal(err)
	}
	e := startServer(t, "events", "--events="+filepath.Join(s.folder, "events.json"), "--chaos="+filepath.Join(s.folder, "chaos.json"))
	f, url := e.listener()
	e.hand(f)
	f.Close()
	resp, err := http.Get(url + "/s/events?at=done")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	if b, _ := io.ReadAll(resp.Body); !strings.Contains(string(b), `"kind":"added"`) {
		t.Errorf("events: %s", b)
	}
	if code, stderr := e.end(); code != 0 || stderr != "" {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestServeEndsInTheMiddle closes stdin while a client holds its connection.
func TestServeEndsInTheMiddle(t *testing.T) {
	s, url := serve(t)
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "http://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	// Half a request: its rest never comes.
	fmt.Fprintf(conn, "POST /s/rows HTTP/1.1\r\nHost: w\r\nContent-Length: 3\r\n\r\n\"x")
	conn.(*net.TCPConn).CloseWrite()
	if code, stderr := s.end(); code != 0 {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if run, err := os.ReadFile(filepath.Join(s.folder, "run.jsonl")); err != nil || len(run) != 0 {
		t.Errorf("run.jsonl: %q, %v", run, err)
	}
}

func TestServeFault(t *testing.T) {
	s, url := serve(t)
	for range 2 {
		if status, _ := post(t, url+"/s/rows", `"fault"`); status != 500 {
			t.Errorf("status %d", status)
		}
	}
	code, stderr := s.end()
	if code != 1 || stderr != "eval-world: error: run POST /s/rows: world.star:7:13: fail: on purpose\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
	if got := listing(t, s.folder); got != "scenario.star world.star" {
		t.Errorf("files: %s", got)
	}
}

func TestControlSocket(t *testing.T) {
	args := []string{"serve", "--world=world.star", "--scenario=scenario.star"}
	for _, c := range []struct {
		name string
		do   func(s *server)
		want string
	}{
		{"ends at once", func(*server) {}, "receive listener: standard input ended before one came"},
		{"a message without one", func(s *server) { s.control.Write([]byte("x")) }, "receive listener: the first message carries 0 descriptors, not one"},
		{"two", func(s *server) {
			f, _ := s.listener()
			defer f.Close()
			s.hand(f, f)
		}, "receive listener: the first message carries 2 descriptors, not one"},
		{"no socket", func(s *server) { s.hand(os.Stderr) }, "receive listener: the descriptor is no listening socket"},
		{"a socket that doesn't listen", func(s *server) {
			f, err := s.control.File()
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			s.hand(f)
		}, "receive listener: the descriptor is no listening socket"},
	} {
		t.Run(c.name, func(t *testing.T) {
			s := startServer(t, args...)
			c.do(s)
			code, stderr := s.end()
			if code != 1 || stderr != "eval-world: error: "+c.want+"\n" {
				t.Errorf("exit %d: %s", code, stderr)
			}
			if got := listing(t, s.folder); got != "scenario.star world.star" {
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
		{"serve --wrld=x", 2, "serve: flag provided but not defined: -wrld"},
		{"serve x", 2, `serve: "x" is not expected: files are given by flags`},
		{"serve --world=/nowhere", 1, "open /nowhere: no such file or directory"},
		{"serve --world=" + bad, 1, "read " + bad + ": root.name: missing; a string is meant"},
		{"events --events=" + bad, 2, "events: --chaos=FILE is missing"},
		{"events --events=" + bad + " --chaos=" + bad, 1, "read " + bad + ": invalid character 'r' looking for beginning of value"},
	} {
		cmd := exec.Command(program, strings.Fields(c.args)...)
		cmd.Dir = folder
		var stderr bytes.Buffer
		cmd.Stderr = &stderr
		cmd.Run()
		if code := cmd.ProcessState.ExitCode(); code != c.code || stderr.String() != "eval-world: error: "+c.want+"\n" {
			t.Errorf("%s: exit %d: %s\nwant %d: %s", c.args, code, stderr.String(), c.code, c.want)
		}
	}
	// Standard input that is no socket.
	s := exec.Command(program, "serve", "--world="+filepath.Join(folder, "w"), "--scenario="+filepath.Join(folder, "s"))
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
	if got := listing(t, folder); got != "bad.star s w" {
		t.Errorf("files: %s", got)
	}
}
