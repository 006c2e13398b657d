package engine

import (
	"context"
	"errors"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// reasonFixture has its functions in a file of their own. With what is replaced
// in it the next build differs from the one before.
func reasonFixture(t *testing.T) *fixture {
	f := newFixture(t, "")
	f.set("p/s", "1 ")
	f.set("p/moved", "1 ")
	f.set("p/more", "4 ")
	f.set("p/fn.star", reasonFn)
	f.declare("p", reasonNode)
	return f
}

const (
	reasonFn = `
def helper(x):
    return x.split(" ")[0]

def first(salt, pad, **inputs):
    return helper(inputs["i0"]) + str(salt) + "x" * pad

def other(salt, pad, **inputs):
    return helper(inputs["i0"]) + str(salt + 1) + "x" * pad
`
	reasonNode = `load(":fn.star", "first", "other")
node(name = "t", srcs = ["s"], fn = first, salt = 1, pad = 1500)`
)

func TestReasons(t *testing.T) {
	replace := func(p, old, new string) func(*fixture) error {
		return func(f *fixture) error {
			if !strings.Contains(f.files[p], old) {
				return errors.New("nothing to replace")
			}
			f.set(p, strings.Replace(f.files[p], old, new, 1))
			return nil
		}
	}
	const build = "p/BUILD.star"
	blob := func(do func(string) error) func(*fixture) error {
		return func(f *fixture) error { return errors.Join(do(f.stored("cas")[0]), os.RemoveAll(f.out())) }
	}
	for _, c := range []struct {
		name   string
		change func(*fixture) error
		want   string // "": it doesn't run
	}{
		{"nothing", func(*fixture) error { return nil }, ""},
		{"input bytes", func(f *fixture) error { f.set("p/s", "2 "); return nil }, "input i0 p/s changed"},
		{"input path only", replace(build, `"s"`, `"moved"`), ""},
		{"input new", replace(build, `["s"]`, `["s", "more"]`), "decode i1 is new, input i1 p/more is new"},
		{"param", replace(build, "salt = 1", "salt = 2"), "param salt 2 changed"},
		{"two params", replace(build, "salt = 1, pad = 1500", "salt = 2, pad = 1501"), "param pad 1501 changed, param salt 2 changed"},
		{"function", replace(build, "fn = first", "fn = other"), "function //p:fn.star%other changed"},
		{"function edited", replace("p/fn.star", "str(salt)", "str(salt + 3)"), "function //p:fn.star%first changed (edited: //p:fn.star%first)"},
		{"helper edited", replace("p/fn.star", "return x", "return '7' + x"), "function //p:fn.star%first changed (edited: //p:fn.star%helper)"},
		{"comment", replace("p/fn.star", "def helper", "# why\ndef helper"), ""},
		{"format", replace(build, "node(", "node(\n    "), ""},
		{"output renamed", replace(build, "pad = 1500", "pad = 1500, out = 'other.txt'"), ""},
		{"target renamed", replace(build, `"t"`, `"u"`), ""},
		{"result gone", func(f *fixture) error { return os.Remove(f.stored("ac")[0]) }, "its result is no longer in the store"},
		{"result damaged", func(f *fixture) error { return damages[0].do(f.stored("ac")[0]) }, "the result can't be read: its checksum is wrong"},
		{"blob missing", blob(os.Remove), "out is missing"},
		{"blob damaged", blob(damages[0].do), "out is damaged"},
		{"blob rotten", blob(rot), "out is missing"}, // found by the copy, which moved it away
	} {
		t.Run(c.name, func(t *testing.T) {
			f := reasonFixture(t)
			b := f.build()
			if got := b.why("t"); got != "it has not run before" {
				t.Errorf("at first: %q", got)
			}
			f.check(c.change(f))
			b = f.run(context.Background())
			f.check(b.err)
			if b.Failed > 0 {
				t.Fatal(b.Problems)
			}
			got := ""
			for _, e := range b.events {
				if e.Status == Ran {
					got = e.Why
				}
			}
			if got != c.want {
				t.Errorf("why %q, not %q", got, c.want)
			}
		})
	}
}

// A codec is the Go code that reads an input: a new version is a reason.
func TestCodecReason(t *testing.T) {
	action := func(codec string) []graph.Field {
		a := &graph.Action{Kind: graph.Write}
		a.Inputs = []graph.Input{{Name: "rep", Decode: "rep", Codec: codec, File: &graph.File{Label: graph.Label{Pkg: "p", Name: "r.jsonl"}}}}
		a.Outputs = []graph.Output{{Name: "out", Format: "json"}}
		return a.Explain(graph.Inputs{Files: []graph.Content{{Digest: cas.BLAKE3.Sum(nil)}}})
	}
	changes := Diff(action("codex@1"), action("codex@2"))
	if got := Summarize(changes); got != "codec rep changed" {
		t.Errorf("%q", got)
	}
	if len(changes) != 1 || changes[0].String() != "codec rep: codex@1 → codex@2" {
		t.Errorf("%v", changes)
	}
}

// fields makes fields of "name|value|note".
func fields(lines ...string) (out []graph.Field) {
	for _, line := range lines {
		p := strings.Split(line, "|")
		out = append(out, graph.Field{Name: p[0], Value: p[1], Note: p[2]})
	}
	return out
}

func TestDiff(t *testing.T) {
	for _, c := range []struct {
		name          string
		before, after []graph.Field
		lines         []string
		sum           string
	}{
		{"same", fields("a|1|x"), fields("a|1|x"), nil, ""},
		{"only the note", fields("a|1|x"), fields("a|1|y"), nil, ""},
		{"value", fields("param a|1|"), fields("param a|2|"), []string{"param a: 1 → 2"}, "param a changed"},
		{"with notes", fields("input a|1|old"), fields("input a|2|new"), []string{"input a: old 1 → new 2"}, "input a new changed"},
		{"new", nil, fields("param a|1|"), []string{"param a is new: 1"}, "param a is new"},
		{"gone", fields("param a|1|"), nil, []string{"param a is gone: 1"}, "param a is gone"},
		{
			"order",
			fields("z|1|", "b|1|"),
			fields("b|2|", "a|1|"),
			[]string{"b: 1 → 2", "a is new: 1", "z is gone: 1"},
			"b changed, a is new, z is gone",
		},
		{
			"many",
			fields("a|1|", "b|1|", "c|1|", "d|1|", "e|1|"),
			nil,
			[]string{"a is gone: 1", "b is gone: 1", "c is gone: 1", "d is gone: 1", "e is gone: 1"},
			"a is gone, b is gone, c is gone, 2 more",
		},
		{
			"code",
			fields("function|1|f", "code f|1|", "code g|1|"),
			fields("function|2|f", "code f|1|", "code g|2|", "code h|1|"),
			[]string{"function: f 1 → f 2", "code g: 1 → 2", "code h is new: 1"},
			"function f changed (edited: g)",
		},
		{
			"one name twice",
			fields("code lambda|1|", "code lambda|2|"),
			fields("code lambda|1|", "code lambda|2|"),
			nil, "",
		},
		{
			"moved", fields("param a|1|", "code t|1|", "code t|1|"),
			fields("input b|1|", "code t|1|", "code t|1|"),
			[]string{"input b is new: 1", "param a is gone: 1"},
			"input b is new, param a is gone",
		},
		{
			"one of two gone", fields("param a|1|", "code t|1|", "code t|2|"),
			fields("input b|1|", "code t|1|"),
			[]string{"input b is new: 1", "param a is gone: 1", "code t is gone: 2"},
			"input b is new, param a is gone",
		},
		{
			"one of a name",
			fields("function|1|f", "code lambda|1|", "code lambda|2|"),
			fields("function|2|f", "code lambda|1|", "code lambda|3|"),
			[]string{"function: f 1 → f 2", "code lambda: 2 → 3"},
			"function f changed (edited: lambda)",
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			changes := Diff(c.before, c.after)
			var lines []string
			for _, x := range changes {
				lines = append(lines, x.String())
			}
			if diff := cmp.Diff(c.lines, lines, cmpopts.EquateEmpty()); diff != "" {
				t.Error(diff)
			}
			if got := Summarize(changes); got != c.sum {
				t.Errorf("in one line %q, not %q", got, c.sum)
			}
		})
	}
}

