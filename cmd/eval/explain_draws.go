package main

import (
	"fmt"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
)

// explainDraws says where a target's live reps come from, and how their present
// block was looked at.
func (s *session) explainDraws(t *starlark.Target, reps []engine.Event) error {
	if len(reps) == 0 {
		return nil
	}
	had, withdrawn := 0, 0
	for _, e := range reps {
		switch {
		case e.Status != engine.Disk:
		case e.Action.Terms.Withdrawn:
			withdrawn++
		default:
			had++
		}
	}
	if had > 0 {
		fmt.Fprintf(stdout, "  %d Draw: from draws.lock, captures in the store\n", had)
	}
	if withdrawn > 0 {
		fmt.Fprintf(stdout, "  %d Draw: withdrawn; shown where they are still there\n", withdrawn)
	}
	lock, err := s.readLock(t.Label)
	if err != nil {
		return failf(exitFailed, "%v", err)
	}
	// The last stream's block is that of both, unless a control is reused.
	block := ""
	for _, e := range reps {
		if !e.Action.Terms.Withdrawn && e.Draw.Sample.Block != "" {
			block = e.Draw.Sample.Block
		}
	}
	n := 0
	for _, l := range lock.Looks(t.Label, block) {
		terms := fmt.Sprintf("by %.12s, alpha %.4g, effect %.4g, margin %.4g", l.Fingerprint, l.Alpha, l.Effect, l.Margin)
		if l.N == 0 {
			fmt.Fprintf(stdout, "  bound before the first draw %s\n", safe(terms))
			continue
		}
		n++
		fmt.Fprintln(stdout, safe(fmt.Sprintf("  look %d: %s an arm %s: %s %s", n, plural(l.N, "rep", "reps"), terms, l.Verdict, l.Conclusion)))
	}
	if other := otherLooks(lock, t, block); other > 0 {
		fmt.Fprintf(stdout, "  %s at other blocks, before the inputs changed\n", plural(other, "look", "looks"))
	}
	return nil
}

// otherLooks counts the looks at a target's blocks but one.
func otherLooks(lock *draws.Lock, t *starlark.Target, block string) (n int) {
	for _, l := range lock.Lines() {
		if l.Kind == draws.Look && l.Label == t.Label && l.Sample.Block != block && l.N > 0 {
			n++
		}
	}
	return n
}
