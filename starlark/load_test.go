package starlark

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/evalbuild/eval/workspace/graph"
)

func loadError(t *testing.T, files map[string]string) error {
	t.Helper()
	_, err := newBuild(files, nil).all()
	return err
}

// TestLoadErrors holds what can't be written as a comment into the file.
func TestLoadErrors(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"invalid UTF-8", map[string]string{"BUILD.star": "x = 1\ny = 2 # caf\xe9\n"}, "BUILD.star:2:1: the file is not valid UTF-8"},
		{"invalid UTF-8 in a loaded file", map[string]string{"BUILD.star": "load('//a:x.star', 'x')", "a/x.star": "\n\n\nx = '\xff'"}, "a/x.star:4:1: the file is not valid UTF-8"},
		{"NUL", map[string]string{"BUILD.star": "x = 1\x00"}, "BUILD.star:1:1: the file holds a NUL"},
		{"empty label", map[string]string{"BUILD.star": "load('', 'x')"}, `BUILD.star:1:1: load: label "": the name is empty`},
		{"too large", map[string]string{"BUILD.star": "load(':x.star', 'x')", "x.star": strings.Repeat("#", maxSource+1)}, `BUILD.star:1:1: load ":x.star": the file has 16777217 bytes; at most 16777216 can be loaded`},
		{"too large a BUILD.star", map[string]string{"BUILD.star": strings.Repeat("#", maxSource+1)}, `BUILD.star: the file has 16777217 bytes`},
		{"deeply nested source", map[string]string{"BUILD.star": "x = " + strings.Repeat("(", 200) + "1" + strings.Repeat(")", 200)}, "BUILD.star:1:82: excessive nesting"},
		{"empty", map[string]string{"BUILD.star": ""}, ""},
		{"byte order mark", map[string]string{"BUILD.star": "\ufeffx = 1"}, "BUILD.star:1:1: unexpected input character"},
		{"windows line ends", map[string]string{"BUILD.star": "x = 1\r\ny = x\r\n"}, ""},
	} {
		err := loadError(t, c.files)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: got %v, want %s", c.name, err, c.want)
		}
	}
}

func TestLoadSteps(t *testing.T) {
	l := New(Options{Files: newFiles(map[string]string{
		"BUILD.star": "load(':x.star', 'x')", "x.star": "x = [i for i in range(100000)]\n",
	}), Limit: 1000})
	_, err := l.Package("", "")
	var e *Error
	if !errors.As(err, &e) || !strings.Contains(e.Msg, "more than 1000 steps") || !strings.HasPrefix(e.Pos, "x.star:1:") {
		t.Errorf("got %v", err)
	}
}

func TestUnreadable(t *testing.T) {
	b := newBuild(map[string]string{"BUILD.star": "load(':x.star', 'x')", "x.star": "x = 1"}, nil)
	b.files.fail["x.star"] = errors.New("input/output error")
	_, err := b.all()
	if err == nil || err.Error() != `BUILD.star:1:1: load ":x.star": input/output error` {
		t.Errorf("got %v", err)
	}
	b = newBuild(map[string]string{"BUILD.star": ""}, nil)
	b.files.fail["BUILD.star"] = errors.New("input/output error")
	if _, err = b.all(); err == nil || err.Error() != "BUILD.star: input/output error" {
		t.Errorf("got %v", err)
	}
}

// TestLoadedOnce: many packages, one file.
func TestLoadedOnce(t *testing.T) {
	files := map[string]string{"lib.star": "x = 1"}
	for i := range 20 {
		files[fmt.Sprintf("p%d/BUILD.star", i)] = "load('//:lib.star', 'x')"
	}
	b := newBuild(files, nil)
	if _, err := b.all(); err != nil {
		t.Fatal(err)
	}
	for name, n := range b.files.reads {
		if n != 1 {
			t.Errorf("%s was read %d times", name, n)
		}
	}
}

// meet holds the first reads of the files until all of them have begun, so
// that packages that load in parallel are in the middle of them.
func meet(files ...string) func(string) {
	var all sync.WaitGroup
	all.Add(len(files))
	once := map[string]*sync.Once{}
	for _, f := range files {
		once[f] = new(sync.Once)
	}
	return func(f string) {
		if o := once[f]; o != nil {
			o.Do(func() { all.Done(); all.Wait() })
		}
	}
}

