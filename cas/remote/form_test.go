package remote

import (
	"bytes"
	"crypto/ed25519"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	gocmp "github.com/google/go-cmp/cmp"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"

	"github.com/evalbuild/eval/cas"
)

// sample is a random result with its blobs.
type sample struct {
	key   cas.Digest
	r     cas.Result
	blobs map[cas.Digest][]byte
	trees map[cas.Digest]*cas.Tree
}

func newSample(seed uint64, fn cas.Func) *sample {
	r := rand.New(rand.NewPCG(seed, 1))
	s := &sample{key: fn.Sum(fmt.Append(nil, "key", seed)), blobs: map[cas.Digest][]byte{}, trees: map[cas.Digest]*cas.Tree{}}
	put := func() cas.Digest {
		b := bytes.Repeat([]byte{byte(r.IntN(3))}, r.IntN(4))
		s.blobs[fn.Sum(b)] = b
		return fn.Sum(b)
	}
	var tree func(depth int) *cas.Tree
	tree = func(depth int) *cas.Tree {
		b := cas.NewTree(fn)
		for i := range r.IntN(4) {
			b.File(fmt.Sprintf("f%d", i), put(), r.IntN(2) == 0)
		}
		if r.IntN(3) == 0 {
			b.Symlink("l", "f0")
		}
		for i := range r.IntN(3) {
			if depth > 0 {
				b.Mount(fmt.Sprintf("d%d", i), tree(depth-1))
			}
		}
		t, err := b.Build()
		if err != nil {
			panic(err)
		}
		return t
	}
	for i := range r.IntN(4) {
		d := put()
		f := cas.OutputFile{Path: fmt.Sprintf("file/%d", i), Digest: d, Executable: r.IntN(2) == 0}
		if d.Size > 0 && r.IntN(2) == 0 {
			f.Contents = s.blobs[d]
		}
		s.r.Files = append(s.r.Files, f)
	}
	for i := range r.IntN(3) {
		t := tree(3)
		msg := t.Encode()
		d := fn.Sum(msg)
		s.blobs[d], s.trees[d] = msg, t
		s.r.Folders = append(s.r.Folders, cas.OutputFolder{Path: fmt.Sprintf("folder%d", i), Tree: d, Root: t.Digest()})
	}
	for i := range r.IntN(3) {
		s.r.Links = append(s.r.Links, cas.OutputLink{Path: fmt.Sprintf("link%d", i), Target: "x"})
	}
	s.r.ExitCode = int32(r.IntN(3)) - 1
	if r.IntN(2) == 0 {
		s.r.Stdout = put()
	}
	if r.IntN(2) == 0 {
		s.r.Stderr = put()
	}
	if r.IntN(2) == 0 {
		s.r.Aux = map[string][]byte{"a": []byte("b"), "result": []byte("not the outer one")}
	}
	return s
}

// form gives the way to a server of fn, and the Tree messages that it gets.
func (s *sample) form(fn cas.Func) (form, map[cas.Digest][]byte) {
	there := map[cas.Digest][]byte{}
	double := func(d cas.Digest) (cas.Digest, error) {
		b, ok := s.blobs[d]
		if !ok {
			return cas.Digest{}, fmt.Errorf("%v: missing", d)
		}
		there[fn.Sum(b)] = b
		return fn.Sum(b), nil
	}
	return form{key: s.key, fn: fn, result: s.r, double: double, tree: func(d cas.Digest) (cas.Digest, error) {
		t, err := retree(s.trees[d], fn, double)
		if err != nil {
			return cas.Digest{}, err
		}
		there[fn.Sum(t.Encode())] = t.Encode()
		return fn.Sum(t.Encode()), nil
	}}, there
}

var funcs = [2]cas.Func{cas.BLAKE3, cas.SHA256}

// What is encoded comes back, with a double for each blob that is the same bytes.
func TestFormRoundTrip(t *testing.T) {
	t.Parallel()
	_, private, _ := ed25519.GenerateKey(nil)
	for seed := range uint64(60) {
		for _, local := range funcs {
			for _, fn := range funcs {
				s := newSample(seed, local)
				f, there := s.form(fn)
				if seed%2 == 0 {
					f.sign = private
				}
				msg, capture, err := f.encode()
				if err != nil {
					t.Fatal(err)
				}
				e, err := decode(fn, s.key, msg)
				if err != nil {
					t.Fatalf("seed %d: %v", seed, err)
				}
				raw, _ := s.r.Encode()
				if diff := gocmp.Diff(s.r, e.result); diff != "" || capture != e.capture || capture != local.Sum(raw) {
					t.Fatalf("seed %d, capture %v, %v: -want +got:\n%s", seed, capture, e.capture, diff)
				}
				if (e.signer != nil) != (f.sign != nil) {
					t.Errorf("signed by %x", e.signer)
				}
				found := newDoubles()
				for i, o := range e.result.Folders {
					localTree, err1 := cas.DecodeTree(local, there[e.trees[i].local])
					serverTree, err2 := cas.DecodeTree(fn, there[e.trees[i].server])
					if err := errors.Join(err1, err2, pairTrees(localTree, serverTree, found)); err != nil {
						t.Fatal(err)
					}
					if localTree.Digest() != o.Root {
						t.Errorf("another root: %v", localTree.Digest())
					}
				}
				for _, pairs := range []map[cas.Digest]cas.Digest{e.doubles.server, found.server} {
					for d, double := range pairs {
						if fn.Sum(s.blobs[d]) != double {
							t.Errorf("%v is not %v", d, double)
						}
					}
				}
				for _, d := range e.blobs() {
					if _, ok := e.doubles.server[d]; !ok {
						t.Errorf("no double of %v", d)
					}
				}
				checkMessage(t, msg)
			}
		}
	}
}

