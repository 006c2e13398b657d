package engine

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/graph"
)

// fakeRunner is a sandbox without processes. It does what the action's
// arguments say, one word after the other:
//
//	NAME=TEXT    makes the output, or file in an output folder, NAME
//	NAME=@       the same with all inputs, one "path content" a line
//	NAME+=TEXT   the same, and executable
//	NAME->TO     makes a link
//	NAME/        makes an empty folder
//	err:TEXT out:TEXT    writes to stderr and stdout
//	code:N signal:N limit:NAME reject:NAME survivor:N
//	refused:REASON       asks the proxy for api.test:443, which refuses so
type fakeRunner struct {
	store *cas.Store
	fail  func(sandbox.Spec) error // may be nil
	// words gives further words, by what was on the standard input; may be nil.
	words func(call int, stdin string) ([]string, error)

	mu    sync.Mutex
	specs []sandbox.Spec
	count int
}

func (r *fakeRunner) Run(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
	r.mu.Lock()
	r.specs = append(r.specs, spec)
	r.count++
	n := r.count
	r.mu.Unlock()
	if r.fail != nil {
		if err := r.fail(spec); err != nil {
			return nil, err
		}
	}
	words := slices.Clone(spec.Args[1:])
	if r.words != nil {
		var stdin []byte
		if spec.Stdin != nil {
			var err error
			if stdin, err = io.ReadAll(spec.Stdin); err != nil {
				return nil, err
			}
		}
		more, err := r.words(n, string(stdin))
		if err != nil {
			return nil, err
		}
		words = append(words, more...)
	}
	res := &sandbox.Result{Record: sandbox.Record{Tier: "fake", Mounts: []sandbox.Mount{}}}
	made := map[string]collect.File{}
	for _, word := range words {
		word = graph.Unmark(word)
		kind, text, ok := strings.Cut(word, ":")
		switch {
		case ok && kind == "err":
			res.Stderr.Data = append(res.Stderr.Data, text...)
			res.Stderr.Total = int64(len(res.Stderr.Data))
			continue
		case ok && kind == "out":
			res.Stdout.Data = append(res.Stdout.Data, text...)
			res.Stdout.Total = int64(len(res.Stdout.Data))
			continue
		case ok && kind == "code":
			res.Status.Code = int(text[0] - '0')
			continue
		case ok && kind == "signal":
			res.Status = sandbox.Status{Code: -1, Signal: int(text[0] - '0')}
			continue
		case ok && kind == "survivor":
			res.Survivors = int(text[0] - '0')
			continue
		case ok && kind == "refused":
			res.Egress = append(res.Egress, egress.Attempt{
				Host: "api.test", Port: 443, Seq: len(res.Egress) + 1, Verdict: egress.Refused, Reason: text, Via: "connect",
			})
			continue
		case ok && kind == "limit":
			res.Limits = append(res.Limits, text)
			continue
		case ok && kind == "reject":
			res.Rejected = append(res.Rejected, collect.Rejection{Path: text, Reason: "type: it is a fifo"})
			continue
		}
		if name, ok := strings.CutSuffix(word, "/"); ok {
			made[name] = collect.File{Path: name, Folder: true}
			continue
		}
		if name, to, ok := strings.Cut(word, "->"); ok {
			made[name] = collect.File{Path: name, Link: to}
			continue
		}
		name, text, ok := strings.Cut(word, "=")
		if !ok {
			continue
		}
		f := collect.File{Path: strings.TrimSuffix(name, "+"), Executable: strings.HasSuffix(name, "+")}
		switch text {
		case "@":
			text = inputsText(spec.Mounts)
		case "#": // differs from run to run
			text = strings.Repeat("a line\n", 3) + strings.Repeat("x", n)
		}
		d, err := r.store.Put(cas.Pure, []byte(text))
		if err != nil {
			return nil, err
		}
		f.Digest = d
		made[f.Path] = f
	}
	for _, o := range spec.Outputs {
		found := false
		for p, f := range made {
			if p == o.Path && !o.Folder || o.Folder && (p == o.Path || strings.HasPrefix(p, o.Path+"/")) {
				found = true
				res.Outputs = append(res.Outputs, f)
			}
		}
		if !found {
			res.Missing = append(res.Missing, o.Path)
		}
	}
	slices.SortFunc(res.Outputs, func(a, b collect.File) int { return cmp.Compare(a.Path, b.Path) })
	return res, nil
}

