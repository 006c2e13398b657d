package graph

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// A Label names a target or a file of a package. Repo is "" for the workspace
// itself; Pkg is a slash path, "" for the root package.
type Label struct {
	Repo, Pkg, Name string
}

// String returns the canonical spelling: //pkg:name or @repo//pkg:name.
func (l Label) String() string {
	if l.Repo == "" {
		return "//" + l.Pkg + ":" + l.Name
	}
	return "@" + l.Repo + "//" + l.Pkg + ":" + l.Name
}

// Path is the label's slash path below the root of its repository.
func (l Label) Path() string {
	if l.Pkg == "" {
		return l.Name
	}
	return l.Pkg + "/" + l.Name
}

// Package returns the label's package as //pkg or @repo//pkg.
func (l Label) Package() string {
	if l.Repo == "" {
		return "//" + l.Pkg
	}
	return "@" + l.Repo + "//" + l.Pkg
}

// Compare orders labels by repository, package, name.
func (l Label) Compare(m Label) int {
	if c := strings.Compare(l.Repo, m.Repo); c != 0 {
		return c
	}
	if c := strings.Compare(l.Pkg, m.Pkg); c != 0 {
		return c
	}
	return strings.Compare(l.Name, m.Name)
}

// ParseLabel reads a label as written in the package of from: absolute
// (//a/b:c, //a/b for //a/b:b, @repo//a:b) or relative (:c, c, d/c).
func ParseLabel(s string, from Label) (Label, error) {
	bad := func(format string, args ...any) (Label, error) {
		return Label{}, fmt.Errorf("label %q: %s", s, fmt.Sprintf(format, args...))
	}
	l := Label{Repo: from.Repo, Pkg: from.Pkg}
	rest := s
	if strings.HasPrefix(rest, "@") {
		repo, tail, ok := strings.Cut(rest[1:], "//")
		if !ok {
			return bad("a module is followed by //, as in @shared//pkg:name")
		}
		if !validRepo(repo) {
			return bad("module names are letters, digits, '_', '-' and '.'")
		}
		l.Repo, rest = repo, "//"+tail
	}
	if strings.HasPrefix(rest, "//") {
		pkg, name, colon := strings.Cut(rest[2:], ":")
		if err := checkPath(pkg, true); err != nil {
			return bad("%v", err)
		}
		l.Pkg = pkg
		if !colon {
			if pkg == "" {
				return bad("no target is named; the root package needs one, as in //:name")
			}
			name = pkg[strings.LastIndexByte(pkg, '/')+1:]
		}
		l.Name = name
	} else {
		l.Name = strings.TrimPrefix(rest, ":")
	}
	if err := checkPath(l.Name, false); err != nil {
		return bad("%v", err)
	}
	return l, nil
}

func validRepo(s string) bool {
	for _, r := range s {
		if r > 127 || !(unicode.IsLetter(r) || unicode.IsDigit(r) || r == '_' || r == '-' || r == '.') {
			return false
		}
	}
	return s != ""
}

// checkPath accepts clean relative slash paths of printable UTF-8.
func checkPath(p string, emptyOK bool) error {
	if p == "" {
		if emptyOK {
			return nil
		}
		return fmt.Errorf("the name is empty")
	}
	if !utf8.ValidString(p) {
		return fmt.Errorf("not valid UTF-8")
	}
	for _, r := range p {
		if r == ':' || r == '\\' || unicode.IsControl(r) {
			return fmt.Errorf("the character %q is not allowed", r)
		}
	}
	for seg := range strings.SplitSeq(p, "/") {
		switch seg {
		case "":
			return fmt.Errorf("an empty path segment")
		case ".", "..", "...":
			return fmt.Errorf("the segment %q is not allowed", seg)
		}
	}
	return nil
}

