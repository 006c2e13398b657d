package starlark

import (
	"fmt"

	"github.com/evalbuild/eval/workspace/graph"
)

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

// Labels lists the labels that stand in an attribute, resolved. Deps or Analyze
// came before.
func (t *Target) Labels(attr string) []graph.Label {
	var out []graph.Label
	for _, d := range t.deps {
		if d.attr == attr {
			out = append(out, d.label)
		}
	}
	return out
}
