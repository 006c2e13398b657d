package graph

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"

	"github.com/evalbuild/eval/cas"
)

// fieldClasses says of each field of Action, and of the structs that it holds,
// where it goes: "key", or why it is left out.
var fieldClasses = map[string]string{
	"Action.Kind":      "key",
	"Action.Mnemonic":  "out: a word for people",
	"Action.Owner":     "out: a rename re-uses all results; where the label matters it is a param",
	"Action.Fn":        "key",
	"Action.Inputs":    "key",
	"Action.Params":    "key",
	"Action.Sharing":   "key",
	"Action.Content":   "key",
	"Action.Origins":   "out: for messages; a moved function is the same text",
	"Action.Outputs":   "key",
	"Action.Semantics": "key",
	"Action.StepLimit": "key",
	"Action.Args":      "key",
	"Action.Env":       "key",
	"Action.Policy":    "key",
	"Action.Sample":    "key",
	"Action.Tools":     "key",
	"Action.Block":     "out: Inputs.Block is made of it, and is",
	"Action.Terms":     "out: what a draw costs and whether it may be made",
	"Action.Look":      "key",
	"Action.Server":    "key",

	"Server.Program": "key",
	"Server.Args":    "key",
	"Server.Port":    "key",
	"Server.Policy":  "key",

	"Look.N":           "key",
	"Look.Fingerprint": "key",
	"Look.Alpha":       "key",
	"Look.Effect":      "key",
	"Look.Margin":      "key",

	"Input.Name":   "key",
	"Input.File":   "out: its bytes are in the key by digest, its path is not",
	"Input.Decode": "key",
	"Input.Codec":  "key",

	"Param.Name":  "key",
	"Param.Value": "key",

	"Output.Name":   "key",
	"Output.Format": "key",
	"Output.File":   "out: where it is shown",

	"Policy.Unsealed": "key",
	"Policy.Network":  "key",
	"Policy.Forward":  "key",
	"Policy.Limits":   "key",

	"Limits.Memory":    "key",
	"Limits.Scratch":   "key",
	"Limits.Output":    "key",
	"Limits.Processes": "key",
	"Limits.Wall":      "key",

	"Endpoint.Host":  "key",
	"Endpoint.Ports": "key",

	"Forward.Port":   "key",
	"Forward.Target": "key",

	"Sample.Stream": "key",
	"Sample.Index":  "key",
	"Sample.Epoch":  "key",
	"Sample.Redraw": "key",
	"Sample.Block":  "key",

	"Tool.Label":   "out: a name for errors",
	"Tool.Program": "key",
	"Tool.Input":   "key",
	"Tool.Data":    "key",
	"Tool.Own":     "key",

	"Inputs.Files":  "key",
	"Inputs.Mounts": "key",
	"Inputs.Block":  "key",

	"Inputs.Platform":   "key",
	"Platform.OSFamily": "key",
	"Platform.ISA":      "key",

	"Content.Digest":     "key",
	"Content.Executable": "key",
	"Content.Tree":       "key",

	"Mount.Path":       "key",
	"Mount.Source":     "out: a path of this machine; what it holds is in the key",
	"Mount.Digest":     "key",
	"Mount.Executable": "key",
	"Mount.Tree":       "key",
	"Mount.Link":       "key",
}

var keyStructs = []reflect.Type{
	reflect.TypeFor[Action](), reflect.TypeFor[Input](), reflect.TypeFor[Param](), reflect.TypeFor[Output](),
	reflect.TypeFor[Policy](), reflect.TypeFor[Limits](), reflect.TypeFor[Endpoint](), reflect.TypeFor[Forward](),
	reflect.TypeFor[Sample](), reflect.TypeFor[Look](), reflect.TypeFor[Tool](), reflect.TypeFor[Server](),
	reflect.TypeFor[Inputs](), reflect.TypeFor[Content](), reflect.TypeFor[Mount](), reflect.TypeFor[Platform](),
}

// opaqueStructs are types of other packages whose digest says all.
var opaqueStructs = []reflect.Type{reflect.TypeFor[cas.Digest](), reflect.TypeFor[cas.Tree]()}

