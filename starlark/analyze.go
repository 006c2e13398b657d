package starlark

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"runtime"
	"slices"
	"strings"
	"sync"

	sl "go.starlark.net/starlark"
	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/workspace/graph"
)

// An Analysis is what a target's implementation declared.
type Analysis struct {
	Actions   []*graph.Action
	Files     []*graph.File // DefaultInfo: what building the target builds
	Exports   []Export      // further files shown in the target's output folder
	Scorecard *graph.File   // ScorecardInfo, or nil

	providers map[*providerValue]*instance
}

// An Export shows a file of any origin below the target's output folder.
type Export struct {
	Path string
	File *graph.File
}

// analysisSteps bounds one implementation.
const analysisSteps = 100_000_000

// analysisKey finds the *analysis in the thread of an implementation.
const analysisKey = "eval.analysis"

// Select loads what the patterns need and returns the targets they select, in
// order of label. Positive patterns that select nothing are returned by name.
func (l *Loader) Select(ctx context.Context, patterns []graph.Pattern, packages func(repo, prefix string) ([]string, error)) (targets []*Target, empty []graph.Pattern, err error) {
	chosen := map[graph.Label]*Target{}
	for _, p := range patterns {
		repo, err := l.opts.Files.Canonical(p.Repo)
		if err != nil {
			return nil, nil, &Error{Msg: fmt.Sprintf("pattern %s: %v", p, err)}
		}
		p.Repo = repo
		if p.Negative {
			for label := range chosen {
				if p.Matches(label) {
					delete(chosen, label)
				}
			}
			continue
		}
		pkgs := []string{p.Pkg}
		if p.Below {
			if pkgs, err = packages(p.Repo, p.Pkg); err != nil {
				return nil, nil, err
			}
		}
		if !p.Below {
			if err := l.noPackage(p, packages); err != nil {
				return nil, nil, err
			}
		}
		loaded, err := l.LoadPackages(ctx, p.Repo, pkgs)
		if err != nil {
			return nil, nil, err
		}
		n := 0
		for _, pkg := range loaded {
			for _, t := range pkg.Targets {
				if p.Matches(t.Label) {
					chosen[t.Label] = t
					n++
				}
			}
		}
		if n > 0 {
			continue
		}
		if p.Name != "" {
			return nil, nil, noTarget(loaded[0], p.Name)
		}
		empty = append(empty, p)
	}
	for _, t := range chosen {
		targets = append(targets, t)
	}
	slices.SortFunc(targets, func(a, b *Target) int { return a.Label.Compare(b.Label) })
	return targets, empty, nil
}

// noPackage is the error of a pattern whose package isn't there, or nil.
func (l *Loader) noPackage(p graph.Pattern, packages func(repo, prefix string) ([]string, error)) error {
	has, err := l.opts.Files.HasPackage(p.Repo, p.Pkg)
	if has || err != nil {
		return err
	}
	name := graph.Label{Repo: p.Repo, Pkg: p.Pkg}.Package()
	hint := ""
	if all, err := packages(p.Repo, ""); err == nil {
		hint = graph.DidYouMean(p.Pkg, all)
	}
	return &Error{Msg: fmt.Sprintf("package %s: there is no %s%s", name, buildFile, hint)}
}

func noTarget(p *Package, name string) *Error {
	var names []string
	for _, t := range p.Targets {
		names = append(names, t.Label.Name)
	}
	e := &Error{Msg: fmt.Sprintf("package %s has no target %q%s", p.label("").Package(), name, graph.DidYouMean(name, names))}
	return e
}

// Analyze analyses the targets and all that they depend on. Each Target's
// Result is set. Targets that failed are in the error; with keepGoing the
// others are analysed all the same.
func (l *Loader) Analyze(ctx context.Context, targets []*Target) error {
	order, err := l.order(ctx, targets)
	if err != nil {
		return err
	}
	// Targets of one level depend on earlier levels only.
	for _, level := range order {
		g, ctx := errgroup.WithContext(ctx)
		g.SetLimit(runtime.GOMAXPROCS(0))
		var mu sync.Mutex
		var errs []error
		for _, t := range level {
			g.Go(func() error {
				if err := ctx.Err(); err != nil {
					return err
				}
				if t.Result != nil {
					return nil
				}
				r, err := l.analyze(t)
				if err != nil {
					mu.Lock()
					defer mu.Unlock()
					errs = append(errs, l.targetError(t, err))
					return nil
				}
				t.Result = r
				return nil
			})
		}
		if err := g.Wait(); err != nil {
			return err
		}
		if err := joinErrors(errs); err != nil {
			return err
		}
	}
	return collisions(order)
}