// TestParallelCycle: two packages come into one cycle from two sides, each
// holding what the other waits for.
func TestParallelCycle(t *testing.T) {
	const want = `a.star:2:1: load cycle:
  //:a.star loads
  //:b.star loads
  //:a.star`
	for i := range 100 {
		b := newBuild(map[string]string{
			"p/BUILD.star": "load('//:a.star', 'a')",
			"q/BUILD.star": "load('//:b.star', 'b')",
			"a.star":       "\nload('//:b.star', 'b')\na = 1",
			"b.star":       "load('//:a.star', 'a')\nb = 1",
		}, nil)
		// In every other round both are entered before either goes on.
		if i%2 == 0 {
			b.files.onRead = meet("a.star", "b.star")
		}
		if _, err := b.LoadPackages(context.Background(), "", []string{"p", "q"}); err == nil || err.Error() != want {
			t.Fatalf("round %d: got %v\nwant %s", i, err, want)
		}
	}
}

// Of two cycles that share a file, always the same is told.
func TestTwoCycles(t *testing.T) {
	files := map[string]string{
		"a.star": "load(':c.star', 'c')\na = 1",
		"b.star": "load(':c.star', 'c')\nb = 1",
		"c.star": "load(':b.star', 'b')\nload(':a.star', 'a')\nc = 1",
		"d.star": "load(':a.star', 'a')\nd = 1",
	}
	for _, f := range []string{"a", "b", "c", "d"} {
		files[f+"p/BUILD.star"] = fmt.Sprintf("load('//:%s.star', '%s')", f, f)
	}
	want := ""
	for i := range 100 {
		b := newBuild(files, nil)
		order := []string{"ap", "bp", "cp", "dp"}
		order[0], order[i%4] = order[i%4], order[0]
		_, err := b.LoadPackages(context.Background(), "", order)
		if err == nil {
			t.Fatal("no error")
		}
		if want == "" {
			want = err.Error()
		}
		if err.Error() != want {
			t.Fatalf("round %d: %v\nfirst: %s", i, err, want)
		}
	}
	if want != "a.star:1:1: load cycle:\n  //:a.star loads\n  //:c.star loads\n  //:a.star" {
		t.Errorf("got %s", want)
	}
}

// TestNoCycle: p has c.star while q, which holds d.star, waits for it; p goes
// on to d.star at once. Nobody waits in a circle.
func TestNoCycle(t *testing.T) {
	for i := range 300 {
		b := newBuild(map[string]string{
			"p/BUILD.star": "load('//:c.star', 'c')\nload('//:d.star', 'd')",
			"q/BUILD.star": "load('//:d.star', 'd')",
			"c.star":       "c = 1",
			"d.star":       "load('//:c.star', 'c')\nd = 1",
		}, nil)
		b.files.onRead = meet("c.star", "d.star")
		if _, err := b.LoadPackages(context.Background(), "", []string{"p", "q"}); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
}

// TestNames: a provider is known by the file that made it. One that this file
// doesn't name stays without a name, whoever gives it one first.
func TestNames(t *testing.T) {
	for range 50 {
		b := newBuild(map[string]string{
			"lib.star":     "L = [provider()]\nA = provider()\nB = A\ndef make():\n    return provider()\n",
			"x.star":       "load(':lib.star', 'L', 'A', 'make')\nX = L[0]\nX2 = A\nX3 = make()\n",
			"y.star":       "load(':lib.star', 'L')\nY = L[0]\n",
			"p/BUILD.star": "load('//:x.star', 'X', 'X2', 'X3')\nprint(X, X2, X3)",
			"q/BUILD.star": "load('//:y.star', 'Y')",
		}, nil)
		b.files.onRead = meet("x.star", "y.star")
		if _, err := b.LoadPackages(context.Background(), "", []string{"p", "q"}); err != nil {
			t.Fatal(err)
		}
		if got, want := b.logs[0], "<provider > <provider @test//:lib.star%A> <provider @test//:x.star%X3>"; got != want {
			t.Fatalf("got %s, want %s", got, want)
		}
	}
}

func TestSelect(t *testing.T) {
	r := "r = rule(implementation = lambda ctx: None)\n"
	decl := "load('//:r.star', 'r')\n"
	b := newBuild(map[string]string{
		"r.star":                r,
		"BUILD.star":            decl + "r(name = 'root')",
		"a/BUILD.star":          decl + "r(name = 'a')\nr(name = 'walked')",
		"a/b/BUILD.star":        decl + "r(name = 'b')",
		"none/BUILD.star":       "",
		"@shared//s/r.star":     r,
		"@shared//s/BUILD.star": "load(':r.star', 'r')\nr(name = 's')",
	}, nil)
	for _, c := range []struct{ patterns, want string }{
		{"//...", "//:root //a:a //a:walked //a/b:b"},
		{"//a/...", "//a:a //a:walked //a/b:b"},
		{"//a:all", "//a:a //a:walked"},
		{"//a", "//a:a"},
		{"//a //a:a //a:all", "//a:a //a:walked"},
		{"//... -//a/...", "//:root"},
		{"//... -//a:all //a:walked", "//:root //a:walked //a/b:b"},
		{"-//a:a //a:all", "//a:a //a:walked"},
		{"@test//a", "//a:a"},
		{"//a:all -@test//a:a", "//a:walked"},
		{"@shared//...", "@shared//s:s"},
		{"//... @shared//s", "//:root //a:a //a:walked //a/b:b @shared//s:s"},
		{"//none/...", "empty //none/..."},
		{"//none:all //a", "//a:a empty //none:all"},
		{"//a:wlked", `package //a has no target "wlked" (did you mean "walked"?)`},
		{"//nowhere", "package //nowhere: there is no BUILD.star"},
		{"@nowhere//x", "pattern @nowhere//x:x: there is no module @nowhere"},
		{"-@nowhere//x", "pattern -@nowhere//x:x: there is no module @nowhere"},
	} {
		var patterns []graph.Pattern
		for s := range strings.FieldsSeq(c.patterns) {
			p, err := graph.ParsePattern(s, "")
			if err != nil {
				t.Fatal(err)
			}
			patterns = append(patterns, p)
		}
		targets, empty, err := b.Select(context.Background(), patterns, b.files.packages)
		var got []string
		for _, x := range targets {
			got = append(got, x.Label.String())
		}
		for _, p := range empty {
			got = append(got, "empty "+p.String())
		}
		if err != nil {
			got = append(got, err.Error())
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s: got %s, want %s", c.patterns, s, c.want)
		}
	}
}

func TestConfigUsed(t *testing.T) {
	b := newBuild(map[string]string{"BUILD.star": "config.string('a', 'x')\nconfig.string('b')\n"}, map[string]string{"a": "set", "c": "unused"})
	if _, err := b.all(); err != nil {
		t.Fatal(err)
	}
	if got := fmt.Sprint(b.ConfigUsed()); got != "map[a:set b:]" {
		t.Errorf("got %s", got)
	}
}

// TestCancelled: a context that has ended stops loading and analysis.
func TestCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	b := newBuild(map[string]string{"r.star": "r = rule(implementation = lambda ctx: None)", "BUILD.star": "load(':r.star', 'r')\nr(name = 'x')"}, nil)
	if _, err := b.LoadPackages(ctx, "", []string{""}); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	targets, _, err := b.Select(context.Background(), []graph.Pattern{{Below: true}}, b.files.packages)
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Analyze(ctx, targets); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if targets[0].Result != nil {
		t.Error("analysed all the same")
	}
}