func inputsText(mounts []graph.Mount) string {
	var b strings.Builder
	for _, m := range mounts {
		if !strings.HasPrefix(m.Path, "/in/") {
			continue
		}
		b.WriteString(strings.TrimPrefix(m.Path, "/in/"))
		if m.Executable {
			b.WriteString("*")
		}
		switch {
		case m.Link != "":
			b.WriteString(" -> " + m.Link)
		case m.Tree != nil:
			b.WriteString("/")
		default:
			data, err := os.ReadFile(m.Source)
			if err != nil {
				data = []byte(err.Error())
			}
			b.WriteString(" " + strings.TrimSpace(string(data)))
		}
		b.WriteByte('\n')
	}
	return b.String()
}

// fakeTools is a machine with these programs.
type fakeTools map[string]string

func (t fakeTools) Program(p string) ([]graph.Mount, error) {
	content, ok := t[p]
	if !ok {
		return nil, errors.New("tool " + p + ": does not exist")
	}
	return []graph.Mount{{Path: p, Source: p, Digest: cas.BLAKE3.Sum([]byte(content)), Executable: true}}, nil
}

func (t fakeTools) Data(p string) ([]graph.Mount, error) { return t.Program(p) }

func (t fakeTools) Needs(r io.ReaderAt, size int64) ([]graph.Mount, error) {
	line, _, _ := bytes.Cut(must(io.ReadAll(io.NewSectionReader(r, 0, size))), []byte("\n"))
	if p, ok := bytes.CutPrefix(line, []byte("#!")); ok {
		return t.Program(string(p))
	}
	return nil, nil
}

// Check fails if the map has a reason for it.
func (t fakeTools) Check([]graph.Mount) error {
	if why, ok := t["changed"]; ok {
		return errors.New(why)
	}
	return nil
}

// Now knows programs only, by where they are to be.
func (t fakeTools) Now(m graph.Mount) (graph.Mount, error) {
	content, ok := t[m.Path]
	if !ok {
		return graph.Mount{}, os.ErrNotExist
	}
	return graph.Mount{Path: m.Path, Digest: cas.BLAKE3.Sum([]byte(content)), Executable: true}, nil
}

func (t fakeTools) Merge(lists ...[]graph.Mount) ([]graph.Mount, error) {
	byPath := map[string]graph.Mount{}
	for _, l := range lists {
		for _, m := range l {
			byPath[m.Path] = m
		}
	}
	var out []graph.Mount
	for _, p := range slices.Sorted(maps.Keys(byPath)) {
		out = append(out, byPath[p])
	}
	return out, nil
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// runFixture is a workspace whose actions run on a fake sandbox.
type runFixture struct {
	*fixture
	runner *fakeRunner
	tools  fakeTools
}

const loadRunRules = `load("@eval//rules:action.star", "action", "filegroup")
load("@eval//rules:seal.star", "seal")
load("@eval//rules:tool.star", "tool")
tool(name = "sh", path = "/bin/sh")
`

func newRunFixture(t *testing.T, build string) *runFixture {
	f := &runFixture{newFixture(t, loadRunRules+build), &fakeRunner{}, fakeTools{"/bin/sh": "sh", "/bin/env": "env"}}
	for _, name := range []string{"action.star", "seal.star", "tool.star"} {
		f.set("rules/"+name, string(must(rules.Files.ReadFile(name))))
	}
	f.change = func(o *Options) {
		f.runner.store = o.Store
		o.Runner, o.Tools = f.runner, f.tools
	}
	return f
}

// declare replaces the BUILD.star of p.
func (f *runFixture) redeclare(build string) { f.declare("p", loadRunRules+build) }

// took gives what ran since the last call, and forgets it.
func (f *runFixture) took() []sandbox.Spec {
	specs := f.runner.specs
	f.runner.specs = nil
	return specs
}
