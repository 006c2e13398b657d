package starlark

import (
	"context"
	"fmt"
	"path"
	"runtime"
	"slices"
	"sort"
	"strings"
	"sync"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"
	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/workspace/graph"
)

// Files is what loading and analysis may see of the disk. All paths are slash
// paths below the root of a repository; "" is the workspace.
type Files interface {
	// Canonical resolves the name of a repository ("eval" inside of eval is "").
	Canonical(repo string) (string, error)
	ReadFile(repo, rel string) ([]byte, error)
	// ReadHead reads at most the first n bytes.
	ReadHead(repo, rel string, n int) ([]byte, error)
	Glob(repo, pkg string, include, exclude []string) ([]string, error)
	HasPackage(repo, pkg string) (bool, error)
	// IsFile is nil if rel is a regular file.
	IsFile(repo, rel string) error
}

// Options are a Loader's parts.
type Options struct {
	Files  Files
	Module string            // name of the workspace's module
	Config map[string]string // --set
	Print  func(msg string)  // where print() goes; nil drops it
	Limit  uint64            // steps for one file; 0 takes the default
	// Unsealed has runs go without a seal (--seal=none), under keys of their own.
	Unsealed bool
}

// dialect is the language of all .star files: its flags are part of Semantics.
// There is no for or if outside of functions, as in Bazel's: a function over the
// variable of such a loop would see its last value only.
var dialect = &syntax.FileOptions{Set: true}

// Semantics names the interpreter, its dialect and the canonical JSON that it
// writes. It is in the key of every evaluate action: raise it when the same
// program could give another result.
const Semantics = "starlark-go 1; set; json 1"

const (
	buildFile  = "BUILD.star"
	moduleFile = "MODULE.star"
	loadSteps  = 100_000_000
	maxSource  = 16 << 20
)

// A Loader loads .star files, each once, and analyses targets.
// It is safe for concurrent use.
type Loader struct {
	opts   Options
	prints *fingerprinter

	portables sync.Map // frozen value -> *portableEntry

	mu       sync.Mutex
	modules  map[graph.Label]*module
	packages map[pkgKey]*Package

	configMu sync.Mutex
	config   map[string]string // what config.string() was asked for: name -> value
	defaults map[string]string // and the default that it was given
}

type pkgKey struct{ repo, pkg string }

// A Package is a loaded BUILD.star: its targets by name, in order.
type Package struct {
	Repo, Pkg string
	Targets   []*Target
	byName    map[string]*Target

	done chan struct{}
	err  error
}

// Target returns the named target, or nil.
func (p *Package) Target(name string) *Target { return p.byName[name] }

func (p *Package) label(name string) graph.Label {
	return graph.Label{Repo: p.Repo, Pkg: p.Pkg, Name: name}
}

// New returns a Loader.
func New(o Options) *Loader {
	if o.Limit == 0 {
		o.Limit = loadSteps
	}
	return &Loader{
		opts:     o,
		prints:   &fingerprinter{codes: map[codeKey]*code{}},
		modules:  map[graph.Label]*module{},
		packages: map[pkgKey]*Package{},
		config:   map[string]string{},
		defaults: map[string]string{},
	}
}

// module is one .star file being loaded or loaded.
type module struct {
	label   graph.Label
	owner   *chain // who loads it
	done    chan struct{}
	globals sl.StringDict
	err     error
}

func (m *module) isDone() bool {
	select {
	case <-m.done:
		return true
	default:
		return false
	}
}

// A chain is one line of nested loads, run by one goroutine. waits is the
// module of another chain that it waits for, guarded by Loader.mu.
type chain struct {
	stack []graph.Label
	waits *module
}

// loading is what builtins of the load phase find in their thread; threads of
// evaluate actions have none, so those builtins fail there.
type loading struct {
	loader *Loader
	chain  *chain
	file   graph.Label
	pkg    *Package // of a BUILD.star, else nil
	checks []cellCheck
}

const loadingKey = "eval.loading"

func loadingOf(t *sl.Thread, what string) (*loading, error) {
	l, _ := t.Local(loadingKey).(*loading)
	if l == nil {
		return nil, fmt.Errorf("%s works only while .star files load, not inside of an action or an implementation", what)
	}
	return l, nil
}

// LoadPackages loads the BUILD.star of each package, in parallel.
func (l *Loader) LoadPackages(ctx context.Context, repo string, pkgs []string) ([]*Package, error) {
	out := make([]*Package, len(pkgs))
	errs := make([]error, len(pkgs))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(runtime.GOMAXPROCS(0))
	for i, pkg := range pkgs {
		g.Go(func() error {
			if err := ctx.Err(); err != nil {
				return err
			}
			out[i], errs[i] = l.Package(repo, pkg)
			return nil
		})
	}
	if err := g.Wait(); err != nil {
		return nil, err
	}
	return out, joinErrors(errs)
}

