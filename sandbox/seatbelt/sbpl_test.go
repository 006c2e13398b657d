package seatbelt

import (
	"fmt"
	"strings"
	"testing"

	"github.com/evalbuild/eval/workspace/graph"
)

// A form is one expression of the profile language: an atom, a string or a
// list. It is read by the rules of TinyScheme, which sandbox-exec is made from.
type form struct {
	atom string
	text *string
	list []form
}

type parser struct{ rest string }

func parse(s string) ([]form, error) {
	p := &parser{s}
	var all []form
	for {
		if p.space(); p.rest == "" {
			return all, nil
		}
		f, err := p.form()
		if err != nil {
			return nil, err
		}
		all = append(all, f)
	}
}

func (p *parser) space() {
	for {
		p.rest = strings.TrimLeft(p.rest, " \n")
		if !strings.HasPrefix(p.rest, ";") {
			return
		}
		_, p.rest, _ = strings.Cut(p.rest, "\n")
	}
}

func (p *parser) form() (form, error) {
	switch p.space(); {
	case p.rest == "":
		return form{}, fmt.Errorf("the end inside of a form")
	case p.rest[0] == ')':
		return form{}, fmt.Errorf("a ) too many")
	case p.rest[0] == '"':
		return p.text()
	case p.rest[0] != '(':
		i := strings.IndexAny(p.rest+" ", " \n()\";")
		f := form{atom: p.rest[:i]}
		p.rest = p.rest[i:]
		return f, nil
	}
	p.rest = p.rest[1:]
	f := form{list: []form{}}
	for {
		if p.space(); strings.HasPrefix(p.rest, ")") {
			p.rest = p.rest[1:]
			return f, nil
		}
		sub, err := p.form()
		if err != nil {
			return form{}, err
		}
		f.list = append(f.list, sub)
	}
}

func (p *parser) text() (form, error) {
	var b strings.Builder
	for i := 1; i < len(p.rest); i++ {
		switch c := p.rest[i]; c {
		case '"':
			p.rest = p.rest[i+1:]
			s := b.String()
			return form{text: &s}, nil
		case '\\':
			i++
			if i == len(p.rest) || p.rest[i] != '"' && p.rest[i] != '\\' {
				return form{}, fmt.Errorf("an escape that was not tried")
			}
			b.WriteByte(p.rest[i])
		default:
			b.WriteByte(c)
		}
	}
	return form{}, fmt.Errorf("a string without end")
}

func (f form) String() string {
	switch {
	case f.text != nil:
		return `"` + *f.text + `"`
	case f.list == nil:
		return f.atom
	}
	var subs []string
	for _, s := range f.list {
		subs = append(subs, s.String())
	}
	return "(" + strings.Join(subs, " ") + ")"
}

// rules gives each pair of an operation and a filter that a profile has.
func rules(t *testing.T, profile string) []string {
	t.Helper()
	all, err := parse(profile)
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range all {
		var ops, filters []string
		for _, sub := range f.list[1:] {
			if sub.list == nil {
				ops = append(ops, sub.String())
			} else {
				filters = append(filters, sub.String())
			}
		}
		if f.list[0].atom == "deny" { // (with …) belongs to the rule
			filters = []string{strings.Join(filters, " ")}
		}
		for _, op := range ops {
			for _, filter := range filters {
				out = append(out, strings.TrimSpace(f.list[0].atom+" "+op+" "+filter))
			}
			if filters == nil {
				out = append(out, f.list[0].atom+" "+op)
			}
		}
	}
	return out
}

// texts gives all strings of a profile, and the profile with each replaced by
// a dot.
func texts(f []form) (texts []string, shape string) {
	var walk func(f form) string
	walk = func(f form) string {
		if f.text != nil {
			texts = append(texts, *f.text)
			return "."
		}
		if f.list == nil {
			return f.atom
		}
		s := "("
		for _, sub := range f.list {
			s += walk(sub) + " "
		}
		return s + ")"
	}
	for _, sub := range f {
		shape += walk(sub) + "\n"
	}
	return texts, shape
}

// FuzzPath: no path can end the literal that it is in, or be read as another.
func FuzzPath(f *testing.F) {
	for _, s := range []string{
		"plain", `a") (allow default) ("`, `back\`, `\"`, `\\"`, "new\nline", "; comment", "é", "\u202e", "(", `#"x"`, "\xff", "a/b",
		`") (subpath "/`, "${x}", "nul\x00", "\u2028", "*", `\x41`,
	} {
		f.Add(s)
	}
	program := tree(f, map[string]bool{"bin/x": true})
	profile := func(name string) (string, error) {
		source := "/Users/ann/in/" + name
		return Profile(Params{
			Root: "/Users/ann/root/" + name, Scratch: "/Users/ann/scratch/" + name,
			Mounts: []graph.Mount{
				{Path: "/in/" + name, Source: source, Executable: true},
				{Path: "/dir/" + name, Source: source + "/d", Tree: program},
			},
		})
	}
	shapeOf := func(t testing.TB, s string) ([]string, string) {
		forms, err := parse(s)
		if err != nil {
			t.Fatalf("%v in:\n%s", err, s)
		}
		return texts(forms)
	}
	f.Fuzz(func(t *testing.T, name string) {
		got, err := profile(name)
		if err != nil {
			if got != "" {
				t.Fatal("a profile with an error")
			}
			return
		}
		// A name with slashes has more ancestors.
		like := strings.Repeat("d/", strings.Count(name, "/")) + "f"
		safe, err := profile(like)
		if err != nil {
			t.Fatal(err)
		}
		gotTexts, gotShape := shapeOf(t, got)
		safeTexts, safeShape := shapeOf(t, safe)
		if gotShape != safeShape || len(gotTexts) != len(safeTexts) {
			t.Fatalf("%q changes the profile:\n%s", name, got)
		}
		for _, path := range []string{"/Users/ann/in/" + name, "/Users/ann/root/" + name, "/Users/ann/scratch/" + name, "/Users/ann/root/" + name + "/in/" + name} {
			found := false
			for _, text := range gotTexts {
				found = found || text == path
			}
			if !found {
				t.Fatalf("%q isn't in the profile:\n%s", path, got)
			}
		}
	})
}
