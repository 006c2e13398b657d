package engine

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
)

const twoRuns = `
action(name = "a", tool = ":sh", args = ["o=@"], srcs = ["a.txt", "run.sh"], outs = ["o"])
action(name = "b", tool = ":own", args = ["o=@", "-i", "$(location :a)"], srcs = [":a", "b.txt"], outs = ["o"], env = {"V": "1"})
tool(name = "own", path = "own.sh", data = ["/bin/env"])
`

func newTwoRuns(t *testing.T) *runFixture {
	f := newRunFixture(t, twoRuns)
	for p, s := range map[string]string{"a.txt": "A", "b.txt": "B", "run.sh": "run", "own.sh": "#!/bin/sh\n"} {
		f.set("p/"+p, s)
	}
	f.exec = map[string]bool{"p/run.sh": true}
	return f
}

// TestRunSpec: what a process is given, and what becomes of what it makes.
func TestRunSpec(t *testing.T) {
	f := newTwoRuns(t)
	f.wantRan(f.build(), "a o", "b o")
	f.wantOutputs(map[string]string{
		"p/a/o": "p/a.txt A\np/run.sh* run\n",
		"p/b/o": "p/a/o p/a.txt A\np/run.sh* run\np/b.txt B\np/own.sh* #!/bin/sh\n",
	})
	specs := f.took()
	if len(specs) != 2 {
		t.Fatalf("%d processes", len(specs))
	}
	for i := range specs[1].Mounts {
		m := &specs[1].Mounts[i]
		if !filepath.IsAbs(m.Source) {
			t.Errorf("%+v", m)
		}
		m.Source, m.Digest = "", cas.Digest{}
	}
	want := sandbox.Spec{
		Args:    []string{graph.RootMark + "/in/p/own.sh", "o=@", "-i", graph.RootMark + "/in/p/a/o"},
		Env:     []string{"V=1"},
		Policy:  graph.Policy{Limits: graph.DefaultLimits},
		Outputs: []collect.Output{{Path: "o"}},
		Mounts: []graph.Mount{
			{Path: "/bin/env", Executable: true},
			{Path: "/bin/sh", Executable: true},
			{Path: "/in/p/a/o"},
			{Path: "/in/p/b.txt"},
			{Path: "/in/p/own.sh", Executable: true},
		},
	}
	if diff := cmp.Diff(want, specs[1]); diff != "" {
		t.Error(diff)
	}
	r, err := f.store().Lookup(cas.Pure, cas.Digest(f.build().event("a o").Key))
	f.check(err)
	if !strings.Contains(string(r.Aux["seal"]), `"fake"`) {
		t.Errorf("seal %s", r.Aux["seal"])
	}
	if got := string(r.Aux["run"]); got != `{"egress":[],"limits":[],"rejected":[],"status":{"code":0,"signal":0},"stderr_bytes":0,"stdout_bytes":0,"survivors":0}` {
		t.Errorf("run %s", got)
	}
}

// TestRunAgain: nothing runs without a reason, and the reason is told.
func TestRunAgain(t *testing.T) {
	f := newTwoRuns(t)
	f.build()
	f.wantRan(f.build())
	for _, c := range []struct {
		what string
		do   func()
		ran  []string
		name string
		why  string
	}{
		{"an input", func() { f.set("p/a.txt", "AA") }, []string{"a o", "b o"}, "a o", "input in/p/a.txt changed"},
		{"what follows", func() { f.set("p/a.txt", "AAA") }, []string{"a o", "b o"}, "b o", "input in/p/a/o changed"},
		{"the other input", func() { f.set("p/b.txt", "BB") }, []string{"b o"}, "b o", "input in/p/b.txt changed"},
		{"a mode", func() { f.exec["p/b.txt"] = true }, []string{"b o"}, "b o", "input in/p/b.txt changed"},
		{"a program's mode", func() { f.exec["p/own.sh"] = true }, nil, "", ""},
		{"an argument", func() { f.redeclare(strings.Replace(twoRuns, `"-i"`, `"--in put"`, 1)) }, []string{"b o"}, "b o", `arg 2 changed: -i → "--in put"`},
		{"a variable", func() { f.redeclare(strings.Replace(twoRuns, `{"V": "1"}`, `{"V": "2"}`, 1)) }, []string{"b o"}, "b o", `arg 2 changed: "--in put" → -i, env V changed: 1 → 2`},
		{"a seal", func() {
			f.redeclare(strings.Replace(twoRuns, `{"V": "1"}`, `{"V": "2"}, seal = ":s"`, 1) + "\nseal(name = 's', wall = '90s')")
		}, []string{"b o"}, "b o", "seal wall changed: 120s → 90s"},
		{"a host program", func() { f.tools["/bin/env"] = "another" }, []string{"b o"}, "b o", "mount /bin/env changed"},
	} {
		c.do()
		targets := f.targets()
		plan, err := New(f.options(f.store(), nil)).Plan(context.Background(), targets)
		f.check(err)
		if sure := len(plan.Stale) > 0; sure != (c.ran != nil) {
			t.Errorf("%s: the plan has %d actions", c.what, len(plan.Stale))
		}
		b := f.build()
		f.wantRan(b, c.ran...)
		if got := b.why(c.name); got != c.why {
			t.Errorf("%s: why %q, want %q", c.what, got, c.why)
		}
	}
	// The same content under a new place of the host is the same.
	f.wantRan(f.build())
}

