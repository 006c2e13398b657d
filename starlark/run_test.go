package starlark

import (
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalbuild/eval/workspace/graph"
)

// runFiles is a workspace with runs that use all that there is.
func runFiles() map[string]string {
	files := map[string]string{
		"p/BUILD.star": `
load("@eval//rules:action.star", "action", "filegroup")
load("@eval//rules:seal.star", "seal")
load("@eval//rules:tool.star", "tool")

tool(name = "sh", path = "/bin/sh", data = ["/etc/x", "lib.sh"])
tool(name = "own", path = "own.py")
seal(
    name = "s",
    network = [".example.com", "API.example.com:80", "api.example.com."],
    forward = {9000: "localhost:1", 80: "127.0.0.1:8080"},
    memory = "512MiB",
    processes = 3,
    wall = "1h30m",
    scratch = 4096,
    output = "64KiB",
    env = {"LANG": "C", "A": "seal"},
)
action(
    name = "first",
    tool = ":sh",
    args = ["-c", "cat $(location a.txt) > $(out sub/o.txt); echo $$HOME"],
    srcs = ["a.txt"],
    outs = ["sub/o.txt", "d/"],
)
filegroup(name = "o", srcs = [":first"])
action(
    name = "second",
    tool = "//p:own",
    args = ["$(location :own)", "--in=$(location @shared//q:b.txt)$(out x)", "$(location :first d)", "$(location //p:first sub/o.txt)"],
    srcs = [":first", "@shared//q:b.txt", "a.txt", "//p:a.txt"],
    outs = ["x"],
    env = {"A": "$(location a.txt):/", "B": ""},
    seal = ":s",
)
`,
		"p/a.txt": "a", "p/lib.sh": "", "p/own.py": "", "@shared//q/b.txt": "b",
	}
	addRules(files)
	return files
}

func runsOf(t *testing.T, unsealed bool) map[string]*graph.Action {
	t.Helper()
	b := newBuild(runFiles(), nil)
	b.opts.Unsealed = unsealed
	list, err := b.all()
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]*graph.Action{}
	for _, x := range list {
		for _, a := range x.Result.Actions {
			out[x.Label.Name] = a
		}
	}
	return out
}

func names(a *graph.Action) (inputs, outputs []string) {
	for _, in := range a.Inputs {
		inputs = append(inputs, in.Name)
	}
	for _, o := range a.Outputs {
		outputs = append(outputs, o.Format+" "+o.Name)
	}
	return inputs, outputs
}

// TestRun holds what actions.run makes of the built-in rules.
func TestRun(t *testing.T) {
	runs := runsOf(t, false)
	first, second := runs["first"], runs["second"]
	in, out := names(first)
	in2, out2 := names(second)
	label := func(name string) graph.Label { return graph.Label{Pkg: "p", Name: name} }
	const m = graph.RootMark
	for _, c := range []struct {
		what      string
		got, want any
	}{
		{"kind", first.Kind, graph.Run},
		{"args", first.Args, []string{"/bin/sh", "-c", "cat " + m + "/in/p/a.txt > sub/o.txt; echo $HOME"}},
		{"env", first.Env, []string(nil)},
		{"policy", first.Policy, &graph.Policy{Limits: graph.DefaultLimits}},
		{"tools", first.Tools, []graph.Tool{{Label: label("sh"), Program: "/bin/sh", Data: []string{"/etc/x"}}}},
		{"inputs", in, []string{"in/p/a.txt", "in/p/lib.sh"}},
		{"outputs", out, []string{"file sub/o.txt", "folder d"}},
		{"folder", first.Outputs[1].File.Folder() && !first.Outputs[0].File.Folder(), true},

		{"args", second.Args, []string{m + "/in/p/own.py", m + "/in/p/own.py", "--in=" + m + "/in/external/shared/q/b.txtx", m + "/in/p/first/d", m + "/in/p/first/sub/o.txt"}},
		{"env", second.Env, []string{"A=" + m + "/in/p/a.txt:/", "B=", "LANG=C"}},
		{"policy", second.Policy, &graph.Policy{
			Network: []graph.Endpoint{{Host: ".example.com", Ports: []uint16{443}}, {Host: "api.example.com", Ports: []uint16{80, 443}}},
			Forward: []graph.Forward{{Port: 80, Target: "127.0.0.1:8080"}, {Port: 9000, Target: "localhost:1"}},
			Limits:  graph.Limits{Memory: 512 << 20, Scratch: 4096, Output: 64 << 10, Processes: 3, Wall: 90 * time.Minute},
		}},
		{"tools", second.Tools, []graph.Tool{{Label: label("own"), Input: "in/p/own.py"}}},
		{"inputs", in2, []string{"in/external/shared/q/b.txt", "in/p/a.txt", "in/p/first/d", "in/p/first/sub/o.txt", "in/p/own.py"}},
		{"outputs", out2, []string{"file x"}},
	} {
		if diff := cmp.Diff(c.want, c.got, cmpopts.EquateEmpty()); diff != "" {
			t.Errorf("%s: %s", c.what, diff)
		}
	}
	if !second.Program("in/p/own.py") || second.Program("in/p/a.txt") || first.Program("") {
		t.Error("which input is a program")
	}
	if runsOf(t, true)["first"].Policy.Unsealed != true {
		t.Error("--seal=none left a seal")
	}
}

