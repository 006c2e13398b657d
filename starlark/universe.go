package starlark

import (
	"fmt"
	"runtime"
	"slices"
	"sync"
	"unicode/utf8"

	slmath "go.starlark.net/lib/math"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/workspace/graph"
)

// builtinIDs is the registry of builtins that may be in a key: pointer →
// name@version. Versions are per builtin, so that a fix in one statistic
// re-scores only what uses it. Raise a version when a builtin can return
// something else for the same arguments; golden tests hold the outputs.
var builtinIDs = map[*sl.Builtin]string{}

type builtinFunc func(*sl.Thread, *sl.Builtin, sl.Tuple, []sl.Tuple) (sl.Value, error)

// pureBuiltin makes and registers a builtin that may run inside of actions.
func pureBuiltin(name string, version int, fn builtinFunc) *sl.Builtin {
	b := sl.NewBuiltin(name, fn)
	builtinIDs[b] = fmt.Sprintf("%s@%d", name, version)
	return b
}

// exactMath are the functions of math whose result IEEE 754 fixes to the last
// bit. The others may differ between processors (a fused multiply-add, say): the
// architecture is in the key of what uses them, so that a shared cache never
// holds two answers under one.
var exactMath = map[string]bool{
	"ceil": true, "copysign": true, "fabs": true, "floor": true, "mod": true, "remainder": true, "round": true, "sqrt": true,
}

// universeVersions are those of Starlark's own builtins that aren't 1: what dir
// gives of a module changes with the module.
var universeVersions = map[string]int{"dir": 2}

// base holds the predeclared names of every .star file.
var base = sync.OnceValue(func() sl.StringDict {
	for name, v := range sl.Universe {
		if b, ok := v.(*sl.Builtin); ok {
			builtinIDs[b] = fmt.Sprintf("%s@%d", name, max(1, universeVersions[name]))
		}
	}
	for name, v := range slmath.Module.Members {
		if b, ok := v.(*sl.Builtin); ok {
			builtinIDs[b] = "math." + name + "@1"
			if !exactMath[name] {
				builtinIDs[b] += "/" + runtime.GOARCH
			}
		}
	}
	attr := sl.StringDict{"one_of": sl.NewBuiltin("attr.one_of", makeOneOf)}
	for name := range attrTypes {
		attr[name] = sl.NewBuiltin("attr."+name, makeAttr)
	}
	d := sl.StringDict{
		"PRESENT":       present,
		"ABSENT":        absent,
		"degraded":      pureBuiltin("degraded", 1, makeDegraded),
		"struct":        pureBuiltin("struct", 1, starlarkstruct.Make),
		"depset":        pureBuiltin("depset", 1, makeDepset),
		"sample":        pureBuiltin("sample", 1, makeSample),
		"json":          jsonModule(),
		"re":            reModule(),
		"math":          slmath.Module,
		"stats":         statsModule(),
		"rule":          loadBuiltin("rule", makeRule),
		"provider":      loadBuiltin("provider", makeProvider),
		"attr":          &starlarkstruct.Module{Name: "attr", Members: attr},
		"config":        &starlarkstruct.Module{Name: "config", Members: sl.StringDict{"string": loadBuiltin("config.string", configString)}},
		"DefaultInfo":   defaultInfo,
		"ScorecardInfo": scorecardInfo,
		"SealInfo":      sealInfo,
		"ToolInfo":      toolInfo,
	}
	d.Freeze()
	return d
})

// loadBuiltin makes a builtin that works only while files load. It has a
// version all the same: a function that mentions it can be fingerprinted, and
// fails when it calls it.
func loadBuiltin(name string, fn builtinFunc) *sl.Builtin {
	b := sl.NewBuiltin(name, func(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
		if _, err := loadingOf(t, name+"()"); err != nil {
			return nil, err
		}
		return fn(t, b, args, kwargs)
	})
	builtinIDs[b] = name + "@load"
	return b
}

var (
	globBuiltin = loadBuiltin("glob", glob)
	native      = nativeModule()

	defaultInfo   = builtinProvider("DefaultInfo", "files", "exports")
	scorecardInfo = builtinProvider("ScorecardInfo", "file")
)