func TestRunFailures(t *testing.T) {
	for _, c := range []struct {
		args  string
		want  string
		hints string
	}{
		{`"code:3", "err:one\ntwo\n", "out:three"`, "exit code 3\n  stderr:\n    one\n    two\n  stdout:\n    three", ""},
		{`"out:"`, `output "o" was not made`, "outputs are made in the working directory; $(out NAME) is their path"},
		{`"limit:wall", "code:1"`, "the wall limit of 90s was reached", "raise wall in the seal(…) of the action"},
		{`"o=x", "limit:memory", "limit:scratch"`, "the memory limit of 1GiB was reached; the scratch limit of 2KiB was reached", "raise memory in the seal(…) of the action; raise scratch in the seal(…) of the action"},
		{`"reject:o"`, `output "o" was not made; output "o" was rejected: type: it is a fifo`, "outputs are made in the working directory; $(out NAME) is their path"},
	} {
		f := newRunFixture(t, `
seal(name = "s", wall = "90s", scratch = "2KiB")
action(name = "a", tool = ":sh", args = [`+c.args+`], outs = ["o"], seal = ":s")
action(name = "b", tool = ":sh", args = ["o=1"], srcs = [":a"], outs = ["o"])
`)
		for range 2 { // a failure is not stored
			b := f.run(context.Background())
			f.check(b.err)
			if len(b.Problems) != 1 || b.Problems[0].Infra || b.Failed != 1 || b.Skipped != 1 || len(f.took()) != 1 {
				t.Fatalf("%s: %+v", c.args, b.Problems)
			}
			err := b.Problems[0].Err
			if got := err.Error(); got != c.want {
				t.Errorf("%s: %q, want %q", c.args, got, c.want)
			}
			var hinted interface{ Hints() []string }
			if errors.As(err, &hinted); strings.Join(hinted.Hints(), "; ") != c.hints {
				t.Errorf("%s: hints %q", c.args, hinted.Hints())
			}
		}
	}
}

// TestSaid: the end of a long stream is shown, no more of a line than is of use.
func TestSaid(t *testing.T) {
	s := sandbox.Stream{Data: []byte(strings.Repeat("line\n", 30) + strings.Repeat("y", 1000) + "\n\n"), Total: 5000}
	got := said("stderr", s)
	if n := strings.Count(got, "line\n"); n != maxSaid-1 {
		t.Errorf("%d lines:%s", n, got)
	}
	if !strings.Contains(got, "(the last 20 of 31 lines)") || !strings.Contains(got, strings.Repeat("y", 400)+"…\n") || !strings.HasSuffix(got, "… (5000 bytes were written, 1152 are kept)") {
		t.Error(got)
	}
}