// checkMessage looks at it as other clients of a server do.
func checkMessage(t *testing.T, msg []byte) {
	t.Helper()
	var m repb.ActionResult
	if err := proto.Unmarshal(msg, &m); err != nil {
		t.Fatal(err)
	}
	if m.ExecutionMetadata.GetWorker() != "eval" {
		t.Error("no worker: servers write the client's address there")
	}
	for _, o := range m.OutputFiles {
		if len(o.Contents) > 0 || o.Digest == nil {
			t.Errorf("%v", o)
		}
	}
}

// What is outside changes, and the local result doesn't: none of it passes.
func TestFormDisagrees(t *testing.T) {
	digest := func(fn cas.Func, s string) *repb.Digest { return wireDigest(fn.Sum([]byte(s))) }
	for _, fn := range funcs {
		s := fullSample()
		cases := map[string]func(*repb.ActionResult){
			"a file less": func(m *repb.ActionResult) { m.OutputFiles = m.OutputFiles[1:] },
			"a file more": func(m *repb.ActionResult) {
				m.OutputFiles = append(m.OutputFiles, &repb.OutputFile{Path: "more", Digest: digest(fn, "")})
			},
			"a file twice":   func(m *repb.ActionResult) { m.OutputFiles = append(m.OutputFiles, m.OutputFiles[0]) },
			"another path":   func(m *repb.ActionResult) { m.OutputFiles[0].Path = "b" },
			"a path outside": func(m *repb.ActionResult) { m.OutputFiles[0].Path = "../b" },
			"executable":     func(m *repb.ActionResult) { m.OutputFiles[0].IsExecutable = true },
			"another size":   func(m *repb.ActionResult) { m.OutputFiles[0].Digest.SizeBytes++ },
			"no digest":      func(m *repb.ActionResult) { m.OutputFiles[0].Digest = nil },
			"two of one":     func(m *repb.ActionResult) { m.OutputFiles[0].Digest = digest(fn, "13") },
			"the exit code":  func(m *repb.ActionResult) { m.ExitCode++ },
			"a link is a file": func(m *repb.ActionResult) {
				m.OutputSymlinks = nil
				m.OutputFiles = append(m.OutputFiles, &repb.OutputFile{Path: "link", Digest: digest(fn, "x")})
			},
			"a link's target": func(m *repb.ActionResult) { m.OutputSymlinks[0].Target = "/etc/passwd" },
			"a folder is a link": func(m *repb.ActionResult) {
				m.OutputDirectories = nil
				m.OutputSymlinks = append(m.OutputSymlinks, &repb.OutputSymlink{Path: "folder", Target: "x"})
			},
			"a folder's path":     func(m *repb.ActionResult) { m.OutputDirectories[0].Path = "f" },
			"no standard output":  func(m *repb.ActionResult) { m.StdoutDigest = nil },
			"more standard error": func(m *repb.ActionResult) { m.StderrDigest = digest(fn, "err") },
			"no metadata":         func(m *repb.ActionResult) { m.ExecutionMetadata = nil },
			"no sum":              func(m *repb.ActionResult) { dropAux(m, auxSum) },
			"no roots":            func(m *repb.ActionResult) { dropAux(m, auxRoots) },
			"the roots":           func(m *repb.ActionResult) { aux(m, auxRoots).Value[10] ^= 1 },
			"the result":          func(m *repb.ActionResult) { aux(m, auxResult).Value[5] ^= 1 },
			"the signature":       func(m *repb.ActionResult) { aux(m, auxSignature).Value[50] ^= 1 },
			"the signer":          func(m *repb.ActionResult) { aux(m, auxSignature).Value[1] ^= 1 },
			"a short signature":   func(m *repb.ActionResult) { aux(m, auxSignature).Value = aux(m, auxSignature).Value[:95] },
			"two results": func(m *repb.ActionResult) {
				e := m.ExecutionMetadata
				e.AuxiliaryMetadata = append(e.AuxiliaryMetadata, aux(m, auxResult))
			},
			"an unknown blob of 0": func(m *repb.ActionResult) { m.OutputFiles[2].Digest.Hash = strings.Repeat("0", 64) },
		}
		if fn != cas.BLAKE3 {
			cases["no local tree"] = func(m *repb.ActionResult) { m.OutputFiles = m.OutputFiles[:3] }
			cases["a local tree of no folder"] = func(m *repb.ActionResult) { m.OutputFiles[3].Path += "x" }
			cases["a local tree's size"] = func(m *repb.ActionResult) { m.OutputFiles[3].Digest.SizeBytes-- }
		} else {
			cases["another blob"] = func(m *repb.ActionResult) { m.OutputFiles[0].Digest = digest(fn, "21") }
			cases["another tree"] = func(m *repb.ActionResult) { m.OutputDirectories[0].TreeDigest = digest(fn, "21") }
		}
		f, _ := s.form(fn)
		_, f.sign, _ = ed25519.GenerateKey(nil)
		msg, _, err := f.encode()
		if err != nil {
			t.Fatal(err)
		}
		for name, change := range cases {
			var m repb.ActionResult
			if err := proto.Unmarshal(msg, &m); err != nil {
				t.Fatal(err)
			}
			change(&m)
			b, err := proto.Marshal(&m)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := decode(fn, s.key, b); err == nil {
				t.Errorf("%v: %s: it counts", fn, name)
			} else if (name == "no metadata") != errors.Is(err, errNotOurs) {
				t.Errorf("%v: %s: %v", fn, name, err)
			}
		}
		if _, err := decode(fn, cas.BLAKE3.Sum([]byte("another key")), msg); err == nil {
			t.Error("the entry of another key counts")
		}
		if _, err := decode(fn, s.key, msg); err != nil {
			t.Error(err)
		}
	}
}

