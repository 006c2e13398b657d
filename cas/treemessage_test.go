package cas

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
)

// listing spells a tree by what Visit says of it.
func listing(t *Tree) (list []string) {
	t.Visit(Visitor{
		Dir: func(p string, t *Tree) error { list = append(list, fmt.Sprint(p, "/ ", t.Digest())); return nil },
		File: func(p string, f FileNode) error {
			list = append(list, fmt.Sprint(p, f.Digest, f.Executable))
			return nil
		},
		Symlink: func(p string, l SymlinkNode) error { list = append(list, p+" -> "+l.Target); return nil },
	})
	return list
}

func (r random) tree(t *testing.T, fn Func) *Tree {
	t.Helper()
	b := NewTree(fn)
	shared := NewTree(fn)
	shared.File("f", r.digest(fn), true)
	sub, err := shared.Build()
	if err != nil {
		t.Fatal(err)
	}
	for i, path := range r.names(12, r.path) {
		path = fmt.Sprintf("%d/%s-%d", r.IntN(3), path, i) // no file is a folder too
		switch r.IntN(4) {
		case 0:
			b.Symlink(path, "target")
		case 1:
			b.Mount(path, sub)
		default:
			b.File(path, r.digest(fn), r.IntN(2) == 0)
		}
	}
	tree, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// protoTree reads a message with the generated types, and checks what the
// field is_topologically_sorted would claim.
func protoTree(t *testing.T, fn Func, b []byte) *repb.Tree {
	t.Helper()
	m := &repb.Tree{}
	if err := proto.Unmarshal(b, m); err != nil {
		t.Fatal(err)
	}
	wanted := map[string]bool{}
	for i, d := range append([]*repb.Directory{m.Root}, m.Children...) {
		hash := fn.Sum(marshal(t, d)).Hex()
		if i > 0 && !wanted[hash] {
			t.Errorf("child %d: there twice, or before its parents, or not referred to", i)
		}
		delete(wanted, hash)
		for _, sub := range d.Directories {
			wanted[sub.Digest.Hash] = true
		}
	}
	if len(wanted) > 0 {
		t.Errorf("missing children: %v", wanted)
	}
	return m
}

func TestTreeMessage(t *testing.T) {
	for seed := range uint64(300) {
		r := newRandom(seed)
		fn := r.fn()
		tree := r.tree(t, fn)
		b := tree.Encode()
		m := protoTree(t, fn, b)
		same(t, b, m)
		got, err := DecodeTree(fn, b)
		if err != nil {
			t.Fatal(err)
		}
		if diff := gocmp.Diff(listing(tree), listing(got)); diff != "" || got.Digest() != tree.Digest() || !bytes.Equal(got.Encode(), b) {
			t.Fatal(seed, diff)
		}
		// As a server may have it.
		r.Shuffle(len(m.Children), func(i, j int) { m.Children[i], m.Children[j] = m.Children[j], m.Children[i] })
		m.Children = append(append(m.Children, m.Children...), &repb.Directory{Files: []*repb.FileNode{{Name: "unused", Digest: protoDigest(r.digest(fn))}}})
		got, err = DecodeTree(fn, marshal(t, m))
		if err != nil || !bytes.Equal(got.Encode(), b) {
			t.Fatal(seed, err)
		}
	}
}

// chain makes n directories, each with the next one under as many names as given.
func chain(t *testing.T, n int, names ...string) []byte {
	m := &repb.Tree{}
	below := &repb.Directory{}
	for range n {
		m.Children = append(m.Children, below)
		dir := &repb.Directory{}
		for _, name := range names {
			dir.Directories = append(dir.Directories, &repb.DirectoryNode{Name: name, Digest: protoDigest(BLAKE3.Sum(marshal(t, below)))})
		}
		below = dir
	}
	m.Root = below
	return marshal(t, m)
}

func TestDecodeTreeRefuses(t *testing.T) {
	d := protoDigest(BLAKE3.Sum(nil))
	for name, c := range map[string]struct {
		b    []byte
		want string
	}{
		"empty":      {nil, "no root"},
		"no root":    {marshal(t, &repb.Tree{Children: []*repb.Directory{{}}}), "no root"},
		"two roots":  {[]byte{0x0a, 0, 0x0a, 0}, "twice"},
		"more":       {[]byte{0x0a, 0, 0x1a, 0}, "unknown field"},
		"cut":        {[]byte{0x0a, 5}, "unexpected EOF"},
		"no child":   {marshal(t, &repb.Tree{Root: &repb.Directory{Directories: []*repb.DirectoryNode{{Name: "a", Digest: d}}}}), `"a": directory`},
		"bad name":   {marshal(t, &repb.Tree{Root: &repb.Directory{Files: []*repb.FileNode{{Name: "../a", Digest: d}}}}), "slash"},
		"properties": {marshal(t, &repb.Tree{Root: &repb.Directory{NodeProperties: &repb.NodeProperties{}}}), "unknown field"},
		"deep":       {chain(t, maxDepth+1, "a"), "folders deep"},
		"wide":       {chain(t, 40, "a", "b"), "entries"},
	} {
		if tree, err := DecodeTree(BLAKE3, c.b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v %v, want %s", name, tree, err, c.want)
		}
	}
	if _, err := DecodeTree(BLAKE3, chain(t, maxDepth, "a")); err != nil {
		t.Error(err)
	}
	if _, err := DecodeTree(0, []byte{0x0a, 0}); err == nil {
		t.Error("decoded without a function")
	}
}

// A result with a folder counts only if the tree and each file in it is there.
func TestLookupFolder(t *testing.T) {
	for _, c := range []Class{Pure, Capture} {
		eachStore(t, func(t *testing.T, s *Store) {
			one, two := put(t, s, c, []byte("one")), put(t, s, c, prose(9000))
			inner := NewTree(BLAKE3)
			inner.File("deep/two", two, true)
			sub, err := inner.Build()
			if err != nil {
				t.Fatal(err)
			}
			b := NewTree(BLAKE3)
			b.File("one", one, false)
			b.Symlink("l", "one")
			b.Mount("x", sub)
			b.Mount("y", sub)
			tree, err := b.Build()
			if err != nil {
				t.Fatal(err)
			}
			want := Result{Folders: []OutputFolder{{Path: "out", Tree: BLAKE3.Sum(tree.Encode())}}, Links: []OutputLink{{"link", "out/one"}}}
			if err := s.PutResult(c, testKey, want); err == nil || !strings.Contains(err.Error(), "out: blob") {
				t.Fatal("recorded without its tree:", err)
			}
			d, err := s.PutTree(c, tree)
			if err != nil || d != want.Folders[0].Tree {
				t.Fatal(d, err)
			}
			if err := s.PutResult(c, testKey, want); err != nil {
				t.Fatal(err)
			}
			got, err := s.Lookup(c, testKey)
			if diff := gocmp.Diff(want, got); diff != "" || err != nil {
				t.Fatal(err, diff)
			}
			if read, err := s.ReadTree(d); err != nil || gocmp.Diff(listing(tree), listing(read)) != "" {
				t.Error(read, err)
			}
			path := s.root(c).blobPath(two) + packedSuffix
			kept, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Remove(path); err != nil {
				t.Fatal(err)
			}
			_, err = s.Lookup(c, testKey)
			wantLost(t, c, err, "out/x/deep/two is missing")
			if err := s.PutResult(c, testKey, want); err == nil || !strings.Contains(err.Error(), "out/x/deep/two: blob") {
				t.Error(err)
			}
			if err := os.WriteFile(path, kept[:len(kept)-1], 0o644); err != nil {
				t.Fatal(err)
			}
			_, err = s.Lookup(c, testKey)
			wantLost(t, c, err, "out/x/deep/two is damaged")
			put(t, s, c, prose(9000))
			if _, err := s.Lookup(c, testKey); err != nil {
				t.Error(err)
			}
			if err := os.Remove(s.root(c).blobPath(d)); err != nil {
				t.Fatal(err)
			}
			_, err = s.Lookup(c, testKey)
			wantLost(t, c, err, "out is missing")

			none := put(t, s, c, []byte("no tree"))
			key := BLAKE3.Sum([]byte("another"))
			err = s.PutResult(c, key, Result{Folders: []OutputFolder{{Path: "out", Tree: none}}})
			if err == nil || !strings.Contains(err.Error(), "decode tree") {
				t.Error(err)
			}
		})
	}
	dir := t.TempDir()
	s := open(t, dir, dir)
	other, err := NewTree(SHA256).Build()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.PutTree(Pure, other); err == nil {
		t.Error("put a tree of another function")
	}
}

func FuzzTreeMessage(f *testing.F) {
	for seed := range uint64(8) {
		b, _ := newRandom(seed).directory(BLAKE3).Encode()
		f.Add(append([]byte{0x0a, byte(len(b))}, b...))
	}
	f.Add([]byte{0x0a, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		tree, err := DecodeTree(BLAKE3, b)
		if err != nil {
			return
		}
		again, err := DecodeTree(BLAKE3, tree.Encode())
		if err != nil || again.Digest() != tree.Digest() || !bytes.Equal(again.Encode(), tree.Encode()) {
			t.Errorf("%x: %v", b, err)
		}
		same(t, tree.Encode(), protoTree(t, BLAKE3, tree.Encode()))
	})
}
