package graph

import (
	"bytes"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"google.golang.org/protobuf/proto"

	"github.com/evalbuild/eval/cas"
)

// A keyEdit changes one field of an action or of its inputs.
type keyEdit struct {
	field string
	do    func(a *Action, in *Inputs)
}

// keyCheck holds edits against fieldClasses: those of fields in the key change
// it and the explanation, each to something else; the others change neither.
type keyCheck struct {
	*testing.T
	seen map[Key]string
	done map[string]bool
}

func newKeyCheck(t *testing.T) *keyCheck {
	return &keyCheck{t, map[Key]string{}, map[string]bool{}}
}

func (c *keyCheck) edit(a *Action, inputs Inputs, e keyEdit) {
	c.Helper()
	c.done[e.field] = true
	before, told := key(c.T, a, inputs), explained(a, inputs)
	e.do(a, &inputs)
	after, now := key(c.T, a, inputs), explained(a, inputs)
	if changes := fieldClasses[e.field] == "key"; (before != after) != changes {
		c.Errorf("%s: the key changed: %v, its class is %q", e.field, before != after, fieldClasses[e.field])
	} else if (told != now) != changes {
		c.Errorf("%s: the explanation changed: %v\n%s\n%s", e.field, told != now, told, now)
	} else if changes {
		if other, ok := c.seen[after]; ok {
			c.Errorf("edits of %s and of %s give one key", e.field, other)
		}
		c.seen[after] = e.field
	}
}

func folder(t testing.TB, names ...string) *cas.Tree {
	b := cas.NewTree(cas.BLAKE3)
	for _, n := range names {
		b.File(n, cas.BLAKE3.Sum([]byte(n)), false)
	}
	tree, err := b.Build()
	if err != nil && t != nil {
		t.Fatal(err)
	}
	return tree
}

// runAction has something in each of its fields.
func runAction() (*Action, Inputs) {
	src := &File{Label: Label{Pkg: "p", Name: "a.txt"}}
	made := &Action{Kind: Run}
	dir := &File{Label: Label{Pkg: "p", Name: "y"}, Path: "d", Action: made}
	made.Outputs = []Output{{"d", FormatFolder, dir}}
	a := &Action{
		Kind: Run, Mnemonic: "Run", Owner: Label{Pkg: "p", Name: "x"},
		Inputs: []Input{{Name: "in/p/a.txt", File: src}, {Name: "in/p/y/d", File: dir}},
		Args:   []string{RootMark + "/bin/sh", "-c", "cat " + RootMark + "/in/p/a.txt"},
		Env:    []string{"A=1", "B=" + RootMark + "/in/p/y/d"},
		Policy: &Policy{Network: []Endpoint{{"a.example.com", []uint16{443}}}, Forward: []Forward{{80, "localhost:80"}}, Limits: DefaultLimits},
		Sample: &Sample{"control", 1, 1, 0, "b"},
		Tools:  []Tool{{Program: "/bin/sh", Data: []string{"/etc/x"}}},
	}
	a.Outputs = []Output{{"o.txt", FormatFile, &File{Path: "o.txt", Action: a}}, {"d", FormatFolder, &File{Path: "d", Action: a, Index: 1}}}
	tree := folder(nil, "f")
	in := files(cas.BLAKE3.Sum([]byte("a")))
	in.Files = append(in.Files, Content{Digest: tree.Digest(), Tree: tree})
	in.Platform = PlatformOf("linux", "amd64")
	in.Mounts = []Mount{
		{Path: "/bin/dash", Source: "/bin/dash", Digest: cas.BLAKE3.Sum([]byte("dash")), Executable: true},
		{Path: "/bin/sh", Link: "dash"},
		{Path: "/etc/x", Source: "/etc/x", Digest: tree.Digest(), Tree: tree},
	}
	return a, in
}

func policy(do func(p *Policy)) func(*Action, *Inputs) {
	return func(a *Action, _ *Inputs) { do(a.Policy) }
}

func onRun(do func(a *Action)) func(*Action, *Inputs) {
	return func(a *Action, _ *Inputs) { do(a) }
}

func mount(i int, do func(m *Mount)) func(*Action, *Inputs) {
	return func(_ *Action, in *Inputs) { do(&in.Mounts[i]) }
}