// joinErrors makes one error of several, in a fixed order, without repeats.
func joinErrors(errs []error) error {
	var all Errors
	for _, err := range errs {
		switch err := err.(type) {
		case nil:
		case *Error:
			all = append(all, err)
		case Errors:
			all = append(all, err...)
		default:
			return err
		}
	}
	sort.SliceStable(all, func(i, j int) bool { return all[i].Error() < all[j].Error() })
	all = slices.CompactFunc(all, func(a, b *Error) bool { return a.Error() == b.Error() })
	switch len(all) {
	case 0:
		return nil
	case 1:
		return all[0]
	}
	return all
}

// Package loads one package, or waits for who does.
func (l *Loader) Package(repo, pkg string) (*Package, error) {
	key := pkgKey{repo, pkg}
	l.mu.Lock()
	p, ok := l.packages[key]
	if ok {
		l.mu.Unlock()
		<-p.done
		return p, p.err
	}
	p = &Package{Repo: repo, Pkg: pkg, byName: map[string]*Target{}, done: make(chan struct{})}
	l.packages[key] = p
	l.mu.Unlock()
	defer close(p.done)
	c := &chain{}
	p.err = func() error {
		has, err := l.opts.Files.HasPackage(repo, pkg)
		if err != nil {
			return err
		}
		if !has {
			return &Error{Msg: fmt.Sprintf("package %s: there is no %s", p.label("").Package(), buildFile)}
		}
		_, err = l.exec(c, p.label(buildFile), p)
		return err
	}()
	return p, p.err
}

// exec runs one file.
func (l *Loader) exec(c *chain, label graph.Label, pkg *Package) (sl.StringDict, error) {
	src, err := l.opts.Files.ReadFile(label.Repo, label.Path())
	if err != nil {
		return nil, &Error{Pos: showFile(label.String()), Msg: err.Error()}
	}
	if len(src) > maxSource {
		return nil, &Error{Pos: showFile(label.String()), Msg: fmt.Sprintf("the file has %d bytes; at most %d can be loaded", len(src), maxSource)}
	}
	if line, what := badLine(src); line > 0 {
		return nil, &Error{Pos: fmt.Sprintf("%s:%d:1", showFile(label.String()), line), Msg: what}
	}
	predeclared := l.predeclared(label, pkg != nil)
	file, program, err := sl.SourceProgramOptions(dialect, label.String(), src, predeclared.Has)
	if err != nil {
		return nil, wrapError(err)
	}
	if err := indexCode(file, program, l.prints.add); err != nil {
		return nil, err
	}
	state := &loading{loader: l, chain: c, file: label, pkg: pkg}
	thread := &sl.Thread{
		Name:  label.String(),
		Print: func(_ *sl.Thread, msg string) { l.print(msg) },
		Load: func(t *sl.Thread, name string) (sl.StringDict, error) {
			return l.load(c, label, name, t)
		},
	}
	thread.SetLocal(loadingKey, state)
	thread.SetMaxExecutionSteps(l.opts.Limit)
	thread.OnMaxSteps = stepsExceeded(l.opts.Limit)
	c.stack = append(c.stack, label)
	globals, err := program.Init(thread, predeclared)
	c.stack = c.stack[:len(c.stack)-1]
	if err != nil {
		return nil, l.suggestKeyword(wrapError(err))
	}
	l.name(label, globals)
	for _, name := range globals.Keys() {
		if err := freeze(globals[name]); err != nil {
			return nil, &Error{Pos: fmt.Sprintf("%s:1:1", showFile(label.String())), Msg: fmt.Sprintf("the global %s: %v", name, err)}
		}
	}
	for _, check := range state.checks {
		if err := check.verify(l.prints); err != nil {
			return nil, err
		}
	}
	return globals, nil
}

func stepsExceeded(limit uint64) func(*sl.Thread) {
	return func(t *sl.Thread) { t.Cancel(fmt.Sprintf("more than %d steps", limit)) }
}

func (l *Loader) print(msg string) {
	if l.opts.Print != nil {
		l.opts.Print(msg)
	}
}

// name gives the rules and providers that a file assigned to globals their
// names; a second name for one is no rename. Another file's are left alone: it
// would depend on who comes first.
func (l *Loader) name(file graph.Label, globals sl.StringDict) {
	id := file
	if id.Repo == "" { // the same file is known alike from outside
		id.Repo = l.opts.Module
	}
	for _, g := range globals.Keys() {
		switch v := globals[g].(type) {
		case *providerValue:
			if v.id == "" && v.file == file {
				v.id = id.String() + "%" + g
			}
		case *ruleValue:
			if v.kind == "" && v.file == file {
				v.kind = strings.TrimPrefix(g, "_")
			}
		}
	}
}