// targetError places an error at the target's declaration if it has no better
// place in a BUILD.star.
func (l *Loader) targetError(t *Target, err error) error {
	var e *Error
	if !errors.As(err, &e) {
		return &Error{Pos: t.Pos, Msg: fmt.Sprintf("%s %s: %v", t.Kind, t.Label, err)}
	}
	out := *e
	out.Msg = fmt.Sprintf("%s %s: %s", t.Kind, t.Label, e.Msg)
	if e.Pos == "" || strings.HasPrefix(e.Pos, "@eval//") || l.opts.Module == "eval" && strings.HasPrefix(e.Pos, "rules/") {
		out.Pos = t.Pos
	}
	return &out
}

// order resolves dependencies, loading packages as needed, and sorts all
// targets into levels.
func (l *Loader) order(ctx context.Context, targets []*Target) ([][]*Target, error) {
	const (
		entered = 1
		left    = 2
	)
	state := map[*Target]int{}
	failed := map[*Target]error{}
	level := map[*Target]int{}
	var levels [][]*Target
	var path []*Target
	var visit func(*Target) error
	visit = func(t *Target) (err error) {
		switch state[t] {
		case left:
			return failed[t]
		case entered:
			i := slices.Index(path, t)
			var b strings.Builder
			for _, p := range path[i:] {
				fmt.Fprintf(&b, "\n  %s needs", p.Label)
			}
			return &Error{Pos: t.Pos, Msg: "dependency cycle:" + b.String() + "\n  " + t.Label.String()}
		}
		state[t] = entered
		path = append(path, t)
		defer func() {
			path = path[:len(path)-1]
			state[t], failed[t] = left, err
		}()
		if err := l.resolveDeps(t); err != nil {
			return err
		}
		n := 0
		for _, d := range t.deps {
			if d.target == nil {
				continue
			}
			if err := visit(d.target); err != nil {
				return err
			}
			n = max(n, level[d.target]+1)
		}
		level[t] = n
		for len(levels) <= n {
			levels = append(levels, nil)
		}
		levels[n] = append(levels[n], t)
		return nil
	}
	var errs []error
	for _, t := range targets {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if err := visit(t); err != nil {
			errs = append(errs, err)
		}
	}
	return levels, joinErrors(errs)
}

// resolveDeps finds the target or source file behind each label of t.
func (l *Loader) resolveDeps(t *Target) error {
	if t.deps != nil {
		return nil
	}
	deps := []dep{}
	for _, name := range t.rule.names {
		a := t.rule.attrs[name]
		for _, s := range a.labels(t.Attrs[name]) {
			d, err := l.resolveDep(t, name, s)
			switch err.(type) {
			case *Error, Errors: // of another file, which says where
				return err
			}
			if err != nil {
				return &Error{Pos: t.Pos, Msg: fmt.Sprintf("%s %s: %s: %v", t.Kind, t.Label, name, err)}
			}
			deps = append(deps, d)
		}
	}
	t.deps = deps
	return nil
}

func (l *Loader) resolveDep(t *Target, attr, s string) (dep, error) {
	label, err := l.resolve(s, t.Label)
	if err != nil {
		return dep{}, err
	}
	d := dep{attr: attr, label: label}
	var pkg *Package
	if label.Repo == t.Label.Repo && label.Pkg == t.Label.Pkg {
		pkg, err = l.Package(label.Repo, label.Pkg)
	} else if has, herr := l.opts.Files.HasPackage(label.Repo, label.Pkg); herr != nil {
		return d, herr
	} else if has {
		pkg, err = l.Package(label.Repo, label.Pkg)
	}
	if err != nil {
		return d, err
	}
	if pkg != nil {
		if d.target = pkg.byName[label.Name]; d.target != nil {
			if !l.visible(d.target, t.Label) {
				return d, fmt.Errorf("%s is not visible from %s (visibility = %q)", label, t.Label.Package(), d.target.Visibility)
			}
			return d, nil
		}
	}
	if err := l.opts.Files.IsFile(label.Repo, label.Path()); err != nil {
		hint := ""
		if pkg != nil {
			var names []string
			for _, x := range pkg.Targets {
				names = append(names, x.Label.Name)
			}
			hint = graph.DidYouMean(label.Name, names)
		}
		return d, fmt.Errorf("%q is neither a target nor a file: %v%s", s, err, hint)
	}
	d.file = &graph.File{Label: label}
	return d, nil
}