// TestFieldClasses: every field has a class, and every class a field.
func TestFieldClasses(t *testing.T) {
	known := map[string]bool{}
	for _, s := range keyStructs {
		for i := range s.NumField() {
			f := s.Field(i)
			name := s.Name() + "." + f.Name
			known[name] = true
			class := fieldClasses[name]
			if class != "key" && !strings.HasPrefix(class, "out: ") {
				t.Errorf("%s is neither in the key nor out with a reason: %q", name, class)
			}
			// A struct that is new below an action has fields of its own.
			elem := f.Type
			for elem.Kind() == reflect.Slice || elem.Kind() == reflect.Pointer {
				elem = elem.Elem()
			}
			if class == "key" && elem.Kind() == reflect.Struct && !slices.Contains(keyStructs, elem) && !slices.Contains(opaqueStructs, elem) {
				t.Errorf("%s holds %v, whose fields have no class", name, elem)
			}
		}
	}
	for name := range fieldClasses {
		if !known[name] {
			t.Errorf("%s is no field", name)
		}
	}
}

// A fakeValue has its content for a digest.
type fakeValue string

func (v fakeValue) Digest() (d [32]byte) { copy(d[:], v); return d }
func (v fakeValue) Text() string         { return string(v) }
func (v fakeValue) Parts() []Part        { return []Part{{"//:m.star%" + string(v), "abc"}} }

type fakeOrigins struct{}

func (fakeOrigins) Rewrite(_, s string) string { return s + " elsewhere" }

func evaluateAction() (*Action, Inputs) {
	a := &Action{
		Kind: Evaluate, Mnemonic: "Score", Owner: Label{Pkg: "p", Name: "x"}, Fn: fakeValue("fn"),
		Inputs: []Input{
			{Name: "a", File: &File{Label: Label{Pkg: "p", Name: "a.txt"}}, Decode: "text"},
			{Name: "b", File: &File{Label: Label{Pkg: "p", Name: "b.jsonl"}}, Decode: "rep", Codec: "codex@1"},
		},
		Params:    []Param{{"k", fakeValue("1")}, {"l", fakeValue("2")}},
		Semantics: "starlark 1", StepLimit: 100,
	}
	a.Outputs = []Output{{"one", "json", &File{Path: "one.json", Action: a}}, {"two", "text", &File{Path: "two.txt", Action: a, Index: 1}}}
	return a, files(cas.BLAKE3.Sum([]byte("a")), cas.BLAKE3.Sum([]byte("b")))
}

// files are inputs that are plain files.
func files(digests ...cas.Digest) Inputs {
	var in Inputs
	for _, d := range digests {
		in.Files = append(in.Files, Content{Digest: d})
	}
	return in
}

func writeAction() *Action {
	a := &Action{Kind: Write, Mnemonic: "Write", Owner: Label{Pkg: "p", Name: "x"}, Content: []byte("text")}
	a.Outputs = []Output{{"out", "text", &File{Path: "x.txt", Action: a}}}
	return a
}

func key(t *testing.T, a *Action, inputs Inputs) Key {
	t.Helper()
	e, err := a.Encode(cas.BLAKE3, inputs)
	if err != nil {
		t.Fatal(err)
	}
	return e.Key
}

