package starlark

import (
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// toolInfo is what makes a target a program that actions run: path is that of
// this machine's file, or file is one of the build; data are paths of this
// machine, files those of the build that it needs.
var toolInfo = builtinProvider("ToolInfo", "path", "file", "data", "files")

// run is actions.run: a process under a seal.
func (c *analysis) run(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var executable, seal, sample, server sl.Value
	var arguments, inputs, outputs, tools sl.Iterable
	var env, terms *sl.Dict
	var o made
	mnemonic := "Run"
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "executable", &executable, "arguments?", &arguments, "inputs?", &inputs,
		"outputs?", &outputs, "env?", &env, "seal?", &seal, "tools?", &tools, "sample?", &sample, "mnemonic?", &mnemonic,
		"stdin?", &o.stdin, "optional?", &o.optional, "stdout?", &o.stdout, "stderr?", &o.stderr, "exit?", &o.exit, "egress?", &o.egress, "seal_record?", &o.seal,
		"terms?", &terms, "server?", &server); err != nil {
		return nil, err
	}
	a := &graph.Action{Kind: graph.Run, Mnemonic: mnemonic, Owner: c.target.Label}
	sealEnv, err := c.takeSeal(a, seal)
	if err == nil {
		err = takeTools(a, executable, tools)
	}
	if err == nil {
		err = takeFiles(a, inputs)
	}
	o.outputs = outputs
	if err == nil {
		err = c.takeMade(a, o)
	}
	if err == nil {
		err = takeSample(a, sample, terms)
	}
	if err == nil {
		err = takeWords(a, arguments, env, sealEnv)
	}
	if err == nil {
		err = c.takeServer(a, server)
	}
	if err == nil && len(a.Outputs) == 0 {
		err = fmt.Errorf("outputs is empty: a process that makes nothing has no result")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v", b.Name(), err)
	}
	c.actions = append(c.actions, a)
	return sl.None, nil
}

func elements(list sl.Iterable) []sl.Value {
	if list == nil {
		return nil
	}
	return slices.Collect(sl.Elements(list))
}

// takeTools adds the program to run and further ones, each with its files.
func takeTools(a *graph.Action, executable sl.Value, more sl.Iterable) error {
	if err := addTool(a, executable); err != nil {
		return fmt.Errorf("executable: %v", err)
	}
	for i, v := range elements(more) {
		if err := addTool(a, v); err != nil {
			return fmt.Errorf("tools[%d]: %v", i, err)
		}
	}
	a.Args = []string{a.Tools[0].Path()}
	return nil
}

func addTool(a *graph.Action, v sl.Value) error {
	if own, ok := v.(ownValue); ok {
		a.Tools = append(a.Tools, own.tool())
		return nil
	}
	t, ok := v.(targetValue)
	if !ok {
		return fmt.Errorf("a target of the rule tool is meant, not %s", aValue(v))
	}
	in := t.provider(toolInfo)
	if in == nil {
		return fmt.Errorf("%s is a %s, which is no tool%s", t.dep.label, t.kind(), hintTool(t))
	}
	tool := graph.Tool{Label: t.dep.label}
	var err error
	p, file := in.field("path"), in.field("file")
	switch {
	case (p == sl.None) == (file == sl.None):
		err = fmt.Errorf("either path or file is set")
	case file != sl.None:
		f, ok := file.(fileValue)
		if !ok {
			return fmt.Errorf("%s: ToolInfo.file is a file, not %s", t.dep.label, aValue(file))
		}
		tool.Input = f.file.Inside()
		err = addInput(a, f.file)
	default:
		s, ok := sl.AsString(p)
		if !ok {
			return fmt.Errorf("%s: ToolInfo.path is a string, not %s", t.dep.label, aValue(p))
		}
		tool.Program, err = s, checkHostPath(s)
	}
	if err != nil {
		return fmt.Errorf("%s: ToolInfo: %v", t.dep.label, err)
	}
	if tool.Data, err = stringList(in.field("data")); err != nil {
		return fmt.Errorf("%s: ToolInfo.data: %v", t.dep.label, err)
	}
	for _, p := range tool.Data {
		if err := checkHostPath(p); err != nil {
			return fmt.Errorf("%s: ToolInfo.data: %v", t.dep.label, err)
		}
	}
	files, ok := in.field("files").(sl.Iterable)
	if !ok && in.field("files") != sl.None {
		return fmt.Errorf("%s: ToolInfo.files is a list of files, not %s", t.dep.label, aValue(in.field("files")))
	}
	if err := takeFiles(a, files); err != nil {
		return fmt.Errorf("%s: ToolInfo.files: %v", t.dep.label, err)
	}
	if !slices.ContainsFunc(a.Tools, func(x graph.Tool) bool { return x.Label == tool.Label }) {
		a.Tools = append(a.Tools, tool)
	}
	return nil
}

