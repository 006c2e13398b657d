package graph

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
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

// writer receives the walk over an action. A field of which the key has the
// value in the command, not in the salt, goes to said.
type writer interface {
	field(name string, value []byte, text, note string)
	said(name, text string)
}

// walk visits everything of the action that is in the key except for the
// bytes of its inputs, which are in the input tree. There is one walk and two
// writers: the salt and the explanation. block is that of its draw.
func (a *Action) walk(w writer, block string) {
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
	switch a.Kind {
	case Run:
		a.walkRun(w, block)
	case History:
		a.Look.walk(w)
	}
	for _, o := range a.Outputs {
		w.field("output "+o.Name, []byte(o.Format), o.Format, "")
	}
}

// walkRun visits what only runs have. Their tools are mounts of the input tree.
func (a *Action) walkRun(w writer, block string) {
	for i, arg := range a.Args {
		w.said(fmt.Sprintf("arg %d", i), Unmark(arg))
	}
	for _, e := range a.Env {
		name, value, _ := strings.Cut(e, "=")
		w.said("env "+name, Unmark(value))
	}
	if p := a.Policy; p != nil {
		p.walk(w)
		// Without a seal a mark becomes a path of this machine, and a word
		// with one is another word.
		if p.Unsealed {
			marks := appendWords(appendWords(nil, a.Args), a.Env)
			if a.Server != nil {
				marks = appendWords(marks, a.Server.Args)
			}
			sum := blake3.Sum256(marks)
			w.field("unsealed paths", marks, hex.EncodeToString(sum[:6]), "")
		}
	}
	if s := a.Sample; s != nil {
		drawn := *s
		drawn.Block = block
		drawn.walk(w)
	}
	if a.Server != nil {
		a.Server.walk(w, a.Sample == nil)
	}
}

func (l *Look) walk(w writer) {
	w.field("look n", binary.AppendVarint(nil, int64(l.N)), strconv.Itoa(l.N), "")
	w.field("look fingerprint", []byte(l.Fingerprint), l.Fingerprint, "")
	for _, f := range []struct {
		name string
		x    float64
	}{{"alpha", l.Alpha}, {"effect", l.Effect}, {"margin", l.Margin}} {
		text := strconv.FormatFloat(f.x, 'g', -1, 64)
		w.field("look "+f.name, []byte(text), text, "")
	}
}

// appendWords encodes a list so that it can be read back in one way only.
func appendWords(b []byte, words []string) []byte {
	b = binary.AppendUvarint(b, uint64(len(words)))
	for _, s := range words {
		b = append(binary.AppendUvarint(b, uint64(len(s))), s...)
	}
	return b
}

