package world

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/evalbuild/eval/rules/world/wire"
)

const start = 1768477200 // 2026-01-15T11:40:00Z

func fixtureWorld(t testing.TB) *World {
	t.Helper()
	text, err := os.ReadFile("testdata/world.star")
	if err != nil {
		t.Fatal(err)
	}
	w, err := ParseWorld("world.star", text)
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// A scene is what of scenario.star a test chooses, as Starlark text.
type scene struct {
	defs, chaos, priors, script, after string
}

func (s scene) text() string {
	or := func(s, dflt string) string {
		if s == "" {
			return dflt
		}
		return s
	}
	return s.defs + `
root = {"actor": "agent", "window": 600, "request": {"order_id": "1001", "amount": 4500},
    "chaos": [` + s.chaos + `], "prior_runs": [` + s.priors + `], "script": ` + or(s.script, "None") + `, "after_settlement": ` + or(s.after, "None") + `}
`
}

// chaosRule is one rule; more are further members.
func chaosRule(mode, more string) string {
	return fmt.Sprintf(`{"client": "agent", "mode": %q, %s},`, mode, more)
}

func parseScene(t testing.TB, w *World, s scene) *Scenario {
	t.Helper()
	sc, err := ParseScenario("scenario.star", []byte(s.text()), w)
	if err != nil {
		t.Fatal(err)
	}
	return sc
}

// A live is an act that serves on a real port.
type live struct {
	t      testing.TB
	act    *Act
	folder string
	url    string
	server *http.Server
}

func begin(t testing.TB, s scene) *live {
	t.Helper()
	w := fixtureWorld(t)
	l := &live{t: t, folder: t.TempDir()}
	act, err := Start(t.Context(), w, parseScene(t, w, s), l.folder, nil)
	if err != nil {
		t.Fatal(err)
	}
	l.act = act
	l.url, l.server = serveOn(t, act.Handler(nil))
	t.Cleanup(act.Close)
	return l
}

func serveOn(t testing.TB, h http.Handler) (string, *http.Server) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := wire.NewServer(h)
	go srv.Serve(ln)
	t.Cleanup(func() { srv.Close() })
	return "http://" + ln.Addr().String(), srv
}

// A got is what a client saw; status 0: the connection was cut.
type got struct {
	status int
	body   string
	header http.Header
}

var client = &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}

func ask(t testing.TB, method, url, body string, headers ...string) got {
	t.Helper()
	req, err := http.NewRequestWithContext(context.Background(), method, url, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(headers); i += 2 {
		req.Header.Set(headers[i], headers[i+1])
	}
	resp, err := client.Do(req)
	if err != nil {
		var refused *net.OpError
		if errors.As(err, &refused) && refused.Op == "dial" {
			t.Fatal(err)
		}
		return got{}
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return got{resp.StatusCode, strings.TrimSuffix(string(b), "\n"), resp.Header}
}

// do makes a call, "METHOD /path".
func (l *live) do(operation, body string, headers ...string) got {
	l.t.Helper()
	method, path, _ := strings.Cut(operation, " ")
	return ask(l.t, method, l.url+path, body, headers...)
}

func (l *live) want(operation, body string, status int, reply string, headers ...string) {
	l.t.Helper()
	if g := l.do(operation, body, headers...); g.status != status || g.body != reply {
		l.t.Errorf("%s %s: %d %s\nwant %d %s", operation, body, g.status, g.body, status, reply)
	}
}

type event struct {
	Seq     int64
	Kind    string
	Subject string
	At      int64
	Actor   string
	Attrs   map[string]any
}

type moment struct {
	Clock   int64
	Systems map[string]map[string][]map[string]any
	Seq     map[string]int64
}

// files are the outputs of an act.
type files struct {
	run, tables, events []byte

	Tables   map[string]moment
	Instants map[string]moment
	Events   map[string][]event
	Lines    []map[string]map[string]any
}

func (l *live) finish() files {
	l.t.Helper()
	l.server.Close()
	if err := l.act.Finish(); err != nil {
		l.t.Fatal(err)
	}
	l.act.Close()
	return readFiles(l.t, l.folder)
}

func readFiles(t testing.TB, folder string) files {
	t.Helper()
	var f files
	for name, into := range map[string]*[]byte{"run.jsonl": &f.run, "tables.json": &f.tables, "events.json": &f.events} {
		b, err := os.ReadFile(filepath.Join(folder, name))
		if err != nil {
			t.Fatal(err)
		}
		*into = b
	}
	if err := errors.Join(json.Unmarshal(f.tables, &f.Tables), json.Unmarshal(f.events, &f)); err != nil {
		t.Fatal(err)
	}
	for line := range bytes.Lines(f.run) {
		var m map[string]map[string]any
		if err := json.Unmarshal(line, &m); err != nil {
			t.Fatal(err)
		}
		f.Lines = append(f.Lines, m)
	}
	if entries, _ := os.ReadDir(folder); len(entries) != 3 {
		t.Errorf("the working directory holds %v, not three files", entries)
	}
	return f
}

// kinds are the events of a system after the start, as "kind@seconds".
func (f files) kinds(system string) string {
	var out []string
	for _, e := range f.Events[system] {
		if e.At >= start {
			out = append(out, fmt.Sprintf("%s@%d", e.Kind, e.At-start))
		}
	}
	return strings.Join(out, " ")
}

// refunds is how many rows there are at an instant.
func (f files) refunds(at string) int { return len(f.Tables[at].Systems["payments"]["refunds"]) }

const (
	refundBody  = `{"order_id": "1001", "amount": 4500}`
	refundReply = `{"amount":4500,"id":"RF-1","order":"1001"}`
	refundPath  = "POST /payments/refunds"
)
