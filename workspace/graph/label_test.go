package graph

import (
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestParseLabel(t *testing.T) {
	home := Label{Pkg: "a/b", Name: "x"}
	away := Label{Repo: "shared", Pkg: "s"}
	for _, c := range []struct {
		in   string
		from Label
		want string // or "error: …"
	}{
		{"//a:b", home, "//a:b"},
		{"//a", home, "//a:a"},
		{"//a/b/c", home, "//a/b/c:c"},
		{"//a/b:c/d.txt", home, "//a/b:c/d.txt"},
		{"//:x", home, "//:x"},
		{":x", home, "//a/b:x"},
		{"x", home, "//a/b:x"},
		{"x/y.txt", home, "//a/b:x/y.txt"},
		{"x", Label{}, "//:x"},
		{"@shared//a:b", home, "@shared//a:b"},
		{"@shared//a", home, "@shared//a:a"},
		{"@shared//:x", home, "@shared//:x"},
		{"@a.b-c_1//x:y", home, "@a.b-c_1//x:y"},
		{":x", away, "@shared//s:x"},
		{"//a:b", away, "@shared//a:b"},
		{"@other//a:b", away, "@other//a:b"},
		{"//a b:c d", home, "//a b:c d"},
		{"//ä/日本:é.txt", home, "//ä/日本:é.txt"},
		{"//a:b@c", home, "//a:b@c"},
		{"//a:-x", home, "//a:-x"},
		{"-x", home, "//a/b:-x"},
		{"//a:.hidden", home, "//a:.hidden"},
		{"//a/..b:c..", home, "//a/..b:c.."},
		{"//a:b....", home, "//a:b...."},
		{"//a:*", home, "//a:*"},
		{"//a:'$(x)", home, "//a:'$(x)"},
		{"", home, "error: the name is empty"},
		{":", home, "error: the name is empty"},
		{"//", home, "error: no target is named; the root package needs one, as in //:name"},
		{"//a:", home, "error: the name is empty"},
		{"//:", home, "error: the name is empty"},
		{"///a", home, "error: an empty path segment"},
		{"/a", home, "error: an empty path segment"},
		{"//a/", home, "error: an empty path segment"},
		{"//a//b", home, "error: an empty path segment"},
		{"//a:b:c", home, "error: the character ':' is not allowed"},
		{"a:b", home, "error: the character ':' is not allowed"},
		{"::a", home, "error: the character ':' is not allowed"},
		{"//a:../b", home, "error: the segment \"..\" is not allowed"},
		{"//../a", home, "error: the segment \"..\" is not allowed"},
		{"//a/./b", home, "error: the segment \".\" is not allowed"},
		{"//...", home, "error: the segment \"...\" is not allowed"},
		{"//a/...:b", home, "error: the segment \"...\" is not allowed"},
		{"//a\\b", home, "error: the character '\\\\' is not allowed"},
		{"//a:b\n", home, "error: the character '\\n' is not allowed"},
		{"//a:b\x00", home, "error: the character '\\x00' is not allowed"},
		{"//a:b\x7f", home, "error: the character '\\x7f' is not allowed"},
		{"//a:b\u0085", home, "error: the character '\\u0085' is not allowed"},
		{"//a:\xff", home, "error: not valid UTF-8"},
		{"@", home, "error: a module is followed by //"},
		{"@shared", home, "error: a module is followed by //"},
		{"@shared:a", home, "error: a module is followed by //"},
		{"@//a:b", home, "error: module names are letters"},
		{"@sh/ared//a:b", home, "error: module names are letters"},
		{"@é//a:b", home, "error: module names are letters"},
		{"@@shared//a:b", home, "error: module names are letters"},
		{"@shared//", home, "error: no target is named"},
	} {
		l, err := ParseLabel(c.in, c.from)
		got := l.String()
		if err != nil {
			if got = "error: " + err.Error(); !strings.HasPrefix(err.Error(), "label \"") {
				t.Errorf("%q: %v does not name it", c.in, err)
			}
		}
		want, wantErr := strings.CutPrefix(c.want, "error: ")
		if wantErr != (err != nil) || !strings.Contains(got, want) || !wantErr && got != want {
			t.Errorf("ParseLabel(%q) = %s, want %s", c.in, got, c.want)
		}
		if err != nil {
			if l != (Label{}) {
				t.Errorf("%q: an error and %+v", c.in, l)
			}
			continue
		}
		if back, err := ParseLabel(got, Label{Repo: "else", Pkg: "where"}); l.Repo != "" && (err != nil || back != l) {
			t.Errorf("%s is read as %+v, %v", got, back, err)
		}
	}
}

func TestLabelParts(t *testing.T) {
	for _, c := range []struct {
		l         Label
		path, pkg string
	}{
		{Label{Pkg: "a/b", Name: "c/d"}, "a/b/c/d", "//a/b"},
		{Label{Name: "c"}, "c", "//"},
		{Label{Repo: "r", Pkg: "a", Name: "c"}, "a/c", "@r//a"},
	} {
		if c.l.Path() != c.path || c.l.Package() != c.pkg {
			t.Errorf("%v: %s, %s", c.l, c.l.Path(), c.l.Package())
		}
	}
	sorted := []Label{{"", "a", "b"}, {"", "a", "c"}, {"", "a/b", "a"}, {"", "b", "a"}, {"r", "a", "a"}}
	shuffled := []Label{sorted[3], sorted[4], sorted[1], sorted[0], sorted[2]}
	slices.SortFunc(shuffled, Label.Compare)
	if !slices.Equal(shuffled, sorted) || sorted[0].Compare(sorted[0]) != 0 {
		t.Errorf("got %v", shuffled)
	}
}

func TestParsePattern(t *testing.T) {
	for _, c := range []struct{ in, cwd, want string }{
		{"//...", "a/b", "//..."},
		{"//a/...", "", "//a/..."},
		{"//a/b/...", "x", "//a/b/..."},
		{"//a:all", "", "//a:all"},
		{"//a:*", "", "//a:all"},
		{"//:all", "a", "//:all"},
		{"//...:all", "", "//..."},
		{"//a/...:all", "", "//a/..."},
		{"//a", "", "//a:a"},
		{"//a:b", "x", "//a:b"},
		{"//a:b/c", "x", "//a:b/c"},
		{"-//a/...", "", "-//a/..."},
		{"-//a:b", "", "-//a:b"},
		{"-a:b", "x", "-//x/a:b"},
		{"-...", "x", "-//x/..."},
		{"@shared//...", "a", "@shared//..."},
		{"@shared//a/...", "a", "@shared//a/..."},
		{"@shared//a:all", "a", "@shared//a:all"},
		{"@shared//a", "x", "@shared//a:a"},
		{"-@shared//a:b", "", "-@shared//a:b"},
		{"...", "", "//..."},
		{"...", "a", "//a/..."},
		{"./...", "a/b", "//a/b/..."},
		{"b/...", "a", "//a/b/..."},
		{"b", "", "//b:b"},
		{"b", "a", "//a/b:b"},
		{"./b", "a", "//a/b:b"},
		{"b/", "a", "//a/b:b"},
		{"b/c", "a", "//a/b/c:c"},
		{"b:c", "a", "//a/b:c"},
		{"b:all", "a", "//a/b:all"},
		{":c", "a/b", "//a/b:c"},
		{":all", "a", "//a:all"},
		{":all", "", "//:all"},
		{":c", "", "//:c"},
		{".:c", "a", "//a:c"},
		{"./:c", "a", "//a:c"},
		{"日本/é", "ä", "//ä/日本/é:é"},
		{"//a...", "", "//a...:a..."},
		{"b c:d e", "", "//b c:d e"},
		{"all", "", "//all"}, // the target all of the package all
		{"*", "a", "//a/*"},
		{"all:all", "", "//all:all"},
		{"", "a", "error: no target is named"},
		{"-", "a", "error: no target is named"},
		{".", "a", "error: no target is named"},
		{"./", "a", "error: no target is named"},
		{"..", "a", "error: the segment \"..\" is not allowed"},
		{"../b", "a", "error: the segment \"..\" is not allowed"},
		{"b/../c", "a", "error: the segment \"..\" is not allowed"},
		{"//", "", "error: no target is named"},
		{"//:", "", "error: the name is empty"},
		{"/a", "", "error: an empty path segment"},
		{"/a", "b", "error: an empty path segment"},
		{"//a/", "", "error: an empty path segment"},
		{"//a//...", "", "error: an empty path segment"},
		{"//.../a", "", "error: the segment \"...\" is not allowed"},
		{"//.../...", "", "error: the segment \"...\" is not allowed"},
		{"//...:a", "", "error: ... selects whole packages; only :all may follow it"},
		{"//a/...:b", "", "error: ... selects whole packages; only :all may follow it"},
		{"//a:b:c", "", "error: the character ':' is not allowed"},
		{"//../a:all", "", "error: the segment \"..\" is not allowed"},
		{"@shared", "", "error: a module is followed by //"},
		{"@//a", "", "error: a module is followed by //"},
		{"//a:\xff", "", "error: not valid UTF-8"},
		{"//a\nb/...", "", "error: the character '\\n' is not allowed"},
		{"b", "we:ird", "error: the current folder can't be a package: the character ':' is not allowed"},
		{"//b", "we:ird", "//b:b"},
	} {
		p, err := ParsePattern(c.in, c.cwd)
		got := p.String()
		if err != nil {
			if got = "error: " + err.Error(); !strings.HasPrefix(err.Error(), "pattern \"") {
				t.Errorf("%q: %v does not name it", c.in, err)
			}
		}
		want, wantErr := strings.CutPrefix(c.want, "error: ")
		if wantErr != (err != nil) || !strings.Contains(got, want) || !wantErr && got != want {
			t.Errorf("ParsePattern(%q, %q) = %s, want %s", c.in, c.cwd, got, c.want)
		}
		if err == nil {
			if again, err := ParsePattern(got, "else/where"); err != nil || again != p {
				t.Errorf("%s is read as %+v, %v", got, again, err)
			}
		}
	}
}

func TestPatternMatches(t *testing.T) {
	labels := []string{"//:x", "//a:a", "//a:b", "//a/b:b", "//a/b/c:x", "//ab:x", "@r//a:a", "@r//a/b:b"}
	for _, c := range []struct{ pattern, want string }{
		{"//...", "//:x //a:a //a:b //a/b:b //a/b/c:x //ab:x"},
		{"//a/...", "//a:a //a:b //a/b:b //a/b/c:x"},
		{"//a:all", "//a:a //a:b"},
		{"//a", "//a:a"},
		{"//a/b", "//a/b:b"},
		{"//:all", "//:x"},
		{"//b/...", ""},
		{"@r//...", "@r//a:a @r//a/b:b"},
		{"@r//a", "@r//a:a"},
		{"-//a", "//a:a"},
	} {
		p, err := ParsePattern(c.pattern, "")
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range labels {
			l, err := ParseLabel(s, Label{})
			if err != nil {
				t.Fatal(err)
			}
			if p.Matches(l) {
				got = append(got, s)
			}
		}
		if s := strings.Join(got, " "); s != c.want {
			t.Errorf("%s matches %s, want %s", c.pattern, s, c.want)
		}
	}
}

// FuzzLabel: nothing panics; what is read and written is read as the same;
// paths stay below the root.
func FuzzLabel(f *testing.F) {
	for _, s := range []string{"//a:b", "//a", ":x", "@r//a/b:c.txt", "//...", "-//a/...", "a/b:all", "//a:*", "..", "@", "\xff", "//a:b:c", "./x/", ":@r//a", "--x"} {
		f.Add(s, "a/b")
	}
	f.Fuzz(func(t *testing.T, s, pkg string) {
		from := Label{Pkg: "home"}
		if l, err := ParseLabel(":x", Label{}); err == nil && checkPath(pkg, true) == nil {
			from.Pkg, l.Pkg = pkg, pkg
		}
		if l, err := ParseLabel(s, from); err == nil {
			back, err := ParseLabel(l.String(), Label{Repo: l.Repo, Pkg: "else/where"})
			if err != nil || back != l || back.String() != l.String() {
				t.Fatalf("%q: %+v became %+v, %v", s, l, back, err)
			}
			path := "/" + l.Path() + "/"
			if l.Name == "" || !utf8.ValidString(path) || strings.Contains(path, "//") || strings.Contains(path, "/../") || strings.Contains(path, "/./") {
				t.Fatalf("%q has the path %q", s, l.Path())
			}
			if p, err := ParsePattern(l.String(), ""); err == nil && l.Name != "all" && l.Name != "*" && !p.Matches(l) {
				t.Fatalf("%s as a pattern is %+v", l, p)
			}
		}
		if p, err := ParsePattern(s, pkg); err == nil {
			back, err := ParsePattern(p.String(), "else/where")
			if err != nil || back != p {
				t.Fatalf("%q: %+v became %+v, %v", s, p, back, err)
			}
			if l := (Label{Repo: p.Repo, Pkg: p.Pkg, Name: p.Name}); p.Name != "" && !p.Matches(l) {
				t.Fatalf("%+v does not match %s", p, l)
			}
		}
	})
}
