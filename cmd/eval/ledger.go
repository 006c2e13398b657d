package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

func ledgerCommand() *cli.Command {
	return verb("ledger", "write ledgers into the workspace, as the scorecards have them", "PATTERN...",
		append(slices.Clone(loadFlags), flagJobs, flagKeep),
		func(c *cli.Context, s *settings) error { return withSession(c.Context, s, runLedger) })
}

func runLedger(ctx context.Context, s *session) error {
	list, err := s.targets(ctx, s.args)
	if err != nil {
		return err
	}
	ledgers, err := s.ledgers(list)
	if err != nil {
		return err
	}
	live := newProgress(os.Stderr)
	eng := s.engine(engine.Options{
		Print: func(label graph.Label, msg string) { live.say("%s: %s", label, safe(msg)) },
		Event: live.event,
	})
	rep, err := eng.Build(ctx, ledgers)
	live.end()
	if err != nil {
		return err
	}
	printProblems(rep)
	for _, t := range rep.Targets {
		if t.Scorecard == nil { // its problem was printed
			continue
		}
		if err := s.writeLedger(eng, t); err != nil {
			return err
		}
	}
	return verdictOf(rep, true)
}

// ledgers keeps the ledgers of what the arguments select. One that is named, and
// not only matched, has to be one.
func (s *session) ledgers(list []*starlark.Target) ([]*starlark.Target, error) {
	named := map[graph.Label]bool{}
	for _, a := range s.args {
		if p, err := graph.ParsePattern(a, s.cwd); err == nil && p.Name != "" {
			named[graph.Label{Repo: p.Repo, Pkg: p.Pkg, Name: p.Name}] = true
		}
	}
	var out []*starlark.Target
	for _, t := range list {
		switch {
		case t.Kind == "ledger" && t.Result.Scorecard != nil:
			out = append(out, t)
		case named[t.Label]:
			return nil, usageErrorf("ledger %s: it is a %s", t.Label, t.Kind)
		}
	}
	if len(out) == 0 {
		return nil, failf(exitEmpty, "no ledgers matched %s", strings.Join(s.args, " "))
	}
	return out, nil
}

// writeLedger makes the file beside BUILD.star what the target's output is.
func (s *session) writeLedger(eng *engine.Engine, t engine.TargetResult) error {
	label := t.Target.Label
	var card struct {
		Schema string `json:"schema"`
		File   string `json:"file"`
	}
	err := json.Unmarshal(t.Scorecard, &card)
	// A rule of anybody's may be named ledger: it writes nothing but Markdown.
	if err != nil || card.Schema != "eval.ledger/1" || card.File != path.Base(card.File) || path.Ext(card.File) != ".md" {
		return usageErrorf("ledger %s: its rule is not the ledger of @eval//rules:coverage.star", label)
	}
	if label.Repo != "" {
		return usageErrorf("ledger %s: its file is of another workspace", label).hint("run ev ledger there")
	}
	data, err := os.ReadFile(filepath.Join(eng.Folder(label), card.File))
	if err != nil {
		return failf(exitInfra, "ledger %s: %v", label, err)
	}
	name := path.Join(label.Pkg, card.File)
	wrote, err := writeSource(s.root, name, data)
	switch {
	case err != nil:
		return failf(exitFailed, "write %s: %v", name, err)
	case wrote:
		fmt.Fprintf(stdout, "%s: written\n", safe(name))
	default:
		fmt.Fprintf(stdout, "%s: unchanged\n", safe(name))
	}
	return nil
}

// writeSource replaces a source file if it differs; it says whether it did. A
// link is not written through: it could lead anywhere.
func writeSource(dir, name string, data []byte) (bool, error) {
	root, err := os.OpenRoot(dir)
	if err != nil {
		return false, err
	}
	defer root.Close()
	mode := fs.FileMode(0o644)
	fi, err := root.Lstat(name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
	case err != nil:
		return false, err
	case !fi.Mode().IsRegular():
		return false, errors.New("it is no regular file; remove it")
	default:
		mode = fi.Mode().Perm()
		old, err := root.ReadFile(name)
		if err == nil && bytes.Equal(old, data) {
			return false, nil
		}
	}
	return true, replaceFile(filepath.Join(dir, filepath.FromSlash(name)), data, mode)
}
