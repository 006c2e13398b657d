package engine

import (
	"bytes"
	"cmp"
	"context"
	"crypto/sha256"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// memory is a workspace without a disk: starlark.Files and Sources.
type memory struct {
	mu    sync.Mutex
	files map[string]string // slash path -> content
	// Knobs, by path; they run without the mutex.
	onDigest func(path string) error
	onOpen   func(path string) error
	exec     map[string]bool // paths that are executable
}

func (m *memory) set(p, content string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.files[p] = content
}

func (m *memory) read(p string) ([]byte, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	s, ok := m.files[p]
	if !ok {
		return nil, &fs.PathError{Op: "open", Path: p, Err: fs.ErrNotExist}
	}
	return []byte(s), nil
}

func (m *memory) Canonical(repo string) (string, error)  { return repo, nil }
func (m *memory) ReadFile(_, rel string) ([]byte, error) { return m.read(rel) }
func (m *memory) HasPackage(_, pkg string) (bool, error) {
	return m.IsFile("", path.Join(pkg, "BUILD.star")) == nil, nil
}

func (m *memory) IsFile(_, rel string) error                                { _, err := m.read(rel); return err }
func (m *memory) Glob(string, string, []string, []string) ([]string, error) { return nil, nil }

func (m *memory) ReadHead(_, rel string, n int) ([]byte, error) {
	b, err := m.read(rel)
	return b[:min(n, len(b))], err
}

func (m *memory) Digest(l graph.Label) (cas.Digest, error) {
	if m.onDigest != nil {
		if err := m.onDigest(l.Path()); err != nil {
			return cas.Digest{}, err
		}
	}
	b, err := m.read(l.Path())
	return cas.BLAKE3.Sum(b), err
}

func (m *memory) Open(l graph.Label) (io.ReadCloser, error) {
	if m.onOpen != nil {
		if err := m.onOpen(l.Path()); err != nil {
			return nil, err
		}
	}
	b, err := m.read(l.Path())
	if err != nil {
		return nil, err
	}
	return io.NopCloser(bytes.NewReader(b)), nil
}

func (m *memory) Executable(l graph.Label) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.exec[l.Path()], nil
}

// The rules of the tests. mix makes a number out of its inputs, so that any
// change goes all the way through; parity and blind lose changes; pad makes an
// output large enough to be a blob of its own.
const testRules = `
def number(s):
    return int(s.split(" ")[0])

def text(n, pad):
    return str(n) + " " + "x" * pad

def mix(salt, pad, **inputs):
    n = salt
    for i, k in enumerate(sorted(inputs)):
        n = (n * 31 + (i + 1) * number(inputs[k])) % 1000003
    return text(n, pad)

def parity(salt, pad, **inputs):
    return text(sum_of(inputs) % 2, pad)

def sum_of(inputs):
    n = 0
    for k in inputs:
        n += number(inputs[k])
    return n

def boom(salt, pad, **inputs):
    fail("boom")

def spin(salt, pad, **inputs):
    n = 0
    for i in range(1 << 40):
        n += i
    return text(n, pad)

def pair(salt, pad, **inputs):
    n = sum_of(inputs) + salt
    return {"a": text(n, pad), "b": text(n + 1, pad)}

def _node(ctx):
    out = ctx.actions.declare_file(ctx.attr.out)
    ctx.actions.evaluate(
        fn = ctx.attr.fn,
        inputs = {"i%d" % i: f for i, f in enumerate(ctx.files.srcs)},
        params = {"salt": ctx.attr.salt, "pad": ctx.attr.pad},
        output = out,
        mnemonic = "Node",
    )
    return [DefaultInfo(files = [out]), ScorecardInfo(file = out)]

_attrs = {
    "srcs": attr.label_list(),
    "salt": attr.int(),
    "pad": attr.int(),
    "out": attr.string(default = "out.txt"),
    "fn": attr.function(default = mix),
}

node = rule(_node, attrs = _attrs)

def _two(ctx):
    a, b = ctx.actions.declare_file("a.txt"), ctx.actions.declare_file("b.txt")
    ctx.actions.evaluate(
        fn = pair,
        inputs = {"i%d" % i: f for i, f in enumerate(ctx.files.srcs)},
        params = {"salt": ctx.attr.salt, "pad": ctx.attr.pad},
        outputs = {"a": a, "b": b},
        mnemonic = "Two",
    )
    return [DefaultInfo(files = [a, b])]

two = rule(_two, attrs = _attrs)

def _files(ctx):
    outs = []
    for p in ctx.attr.content:
        f = ctx.actions.declare_file(p)
        ctx.actions.write(f, ctx.attr.content[p] + " " + "x" * ctx.attr.pad)
        outs.append(f)
    return [DefaultInfo(files = outs)]

files = rule(_files, attrs = {"content": attr.string_dict(), "pad": attr.int()})

def _show(ctx):
    return [DefaultInfo(exports = {p: f for p, f in zip(ctx.attr.paths, ctx.files.srcs)})]

show = rule(_show, attrs = {"srcs": attr.label_list(), "paths": attr.string_list()})

def _many(ctx):
    outs = []
    for i in range(ctx.attr.n):
        f = ctx.actions.declare_file("reps/%d.txt" % i)
        ctx.actions.evaluate(fn = ctx.attr.fn, inputs = {"i": ctx.files.srcs[0]}, params = {"salt": i, "pad": ctx.attr.pad}, output = f, mnemonic = "Rep")
        outs.append(f)
    out = ctx.actions.declare_file("sum.txt")
    ctx.actions.evaluate(fn = mix, inputs = {"r%d" % i: f for i, f in enumerate(outs)}, params = {"salt": 0, "pad": 0}, output = out, mnemonic = "Sum")
    return [DefaultInfo(files = [out]), ScorecardInfo(file = out)]

many = rule(_many, attrs = dict(n = attr.int(), **_attrs))
`