// runEdits are those of a run. What its tools hold is in the key by what they
// resolve to: those edits say what the resolver would give.
var runEdits = []keyEdit{
	{"Action.Args", onRun(func(a *Action) { a.Args[1] = "-x" })},
	{"Action.Args", onRun(func(a *Action) { a.Args = a.Args[:2] })},
	{"Action.Args", onRun(func(a *Action) { a.Args = append(a.Args, "") })},
	{"Action.Env", onRun(func(a *Action) { a.Env[0] = "A=2" })},
	{"Action.Env", onRun(func(a *Action) { a.Env = a.Env[:1] })},
	{"Action.Policy", onRun(func(a *Action) { a.Policy = &Policy{Limits: DefaultLimits} })},
	{"Action.Sample", onRun(func(a *Action) { a.Sample = nil })},
	{"Action.Tools", func(a *Action, in *Inputs) { a.Tools, in.Mounts = nil, nil }},
	{"Policy.Unsealed", policy(func(p *Policy) { p.Unsealed = true })},
	{"Policy.Network", policy(func(p *Policy) { p.Network = nil })},
	{"Policy.Forward", policy(func(p *Policy) { p.Forward = nil })},
	{"Policy.Limits", policy(func(p *Policy) { p.Limits = Limits{} })},
	{"Limits.Memory", policy(func(p *Policy) { p.Limits.Memory++ })},
	{"Limits.Scratch", policy(func(p *Policy) { p.Limits.Scratch++ })},
	{"Limits.Output", policy(func(p *Policy) { p.Limits.Output++ })},
	{"Limits.Processes", policy(func(p *Policy) { p.Limits.Processes++ })},
	{"Limits.Wall", policy(func(p *Policy) { p.Limits.Wall += time.Second })},
	{"Endpoint.Host", policy(func(p *Policy) { p.Network[0].Host = ".example.com" })},
	{"Endpoint.Ports", policy(func(p *Policy) { p.Network[0].Ports = []uint16{80, 443} })},
	{"Forward.Port", policy(func(p *Policy) { p.Forward[0].Port++ })},
	{"Forward.Target", policy(func(p *Policy) { p.Forward[0].Target = "localhost:81" })},
	{"Sample.Stream", onRun(func(a *Action) { a.Sample.Stream = "treatment" })},
	{"Sample.Index", onRun(func(a *Action) { a.Sample.Index++ })},
	{"Sample.Epoch", onRun(func(a *Action) { a.Sample.Epoch++ })},
	{"Sample.Redraw", onRun(func(a *Action) { a.Sample.Redraw++ })},
	{"Sample.Block", onRun(func(a *Action) { a.Sample.Block = "" })},
	{"Action.Block", func(a *Action, in *Inputs) { a.Block, in.Block = &Block{Arms: []*Action{a}}, "b" }},
	{"Inputs.Block", func(a *Action, in *Inputs) { a.Block, in.Block = &Block{}, "c" }},
	{"Action.Terms", onRun(func(a *Action) { a.Terms = &Terms{Withdrawn: true, Reuse: true, USD: new(float64)} })},
	{"Tool.Label", onRun(func(a *Action) { a.Tools[0].Label.Name = "other" })},
	{"Tool.Program", func(a *Action, in *Inputs) { a.Tools[0].Program, in.Mounts[1].Path = "/bin/zsh", "/bin/zsh" }},
	{"Tool.Input", func(a *Action, in *Inputs) {
		a.Tools[0] = Tool{Input: "in/p/a.txt"}
		in.Files[0].Executable, in.Mounts = a.Program("in/p/a.txt"), nil
	}},
	{"Tool.Data", func(a *Action, in *Inputs) { a.Tools[0].Data, in.Mounts = nil, in.Mounts[:2] }},
	{"Inputs.Files", func(_ *Action, in *Inputs) { slices.Reverse(in.Files) }},
	{"Inputs.Mounts", func(_ *Action, in *Inputs) { in.Mounts = in.Mounts[1:] }},
	{"Inputs.Platform", func(_ *Action, in *Inputs) { in.Platform = PlatformOf("darwin", "arm64") }},
	{"Platform.OSFamily", func(_ *Action, in *Inputs) { in.Platform.OSFamily = "macos" }},
	{"Platform.ISA", func(_ *Action, in *Inputs) { in.Platform.ISA = "arm-a64" }},
	{"Content.Digest", func(_ *Action, in *Inputs) { in.Files[0].Digest = cas.BLAKE3.Sum(nil) }},
	{"Content.Executable", func(_ *Action, in *Inputs) { in.Files[0].Executable = true }},
	{"Content.Tree", func(_ *Action, in *Inputs) {
		in.Files[1].Tree = folder(nil, "g")
		in.Files[1].Digest = in.Files[1].Tree.Digest()
	}},
	{"Mount.Path", mount(0, func(m *Mount) { m.Path = "/bin/dish" })},
	{"Mount.Source", mount(0, func(m *Mount) { m.Source = "/nix/dash" })},
	{"Mount.Digest", mount(0, func(m *Mount) { m.Digest = cas.BLAKE3.Sum(nil) })},
	{"Mount.Executable", mount(0, func(m *Mount) { m.Executable = false })},
	{"Mount.Tree", mount(2, func(m *Mount) { m.Tree = folder(nil, "h"); m.Digest = m.Tree.Digest() })},
	{"Mount.Link", mount(1, func(m *Mount) { m.Link = "../bin/dash" })},
	{"Output.Format", onRun(func(a *Action) { a.Outputs[0].Format = FormatFolder })},
	{"Output.Name", onRun(func(a *Action) { a.Outputs[0].Name = "p.txt" })},
	{"Action.Server", onRun(func(a *Action) { a.Server = &Server{Port: 80, Policy: Policy{Limits: DefaultLimits}} })},
	{"Server.Args", onRun(func(a *Action) {
		a.Server = &Server{Args: []string{"serve"}, Port: 80, Policy: Policy{Limits: DefaultLimits}}
	})},
	{"Server.Port", onRun(func(a *Action) { a.Server = &Server{Port: 81, Policy: Policy{Limits: DefaultLimits}} })},
	{"Server.Policy", onRun(func(a *Action) { a.Server = &Server{Port: 80} })},
	{"Server.Program", onRun(func(a *Action) {
		a.Server = &Server{Program: PlayProgram, Port: 80, Policy: Policy{Limits: DefaultLimits}}
	})},
	{"Tool.Own", func(a *Action, in *Inputs) {
		a.Tools[0], in.Mounts = Tool{Own: WorldProgram}, []Mount{{Path: "/" + WorldProgram, Digest: cas.BLAKE3.Sum([]byte("world"))}}
	}},
	{"Action.Owner", onRun(func(a *Action) { a.Owner.Name = "z" })},
	{"Action.Mnemonic", onRun(func(a *Action) { a.Mnemonic = "Draw" })},
}

