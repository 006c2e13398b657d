package toolslock

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

var (
	linux  = graph.PlatformOf("linux", "amd64")
	arm    = graph.PlatformOf("linux", "arm64")
	shTool = graph.Tool{Label: graph.Label{Pkg: "p", Name: "sh"}, Program: "/bin/sh", Data: []string{"/usr/z", "/a", "/a"}}
)

func digest(s string) cas.Digest { return cas.BLAKE3.Sum([]byte(s)) }

// mounts are one of each kind; s is the file's content.
func mounts(s string) []graph.Mount {
	return []graph.Mount{
		{Path: "/bin", Link: "usr/bin"},
		{Path: "/usr/bin/dash", Digest: digest(s), Executable: true},
		{Path: "/usr/share/f", Digest: digest("folder"), Tree: cas.HollowTree(digest("folder"), digest("message"))},
		{Path: "/usr/share/<&>", Digest: digest("data")},
	}
}

func entry(tool, content string) Entry {
	t := shTool
	t.Label.Name = tool
	return NewEntry(t, linux, mounts(content))
}

func text(entries ...Entry) string {
	var b strings.Builder
	for _, e := range entries {
		for _, l := range e.lines() {
			b.Write(l.encode())
		}
	}
	return b.String()
}

// trees are told by their digests.
var sameTrees = cmp.Comparer(func(a, b *cas.Tree) bool {
	return a == b || a != nil && b != nil && a.Digest() == b.Digest() && a.Message() == b.Message()
})

func write(t testing.TB, dir, content string) string {
	t.Helper()
	name := filepath.Join(dir, Name)
	if err := os.WriteFile(name, []byte(content), 0o644); err != nil {
		t.Fatal(err)
	}
	return name
}

func TestText(t *testing.T) {
	const want = `{"data":["/a","/usr/z"],"kind":"tool","path":"/bin/sh","platform":"linux x86-64","sum":"SUM","tool":"sh"}
{"kind":"link","path":"/bin","platform":"linux x86-64","target":"usr/bin","tool":"sh"}
{"digest":"FILE","executable":true,"kind":"file","path":"/usr/bin/dash","platform":"linux x86-64","tool":"sh"}
{"digest":"DATA","kind":"file","path":"/usr/share/<&>","platform":"linux x86-64","tool":"sh"}
{"digest":"FOLDER","kind":"folder","path":"/usr/share/f","platform":"linux x86-64","tool":"sh","tree":"MESSAGE"}
`
	e := entry("sh", "dash")
	rest := text(e)
	rest = rest[strings.Index(rest, "\n")+1:]
	got := strings.NewReplacer(digest(rest).String(), "SUM", digest("dash").String(), "FILE", digest("data").String(), "DATA",
		digest("folder").String(), "FOLDER", digest("message").String(), "MESSAGE").Replace(text(e))
	if got != want {
		t.Error(cmp.Diff(want, got))
	}
}

// TestRead: lines may be in any order, and twice.
func TestRead(t *testing.T) {
	none := NewEntry(graph.Tool{Label: graph.Label{Name: "static"}}, linux, nil)
	other := entry("sh", "of arm")
	other.Platform = arm
	want := []Entry{entry("a", "1"), other, entry("sh", "dash"), none}
	for i := range want {
		slices.SortFunc(want[i].Mounts, func(a, b graph.Mount) int { return strings.Compare(a.Path, b.Path) })
	}
	lines := strings.SplitAfter(text(want...), "\n")
	lines = lines[:len(lines)-1]
	for range 20 {
		got, err := Read(write(t, t.TempDir(), strings.Join(lines, "")))
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got, sameTrees); d != "" {
			t.Fatal(d)
		}
		lines = append(lines[1:], lines[0]) // the next order, and one of them twice
		lines = append(lines, lines[3])
	}
	if got, err := Read(filepath.Join(t.TempDir(), Name)); got != nil || err != nil {
		t.Error(got, err)
	}
}

