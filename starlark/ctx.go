package starlark

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/rules/transcript"
	"github.com/evalbuild/eval/workspace/graph"
)

// An analysis is the state behind one implementation's ctx.
type analysis struct {
	loader   *Loader
	target   *Target
	actions  []*graph.Action
	declared map[string]*declared
	parents  map[string]bool // folders of declared files
	checks   []cellCheck
	memo     map[sl.Value]*param
	shared   map[shareKey][]byte
}

type declared struct {
	file *graph.File
	dir  bool
}

func (d *declared) kind() string {
	if d.dir {
		return "folder"
	}
	return "file"
}

// value builds ctx: label, attr, file, files, actions.
func (c *analysis) value() (sl.Value, error) {
	t := c.target
	attr, file, files := sl.StringDict{}, sl.StringDict{}, sl.StringDict{}
	byAttr := map[string][]dep{}
	for _, d := range t.deps {
		byAttr[d.attr] = append(byAttr[d.attr], d)
	}
	for _, name := range t.rule.names {
		a, v := t.rule.attrs[name], t.Attrs[name]
		deps := byAttr[name]
		isLabel := a.of == "label" || a.of == "one_of" && len(deps) == 1
		switch {
		case a.of == "label_list" || isLabel:
			var targets, all []sl.Value
			for _, d := range deps {
				tv := targetValue{opaque{"Target"}, d}
				targets = append(targets, tv)
				for _, f := range tv.files() {
					all = append(all, newFile(f))
				}
			}
			files[name] = sl.NewList(all)
			attr[name] = sl.NewList(targets)
			if a.of != "label_list" {
				attr[name], file[name] = sl.None, sl.None
				if len(deps) == 1 {
					attr[name] = targets[0]
				}
				if len(all) == 1 {
					file[name] = all[0]
				}
			}
		default:
			attr[name] = v
		}
	}
	attr["name"] = sl.String(t.Label.Name)
	actions := sl.StringDict{}
	for name, fn := range map[string]func(*sl.Thread, *sl.Builtin, sl.Tuple, []sl.Tuple) (sl.Value, error){
		"declare_file":      c.declareFile,
		"declare_directory": c.declareDirectory,
		"write":             c.write,
		"evaluate":          c.evaluate,
		"run":               c.run,
		"history":           c.history,
	} {
		actions[name] = sl.NewBuiltin("actions."+name, fn)
	}
	ctx := starlarkstruct.FromStringDict(sl.String("ctx"), sl.StringDict{
		"label":   labelValue{t.Label},
		"attr":    starlarkstruct.FromStringDict(sl.String("attr"), attr),
		"file":    starlarkstruct.FromStringDict(sl.String("file"), file),
		"files":   starlarkstruct.FromStringDict(sl.String("files"), files),
		"actions": starlarkstruct.FromStringDict(sl.String("actions"), actions),
	})
	ctx.Freeze()
	return ctx, nil
}

// A targetValue is a dependency as an implementation sees it.
type targetValue struct {
	opaque
	dep dep
}

func (t targetValue) String() string      { return "<Target " + t.dep.label.String() + ">" }
func (t targetValue) AttrNames() []string { return []string{"files", "kind", "label"} }

func (t targetValue) files() []*graph.File {
	if t.dep.target != nil {
		return t.dep.target.Result.Files
	}
	return []*graph.File{t.dep.file}
}

func (t targetValue) Attr(name string) (sl.Value, error) {
	switch name {
	case "label":
		return labelValue{t.dep.label}, nil
	case "kind":
		return sl.String(t.kind()), nil
	case "files":
		var out []sl.Value
		for _, f := range t.files() {
			out = append(out, newFile(f))
		}
		return sl.NewList(out), nil
	}
	return nil, nil
}

// Get makes dep[Info] and `Info in dep` work.
func (t targetValue) Get(k sl.Value) (sl.Value, bool, error) {
	p, ok := k.(*providerValue)
	if !ok {
		return nil, false, fmt.Errorf("a target is indexed by a provider, not %s", k.Type())
	}
	in := t.provider(p)
	if in == nil {
		return nil, false, nil
	}
	return in, true, nil
}