// TestServerProgram: a draw's key has the version of its server's program and
// not the program, a pure run's the program.
func TestServerProgram(t *testing.T) {
	told := func(sampled bool) (out []string) {
		a, in := runAction()
		a.Server = &Server{Port: 80}
		if !sampled {
			a.Sample = nil
		}
		for _, f := range a.Explain(in) {
			if f.Name == "world version" {
				out = append(out, f.Value)
			}
		}
		return out
	}
	if got := told(true); len(got) != 1 || got[0] != "1" {
		t.Errorf("a draw's key has the versions %q", got)
	}
	if got := told(false); got != nil {
		t.Errorf("a pure run's key has the versions %q", got)
	}
}

// TestRootMarks: under a seal a mark changes nothing, without one it does.
func TestRootMarks(t *testing.T) {
	for _, unsealed := range []bool{false, true} {
		keys := map[Key]bool{}
		for _, arg := range []string{"cat " + RootMark + "/in/p/a.txt", "cat /in/p/a.txt"} {
			a, in := runAction()
			a.Policy.Unsealed, a.Args[2] = unsealed, arg
			keys[key(t, a, in)] = true
			for _, f := range a.Explain(in) {
				if strings.Contains(f.Value, RootMark) {
					t.Errorf("field %s shows a mark: %q", f.Name, f.Value)
				}
			}
		}
		if want := map[bool]int{false: 1, true: 2}[unsealed]; len(keys) != want {
			t.Errorf("unsealed %v: %d keys, not %d", unsealed, len(keys), want)
		}
	}
}

// TestRunMessages: the command and the tree of a run say what REAPI wants.
func TestRunMessages(t *testing.T) {
	a, in := runAction()
	e, err := a.Encode(cas.BLAKE3, in)
	if err != nil {
		t.Fatal(err)
	}
	want, err := proto.MarshalOptions{Deterministic: true}.Marshal(&repb.Command{
		Arguments:            []string{"/bin/sh", "-c", "cat /in/p/a.txt"},
		EnvironmentVariables: []*repb.Command_EnvironmentVariable{{Name: "A", Value: "1"}, {Name: "B", Value: "/in/p/y/d"}},
		OutputPaths:          []string{"d", "o.txt"},
		WorkingDirectory:     "scratch/work",
	})
	if err != nil || !bytes.Equal(e.Command, want) {
		t.Errorf("command %q, want %q, %v", e.Command, want, err)
	}
	var act repb.Action
	if err := proto.Unmarshal(e.Action, &act); err != nil || act.Timeout.AsDuration() != 120*time.Second {
		t.Errorf("timeout %v, %v", act.Timeout, err)
	}
	var tree []string
	err = e.Inputs.Visit(cas.Visitor{
		File:    func(p string, f cas.FileNode) error { tree = append(tree, p); return nil },
		Symlink: func(p string, l cas.SymlinkNode) error { tree = append(tree, p+" → "+l.Target); return nil },
	})
	if got := strings.Join(tree, " "); err != nil || got != "bin/dash bin/sh → dash etc/x/f in/p/a.txt in/p/y/d/f" {
		t.Errorf("input tree %s, %v", got, err)
	}
}

