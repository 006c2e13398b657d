package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
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
	os.Exit(programtest.Build("eval-play", func(path string) int {
		binary = path
		return m.Run()
	}))
}

const recorded = `{"instants": {
 "start": {"clock": 100, "seq": {"crm": 0}}, "done": {"clock": 110, "seq": {"crm": 1}},
 "settled": {"clock": 710, "seq": {"crm": 1}}, "after": {"clock": 771, "seq": {"crm": 1}}},
 "events": {"crm": [{"seq": 1, "kind": "opened", "subject": "T-1", "at": 105, "actor": "agent", "attrs": {"order": "7"}}]}}
`

// run runs a command as a client in a folder with files.
func run(t *testing.T, files map[string]string, url string, args ...string) (folder, stderr string, code int) {
	t.Helper()
	folder = t.TempDir()
	for name, text := range files {
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), binary, args...)
	cmd.Dir = folder
	for _, v := range os.Environ() {
		if !strings.HasPrefix(v, "EVAL_WORLD_URL=") {
			cmd.Env = append(cmd.Env, v)
		}
	}
	if url != "" {
		cmd.Env = append(cmd.Env, "EVAL_WORLD_URL="+url)
	}
	var out bytes.Buffer
	cmd.Stderr = &out
	if err := cmd.Run(); err != nil && cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return folder, out.String(), cmd.ProcessState.ExitCode()
}

// TestExtract has both ends: recorded events, and who reads them.
func TestExtract(t *testing.T) {
	s := programtest.Start(t, map[string]string{
		"events.json": recorded,
		"chaos.json":  `[{"system": "crm", "nth": 1, "mode": "unreachable"}]`,
	}, binary, "events", "--events=events.json", "--chaos=chaos.json")
	links := map[string]string{"links.json": `{"systems": ["crm"], "links": [{"kind": "opened", "attr": "order"}]}`}
	folder, stderr, code := run(t, links, s.Serve(), "extract", "--links=links.json")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if code, stderr := s.End(); code != 0 || stderr != "" {
		t.Errorf("events: exit %d: %s", code, stderr)
	}
	facts, err := os.ReadFile(filepath.Join(folder, "facts.json"))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"done":{"events":[],"links":[],"unreachable":["crm"]}`, `"links":[["T-1","7"]],"unreachable":[]`} {
		if !strings.Contains(string(facts), want) {
			t.Errorf("no %s in %s", want, facts)
		}
	}
	if reach, err := os.ReadFile(filepath.Join(folder, "reach.json")); err != nil || string(reach) != "{\"unreachable\":[]}\n" {
		t.Errorf("reach.json: %s, %v", reach, err)
	}
	if got := s.Files(); got != "chaos.json events.json" {
		t.Errorf("events left %s", got)
	}
}

// TestAgents: the scripted one, and its run recorded.
func TestAgents(t *testing.T) {
	var seen []string
	world := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen = append(seen, r.Method+" "+r.URL.Path)
		w.Write([]byte(`{"id":"R-1"}`))
	}))
	defer world.Close()
	script := `
def script(task, call):
    print("asked:", task.text)
    call("POST /s/rows", {"text": "x"})
root = {"script": script, "profile": "plain", "task": "add a row", "request": {}}
`
	_, stderr, code := run(t, map[string]string{"agent.star": script}, world.URL, "agent", "--agent=agent.star")
	if code != 0 || stderr != "asked: add a row\n" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	record := `{"call":{"body":{"text":"x"},"delivered":true,"key":null,"n":1,"operation":"POST /s/rows","path":"/s/rows","query":{},"reply":{"id":"R-2"},"status":200}}
`
	folder, stderr, code := run(t, map[string]string{"run.jsonl": record}, world.URL, "replay", "--run=run.jsonl")
	if code != 0 || stderr != "" {
		t.Fatalf("exit %d: %s", code, stderr)
	}
	if got := strings.Join(seen, ", "); got != "POST /s/rows, POST /report, POST /s/rows" {
		t.Errorf("the world saw %s", got)
	}
	replay, err := os.ReadFile(filepath.Join(folder, "replay.json"))
	if want := `{"calls":1,"differ":[{"n":1,"operation":"POST /s/rows","recorded":{"reply":{"id":"R-2"},"status":200},"replayed":{"reply":{"id":"R-1"},"status":200}}]}` + "\n"; err != nil || string(replay) != want {
		t.Errorf("%s, %v", replay, err)
	}
}

func TestCommandLine(t *testing.T) {
	files := map[string]string{"bad": "root = {}\n"}
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"serve --world=bad", 2, `there is no command "serve"`},
		{"extrac", 2, `there is no command "extrac" (did you mean "extract"?)`},
		{"agent", 2, "agent: --agent=FILE is missing"},
		{"agent --agent=bad", 1, "open bad: root.profile: missing; a string is meant"},
		{"replay x --run=bad", 2, `replay: "x" is not expected: files are given by flags`},
		{"extract --link=bad", 2, "extract: flag provided but not defined: -link"},
		{"extract --links=/nowhere", 1, "open /nowhere: no such file or directory"},
		{"extract --links=bad", 1, "read bad: offset 0: unexpected 'r'"},
		{"events --events=bad", 2, "events: --chaos=FILE is missing"},
		{"events --events=bad --chaos=bad", 1, "read bad: invalid character 'r' looking for beginning of value"},
	} {
		_, stderr, code := run(t, files, "", strings.Fields(c.args)...)
		if code != c.code || stderr != "eval-play: error: "+c.want+"\n" {
			t.Errorf("%s: exit %d: %s\nwant %d: %s", c.args, code, stderr, c.code, c.want)
		}
	}
	files["links"] = `{"systems": [], "links": []}`
	if _, stderr, code := run(t, files, "", "extract", "--links=links"); code != 2 || stderr != "eval-play: error: find the world: EVAL_WORLD_URL is not set\n" {
		t.Errorf("exit %d: %s", code, stderr)
	}
}

// TestLinksNoDatabase keeps the program small: what a world needs is most of
// what a start would take.
func TestLinksNoDatabase(t *testing.T) {
	out, err := exec.Command("go", "list", "-deps", ".").Output()
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(out), "rules/world/recording\n") {
		t.Fatalf("go list -deps lists something else: the test proves nothing\n%s", out)
	}
	for pkg := range strings.Lines(string(out)) {
		for _, not := range []string{"modernc.org/", "github.com/modelcontextprotocol/", "github.com/urfave/", "database/sql"} {
			if strings.HasPrefix(pkg, not) {
				t.Errorf("it links %s", pkg)
			}
		}
	}
}