// A Pattern selects targets of one repository.
type Pattern struct {
	Negative bool   // subtracts
	Repo     string // "" is the workspace
	Pkg      string
	Below    bool   // also all packages below Pkg: //pkg/...
	Name     string // "" with Below or All
	All      bool   // every target of Pkg: //pkg:all
}

// ParsePattern reads a pattern as typed in a folder of the workspace (cwd is
// its slash path, "" at the root): everything ParseLabel takes, and //...,
// //pkg/..., pkg/..., //pkg:all, each with a leading "-" to subtract. A
// relative argument such as probes/x is //probes/x:x seen from cwd.
func ParsePattern(s, cwd string) (Pattern, error) {
	var p Pattern
	rest := s
	if strings.HasPrefix(rest, "-") {
		p.Negative, rest = true, rest[1:]
	}
	bad := func(err error) (Pattern, error) {
		return Pattern{}, fmt.Errorf("pattern %q: %v", s, err)
	}
	if !strings.HasPrefix(rest, "//") && !strings.HasPrefix(rest, "@") {
		rel, name, colon := strings.Cut(rest, ":")
		rel = strings.TrimSuffix(strings.TrimPrefix(rel, "./"), "/")
		if rel == "." {
			rel = ""
		}
		if err := checkPath(cwd, true); err != nil {
			return bad(fmt.Errorf("the current folder can't be a package: %v", err))
		}
		pkg := cwd
		if rel != "" {
			pkg = strings.TrimPrefix(cwd+"/"+rel, "/")
		}
		rest = "//" + pkg
		if colon {
			rest += ":" + name
		} else if rel == "" {
			return bad(fmt.Errorf("no target is named"))
		}
	}
	if strings.HasPrefix(rest, "@") {
		repo, tail, ok := strings.Cut(rest[1:], "//")
		if !ok || !validRepo(repo) {
			return bad(fmt.Errorf("a module is followed by //, as in @shared//pkg:name"))
		}
		p.Repo, rest = repo, "//"+tail
	}
	pkg, name, colon := strings.Cut(rest[2:], ":")
	if pkg == "..." || strings.HasSuffix(pkg, "/...") {
		p.Pkg, p.Below = strings.TrimSuffix(strings.TrimSuffix(pkg, "..."), "/"), true
		if colon && name != "all" {
			return bad(fmt.Errorf("... selects whole packages; only :all may follow it"))
		}
		if err := checkPath(p.Pkg, true); err != nil {
			return bad(err)
		}
		return p, nil
	}
	if colon && (name == "all" || name == "*") {
		p.Pkg, p.All = pkg, true
		if err := checkPath(pkg, true); err != nil {
			return bad(err)
		}
		return p, nil
	}
	l, err := ParseLabel(rest, Label{})
	if err != nil {
		return Pattern{}, fmt.Errorf("pattern %q: %s", s, strings.TrimPrefix(err.Error(), fmt.Sprintf("label %q: ", rest)))
	}
	p.Pkg, p.Name = l.Pkg, l.Name
	return p, nil
}

// Matches says whether the pattern, taken as positive, selects l.
func (p Pattern) Matches(l Label) bool {
	if p.Repo != l.Repo {
		return false
	}
	switch {
	case p.Below:
		return p.Pkg == "" || l.Pkg == p.Pkg || strings.HasPrefix(l.Pkg, p.Pkg+"/")
	case p.All:
		return l.Pkg == p.Pkg
	}
	return l.Pkg == p.Pkg && l.Name == p.Name
}

// String returns the pattern in its canonical spelling.
func (p Pattern) String() string {
	s := Label{Repo: p.Repo, Pkg: p.Pkg}.Package()
	switch {
	case p.Below && p.Pkg == "":
		s += "..."
	case p.Below:
		s += "/..."
	case p.All:
		s += ":all"
	case p.Name == "all" || p.Name == "*": // typed as //all, //a/all: with a colon it is every target
	default:
		s += ":" + p.Name
	}
	if p.Negative {
		return "-" + s
	}
	return s
}
