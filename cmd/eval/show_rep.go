package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules/transcript"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

// An outcome is what outcome.json says of a rep.
type outcome struct {
	Outcome string
	Capture string
	Thread  string
	Reasons []struct{ Code, Detail string }
	Usage   map[string]*int64
}

// showRep shows one rep of the last build: its outputs, its transcript, and of
// a live one how it was drawn.
func (s *session) showRep(eng *engine.Engine, t *starlark.Target, rep string) error {
	var judge *graph.Action
	var names []string
	for _, a := range t.Result.Actions {
		name, ok := strings.CutSuffix(a.Slot().Path, "/outcome.json")
		if !ok || !strings.HasPrefix(name, "reps/") {
			continue
		}
		name = strings.TrimPrefix(name, "reps/")
		names = append(names, name)
		if name == rep {
			judge = a
		}
	}
	if judge == nil {
		return usageErrorf("%s has no rep %q%s", t.Label, rep, graph.DidYouMean(rep, names))
	}
	folder := filepath.Join(eng.Folder(t.Label), "reps", rep)
	data, err := os.ReadFile(filepath.Join(folder, "outcome.json"))
	if err != nil {
		if shown, err := s.showUnscored(t, rep); shown || err != nil {
			return err
		}
		return failf(exitFailed, "show %s %s: it is not built", t.Label, rep).hint("ev build %s", t.Label)
	}
	var out outcome
	if err := json.Unmarshal(data, &out); err != nil {
		return failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
	}
	fmt.Fprintf(stdout, "%s %s: %s\n", t.Label, rep, safe(out.Outcome))
	for _, r := range out.Reasons {
		fmt.Fprintf(stdout, "  %s: %s\n", safe(r.Code), safe(r.Detail))
	}
	_, err = os.Lstat(filepath.Join(folder, "exit.json"))
	live := err == nil
	if !live { // what is kept of a live rep is more than its transcript
		repLine("capture", "%s", out.Capture)
	}
	if out.Thread != "" {
		repLine("thread", "%s", out.Thread)
	}
	var usage []string
	for _, name := range []string{"input", "cached_input", "cache_write", "output", "reasoning"} {
		if n := out.Usage[name]; n != nil {
			usage = append(usage, fmt.Sprintf("%s %d", name, *n))
		}
	}
	if len(usage) > 0 {
		repLine("tokens", "%s", strings.Join(usage, ", "))
	}
	if live {
		if err := s.showDraw(eng, t, folder, rep); err != nil {
			return failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
		}
	}
	if err := s.showCommands(eng, judge); err != nil {
		return err
	}
	reply, err := os.ReadFile(filepath.Join(folder, "reply.txt"))
	if err != nil {
		return failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
	}
	repLine("reply", "%s", plural(len(reply), "byte", "bytes"))
	fmt.Fprintf(stdout, "%s\n", safeLines(string(reply)))
	return nil
}

// showUnscored shows a rep that was drawn last of a target that was not scored
// since: how it ended, and what it said.
func (s *session) showUnscored(t *starlark.Target, rep string) (shown bool, err error) {
	lock, err := s.readLock(t.Label)
	if err != nil {
		return false, failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
	}
	for _, line := range slices.Backward(lock.Lines()) {
		if line.Label != t.Label || line.Capture.IsZero() || repName(line.Sample.Stream, line.Sample.Index) != rep {
			continue
		}
		r, _, err := s.store.LookupCapture(cas.Digest(line.Key), line.Capture)
		if err != nil {
			return false, failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
		}
		fmt.Fprintf(stdout, "%s %s: drawn and not scored\n", t.Label, rep)
		repLine("capture", "%s", line.Capture)
		var exit engine.ExitFacts
		var reply []byte
		for _, f := range r.Files {
			data := f.Contents
			if !f.Inlined() {
				if data, err = s.store.Read(f.Digest); err != nil {
					return false, failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
				}
			}
			switch f.Path {
			case graph.FactsDir + graph.FormatExit:
				err = json.Unmarshal(data, &exit)
			case graph.FactsDir + graph.FormatStdout:
				reply = data
			}
			if err != nil {
				return false, failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
			}
		}
		repLine("ended", "%s", exitText(exit))
		if !r.Stderr.IsZero() {
			data, err := s.store.Read(r.Stderr)
			if err != nil {
				return false, failf(exitFailed, "show %s %s: %v", t.Label, rep, err)
			}
			repLine("stderr", "%s", plural(len(data), "byte", "bytes"))
			fmt.Fprintf(stdout, "%s\n", safeLines(string(data)))
		}
		repLine("reply", "%s", plural(len(reply), "byte", "bytes"))
		fmt.Fprintf(stdout, "%s\n", safeLines(string(reply)))
		return true, nil
	}
	return false, nil
}