// TestWhoseFault sorts what a sandbox can say.
func TestWhoseFault(t *testing.T) {
	build := `
action(name = "a", tool = ":sh", args = ["o=1"], outs = ["o"])
action(name = "b", tool = ":sh", args = ["o=1"], srcs = [":a"], outs = ["o"])
files(name = "c", content = {"out.txt": "1"})
files(name = "d", content = {"out.txt": "2"})
`
	unavailable := &sandbox.UnavailableError{Layer: "user", Err: errors.New("EPERM"), Hint: "sysctl"}
	for _, c := range []struct {
		err   error
		infra bool
		built bool // what needs no process
	}{
		{unavailable, false, true},
		{&sandbox.ExecError{Path: "/bin/sh", Err: os.ErrNotExist}, false, false},
		{&sandbox.SetupError{Row: 3, Layer: "mount", Err: errors.New("EIO")}, true, false},
		{errors.New("disk full"), true, false},
	} {
		f := newRunFixture(t, build)
		f.jobs = 1
		f.runner.fail = func(sandbox.Spec) error { return c.err }
		b := f.run(context.Background())
		if b.err != nil || len(b.Problems) != 1 || b.Problems[0].Infra != c.infra || !errors.Is(b.Problems[0].Err, c.err) {
			t.Fatalf("%v: %v, %+v", c.err, b.err, b.Problems)
		}
		if c.built && b.Ran != 2 {
			t.Errorf("%v: %d ran", c.err, b.Ran)
		}
	}
	// No sandbox at all; and what is stored needs none.
	f := newRunFixture(t, build)
	with := f.change
	f.change = func(o *Options) { with(o); o.Runner = nil }
	b := f.run(context.Background())
	var e *sandbox.UnavailableError
	if len(b.Problems) != 1 || !errors.As(b.Problems[0].Err, &e) {
		t.Fatalf("%+v", b.Problems)
	}
	f.change = with
	f.build()
	f.change = func(o *Options) { with(o); o.Runner = nil }
	f.wantRan(f.build())
}