// fullSample has files "a", "b", empty "e"; a folder, a link and standard output.
func fullSample() *sample {
	fn := cas.BLAKE3
	s := &sample{key: fn.Sum([]byte("key")), blobs: map[cas.Digest][]byte{}, trees: map[cas.Digest]*cas.Tree{}}
	put := func(b string) cas.Digest {
		s.blobs[fn.Sum([]byte(b))] = []byte(b)
		return fn.Sum([]byte(b))
	}
	b := cas.NewTree(fn)
	b.File("f", put("12"), false)
	b.File("d/g", put("1"), true)
	b.Symlink("d/l", "g")
	t, err := b.Build()
	if err != nil {
		panic(err)
	}
	tree := put(string(t.Encode()))
	s.trees[tree] = t
	s.r = cas.Result{
		Files:   []cas.OutputFile{{Path: "a", Digest: put("12")}, {Path: "b", Digest: put("13"), Contents: []byte("13")}, {Path: "e", Digest: put("")}},
		Folders: []cas.OutputFolder{{Path: "folder", Tree: tree, Root: t.Digest()}},
		Links:   []cas.OutputLink{{Path: "link", Target: "a"}},
		Stdout:  put("12"),
	}
	return s
}

func aux(m *repb.ActionResult, name string) *anypb.Any {
	for _, a := range m.ExecutionMetadata.AuxiliaryMetadata {
		if a.TypeUrl == auxPrefix+name {
			return a
		}
	}
	panic("no " + name)
}

func dropAux(m *repb.ActionResult, name string) {
	aux(m, name).TypeUrl = "other/" + name
}

