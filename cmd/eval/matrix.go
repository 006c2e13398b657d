package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/evalbuild/eval/workspace/engine"
)

// A lensRow is what one lens says of a scenario.
type lensRow struct {
	Verdict     string `json:"verdict"`
	Truth       string `json:"truth"`
	Provisional string `json:"provisional"`
	Settled     string `json:"settled"`
	Agree       bool   `json:"agree"`
	Reasons     []struct {
		Check  string `json:"check"`
		Detail string `json:"detail"`
	} `json:"reasons"`
}

// A scenarioRow is one scenario, alone or in a matrix.
type scenarioRow struct {
	ID         string            `json:"id"`
	Target     string            `json:"target"`
	Policy     lensRow           `json:"policy"`
	Outcome    lensRow           `json:"outcome"`
	Missing    []string          `json:"missing"`
	Duplicates int               `json:"duplicates"`
	Orphans    []json.RawMessage `json:"orphans"`
	Claimed    *bool             `json:"claimed_success"`
	Agent      string            `json:"agent"`
	Calls      int               `json:"calls"`
	Expect     expectation       `json:"expect"`
	Expected   bool              `json:"expected"`
	Trace      string            `json:"trace"`
	Degraded   []struct {
		Code   string `json:"code"`
		Detail string `json:"detail"`
	} `json:"degraded"`
	Replay *struct {
		Calls  int `json:"calls"`
		Differ int `json:"differ"`
	} `json:"replay"`
}

// latency is how long the contracts took that a build has verified.
type latency struct {
	n        int
	sum, max time.Duration
}

func (l *latency) event(e engine.Event) {
	if e.Action.Mnemonic == "Verify" && e.Status == engine.Ran {
		l.n++
		l.sum += e.Took
		l.max = max(l.max, e.Took)
	}
}

func (l *latency) String() string {
	if l.n == 0 {
		return "nothing had to be verified"
	}
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 }
	return fmt.Sprintf("mean %.2f ms, max %.2f ms, over %d verified", ms(l.sum)/float64(l.n), ms(l.max), l.n)
}

// printMatrix prints the text that a matrix has made of itself; after a build only
// what is above its table of all verdicts, and how long its contracts took.
func printMatrix(w io.Writer, t engine.TargetResult, verified *latency) error {
	data, err := t.Output("matrix.md")
	if err != nil {
		return failf(exitInfra, "%v", err)
	}
	text := strings.TrimPrefix(string(data), "# Failure matrix\n\n")
	if verified == nil {
		fmt.Fprintln(w, safeLines(strings.TrimSpace(text)))
		return nil
	}
	text, _, _ = strings.Cut(text, "\n## Verdicts\n")
	text = strings.TrimSpace(text)
	if all, ok := strings.CutSuffix(text, "\n\n## Disagreements and surprises\n\nNone."); ok {
		text = all
	}
	fmt.Fprintf(w, "%s\n\nverify latency: %s\neach verdict: ev show %s\n", safeLines(text), verified, t.Target.Label)
	return nil
}

// notable says whether somebody should look at the scenario.
func (r *scenarioRow) notable() bool { return !r.Policy.Agree || !r.Outcome.Agree || !r.Expected }

// text is "FAIL (provisional PASS, settled PASS; truth PASS)".
func (l *lensRow) text() string {
	var more []string
	if l.Provisional != l.Verdict || l.Settled != l.Verdict {
		more = append(more, fmt.Sprintf("provisional %s, settled %s", l.Provisional, l.Settled))
	}
	if l.Truth != l.Verdict {
		more = append(more, "truth "+l.Truth)
	}
	if len(more) == 0 {
		return l.Verdict
	}
	return l.Verdict + " (" + strings.Join(more, "; ") + ")"
}

func (r *scenarioRow) printLine(w io.Writer) {
	fmt.Fprintf(w, "  %s  policy %s, outcome %s%s\n", safe(r.ID), safe(r.Policy.text()), safe(r.Outcome.text()), safe(r.unexpected()))
	for _, x := range r.Policy.Reasons {
		fmt.Fprintf(w, "    %s: %s\n", safe(x.Check), safe(x.Detail))
	}
}

func (r *scenarioRow) unexpected() string {
	if r.Expected {
		return ""
	}
	return "; expected " + string(r.Expect)
}

// maxScenarios is how many scenarios that are as they should be are listed one
// by one.
const maxScenarios = 8