// load is the load() statement: it runs the file, or waits for who does.
func (l *Loader) load(c *chain, from graph.Label, name string, t *sl.Thread) (sl.StringDict, error) {
	at := t.CallFrame(0).Pos
	label, err := l.resolve(name, from)
	if err != nil {
		return nil, errorAt(at, "load: %v", err)
	}
	if base := path.Base(label.Name); path.Ext(base) != ".star" || base == buildFile || base == moduleFile {
		return nil, errorAt(at, "load %q: only .star files other than BUILD.star and MODULE.star can be loaded", name)
	}
	if slices.Contains(c.stack, label) {
		return nil, l.cycle(at, label)
	}
	l.mu.Lock()
	m, ok := l.modules[label]
	if !ok {
		m = &module{label: label, owner: c, done: make(chan struct{})}
		l.modules[label] = m
		l.mu.Unlock()
		m.globals, m.err = l.exec(c, label, nil)
		close(m.done)
	} else {
		// Two chains that wait for each other would wait for ever: follow
		// who waits for whom before waiting.
		if m.isDone() {
			l.mu.Unlock()
		} else {
			// (A chain whose module is done is about to go on: it waits no more.)
			for w := m; w != nil && !w.isDone(); w = w.owner.waits {
				if w.owner == c {
					l.mu.Unlock()
					return nil, l.cycle(at, label)
				}
			}
			c.waits = m
			l.mu.Unlock()
			<-m.done
			l.mu.Lock()
			c.waits = nil
			l.mu.Unlock()
		}
	}
	if m.err != nil {
		return nil, notFoundHint(m.err, at, name)
	}
	return m.globals, nil
}

// notFoundHint places the error of a file that could not be read at the load
// statement that asked for it.
func notFoundHint(err error, at syntax.Position, name string) error {
	if e, ok := err.(*Error); ok && !strings.Contains(e.Pos, ".star:") {
		return errorAt(at, "load %q: %s", name, e.Msg)
	}
	return err
}

// resolve parses a label and resolves its repository's name.
func (l *Loader) resolve(name string, from graph.Label) (graph.Label, error) {
	label, err := graph.ParseLabel(name, from)
	if err != nil {
		return label, err
	}
	if strings.HasPrefix(name, "@") {
		if label.Repo, err = l.opts.Files.Canonical(label.Repo); err != nil {
			return label, fmt.Errorf("label %q: %v", name, err)
		}
	}
	return label, nil
}

// cycle tells of the load cycle through start. It is found by reading load
// statements alone, from the least file of all those that load each other, so
// that the message is the same whichever goroutine came first.
func (l *Loader) cycle(at syntax.Position, start graph.Label) error {
	after := l.loadsBelow(start)
	for label := range after {
		if label.Compare(start) < 0 && l.loadsBelow(label)[start] {
			start = label
		}
	}
	path := l.findCycle(start, start, map[graph.Label]bool{})
	if path == nil { // the files changed meanwhile
		return errorAt(at, "load cycle through %s", start)
	}
	var b strings.Builder
	for _, p := range path {
		fmt.Fprintf(&b, "\n  %s loads", p.label)
	}
	return errorAt(path[0].pos, "load cycle:%s\n  %s", b.String(), start)
}

type loadStep struct {
	label graph.Label // the file that loads
	pos   syntax.Position
	next  graph.Label
}

// loadsOf lists what a file loads, in order, as far as it can be read.
func (l *Loader) loadsOf(from graph.Label) []loadStep {
	src, err := l.opts.Files.ReadFile(from.Repo, from.Path())
	if err != nil {
		return nil
	}
	f, err := dialect.Parse(from.String(), src, 0)
	if err != nil {
		return nil
	}
	var out []loadStep
	for _, s := range f.Stmts {
		if s, ok := s.(*syntax.LoadStmt); ok {
			if next, err := l.resolve(s.ModuleName(), from); err == nil {
				out = append(out, loadStep{from, s.Load, next})
			}
		}
	}
	return out
}

// loadsBelow is the set of files that from loads, and those load, and so on.
func (l *Loader) loadsBelow(from graph.Label) map[graph.Label]bool {
	below := map[graph.Label]bool{}
	var visit func(graph.Label)
	visit = func(from graph.Label) {
		for _, step := range l.loadsOf(from) {
			if !below[step.next] {
				below[step.next] = true
				visit(step.next)
			}
		}
	}
	visit(from)
	return below
}

func (l *Loader) findCycle(from, to graph.Label, seen map[graph.Label]bool) []loadStep {
	if seen[from] {
		return nil
	}
	seen[from] = true
	for _, step := range l.loadsOf(from) {
		if step.next == to {
			return []loadStep{step}
		}
		if path := l.findCycle(step.next, to, seen); path != nil {
			return append([]loadStep{step}, path...)
		}
	}
	return nil
}

// ConfigUsed returns the names that config.string() was asked for and what it
// answered.
func (l *Loader) ConfigUsed() map[string]string {
	l.configMu.Lock()
	defer l.configMu.Unlock()
	out := make(map[string]string, len(l.config))
	for k, v := range l.config {
		out[k] = v
	}
	return out
}
