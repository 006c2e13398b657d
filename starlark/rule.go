package starlark

import (
	"fmt"
	"slices"
	"sort"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// A ruleValue is what rule() returns; calling it in a BUILD.star declares a
// target.
type ruleValue struct {
	opaque
	kind  string // the global's name without leading underscores
	file  graph.Label
	impl  *sl.Function
	attrs map[string]*attrValue
	names []string // sorted
}

func (r *ruleValue) Name() string          { return r.kind }
func (r *ruleValue) String() string        { return "<rule " + r.kind + ">" }
func (r *ruleValue) Freeze()               { r.impl.Freeze() }
func (r *ruleValue) Hash() (uint32, error) { return sl.String(r.kind).Hash() }

// commonAttrs are those of every rule.
var commonAttrs = []string{"name", "tags", "visibility"}

func makeRule(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	l, err := loadingOf(t, "rule()")
	if err != nil {
		return nil, err
	}
	r := &ruleValue{opaque: opaque{"rule"}, file: l.file, attrs: map[string]*attrValue{}}
	var attrs *sl.Dict
	var doc string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "implementation", &r.impl, "attrs?", &attrs, "doc?", &doc); err != nil {
		return nil, err
	}
	if attrs != nil {
		for _, kv := range attrs.Items() {
			name, ok := sl.AsString(kv[0])
			if !ok || !isIdentifier(name) {
				return nil, fmt.Errorf("rule: %s is no name of an attribute", kv[0])
			}
			if slices.Contains(commonAttrs, name) {
				return nil, fmt.Errorf("rule: every rule has the attribute %q already", name)
			}
			a, ok := kv[1].(*attrValue)
			if !ok {
				return nil, fmt.Errorf("rule: attribute %q is a %s; use attr.string() and the like", name, kv[1].Type())
			}
			r.attrs[name] = a
			r.names = append(r.names, name)
		}
	}
	sort.Strings(r.names)
	return r, nil
}

func isIdentifier(s string) bool {
	for i, c := range s {
		if c != '_' && !('a' <= c && c <= 'z') && !('A' <= c && c <= 'Z') && (i == 0 || !('0' <= c && c <= '9')) {
			return false
		}
	}
	return s != ""
}

// A Target is one declared target of a package.
type Target struct {
	Label      graph.Label
	Kind       string
	Attrs      map[string]sl.Value // as written, with defaults
	Tags       []string
	Visibility []string // as written; nil is public
	Pos        string   // of the call in BUILD.star

	rule *ruleValue
	at   syntax.Position
	deps []dep

	Result *Analysis // set once analysed
}

// Rule names the rule that declared the target, as //pkg:file.star%name.
func (t *Target) Rule() string { return t.rule.file.String() + "%" + t.Kind }

// A dep is one label in an attribute, resolved to a target or a source file.
type dep struct {
	attr   string
	label  graph.Label
	target *Target     // or nil
	file   *graph.File // or nil
}

