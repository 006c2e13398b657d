package main

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"os"
	"sync"
	"time"

	"golang.org/x/term"

	"github.com/evalbuild/eval/workspace/engine"
)

// progress shows a build on standard error: one live line on a terminal,
// plain lines elsewhere, and there only for what ran.
type progress struct {
	mu      sync.Mutex
	w       io.Writer
	live    bool
	last    time.Time
	drawn   bool
	started time.Time
	ran     int
	cached  int
	remote  int
}

const (
	redraw    = 100 * time.Millisecond
	maxPlain  = 20 // lines, before only every hundredth run is told
	clearLine = "\r\x1b[K"
)

func newProgress(f *os.File) *progress {
	return &progress{w: f, live: term.IsTerminal(int(f.Fd())) && os.Getenv("TERM") != "dumb", started: time.Now()}
}

func (p *progress) event(e engine.Event) {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch e.Status {
	case engine.Ran:
		p.ran++
	case engine.Disk:
		p.cached++
	case engine.Remotely:
		p.remote++
	}
	if p.live {
		if now := time.Now(); now.Sub(p.last) > redraw {
			p.last, p.drawn = now, true
			left := ""
			if e.Done > 0 && e.Done < e.Total {
				left = fmt.Sprintf(", %s left", (now.Sub(p.started) * time.Duration(e.Total-e.Done) / time.Duration(e.Done)).Round(time.Second))
			}
			remote := ""
			if p.remote > 0 {
				remote = fmt.Sprintf(", %d from the remote cache", p.remote)
			}
			fmt.Fprintf(p.w, "%s%d/%d actions, %d ran, %d cached%s%s", clearLine, e.Done, e.Total, p.ran, p.cached, remote, left)
		}
		return
	}
	if e.Status == engine.Ran && (p.ran <= maxPlain || p.ran%100 == 0) {
		fmt.Fprintf(p.w, "[%d/%d] %s %s %s: %s\n", e.Done, e.Total, e.Action.Mnemonic, e.Action.Owner, e.Action.Slot().Path, safe(e.Why))
	}
}

// say prints a line without breaking the live one.
func (p *progress) say(format string, args ...any) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
	fmt.Fprintf(p.w, format+"\n", args...)
}

func (p *progress) clear() {
	if p.drawn {
		fmt.Fprint(p.w, clearLine)
		p.drawn = false
	}
}

func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.clear()
}

// An eventLog writes --events (JSON lines) and --profile (a Chrome trace).
type eventLog struct {
	events, profile *jsonFile
	start           time.Time
	spans           int
}

type jsonFile struct {
	f *os.File
	w *bufio.Writer
}

func createJSON(path string) (*jsonFile, error) {
	if path == "" {
		return nil, nil
	}
	f, err := os.Create(path)
	if err != nil {
		return nil, usageErrorf("write %v", err)
	}
	return &jsonFile{f, bufio.NewWriter(f)}, nil
}

func (j *jsonFile) close() error {
	err := j.w.Flush()
	if cerr := j.f.Close(); err == nil {
		err = cerr
	}
	return err
}

func newEventLog(events, profile string) (*eventLog, error) {
	l := &eventLog{start: time.Now()}
	var err error
	if l.events, err = createJSON(events); err != nil {
		return nil, err
	}
	if l.profile, err = createJSON(profile); err != nil {
		return nil, err
	}
	if l.profile != nil {
		fmt.Fprint(l.profile.w, "[\n")
	}
	return l, nil
}

func (l *eventLog) line(v any) {
	b, _ := json.Marshal(v) // only strings and numbers: can't fail
	l.events.w.Write(append(b, '\n'))
	l.events.w.Flush() // for who follows the file, and for kill -9; close reports the error
}

func (l *eventLog) action(e engine.Event) {
	if l.events != nil {
		l.line(struct {
			Type     string  `json:"type"`
			Label    string  `json:"label"`
			Mnemonic string  `json:"mnemonic"`
			Output   string  `json:"output"`
			Key      string  `json:"key"`
			Status   string  `json:"status"`
			Why      string  `json:"why"`
			WallMS   float64 `json:"wall_ms"`
			TookMS   float64 `json:"took_ms,omitempty"` // its function alone
			USD      float64 `json:"usd"`
			Error    string  `json:"error,omitempty"`
		}{
			"action", e.Action.Owner.String(), e.Action.Mnemonic, e.Action.Slot().Path, keyText(e), string(e.Status), e.Why,
			float64(e.Wall.Microseconds()) / 1000, float64(e.Took.Microseconds()) / 1000, usdOf(e), errText(e.Err),
		})
	}
	if l.profile != nil && !e.Start.IsZero() {
		if l.spans > 0 {
			fmt.Fprint(l.profile.w, ",\n")
		}
		l.spans++
		b, _ := json.Marshal(map[string]any{
			"name": e.Action.Mnemonic + " " + e.Action.Slot().String(), "cat": string(e.Status), "ph": "X", "pid": 1, "tid": e.Worker,
			"ts": e.Start.Sub(l.start).Microseconds(), "dur": e.Wall.Microseconds(),
		})
		l.profile.w.Write(b)
	}
}

// usdOf is what the action has cost in this build.
func usdOf(e engine.Event) float64 {
	if e.USD == nil || e.Status != engine.Ran {
		return 0
	}
	return *e.USD
}

func keyText(e engine.Event) string {
	if e.Key.IsZero() {
		return ""
	}
	return e.Key.String()
}

func errText(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// finish writes the targets and the summary. This version knows no remote: what
// counts that is 0.
func (l *eventLog) finish(rep *engine.Report, cards []*scorecard) {
	if l.events == nil {
		return
	}
	degraded := 0
	for _, c := range cards {
		for _, r := range c.Reps {
			if r.Outcome == "DEGRADED" {
				degraded++
			}
		}
	}
	for _, t := range rep.Targets {
		l.line(struct {
			Type    string `json:"type"`
			Label   string `json:"label"`
			Status  string `json:"status"`
			Outputs int    `json:"outputs"`
		}{"target", t.Target.Label.String(), string(t.Status), t.Outputs})
	}
	l.line(struct {
		Type       string  `json:"type"`
		Targets    int     `json:"targets"`
		Actions    int     `json:"actions"`
		Ran        int     `json:"ran"`
		Disk       int     `json:"disk"`
		Remote     int     `json:"remote"`
		Failed     int     `json:"failed"`
		Skipped    int     `json:"skipped"`
		Degraded   int     `json:"degraded"`
		Drawn      int     `json:"drawn"`
		USDSpent   float64 `json:"usd_spent"`
		USDSaved   float64 `json:"usd_saved"`
		USDUnknown int     `json:"usd_unknown"`
	}{"summary", len(rep.Targets), rep.Actions, rep.Ran, rep.Disk, rep.Remote, rep.Failed, rep.Skipped, degraded, rep.Drawn, micros(rep.Spent.USD), micros(rep.Saved.USD), rep.Spent.Unknown})
}

// micros rounds dollars to millionths, so that a sum of cents is one.
func micros(usd float64) float64 { return math.Round(usd*1e6) / 1e6 }

func (l *eventLog) close() {
	if l.profile != nil {
		fmt.Fprint(l.profile.w, "\n]\n")
	}
	for _, j := range []*jsonFile{l.events, l.profile} {
		if j == nil {
			continue
		}
		if err := j.close(); err != nil {
			fmt.Fprintf(os.Stderr, "eval: warning: write %s: %v\n", j.f.Name(), err)
		}
	}
}
