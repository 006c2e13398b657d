package workspace

import (
	"encoding/base64"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"

	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/cas"

	"github.com/evalbuild/eval/workspace/graph"
)

// ModuleFile is the name of the file at the root of a workspace.
const ModuleFile = "MODULE.star"

// A Module is what MODULE.star declares.
type Module struct {
	Name            string       // "" if module() is not called
	Eval            string       // the versions of eval it works with, ">=0.1"; "" is any
	Digest          cas.Func     // cas.BLAKE3 unless declared
	TrustedBuilders []string     // public keys, "ed25519:BASE64"; none: a result may be anybody's
	Dependencies    []Dependency // as declared
}

// A Dependency is another workspace on this disk, whose packages labels reach
// as @Name//pkg:name.
type Dependency struct {
	Name string
	Path string // a slash path relative to the root; it may begin with ".."
}

const (
	// maxModuleBytes is room for a thousand dependencies.
	maxModuleBytes = 64 << 10
	// maxModuleSteps is some hundred times what 100 dependencies take. Steps
	// bound time; nothing bounds memory, as in every .star file.
	maxModuleSteps = 100_000
	// builtin is the repository of the rules in the binary.
	builtin = "eval"
)

var moduleName = regexp.MustCompile(`^[A-Za-z0-9_.-]+$`)

// moduleError is an error at a place of MODULE.star.
type moduleError struct {
	pos   syntax.Position
	text  string
	hint  string
	cause error // or nil
}

func (e *moduleError) Error() string { return e.pos.String() + ": " + e.text }
func (e *moduleError) Hint() string  { return e.hint }
func (e *moduleError) Unwrap() error { return e.cause }

// place is a position without its file, as a map key.
type place struct{ line, col int32 }

// moduleFile is one evaluation of MODULE.star.
type moduleFile struct {
	version  string // of eval, or ""
	calls    map[place]*syntax.CallExpr
	module   Module
	declared bool              // module() was called
	paths    []syntax.Position // of Dependencies[i].Path
}

// parseModule evaluates the text of MODULE.star. It reads nothing else:
// whether the dependencies are there is for Workspace.declare.
func parseModule(src []byte, version string) (*moduleFile, error) {
	m := &moduleFile{
		version: version,
		calls:   map[place]*syntax.CallExpr{},
		module:  Module{Digest: cas.BLAKE3},
	}
	options := &syntax.FileOptions{}
	file, err := options.Parse(ModuleFile, src, 0)
	if err != nil {
		return nil, located(err)
	}
	var load *syntax.LoadStmt
	syntax.Walk(file, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.CallExpr:
			m.calls[place{n.Lparen.Line, n.Lparen.Col}] = n
		case *syntax.LoadStmt:
			load = n
		}
		return true
	})
	if load != nil {
		return nil, &moduleError{pos: load.Load, text: "load is not available in " + ModuleFile}
	}
	predeclared := sl.StringDict{
		"module":     sl.NewBuiltin("module", m.declareModule),
		"dependency": sl.NewBuiltin("dependency", m.declareDependency),
	}
	program, err := sl.FileProgram(file, predeclared.Has)
	if err != nil {
		return nil, located(err)
	}
	thread := &sl.Thread{Name: ModuleFile, Print: func(*sl.Thread, string) {}}
	thread.SetMaxExecutionSteps(maxModuleSteps)
	thread.OnMaxSteps = func(t *sl.Thread) { t.Cancel(fmt.Sprintf("more than %d steps", maxModuleSteps)) }
	if _, err := program.Init(thread, predeclared); err != nil {
		return nil, located(err)
	}
	return m, m.checkNames()
}

// checkNames compares names with each other; module() may come last.
func (m *moduleFile) checkNames() error {
	for i, d := range m.module.Dependencies {
		if d.Name == m.module.Name {
			return &moduleError{pos: m.paths[i], text: fmt.Sprintf("dependency: %q is the name of this module", d.Name)}
		}
	}
	return nil
}