// TestManyErrors: all faults of several files, in one order, in every run.
func TestManyErrors(t *testing.T) {
	files := map[string]string{"r.star": "r = rule(implementation = lambda ctx: fail(str(ctx.label)), attrs = {'dep': attr.label(), 'zero': attr.string_list(), 'dict': attr.string_dict()})"}
	for i := range 8 {
		files[fmt.Sprintf("p%d/BUILD.star", i)] = "load('//:r.star', 'r')\nr(name = 'x')\nr(name = 'y')"
	}
	want := ""
	for range 20 {
		err := loadError(t, files)
		var list Errors
		if !errors.As(err, &list) || len(list) != 16 {
			t.Fatalf("got %v", err)
		}
		if want == "" {
			want = err.Error()
		}
		if err.Error() != want {
			t.Fatalf("got\n%v\nthen\n%s", err, want)
		}
	}
}

func TestDepsAndShow(t *testing.T) {
	b, targets := mustAnalyze(t, map[string]string{
		"r.star":     "def mark(rep):\n    return PRESENT\nr = rule(implementation = lambda ctx: None, attrs = {'a': attr.label(), 'b': attr.label_list(), 'f': attr.function()})",
		"BUILD.star": "load(':r.star', 'r', 'mark')\nr(name = 'x')\nr(name = 'y', b = [':x', 'f.txt', '//:x'], a = 'f.txt', f = mark, tags = ['t'])",
		"f.txt":      "",
	})
	deps, err := b.Deps(targets["//:y"])
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, d := range deps {
		got = append(got, fmt.Sprint(d.Label, d.Target != nil))
	}
	if s := strings.Join(got, " "); s != "//:f.txt false //:x true" {
		t.Errorf("got %s", s)
	}
	y := targets["//:y"]
	if s := fmt.Sprint(AttrText(y.Attrs["f"]), AttrText(y.Attrs["a"]), AttrText(y.Attrs["b"]), AttrText(nil), y.Tags, y.Pos, y.Kind); s != `//:r.star%markf.txt[":x", "f.txt", "//:x"][t]BUILD.star:3:2r` {
		t.Errorf("got %s", s)
	}
	if b.packages[pkgKey{}].Target("y") != y {
		t.Error("Target")
	}
}
