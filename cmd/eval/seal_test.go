package main

import (
	"errors"
	"fmt"
	"testing"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

// TestNoSealWins: where a seal can't be had, that is the exit code, whatever
// else went wrong.
func TestNoSealWins(t *testing.T) {
	noSeal := engine.Problem{Err: fmt.Errorf("run: %w", &sandbox.UnavailableError{Layer: "user", Err: errors.New("EPERM")})}
	infra := engine.Problem{Err: errors.New("disk full"), Infra: true}
	failed := engine.Problem{Err: &engine.RunError{Status: sandbox.Status{Code: 1}}}
	for _, c := range []struct {
		problems []engine.Problem
		met      bool
		want     int
	}{
		{nil, true, 0},
		{nil, false, exitGate},
		{[]engine.Problem{failed}, false, exitFailed},
		{[]engine.Problem{failed, infra}, true, exitInfra},
		{[]engine.Problem{failed, infra, noSeal}, true, exitSeal},
		{[]engine.Problem{noSeal}, false, exitSeal},
	} {
		err := verdictOf(&engine.Report{Problems: c.problems}, c.met)
		got := 0
		var e *exitError
		if errors.As(err, &e) {
			got = e.code
		}
		if got != c.want {
			t.Errorf("%v: exit code %d, not %d", c.problems, got, c.want)
		}
	}
}

func TestShellWord(t *testing.T) {
	for in, want := range map[string]string{
		"": "''", "a": "a", "--in=/a/b.txt": "--in=/a/b.txt", "a b": "'a b'", "it's": `'it'\''s'`, "$x": "'$x'", "é": "'é'",
	} {
		if got := shellWord(in); got != want {
			t.Errorf("%q is written %s, not %s", in, got, want)
		}
	}
}

func TestSealText(t *testing.T) {
	p := &graph.Policy{Limits: graph.DefaultLimits}
	if got, want := sealText(p), "full: no network, memory 1GiB, processes 256, wall 120s, scratch 1GiB, output 64MiB"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