const loadRules = `load("//:rules.star", "boom", "files", "many", "mix", "node", "pair", "parity", "show", "spin", "two")` + "\n"

// A fixture is a workspace, a store and an output folder.
type fixture struct {
	testing.TB
	*memory
	dir  string // store, out, state below it
	jobs int
	keep bool
	pkgs []string

	change func(*Options) // what options are beside the usual ones, may be nil
}

// newFixture makes a workspace of the one package "p" with this BUILD.star.
func newFixture(t testing.TB, build string) *fixture {
	t.Helper()
	f := bareFixture(t.TempDir(), build)
	f.TB = t
	return f
}

func bareFixture(dir, build string) *fixture {
	f := &fixture{memory: &memory{files: map[string]string{}}, dir: dir, jobs: 4, pkgs: []string{"p"}}
	f.files["rules.star"] = testRules
	f.files["BUILD.star"] = ""
	f.declare("p", build)
	return f
}

func (f *fixture) declare(pkg, build string) {
	f.set(pkg+"/BUILD.star", loadRules+build)
	if !slices.Contains(f.pkgs, pkg) {
		f.pkgs = append(f.pkgs, pkg)
	}
}

func (f *fixture) out(elem ...string) string {
	return filepath.Join(f.dir, "out", filepath.Join(elem...))
}

func (f *fixture) state(elem ...string) string {
	return filepath.Join(f.dir, "state", filepath.Join(elem...))
}
func (f *fixture) storeDir() string { return filepath.Join(f.dir, "store") }

func (f *fixture) check(err error) {
	if err != nil {
		f.Helper()
		f.Fatal(err)
	}
}

// load analyses the workspace anew, as another process would.
func (f *fixture) load(names ...string) ([]*starlark.Target, error) {
	l := starlark.New(starlark.Options{Files: f.memory, Module: "test"})
	ctx := context.Background()
	pkgs, err := l.LoadPackages(ctx, "", f.pkgs)
	if err != nil {
		return nil, err
	}
	var out []*starlark.Target
	for _, p := range pkgs {
		for _, t := range p.Targets {
			if len(names) == 0 || slices.Contains(names, t.Label.Name) {
				out = append(out, t)
			}
		}
	}
	slices.SortFunc(out, func(a, b *starlark.Target) int { return a.Label.Compare(b.Label) })
	return out, l.Analyze(ctx, out)
}

