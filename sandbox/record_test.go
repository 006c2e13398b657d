package sandbox

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/workspace/graph"
)

func someRecord(t *testing.T) Record {
	t.Helper()
	p := somePlan()
	prog, err := Compile(p)
	if err != nil {
		t.Fatal(err)
	}
	pol := policyRecord(p.Policy)
	r := Record{
		Schema: recordSchema, Tier: "full", SealVersion: graph.SealVersion, Compiler: CompilerVersion, Policy: pol, PolicyHash: pol.digest(),
		Mounts: mountRecords(p.Mounts), Folders: []string{}, Facts: p.Facts, Program: prog.Digest(), Limits: grade(p.Facts),
		Notes: limitNotes(p.Facts), Kernel: Kernel{"linux", "6.0", "x86_64"}, NotSealed: notSealed,
	}
	for _, l := range LayerNames {
		r.Layers = append(r.Layers, Layer{Name: l, State: layerState(p.Facts, l)})
	}
	return r
}

func TestVerifyRecord(t *testing.T) {
	r, err := DecodeRecord(someRecord(t).Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := r.Verify(); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		name, want string
		edit       func(*Record)
	}{
		{"a limit", "another digest", func(r *Record) { r.Policy.Memory++ }},
		{"a limit and its digest", "compiles to", func(r *Record) { r.Policy.Memory++; r.PolicyHash = r.Policy.digest() }},
		{"the program", "compiles to", func(r *Record) { r.Program = strings.Repeat("0", 64) }},
		{"a mount", "compiles to", func(r *Record) { r.Mounts[1].Digest = sum("x").String() }},
		{"a mount left out", "compiles to", func(r *Record) { r.Mounts = r.Mounts[1:] }},
		{"a fact", "compiles to", func(r *Record) { r.Facts.Landlock = 1 }},
		{"a listener", "compiles to", func(r *Record) { r.Policy.Network = []string{}; r.PolicyHash = r.Policy.digest() }},
		{"an absent layer", `recorded as "absent"`, func(r *Record) { r.Layers[3].State = Absent }},
		{"a missing layer", "18 layers", func(r *Record) { r.Layers = r.Layers[1:] }},
		{"a better grade", "graded", func(r *Record) { r.Limits = "hard" }},
		{"no seal", "is no seal", func(r *Record) { r.Tier = "none" }},
		{"a Mac's tier", "another profile", func(r *Record) { r.Tier = TierSeatbelt }},
		{"a weaker layer", "landlock is recorded as", func(r *Record) { r.Layers[12].State = Observed }},
		{"what is not sealed", "not sealed", func(r *Record) { r.NotSealed = r.NotSealed[1:] }},
		{"a soft limit", "not sealed", func(r *Record) { r.Notes = nil }},
		{"an address for a host", "address", func(r *Record) {
			r.Policy.Network = []string{"127.0.0.1:80"}
			r.PolicyHash = r.Policy.digest()
		}},
	} {
		r := someRecord(t)
		tt.edit(&r)
		err := r.Verify()
		if err == nil || !strings.Contains(err.Error(), tt.want) {
			t.Errorf("%s: %v, want %q", tt.name, err, tt.want)
		}
	}
	for _, edit := range []func(*Record){
		func(r *Record) { r.SealVersion++ }, func(r *Record) { r.Compiler++ }, func(r *Record) { r.Schema++ },
	} {
		later := someRecord(t)
		edit(&later)
		if err := later.Verify(); !errors.Is(err, ErrUnverifiable) {
			t.Errorf("a later version: %v", err)
		}
	}
}

// TestMacRecord: the record of a Mac is made and verified on any system.
func TestMacRecord(t *testing.T) {
	p := somePlan()
	p.Facts = Facts{}
	r, err := seatbeltRecord(p, Kernel{"darwin", "25.0", "arm64"})
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeRecord(r.Encode())
	if err != nil {
		t.Fatal(err)
	}
	if err := back.Verify(); err != nil {
		pol, _ := back.Policy.policy()
		want, err2 := seatbeltRecord(Plan{Policy: pol, Mounts: p.Mounts}, back.Kernel)
		t.Error(err, err2, cmp.Diff(string(want.Encode()), string(back.Encode())))
	}
	back.Layers[0].State = Observed
	if back.Verify() == nil {
		t.Error("a layer that a Mac doesn't have passes")
	}
	back, _ = DecodeRecord(r.Encode())
	back.Policy.Forward["9"] = "127.0.0.1:9"
	back.PolicyHash = back.Policy.digest()
	if back.Verify() == nil {
		t.Error("another policy passes")
	}
}

func TestDecodeRecord(t *testing.T) {
	for _, b := range []string{"", "{", `{"unknown":1}`, "null garbage"} {
		if _, err := DecodeRecord([]byte(b)); err == nil {
			t.Errorf("%q decodes", b)
		}
	}
}

func FuzzDecodeRecord(f *testing.F) {
	f.Add([]byte(`{"schema":1,"mounts":[{"path":"/a","digest":"x"}],"policy":{"wall":"1s"}}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		if r, err := DecodeRecord(b); err == nil {
			r.Verify() // must not panic
		}
	})
}
