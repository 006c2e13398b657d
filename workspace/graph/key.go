package graph

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"time"

	"github.com/zeebo/blake3"

	"github.com/evalbuild/eval/cas"
)

// KeySchema is the version of the encoding below. Raising it makes every
// result a miss: do it only when an old key could be wrong.
const KeySchema = 1

// pureTimeout stands in the REAPI Action of in-process actions. Steps bound
// them, not time; but servers want a timeout, and it is in the digest, so it
// is fixed here once.
const pureTimeout = 600 * time.Second

// A Key is the digest of an encoded action.
type Key cas.Digest

// String returns the key as a digest.
func (k Key) String() string { return cas.Digest(k).String() }

// IsZero says that no key was computed.
func (k Key) IsZero() bool { return cas.Digest(k).IsZero() }

// A Field is one line of an action's explanation. Two explanations are
// compared by Name and Value; Note is for people (a path, say) and may differ
// between equal keys.
type Field struct {
	Name, Value, Note string
}

// writer receives the walk over an action.
type writer interface {
	field(name string, value []byte, text, note string)
}

// walk visits everything of the action that is in the key except for the
// bytes of its inputs, which are in the input tree. There is one walk and two
// writers: the salt and the explanation.
func (a *Action) walk(w writer) {
	w.field("schema", binary.AppendUvarint(nil, KeySchema), strconv.Itoa(KeySchema), "")
	w.field("kind", []byte{byte(a.Kind)}, a.Kind.String(), "")
	if a.Semantics != "" {
		w.field("semantics", []byte(a.Semantics), a.Semantics, "")
	}
	if a.StepLimit != 0 {
		w.field("step limit", binary.AppendUvarint(nil, a.StepLimit), strconv.FormatUint(a.StepLimit, 10), "")
	}
	if a.Fn != nil {
		d := a.Fn.Digest()
		w.field("function", d[:], hex.EncodeToString(d[:6]), a.Fn.Text())
	}
	for _, p := range a.Params {
		d := p.Value.Digest()
		w.field("param "+p.Name, d[:], hex.EncodeToString(d[:6]), p.Value.Text())
	}
	if len(a.Sharing) > 0 {
		w.field("sharing", a.Sharing, hex.EncodeToString(a.Sharing), "")
	}
	for _, in := range a.Inputs {
		w.field("decode "+in.Name, []byte(in.Decode), in.Decode, "")
		if in.Codec != "" {
			w.field("codec "+in.Name, []byte(in.Codec), in.Codec, "")
		}
	}
	if a.Kind == Write {
		sum := blake3.Sum256(a.Content)
		w.field("content", a.Content, hex.EncodeToString(sum[:6]), fmt.Sprintf("%d bytes", len(a.Content)))
	}
	for _, o := range a.Outputs {
		w.field("output "+o.Name, []byte(o.Format), o.Format, "")
	}
}

// saltWriter encodes fields as length-prefixed (name, value) pairs, which is
// injective: no two different lists of pairs have one encoding.
type saltWriter struct{ buf []byte }

func (s *saltWriter) field(name string, value []byte, _, _ string) {
	s.buf = binary.AppendUvarint(s.buf, uint64(len(name)))
	s.buf = append(s.buf, name...)
	s.buf = binary.AppendUvarint(s.buf, uint64(len(value)))
	s.buf = append(s.buf, value...)
}

type fieldWriter struct{ fields []Field }

func (f *fieldWriter) field(name string, _ []byte, text, note string) {
	f.fields = append(f.fields, Field{name, text, note})
}

// parts adds the functions that a value reaches, so that a change can be
// traced to the one that was edited. The digest of the value covers them.
func (f *fieldWriter) parts(v Value) {
	r, ok := v.(interface{ Parts() []Part })
	if !ok {
		return
	}
	for _, p := range r.Parts() {
		f.fields = append(f.fields, Field{Name: "code " + p.Name, Value: p.Code})
	}
}

// An Encoded action is its key and the REAPI messages behind it.
type Encoded struct {
	Key     Key
	Action  []byte
	Command []byte
	Inputs  *cas.Tree
}

// Encode computes the action's key from the digests of its inputs, in the
// order of a.Inputs.
func (a *Action) Encode(f cas.Func, inputs []cas.Digest) (Encoded, error) {
	tree := cas.NewTree(f)
	for i, in := range a.Inputs {
		tree.File(in.Name, inputs[i], false)
	}
	root, err := tree.Build()
	if err != nil {
		return Encoded{}, err
	}
	cmd := cas.Command{Arguments: []string{"eval-" + a.Kind.String()}}
	if a.Kind == Evaluate {
		d := a.Fn.Digest()
		cmd.Arguments = []string{"eval-starlark", hex.EncodeToString(d[:])}
	}
	for _, o := range a.Outputs {
		cmd.OutputPaths = append(cmd.OutputPaths, o.Name)
	}
	command, err := cmd.Encode()
	if err != nil {
		return Encoded{}, err
	}
	salt := saltWriter{make([]byte, 0, 512)}
	a.walk(&salt)
	act := cas.Action{
		Command:   f.Sum(command),
		InputRoot: root.Digest(),
		Timeout:   pureTimeout,
		Salt:      salt.buf,
	}
	action, err := act.Encode()
	if err != nil {
		return Encoded{}, err
	}
	return Encoded{Key: Key(f.Sum(action)), Action: action, Command: command, Inputs: root}, nil
}

// Explain writes the action readably: every field of the key, then each input
// by digest with its path as a note.
func (a *Action) Explain(inputs []cas.Digest) []Field {
	var w fieldWriter
	a.walk(&w)
	w.parts(a.Fn)
	for _, p := range a.Params {
		w.parts(p.Value)
	}
	for i, in := range a.Inputs {
		w.fields = append(w.fields, Field{"input " + in.Name, inputs[i].String(), in.File.Slash()})
	}
	return w.fields
}