// TestToolErrors name the tool's label, and are the user's.
func TestToolErrors(t *testing.T) {
	f := newRunFixture(t, `
tool(name = "gone", path = "/bin/gone")
tool(name = "script", path = "s")
action(name = "a", tool = ":gone", outs = ["o"])
action(name = "b", tool = ":script", outs = ["o"])
`)
	f.keep = true
	f.set("p/s", "#!/bin/zsh\n")
	b := f.run(context.Background())
	got := map[string]string{}
	for _, p := range b.Problems {
		got[p.Action.Owner.Name] = p.Err.Error()
		if p.Infra {
			t.Errorf("%v is the machine's", p.Err)
		}
	}
	want := map[string]string{
		"a": "//p:gone: tool /bin/gone: does not exist",
		"b": "//p:script: p/s: tool /bin/zsh: does not exist",
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// TestFolders: a folder is one output with all that is in it, an input under
// its path, and a copy that holds nothing else.
func TestFolders(t *testing.T) {
	build := `
action(name = "a", tool = ":sh", args = ["d/x=1", "d/s/y+=2", "d/e/", "d/l->x", "o+=3"], outs = ["d/", "o"])
action(name = "b", tool = ":sh", args = ["o=@"], srcs = [":a"], outs = ["o"])
action(name = "e", tool = ":sh", args = ["d/"], outs = ["d/"])
action(name = "f", tool = ":sh", args = ["o=@"], srcs = [":e"], outs = ["o"])
`
	f := newRunFixture(t, build)
	f.build()
	want := map[string]string{
		"p/a/d/x": "1", "p/a/d/s/y": "2", "p/a/o": "3",
		"p/b/o": "p/a/d/e/\np/a/d/l -> x\np/a/d/s/y* 2\np/a/d/x 1\np/a/o* 3\n",
		"p/f/o": "p/e/d/\n",
	}
	f.wantOutputs(want)
	check := func() {
		t.Helper()
		for p, mode := range map[string]os.FileMode{"p/a/d/x": 0o444, "p/a/d/s/y": 0o555, "p/a/o": 0o555} {
			if fi, err := os.Stat(f.out(p)); err != nil || fi.Mode() != mode {
				t.Errorf("%s: %v, %v", p, fi.Mode(), err)
			}
		}
		if to, err := os.Readlink(f.out("p/a/d/l")); err != nil || to != "x" {
			t.Errorf("link to %q, %v", to, err)
		}
		for _, p := range []string{"p/a/d/e", "p/e/d"} {
			if fi, err := os.Stat(f.out(p)); err != nil || !fi.IsDir() {
				t.Errorf("%s: %v", p, err)
			}
		}
	}
	check()
	f.wantRan(f.build())
	// Copies that were changed are put right, strangers go.
	for _, err := range []error{
		os.Remove(f.out("p/a/d/l")), os.WriteFile(f.out("p/a/d/l"), nil, 0o644),
		os.WriteFile(f.out("p/a/d/stranger"), nil, 0o644), os.MkdirAll(f.out("p/a/d/more/of"), 0o755),
		os.Remove(f.out("p/a/d/x")), os.MkdirAll(f.out("p/a/d/x/y"), 0o755), os.Chmod(f.out("p/a/d/s/y"), 0o444), os.Remove(f.out("p/a/d/e")),
	} {
		f.check(err)
	}
	f.wantRan(f.build())
	f.wantOutputs(want)
	check()
	if _, err := os.Stat(f.out("p/a/d/more")); err == nil {
		t.Error("a strange folder stays")
	}
	// The folder becomes a file, and another goes.
	f.redeclare(`action(name = "a", tool = ":sh", args = ["d=1"], outs = ["d"])
action(name = "e", tool = ":sh", args = ["o=1"], outs = ["o"])`)
	f.build()
	if data, err := os.ReadFile(f.out("p/a/d")); err != nil || string(data) != "1" {
		t.Errorf("%q, %v", data, err)
	}
	if _, err := os.Stat(f.out("p/e/d")); err == nil {
		t.Error("an old folder stays")
	}
	f.redeclare(build)
	f.wantRan(f.build())
	check()
}

func TestRunVerify(t *testing.T) {
	f := newRunFixture(t, `
action(name = "a", tool = ":sh", args = ["d/x=1", "o=some more", "err:said"], outs = ["d/", "o"])
node(name = "n", srcs = ["1"], pad = 2000)
action(name = "b", tool = ":sh", args = ["o=@"], srcs = [":a", ":n"], outs = ["o"])
`)
	f.set("p/1", "1 ")
	sealed := 0
	with := f.change
	var bad error
	f.change = func(o *Options) {
		with(o)
		o.VerifySeal = func(_ []byte, spec sandbox.Spec) error {
			if len(spec.Args) == 0 || len(spec.Mounts) == 0 {
				t.Errorf("spec %+v", spec)
			}
			sealed++
			return bad
		}
	}
	verify := func() (faults []Fault, rep *Report) {
		t.Helper()
		f.took()
		faults, rep, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets("a", "b", "n"))
		f.check(err)
		if n := len(f.took()); n > 0 {
			t.Errorf("verify ran %d processes", n)
		}
		return faults, rep
	}
	f.keep = true
	if _, rep := verify(); len(rep.Problems) != 1 || !errors.Is(rep.Problems[0].Err, errNotRecorded) {
		t.Errorf("%+v", rep.Problems)
	}
	f.build()
	faults, rep := verify()
	if len(faults)+len(rep.Problems) > 0 || sealed != 2 || rep.Ran != 1 || rep.Disk != 2 {
		t.Errorf("%+v, %+v, %d seals", faults, rep, sealed)
	}
	bad = errors.New("the program is another")
	if faults, rep := verify(); len(faults) == 0 || len(rep.Problems) == 0 {
		t.Errorf("%+v, %+v", faults, rep)
	}
	bad = nil
	f.check(os.Chmod(f.out("p/a/d/x"), 0o644))
	f.check(os.WriteFile(f.out("p/a/d/x"), []byte("2"), 0o644))
	f.check(os.WriteFile(f.out("p/a/d/y"), nil, 0o644))
	faults, _ = verify()
	var got []string
	for _, x := range faults {
		got = append(got, x.Label.Name+" "+x.Path+": "+x.Cause)
	}
	if diff := cmp.Diff([]string{"a d/x: it is not what the recorded bytes give", "a d/y: it is not of that output"}, got); diff != "" {
		t.Error(diff)
	}
}

func TestDeterminism(t *testing.T) {
	f := newRunFixture(t, `
action(name = "same", tool = ":sh", args = ["d/x=1", "o=@"], outs = ["d/", "o"])
action(name = "other", tool = ":sh", args = ["o=#"], outs = ["o"])
action(name = "folder", tool = ":sh", args = ["d/x=1", "d/s/y=#"], outs = ["d/"])
node(name = "n", srcs = ["1"], pad = 2000)
`)
	f.set("p/1", "1 ")
	f.build("same", "n")
	f.took()
	f.keep = true
	with := f.change
	f.change = func(o *Options) { with(o); o.CheckDeterminism = true }
	b := f.run(context.Background())
	f.check(b.err)
	if n := len(f.took()); n != 6 {
		t.Errorf("%d processes", n)
	}
	f.wantRan(b, "n", "same d")
	got := map[string]string{}
	for _, p := range b.Problems {
		got[p.Action.Owner.Name] = strings.ReplaceAll(p.Err.Error(), "x", "")
		if p.Infra {
			t.Errorf("%v", p.Err)
		}
	}
	want := map[string]string{
		"other":  `not deterministic: two runs of it differ: output "o": line 4: "", then ""`,
		"folder": `not deterministic: two runs of it differ: output "d": "s/y": line 4: "", then ""`,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	// Without the check the first result counts, and the check finds it out.
	f.change = with
	f.build("other")
	f.change = func(o *Options) {
		with(o)
		o.CheckDeterminism = true
		f.runner.count = 100
		f.runner.fail = func(sandbox.Spec) error { f.runner.count = 100; return nil }
	}
	f.jobs = 1
	b = f.run(context.Background(), "other")
	if len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Err.Error(), "two runs of it differ") && !strings.Contains(b.Problems[0].Err.Error(), "its stored result differ") {
		t.Errorf("%+v", b.Problems)
	}
}

func TestFirstDifference(t *testing.T) {
	long := strings.Repeat("a", 300)
	for _, c := range []struct{ p, q, want string }{
		{"a\nb\nc", "a\nB\nc", `line 2: "b", then "B"`},
		{"a", "a\n", "line 1: one ends there (1 and 2 bytes)"},
		{"a\nb", "a\nb\nc", "line 2: one ends there (3 and 5 bytes)"},
		{"", "x", `line 1: "", then "x"`},
		{"a\x00b", "a\x00c", "byte 2 differs (of 3 and 3)"},
		{"\x1b[31m", "x", `line 1: "\x1b[31m", then "x"`},
		{long + "x" + long, long + "y" + long, `line 1: …"` + strings.Repeat("a", 50) + "x" + strings.Repeat("a", 49) + `"…, then …"` + strings.Repeat("a", 50) + "y" + strings.Repeat("a", 49) + `"…`},
	} {
		if got := firstDifference([]byte(c.p), []byte(c.q)); got != c.want {
			t.Errorf("%q %q: %s, want %s", c.p, c.q, got, c.want)
		}
	}
}

// TestLostRun: a blob of a folder is lost, and its action runs again.
func TestLostRun(t *testing.T) {
	f := newRunFixture(t, `
action(name = "a", tool = ":sh", args = ["d/x=content of some length"], outs = ["d/"])
action(name = "b", tool = ":sh", args = ["o=@"], srcs = [":a"], outs = ["o"])
`)
	f.build()
	want := f.outputs()
	d := cas.BLAKE3.Sum([]byte("content of some length"))
	for _, p := range f.stored("cas") {
		if strings.Contains(p, d.Hex()) {
			f.check(os.Remove(p))
		}
	}
	b := f.build()
	f.wantRan(b, "a d")
	if got := b.why("a d"); got != "d/x is missing" {
		t.Errorf("why %q", got)
	}
	f.wantOutputs(want)
}

func TestRunInterrupted(t *testing.T) {
	f := newRunFixture(t, `action(name = "a", tool = ":sh", args = ["o=1"], outs = ["o"])`)
	ctx, cancel := context.WithCancel(context.Background())
	f.runner.fail = func(sandbox.Spec) error { cancel(); return errors.New("signal 9") }
	b := f.run(ctx)
	if !errors.Is(b.err, ErrInterrupted) || len(b.Problems) > 0 {
		t.Errorf("%v, %+v", b.err, b.Problems)
	}
	f.runner.fail = nil
	f.wantRan(f.build(), "a o")
}

// TestToolChanged: a result of another tool than the one in the key is none.
func TestToolChanged(t *testing.T) {
	f := newRunFixture(t, `action(name = "a", tool = ":sh", args = ["o=1"], outs = ["o"])`)
	f.tools["changed"] = "/bin/sh: changed"
	f.keep = true
	rep, err := New(f.options(f.store(), nil)).Build(context.Background(), f.targets("a"))
	f.check(err)
	if len(rep.Problems) != 1 || rep.Problems[0].Infra || rep.Problems[0].Err.Error() != "a tool of it: /bin/sh: changed" {
		t.Errorf("%+v", rep.Problems)
	}
	delete(f.tools, "changed")
	f.took()
	if rep := f.build(); len(rep.Problems) > 0 || len(f.took()) != 1 {
		t.Errorf("it was stored: %+v", rep)
	}
}