// TestRunGolden: keys of runs that users have must not move by accident.
func TestRunGolden(t *testing.T) {
	a, in := runAction()
	if got, want := key(t, a, in).String(), "blake3:a5f0c469c8dc4c2e5ac3bfca62a5ffbbc9ad6da58e72dec5f5d639a74de84ab7/526"; got != want {
		t.Errorf("run: %s, was %s", got, want)
	}
}

func TestInside(t *testing.T) {
	a := &Action{}
	for _, c := range []struct {
		f    File
		want string
	}{
		{File{Label: Label{Pkg: "p", Name: "d/a.txt"}}, "in/p/d/a.txt"},
		{File{Label: Label{Name: "a.txt"}}, "in/a.txt"},
		{File{Label: Label{Repo: "shared", Pkg: "p", Name: "a.txt"}}, "in/external/shared/p/a.txt"},
		{File{Label: Label{Pkg: "p", Name: "x"}, Path: "o/b.txt", Action: a}, "in/p/x/o/b.txt"},
	} {
		if got := c.f.Inside(); got != c.want {
			t.Errorf("%+v is at %s, not %s", c.f, got, c.want)
		}
	}
}

// FuzzRunInjective: runs that differ in words, policy or sample have different
// keys.
func FuzzRunInjective(f *testing.F) {
	f.Add("a", "b", "A", "x", "s", 1, "h", true, "a", "b", "A", "x", "s", 2, "h", true)
	f.Add("ab", "", "A", "", "s", 1, "", false, "a", "b", "A", "", "s", 1, "", false)
	f.Add("a", "b", "A", "1", "s", 1, "x\x00", true, "a", "b", "B", "1", "s", 1, "x", true)
	f.Fuzz(func(t *testing.T, a1, b1, n1, v1, s1 string, i1 int, h1 string, u1 bool, a2, b2, n2, v2, s2 string, i2 int, h2 string, u2 bool) {
		make := func(a, b, n, v, s string, i int, h string, u bool) (Key, bool) {
			act := &Action{
				Kind: Run, Args: []string{a, b}, Env: []string{n + "=" + v},
				Policy: &Policy{Unsealed: u, Network: []Endpoint{{h, []uint16{1}}}, Limits: DefaultLimits},
				Sample: &Sample{s, i, i, i, h},
			}
			act.Outputs = []Output{{"o", FormatFile, &File{Path: "o", Action: act}}}
			e, err := act.Encode(cas.BLAKE3, Inputs{})
			return e.Key, err == nil && !strings.Contains(n, "=")
		}
		x, ok1 := make(a1, b1, n1, v1, s1, i1, h1, u1)
		y, ok2 := make(a2, b2, n2, v2, s2, i2, h2, u2)
		if !ok1 || !ok2 { // not text
			return
		}
		word := func(u bool, s string) string {
			if u {
				return s
			}
			return Unmark(s)
		}
		same := word(u1, a1) == word(u2, a2) && word(u1, b1) == word(u2, b2) && n1 == n2 && word(u1, v1) == word(u2, v2) &&
			s1 == s2 && i1 == i2 && h1 == h2 && u1 == u2
		if same != (x == y) {
			t.Fatalf("same is %v, the keys are %s and %s", same, x, y)
		}
	})
}

func historyAction() *Action {
	a := &Action{
		Kind: History, Mnemonic: "History", Owner: Label{Pkg: "p", Name: "x"},
		Look: &Look{N: 6, Fingerprint: "f", Alpha: 0.05, Effect: 0.5, Margin: 0.2},
	}
	a.Outputs = []Output{{"out", "json", &File{Path: "history.json", Action: a}}}
	return a
}

var historyEdits = []keyEdit{
	{"Action.Look", onRun(func(a *Action) { a.Look = &Look{} })},
	{"Look.N", onRun(func(a *Action) { a.Look.N++ })},
	{"Look.Fingerprint", onRun(func(a *Action) { a.Look.Fingerprint = "g" })},
	{"Look.Alpha", onRun(func(a *Action) { a.Look.Alpha = 0.1 })},
	{"Look.Effect", onRun(func(a *Action) { a.Look.Effect = 0.1 })},
	{"Look.Margin", onRun(func(a *Action) { a.Look.Margin = 0.1 })},
}