// TestFieldsInKey changes each field on its own. Those in the key change it,
// and the explanation; the others change neither.
func TestFieldsInKey(t *testing.T) {
	type edit struct {
		field string
		write bool // of the Write action, else of the Evaluate action
		do    func(a *Action)
	}
	one := func(e edit) (*Action, Inputs, keyEdit) {
		a, inputs := evaluateAction()
		if e.write {
			a, inputs = writeAction(), Inputs{}
		}
		return a, inputs, keyEdit{e.field, func(a *Action, in *Inputs) {
			e.do(a)
			in.Files = in.Files[:len(a.Inputs)]
		}}
	}
	edits := []edit{
		{"Action.Kind", false, func(a *Action) { a.Kind = 99 }},
		{"Action.Mnemonic", false, func(a *Action) { a.Mnemonic = "Other" }},
		{"Action.Owner", false, func(a *Action) { a.Owner.Name = "y" }},
		{"Action.Fn", false, func(a *Action) { a.Fn = fakeValue("other") }},
		{"Action.Inputs", false, func(a *Action) { a.Inputs = a.Inputs[:1] }},
		{"Action.Params", false, func(a *Action) { a.Params = a.Params[:1] }},
		{"Action.Params", false, func(a *Action) { a.Params = append(a.Params, Param{"m", fakeValue("3")}) }},
		{"Action.Sharing", false, func(a *Action) { a.Sharing = []byte{1, 0} }},
		{"Action.Content", true, func(a *Action) { a.Content = []byte("tex2") }},
		{"Action.Content", true, func(a *Action) { a.Content = nil }},
		{"Action.Origins", true, func(a *Action) { a.Origins = fakeOrigins{} }},
		{"Action.Outputs", false, func(a *Action) { a.Outputs = a.Outputs[:1] }},
		{"Action.Semantics", false, func(a *Action) { a.Semantics = "starlark 2" }},
		{"Action.StepLimit", false, func(a *Action) { a.StepLimit++ }},
		{"Input.Name", false, func(a *Action) { a.Inputs[0].Name = "c" }},
		{"Input.File", false, func(a *Action) { a.Inputs[0].File = &File{Label: Label{Pkg: "q", Name: "z"}} }},
		{"Input.Decode", false, func(a *Action) { a.Inputs[0].Decode = "json" }},
		{"Input.Codec", false, func(a *Action) { a.Inputs[1].Codec = "codex@2" }},
		{"Input.Codec", false, func(a *Action) { a.Inputs[1].Codec = "" }},
		{"Param.Name", false, func(a *Action) { a.Params[0].Name = "j" }},
		{"Param.Value", false, func(a *Action) { a.Params[0].Value = fakeValue("9") }},
		{"Output.Name", false, func(a *Action) { a.Outputs[0].Name = "more" }},
		{"Output.Format", false, func(a *Action) { a.Outputs[0].Format = "jsonl" }},
		{"Output.File", false, func(a *Action) { a.Outputs[0].File = &File{Path: "d/other.json", Action: a} }},
	}
	check := newKeyCheck(t)
	for _, e := range edits {
		a, inputs, k := one(e)
		check.edit(a, inputs, k)
	}
	for _, k := range runEdits {
		a, inputs := runAction()
		check.edit(a, inputs, k)
	}
	for _, k := range historyEdits {
		check.edit(historyAction(), Inputs{}, k)
	}
	for name := range fieldClasses {
		if !check.done[name] {
			t.Errorf("no edit of %s", name)
		}
	}
	// And what is no field: the bytes of an input, which input has them.
	a, inputs := evaluateAction()
	before := key(t, a, inputs)
	x, y := inputs.Files[0].Digest, inputs.Files[1].Digest
	if after := key(t, a, files(y, x)); after == before {
		t.Error("inputs swapped: the key stays")
	}
	if after := key(t, a, files(x, cas.BLAKE3.Sum([]byte("c")))); after == before {
		t.Error("an input's bytes: the key stays")
	}
	if key(t, a, inputs) != before {
		t.Error("the same again: another key")
	}
}

// explained is what two explanations are compared by.
func explained(a *Action, inputs Inputs) string {
	var b strings.Builder
	for _, f := range a.Explain(inputs) {
		fmt.Fprintf(&b, "%q = %q; ", f.Name, f.Value)
	}
	return b.String()
}

func TestExplain(t *testing.T) {
	a, inputs := evaluateAction()
	want := []Field{
		{"schema", "1", ""},
		{"kind", "evaluate", ""},
		{"semantics", "starlark 1", ""},
		{"step limit", "100", ""},
		{"function", "666e00000000", "fn"},
		{"param k", "310000000000", "1"},
		{"param l", "320000000000", "2"},
		{"decode a", "text", ""},
		{"decode b", "rep", ""},
		{"codec b", "codex@1", ""},
		{"output one", "json", ""},
		{"output two", "text", ""},
		{"code //:m.star%fn", "abc", ""},
		{"code //:m.star%1", "abc", ""},
		{"code //:m.star%2", "abc", ""},
		{"input a", inputs.Files[0].Digest.String(), "p/a.txt"},
		{"input b", inputs.Files[1].Digest.String(), "p/b.jsonl"},
	}
	if diff := cmp.Diff(want, a.Explain(inputs)); diff != "" {
		t.Error(diff)
	}
	// Contents of one length differ in the explanation, also those of a
	// digest's length.
	for _, n := range []int{1, 32, 100} {
		x, y := writeAction(), writeAction()
		x.Content = bytes.Repeat([]byte("x"), n)
		y.Content = append(bytes.Repeat([]byte("x"), n-1), 'y')
		if explained(x, Inputs{}) == explained(y, Inputs{}) {
			t.Errorf("contents of %d bytes are explained alike", n)
		}
	}
}

