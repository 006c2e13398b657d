package main

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
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

// TestProved: what verify says of seals is of those that it compiled again.
func TestProved(t *testing.T) {
	was := stdout
	defer func() { stdout = was }()
	for _, c := range []struct {
		recorded, unverifiable int
		unsealed               bool
		want                   string // begins the line after the first; "" is none
	}{
		{0, 0, false, ""},
		{2, 0, false, "the program of each seal was compiled again: this proves"},
		{2, 1, false, "the program of each of the other seals was compiled again: this proves"},
		{2, 2, false, ""},
		{2, 0, true, "the processes were unsealed: nothing is known"},
		{0, 0, true, ""},
	} {
		var b strings.Builder
		stdout = &checkedWriter{w: &b}
		printProved(c.recorded, c.unverifiable, c.unsealed)
		first, rest, _ := strings.Cut(b.String(), "\n")
		if !strings.HasPrefix(first, "this proves that the numbers follow") || !strings.HasPrefix(rest, c.want) || (rest == "") != (c.want == "") {
			t.Errorf("%+v: %s", c, b.String())
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

// TestSealedExample: what tries to get out gets nothing, and the outputs are the
// same bytes for root and for an ordinary user. Without a seal the same attempts
// get something, or the test would prove nothing.
func TestSealedExample(t *testing.T) {
	if ok, err := needed(canSeal(), "whole seal here (see ev doctor)"); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("no whole seal here")
	}
	outputs := []string{"escape/report.txt", "sorted/tickets.csv", "table/table.txt", "table/teams/billing.csv"}
	first := buildSealed(t, outputs, "ev", "build", "//examples/sealed/...")
	report := first[outputs[0]]
	if strings.Contains(report, "GOT IT") || !strings.HasSuffix(report, "\nIt got: 0\n") {
		t.Errorf("it got out:\n%s", report)
	}
	if n := strings.Count(report, "refused\n") + strings.Count(report, "not there\n"); n < 25 {
		t.Errorf("only %d attempts", n)
	}
	control := buildSealed(t, outputs[:1], "ev", "build", "//examples/sealed:escape", "--seal=none")
	if n := strings.Count(control[outputs[0]], "GOT IT\n"); n < 5 {
		t.Errorf("without a seal it got only %d things:\n%s", n, control[outputs[0]])
	}
	if ok, err := needed(canUserSeal(), "whole seal for an ordinary user"); err != nil {
		t.Fatal(err)
	} else if !ok {
		t.Skip("an ordinary user has no seal here")
	}
	second := buildSealed(t, outputs, "asuser", "ev", "build", "//examples/sealed/...")
	for _, name := range outputs {
		if first[name] != second[name] || first[name] == "" {
			t.Errorf("%s is\n%s\nand for an ordinary user\n%s", name, first[name], second[name])
		}
	}
}

// buildSealed runs a command in a copy of examples/sealed that everybody may
// write, and gives outputs.
func buildSealed(t *testing.T, outputs []string, command ...string) map[string]string {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	copyTree(t, root, dir, "examples/sealed", "rules", "MODULE.star")
	if out, err := exec.Command("chmod", "-R", "a+rwX", filepath.Dir(dir)).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "HOME="+dir, "XDG_CACHE_HOME="+dir+"/.cache", "XDG_DATA_HOME="+dir+"/.data")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s", strings.Join(command, " "), err, out)
	}
	made := map[string]string{}
	for _, name := range outputs {
		data, err := os.ReadFile(filepath.Join(dir, "eval-out/examples/sealed", filepath.FromSlash(name)))
		if err != nil {
			t.Fatal(err)
		}
		made[name] = string(data)
	}
	return made
}
