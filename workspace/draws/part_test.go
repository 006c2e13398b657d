package draws

import (
	"bytes"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/workspace/graph"
)

// TestPart: what a part says of a label is what the whole lock says, also when
// the label was renamed; lines of others are not in it.
func TestPart(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(filepath.Join(dir, "whole"))
	if err != nil {
		t.Fatal(err)
	}
	id := func(stream string, index int) ID {
		r := rep(stream, index)
		r.Sample.Block = "b"
		return r
	}
	old := graph.Label{Pkg: "p", Name: "old"}
	var mine []ID
	look := graph.Look{N: 2, Fingerprint: seen.Fingerprint, Alpha: seen.Alpha, Effect: seen.Effect, Margin: seen.Margin}
	for i, label := range []graph.Label{old, labelA, labelB} {
		x := id("control", i+1)
		if label != labelB {
			mine = append(mine, x)
		}
		line := NewIntent(label, x, runA)
		for _, a := range []Line{line, line.Drawn(cap1, 1), NewLook(label, "b", seen)} {
			if _, err := l.Append(a); err != nil {
				t.Fatal(err)
			}
		}
	}
	b, err := l.Part(labelA, mine)
	if err != nil {
		t.Fatal(err)
	}
	if n := bytes.Count(b, []byte("\n")); n != 6 || bytes.Contains(b, []byte(labelB.String()+`"`)) {
		t.Errorf("%d lines:\n%s", n, b)
	}
	path := filepath.Join(dir, "part")
	put(t, path, string(b))
	part, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	var reps []Rep
	for _, x := range mine {
		reps = append(reps, Rep{ID: x})
	}
	if d := cmp.Diff(l.Account(labelA, reps, look), part.Account(labelA, reps, look)); d != "" {
		t.Error(d)
	}
	if again, err := part.Part(labelA, mine); err != nil || !bytes.Equal(again, b) {
		t.Errorf("a part of the part is another one: %v", err)
	}
}