func (f *fixture) targets(names ...string) []*starlark.Target {
	f.Helper()
	out, err := f.load(names...)
	f.check(err)
	return out
}

func (f *fixture) store() *cas.Store {
	f.Helper()
	s, err := cas.Open(cas.Options{Cache: f.storeDir(), Data: f.storeDir()})
	f.check(err)
	return s
}

// fixedNow is the clock of the tests: the engine never decides by it.
func fixedNow() time.Time { return time.Unix(1_700_000_000, 0) }

func (f *fixture) options(s *cas.Store, event func(Event)) Options {
	o := Options{
		Store: s, Sources: f.memory, State: f.state(), Out: f.out(),
		Jobs: f.jobs, KeepGoing: f.keep, Now: fixedNow, Event: event,
	}
	if f.change != nil {
		f.change(&o)
	}
	return o
}

// A built is what one build did.
type built struct {
	*Report
	err     error
	events  []Event
	targets []*starlark.Target
}

// run builds with a new Loader and Engine, as a new process would.
func (f *fixture) run(ctx context.Context, names ...string) built {
	f.Helper()
	b := built{targets: f.targets(names...)}
	b.Report, b.err = New(f.options(f.store(), func(e Event) { b.events = append(b.events, e) })).Build(ctx, b.targets)
	return b
}

// build is run for builds that nothing goes wrong with.
func (f *fixture) build(names ...string) built {
	f.Helper()
	b := f.run(context.Background(), names...)
	f.check(b.err)
	for _, p := range b.Problems {
		f.Fatalf("%s: %v", p.Action.Slot(), p.Err)
	}
	b.counts(f)
	return b
}

// slots lists the actions that ended so, sorted, as "name path" with the
// default path left out.
func (b built) slots(s Status) []string {
	out := []string{}
	for _, e := range b.events {
		if e.Status == s {
			out = append(out, slotName(e.Action))
		}
	}
	slices.Sort(out)
	return out
}

func slotName(a *graph.Action) string {
	return strings.TrimSuffix(a.Owner.Name+" "+a.Outputs[0].File.Path, " out.txt")
}

// why is the reason that the one event of this slot gave for its run.
func (b built) why(name string) string {
	for _, e := range b.events {
		if slotName(e.Action) == name && e.Status != Disk {
			return e.Why
		}
	}
	return ""
}

func (b built) event(name string) Event {
	var last Event
	for _, e := range b.events {
		if slotName(e.Action) == name {
			last = e
		}
	}
	return last
}

// counts checks that each action ended once, with right totals.
func (b built) counts(t testing.TB) {
	t.Helper()
	seen := map[*graph.Action]bool{}
	for i, e := range b.events {
		if seen[e.Action] {
			t.Errorf("%s ended twice", e.Action.Slot())
		}
		seen[e.Action] = true
		if e.Done != i+1 || e.Total != b.Actions {
			t.Errorf("event %d says %d/%d, not %d/%d", i, e.Done, e.Total, i+1, b.Actions)
		}
	}
	if len(seen) != b.Actions {
		t.Errorf("%d of %d actions ended", len(seen), b.Actions)
	}
	if n := b.Ran + b.Disk + b.Remote + b.Failed + b.Skipped + len(b.Stale); n != b.Actions {
		t.Errorf("the report counts %d actions, not %d: %+v", n, b.Actions, b.Report)
	}
}

func (f *fixture) wantRan(b built, want ...string) {
	f.Helper()
	if want == nil {
		want = []string{}
	}
	if got := b.slots(Ran); !slices.Equal(got, want) {
		f.Fatalf("ran %q, not %q", got, want)
	}
}

// outputs is everything in the output folder.
func (f *fixture) outputs() map[string]string { return snapshot(f, f.out(), false) }

func (f *fixture) wantOutputs(want map[string]string) {
	f.Helper()
	sameFiles(f, f.outputs(), want)
}