// repLine prints one line of a rep.
func repLine(name, format string, args ...any) {
	fmt.Fprintf(stdout, "%-8s %s\n", name, safe(fmt.Sprintf(format, args...)))
}

// showDraw shows how a live rep ended, what it cost, what it was sealed by, and
// its line in draws.lock; of its standard error what the store has.
func (s *session) showDraw(eng *engine.Engine, t *starlark.Target, folder, rep string) error {
	var exit engine.ExitFacts
	var facts struct {
		USD *float64 `json:"usd"`
	}
	for name, to := range map[string]any{"exit.json": &exit, "facts.json": &facts} {
		data, err := os.ReadFile(filepath.Join(folder, name))
		if err == nil {
			err = json.Unmarshal(data, to)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	cost := "unknown: it didn't say"
	if facts.USD != nil {
		cost = costText(engine.Cost{USD: *facts.USD})
	}
	repLine("cost", "%s", cost)
	repLine("ended", "%s", exitText(exit))
	for _, r := range exit.Rejected {
		repLine("rejected", "%s: %s", r.Path, r.Reason)
	}
	if err := showEgress(filepath.Join(folder, "egress.jsonl")); err != nil {
		return err
	}
	data, err := os.ReadFile(filepath.Join(folder, "seal.json"))
	if err != nil {
		return err
	}
	record, err := sandbox.DecodeRecord(data)
	if err != nil {
		return fmt.Errorf("seal.json: %w", err)
	}
	repLine("seal", "tier %s, limits %s", record.Tier, record.Limits)
	return s.showLockLine(eng, t, rep)
}

// exitText is how a rep ended, in one line.
func exitText(exit engine.ExitFacts) string {
	parts := []string{exit.Status.String()}
	if len(exit.Limits) > 0 {
		parts = append(parts, "stopped by its limit of "+strings.Join(exit.Limits, ", "))
	}
	if exit.Survivors > 0 {
		parts = append(parts, plural(exit.Survivors, "process outlived it", "processes outlived it"))
	}
	if exit.Attempts > 1 {
		parts = append(parts, fmt.Sprintf("%d attempts", exit.Attempts))
	}
	return strings.Join(parts, "; ")
}

// showEgress shows each connection that a rep asked for.
func showEgress(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	attempts := 0
	for d := json.NewDecoder(f); ; attempts++ {
		var e egress.Attempt
		if err := d.Decode(&e); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			return fmt.Errorf("egress.jsonl: %w", err)
		}
		repLine("egress", "%d. %s %s:%d %s %s", e.Seq, e.Via, e.Host, e.Port, e.Verdict, e.Reason)
	}
	if attempts == 0 {
		repLine("egress", "no attempt")
	}
	return nil
}

// showLockLine shows what draws.lock has of a rep of the last build, which its
// scorecard names by the digest of its capture.
func (s *session) showLockLine(eng *engine.Engine, t *starlark.Target, rep string) error {
	card, err := builtCard(eng, t)
	if err != nil {
		return err
	}
	lock, err := s.readLock(t.Label)
	if err != nil {
		return err
	}
	capture := ""
	for _, r := range card.Reps {
		if repName(r.Arm, r.Index) == rep {
			capture = r.Capture
		}
	}
	repLine("capture", "%s", capture)
	line, ok := lineOf(lock, t.Label, rep, capture)
	if !ok {
		repLine("lock", "draws.lock has no such draw")
		return nil
	}
	state := lock.State(line.ID)
	text := fmt.Sprintf("%s by run %.8s, %s, epoch %d", line.Kind, line.Run, plural(max(1, line.Attempts), "attempt", "attempts"), line.Sample.Epoch)
	if line.Kind == draws.Adopted {
		text = fmt.Sprintf("adopted from the %s by run %.8s, epoch %d", line.From, line.Run, line.Sample.Epoch)
	}
	if line.Sample.Redraw > 0 {
		text += fmt.Sprintf(", redraw %d", line.Sample.Redraw)
	}
	if state.Abandoned > 0 {
		text += fmt.Sprintf(", %d abandoned", state.Abandoned)
	}
	if n := len(state.Rivals); n > 0 {
		text += fmt.Sprintf(", %s beside it: two branches drew", plural(n, "other capture", "other captures"))
	}
	if n := len(state.Surplus); n > 0 {
		text += fmt.Sprintf(", %s beside it: two runs drew", plural(n, "surplus capture", "surplus captures"))
	}
	repLine("lock", "%s (seq %d)", text, line.Seq)
	return s.showStderr(line)
}

// lineOf finds the line that gave a rep its capture: the last one of the label,
// or of a label that it was renamed from.
func lineOf(lock *draws.Lock, label graph.Label, rep, capture string) (found draws.Line, ok bool) {
	for _, l := range lock.Lines() {
		if l.Kind != draws.Draw && l.Kind != draws.Adopted || repName(l.Sample.Stream, l.Sample.Index) != rep ||
			l.Capture.Func.String()+":"+l.Capture.Hex() != capture {
			continue
		}
		if !ok || l.Label == label || found.Label != label {
			found, ok = l, true
		}
	}
	return found, ok
}

// showStderr shows what a rep wrote to its standard error, which is no output
// but is kept with its capture.
func (s *session) showStderr(line draws.Line) error {
	r, _, err := s.store.LookupCapture(cas.Digest(line.Key), line.Capture)
	if err != nil {
		repLine("store", "%v", err)
		return nil
	}
	if r.Stderr.IsZero() {
		return nil
	}
	b, err := s.store.Read(r.Stderr)
	if err != nil {
		return err
	}
	repLine("stderr", "%s", plural(len(b), "byte", "bytes"))
	fmt.Fprintf(stdout, "%s\n", safeLines(strings.TrimRight(string(b), "\n")))
	return nil
}

// showCommands lists what the rep ran, from its transcript: a source, or what
// was made of a live rep.
func (s *session) showCommands(eng *engine.Engine, judge *graph.Action) error {
	for _, in := range judge.Inputs {
		name, _, _ := strings.Cut(in.Codec, "@")
		codec, ok := transcript.Lookup(name)
		if !ok {
			continue
		}
		var rc io.ReadCloser
		var err error
		if in.File.Source() {
			repLine("from", "%s (%s)", in.File.Slash(), in.Codec)
			rc, err = sources(files{s.ws}).Open(in.File.Label)
		} else {
			rc, err = os.Open(filepath.Join(eng.Folder(in.File.Action.Owner), filepath.FromSlash(in.File.Path)))
		}
		if errors.Is(err, fs.ErrNotExist) && !in.File.Source() {
			continue
		}
		if err != nil {
			return failf(exitFailed, "%v", err)
		}
		defer rc.Close()
		_, err = codec.Scan(rc, func(e transcript.Event) error {
			if e.Kind == transcript.KindCommand {
				repLine("command", "%s (%s)", e.Text, e.Status)
			}
			return nil
		})
		if err != nil {
			return failf(exitFailed, "%v", err)
		}
	}
	return nil
}
