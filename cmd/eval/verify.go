package main

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"sort"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func verifyCommand() *cli.Command {
	flags := append(slices.Clone(loadFlags), flagJobs,
		&cli.BoolFlag{Name: "blobs", DisableDefaultText: true, Usage: "read and hash everything in the store too; what is damaged is moved to its quarantine folder, but for captures"})
	return verb("verify", "compute everything again from recorded bytes and compare", "PATTERN... | DIR...", flags,
		func(c *cli.Context, s *settings) error {
			dirs, err := setArgs(s.args)
			if err != nil {
				return err
			}
			if len(dirs) > 0 { // no workspace is needed
				return verifySets(c.Context, s, dirs)
			}
			return withSession(c.Context, s, runVerify)
		})
}

func runVerify(ctx context.Context, s *session) error {
	bad := 0
	if s.bool("blobs") {
		found, err := s.verifyStore(ctx)
		if err != nil {
			return err
		}
		bad += found
		if len(s.args) == 0 {
			return verdictOfFaults(bad)
		}
	}
	targets, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	var took recordedRuns
	faults, rep, err := s.engine(engine.Options{KeepGoing: true, Event: took.event}).Verify(ctx, targets)
	if err != nil {
		return err
	}
	printProblems(rep)
	for _, f := range faults {
		printFault(f)
	}
	locks, err := s.verifyLocks(ctx, targets)
	if err != nil {
		return err
	}
	bad += len(faults) + unfaulted(rep, faults) + locks.faults
	runs := ""
	if took.processes > 0 { // no process runs: what it did is recorded
		runs += fmt.Sprintf(", %s taken as recorded", plural(took.processes, "process", "processes"))
	}
	if took.reps > 0 {
		runs += fmt.Sprintf(", %s taken as recorded", plural(took.reps, "rep", "reps"))
	}
	fmt.Fprintf(stdout, "%s recomputed from recorded bytes%s: %s\n",
		plural(rep.Ran, "action", "actions"), runs, plural(bad, "fault", "faults"))
	printUnverifiable(rep)
	if locks.compared > 0 {
		fmt.Fprintf(stdout, "%s compared with version control\n", plural(locks.compared, draws.Name, draws.Name+"s"))
	}
	s.noteGone(stdout, targets)
	if bad == 0 {
		printProved(took.processes+took.reps, rep.Unverifiable, s.values["seal"] == "none")
	}
	return verdictOfFaults(bad)
}

// verifyStore reads all that is stored, and gives the number of faults.
func (s *session) verifyStore(ctx context.Context) (bad int, err error) {
	fetch := false
	n, err := s.store.Verify(ctx, func(d cas.Damage) {
		bad++
		fetch = fetch || d.Fetch
		fmt.Fprintf(stdout, "fault: %s\n", safe(d.Error()))
	})
	if err != nil {
		return bad, err
	}
	also := []string{plural(n.Results, "result", "results")}
	for _, x := range []struct {
		n         int
		one, many string
	}{
		{n.Captures, "capture", "captures"},
		{n.Copies, "plain copy", "plain copies"},
		{n.Tombstones, "tombstone", "tombstones"},
	} {
		if x.n > 0 {
			also = append(also, plural(x.n, x.one, x.many))
		}
	}
	fmt.Fprintf(stdout, "store: %s read and hashed; %s\n", plural(n.Blobs, "blob", "blobs"), strings.Join(also, ", "))
	if fetch {
		fmt.Fprintln(stdout, "hint: a capture that is not whole is not drawn again: fetch it from where else it is kept, or withdraw it by an epoch")
	}
	return bad, nil
}

// unfaulted counts the problems of actions that no fault tells of already.
func unfaulted(rep *engine.Report, faults []engine.Fault) (n int) {
	type slot struct {
		label graph.Label
		path  string
	}
	told := map[slot]bool{}
	for _, f := range faults {
		told[slot{f.Label, f.Path}] = true
	}
	for _, p := range rep.Problems {
		if s := p.Action.Slot(); !told[slot{s.Owner, s.Path}] {
			n++
		}
	}
	return n
}

// recordedRuns counts what verify takes as recorded: it runs no process.
type recordedRuns struct{ processes, reps int }

func (r *recordedRuns) event(e engine.Event) {
	switch {
	case e.Status != engine.Disk || e.Action.Kind != graph.Run:
	case e.Action.Sample != nil:
		r.reps++
	default:
		r.processes++
	}
}

func printUnverifiable(rep *engine.Report) {
	if rep.Unverifiable > 0 {
		fmt.Fprintf(stdout, "%s unverifiable: recorded by a version of eval that compiles seals in another way\n",
			plural(rep.Unverifiable, "seal is", "seals are"))
	}
}

// printProved says what it means that no fault was found.
func printProved(recorded, unverifiable int, unsealed bool) {
	fmt.Fprintln(stdout, "this proves that the numbers follow from the recorded bytes and the rules; it doesn't prove where those bytes came from")
	seals := "each seal"
	if unverifiable > 0 {
		seals = "each of the other seals"
	}
	switch {
	case recorded > 0 && unsealed:
		fmt.Fprintln(stdout, "the processes were unsealed: nothing is known of what they could see")
	case recorded > unverifiable:
		fmt.Fprintf(stdout, "the program of %s was compiled again: %s\n", seals, sandbox.Proves)
	}
}

func verdictOfFaults(n int) error {
	if n > 0 {
		return exit(exitFailed)
	}
	return nil
}

func printFault(f engine.Fault) {
	name := f.Label.String()
	if f.Label == (graph.Label{}) {
		name = "set"
	}
	if f.Path != "" {
		name += " " + f.Path
	}
	fmt.Fprintf(stdout, "fault: %s: in %s: %s\n", safe(name), f.Where, safe(f.Cause))
	var want, got any
	if json.Unmarshal(f.Want, &want) != nil || json.Unmarshal(f.Got, &got) != nil {
		return
	}
	lines := jsonDiff("", want, got, nil)
	for i, line := range lines {
		if i == 8 {
			fmt.Fprintf(stdout, "  … and %d more\n", len(lines)-i)
			break
		}
		fmt.Fprintf(stdout, "  %s\n", safe(line))
	}
	if len(lines) == 0 {
		fmt.Fprintln(stdout, "  the values are the same, the bytes are not: it is not canonical JSON")
	}
}

// jsonDiff lists where two JSON values differ: path: there, recomputed.
func jsonDiff(path string, want, got any, out []string) []string {
	if reflect.DeepEqual(want, got) {
		return out
	}
	switch w := want.(type) {
	case map[string]any:
		if g, ok := got.(map[string]any); ok {
			keys := map[string]bool{}
			for k := range w {
				keys[k] = true
			}
			for k := range g {
				keys[k] = true
			}
			var names []string
			for k := range keys {
				names = append(names, k)
			}
			sort.Strings(names)
			for _, k := range names {
				out = jsonDiff(path+"."+k, w[k], g[k], out)
			}
			return out
		}
	case []any:
		if g, ok := got.([]any); ok && len(g) == len(w) {
			for i := range w {
				out = jsonDiff(fmt.Sprintf("%s[%d]", path, i), w[i], g[i], out)
			}
			return out
		}
	}
	show := func(v any) string {
		b, _ := json.Marshal(v)
		if len(b) > 80 {
			b = append(b[:77], "..."...)
		}
		return string(b)
	}
	if path == "" {
		path = "."
	}
	return append(out, fmt.Sprintf("%s is %s; recomputed it is %s", path, show(got), show(want)))
}