func builtinProvider(name string, fields ...string) *providerValue {
	slices.Sort(fields)
	return &providerValue{opaque: opaque{"provider"}, id: "builtin%" + name, fields: fields}
}

// predeclared are the names that one file sees: glob in BUILD.star, the
// native module in the built-in rules.
func (l *Loader) predeclared(file graph.Label, isBuild bool) sl.StringDict {
	builtin := file.Repo == "eval" || file.Repo == "" && l.opts.Module == "eval" && file.Pkg == "rules"
	if !isBuild && !builtin {
		return base()
	}
	d := sl.StringDict{}
	for k, v := range base() {
		d[k] = v
	}
	if isBuild {
		d["glob"] = globBuiltin
	}
	if builtin {
		d["native"] = native
	}
	return d
}

func makeDegraded(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var why string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "why", &why); err != nil {
		return nil, err
	}
	if why == "" {
		return nil, fmt.Errorf("degraded: the reason is empty")
	}
	return outcome{"DEGRADED", why}, nil
}

func makeProvider(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var fields sl.Value = sl.None
	var doc string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "fields?", &fields, "doc?", &doc); err != nil {
		return nil, err
	}
	l, err := loadingOf(t, "provider()")
	if err != nil {
		return nil, err
	}
	p := &providerValue{opaque: opaque{"provider"}, file: l.file, def: t.CallFrame(1).Pos}
	if d, ok := fields.(*sl.Dict); ok { // {name: doc}
		fields = sl.NewList(d.Keys())
	}
	if p.fields, err = stringList(fields); err != nil {
		return nil, fmt.Errorf("provider: fields: %v", err)
	}
	slices.Sort(p.fields)
	return p, nil
}

func configString(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	l, err := loadingOf(t, "config.string()")
	if err != nil {
		return nil, err
	}
	var name, value string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "name", &name, "default?", &value); err != nil {
		return nil, err
	}
	dflt := value
	if set, ok := l.loader.opts.Config[name]; ok {
		value = set
	}
	l.loader.configMu.Lock()
	defer l.loader.configMu.Unlock()
	if was, ok := l.loader.defaults[name]; ok && was != dflt {
		return nil, fmt.Errorf("config.string(%q): the default is %q here and %q elsewhere", name, dflt, was)
	}
	l.loader.defaults[name], l.loader.config[name] = dflt, value
	return sl.String(value), nil
}

func glob(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	l, err := loadingOf(t, "glob()")
	if err != nil {
		return nil, err
	}
	if l.pkg == nil {
		return nil, fmt.Errorf("glob works in BUILD.star files only")
	}
	var include, exclude sl.Value = sl.None, sl.None
	allowEmpty := true
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "include", &include, "exclude?", &exclude, "allow_empty?", &allowEmpty); err != nil {
		return nil, err
	}
	inc, err := stringList(include)
	if err != nil {
		return nil, fmt.Errorf("glob: include: %v", err)
	}
	exc, err := stringList(exclude)
	if err != nil {
		return nil, fmt.Errorf("glob: exclude: %v", err)
	}
	paths, err := l.loader.opts.Files.Glob(l.pkg.Repo, l.pkg.Pkg, inc, exc)
	if err != nil {
		return nil, err
	}
	if len(paths) == 0 && !allowEmpty {
		return nil, fmt.Errorf("glob(%s) matches no file", include)
	}
	out := make([]sl.Value, len(paths))
	for i, p := range paths {
		out[i] = sl.String(p)
	}
	return sl.NewList(out), nil
}

// badLine returns the first line with what can't be in a source, or 0: bytes
// that are not UTF-8, or a NUL, at which the scanner would end the file.
func badLine(src []byte) (line int, what string) {
	line = 1
	for len(src) > 0 {
		r, n := utf8.DecodeRune(src)
		switch {
		case r == utf8.RuneError && n == 1:
			return line, "the file is not valid UTF-8"
		case r == 0:
			return line, "the file holds a NUL"
		case r == '\n':
			line++
		}
		src = src[n:]
	}
	return 0, ""
}