func TestHistory(t *testing.T) {
	f := newFixture(t, `
node(name = "dep", srcs = ["s"], salt = 1)
node(name = "t", srcs = [":dep"], salt = 2)
`)
	history := func() (History, string) {
		t.Helper()
		target := f.targets("t")[0]
		e := New(f.options(f.store(), nil))
		h, ok := e.Slot(target.Result.Scorecard.Action.Slot())
		if !ok {
			t.Fatal("there is no history")
		}
		now := cas.BLAKE3.Sum([]byte(f.outputs()["p/t/out.txt"]))
		return h, string(e.Before(target, now))
	}
	f.set("p/s", "1 ")
	if _, ok := New(f.options(f.store(), nil)).Slot(graph.Slot{Owner: graph.Label{Pkg: "p", Name: "t"}, Path: "out.txt"}); ok {
		t.Error("a history before the first build")
	}
	f.build()
	first, before := history()
	if first.Before != nil || before != "" || first.Ran != fixedNow().Unix() || first.Mnemonic != "Node" {
		t.Errorf("first: %+v, before %q", first, before)
	}
	one := f.outputs()["p/t/out.txt"]
	f.build() // a no-op changes nothing
	if h, before := history(); !cmp.Equal(h.SlotRecord, first.SlotRecord) || before != "" {
		t.Errorf("after a no-op: %+v", h)
	}
	f.set("p/s", "2 ")
	f.build()
	second, before := history()
	if before != one || second.Before == nil || second.Before.Key != first.Now.Key || second.Why != "input i0 p/dep/out.txt changed" {
		t.Errorf("second: %+v, before %q", second, before)
	}
	if got := Summarize(Diff(second.BeforeFields, second.Fields)); got != "input i0 p/dep/out.txt changed" {
		t.Errorf("what changed: %q", got)
	}
	two := f.outputs()["p/t/out.txt"]
	// A build that fails before it leaves the record as it is.
	f.onOpen = func(string) error { return errors.New("no") }
	f.set("p/s", "3 ")
	if b := f.run(context.Background()); b.Failed != 1 {
		t.Errorf("%+v", b.Report)
	}
	f.onOpen = nil
	h, _ := history()
	if h.Now.Key != second.Now.Key || h.Why != second.Why || !cmp.Equal(h.Fields, second.Fields) || !cmp.Equal(h.BeforeFields, second.BeforeFields) {
		t.Errorf("after a failed build: %+v", h)
	}
	f.build()
	if h, before := history(); before != two || h.Before.Key != second.Now.Key {
		t.Errorf("third: %+v, before %q", h, before)
	}
	// Back to the first: nothing runs, and the last is remembered.
	f.set("p/s", "1 ")
	f.wantRan(f.build())
	if h, _ := history(); h.Now.Key != first.Now.Key || h.Before == nil {
		t.Errorf("back again: %+v", h)
	}
}

