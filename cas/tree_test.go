package cas

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// naiveTree digests a tree from a list of paths with the generated types'
// sibling encoder, one recursion a folder and no sharing.
func naiveTree(t *testing.T, fn Func, files map[string]Digest, links map[string]string) Digest {
	t.Helper()
	var dir Directory
	folders := map[string][2]map[string]bool{}
	note := func(path string, kind int) bool {
		first, _, nested := strings.Cut(path, "/")
		if nested {
			if _, ok := folders[first]; !ok {
				folders[first] = [2]map[string]bool{{}, {}}
			}
			folders[first][kind][path] = true
		}
		return nested
	}
	for path, d := range files {
		if !note(path, 0) {
			dir.Files = append(dir.Files, FileNode{Name: path, Digest: d})
		}
	}
	for path, target := range links {
		if !note(path, 1) {
			dir.Symlinks = append(dir.Symlinks, SymlinkNode{Name: path, Target: target})
		}
	}
	for name, kinds := range folders {
		subFiles, subLinks := map[string]Digest{}, map[string]string{}
		for path := range kinds[0] {
			subFiles[path[len(name)+1:]] = files[path]
		}
		for path := range kinds[1] {
			subLinks[path[len(name)+1:]] = links[path]
		}
		dir.Directories = append(dir.Directories, DirectoryNode{Name: name, Digest: naiveTree(t, fn, subFiles, subLinks)})
	}
	b := marshal(t, protoDirectory(dir))
	return fn.Sum(b)
}

func checkTree(t *testing.T, seed uint64) {
	r := newRandom(seed)
	fn := r.fn()
	files, links := map[string]Digest{}, map[string]string{}
	b := NewTree(fn)
	for i, path := range r.names(12, r.path) {
		path = fmt.Sprintf("%s%d", path, i%3) // so that no file is a folder too, mostly
		if r.IntN(4) == 0 {
			links[path] = "target"
			b.Symlink(path, "target")
		} else {
			files[path] = r.digest(fn)
			b.File(path, files[path], false)
		}
	}
	tree, err := b.Build()
	if err != nil {
		return // a conflict; TestTreeRefuses has those
	}
	if want := naiveTree(t, fn, files, links); tree.Digest() != want {
		t.Errorf("seed %d: digest %v, want %v", seed, tree.Digest(), want)
	}
	seenFiles, seenLinks := map[string]Digest{}, map[string]string{}
	tree.Visit(Visitor{
		File:    func(p string, f FileNode) error { seenFiles[p] = f.Digest; return nil },
		Symlink: func(p string, l SymlinkNode) error { seenLinks[p] = l.Target; return nil },
	})
	if !maps.Equal(files, seenFiles) || !maps.Equal(links, seenLinks) {
		t.Errorf("seed %d: visited %v %v, want %v %v", seed, seenFiles, seenLinks, files, links)
	}
}

func TestTreeRandom(t *testing.T) {
	for seed := range uint64(1000) {
		checkTree(t, seed)
	}
}

func FuzzTree(f *testing.F) {
	f.Add(uint64(1), "a/b", "a", "b/../c")
	f.Add(uint64(2), "/", "//", "")
	f.Fuzz(func(t *testing.T, seed uint64, p, q, r string) {
		checkTree(t, seed)
		b := NewTree(BLAKE3)
		d := BLAKE3.Sum(nil)
		b.File(p, d, true)
		b.Symlink(q, "x")
		b.File(r, d, false)
		tree, err := b.Build()
		if err != nil {
			return
		}
		var got []string
		tree.Visit(Visitor{
			File:    func(p string, _ FileNode) error { got = append(got, p); return nil },
			Symlink: func(p string, _ SymlinkNode) error { got = append(got, p); return nil },
		})
		slices.Sort(got)
		want := []string{p, q, r}
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("got %q, want %q", got, want)
		}
		for _, path := range want {
			if checkPath(path) != nil {
				t.Errorf("built with path %q", path)
			}
		}
	})
}

func TestTreeShares(t *testing.T) {
	d := BLAKE3.Sum([]byte("x"))
	lib := NewTree(BLAKE3)
	for i := range 100 {
		lib.File(fmt.Sprintf("pkg/%d", i), d, false)
	}
	shared, err := lib.Build()
	if err != nil {
		t.Fatal(err)
	}
	b := NewTree(BLAKE3)
	b.Mount("a/lib", shared)
	b.Mount("b", shared)
	b.File("a/main", d, true)
	tree, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	flat := NewTree(BLAKE3)
	flat.File("a/main", d, true)
	shared.Walk(func(p string, f FileNode) error {
		flat.File("a/lib/"+p, f.Digest, f.Executable)
		flat.File("b/"+p, f.Digest, f.Executable)
		return nil
	})
	same, err := flat.Build()
	if err != nil || same.Digest() != tree.Digest() {
		t.Errorf("mounted %v, flat %v, %v", tree.Digest(), same.Digest(), err)
	}
	seen := map[Digest]bool{}
	err = tree.Blobs(func(d Digest, b []byte) error {
		dir, err := DecodeDirectory(BLAKE3, b)
		if err != nil || BLAKE3.Sum(b) != d || seen[d] {
			t.Errorf("blob %v: %v, seen %v", d, err, seen[d])
		}
		for _, sub := range dir.Directories {
			if !seen[sub.Digest] {
				t.Errorf("%v comes before %s below it", d, sub.Name)
			}
		}
		seen[d] = true
		return nil
	})
	if err != nil || len(seen) != 4 { // root, a, lib = b, pkg
		t.Errorf("%d blobs, %v", len(seen), err)
	}
	stop := errors.New("stop")
	if err := tree.Walk(func(string, FileNode) error { return stop }); err != stop {
		t.Errorf("Walk returned %v", err)
	}
}

