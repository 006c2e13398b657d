package sets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

func check(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A memory is a workspace in memory. Its BUILD.star is a package of the root.
type memory map[string]string

func (m memory) read(repo, rel string) ([]byte, error) {
	b, ok := m[name(repo, rel)]
	if !ok {
		return nil, fmt.Errorf("no %s", name(repo, rel))
	}
	return []byte(b), nil
}

func (m memory) Canonical(repo string) (string, error) {
	if repo == "ws" {
		return "", nil
	}
	if repo == "lost" {
		return "", errors.New("no such module")
	}
	return repo, nil
}
func (m memory) ReadFile(repo, rel string) ([]byte, error) { return m.read(repo, rel) }
func (m memory) ReadHead(repo, rel string, n int) ([]byte, error) {
	b, err := m.read(repo, rel)
	return b[:min(n, len(b))], err
}

func (m memory) Glob(repo, pkg string, include, _ []string) (out []string, err error) {
	for p := range m {
		if rel, ok := strings.CutPrefix(p, name(repo, pkg)+"/"); ok {
			if ok, _ := path.Match(include[0], rel); ok {
				out = append(out, rel)
			}
		}
	}
	slices.Sort(out)
	return out, nil
}

func (m memory) HasPackage(repo, pkg string) (bool, error) {
	_, ok := m[name(repo, strings.TrimPrefix(pkg+"/BUILD.star", "/"))]
	return ok, nil
}

func (m memory) IsFile(repo, rel string) error {
	_, err := m.read(repo, rel)
	return err
}

func (m memory) Digest(l graph.Label) (cas.Digest, error) {
	b, err := m.read(l.Repo, l.Path())
	return cas.BLAKE3.Sum(b), err
}

func (m memory) Open(l graph.Label) (io.ReadCloser, error) {
	b, err := m.read(l.Repo, l.Path())
	return io.NopCloser(bytes.NewReader(b)), err
}

func (m memory) Executable(l graph.Label) (bool, error) { return strings.HasSuffix(l.Name, ".sh"), nil }

var workspace = memory{
	"//MODULE.star":            `module(name = "ws")`,
	"//p/BUILD.star":           "probe()",
	"//p/q.md":                 "what?",
	"//p/judge.sh":             "exit 0",
	"//p/unread.md":            "no",
	"@other//MODULE.star":      `module(name = "other")`,
	"@other//lib/words.star":   "WORD = 1",
	"@other//lib/BUILD.star":   "",
	"@eval//rules/probe.star":  "the program has it",
	"@eval//rules/seal.star":   "",
	"@other//lib/passed.md":    "seen, not read",
	"//p/captures/control-1.x": "",
}

// ask asks what a load and a build might.
func ask(t testing.TB, f Files) {
	t.Helper()
	for _, repo := range []string{"eval", "ws", "other", ""} {
		_, err := f.Canonical(repo)
		check(t, err)
	}
	for _, s := range []source{{"", "p/BUILD.star"}, {"eval", "rules/probe.star"}, {"other", "lib/words.star"}} {
		_, err := f.ReadFile(s.repo, s.path)
		check(t, err)
	}
	b, err := f.ReadHead("", "p/q.md", 2)
	check(t, err)
	if string(b) != "wh" {
		t.Errorf("ReadHead gives %q", b)
	}
	got, err := f.Glob("", "p", []string{"*.md"}, nil)
	check(t, err)
	if !slices.Equal(got, []string{"q.md", "unread.md"}) {
		t.Errorf("Glob gives %q", got)
	}
	for pkg, want := range map[source]bool{{"", "p"}: true, {"other", "lib"}: true, {"", "none"}: false} {
		if has, err := f.HasPackage(pkg.repo, pkg.path); has != want || err != nil {
			t.Errorf("HasPackage(%v) = %v, %v", pkg, has, err)
		}
	}
	check(t, f.IsFile("", "p/q.md"))
	check(t, f.IsFile("other", "lib/passed.md"))
	if f.IsFile("", "p/none") == nil {
		t.Error("a file that isn't there is one")
	}
	l := graph.Label{Pkg: "p", Name: "judge.sh"}
	if d, err := f.Digest(l); err != nil || d != cas.BLAKE3.Sum([]byte("exit 0")) {
		t.Errorf("Digest gives %v, %v", d, err)
	}
	if x, err := f.Executable(l); !x || err != nil {
		t.Errorf("Executable(judge.sh) = %v, %v", x, err)
	}
	if x, err := f.Executable(graph.Label{Pkg: "p", Name: "q.md"}); x || err != nil {
		t.Errorf("Executable(q.md) = %v, %v", x, err)
	}
	rc, err := f.Open(l)
	check(t, err)
	if b, err := io.ReadAll(rc); string(b) != "exit 0" || err != nil {
		t.Errorf("Open gives %q, %v", b, err)
	}
}

// content is that of a set with a bit of everything. Large is what a result
// names and no output shows.
func content(t testing.TB) Content {
	t.Helper()
	rec := NewRecorder(workspace)
	ask(t, struct{ Files }{evalFiles{rec}})
	src, err := rec.Sources()
	check(t, err)
	large := bytes.Repeat([]byte("large "), 500)
	id := func(index, epoch, redraw int) *draws.ID {
		return &draws.ID{Key: graph.Key(cas.BLAKE3.Sum(fmt.Append(nil, "key ", index, epoch, redraw))), Sample: graph.Sample{
			Stream: "control", Index: index, Epoch: epoch, Redraw: redraw, Block: "b",
		}}
	}
	result := func(reply string) cas.Result {
		return cas.Result{Files: []cas.OutputFile{
			{Path: "reply.txt", Digest: cas.BLAKE3.Sum([]byte(reply)), Contents: []byte(reply)},
			{Path: "exit.json", Digest: cas.BLAKE3.Sum(large)},
		}}
	}
	c := Content{
		Func: cas.BLAKE3, Eval: "0.1.0", Module: "ws", Platform: graph.PlatformOf("linux", "amd64"),
		Settings: map[string]string{"k": "<v>"}, Target: graph.Label{Pkg: "p", Name: "live"},
		Outputs: map[string][]byte{
			"scorecard.json": []byte("{}\n"), "reps/control-1/reply.txt": []byte("one"), "reps/control-2/reply.txt": []byte("two"),
			"reps/control-1/egress.jsonl": nil, "prompts/control.txt": []byte("what?"),
		},
		Results: []Result{
			{Slot: "reps/control-1/reply.txt", ID: id(1, 2, 0), Result: result("one")},
			{Slot: "reps/control-2/reply.txt", ID: id(2, 2, 0), Result: result("two")},
			{Slot: "reps/control-2/reply.txt", ID: id(2, 2, 9), Result: result("stopped"), Stopped: true},
			{Slot: "withdrawn/1-0/control-1/reply.txt", ID: id(1, 1, 0), Result: result("old"), Withdrawn: true},
			{Slot: "reps/control-1/judge.json", Key: graph.Key(cas.BLAKE3.Sum([]byte("pure"))), Result: result("judge")},
		},
		Blob: func(d cas.Digest) ([]byte, error) {
			if d == cas.BLAKE3.Sum(large) {
				return large, nil
			}
			return nil, errors.New("no such blob")
		},
		Draws: []byte("{}\n"),
		Tools: []Tool{{Tools: []graph.Label{{Pkg: "p", Name: "sh"}}, Mounts: []graph.Mount{
			{Path: "/bin", Link: "usr/bin"},
			{Path: "/usr/bin/sh", Digest: cas.BLAKE3.Sum([]byte("sh")), Executable: true},
			{Path: "/usr/share/x", Digest: cas.BLAKE3.Sum([]byte("x")), Tree: cas.HollowTree(cas.BLAKE3.Sum([]byte("x")), cas.BLAKE3.Sum([]byte("x")))},
		}}},
		Sources: src,
	}
	for i := range c.Results {
		if r := &c.Results[i]; r.ID != nil {
			r.Key = r.ID.Key
		}
	}
	return c
}

// evalFiles asks for the file of the program too, which a View doesn't have.
type evalFiles struct{ Files }

func (f evalFiles) ReadFile(repo, rel string) ([]byte, error) {
	if _, ok := f.Files.(*View); ok && repo == Builtin {
		return nil, nil
	}
	return f.Files.ReadFile(repo, rel)
}

func made(t testing.TB) *Set {
	t.Helper()
	s, err := New(content(t))
	check(t, err)
	return s
}

func archive(t testing.TB, s *Set) []byte {
	t.Helper()
	var b bytes.Buffer
	check(t, s.WriteArchive(&b))
	return b.Bytes()
}