// TestToolInfo: a rule of a user's own can make a tool out of what it builds,
// and join words.
func TestToolInfo(t *testing.T) {
	files := runFiles()
	files["p/BUILD.star"] = `
load(":r.star", "prog", "use")
prog(name = "t")
use(name = "x", tool = ":t")
`
	files["p/r.star"] = `
def _prog(ctx):
    out = ctx.actions.declare_file("bin/t")
    ctx.actions.write(out, "#!/bin/sh")
    return ToolInfo(file = out, data = ["/etc/x"])

prog = rule(_prog)

def _use(ctx):
    out = ctx.actions.declare_file("o")
    ctx.actions.run(executable = ctx.attr.tool, outputs = [out], arguments = [("-o", out), ["--", ctx.attr.tool]], mnemonic = "Use")
    return DefaultInfo(files = [out])

use = rule(_use, attrs = {"tool": attr.label()})
`
	b := newBuild(files, nil)
	list, err := b.all()
	if err != nil {
		t.Fatal(err)
	}
	a := list[1].Result.Actions[0]
	const prog = graph.RootMark + "/in/p/t/bin/t"
	if diff := cmp.Diff([]string{prog, "-oo", "--" + prog}, a.Args); diff != "" {
		t.Error(diff)
	}
	if a.Mnemonic != "Use" || len(a.Tools[0].Data) != 1 || a.Inputs[0].File.Action.Kind != graph.Write {
		t.Errorf("%+v", a)
	}
}

func TestSealLimits(t *testing.T) {
	for _, c := range []struct {
		in   string
		want int64
	}{{`"1KiB"`, 1024}, {`"2MiB"`, 2 << 20}, {`"3TiB"`, 3 << 40}, {`"17"`, 17}, {"17", 17}, {`"1.5GiB"`, 0}, {`"01"`, 0}, {`" 1"`, 0}, {`""`, 0}, {"-1", 0}, {"1.0", 0}, {"None", 0}, {"1 << 70", 0}} {
		files := map[string]string{"BUILD.star": "load('@eval//rules:seal.star', 'seal')\nseal(name = 's', memory = " + c.in + ")\n"}
		addRules(files)
		b := newBuild(files, nil)
		list, err := b.all()
		if (err == nil) != (c.want > 0) {
			t.Errorf("%s: %v", c.in, err)
		}
		if err != nil {
			continue
		}
		in := list[0].Result.providers[sealInfo]
		if got := in.field("policy").(policyValue).policy.Limits.Memory; got != c.want {
			t.Errorf("%s is %d", c.in, got)
		}
	}
}