// visible says whether from may depend on t. Without a visibility everybody may.
func (l *Loader) visible(t *Target, from graph.Label) bool {
	if t.Visibility == nil || t.Label.Repo == from.Repo && t.Label.Pkg == from.Pkg {
		return true
	}
	for _, v := range t.Visibility {
		if v == publicVisibility {
			return true
		}
		who, err := l.resolve(v, t.Label)
		if err != nil || who.Repo != from.Repo {
			continue
		}
		switch {
		case who.Name == "__pkg__" && who.Pkg == from.Pkg,
			who.Name == "__subpackages__" && (graph.Pattern{Repo: who.Repo, Pkg: who.Pkg, Below: true}).Matches(from):
			return true
		}
	}
	return false
}

const (
	publicVisibility  = "//visibility:public"
	privateVisibility = "//visibility:private"
)

// checkVisibility refuses what visible would pass over in silence.
func (l *Loader) checkVisibility(list []string, from graph.Label) error {
	for _, v := range list {
		if v == publicVisibility || v == privateVisibility {
			continue
		}
		who, err := l.resolve(v, from)
		if err != nil {
			return err
		}
		if who.Name != "__pkg__" && who.Name != "__subpackages__" {
			return fmt.Errorf("%q is none of %s, %s, //pkg:__pkg__, //pkg:__subpackages__", v, publicVisibility, privateVisibility)
		}
	}
	return nil
}

// analyze runs one implementation.
func (l *Loader) analyze(t *Target) (*Analysis, error) {
	c := &analysis{loader: l, target: t, declared: map[string]*declared{}, parents: map[string]bool{}}
	thread := &sl.Thread{Name: t.Label.String(), Print: func(_ *sl.Thread, msg string) { l.print(msg) }}
	thread.SetLocal(analysisKey, c)
	thread.SetMaxExecutionSteps(analysisSteps)
	thread.OnMaxSteps = stepsExceeded(analysisSteps)
	ctx, err := c.value()
	if err != nil {
		return nil, err
	}
	out, err := sl.Call(thread, t.rule.impl, sl.Tuple{ctx}, nil)
	if err != nil {
		return nil, wrapError(err)
	}
	for _, check := range c.checks {
		if err := check.verify(l.prints); err != nil {
			return nil, err
		}
	}
	return c.finish(out)
}

// finish checks what the implementation declared and returned.
func (c *analysis) finish(out sl.Value) (*Analysis, error) {
	for _, p := range slices.Sorted(maps.Keys(c.declared)) {
		if c.declared[p].file.Action == nil {
			return nil, fmt.Errorf("the file %q was declared and no action makes it", p)
		}
	}
	r := &Analysis{Actions: c.actions, providers: map[*providerValue]*instance{}}
	var list []sl.Value
	switch out := out.(type) {
	case sl.NoneType:
	case *instance:
		list = []sl.Value{out}
	case sl.Iterable:
		for x := range sl.Elements(out) {
			list = append(list, x)
		}
	default:
		return nil, fmt.Errorf("the implementation returns providers, not %s", out.Type())
	}
	for _, x := range list {
		in, ok := x.(*instance)
		if !ok {
			return nil, fmt.Errorf("the implementation returns providers, not %s", x.Type())
		}
		if r.providers[in.provider] != nil {
			return nil, fmt.Errorf("the implementation returns two %s", in.Type())
		}
		if err := freeze(in); err != nil {
			return nil, err
		}
		r.providers[in.provider] = in
	}
	if in := r.providers[defaultInfo]; in != nil {
		if err := r.setDefault(in); err != nil {
			return nil, err
		}
	} else {
		in := &instance{provider: defaultInfo, values: sl.StringDict{"files": sl.NewList(nil)}}
		in.Freeze() // all that depend on the target see it
		r.providers[defaultInfo] = in
	}
	for _, e := range r.Exports {
		if err := c.claim(e.Path, &declared{file: e.File}); err != nil {
			return nil, fmt.Errorf("DefaultInfo.exports: %q: %v", e.Path, err)
		}
	}
	if in := r.providers[scorecardInfo]; in != nil {
		f, ok := in.values["file"].(fileValue)
		if !ok || f.file.Source() {
			return nil, fmt.Errorf("ScorecardInfo.file is an output")
		}
		r.Scorecard = f.file
	}
	return r, nil
}