// TestEncodeAgreesWithREAPI builds the messages by hand.
func TestEncodeAgreesWithREAPI(t *testing.T) {
	for _, f := range []cas.Func{cas.BLAKE3, cas.SHA256} {
		a, _ := evaluateAction()
		in := []cas.Digest{f.Sum([]byte("a")), f.Sum([]byte("bb"))}
		got, err := a.Encode(f, files(in...))
		if err != nil {
			t.Fatal(err)
		}
		marshal := func(m proto.Message) []byte {
			b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
			if err != nil {
				t.Fatal(err)
			}
			return b
		}
		digest := func(d cas.Digest) *repb.Digest { return &repb.Digest{Hash: d.Hex(), SizeBytes: d.Size} }
		command := marshal(&repb.Command{
			Arguments:   []string{"eval-starlark", hex.EncodeToString([]byte("fn")) + strings.Repeat("00", 30)},
			OutputPaths: []string{"one", "two"},
		})
		root := marshal(&repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: digest(in[0])}, {Name: "b", Digest: digest(in[1])}}})
		var salt []byte
		field := func(name string, value []byte) {
			salt = append(binary.AppendUvarint(salt, uint64(len(name))), name...)
			salt = append(binary.AppendUvarint(salt, uint64(len(value))), value...)
		}
		d := func(s string) []byte { x := fakeValue(s).Digest(); return x[:] }
		field("schema", []byte{1})
		field("kind", []byte{1})
		field("semantics", []byte("starlark 1"))
		field("step limit", []byte{100})
		field("function", d("fn"))
		field("param k", d("1"))
		field("param l", d("2"))
		field("decode a", []byte("text"))
		field("decode b", []byte("rep"))
		field("codec b", []byte("codex@1"))
		field("output one", []byte("json"))
		field("output two", []byte("text"))
		action := marshal(&repb.Action{
			CommandDigest: digest(f.Sum(command)), InputRootDigest: digest(f.Sum(root)),
			Timeout: &durationpb.Duration{Seconds: 600}, Salt: salt,
		})
		if !bytes.Equal(got.Command, command) {
			t.Errorf("%v: command\n got %x\nwant %x", f, got.Command, command)
		}
		if !bytes.Equal(got.Action, action) {
			t.Errorf("%v: action\n got %x\nwant %x", f, got.Action, action)
		}
		if cas.Digest(got.Key) != f.Sum(action) || got.Inputs.Digest() != f.Sum(root) {
			t.Errorf("%v: key %v, input root %v", f, got.Key, got.Inputs.Digest())
		}
	}
}

// TestKeyGolden: keys that users have must not move by accident. If this
// fails, either the edit is wrong, or KeySchema rises.
func TestKeyGolden(t *testing.T) {
	a, inputs := evaluateAction()
	if got, want := key(t, a, inputs).String(), "blake3:e79a982dd29c817fa8e1bbc4db2a9a54ba901782fe885754be39e1b554322568/398"; got != want {
		t.Errorf("evaluate: %s, was %s", got, want)
	}
	if got, want := key(t, writeAction(), Inputs{}).String(), "blake3:504e555136775d3ee99284cbf4c8bc94b60ad0ddadc268799d205b1258c7a025/190"; got != want {
		t.Errorf("write: %s, was %s", got, want)
	}
}