// provider is what the target's implementation returned of p, or nil.
func (t targetValue) provider(p *providerValue) *instance {
	if t.dep.target == nil {
		return nil
	}
	return t.dep.target.Result.providers[p]
}

func (t targetValue) kind() string {
	if t.dep.target == nil {
		return "source file"
	}
	return t.dep.target.Kind
}

func (c *analysis) declareFile(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	return c.declare(b, args, kwargs, false)
}

func (c *analysis) declareDirectory(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	return c.declare(b, args, kwargs, true)
}

func (c *analysis) declare(b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple, dir bool) (sl.Value, error) {
	var p string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "path", &p); err != nil {
		return nil, err
	}
	f := &graph.File{Label: c.target.Label, Path: p}
	if err := c.claim(p, &declared{f, dir}); err != nil {
		return nil, fmt.Errorf("%s %q: %v", b.Name(), p, err)
	}
	return newFile(f), nil
}

// claim takes a path below the target's output folder.
func (c *analysis) claim(p string, d *declared) error {
	if _, err := graph.ParseLabel(":"+p, graph.Label{}); err != nil {
		return err
	}
	if len(p) > maxPath {
		return fmt.Errorf("a path of %d bytes; %d are the most that all systems take", len(p), maxPath)
	}
	for seg := range strings.SplitSeq(p, "/") {
		if len(seg) > maxName {
			return fmt.Errorf("a name of %d bytes; file systems take %d", len(seg), maxName)
		}
	}
	if c.declared[p] != nil || c.parents[p] {
		return fmt.Errorf("a file or folder of this name was declared already")
	}
	for up := path.Dir(p); up != "."; up = path.Dir(up) {
		if c.declared[up] != nil {
			return fmt.Errorf("%q was declared as a %s", up, c.declared[up].kind())
		}
		c.parents[up] = true
	}
	c.declared[p] = d
	return nil
}

// maxPath is the longest path below an output folder: macOS takes 1,024 bytes
// of a whole one.
const maxPath = 800

// maxName is the longest name of a file that all usual file systems take.
const maxName = 255

// output claims a declared file for an action.
func (c *analysis) output(v sl.Value, a *graph.Action, name string) error {
	f, ok := v.(fileValue)
	if !ok {
		return fmt.Errorf("output is a declared file, not %s", v.Type())
	}
	d := c.declared[f.file.Path]
	if d == nil || d.file != f.file {
		return fmt.Errorf("output %s was not declared by this target", f.file.Slash())
	}
	if d.dir && a.Kind != graph.Run {
		return fmt.Errorf("output %q is a folder; only actions.run makes folders", f.file.Path)
	}
	if f.file.Action != nil {
		return fmt.Errorf("output %q has an action already", f.file.Path)
	}
	f.file.Action, f.file.Index = a, len(a.Outputs)
	format := outputFormat(f.file.Path)
	if a.Kind == graph.Run {
		format = d.kind()
	}
	a.Outputs = append(a.Outputs, graph.Output{Name: name, Format: format, File: f.file})
	return nil
}

// outputFormat says by its name how a function's result becomes a file.
func outputFormat(p string) string {
	switch path.Ext(p) {
	case ".json":
		return "json"
	case ".jsonl":
		return "jsonl"
	}
	return "text"
}

func (c *analysis) write(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var output, content sl.Value
	mnemonic := "Write"
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "output", &output, "content", &content, "mnemonic?", &mnemonic); err != nil {
		return nil, err
	}
	a := &graph.Action{Kind: graph.Write, Mnemonic: mnemonic, Owner: c.target.Label}
	switch content := content.(type) {
	case sl.String:
		a.Content = []byte(content)
	case portableValue:
		a.Content, a.Origins = content.Text, content.Origins
	default:
		return nil, fmt.Errorf("%s: for parameter content: got %s, want string", b.Name(), content.Type())
	}
	if err := c.output(output, a, "out"); err != nil {
		return nil, fmt.Errorf("%s: %v", b.Name(), err)
	}
	c.actions = append(c.actions, a)
	return sl.None, nil
}

// evaluateSteps bounds one evaluate action; it is in the key. It bounds memory
// too, loosely: a list grows by one element in a few steps.
const evaluateSteps = 100_000_000