func hintTool(t targetValue) string {
	if t.dep.target == nil {
		return fmt.Sprintf("; declare tool(name = …, path = %q)", t.dep.label.Name)
	}
	return ""
}

// isHostPath says whether s is a path of this machine and no label: it begins
// with one slash.
func isHostPath(s string) bool { return strings.HasPrefix(s, "/") && !strings.HasPrefix(s, "//") }

// checkHostPath accepts an absolute, clean path.
func checkHostPath(s string) error {
	if !isHostPath(s) {
		return fmt.Errorf("%q is no absolute path of this machine", s)
	}
	if s == "/" {
		return fmt.Errorf("the path %q is all of this machine", s)
	}
	if path.Clean(s) != s {
		return fmt.Errorf("the path %q is written %q", s, path.Clean(s))
	}
	if err := checkWord(s); err != nil {
		return fmt.Errorf("the path %q %v", s, err)
	}
	if own := graph.ReservedPath(s); own != "" {
		return fmt.Errorf("the path %q: below %s a seal has files of its own", s, own)
	}
	return nil
}

// checkWord accepts what can be an argument of a process and in a key.
func checkWord(s string) error {
	if strings.Contains(s, "\x00") {
		return fmt.Errorf("holds a NUL")
	}
	if !utf8.ValidString(s) {
		return fmt.Errorf("is not valid UTF-8")
	}
	return nil
}

// takeFiles adds inputs: files, and all files of targets.
func takeFiles(a *graph.Action, inputs sl.Iterable) error {
	for i, v := range elements(inputs) {
		var files []*graph.File
		switch v := v.(type) {
		case fileValue:
			files = []*graph.File{v.file}
		case targetValue:
			files = v.files()
		case *depset:
			list, err := v.list()
			if err != nil {
				return err
			}
			if err := takeFiles(a, sl.NewList(list)); err != nil {
				return err
			}
		default:
			return fmt.Errorf("inputs[%d]: a file or a target is meant, not %s", i, aValue(v))
		}
		for _, f := range files {
			if err := addInput(a, f); err != nil {
				return err
			}
		}
	}
	return nil
}

// addInput adds a file under its path inside, once. Inputs are sorted by name.
func addInput(a *graph.Action, f *graph.File) error {
	if !f.Source() && f.Action == a {
		return fmt.Errorf("%s is an output of this action", f.Slash())
	}
	if f.Action == nil && f.Path != "" {
		return fmt.Errorf("no action that was declared before makes %s", f.Path)
	}
	name := f.Inside()
	i, found := findInput(a, name)
	if found {
		if a.Inputs[i].File.Same(f) {
			return nil
		}
		return bothAt(a.Inputs[i].File, f)
	}
	for up := path.Dir(name); up != "."; up = path.Dir(up) {
		if j, found := findInput(a, up); found {
			return bothAt(a.Inputs[j].File, f)
		}
	}
	for _, in := range a.Inputs[i:] {
		if !strings.HasPrefix(in.Name, name) {
			break
		}
		if in.Name[len(name)] == '/' {
			return bothAt(f, in.File)
		}
	}
	a.Inputs = slices.Insert(a.Inputs, i, graph.Input{Name: name, File: f})
	return nil
}

