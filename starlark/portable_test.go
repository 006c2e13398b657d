package starlark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

func (p program) portable(tb testing.TB, name string) (*Portable, error) {
	tb.Helper()
	l, g := p.globals(tb)
	return l.Portable(g[name])
}

// noPortable says which pairs of the fingerprints have values without a portable
// form, by a word of the error.
var noPortable = map[string]string{
	"same: a depset by its elements":                                       "type depset",
	"different: depset order":                                              "type depset",
	"different: a captured variable that is not set, and one that is None": "x is not set",
	"different: a function in a depset":                                    "type depset",
	"different: a function in an instance of a provider":                   "type P",
	"different: the name of a provider":                                    "type P",
	"different: the fields of a provider":                                  "type P",
	"different: a provider, and a struct":                                  "type P",
	"different: a cyclic list, and one that is cyclic elsewhere":           "a list that holds itself",
	"different: samples":                                                   "type sample",
	"different: labels of samples that run together":                       "type sample",
}

// TestPortablePairs: the pairs of the fingerprints are pairs of texts.
func TestPortablePairs(t *testing.T) {
	data, err := os.ReadFile("testdata/fingerprints.star")
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, pair := range strings.Split("\n"+string(data), "\n--- ")[1:] {
		title, text, _ := strings.Cut(pair, "\n")
		a, b, _ := strings.Cut(text, "\n+++\n")
		verdict, _, _ := strings.Cut(title, ":")
		x, err := parseProgram(a).portable(t, "f")
		if word := noPortable[title]; word != "" {
			failed++
			if err == nil || !strings.Contains(err.Error(), word) {
				t.Errorf("%s: got %v", title, err)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		y, err := parseProgram(b).portable(t, "f")
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		if same := string(x.Text) == string(y.Text); same != (verdict == "same") {
			t.Errorf("%s:\n%s--- and\n%s", title, x.Text, y.Text)
		}
	}
	if failed != len(noPortable) {
		t.Errorf("%d of the %d pairs without a portable form were met", failed, len(noPortable))
	}
}

// again prints what a text means: the very same text.
func again(t *testing.T, text []byte) {
	t.Helper()
	x, err := program{"m.star": string(text)}.portable(t, rootName)
	if err != nil {
		t.Errorf("%v\n%s", err, text)
	} else if !bytes.Equal(x.Text, text) {
		t.Errorf("printed again, the text\n%s--- becomes\n%s", text, x.Text)
	}
}

// called is what a call gives, for comparison: the value, or the error without
// its place.
func called(fn sl.Value, args sl.Tuple) string {
	var log []string
	v, err := CallPortable(context.Background(), fn, args, 0, func(s string) { log = append(log, s) })
	var own *Error
	switch {
	case errors.As(err, &own):
		return fmt.Sprintf("error: %s %q", own.Msg, log)
	case err != nil:
		return fmt.Sprintf("error: %v %q", err, log)
	}
	return fmt.Sprintf("%s %v %q", v.Type(), v, log)
}

// TestPortableCalls: what testdata/portable.star defines gives the same when it
// was printed and opened again.
func TestPortableCalls(t *testing.T) {
	data, err := os.ReadFile("testdata/portable.star")
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range strings.Split("\n"+string(data), "\n--- ")[1:] {
		title, text, _ := strings.Cut(c, "\n")
		l, g := parseProgram(text).globals(t)
		x, err := l.Portable(g["f"])
		if err != nil {
			t.Errorf("%s: %v", title, err)
			continue
		}
		again(t, x.Text)
		fn, err := OpenPortable("x.star", x.Text)
		if err != nil {
			t.Errorf("%s: %v\n%s", title, err, x.Text)
			continue
		}
		if got, want := fn.String(), g["f"].String(); got != want {
			t.Errorf("%s: %s, want %s", title, got, want)
		}
		for args := range sl.Elements(g["calls"].(*sl.List)) {
			if got, want := called(fn, args.(sl.Tuple)), called(g["f"], args.(sl.Tuple)); got != want {
				t.Errorf("%s: f%s\n got %s\nwant %s\n%s", title, args, got, want, x.Text)
			}
		}
		if testing.Verbose() {
			t.Logf("%s\n%s", title, x.Text)
		}
	}
}

// TestPortableMutations does for texts what TestMutations does for fingerprints.
// Each text is a fixpoint, and does what the program does.
func TestPortableMutations(t *testing.T) {
	rounds := 150
	if testing.Short() {
		rounds = 30
	}
	for seed := range uint64(rounds) {
		rng := rand.New(rand.NewPCG(seed, 2))
		m := randomModule(rng)
		plain := &printer{}
		text := func(p program) []byte {
			x, err := p.portable(t, "f")
			if err != nil {
				t.Fatalf("seed %d: %v\n%v", seed, err, p)
			}
			return x.Text
		}
		before := m.print(plain)
		want := text(before)
		if got := text(m.print(&printer{rng: rng})); !bytes.Equal(got, want) {
			t.Errorf("seed %d: spelt otherwise:\n%s---\n%s%v", seed, got, want, before)
		}
		again(t, want)
		fn, err := OpenPortable("x.star", want)
		if err != nil {
			t.Fatalf("seed %d: %v\n%s", seed, err, want)
		}
		_, g := before.globals(t)
		for _, args := range []sl.Tuple{{sl.MakeInt(1), sl.String("b")}, {sl.String("a"), sl.NewList(nil)}, {sl.NewList([]sl.Value{sl.MakeInt(2)})}} {
			if got, want := called(fn, args), called(g["f"], args); got != want {
				t.Errorf("seed %d: f%s\n got %s\nwant %s\n%v", seed, args, got, want, before)
			}
		}
		reached := m.reachable()
		for range 3 {
			part := m.parts[rng.IntN(len(m.parts))]
			undo := part.mutate(rng)
			after := m.print(plain)
			if got := text(after); bytes.Equal(got, want) == reached[part] {
				t.Errorf("seed %d: mutation of %s: reached is %v\n%v---\n%v", seed, part.name, reached[part], before, after)
			}
			undo()
		}
		if t.Failed() {
			return
		}
	}
}

// TestPortableRules runs the functions of testdata/rules' evaluate actions, and
// those of the built-in rules, as portable texts: their outputs are the same.
func TestPortableRules(t *testing.T) {
	names, _ := filepath.Glob("testdata/rules/*.star")
	compared, without := 0, 0
	for _, name := range names {
		for _, c := range readChunks(t, name) {
			b := newBuild(c.files, c.config)
			targets, err := b.all()
			if err != nil {
				continue
			}
			for _, tgt := range targets {
				for _, a := range tgt.Result.Actions {
					if a.Kind != graph.Evaluate {
						continue
					}
					switch ok, err := b.comparePortable(a); {
					case err != nil:
						t.Errorf("%s: %s: %s: %v", name, c.name, a.Fn.Text(), err)
					case ok:
						compared++
					default:
						without++
					}
				}
			}
		}
	}
	if compared < 30 {
		t.Errorf("%d compared, %d without a portable form", compared, without)
	}
}

// comparePortable is false if the action can't be compared: its function has no
// portable form, it has no inputs here, or it fails.
func (b *build) comparePortable(a *graph.Action) (bool, error) {
	x, err := b.Portable(a.Fn.(*param).value)
	if err != nil {
		return false, nil
	}
	want, err := b.content(a.Outputs[0].File)
	if err != nil {
		return false, nil
	}
	fn, err := OpenPortable("x.star", x.Text)
	if err != nil {
		return false, err
	}
	original := a.Fn
	defer func() { a.Fn = original }()
	a.Fn = &param{value: fn}
	got, err := b.content(a.Outputs[0].File)
	if err == nil && !bytes.Equal(got, want) {
		err = fmt.Errorf("got %s, want %s", got, want)
	}
	return true, err
}
