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

// Analyze analyses the targets and all that they depend on. Each Target's
// Result is set. The error holds every target of the first level of
// dependencies at which any failed.
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
		if !ok || f.file.Source() || f.file.Folder() {
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
