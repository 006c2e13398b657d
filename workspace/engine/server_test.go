package engine

import (
	"context"
	"errors"
	"io"
	"net"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/workspace/graph"
)

// servedRule runs //p:NAME's words beside a server with other ones.
const servedRule = `
def _served(ctx):
    o, s = ctx.actions.declare_file("o"), ctx.actions.declare_file("s")
    ctx.actions.run(
        mnemonic = "Act",
        executable = native.play,
        arguments = ctx.attr.args,
        inputs = ctx.files.srcs,
        outputs = [o],
        server = native.server(
            executable = native.world,
            arguments = ctx.attr.serve,
            inputs = {"own/%d" % i: f for i, f in enumerate(ctx.files.served)},
            outputs = {"s": s},
            port = 8700,
        ),
    )
    return [DefaultInfo(files = [o, s])]

served = rule(
    implementation = _served,
    attrs = {"args": attr.string_list(), "srcs": attr.label_list(), "serve": attr.string_list(), "served": attr.label_list()},
)
`

const oneServed = `
load("@eval//rules:served.star", "served")
served(name = "a", args = ["o=@"], srcs = ["a.txt"], serve = ["s=@"], served = ["w.txt"])
`

// pairRunner is a fakeRunner of runs with servers: a run hands a listener out, a
// server takes it and waits for the end of its control socket, unless its words
// say "early". A run whose words say "waits" goes on until it is stopped.
type pairRunner struct {
	*fakeRunner
	t *testing.T
}

func (r *pairRunner) Run(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
	switch {
	case spec.Control != nil && !slices.Contains(spec.Args, "early"):
		conn, err := net.FileConn(spec.Control)
		if err != nil {
			return nil, err
		}
		stop := context.AfterFunc(ctx, func() { conn.Close() })
		got, err := io.ReadAll(conn)
		if stop() {
			conn.Close()
		}
		if ctx.Err() != nil {
			return nil, context.Cause(ctx)
		}
		if err != nil || string(got) != "L" {
			r.t.Errorf("the control socket had %q, %v", got, err)
		}
	case spec.Serve != nil:
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, err
		}
		f, err := ln.(*net.TCPListener).File()
		ln.Close()
		if err == nil {
			err = spec.Serve(f)
		}
		if err != nil {
			return nil, err
		}
		if slices.Contains(spec.Args, "waits") {
			<-ctx.Done()
			return nil, context.Cause(ctx)
		}
	}
	res, err := r.fakeRunner.Run(ctx, spec)
	if err == nil {
		for _, m := range spec.Mounts {
			res.Record.Mounts = append(res.Record.Mounts, sandbox.Mount{Path: m.Path, Digest: m.Digest.String(), Executable: m.Executable})
		}
	}
	return res, err
}

func newServed(t *testing.T, build string) (f *runFixture, own map[string]string) {
	f = newRunFixture(t, build)
	f.set("rules/served.star", servedRule)
	f.set("p/a.txt", "A")
	f.set("p/w.txt", "W")
	own = map[string]string{graph.WorldProgram: "world", graph.PlayProgram: "play"}
	with := f.change
	f.change = func(o *Options) {
		with(o)
		o.Runner = &pairRunner{f.runner, t}
		o.Own = func(name string) (graph.Mount, error) {
			text, ok := own[name]
			if !ok {
				return graph.Mount{}, os.ErrNotExist
			}
			return graph.Mount{Source: "/bin/" + name, Digest: cas.BLAKE3.Sum([]byte(text)), Executable: true}, nil
		}
	}
	return f, own
}

// TestServed: what each of the two processes is given, and what is kept of them.
func TestServed(t *testing.T) {
	f, own := newServed(t, oneServed)
	f.wantRan(f.build(), "a o")
	f.wantOutputs(map[string]string{"p/a/o": "p/a.txt A\n", "p/a/s": "own/0 W\n"})
	specs := f.took()
	if len(specs) != 2 {
		t.Fatalf("%d processes", len(specs))
	}
	slices.SortFunc(specs, func(x, y sandbox.Spec) int { return strings.Compare(x.Args[0], y.Args[0]) })
	for i := range specs {
		specs[i].Control, specs[i].Serve = nil, nil
		for j := range specs[i].Mounts {
			specs[i].Mounts[j].Source, specs[i].Mounts[j].Digest = "", cas.Digest{}
		}
	}
	want := []sandbox.Spec{
		{
			Args: []string{"/eval-play", "o=@"},
			Env:  []string{"EVAL_WORLD_URL=http://127.0.0.1:8700"},
			Policy: graph.Policy{
				Forward: []graph.Forward{{Port: 8700, Target: graph.ServerTarget}},
				Limits:  graph.DefaultLimits,
			},
			Outputs: []collect.Output{{Path: "o"}},
			Mounts:  []graph.Mount{{Path: "/eval-play", Executable: true}, {Path: "/in/p/a.txt"}},
		},
		{
			Args:    []string{"/eval-world", "s=@"},
			Env:     []string{"GOMAXPROCS=1"},
			Policy:  graph.Policy{Limits: graph.ServerLimits(graph.DefaultLimits)},
			Outputs: []collect.Output{{Path: "s"}},
			Mounts:  []graph.Mount{{Path: "/eval-world", Executable: true}, {Path: "/in/own/0"}},
		},
	}
	if diff := cmp.Diff(want, specs); diff != "" {
		t.Error(diff)
	}
	r, err := f.store().Lookup(cas.Pure, cas.Digest(f.build().event("a o").Key))
	f.check(err)
	for _, aux := range []string{AuxSeal, AuxRun, AuxServerSeal, AuxServerRun} {
		if len(r.Aux[aux]) == 0 {
			t.Errorf("nothing is kept under %q", aux)
		}
	}

	// Each of the two programs, and each input of either, is in the key.
	f.wantRan(f.build())
	for _, do := range []func(){
		func() { own[graph.WorldProgram] = "another world" },
		func() { own[graph.PlayProgram] = "another play" },
		func() { f.set("p/w.txt", "WW") },
		func() { f.set("p/a.txt", "AA") },
		func() { f.redeclare(strings.Replace(oneServed, `["s=@"]`, `["s=@", "x"]`, 1)) },
	} {
		do()
		f.wantRan(f.build(), "a o")
		f.wantRan(f.build())
	}
}