func TestBadLines(t *testing.T) {
	good := text(entry("sh", "dash"))
	file := `{"digest":"` + digest("dash").String() + `","executable":true,"kind":"file","path":"/usr/bin/dash",`
	for _, c := range []struct{ from, to, want string }{
		{`"kind":"link"`, `"kind":"lnk"`, `:2: unknown kind "lnk"`},
		{`,"target":"usr/bin"`, ``, `:2: field "target" of a link is missing`},
		{`,"target":"usr/bin"`, `,"target":""`, `:2: field "target" of a link is missing`},
		{`"target":"usr/bin"`, `"target":"a\u0000b"`, `:2: the target has a NUL`},
		{`"executable":true,`, `"executable":false,`, `:3: the line is not canonical`},
		{`"executable":true,`, `"mode":493,`, `:3: unknown field "mode"`},
		{`"executable":true,`, `"executable":"yes",`, `:3: cannot unmarshal`},
		{file, `{"kind":"file","path":"/usr/bin/dash",`, `:3: field "digest" of a file is missing`},
		{file, strings.Replace(file, "blake3", "blake2", 1), `:3: digest "blake2:`},
		{file, strings.Replace(file, `"kind"`, `"KIND"`, 1), `:3: the line is not canonical`},
		{file, file + ` `, `:3: the line is not canonical`},
		{file, strings.Replace(file, "/usr/bin/dash", "/usr/../dash", 1), `:3: path "/usr/../dash" is not absolute and clean`},
		{file, strings.Replace(file, "/usr/bin/dash", "dash", 1), `:3: path "dash" is not absolute and clean`},
		{file, strings.Replace(file, "/usr/bin/dash", "/proc/self/exe", 1), `:3: path "/proc/self/exe" is in /proc`},
		{`,"tree":"` + digest("message").String() + `"`, ``, `:5: field "tree" of a folder is missing`},
		{`"data":["/a","/usr/z"]`, `"data":["/usr/z","/a"]`, `:1: data is not sorted`},
		{`"data":["/a","/usr/z"]`, `"data":["/a","z"]`, `:1: path "z" is not absolute`},
		{`"tool":"sh"}`, `"tool":""}`, `:1: tool "" is no name`},
		{`"tool":"sh"}`, `"tool":"//q:sh"}`, `:1: tool "//q:sh" is no name`},
		{`"platform":"linux x86-64"`, `"platform":"linux"`, `:1: platform "linux" is no pair`},
		{"}\n", "}\n\n", `:2: the line is empty`},
		{"}\n", "}\xff\n", `:1: the line is not valid UTF-8`},
		{"}\n", "} {}\n", `:1: the line is not canonical`},
		{"{", "<<<<<<< ours\n{", `:1: a conflict of a merge was left`},
		{"{", "x", `:1: the line is no JSON object`},
		// Of the whole.
		{`"path":"/bin/sh"`, `"path":"/bin/bash"`, ``}, // the declaration is the Set's to judge
		{digest("dash").String(), digest("bash").String(), `:1: tool sh on linux x86-64: its lines don't fit the sum in its head`},
		{`{"kind":"link","path":"/bin","platform":"linux x86-64","target":"usr/bin","tool":"sh"}` + "\n", ``, `:1: tool sh on linux x86-64: its lines don't fit`},
		{`"tool":"sh"}` + "\n{", `"tool":"zz"}` + "\n{", `:2: tool sh on linux x86-64: its head, of kind "tool", is missing`},
	} {
		bad := strings.Replace(good, c.from, c.to, 1)
		if bad == good {
			t.Fatalf("%q is not in the file", c.from)
		}
		_, err := Read(write(t, t.TempDir(), bad))
		if c.want == "" && err == nil {
			continue
		}
		var hinted interface{ Hint() string }
		if err == nil || !strings.Contains(err.Error(), Name+c.want) || !errors.As(err, &hinted) || !strings.Contains(hinted.Hint(), "ev lock") {
			t.Errorf("%s → %s: %v, want %s", c.from, c.to, err, c.want)
		}
	}
	// Cut short anywhere, it is an error: the sum or the newline is missing.
	for n := 1; n < len(good); n++ {
		if _, err := Read(write(t, t.TempDir(), good[:n])); err == nil {
			t.Errorf("cut at %d: no error", n)
		}
	}
}