// printScenarios prints scenarios that were built on their own account.
func printScenarios(w io.Writer, rows []*scenarioRow) {
	agree, expected := 0, 0
	for _, r := range rows {
		if r.Policy.Agree && r.Outcome.Agree {
			agree++
		}
		if r.Expected {
			expected++
		}
		if len(rows) <= maxScenarios || r.notable() {
			r.printLine(w)
		}
	}
	if len(rows) > maxScenarios {
		fmt.Fprintf(w, "%d scenarios: %d agree with the truth in both lenses, %d as expected\n", len(rows), agree, expected)
	}
}

// showScenario prints all of a scenario.
func (s *scorecard) showScenario(t engine.TargetResult) error {
	r := new(scenarioRow)
	if err := json.Unmarshal(s.raw, r); err != nil {
		return fmt.Errorf("read the row of %s: %w", s.Target, err)
	}
	showLine(r.Target, "(scenario, agent %s)", r.Agent)
	for _, l := range []struct {
		name string
		lens *lensRow
	}{{"policy", &r.Policy}, {"outcome", &r.Outcome}} {
		showLine(l.name, "%s", l.lens.text())
		for _, x := range l.lens.Reasons {
			showLine("", "%s: %s", x.Check, x.Detail)
		}
	}
	claim := "nothing"
	if r.Claimed != nil {
		claim = map[bool]string{true: "success", false: "failure"}[*r.Claimed]
	}
	showLine("agent", "%s, claims %s; a judge of its trace alone would say %s", plural(r.Calls, "call", "calls"), claim, r.Trace)
	for _, d := range r.Degraded {
		showLine("ended", "%s: %s", d.Code, d.Detail)
	}
	if r.Replay != nil {
		showLine("replay", "%d of %s differ", r.Replay.Differ, plural(r.Replay.Calls, "recorded call", "recorded calls"))
	}
	if len(r.Missing) > 0 {
		showLine("missing", "%s", strings.Join(r.Missing, ", "))
	}
	if r.Duplicates > 0 {
		showLine("duplicates", "%d", r.Duplicates)
	}
	for _, o := range r.Orphans {
		showLine("orphan", "%s", string(o))
	}
	if !r.Expected {
		showLine("expected", "%s", r.Expect)
	}
	return showRun(t)
}

// showRun prints what an agent did and was told, and of a program what it had to
// say at the end.
func showRun(t engine.TargetResult) error {
	data, err := t.Output("run.jsonl")
	if err != nil {
		return failf(exitInfra, "%v", err)
	}
	defer func() {
		if said, err := t.Output("stderr.txt"); err == nil && len(said) > 0 { // a scripted agent has none
			lines := strings.Split(strings.TrimRight(string(said), "\n"), "\n")
			for _, l := range lines[max(0, len(lines)-maxSaid):] {
				showLine("stderr", "%s", short(l))
			}
		}
	}()
	for text := range strings.Lines(string(data)) {
		var line struct {
			Call *struct {
				N         int             `json:"n"`
				Operation string          `json:"operation"`
				Method    string          `json:"method"` // where no operation has the path
				Path      string          `json:"path"`
				Key       *string         `json:"key"`
				Body      json.RawMessage `json:"body"`
				Delivered bool            `json:"delivered"`
				Status    int             `json:"status"`
				Reply     json.RawMessage `json:"reply"`
			} `json:"call"`
			Report *struct {
				Success bool   `json:"success"`
				Message string `json:"message"`
			} `json:"report"`
		}
		if err := json.Unmarshal([]byte(text), &line); err != nil {
			return failf(exitFailed, "read the run of %s: %v", t.Target.Label, err)
		}
		switch c := line.Call; {
		case c != nil:
			method, _, _ := strings.Cut(c.Operation, " ")
			asked := cmp.Or(method, c.Method) + " " + c.Path
			if len(c.Body) > 0 && string(c.Body) != "null" {
				asked += " " + short(string(c.Body))
			}
			if c.Key != nil {
				asked += " key " + *c.Key
			}
			told := "no reply"
			if c.Delivered {
				told = fmt.Sprintf("%d %s", c.Status, short(string(c.Reply)))
			}
			showLine(fmt.Sprintf("call %d", c.N), "%s → %s", asked, told)
		case line.Report != nil:
			showLine("report", "success %v %s", line.Report.Success, line.Report.Message)
		}
	}
	return nil
}

// maxSaid is how many lines of an agent's stderr are shown, the last ones.
const maxSaid = 12

// short cuts what is long.
func short(s string) string {
	const most = 120
	if r := []rune(s); len(r) > most {
		return string(r[:most]) + "…"
	}
	return s
}