// CallInternal declares a target.
func (r *ruleValue) CallInternal(t *sl.Thread, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	l, err := loadingOf(t, "a rule")
	if err != nil {
		return nil, err
	}
	kind := r.kind
	if kind == "" {
		return nil, fmt.Errorf("a rule is called before the file that defines it has ended; assign it to a global and call it from a BUILD.star")
	}
	if l.pkg == nil {
		return nil, fmt.Errorf("%s: targets are declared in BUILD.star files only; %s is loaded by others", kind, showFile(l.file.String()))
	}
	if len(args) > 0 {
		return nil, fmt.Errorf("%s takes named arguments only, as in %s(name = \"x\")", kind, kind)
	}
	tgt := &Target{Kind: kind, Attrs: make(map[string]sl.Value, len(r.attrs)), rule: r}
	tgt.at = buildPos(t)
	tgt.Pos = showPos(tgt.at)
	name := ""
	for _, kv := range kwargs {
		k := string(kv[0].(sl.String))
		v := kv[1]
		switch k {
		case "name":
			s, ok := sl.AsString(v)
			if !ok {
				return nil, fmt.Errorf("%s: name is a string, not %s", kind, v.Type())
			}
			name = s
		case "tags":
			if tgt.Tags, err = stringList(v); err != nil {
				return nil, fmt.Errorf("%s: tags: %v", kind, err)
			}
		case "visibility":
			if v == sl.None {
				continue // as if it were not written: public
			}
			if tgt.Visibility, err = stringList(v); err != nil {
				return nil, fmt.Errorf("%s: visibility: %v", kind, err)
			}
			if tgt.Visibility == nil {
				tgt.Visibility = []string{} // private
			}
			if err := l.loader.checkVisibility(tgt.Visibility, l.pkg.label("")); err != nil {
				return nil, fmt.Errorf("%s: visibility: %v", kind, err)
			}
		default:
			a, ok := r.attrs[k]
			if !ok {
				return nil, fmt.Errorf("%s has no attribute %q%s", kind, k, graph.DidYouMean(k, append(slices.Clone(r.names), commonAttrs...)))
			}
			if v == sl.None && !a.mandatory {
				continue // as if it were not written
			}
			if err := a.check(v); err != nil {
				return nil, fmt.Errorf("%s: %s: %v", kind, k, err)
			}
			if err := freeze(v); err != nil { // a lambda that lives only here is not frozen with its module
				return nil, fmt.Errorf("%s: %s: %v", kind, k, err)
			}
			tgt.Attrs[k] = v
			check, err := newCellCheck(l.loader.prints, functionsOnly(v), tgt.at)
			if err != nil {
				return nil, fmt.Errorf("%s: %s: %v", kind, k, err)
			}
			if len(check.before) > 0 {
				l.checks = append(l.checks, check)
			}
		}
	}
	if name == "" {
		return nil, fmt.Errorf("%s: name is missing", kind)
	}
	if tgt.Label, err = graph.ParseLabel(":"+name, l.pkg.label("")); err != nil {
		return nil, fmt.Errorf("%s: name: %v", kind, err)
	}
	if name == "all" || name == "*" {
		return nil, fmt.Errorf("%s: name %q means every target of a package in patterns", kind, name)
	}
	for _, n := range r.names {
		if _, ok := tgt.Attrs[n]; ok {
			continue
		}
		if r.attrs[n].mandatory {
			return nil, fmt.Errorf("%s %q: the attribute %q is missing", kind, name, n)
		}
		tgt.Attrs[n] = r.attrs[n].zero()
	}
	if other := l.pkg.byName[name]; other != nil {
		return nil, fmt.Errorf("%s: the package has a target of this name already, declared at %s", tgt.Label, other.Pos)
	}
	l.pkg.byName[name] = tgt
	l.pkg.Targets = append(l.pkg.Targets, tgt)
	return sl.None, nil
}

// functionsOnly returns v if functions may be in it; strings, numbers and the
// like can't capture anything.
func functionsOnly(v sl.Value) sl.Value {
	switch v.(type) {
	case sl.NoneType, sl.Bool, sl.Int, sl.Float, sl.String, sl.Bytes:
		return sl.None
	}
	return v
}

// buildPos is the innermost position of the call stack in the BUILD.star.
func buildPos(t *sl.Thread) syntax.Position {
	for i := range t.CallStackDepth() {
		if p := t.CallFrame(i).Pos; strings.HasSuffix(p.Filename(), ":"+buildFile) {
			return p
		}
	}
	return t.CallFrame(min(1, t.CallStackDepth()-1)).Pos
}

func stringList(v sl.Value) ([]string, error) {
	if v == sl.None {
		return nil, nil
	}
	seq, ok := v.(sl.Iterable)
	if _, isDict := v.(*sl.Dict); !ok || isDict {
		return nil, fmt.Errorf("a list of strings is meant, not %s", v.Type())
	}
	var out []string
	for x := range sl.Elements(seq) {
		s, ok := sl.AsString(x)
		if !ok {
			return nil, fmt.Errorf("a list of strings is meant; it holds a %s", x.Type())
		}
		out = append(out, s)
	}
	return out, nil
}
