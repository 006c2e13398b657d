package escape

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

// shellTools are what shell rows call.
var shellTools = []string{"bash", "cat", "chmod", "grep", "head", "id", "ls", "ln", "mkdir", "mkfifo", "rmdir", "sleep", "stat", "su", "touch", "true", "uname", "unshare", "wc"}

// findPython is the real interpreter and its library: a shim of pyenv is a shell
// script, and what lies in a home folder isn't everybody's.
var findPython = sync.OnceValues(func() ([2]string, error) {
	var err error
	for _, name := range []string{"/usr/bin/python3", "python3"} {
		var b []byte
		b, err = exec.Command(name, "-c", "import os,sys,sysconfig; print(os.path.realpath(sys.executable)); print(os.path.realpath(sysconfig.get_path('stdlib')))").Output()
		if lines := strings.Split(string(b), "\n"); err == nil && len(lines) > 2 {
			return [2]string{lines[0], lines[1]}, nil
		}
	}
	return [2]string{}, err
})

// commandOf is what runs a row.
func commandOf(r row) []string {
	switch r.in {
	case native:
		return append([]string{binary("attempt")}, strings.Fields(r.try)...)
	case python:
		py, _ := findPython()
		return []string{py[0], "-c", pythonPrelude + "print(" + r.try + ")"}
	}
	return []string{"/bin/" + string(r.in), "-c", shellPrelude + r.try}
}

// resultOf takes the result out of what was printed.
func resultOf(r row, printed string) string {
	printed = strings.TrimSuffix(printed, "\n")
	if r.in == native {
		_, printed, _ = strings.Cut(printed, " ")
	}
	return strings.TrimSpace(printed)
}

// build is the text of a BUILD.star with an action for each row, and more.
type build struct {
	text  strings.Builder
	seals map[string]string // arguments to name
}

func newBuild(h *host) *build {
	b := &build{seals: map[string]string{}}
	b.line(`load("@eval//rules:action.star", "action")`)
	b.line(`load("@eval//rules:seal.star", "seal")`)
	b.line(`load("@eval//rules:tool.star", "tool")`)
	b.line(`tool(name = "attempt", path = "attempt-program")`)
	var data []string
	for _, name := range shellTools {
		for _, dir := range []string{"/bin/", "/usr/bin/"} {
			if _, err := os.Stat(dir + name); err == nil {
				data = append(data, dir+name)
				break
			}
		}
	}
	b.line(`tool(name = "sh", path = "/bin/sh", data = %s)`, list(data))
	b.line(`tool(name = "bash", path = "/bin/bash", data = %s)`, list(data))
	if py, err := findPython(); err == nil {
		b.line(`tool(name = "python", path = %s, data = %s)`, quote(py[0]), list(py[1:]))
	}
	vars := maps.Clone(h.vars)
	vars["FIRST"] = "1"
	vars["EXPECTED"] = "/in/p/expected.txt"
	b.line(`ENV = {"INPUT": "$(location input.txt)", "RESULT": "$(out result)",`)
	for _, name := range slices.Sorted(maps.Keys(vars)) {
		b.line("    %s: %s,", quote(name), quote(vars[name]))
	}
	b.line("}")
	return b
}

func (b *build) line(format string, args ...any) { fmt.Fprintf(&b.text, format+"\n", args...) }

// quote writes a string for Starlark, with dollars as they are.
func quote(s string) string { return strconv.QuoteToASCII(strings.ReplaceAll(s, "$", "$$")) }

func list(words []string) string {
	q := make([]string, len(words))
	for i, w := range words {
		q[i] = quote(w)
	}
	return "[" + strings.Join(q, ", ") + "]"
}

// add declares the row's action; after is another that must have run.
func (b *build) add(name string, r row, after string) {
	var args string
	switch r.in {
	case native:
		args = `["-o", "$(out result)"] + ` + list(strings.Fields(r.try))
	case python:
		args = list([]string{"-c", pythonPrelude + "r = " + r.try + "\nprint(r, file=open(env['RESULT'], 'w'))"})
	default:
		args = list([]string{"-c", "exec >\"$RESULT\"\n" + shellPrelude + r.try})
	}
	srcs := []string{"input.txt"}
	if after != "" {
		srcs = append(srcs, ":"+after)
	}
	seal := ""
	if r.seal != "" {
		if b.seals[r.seal] == "" {
			b.seals[r.seal] = fmt.Sprintf("seal%d", len(b.seals))
			b.line("seal(name = %q, %s)", b.seals[r.seal], r.seal)
		}
		seal = fmt.Sprintf(", seal = %q", ":"+b.seals[r.seal])
	}
	b.line("action(name = %q, tool = %q, args = %s, srcs = %s, outs = %s, env = ENV%s)",
		name, ":"+string(r.in), args, list(srcs), list(append([]string{"result"}, r.outs...)), seal)
}

// write makes the workspace of it.
func (b *build) write(t *testing.T, h *host) {
	t.Helper()
	h.must(t, os.WriteFile(h.path("ws/MODULE.star"), []byte("module(name = \"escape\")\n"), 0o644))
	h.must(t, os.WriteFile(h.path("ws/p/BUILD.star"), []byte(b.text.String()), 0o644))
	program, err := os.ReadFile(binary("attempt"))
	h.must(t, err)
	h.must(t, os.WriteFile(h.path("ws/p/attempt-program"), program, 0o755))
}

// An event is a line of ev's log of events.
type event struct{ Type, Label, Status, Error, Key string }

func readEvents(t *testing.T, file string) map[string]event {
	t.Helper()
	b, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]event{}
	for line := range strings.Lines(string(b)) {
		var e event
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			t.Fatal(err)
		}
		if e.Type == "action" {
			out[e.Label] = e
		}
	}
	return out
}

// result reads what an action wrote.
func (h *host) result(name string, r row) (string, error) {
	b, err := os.ReadFile(filepath.Join(h.path("ws/eval-out/p"), name, "result"))
	return resultOf(r, string(b)), err
}