func (c *analysis) evaluate(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var fn *sl.Function
	var inputs, params, decode, outputs *sl.Dict
	var output sl.Value
	mnemonic := "Evaluate"
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "fn", &fn, "inputs?", &inputs, "params?", &params, "output?", &output,
		"outputs?", &outputs, "decode?", &decode, "mnemonic?", &mnemonic); err != nil {
		return nil, err
	}
	a := &graph.Action{
		Kind: graph.Evaluate, Mnemonic: mnemonic, Owner: c.target.Label,
		Semantics: Semantics, StepLimit: evaluateSteps,
	}
	if output == sl.None {
		output = nil
	}
	err := c.takeInputs(a, inputs, decode)
	if err == nil {
		err = c.takeParams(t, a, fn, params)
	}
	if err == nil {
		err = c.takeOutputs(a, output, outputs)
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", b.Name(), err)
	}
	c.actions = append(c.actions, a)
	return sl.None, nil
}

func (c *analysis) takeInputs(a *graph.Action, inputs, decode *sl.Dict) error {
	if inputs != nil {
		a.Inputs = make([]graph.Input, 0, inputs.Len())
		for k, v := range inputs.Entries() {
			name, ok := sl.AsString(k)
			f, ok2 := v.(fileValue)
			if !ok || !ok2 {
				return fmt.Errorf("inputs maps names to files, not %s to %s", k.Type(), v.Type())
			}
			if err := checkInputName(name); err != nil {
				return err
			}
			if f.file.Folder() {
				return fmt.Errorf("input %q is a folder; only actions.run takes folders", name)
			}
			in := graph.Input{Name: name, File: f.file}
			if decode != nil {
				if v, found, _ := decode.Get(k); found {
					in.Decode, _ = sl.AsString(v)
				}
			}
			if in.Decode == "" {
				in.Decode = defaultDecode(f.file)
			}
			if err := setCodec(&in); err != nil {
				return err
			}
			a.Inputs = append(a.Inputs, in)
		}
		slices.SortFunc(a.Inputs, func(x, y graph.Input) int { return strings.Compare(x.Name, y.Name) })
	}
	if decode == nil {
		return nil
	}
	for k := range decode.Entries() {
		if name, _ := sl.AsString(k); !hasInput(a.Inputs, name) {
			return fmt.Errorf("decode names %s, which is no input", k)
		}
	}
	return nil
}

// checkInputName accepts what can be a file's name in the input tree.
func checkInputName(name string) error {
	if name == "" || name == "." || name == ".." || strings.ContainsAny(name, "/\x00") || !utf8.ValidString(name) {
		return fmt.Errorf("%q can't name an input", name)
	}
	return nil
}

// takeParams freezes and fingerprints the function and the params.
func (c *analysis) takeParams(t *sl.Thread, a *graph.Action, fn *sl.Function, params *sl.Dict) error {
	p, err := c.param(t, fn)
	if err != nil {
		return fmt.Errorf("fn: %w", err)
	}
	a.Fn = p
	if params != nil {
		a.Params = make([]graph.Param, 0, params.Len())
		for k, v := range params.Entries() {
			name, ok := sl.AsString(k)
			if !ok {
				return fmt.Errorf("params: a name is a string, not %s", k.Type())
			}
			if hasInput(a.Inputs, name) {
				return fmt.Errorf("%q is both an input and a param", name)
			}
			p, err := c.param(t, v)
			if err != nil {
				return fmt.Errorf("param %q: %w", name, err)
			}
			a.Params = append(a.Params, graph.Param{Name: name, Value: p})
		}
		slices.SortFunc(a.Params, func(x, y graph.Param) int { return strings.Compare(x.Name, y.Name) })
	}
	a.Sharing = c.sharing(p, a.Params)
	return nil
}

// shareKey identifies a list of values with identities: those of one function
// and one discriminator, say, are the same for all reps.
type shareKey [4]*param