// TestUnion: two lockings of one tool never become a third thing, whatever a
// union merge of their lines comes to.
func TestUnion(t *testing.T) {
	a := entry("sh", "dash")
	for name, change := range map[string]func(e *Entry){
		"another file": func(e *Entry) { e.Mounts = mounts("bash") },
		"one more":     func(e *Entry) { e.Mounts = append(mounts("dash"), graph.Mount{Path: "/z", Link: "y"}) },
		"one less":     func(e *Entry) { e.Mounts = mounts("dash")[1:] },
		"a declaration": func(e *Entry) {
			e.Data = nil
		},
	} {
		b := entry("sh", "dash")
		change(&b)
		_, err := Read(write(t, t.TempDir(), text(a)+text(b)))
		if err == nil || !strings.Contains(err.Error(), "is pinned twice, differently: in line ") {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := Read(write(t, t.TempDir(), text(a)+text(entry("zsh", "z"))+text(a))); err != nil {
		t.Error(err)
	}
}

func FuzzRead(f *testing.F) {
	f.Add([]byte(text(entry("sh", "dash"))))
	f.Add([]byte(`{"kind":"tool","platform":"linux x86-64","sum":"` + sum(nil) + `","tool":"sh"}` + "\n"))
	f.Fuzz(func(t *testing.T, b []byte) {
		lines, err := scan("x", b, nil)
		if err != nil {
			return
		}
		entries, err := assemble("x", lines)
		if err != nil {
			return
		}
		// What is read is written again so that it is read the same.
		again, err := scan("x", []byte(text(entries...)), nil)
		if err != nil {
			t.Fatal(err)
		}
		got, err := assemble("x", again)
		if d := cmp.Diff(entries, got, sameTrees); err != nil || d != "" {
			t.Error(err, d)
		}
	})
}

func TestSet(t *testing.T) {
	dir := t.TempDir()
	e := NewEntry(shTool, linux, mounts("dash"))
	name := write(t, dir, text(e))
	set := func(fn cas.Func) *Set {
		return NewSet(fn, func(l graph.Label) (string, error) {
			if l.Repo != "" {
				return "", errors.New("no such module")
			}
			return dir, nil
		})
	}
	s := set(cas.BLAKE3)
	got, _, ok, err := s.Locked(shTool, linux)
	if err != nil || !ok || len(got) != 4 {
		t.Fatal(got, ok, err)
	}
	for _, m := range got {
		if m.Source != "" || m.Tree != nil && !m.Tree.Hollow() {
			t.Errorf("%+v", m)
		}
	}
	if _, elsewhere, ok, err := s.Locked(shTool, arm); ok || err != nil || !slices.Equal(elsewhere, []graph.Platform{linux}) {
		t.Error(elsewhere, ok, err)
	}
	other := shTool
	other.Label.Name = "other"
	if _, elsewhere, ok, err := s.Locked(other, linux); ok || err != nil || elsewhere != nil {
		t.Error(elsewhere, ok, err)
	}
	for want, change := range map[string]func(*graph.Tool){
		"it was locked as /bin/sh with /a /usr/z, and is declared as /bin/zsh with /a /usr/z": func(t *graph.Tool) { t.Program = "/bin/zsh" },
		"and is declared as a file of the build with /a /usr/z":                               func(t *graph.Tool) { t.Program, t.Input = "", "in/x" },
		"and is declared as /bin/sh with /a":                                                  func(t *graph.Tool) { t.Data = []string{"/a"} },
		"no such module":                                                                      func(t *graph.Tool) { t.Label.Repo = "r" },
	} {
		tool := shTool
		change(&tool)
		if _, _, ok, err := s.Locked(tool, linux); ok || err == nil || !strings.HasSuffix(err.Error(), want) {
			t.Errorf("%v, want …%s", err, want)
		}
	}
	if _, _, ok, err := set(cas.SHA256).Locked(shTool, linux); ok || err == nil || !strings.Contains(err.Error(), "pinned by digests of blake3") {
		t.Error(err)
	}
	reordered := shTool
	reordered.Data = []string{"/a", "/usr/z"}
	if err := os.Remove(name); err != nil { // it is read once
		t.Fatal(err)
	}
	if _, _, ok, err := s.Locked(reordered, linux); !ok || err != nil {
		t.Error(ok, err)
	}
	if _, _, ok, err := set(cas.BLAKE3).Locked(shTool, linux); ok || err != nil {
		t.Error(ok, err)
	}
}