func TestKeyAndSlotText(t *testing.T) {
	a, inputs := evaluateAction()
	k := key(t, a, inputs)
	if k.IsZero() || !(Key{}).IsZero() {
		t.Errorf("%s", k)
	}
	if got := a.Slot().String(); got != "//p:x one.json" {
		t.Errorf("slot %s", got)
	}
	out := a.Outputs[0].File
	out.Label = a.Owner
	if out.Source() || out.Slash() != "p/x/one.json" {
		t.Errorf("%s", out.Slash())
	}
	if f := a.Inputs[0].File; !f.Source() || f.Slash() != "p/a.txt" {
		t.Errorf("%s", f.Slash())
	}
	if fmt.Sprint(Evaluate, Write, Run, Kind(9)) != "evaluate write run unknown" {
		t.Error(Evaluate, Write, Run, Kind(9))
	}
}

// TestEncodeErrors: names that can't be in a tree are errors, no panics.
func TestEncodeErrors(t *testing.T) {
	for _, name := range []string{"", "..", "a/../b", "/a", "a\x00b", "\xff"} {
		a, inputs := evaluateAction()
		a.Inputs[0].Name = name
		if _, err := a.Encode(cas.BLAKE3, inputs); err == nil {
			t.Errorf("input %q has a key", name)
		}
		a, inputs = evaluateAction()
		a.Outputs[0].Name = name
		if _, err := a.Encode(cas.BLAKE3, inputs); err == nil {
			t.Errorf("output %q has a key", name)
		}
	}
	a, inputs := evaluateAction()
	if _, err := a.Encode(cas.SHA256, inputs); err == nil {
		t.Error("digests of two functions have a key")
	}
}

// FuzzKeyInjective: actions that differ in anything of the salt differ in it.
func FuzzKeyInjective(f *testing.F) {
	f.Add("a", "b", "text", "", "x", []byte("1"), uint64(1), "a", "b", "text", "", "x", []byte("2"), uint64(1))
	f.Add("a", "", "text", "codec a", "", []byte(nil), uint64(0), "a", "", "text", "", "codec a", []byte(nil), uint64(0))
	f.Add("k", "decode k", "v", "c", "s", []byte("\x00"), uint64(1<<40), "decode k", "k", "v", "c", "s", []byte("\x00"), uint64(1<<40))
	f.Fuzz(func(t *testing.T, n1, p1, d1, c1, s1 string, v1 []byte, l1 uint64, n2, p2, d2, c2, s2 string, v2 []byte, l2 uint64) {
		make := func(name, param, decode, codec, semantics string, value []byte, limit uint64) *Action {
			return &Action{
				Kind: Write, Semantics: semantics, StepLimit: limit, Content: value, Sharing: value,
				Inputs:  []Input{{Name: name, Decode: decode, Codec: codec}},
				Params:  []Param{{param, fakeValue(value)}},
				Outputs: []Output{{Name: param, Format: codec}},
			}
		}
		var x, y saltWriter
		make(n1, p1, d1, c1, s1, v1, l1).walk(&x, "")
		make(n2, p2, d2, c2, s2, v2, l2).walk(&y, "")
		same := n1 == n2 && p1 == p2 && d1 == d2 && c1 == c2 && s1 == s2 && bytes.Equal(v1, v2) && l1 == l2
		if same != bytes.Equal(x.buf, y.buf) {
			t.Fatalf("same is %v:\n%x\n%x", same, x.buf, y.buf)
		}
		if got := pairs(t, x.buf); !bytes.Equal(x.buf, unpairs(got)) {
			t.Fatalf("%x is read as %q", x.buf, got)
		}
	})
}

// pairs reads the salt back, which shows that it can be read in one way only.
func pairs(t *testing.T, b []byte) (out []string) {
	for len(b) > 0 {
		n, k := binary.Uvarint(b)
		if k <= 0 || n > uint64(len(b)-k) {
			t.Fatalf("the salt ends early: %x", b)
		}
		out, b = append(out, string(b[k:k+int(n)])), b[k+int(n):]
	}
	if len(out)%2 != 0 {
		t.Fatalf("%d strings", len(out))
	}
	return out
}

func unpairs(list []string) (b []byte) {
	for _, s := range list {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func BenchmarkEncode(b *testing.B) {
	a, inputs := evaluateAction()
	for b.Loop() {
		if _, err := a.Encode(cas.BLAKE3, inputs); err != nil {
			b.Fatal(err)
		}
	}
}