// TestServedFailures: whose fault it is, and that nothing of it is a result.
func TestServedFailures(t *testing.T) {
	for _, c := range []struct{ what, args, serve, want string }{
		{"a server that fails", `"o=1"`, `"s=1", "code:3", "err:no table"`, "its world: exit code 3\n  stderr:\n    no table"},
		{"one that makes nothing", `"o=1"`, `"x=1"`, `its world: output "s" was not made`},
		{"one that fails early, while the run goes on", `"waits"`, `"early", "code:3"`, "its world: exit code 3"},
		{"one that ends early and well", `"waits"`, `"early", "s=1"`, errServerEnded.Error()},
		{"a run that fails", `"o=1", "code:4"`, `"s=1"`, "exit code 4"},
		{"both", `"code:4"`, `"code:3"`, "its world: exit code 3"},
	} {
		f, _ := newServed(t, strings.NewReplacer(`"o=@"`, c.args, `"s=@"`, c.serve).Replace(oneServed))
		b := f.run(context.Background())
		f.check(b.err)
		if len(b.Problems) != 1 || b.Problems[0].Err.Error() != c.want {
			t.Errorf("%s: %+v, want %q", c.what, b.Problems, c.want)
		}
		var server *serverError
		if is := len(b.Problems) == 1 && errors.As(b.Problems[0].Err, &server); is != strings.HasPrefix(c.want, "its world: ") {
			t.Errorf("%s: a server's error: %v", c.what, is)
		}
		if n := len(f.stored("ac")); n > 0 {
			t.Errorf("%s: %d results are stored", c.what, n)
		}
	}
}

// TestServedInterrupted: both end.
func TestServedInterrupted(t *testing.T) {
	f, _ := newServed(t, strings.Replace(oneServed, `"o=@"`, `"waits"`, 1))
	ctx, cancel := context.WithCancel(context.Background())
	with := f.change
	f.change = func(o *Options) {
		with(o)
		next := o.Runner
		o.Runner = runnerFunc(func(c context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
			if spec.Serve != nil {
				cancel()
			}
			return next.Run(c, spec)
		})
	}
	if b := f.run(ctx); !errors.Is(b.err, ErrInterrupted) {
		t.Errorf("%v", b.err)
	}
}

type runnerFunc func(context.Context, sandbox.Spec) (*sandbox.Result, error)

func (r runnerFunc) Run(ctx context.Context, spec sandbox.Spec) (*sandbox.Result, error) {
	return r(ctx, spec)
}

// TestServedWithoutPrograms: a harness that they don't come with says so.
func TestServedWithoutPrograms(t *testing.T) {
	f, own := newServed(t, oneServed)
	delete(own, graph.WorldProgram)
	b := f.run(context.Background())
	f.check(b.err)
	if len(b.Problems) != 1 || !errors.Is(b.Problems[0].Err, os.ErrNotExist) {
		t.Errorf("%+v", b.Problems)
	}
	if specs := f.took(); len(specs) > 0 {
		t.Errorf("%d processes", len(specs))
	}
}

// TestServedVerify: the records of both seals are judged, and the server's
// program is that of the key.
func TestServedVerify(t *testing.T) {
	f, own := newServed(t, oneServed)
	var seen []string
	var bad string
	with := f.change
	f.change = func(o *Options) {
		with(o)
		o.VerifySeal = func(_ []byte, spec sandbox.Spec) error {
			for _, m := range spec.Mounts {
				seen = append(seen, m.Path)
			}
			if spec.Args[0] == bad {
				return errors.New("it is of another run")
			}
			return nil
		}
	}
	f.build()
	verify := func() (faults []Fault) {
		seen = nil
		faults, _, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets("a"))
		f.check(err)
		return faults
	}
	if faults := verify(); len(faults) > 0 {
		t.Errorf("%+v", faults)
	}
	if diff := cmp.Diff([]string{"/eval-play", "/in/p/a.txt", "/eval-world", "/in/own/0"}, seen); diff != "" {
		t.Error(diff)
	}
	for _, bad = range []string{"/eval-play", "/eval-world"} {
		if faults := verify(); len(faults) == 0 || !strings.Contains(faults[0].Cause, "it is of another run") {
			t.Errorf("%s: %+v", bad, faults)
		}
	}

	// A result whose record names another program than its key.
	bad = ""
	key := cas.Digest(f.build().event("a o").Key)
	r, err := f.store().Lookup(cas.Pure, key)
	f.check(err)
	record := string(r.Aux[AuxServerSeal])
	r.Aux[AuxServerSeal] = []byte(strings.Replace(record, cas.BLAKE3.Sum([]byte(own[graph.WorldProgram])).String(), cas.BLAKE3.Sum([]byte("x")).String(), 1))
	if string(r.Aux[AuxServerSeal]) == record {
		t.Fatal(record)
	}
	f.check(f.store().PutResult(cas.Pure, key, r))
	if faults := verify(); len(faults) == 0 || !strings.Contains(faults[0].Cause, "its world was ") {
		t.Errorf("%+v", faults)
	}
}
