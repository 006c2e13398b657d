// Package eval_test holds what is true of the repository as a whole.
package eval_test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"path"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/evalbuild/eval"

// layers says which packages of ours each may import. A sub-package may
// import what its parent may, and nothing that isn't listed is allowed.
var layers = []struct {
	pkg string
	may []string
}{
	{"cas", nil},
	{"cas/remote", []string{"cas"}},
	{"rules", nil},
	{"rules/world", []string{"starlark", "workspace/graph", "cas", "rules/world"}}, // world itself of its parts only
	{"sandbox", []string{"cas", "workspace/graph", "sandbox"}},                     // sandbox itself of its parts only
	{"starlark", []string{"workspace/graph", "cas", "rules"}},
	{"workspace", []string{"workspace/graph", "workspace/statcache", "cas"}},
	{"workspace/statcache", nil},
	{"workspace/graph", []string{"cas"}},
	{"workspace/draws", []string{"workspace/graph", "cas"}},
	{"workspace/sets", []string{"workspace/graph", "workspace/draws", "cas"}},
	{"workspace/engine", []string{"workspace/graph", "workspace/draws", "cas", "sandbox", "starlark"}},
	{"cmd", []string{"cas", "rules", "sandbox", "starlark", "workspace"}},
}

// within says whether pkg is parent or below it.
func within(pkg, parent string) bool { return pkg == parent || strings.HasPrefix(pkg, parent+"/") }

// allowed says whether from may import to. The longest matching entry counts,
// so that workspace/graph is not judged as workspace.
func allowed(from, to string) bool {
	best := -1
	for i, l := range layers {
		if within(from, l.pkg) && (best < 0 || len(l.pkg) > len(layers[best].pkg)) {
			best = i
		}
	}
	if best < 0 {
		return false
	}
	for _, may := range layers[best].may {
		if within(to, may) {
			return true
		}
	}
	return false
}

func TestLayers(t *testing.T) {
	seen := map[string]bool{}
	err := filepath.WalkDir(".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() && (strings.HasPrefix(d.Name(), ".") && p != "." || d.Name() == "tools" || d.Name() == "eval-out" || d.Name() == "bin" || d.Name() == "testdata") {
			return fs.SkipDir
		}
		if !strings.HasSuffix(p, ".go") || strings.HasSuffix(p, "_test.go") {
			return nil
		}
		from := path.Dir(filepath.ToSlash(p))
		seen[from] = true
		f, err := parser.ParseFile(token.NewFileSet(), p, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		for _, im := range f.Imports {
			name, _ := strconv.Unquote(im.Path.Value)
			to, ours := strings.CutPrefix(name, module+"/")
			if ours && !allowed(from, to) {
				t.Errorf("%s imports %s: the layers don't allow it", p, to)
			}
			if to == "cas/remote/remotetest" && from != to {
				t.Errorf("%s imports %s: it is for tests", p, to)
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, pkg := range []string{"cas", "cas/remote/remotetest", "rules/stats", "rules/transcript", "rules/world", "starlark", "workspace", "workspace/graph", "workspace/engine", "cmd/eval", "cmd/eval-world", "cmd/eval-play"} {
		if !seen[pkg] {
			t.Errorf("the walk did not see %s: the test proves nothing", pkg)
		}
	}
}

// TestLayersRefuse shows that the rule can fail.
func TestLayersRefuse(t *testing.T) {
	for _, c := range []struct {
		from, to string
		want     bool
	}{
		{"cas", "workspace/graph", false},
		{"rules/stats", "cas", false},
		{"rules/stats", "rules/transcript", false},
		{"rules/world", "starlark", true},
		{"rules/world", "workspace/engine", false},
		{"starlark", "workspace", false},
		{"starlark", "workspace/engine", false},
		{"starlark", "rules/stats", true},
		{"workspace", "starlark", false},
		{"workspace/graph", "workspace", false},
		{"workspace/engine", "workspace", false},
		{"workspace/engine", "starlark", true},
		{"workspace/draws", "workspace/graph", true},
		{"workspace/toolslock", "workspace/hosttools", false},
		{"cmd/eval", "workspace/engine", true},
		{"somewhere/new", "cas", false},
	} {
		if got := allowed(c.from, c.to); got != c.want {
			t.Errorf("allowed(%s, %s) = %v", c.from, c.to, got)
		}
	}
}