func TestTreeRefuses(t *testing.T) {
	d := BLAKE3.Sum(nil)
	empty, err := NewTree(BLAKE3).Build()
	if err != nil || empty.Digest() != BLAKE3.Sum(nil) {
		t.Fatalf("empty tree: %v, %v", empty.Digest(), err)
	}
	other, _ := NewTree(SHA256).Build()
	tests := []struct {
		add  func(b *TreeBuilder)
		want string
	}{
		{func(b *TreeBuilder) { b.File("x/a", d, false); b.File("x/a/b", d, false) }, "tree x/a: given as file and as directory"},
		{func(b *TreeBuilder) { b.File("a", d, false); b.File("a", d, false) }, "tree a: given twice"},
		{func(b *TreeBuilder) { b.Symlink("l", "t"); b.File("l/x", d, false) }, "tree l: given as directory and as symlink"},
		{func(b *TreeBuilder) { b.Mount("m", empty); b.File("m/x", d, false) }, "tree m: given twice"},
		{func(b *TreeBuilder) { b.Mount("m", empty); b.Mount("m", empty) }, "tree m: given twice"},
		{func(b *TreeBuilder) { b.Mount("", empty) }, "tree : empty name"},
		{func(b *TreeBuilder) { b.File("/a", d, false) }, "tree /a: path is absolute"},
		{func(b *TreeBuilder) { b.File("a//b", d, false) }, "tree a/: empty name"},
		{func(b *TreeBuilder) { b.File("a/../b", d, false) }, `tree a/..: name ".."`},
		{func(b *TreeBuilder) { b.File("a", Digest{}, false) }, "tree a: digest none in a tree of blake3"},
		{func(b *TreeBuilder) { b.Mount("a", other) }, "tree a: tree of sha256 in a tree of blake3"},
		{func(b *TreeBuilder) { b.File(strings.Repeat("a/", 5000)+"a", d, false) }, "more than 2048 folders deep"},
	}
	for _, test := range tests {
		b := NewTree(BLAKE3)
		test.add(b)
		_, err := b.Build()
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("got %v, want %s", err, test.want)
		}
	}
	if _, err := NewTree(0).Build(); err == nil {
		t.Error("a tree without a digest function was built")
	}
}

func BenchmarkTreeFlat20000(b *testing.B) {
	paths := make([]string, 20_000)
	for i := range paths {
		paths[i] = fmt.Sprintf("file-%d.txt", i) // not in order of name
	}
	d := BLAKE3.Sum([]byte("x"))
	for b.Loop() {
		tree := NewTree(BLAKE3)
		for _, p := range paths {
			tree.File(p, d, false)
		}
		if _, err := tree.Build(); err != nil {
			b.Fatal(err)
		}
	}
}

// TestHollow: a folder that is known by its digest gives the trees above the
// digests that it would give whole, wherever it hangs, and nothing else of it can
// be had.
func TestHollow(t *testing.T) {
	for seed := range uint64(200) {
		r := newRandom(seed)
		fn := r.fn()
		inner := r.tree(t, fn)
		hollow := HollowTree(inner.Digest(), inner.Message())
		paths := []string{"a", "b/c", "b/d/e"}
		build := func(sub *Tree) *Tree {
			b := NewTree(fn)
			b.File("b/f", fn.Sum(nil), false)
			for _, p := range paths {
				b.Mount(p, sub)
			}
			tree, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			return tree
		}
		whole, outline := build(inner), build(hollow)
		if whole.Digest() != outline.Digest() || hollow.Message() != inner.Message() {
			t.Fatalf("seed %d: %v, hollow %v", seed, whole.Digest(), outline.Digest())
		}
		for _, tree := range []*Tree{hollow, outline} {
			var want *HollowError
			for what, err := range map[string]error{
				"visit":    tree.Visit(Visitor{}),
				"blobs":    tree.Blobs(func(Digest, []byte) error { return nil }),
				"eachFile": tree.eachFile(map[Digest]bool{}, "", func(string, FileNode) error { return nil }),
			} {
				if !errors.As(err, &want) || want.Digest != inner.Digest() {
					t.Errorf("%s: %v", what, err)
				}
			}
		}
	}
	b := NewTree(SHA256)
	b.Mount("a", HollowTree(BLAKE3.Sum(nil), BLAKE3.Sum(nil)))
	if _, err := b.Build(); err == nil {
		t.Error("a hollow tree of another function was mounted")
	}
}

func TestFillTree(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	tree := newRandom(1).tree(t, BLAKE3)
	hollow := HollowTree(tree.Digest(), tree.Message())
	if got, err := s.FillTree(tree); got != tree || err != nil {
		t.Error(got, err)
	}
	_, err := s.FillTree(hollow)
	wantReason(t, err, Missing)
	above := NewTree(BLAKE3)
	above.Mount("a", hollow)
	partly, err := above.Build()
	if err != nil {
		t.Fatal(err)
	}
	for _, tree := range []*Tree{hollow, partly} {
		if _, err := s.PutTree(Capture, tree); err == nil {
			t.Error("a hollow tree was stored")
		}
	}
	if d, err := s.PutTree(Capture, tree); err != nil || d != tree.Message() {
		t.Fatal(d, err)
	}
	got, err := s.FillTree(hollow)
	if err != nil || got.Hollow() || got.Digest() != tree.Digest() || !slices.Equal(listing(got), listing(tree)) {
		t.Error(got, err)
	}
	if _, err := s.FillTree(HollowTree(BLAKE3.Sum(nil), tree.Message())); err == nil || !strings.Contains(err.Error(), "it is that of the folder") {
		t.Error(err)
	}
}