func TestFormRefused(t *testing.T) {
	fn := cas.SHA256
	for name, c := range map[string]struct {
		change func(*cas.Result)
		want   error
	}{
		"too large":   {func(r *cas.Result) { r.Aux = map[string][]byte{"a": make([]byte, maxMessage)} }, errTooLarge},
		"a name":      {func(r *cas.Result) { r.Files[0].Path = ".eval-trees/x" }, errName},
		"a link name": {func(r *cas.Result) { r.Links[0].Path = ".eval-trees" }, errName},
		"no root":     {func(r *cas.Result) { r.Folders[0].Root = cas.Digest{} }, nil},
		"no result":   {func(r *cas.Result) { r.Files[0].Path = "/" }, nil},
		"no blob":     {func(r *cas.Result) { r.Stdout = cas.BLAKE3.Sum([]byte("elsewhere")) }, nil},
	} {
		s := fullSample()
		c.change(&s.r)
		f, _ := s.form(fn)
		if _, _, err := f.encode(); err == nil || c.want != nil && !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Trees that differ in anything are no pair.
func TestPairTrees(t *testing.T) {
	build := func(fn cas.Func, change func(*cas.TreeBuilder)) *cas.Tree {
		b := cas.NewTree(fn)
		b.File("d/same", fn.Sum([]byte("same")), false)
		change(b)
		tree, err := b.Build()
		if err != nil {
			t.Fatal(err)
		}
		return tree
	}
	file := func(path, content string, x bool) func(*cas.TreeBuilder) {
		return func(b *cas.TreeBuilder) {
			fn := cas.SHA256
			if strings.HasPrefix(path, "local:") {
				path, fn = path[6:], cas.BLAKE3
			}
			b.File(path, fn.Sum([]byte(content)), x)
		}
	}
	link := func(target string) func(*cas.TreeBuilder) {
		return func(b *cas.TreeBuilder) { b.Symlink("a", target) }
	}
	nothing := func(*cas.TreeBuilder) {}
	for name, c := range map[string]struct {
		local, server func(*cas.TreeBuilder)
		ok            bool
	}{
		"same":         {file("local:d/a", "1", true), file("d/a", "1", true), true},
		"missing":      {file("local:d/a", "1", true), nothing, false},
		"more":         {nothing, file("d/a", "1", true), false},
		"name":         {file("local:d/a", "1", true), file("d/b", "1", true), false},
		"folder name":  {file("local:e/a", "1", true), file("f/a", "1", true), false},
		"mode":         {file("local:d/a", "1", true), file("d/a", "1", false), false},
		"size":         {file("local:d/a", "1", true), file("d/a", "12", true), false},
		"link":         {link("x"), link("x"), true},
		"link target":  {link("x"), link("y"), false},
		"link or file": {link("x"), file("a", "x", false), false},
		"two of one": {
			func(b *cas.TreeBuilder) { file("local:a", "1", false)(b); file("local:b", "1", false)(b) },
			func(b *cas.TreeBuilder) { file("a", "1", false)(b); file("b", "2", false)(b) }, false,
		},
		"one of two": {
			func(b *cas.TreeBuilder) { file("local:a", "1", false)(b); file("local:b", "2", false)(b) },
			func(b *cas.TreeBuilder) { file("a", "1", false)(b); file("b", "1", false)(b) }, false,
		},
	} {
		err := pairTrees(build(cas.BLAKE3, c.local), build(cas.SHA256, c.server), newDoubles())
		if (err == nil) != c.ok {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// Whatever comes, decode gives an error or an entry that hangs together.
func FuzzDecode(f *testing.F) {
	s := fullSample()
	for _, fn := range funcs {
		form, _ := s.form(fn)
		msg, _, err := form.encode()
		if err != nil {
			f.Fatal(err)
		}
		f.Add(msg, fn == cas.SHA256)
		form.sign = ed25519.NewKeyFromSeed(make([]byte, 32))
		msg, _, _ = form.encode()
		f.Add(msg, fn == cas.SHA256)
	}
	f.Add([]byte{}, false)
	f.Fuzz(func(t *testing.T, msg []byte, foreign bool) {
		fn := cas.BLAKE3
		if foreign {
			fn = cas.SHA256
		}
		e, err := decode(fn, s.key, msg)
		if err != nil {
			return
		}
		raw, err := e.result.Encode()
		if err != nil || e.capture != s.key.Func.Sum(raw) || len(e.trees) != len(e.result.Folders) {
			t.Fatalf("%v: %+v", err, e)
		}
		for _, o := range e.result.Folders {
			if o.Root.Func != s.key.Func {
				t.Errorf("folder %q has the root %v", o.Path, o.Root)
			}
		}
		for _, d := range e.blobs() {
			if there, ok := e.doubles.server[d]; !ok || there.Func != fn || there.Size != d.Size {
				t.Errorf("%v is %v there", d, there)
			}
		}
	})
}

// FuzzTrees pairs whatever two messages there are.
func FuzzTrees(f *testing.F) {
	s := fullSample()
	for d, tree := range s.trees {
		other, err := retree(tree, cas.SHA256, func(d cas.Digest) (cas.Digest, error) { return cas.SHA256.Sum(s.blobs[d]), nil })
		if err != nil {
			f.Fatal(err)
		}
		f.Add(s.blobs[d], other.Encode())
	}
	f.Fuzz(func(t *testing.T, a, b []byte) {
		local, err1 := cas.DecodeTree(cas.BLAKE3, a)
		server, err2 := cas.DecodeTree(cas.SHA256, b)
		if err1 != nil || err2 != nil {
			return
		}
		found := newDoubles()
		if pairTrees(local, server, found) != nil {
			return
		}
		// Then the one is the other, told in the other function.
		again, err := retree(local, cas.SHA256, func(d cas.Digest) (cas.Digest, error) {
			there, ok := found.server[d]
			if !ok {
				return there, errors.New("no double")
			}
			return there, nil
		})
		if err != nil || again.Digest() != server.Digest() {
			t.Errorf("%v: %v is not %v", err, again.Digest(), server.Digest())
		}
	})
}