func (s *Sample) walk(w writer) {
	number := func(name string, n int) {
		w.field("sample "+name, binary.AppendVarint(nil, int64(n)), strconv.Itoa(n), "")
	}
	w.field("sample stream", []byte(s.Stream), s.Stream, "")
	number("index", s.Index)
	number("epoch", s.Epoch)
	number("redraw", s.Redraw)
	w.field("sample block", []byte(s.Block), s.Block, "")
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

func (s *saltWriter) said(string, string) {}

type fieldWriter struct{ fields []Field }

func (f *fieldWriter) said(name, text string) {
	f.fields = append(f.fields, Field{Name: name, Value: text})
}

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

// A Content is what one input of an action holds.
type Content struct {
	Digest     cas.Digest // of the file, or the root digest of Tree
	Executable bool
	Tree       *cas.Tree // of a folder, else nil
}

// Inputs is what is known of an action when the makers of its inputs have
// finished: all that its key needs beside itself.
type Inputs struct {
	Files  []Content // in the order of a.Inputs
	Mounts []Mount   // that a.Tools resolve to; no two with one path

	Platform Platform // of a run; of other actions it doesn't count
	Block    string   // of a draw, where the action has a Block: BlockOf
}

// runWorkDir is the working directory of a run, below the root of its seal.
const runWorkDir = "scratch/work"

// Encode computes the action's key.
func (a *Action) Encode(f cas.Func, in Inputs) (Encoded, error) {
	root, err := a.inputTree(f, in)
	if err != nil {
		return Encoded{}, err
	}
	command, err := a.command().Encode()
	if err != nil {
		return Encoded{}, err
	}
	salt := saltWriter{make([]byte, 0, 512)}
	a.walk(&salt, a.block(in))
	act := cas.Action{
		Command:   f.Sum(command),
		InputRoot: root.Digest(),
		Timeout:   pureTimeout,
		Salt:      salt.buf,
	}
	if a.Policy != nil {
		act.Platform = in.Platform.properties()
		if wall := a.Policy.Limits.Wall; wall != 0 { // blanked in a rep key
			act.Timeout = wall
		}
	}
	action, err := act.Encode()
	if err != nil {
		return Encoded{}, err
	}
	return Encoded{Key: Key(f.Sum(action)), Action: action, Command: command, Inputs: root}, nil
}

// block is that of the action's draw.
func (a *Action) block(in Inputs) string {
	switch {
	case a.Sample == nil:
		return ""
	case a.Block == nil:
		return a.Sample.Block
	}
	return in.Block
}

// RepKey computes the key under which a draw is kept: that of the action with
// limits blanked, so that a raised limit doesn't orphan reps that were within
// the old one.
func (a *Action) RepKey(f cas.Func, in Inputs) (Key, error) {
	blank := *a
	policy := *a.Policy
	policy.Limits = Limits{}
	blank.Policy = &policy
	if a.Server != nil { // its limits are made of these
		server := *a.Server
		server.Policy.Limits = Limits{}
		blank.Server = &server
	}
	enc, err := blank.Encode(f, in)
	return enc.Key, err
}

// BlockOf computes the block of draws: a digest of all that the arms are given,
// whatever streams, indices and limits are. ins are what arms have for inputs.
func BlockOf(f cas.Func, arms []*Action, ins []Inputs) (string, error) {
	var b []byte
	for i, arm := range arms {
		bare := *arm
		bare.Sample = nil
		key, err := bare.RepKey(f, ins[i])
		if err != nil {
			return "", err
		}
		b = appendWords(b, []string{arm.Sample.Stream, key.String()})
	}
	d := f.Sum(b)
	return d.Func.String() + ":" + d.Hex(), nil
}

// inputTree is the tree of the inputs, and for a run of the whole root of its
// seal but for what is scratch.
func (a *Action) inputTree(f cas.Func, in Inputs) (*cas.Tree, error) {
	tree := cas.NewTree(f)
	add := func(path string, c Content) {
		if c.Tree != nil {
			tree.Mount(path, c.Tree)
		} else {
			tree.File(path, c.Digest, c.Executable)
		}
	}
	for i, input := range a.Inputs {
		add(input.Name, in.Files[i])
	}
	for _, m := range in.Mounts {
		path := strings.TrimPrefix(m.Path, "/")
		if m.Link != "" {
			tree.Symlink(path, m.Link)
		} else {
			add(path, Content{m.Digest, m.Executable, m.Tree})
		}
	}
	return tree.Build()
}

func (a *Action) command() cas.Command {
	cmd := cas.Command{Arguments: []string{"eval-" + a.Kind.String()}}
	switch a.Kind {
	case Evaluate:
		d := a.Fn.Digest()
		cmd.Arguments = []string{"eval-starlark", hex.EncodeToString(d[:])}
	case Run:
		cmd.Arguments, cmd.WorkingDirectory = nil, runWorkDir
		for _, arg := range a.Args {
			cmd.Arguments = append(cmd.Arguments, Unmark(arg))
		}
		for _, e := range a.Env {
			name, value, _ := strings.Cut(e, "=")
			cmd.Env = append(cmd.Env, cas.EnvVar{Name: name, Value: Unmark(value)})
		}
	}
	for _, o := range a.Outputs {
		cmd.OutputPaths = append(cmd.OutputPaths, o.Name)
	}
	return cmd
}

// Explain writes the action readably: every field of the key, then each input
// by digest with its path as a note, then what the tools mount.
func (a *Action) Explain(in Inputs) []Field {
	var w fieldWriter
	a.walk(&w, a.block(in))
	w.parts(a.Fn)
	for _, p := range a.Params {
		w.parts(p.Value)
	}
	for i, input := range a.Inputs {
		note := input.File.Slash()
		if input.Name == input.File.Inside() { // a run's: it says the path already
			note = ""
		}
		w.fields = append(w.fields, Field{"input " + input.Name, in.Files[i].text(), note})
	}
	if a.Policy != nil {
		w.fields = append(w.fields, Field{Name: "platform", Value: in.Platform.String()})
	}
	for _, m := range in.Mounts {
		text := "→ " + m.Link
		if m.Link == "" {
			text = Content{m.Digest, m.Executable, m.Tree}.text()
		}
		w.fields = append(w.fields, Field{Name: "mount " + m.Path, Value: text})
	}
	return w.fields
}

func (c Content) text() string {
	switch {
	case c.Tree != nil:
		return "folder " + c.Digest.String()
	case c.Executable:
		return "executable " + c.Digest.String()
	}
	return c.Digest.String()
}

// A Platform is where a run runs, in the terms of the Remote Execution API's
// platform lexicon: operating system and instruction set, nothing finer.
type Platform struct{ OSFamily, ISA string }

// PlatformOf names a Go platform.
func PlatformOf(goos, goarch string) Platform {
	isa := map[string]string{"amd64": "x86-64", "arm64": "arm-a64"}[goarch]
	if isa == "" {
		isa = goarch
	}
	if goos == "darwin" {
		goos = "macos"
	}
	return Platform{goos, isa}
}

// String is how explanations and locks spell it.
func (p Platform) String() string { return p.OSFamily + " " + p.ISA }

func (p Platform) properties() []cas.Property {
	return []cas.Property{{Name: "ISA", Value: p.ISA}, {Name: "OSFamily", Value: p.OSFamily}}
}