// findInput says where in the action's inputs a name is, or would be.
func findInput(a *graph.Action, name string) (int, bool) {
	return slices.BinarySearchFunc(a.Inputs, name, func(in graph.Input, name string) int { return strings.Compare(in.Name, name) })
}

func bothAt(outer, f *graph.File) error {
	return fmt.Errorf("%s and %s would be in one place, /%s", describeFile(outer), describeFile(f), outer.Inside())
}

func describeFile(f *graph.File) string {
	if f.Source() {
		return "the source " + f.Label.String()
	}
	return fmt.Sprintf("the output %s of %s", f.Path, f.Label)
}

// made is what a run makes, and what the harness keeps of it.
type made struct {
	outputs  sl.Iterable // files; or a dict of paths below the working directory
	optional *sl.Dict    // of paths: empty if it isn't made
	stdin    sl.Value
	// What the harness makes.
	stdout, stderr, exit, egress, seal sl.Value
}

// takeMade claims what the process makes. An output's name is its path below
// the working directory.
func (c *analysis) takeMade(a *graph.Action, m made) error {
	for _, f := range []struct {
		file   sl.Value
		format string
	}{{m.stdout, graph.FormatStdout}, {m.stderr, graph.FormatStderr}, {m.exit, graph.FormatExit}, {m.egress, graph.FormatEgress}, {m.seal, graph.FormatSeal}} {
		if f.file == nil || f.file == sl.None {
			continue
		}
		if err := c.output(f.file, a, graph.FactsDir+f.format); err != nil {
			return err
		}
		a.Outputs[len(a.Outputs)-1].Format = f.format
	}
	if d, ok := m.outputs.(*sl.Dict); ok {
		if err := c.takeNamed(a, "outputs", d, ""); err != nil {
			return err
		}
	} else {
		for i, v := range elements(m.outputs) {
			f, ok := v.(fileValue)
			if !ok {
				return fmt.Errorf("outputs[%d]: a declared file is meant, not %s", i, aValue(v))
			}
			if err := c.takeOutput(a, v, f.file.Path, ""); err != nil {
				return err
			}
		}
	}
	if err := c.takeNamed(a, "optional", m.optional, graph.FormatOptional); err != nil {
		return err
	}
	return c.takeStdin(a, m.stdin)
}

func (c *analysis) takeNamed(a *graph.Action, what string, d *sl.Dict, format string) error {
	if d == nil {
		return nil
	}
	for k, v := range d.Entries() {
		name, ok := sl.AsString(k)
		if _, err := graph.ParseLabel(":"+name, graph.Label{}); !ok || err != nil {
			return fmt.Errorf("%s maps paths below the working directory to declared files; %s is no such path", what, aValue(k))
		}
		if err := c.takeOutput(a, v, name, format); err != nil {
			return err
		}
	}
	return nil
}

// takeOutput claims one output of the process; format "" is what it was declared
// as.
func (c *analysis) takeOutput(a *graph.Action, v sl.Value, name, format string) error {
	if err := c.output(v, a, name); err != nil {
		return err
	}
	for _, o := range a.Outputs[:len(a.Outputs)-1] {
		if o.Name == name || strings.HasPrefix(o.Name, name+"/") || strings.HasPrefix(name, o.Name+"/") {
			return fmt.Errorf("outputs %q and %q are in one place", o.Name, name)
		}
	}
	o := &a.Outputs[len(a.Outputs)-1]
	if o.Fact() || o.Served() {
		return fmt.Errorf("output %q: below %s and %s are the harness's own", name, graph.FactsDir, graph.ServerDir)
	}
	if format != "" {
		if o.Format == graph.FormatFolder {
			return fmt.Errorf("output %q is a folder; only a file is optional", name)
		}
		o.Format = format
	}
	return nil
}