// TestRepKey: limits are blanked in it and nothing else is, and one limit blank
// by itself is no rep key.
func TestRepKey(t *testing.T) {
	rep := func(edit func(a *Action)) Key {
		a, in := runAction()
		edit(a)
		k, err := a.RepKey(cas.BLAKE3, in)
		if err != nil {
			t.Fatal(err)
		}
		return k
	}
	plain := rep(func(*Action) {})
	for i, edit := range []func(l *Limits){
		func(l *Limits) { l.Memory++ }, func(l *Limits) { l.Scratch++ }, func(l *Limits) { l.Output++ },
		func(l *Limits) { l.Processes++ }, func(l *Limits) { l.Wall++ },
	} {
		if got := rep(func(a *Action) { edit(&a.Policy.Limits) }); got != plain {
			t.Errorf("limit %d is in the rep key", i)
		}
	}
	for name, edit := range map[string]func(a *Action){
		"index": func(a *Action) { a.Sample.Index++ }, "epoch": func(a *Action) { a.Sample.Epoch++ },
		"redraw": func(a *Action) { a.Sample.Redraw++ }, "stream": func(a *Action) { a.Sample.Stream += "x" },
		"block": func(a *Action) { a.Sample.Block += "x" }, "argument": func(a *Action) { a.Args = append(a.Args, "x") },
		"network": func(a *Action) { a.Policy.Network = nil }, "seal": func(a *Action) { a.Policy.Unsealed = true },
	} {
		if rep(edit) == plain {
			t.Errorf("%s is not in the rep key", name)
		}
	}
	served := func(wall time.Duration) Key {
		return rep(func(a *Action) {
			a.Policy.Limits.Wall = wall
			a.Server = &Server{Port: 80, Policy: Policy{Limits: ServerLimits(a.Policy.Limits)}}
		})
	}
	if served(time.Second) != served(time.Minute) {
		t.Error("limits of a server, which are made of the run's, are in the rep key")
	}
	a, in := runAction()
	if k := key(t, a, in); k == plain {
		t.Error("the rep key is the key")
	}
}

// TestBlockOf: a block is all that both arms are given, and nothing of which
// draw it is for.
func TestBlockOf(t *testing.T) {
	block := func(edit func(arms []*Action, ins []Inputs)) string {
		a, x := runAction()
		b, y := runAction()
		b.Sample.Stream = "treatment"
		arms, ins := []*Action{a, b}, []Inputs{x, y}
		edit(arms, ins)
		s, err := BlockOf(cas.BLAKE3, arms, ins)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	plain := block(func([]*Action, []Inputs) {})
	same := map[string]func(arms []*Action, ins []Inputs){
		"limits": func(arms []*Action, _ []Inputs) { arms[1].Policy.Limits.Wall++ },
		"index": func(arms []*Action, _ []Inputs) {
			arms[0].Sample.Index, arms[0].Sample.Epoch, arms[0].Sample.Redraw = 7, 8, 9
		},
		"label": func(arms []*Action, _ []Inputs) { arms[0].Owner.Name += "x" },
	}
	for name, edit := range same {
		if block(edit) != plain {
			t.Errorf("%s is in the block", name)
		}
	}
	other := map[string]func(arms []*Action, ins []Inputs){
		"input of the first":  func(_ []*Action, ins []Inputs) { ins[0].Files[0].Digest = cas.BLAKE3.Sum([]byte("other")) },
		"input of the second": func(_ []*Action, ins []Inputs) { ins[1].Files[0].Digest = cas.BLAKE3.Sum([]byte("other")) },
		"argument":            func(arms []*Action, _ []Inputs) { arms[1].Args = append(arms[1].Args, "x") },
		"mount":               func(_ []*Action, ins []Inputs) { ins[1].Mounts = ins[1].Mounts[:1] },
		"which arm has what": func(arms []*Action, _ []Inputs) {
			arms[0].Sample.Stream, arms[1].Sample.Stream = "treatment", "control"
		},
		"the policy's network": func(arms []*Action, _ []Inputs) { arms[0].Policy.Network = nil },
	}
	for name, edit := range other {
		if block(edit) == plain {
			t.Errorf("%s is not in the block", name)
		}
	}
	// Who joins first stands for its stream.
	a, _ := runAction()
	b, _ := runAction()
	var blk Block
	blk.Join(a)
	blk.Join(b)
	if len(blk.Arms) != 1 || blk.Arms[0] != a {
		t.Errorf("arms %v", blk.Arms)
	}
}