func (r *Analysis) setDefault(in *instance) error {
	var files []sl.Value
	var err error
	switch v := in.values["files"].(type) {
	case nil, sl.NoneType:
	case *depset:
		files, err = v.list()
	case *sl.List:
		files = slices.Collect(v.Elements())
	case sl.Tuple:
		files = v
	default:
		err = fmt.Errorf("DefaultInfo.files is a list or a depset, not %s", v.Type())
	}
	if err != nil {
		return err
	}
	for _, x := range files {
		f, ok := x.(fileValue)
		if !ok {
			return fmt.Errorf("DefaultInfo.files holds a %s; files are meant", x.Type())
		}
		r.Files = append(r.Files, f.file)
	}
	switch v := in.values["exports"].(type) {
	case nil, sl.NoneType:
	default:
		return fmt.Errorf("DefaultInfo.exports maps paths to files, it is no %s", v.Type())
	case *sl.Dict:
		for _, kv := range v.Items() {
			p, ok := sl.AsString(kv[0])
			f, ok2 := kv[1].(fileValue)
			if !ok || !ok2 {
				return fmt.Errorf("DefaultInfo.exports maps paths to files")
			}
			r.Exports = append(r.Exports, Export{p, f.file})
		}
	}
	return nil
}

// collisions finds outputs of different targets that would be one path below
// eval-out, or a file where another has a folder. Only a target whose folder
// is a package (or below one) can collide with another's.
func collisions(levels [][]*Target) error {
	folders := map[string]*Target{} // output folder -> target
	above := map[string]*Target{}   // the folders above it, and itself
	for _, level := range levels {
		for _, t := range level {
			root := t.Label.Repo + "//" + t.Label.Path()
			folders[root] = t
			for end := len(root); end > len(t.Label.Repo)+1; end = strings.LastIndexByte(root[:end], '/') {
				if was := above[root[:end]]; was == nil || t.Label.Compare(was.Label) < 0 {
					above[root[:end]] = t
				}
			}
		}
	}
	var errs []error
	for _, level := range levels {
		for _, t := range level {
			if t.Result == nil {
				continue
			}
			root := t.Label.Repo + "//" + t.Label.Path() + "/"
			check := func(p string) {
				other := above[root+p] // where p is a file, another has a folder
				for end := len(p); other == nil && end > 0; end = strings.LastIndexByte(p[:end], '/') {
					other = folders[root+p[:end]] // p is within the folder of another
				}
				if other != nil {
					errs = append(errs, &Error{Pos: t.Pos, Msg: fmt.Sprintf("%s %s: its output %q is where the outputs of %s go (%s)",
						t.Kind, t.Label, p, other.Label, other.Pos)})
				}
			}
			for _, a := range t.Result.Actions {
				for _, o := range a.Outputs {
					check(o.File.Path)
				}
			}
			for _, e := range t.Result.Exports {
				check(e.Path)
			}
		}
	}
	return joinErrors(errs)
}

// A Dep is one thing that a target depends on: another target, or a source.
type Dep struct {
	Label  graph.Label
	Target *Target // nil for a source
}

// Deps lists what t depends on, in the order of its attributes, each once.
func (l *Loader) Deps(t *Target) ([]Dep, error) {
	if err := l.resolveDeps(t); err != nil {
		return nil, err
	}
	seen := map[graph.Label]bool{}
	var out []Dep
	for _, d := range t.deps {
		if !seen[d.label] {
			seen[d.label] = true
			out = append(out, Dep{d.label, d.target})
		}
	}
	return out, nil
}

// ShowValue is an attribute's value for people: functions by file and name.
func ShowValue(v sl.Value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *sl.Function:
		return functionName(v)
	case sl.String:
		return string(v)
	}
	return v.String()
}