// takeStdin makes a file what the process reads.
func (c *analysis) takeStdin(a *graph.Action, v sl.Value) error {
	if v == nil || v == sl.None {
		return nil
	}
	f, ok := v.(fileValue)
	if !ok || f.file.Folder() || f.file.Action == a {
		return fmt.Errorf("stdin: a file is meant, not %s", aValue(v))
	}
	i, _ := findInput(a, graph.StdinName)
	a.Inputs = slices.Insert(a.Inputs, i, graph.Input{Name: graph.StdinName, File: f.file})
	return nil
}

// takeWords makes the arguments and the environment.
func takeWords(a *graph.Action, arguments sl.Iterable, env *sl.Dict, sealEnv map[string]string) error {
	for i, v := range elements(arguments) {
		s, err := word(a, v)
		if err != nil {
			return fmt.Errorf("arguments[%d]: %v", i, err)
		}
		a.Args = append(a.Args, s)
	}
	vars := map[string]string{}
	for k, v := range sealEnv {
		vars[k] = v
	}
	if env != nil {
		for k, v := range env.Entries() {
			name, ok := sl.AsString(k)
			if !ok {
				return fmt.Errorf("env: a name is a string, not %s", aValue(k))
			}
			if err := checkEnvName(name); err != nil {
				return fmt.Errorf("env: %v", err)
			}
			s, err := word(a, v)
			if err != nil {
				return fmt.Errorf("env[%q]: %v", name, err)
			}
			vars[name] = s
		}
	}
	for k, v := range vars {
		a.Env = append(a.Env, k+"="+v)
	}
	slices.Sort(a.Env)
	return nil
}

func checkEnvName(s string) error {
	if !isIdentifier(s) {
		return fmt.Errorf("%q is no name of a variable: letters, digits and _, no digit first", s)
	}
	return nil
}

// word is one argument: a string as it is; a file by its path, as the process
// sees it; a tool by that of its program; a list or tuple of these joined.
func word(a *graph.Action, v sl.Value) (string, error) {
	switch v := v.(type) {
	case sl.String:
		if err := checkWord(string(v)); err != nil {
			return "", fmt.Errorf("the string %s", err)
		}
		return string(v), nil
	case fileValue:
		return filePath(a, v.file)
	case targetValue:
		return targetPath(a, v)
	case sl.Tuple, *sl.List:
		var b strings.Builder
		for _, x := range elements(v.(sl.Iterable)) {
			s, err := word(a, x)
			if err != nil {
				return "", err
			}
			b.WriteString(s)
		}
		return b.String(), nil
	}
	return "", fmt.Errorf("a string, a file, a tool or a tuple of these is meant, not %s", aValue(v))
}

// filePath is relative for an output of the action, whose working directory is
// where outputs go, and marked for an input.
func filePath(a *graph.Action, f *graph.File) (string, error) {
	if f.Action == a {
		return f.Path, nil
	}
	name := f.Inside()
	if i, found := findInput(a, name); found && a.Inputs[i].File.Same(f) {
		return graph.RootMark + "/" + name, nil
	}
	return "", fmt.Errorf("%s is neither an input nor an output of the action", f.Slash())
}

func targetPath(a *graph.Action, t targetValue) (string, error) {
	for _, tool := range a.Tools {
		if tool.Label == t.dep.label {
			return tool.Path(), nil
		}
	}
	files := t.files()
	if len(files) != 1 {
		return "", fmt.Errorf("%s has %d files; one is meant, as in $(location %s PATH)", t.dep.label, len(files), t.dep.label)
	}
	return filePath(a, files[0])
}

// aValue names what was given where something else is meant.
func aValue(v sl.Value) string {
	switch v.(type) {
	case sl.String, targetValue, fileValue:
		return shorten(v)
	}
	return "a " + v.Type()
}