func (m *moduleFile) declareModule(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	c, err := m.bind(t, b, args, kwargs, "name", "eval", "digest", "trusted_builders")
	if err != nil {
		return nil, err
	}
	if m.declared {
		return nil, c.errorf("", "called twice")
	}
	m.declared = true
	if m.module.Name, err = c.name(); err != nil {
		return nil, err
	}
	if m.module.Eval, err = c.text("eval", ""); err != nil {
		return nil, err
	}
	if err := m.checkVersion(c); err != nil {
		return nil, err
	}
	digest, err := c.text("digest", "blake3")
	if err != nil {
		return nil, err
	}
	if m.module.Digest, err = cas.ParseFunc(digest); err != nil {
		return nil, c.errorf("digest", "digest = %q: want blake3 or sha256%s", digest, graph.DidYouMean(digest, []string{"blake3", "sha256"}))
	}
	if m.module.TrustedBuilders, err = c.texts("trusted_builders"); err != nil {
		return nil, err
	}
	for i, text := range m.module.TrustedBuilders {
		if !isPublicKey(text) {
			return nil, c.errorf("trusted_builders", "trusted_builders[%d] = %q: want a public key, ed25519:BASE64, as `ev doctor --remote_sign=FILE` prints it", i, text)
		}
	}
	return sl.None, nil
}

// isPublicKey says whether the text has the form of a key; that it is a point of
// the curve is only known when it is used.
func isPublicKey(text string) bool {
	encoded, ok := strings.CutPrefix(text, "ed25519:")
	b, err := base64.StdEncoding.Strict().DecodeString(encoded)
	return ok && err == nil && len(b) == 32
}

func (m *moduleFile) checkVersion(c *call) error {
	if m.module.Eval == "" {
		return nil
	}
	v, err := parseVersion(m.version)
	if m.version != "" && err != nil {
		return fmt.Errorf("open workspace: this eval: %w", err)
	}
	ok, err := satisfies(v, m.module.Eval)
	switch {
	case err != nil:
		return c.errorf("eval", "eval = %q: %v", m.module.Eval, err)
	case !ok && m.version != "":
		e := c.errorf("eval", "this workspace needs eval %s, and this is eval %s", m.module.Eval, m.version)
		e.hint = "install a version that fits, or change the constraint"
		return e
	}
	return nil
}

func (m *moduleFile) declareDependency(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	c, err := m.bind(t, b, args, kwargs, "name", "path")
	if err != nil {
		return nil, err
	}
	var d Dependency
	if d.Name, err = c.name(); err != nil {
		return nil, err
	}
	if d.Name == builtin {
		return nil, c.errorf("name", "the name %q is reserved for the rules in the binary", builtin)
	}
	if slices.ContainsFunc(m.module.Dependencies, func(o Dependency) bool { return o.Name == d.Name }) {
		return nil, c.errorf("name", "%q is declared twice", d.Name)
	}
	if !c.has("path") {
		return nil, c.errorf("", "the argument path is missing")
	}
	if d.Path, err = c.text("path", ""); err != nil {
		return nil, err
	}
	switch {
	case d.Path == "" || strings.ContainsRune(d.Path, 0):
		return nil, c.errorf("path", "path = %q is not a path", d.Path)
	case strings.HasPrefix(d.Path, "/"):
		return nil, c.errorf("path", "path = %q: want a path relative to the root of this workspace", d.Path)
	}
	m.module.Dependencies = append(m.module.Dependencies, d)
	m.paths = append(m.paths, c.pos("path"))
	return sl.None, nil
}

// located turns an error of Starlark into one that begins file:line:col.
func located(err error) error {
	var ours *moduleError
	if errors.As(err, &ours) {
		return ours
	}
	var evaluation *sl.EvalError
	if errors.As(err, &evaluation) {
		// The innermost frame may be a builtin, whose position says nothing.
		for i := range evaluation.CallStack {
			if f := evaluation.CallStack.At(i); f.Pos.Filename() == ModuleFile {
				return &moduleError{pos: f.Pos, text: evaluation.Msg, cause: evaluation}
			}
		}
		return fmt.Errorf("evaluate %s: %w", ModuleFile, err)
	}
	var unresolved resolve.ErrorList
	if errors.As(err, &unresolved) && len(unresolved) > 0 {
		text := unresolved[0].Msg
		if name, ok := strings.CutPrefix(text, "undefined: "); ok {
			text += graph.DidYouMean(name, append([]string{"module", "dependency"}, sl.Universe.Keys()...))
		}
		return &moduleError{pos: unresolved[0].Pos, text: text, cause: err}
	}
	return err // of the scanner or parser: they say where
}
