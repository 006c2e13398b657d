package collect

import (
	"os"
	"path"
	"path/filepath"
	"strings"
	"testing"
	"unicode/utf8"
)

// TestNames is a part of item 70.
func TestNames(t *testing.T) {
	dir := t.TempDir()
	long := strings.Repeat("n", 255)
	good := []string{long, "é", "שלום", "日本", "a b", "-rf", "back\\slash", "a:b", "👩‍💻", "..."}
	bad := []string{"a\nb", "\x1b[31mred", "x\x7f", "\u202Etxt.exe", "\u2066x", "\u0085", "\u2028x", "\xff\xfe", "a\xc3"}
	want := map[string]string{}
	var taken []string
	for _, name := range good {
		write(t, dir, "d/"+name, name)
		taken = append(taken, "d/"+name)
	}
	for _, name := range bad {
		if err := os.WriteFile(filepath.Join(dir, "d", name), nil, 0o644); err != nil {
			t.Logf("the file system has no %q: %v", name, err)
			continue
		}
		want["d/"+name] = Name
	}
	got := collected(t, dir, plain, Output{"d", true})
	same(t, "rejected", codes(got), want)
	if len(got.Files) != len(taken) {
		t.Errorf("%d files, want %d: %q", len(got.Files), len(taken), paths(got))
	}
	same(t, "declared", codes(collected(t, dir, plain, Output{"d/a\nb", false}, Output{"d/" + long + "n", false})),
		map[string]string{"d/a\nb": Name, "d/" + long + "n": Name})
	same(t, "words", refuse(Name, "the character %U", '\u202e').Error(), "name: the character U+202E")
}

// TestCollisions is item 73.
func TestCollisions(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"README", "readme", "Readme", "other", "dir/x", "DIR/y", "é", "É", "k", "\u212a", "sub/README"} {
		write(t, dir, "d/"+name, name)
	}
	if entries, err := os.ReadDir(filepath.Join(dir, "d")); err != nil || len(entries) < 11 {
		lacking(t, "a file system that tells case apart: %d entries, %v", len(entries), err)
	}
	got := collected(t, dir, plain, Output{"d", true})
	same(t, "files", paths(got), []string{"d/other", "d/sub/README"})
	want := map[string]string{}
	for _, name := range []string{"README", "readme", "Readme", "dir", "DIR", "é", "É", "k", "\u212a"} {
		want["d/"+name] = Collision
	}
	same(t, "rejected", codes(got), want)
	// What isn't UTF-8 is rejected for that, not for colliding.
	same(t, "not UTF-8", collisions([]string{"\xff", "\xfe", "\ufffd"}), map[string]string(nil))
}

func TestLinks(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "d/a/b/file", "x")
	write(t, dir, "d/top", "x")
	write(t, dir, "out", "secret")
	kept := map[string]struct{ target, want string }{
		"a/b/same":   {"file", "file"},
		"a/b/up":     {"../../top", "../../top"},
		"a/b/canon":  {"./../..//top/", "../../top"},
		"a/b/folder": {"../c", "../c"},
		"down":       {"a/b", "a/b"},
		"through":    {"down/file", "down/file"},
		"dangling":   {"nothing", "nothing"},
	}
	refused := map[string]struct{ target, code string }{
		"abs":          {filepath.Join(dir, "out"), Escapes},
		"root":         {"/", Escapes},
		"out":          {"../out", Escapes},
		"a/b/out":      {"../../../out", Escapes},
		"a/b/back":     {"../../../d/top", Escapes}, // comes back, but by a name that others choose
		"a/b/zig":      {"x/../../../../out", Escapes},
		"a/b/zag":      {"down/..", Escapes},
		"self":         {"self", Loop},
		"dot":          {".", Loop},
		"a/b/above":    {"..", Loop},
		"a/b/aboveall": {"../..", Loop},
		"a/b/round":    {"../../a", Loop},
		"long":         {strings.Repeat("x/", 600), Long},
		"ansi":         {"\x1b[2J", Name},
		"bytes":        {"\xff", Name},
	}
	want := map[string]string{}
	for name, l := range kept {
		link(t, dir, l.target, "d/"+name)
	}
	for name, l := range refused {
		if err := os.Symlink(l.target, filepath.Join(dir, "d", name)); err != nil {
			t.Logf("%s: %v", name, err)
			continue
		}
		want["d/"+name] = l.code
	}
	got := collected(t, dir, plain, Output{"d", true})
	same(t, "rejected", codes(got), want)
	for _, f := range got.Files {
		if name := strings.TrimPrefix(f.Path, "d/"); f.Link != kept[name].want {
			t.Errorf("%s → %q, want %q", f.Path, f.Link, kept[name].want)
		}
	}
	if len(got.Files) != len(kept)+2 {
		t.Errorf("%d files: %q", len(got.Files), paths(got))
	}
}

// TestLinkTrick: by words, l stays inside; by links, k leads up and l out.
func TestLinkTrick(t *testing.T) {
	dir := t.TempDir()
	write(t, dir, "secret", "s3cret")
	write(t, dir, "d/s/t/file", "x")
	link(t, dir, "../../s", "d/s/t/k")
	link(t, dir, "k/../../secret", "d/s/t/l")
	if b, _ := os.ReadFile(filepath.Join(dir, "d/s/t/l")); string(b) != "s3cret" {
		t.Fatalf("control: the trick doesn't work: %q", b)
	}
	if got := path.Join("d/s/t", "k/../../secret"); !strings.HasPrefix(got, "d/") {
		t.Fatalf("control: %q is outside by words", got)
	}
	got := collected(t, dir, plain, Output{"d", true})
	same(t, "rejected", codes(got), map[string]string{"d/s/t/k": Loop, "d/s/t/l": Escapes})
}

func FuzzLink(f *testing.F) {
	for _, s := range []string{"a", "../a", "a/../..", ".", "/etc", "..//./x/", "../../../d/a"} {
		f.Add("s/t/l", s)
	}
	f.Fuzz(func(t *testing.T, link, target string) {
		if checkPath(link) != nil {
			return
		}
		const output = "out/d"
		link = output + "/" + link
		got, err := checkLink(output, link, target)
		if err != nil {
			return
		}
		if again, err := checkLink(output, link, got); err != nil || again != got {
			t.Fatalf("%q became %q, and that %q, %v", target, got, again, err)
		}
		to := path.Join(path.Dir(link), got)
		if !strings.HasPrefix(to, output+"/") || strings.HasPrefix(link+"/", to+"/") || !utf8.ValidString(got) || strings.Contains(strings.TrimLeft(got, "./"), "/../") {
			t.Fatalf("%q at %q became %q, which is %q", target, link, got, to)
		}
	})
}