func (c *analysis) sharing(fn *param, params []graph.Param) []byte {
	var key shareKey
	lists := make([][]any, 0, len(key))
	add := func(p *param) {
		if len(p.objects) > 0 {
			if len(lists) < len(key) {
				key[len(lists)] = p
			}
			lists = append(lists, p.objects)
		}
	}
	add(fn)
	for _, p := range params {
		add(p.Value.(*param))
	}
	if len(lists) > len(key) {
		return sharing(lists...)
	}
	s, ok := c.shared[key]
	if !ok {
		s = sharing(lists...)
		if c.shared == nil {
			c.shared = map[shareKey][]byte{}
		}
		c.shared[key] = s
	}
	return s
}

func (c *analysis) takeOutputs(a *graph.Action, output sl.Value, outputs *sl.Dict) error {
	switch {
	case (output == nil) == (outputs == nil):
		return fmt.Errorf("either output or outputs is given")
	case outputs == nil:
		return c.output(output, a, "out")
	case outputs.Len() == 0:
		return fmt.Errorf("outputs is empty")
	}
	names := make([]string, 0, outputs.Len())
	for k := range outputs.Entries() {
		name, ok := sl.AsString(k)
		if !ok || !isIdentifier(name) {
			return fmt.Errorf("outputs: %s is no name", k)
		}
		names = append(names, name)
	}
	if len(names) == 1 && names[0] == "out" {
		return fmt.Errorf("outputs = {\"out\": f} is written output = f")
	}
	slices.Sort(names)
	for _, name := range names {
		f, _, err := outputs.Get(sl.String(name))
		if err == nil {
			err = c.output(f, a, name)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// hasInput searches inputs, which are sorted by name.
func hasInput(ins []graph.Input, name string) bool {
	_, ok := slices.BinarySearchFunc(ins, name, func(in graph.Input, name string) int { return strings.Compare(in.Name, name) })
	return ok
}

func defaultDecode(f *graph.File) string {
	p := f.Path
	if f.Source() {
		p = f.Label.Name
	}
	switch path.Ext(p) {
	case ".json":
		return "json"
	case ".jsonl":
		return "jsonl"
	}
	return "text"
}

// setCodec checks an input's decode and notes the version of the Go code
// behind it: a better parser is another key.
func setCodec(in *graph.Input) error {
	switch in.Decode {
	case "json", "jsonl", "text":
		return nil // fixed by Semantics
	}
	kind, format, _ := strings.Cut(in.Decode, ":")
	if kind != "rep" {
		return fmt.Errorf("decode of %q is json, jsonl, text, rep or rep:FORMAT, not %q", in.Name, in.Decode)
	}
	if format == "" {
		format = "text"
	}
	codec, ok := transcript.Lookup(format)
	if !ok {
		return fmt.Errorf("decode of %q: there is no transcript format %q%s", in.Name, format, graph.DidYouMean(format, transcript.Names()))
	}
	in.Decode, in.Codec = "rep", codec.ID()
	return nil
}

// A param is a frozen value with its fingerprint: graph.Value.
type param struct {
	value sl.Value
	fingerprintResult
}

func (p *param) Digest() [32]byte { return p.fp }

// Parts lists the functions that the value reaches, by name and digest.
func (p *param) Parts() []graph.Part { return p.parts }

// Text is a function's name, or the value shortened.
func (p *param) Text() string {
	if fn, ok := p.value.(*sl.Function); ok {
		return functionName(fn)
	}
	return shorten(p.value)
}

func (c *analysis) param(t *sl.Thread, v sl.Value) (*param, error) {
	remember := false // the same value stands in the actions of all reps
	switch v.(type) {
	case *sl.Function, sl.String:
		if p := c.memo[v]; p != nil {
			return p, nil
		}
		remember = true
	}
	if err := freeze(v); err != nil {
		return nil, err
	}
	check, err := newCellCheck(c.loader.prints, functionsOnly(v), t.CallFrame(1).Pos)
	if err != nil {
		return nil, err
	}
	if len(check.before) > 0 {
		c.checks = append(c.checks, check)
	}
	r, err := c.loader.prints.value(v)
	if err != nil {
		return nil, err
	}
	p := &param{v, r}
	if remember {
		if c.memo == nil {
			c.memo = map[sl.Value]*param{}
		}
		c.memo[v] = p
	}
	return p, nil
}
