package main

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// What a workflow of GitHub Actions may say here: less than GitHub takes.
var (
	workflowKeys = []string{"name", "on", "permissions", "concurrency", "jobs"}
	startEvents  = []string{"push", "pull_request", "schedule", "workflow_dispatch"} // never pull_request_target
	jobKeys      = []string{"name", "needs", "if", "runs-on", "environment", "permissions", "env", "timeout-minutes", "steps"}
	stepKeys     = []string{"name", "id", "if", "uses", "with", "run", "env", "timeout-minutes"}
	actionRef    = regexp.MustCompile(`^[\w.-]+/[\w./-]+@[\w.-]+$`)
	jobName      = regexp.MustCompile(`^[A-Za-z_][\w-]*$`)
	expression   = regexp.MustCompile(`\$\{\{\s*(.*?)\s*\}\}`)
	secretName   = regexp.MustCompile(`^secrets\.[A-Z_][A-Z0-9_]*$`)
)

// A workflow is what was found out of one.
type workflow struct {
	starts   []string // events
	calls    int      // of ev
	problems []string
}

func (w *workflow) problem(at, format string, args ...any) {
	w.problems = append(w.problems, at+": "+fmt.Sprintf(format, args...))
}

// readWorkflow checks a workflow's text.
func readWorkflow(text string) *workflow {
	w := &workflow{}
	var m map[string]any
	if err := yaml.Unmarshal([]byte(text), &m); err != nil {
		w.problem("YAML", "%v", err)
		return w
	}
	switch on := m["on"].(type) {
	case string:
		w.starts = []string{on}
	case []any:
		for _, e := range on {
			w.starts = append(w.starts, fmt.Sprint(e))
		}
	case map[string]any:
		w.starts = slices.Sorted(maps.Keys(on))
	}
	if len(w.starts) == 0 {
		w.problem("on", "nothing starts it")
	}
	for _, e := range w.starts {
		if !slices.Contains(startEvents, e) {
			w.problem("on", "%s", e)
		}
	}
	w.keys("workflow", m, workflowKeys)
	w.permissions("workflow", m["permissions"])
	jobs, _ := m["jobs"].(map[string]any)
	if len(jobs) == 0 {
		w.problem("workflow", "no jobs")
	}
	for _, id := range slices.Sorted(maps.Keys(jobs)) {
		job, ok := jobs[id].(map[string]any)
		if !ok || !jobName.MatchString(id) {
			w.problem("jobs", "%q is no job", id)
			continue
		}
		w.job(id, job)
	}
	return w
}

func (w *workflow) keys(at string, m map[string]any, known []string) {
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if !slices.Contains(known, k) {
			w.problem(at, "unknown key %q", k)
		}
	}
}

// permissions have to be said: the default of older repositories is to write.
func (w *workflow) permissions(at string, v any) {
	m, ok := v.(map[string]any)
	if !ok || len(m) == 0 {
		w.problem(at, "permissions is no mapping of scopes")
	}
	for scope, may := range m {
		if may != "read" && may != "none" {
			w.problem(at, "permissions: %s: %v", scope, may)
		}
	}
}

func (w *workflow) job(id string, m map[string]any) {
	w.keys(id, m, jobKeys)
	w.env(id, m["env"])
	if m["permissions"] != nil {
		w.permissions(id, m["permissions"])
	}
	if s, _ := m["runs-on"].(string); s == "" {
		w.problem(id, "no runs-on")
	}
	if n, _ := m["timeout-minutes"].(int); n <= 0 {
		w.problem(id, "no timeout-minutes: the default is six hours")
	}
	steps, _ := m["steps"].([]any)
	if len(steps) == 0 {
		w.problem(id, "no steps")
	}
	for i, s := range steps {
		at := fmt.Sprintf("%s: step %d", id, i+1)
		if step, ok := s.(map[string]any); ok {
			w.step(at, step)
		} else {
			w.problem(at, "no mapping")
		}
	}
}

func (w *workflow) step(at string, m map[string]any) {
	w.keys(at, m, stepKeys)
	w.env(at, m["env"])
	uses, isUses := m["uses"].(string)
	run, isRun := m["run"].(string)
	if isUses == isRun {
		w.problem(at, "a step has either uses or run")
	}
	if isUses && !actionRef.MatchString(uses) {
		w.problem(at, "uses: %q is not OWNER/NAME@REF", uses)
	}
	if _, ok := m["with"].(map[string]any); m["with"] != nil && (!ok || !isUses) {
		w.problem(at, "with is a mapping, beside uses")
	}
	if strings.Contains(fmt.Sprint(m["with"]), "secrets.") {
		w.problem(at, "a secret for somebody else's action")
	}
	w.script(at, run)
}

// env checks variables: secrets come in here and nowhere else, and what would be
// a flag has to be one.
func (w *workflow) env(at string, v any) {
	m, ok := v.(map[string]any)
	if v != nil && !ok {
		w.problem(at, "env is no mapping")
	}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		for _, e := range expression.FindAllStringSubmatch(fmt.Sprint(m[name]), -1) {
			switch {
			case !secretName.MatchString(e[1]):
				w.problem(at, "%s: the expression %q", name, e[1])
			case slices.Contains(w.starts, "pull_request"):
				w.problem(at, "%s: a secret in a workflow of pull requests", name)
			}
		}
		if flag, ours := strings.CutPrefix(name, "EVAL_"); ours && findFlag(buildFlags, strings.ToLower(flag)) == nil {
			w.problem(at, "%s: ev build has no flag --%s", name, strings.ToLower(flag))
		}
	}
}

