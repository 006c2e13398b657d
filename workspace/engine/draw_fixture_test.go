package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// A drawFixture is a workspace of probes whose reps run on a fake sandbox, with
// the real rules and real locks.
type drawFixture struct {
	*runFixture
	locks   fakeLocks
	consent Consent
	alive   map[string]bool // runs beside those of a fixture's own

	mu    sync.Mutex
	id    int // of the last process
	slept []time.Duration

	watch   func() string // may be nil
	lockDir string
}

// drawHead is what a package with probes begins with.
const drawHead = `load("@eval//rules:probe.star", "probe")
load("@eval//rules:producer.star", "producer")
load("@eval//rules:seal.star", "seal")
load("@eval//rules:tool.star", "tool")
load("//:marks.star", "six")
tool(name = "sh", path = "/bin/sh")
`

const marks = `
def six(rep):
    return PRESENT if rep.reply.endswith("six") else ABSENT
`

// luck is a probe of reps that say nothing but what the runner's words are.
const luck = `
producer(name = "die", driver = "command", tool = ":sh")
probe(name = "luck", question = "q.md", treatment = "t.md", producer = ":die", discriminator = six, reps = 2)
`

func newDrawFixture(t *testing.T, build string) *drawFixture {
	dir := t.TempDir()
	f := &drawFixture{
		runFixture: newRunFixture(t, ""), locks: fakeLocks{}, consent: Consent{Draws: AnyDraws}, alive: map[string]bool{}, lockDir: dir,
	}
	for _, e := range must(rules.Files.ReadDir(".")) {
		if strings.HasSuffix(e.Name(), ".star") {
			f.set("rules/"+e.Name(), string(must(rules.Files.ReadFile(e.Name()))))
		}
	}
	f.set("marks.star", marks)
	f.set("p/q.md", "Roll.\n")
	f.set("p/t.md", "Be lucky.\n")
	f.set("p/BUILD.star", drawHead+build)
	f.locks["sh"] = must(f.tools.Program("/bin/sh"))
	f.change = func(o *Options) {
		f.runner.store = o.Store
		o.Runner, o.Tools, o.Locks, o.Consent = f.runner, f.tools, f.locks, f.consent
		o.DrawLock = func(l graph.Label) (*draws.Lock, error) { return draws.Open(f.lockPath(l.Pkg)) }
		o.Run = sync.OnceValues(f.process)
		o.Sleep = func(ctx context.Context, d time.Duration) error {
			f.mu.Lock()
			f.slept = append(f.slept, d)
			f.mu.Unlock()
			return ctx.Err()
		}
		if f.watch != nil {
			o.Watch = func() func(bool) string { return func(bool) string { return f.watch() } }
		}
	}
	f.runner.words = func(n int, _ string) ([]string, error) { return []string{fmt.Sprintf("out:reply %d", n)}, nil }
	return f
}

// process makes each engine a process of its own, which has ended for all that
// come later.
func (f *drawFixture) process() (*Run, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.id++
	id := fmt.Sprintf("%032x", f.id)
	return &Run{ID: id, Alive: func(id string) bool { return f.alive[id] }}, nil
}

func (f *drawFixture) redeclare(build string) { f.set("p/BUILD.star", drawHead+build) }

// edit replaces OLD with NEW in a source.
func (f *drawFixture) edit(p, old, now string) {
	f.Helper()
	was := string(must(f.memory.read(p)))
	if strings.Count(was, old) != 1 {
		f.Fatalf("%s: %q is there %d times", p, old, strings.Count(was, old))
	}
	f.set(p, strings.Replace(was, old, now, 1))
}

func (f *drawFixture) lockPath(pkg string) string {
	p := filepath.Join(f.lockDir, pkg, draws.Name)
	f.check(os.MkdirAll(filepath.Dir(p), 0o755))
	return p
}

// lockText is the lock of p, "" if there is none.
func (f *drawFixture) lockText(pkg string) string {
	b, err := os.ReadFile(f.lockPath(pkg))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		f.Fatal(err)
	}
	return string(b)
}

func (f *drawFixture) lock() *draws.Lock {
	f.Helper()
	l, err := draws.Open(f.lockPath("p"))
	f.check(err)
	return l
}

// lines are the kinds and reps of the lock of p, less looks, in order.
func (f *drawFixture) lines() []string {
	var out []string
	for _, l := range f.lock().Lines() {
		if l.Kind != draws.Look {
			out = append(out, string(l.Kind)+" "+l.ID.String())
		}
	}
	return out
}

// counts are those of a label in the lock of p.
func (f *drawFixture) countsOf(name string) draws.Counts {
	return f.lock().Counts(graph.Label{Pkg: "p", Name: name})
}

// draws builds and says how many reps were drawn; nothing may go wrong.
func (f *drawFixture) draws(want int, names ...string) built {
	f.Helper()
	b := f.build(names...)
	if b.Drawn != want {
		f.Fatalf("drew %d, not %d", b.Drawn, want)
	}
	return b
}

// problems are the errors of a build's draws, by rep.
func (b built) problems() map[string]error {
	out := map[string]error{}
	for _, p := range b.Problems {
		name := slotName(p.Action)
		if s := p.Action.Sample; s != nil {
			name = repName(s)
		}
		out[name] = p.Err
	}
	return out
}

// card is the scorecard of a target in the output folder.
func (f *drawFixture) card(target string) map[string]any { return f.shown(target, "scorecard.json") }

func (f *drawFixture) shown(target, name string) map[string]any {
	f.Helper()
	data, err := os.ReadFile(f.out("p", target, name))
	f.check(err)
	var m map[string]any
	f.check(json.Unmarshal(data, &m))
	return m
}

// at looks a value up by dotted names.
func at(m map[string]any, path string) any {
	var v any = m
	for _, name := range strings.Split(path, ".") {
		v = v.(map[string]any)[name]
	}
	return v
}

// wantCard compares fields of a scorecard, as they print.
func (f *drawFixture) wantCard(target string, want map[string]string) {
	f.Helper()
	card := f.card(target)
	for _, path := range keysOf(want) {
		if got := fmt.Sprint(at(card, path)); got != want[path] {
			f.Errorf("%s is %s, not %s", path, got, want[path])
		}
	}
}

// planned lists the reps that a plan says would be drawn.
func (f *drawFixture) planned(names ...string) []string {
	f.Helper()
	rep, err := New(f.options(f.store(), nil)).Plan(context.Background(), f.targets(names...))
	f.check(err)
	var out []string
	for _, s := range rep.Stale {
		if s.Action.Sample != nil {
			out = append(out, repName(s.Action.Sample))
		}
	}
	slices.Sort(out)
	return out
}

// lose removes the capture of a rep from the store.
func (f *drawFixture) lose(rep string) {
	f.Helper()
	f.check(f.store().Delete(f.keyOf(rep)))
}

// keyOf is where the store has the capture of a rep: that of its last line.
func (f *drawFixture) keyOf(rep string) (key cas.Digest) {
	f.Helper()
	for _, l := range f.lock().Lines() {
		if l.Kind != draws.Look && l.ID.String() == rep {
			key = cas.Digest(l.Key)
		}
	}
	if key.IsZero() {
		f.Fatalf("no line of %s", rep)
	}
	return key
}