func sameFiles(t testing.TB, got, want map[string]string) {
	t.Helper()
	for p := range want {
		if g, ok := got[p]; !ok {
			t.Errorf("%s is missing", p)
		} else if g != want[p] {
			t.Errorf("%s holds %.40q, not %.40q", p, g, want[p])
		}
	}
	for p := range got {
		if _, ok := want[p]; !ok {
			t.Errorf("%s is there and should not be", p)
		}
	}
}

// snapshot maps the files below dir to their content; with meta also what
// lstat tells of them and of folders.
func snapshot(t testing.TB, dir string, meta bool) map[string]string {
	t.Helper()
	out := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(dir, p)
		fi, err := d.Info()
		if err != nil {
			return err
		}
		if !fi.Mode().IsRegular() {
			if meta {
				out[rel] = fi.Mode().String()
			}
			return nil
		}
		b, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		out[rel] = string(b)
		if meta {
			out[rel] = fmt.Sprintf("%x %v %v", sha256.Sum256(b), fi.Mode(), fi.ModTime())
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return out
}

// stored lists the files of the store below kind, cas or ac.
func (f *fixture) stored(kind string) []string {
	f.Helper()
	dir := filepath.Join(f.storeDir(), kind)
	var out []string
	for p := range snapshot(f, dir, false) {
		out = append(out, filepath.Join(dir, p))
	}
	slices.Sort(out)
	return out
}

// A damage is a way to spoil a file.
type damage struct {
	name string
	do   func(p string) error
}

var damages = []damage{
	{"flip", func(p string) error { return rewrite(p, false, flip) }},
	{"truncate", func(p string) error { return rewrite(p, false, func(b []byte) []byte { return b[:len(b)/2] }) }},
	{"empty", func(p string) error { return rewrite(p, false, func([]byte) []byte { return nil }) }},
	{"delete", os.Remove},
	{"rot", rot},
}

func flip(b []byte) []byte {
	b[len(b)/2] ^= 1
	return b
}

// rot flips a bit below the file system: the time, and so the stamp, stays.
func rot(p string) error { return rewrite(p, true, flip) }

func rewrite(p string, keepTime bool, change func([]byte) []byte) error {
	fi, err := os.Stat(p)
	if err != nil {
		return err
	}
	b, err := os.ReadFile(p)
	if err != nil {
		return err
	}
	if err := errors.Join(os.Chmod(p, 0o644), os.WriteFile(p, change(b), 0o644), os.Chmod(p, fi.Mode())); err != nil {
		return err
	}
	if keepTime {
		return os.Chtimes(p, fi.ModTime(), fi.ModTime())
	}
	return nil
}

// The test program runs itself as another process: ENGINE_HELPER names one of
// these functions, which gets the arguments.
var helpers = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv("ENGINE_HELPER"); name != "" {
		if err := helpers[name](os.Args[1:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

func helper(t testing.TB, name string, args ...string) *exec.Cmd {
	t.Helper()
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(exe, args...)
	cmd.Env = append(os.Environ(), "ENGINE_HELPER="+name)
	cmd.Stderr = new(bytes.Buffer)
	return cmd
}

// asNobody has cmd run as a user whom permissions hold back, if we are root.
// The program must be where that user can read it, which go test's folder isn't.
func asNobody(t *testing.T, cmd *exec.Cmd, dir string) {
	t.Helper()
	if os.Geteuid() != 0 {
		return
	}
	const nobody = 65534
	b, err := os.ReadFile(cmd.Path)
	if err == nil {
		cmd.Path = filepath.Join(dir, "program")
		err = os.WriteFile(cmd.Path, b, 0o755)
	}
	if err == nil {
		err = filepath.WalkDir(dir, func(p string, _ fs.DirEntry, err error) error {
			return cmp.Or(err, os.Lchown(p, nobody, nobody))
		})
	}
	for above := dir; err == nil && strings.HasPrefix(above, os.TempDir()+"/"); above = filepath.Dir(above) {
		err = os.Chmod(above, 0o755)
	}
	if err != nil {
		t.Fatal(err)
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: nobody, Gid: nobody}}
	cmd.Dir = dir
}

// keysOf is the sorted keys of a map, for messages.
func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