var evWord = regexp.MustCompile(`(^|[\s;&|(])ev\s`)

// script checks what a step runs, and counts the calls of ev.
func (w *workflow) script(at, script string) {
	if strings.Contains(script, "${{") {
		w.problem(at, "an expression in a script is pasted into it as code: it goes through env")
	}
	for _, line := range shellLines(script) {
		switch {
		case !evWord.MatchString(line + " "):
			continue
		case !strings.HasPrefix(line, "ev "):
			w.problem(at, "%q: ev is to begin its line", line)
		default:
			if err := evLine(line); err != nil {
				w.problem(at, "%q: %v", line, err)
			}
		}
		w.calls++
	}
}

// shellLines gives the lines of a script, with those that end with a backslash
// joined.
func shellLines(script string) []string {
	return strings.Split(regexp.MustCompile(`\\\n\s*`).ReplaceAllString(script, ""), "\n")
}

// evLine says what is wrong with a line of a shell that calls ev, or nothing.
// The flags are read as by the verb; nothing runs.
func evLine(line string) error {
	words, err := splitWords(line)
	if err != nil {
		return err
	}
	app := newApp()
	words = verbFirst(app, words[1:])
	if len(words) == 0 {
		return fmt.Errorf("no verb")
	}
	cmd := app.Command(words[0])
	if cmd == nil {
		return fmt.Errorf("there is no verb %q", words[0])
	}
	s := settings{values: map[string]string{}, set: map[string]string{}}
	if err := s.take(words[1:], cmd.Flags, "docs/ci.md", true); err != nil {
		return err
	}
	if strings.ContainsAny(strings.Join(s.args, ""), "|&;<>") {
		return fmt.Errorf("more than a command of its own; the test reads no such lines")
	}
	return nil
}

// TestReadWorkflow shows that each rule can fail.
func TestReadWorkflow(t *testing.T) {
	good := `
name: x
on: {pull_request: {}, push: {branches: [main]}}
permissions: {contents: read}
jobs:
  build:
    runs-on: ubuntu-24.04
    timeout-minutes: 5
    env:
      EVAL_JOBS: 2
    steps:
      - uses: actions/checkout@v4
        with: {fetch-depth: 0}
      - run: |
          echo "that is even simpler"
          ev build --jobs=2 \
            --keep_going //...
`
	if w := readWorkflow(good); len(w.problems) > 0 || w.calls != 1 {
		t.Fatalf("%d calls, %q", w.calls, w.problems)
	}
	for _, c := range []struct{ from, to, problem string }{
		{"name: x", "name: x\nname: y", "YAML: "},
		{"pull_request: {}", "pull_request_target: {}", "on: pull_request_target"},
		{"on: {pull_request: {}, push: {branches: [main]}}", "", "on: nothing starts it"},
		{"permissions: {contents: read}", "", "workflow: permissions is no mapping"},
		{"contents: read", "contents: write", "workflow: permissions: contents: write"},
		{"jobs:", "job:", `workflow: unknown key "job"`},
		{"  build:", "  1build:", `jobs: "1build" is no job`},
		{"runs-on: ubuntu-24.04", "name: y", "build: no runs-on"},
		{"timeout-minutes: 5", "name: y", "build: no timeout-minutes"},
		{"EVAL_JOBS: 2", "EVAL_JOB: 2", "build: EVAL_JOB: ev build has no flag --job"},
		{"EVAL_JOBS: 2", "X: ${{ secrets.X }}", "build: X: a secret in a workflow of pull requests"},
		{"EVAL_JOBS: 2", "X: ${{ github.head_ref }}", `build: X: the expression "github.head_ref"`},
		{"actions/checkout@v4", "actions/checkout", "build: step 1: uses: "},
		{"fetch-depth: 0", "token: '${{ secrets.X }}'", "build: step 1: a secret for somebody else's action"},
		{"- uses: actions/checkout@v4", "- run: ls", "build: step 1: with is a mapping, beside uses"},
		{"- run: |", "- uses: a/b@v1\n        run: |", "build: step 2: a step has either uses or run"},
		{"even simpler", "${{ github.head_ref }}", "build: step 2: an expression in a script"},
		{"even simpler", "; ev build", `build: step 2: "echo`},
		{"--keep_going", "--keep_goin", "unknown flag --keep_goin"},
		{"ev build", "ev biuld", `there is no verb "biuld"`},
		{"//...", "//... | tee log", "more than a command"},
	} {
		text := strings.Replace(good, c.from, c.to, 1)
		if w := readWorkflow(text); text == good || len(w.problems) == 0 || !strings.Contains(strings.Join(w.problems, "\n"), c.problem) {
			t.Errorf("%q for %q: %q; want %q", c.to, c.from, w.problems, c.problem)
		}
	}
}