func TestLargeSlots(t *testing.T) {
	f := newFixture(t, `many(name = "t", n = 2000, srcs = ["s"])`)
	f.set("p/s", "1 ")
	f.build()
	before, err := os.Stat(f.slotPath("t"))
	f.check(err)
	if before.Size() > 2000*600 {
		t.Errorf("%d bytes for 2001 records", before.Size())
	}
	b := f.build()
	f.wantRan(b)
	after, err := os.Stat(f.slotPath("t"))
	f.check(err)
	if !os.SameFile(before, after) || before.ModTime() != after.ModTime() {
		t.Error("a no-op wrote the slots again")
	}
	if entries, err := os.ReadDir(f.state()); err != nil || len(entries) != 1 {
		t.Errorf("the state folder: %v %v", entries, err)
	}
	h, ok := New(f.options(f.store(), nil)).Slot(graph.Slot{Owner: graph.Label{Pkg: "p", Name: "t"}, Path: "reps/1999.txt"})
	if !ok || len(h.Fields) < 5 {
		t.Errorf("%+v", h)
	}
	f.set("p/s", "2 ")
	b = f.build()
	if b.Ran != 2001 || b.why("t reps/7.txt") != "input i p/s changed" {
		t.Errorf("%d ran, because %q", b.Ran, b.why("t reps/7.txt"))
	}
}
