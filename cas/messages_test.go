package cas

import (
	"bytes"
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	gocmp "github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/anypb"
	"google.golang.org/protobuf/types/known/durationpb"
)

func protoDigest(d Digest) *repb.Digest { return &repb.Digest{Hash: d.Hex(), SizeBytes: d.Size} }

func marshal(t *testing.T, m proto.Message) []byte {
	t.Helper()
	b, err := proto.MarshalOptions{Deterministic: true}.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// same compares our bytes with those of the generated types.
func same(t *testing.T, got []byte, m proto.Message) {
	t.Helper()
	if want := marshal(t, m); !bytes.Equal(got, want) {
		t.Errorf("%T:\n got %x\nwant %x", m, got, want)
	}
}

func protoDirectory(d Directory) *repb.Directory {
	d = d.sorted()
	m := &repb.Directory{}
	for _, f := range d.Files {
		m.Files = append(m.Files, &repb.FileNode{Name: f.Name, Digest: protoDigest(f.Digest), IsExecutable: f.Executable})
	}
	for _, g := range d.Directories {
		m.Directories = append(m.Directories, &repb.DirectoryNode{Name: g.Name, Digest: protoDigest(g.Digest)})
	}
	for _, l := range d.Symlinks {
		m.Symlinks = append(m.Symlinks, &repb.SymlinkNode{Name: l.Name, Target: l.Target})
	}
	return m
}

func protoCommand(c Command) *repb.Command {
	m := &repb.Command{Arguments: c.Arguments, WorkingDirectory: c.WorkingDirectory}
	for _, e := range sortedBy(c.Env, func(a, b *EnvVar) int { return cmp.Compare(a.Name, b.Name) }) {
		m.EnvironmentVariables = append(m.EnvironmentVariables, &repb.Command_EnvironmentVariable{Name: e.Name, Value: e.Value})
	}
	m.OutputPaths = slices.Sorted(slices.Values(c.OutputPaths))
	return m
}

func protoAction(a Action) *repb.Action {
	m := &repb.Action{
		CommandDigest: protoDigest(a.Command), InputRootDigest: protoDigest(a.InputRoot),
		DoNotCache: a.DoNotCache, Salt: a.Salt,
	}
	if a.Timeout != 0 {
		m.Timeout = durationpb.New(a.Timeout)
	}
	if len(a.Platform) > 0 {
		m.Platform = &repb.Platform{}
	}
	for _, p := range a.Platform {
		m.Platform.Properties = append(m.Platform.Properties, &repb.Platform_Property{Name: p.Name, Value: p.Value})
	}
	return m
}

func protoResult(r Result) *repb.ActionResult {
	m := &repb.ActionResult{ExitCode: r.ExitCode}
	for _, f := range sortedBy(r.Files, func(a, b *OutputFile) int { return cmp.Compare(a.Path, b.Path) }) {
		m.OutputFiles = append(m.OutputFiles, &repb.OutputFile{Path: f.Path, Digest: protoDigest(f.Digest), IsExecutable: f.Executable, Contents: f.Contents})
	}
	for _, f := range sortedBy(r.Folders, func(a, b *OutputFolder) int { return cmp.Compare(a.Path, b.Path) }) {
		m.OutputDirectories = append(m.OutputDirectories, &repb.OutputDirectory{Path: f.Path, TreeDigest: protoDigest(f.Tree)})
	}
	for _, l := range sortedBy(r.Links, func(a, b *OutputLink) int { return cmp.Compare(a.Path, b.Path) }) {
		m.OutputSymlinks = append(m.OutputSymlinks, &repb.OutputSymlink{Path: l.Path, Target: l.Target})
	}
	if !r.Stdout.IsZero() {
		m.StdoutDigest = protoDigest(r.Stdout)
	}
	if !r.Stderr.IsZero() {
		m.StderrDigest = protoDigest(r.Stderr)
	}
	if len(r.Aux) > 0 {
		m.ExecutionMetadata = &repb.ExecutedActionMetadata{}
	}
	var names []string
	for name := range r.Aux {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		m.ExecutionMetadata.AuxiliaryMetadata = append(m.ExecutionMetadata.AuxiliaryMetadata,
			&anypb.Any{TypeUrl: "eval/" + name, Value: r.Aux[name]})
	}
	return m
}

// random makes valid values; equal seeds make equal ones.
type random struct{ *rand.Rand }

func newRandom(seed uint64) random { return random{rand.New(rand.NewPCG(seed, 1))} }

func (r random) digest(fn Func) Digest {
	d := fn.Sum([]byte{byte(r.Uint32()), byte(r.Uint32())})
	if r.IntN(3) == 0 {
		d.Size = r.Int64() >> r.IntN(63)
	}
	return d
}

var words = []string{"a", "b", "lib", "main.go", "Ärger", "日本", "x y", "-", "a.b", "..a", strings.Repeat("long", 60)}

func (r random) word() string { return words[r.IntN(len(words))] }

func (r random) path() string {
	path := r.word()
	for range r.IntN(3) {
		path += "/" + r.word()
	}
	return path
}

// names gives up to n different texts.
func (r random) names(n int, text func() string) []string {
	seen := map[string]bool{}
	var list []string
	for range r.IntN(n + 1) {
		if s := text(); !seen[s] {
			seen[s] = true
			list = append(list, s)
		}
	}
	return list
}

func (r random) directory(fn Func) Directory {
	var d Directory
	for _, name := range r.names(12, r.word) {
		switch r.IntN(3) {
		case 0:
			d.Files = append(d.Files, FileNode{Name: name, Digest: r.digest(fn), Executable: r.IntN(2) == 0})
		case 1:
			d.Directories = append(d.Directories, DirectoryNode{Name: name, Digest: r.digest(fn)})
		case 2:
			d.Symlinks = append(d.Symlinks, SymlinkNode{Name: name, Target: r.path()})
		}
	}
	return d
}

func (r random) command() Command {
	c := Command{OutputPaths: r.names(5, r.path)}
	for range r.IntN(4) {
		c.Arguments = append(c.Arguments, []string{"", "sh", "-c", r.word()}[r.IntN(4)])
	}
	for _, name := range r.names(5, r.word) {
		c.Env = append(c.Env, EnvVar{Name: name, Value: []string{"", r.path()}[r.IntN(2)]})
	}
	if r.IntN(2) == 0 {
		c.WorkingDirectory = r.path()
	}
	return c
}

func (r random) action(fn Func) Action {
	a := Action{Command: r.digest(fn), InputRoot: r.digest(fn), DoNotCache: r.IntN(2) == 0}
	a.Timeout = []time.Duration{0, 1, time.Second, time.Minute + 5, math.MaxInt64}[r.IntN(5)]
	if r.IntN(2) == 0 {
		a.Salt = []byte(r.path())
	}
	for _, name := range slices.Sorted(slices.Values(r.names(3, r.word))) {
		a.Platform = append(a.Platform, Property{Name: name, Value: []string{"", r.word()}[r.IntN(2)]})
	}
	return a
}

func (r random) result(fn Func) Result {
	res := Result{ExitCode: []int32{0, 1, 127, -9, math.MaxInt32, math.MinInt32}[r.IntN(6)]}
	for _, path := range r.names(9, r.path) {
		switch r.IntN(6) {
		case 0:
			res.Folders = append(res.Folders, OutputFolder{Path: path, Tree: r.digest(fn)})
			continue
		case 1:
			res.Links = append(res.Links, OutputLink{Path: path, Target: "../" + r.path()})
			continue
		}
		o := OutputFile{Path: path, Digest: r.digest(fn), Executable: r.IntN(2) == 0}
		if o.Digest.Size == 0 || r.IntN(3) == 0 {
			if o.Contents = []byte(r.word()); len(o.Contents) == 0 {
				o.Contents = nil
			}
			o.Digest = fn.Sum(o.Contents)
		}
		res.Files = append(res.Files, o)
	}
	if r.IntN(2) == 0 {
		res.Stdout = r.digest(fn)
	}
	if r.IntN(2) == 0 {
		res.Stderr = r.digest(fn)
	}
	for _, name := range r.names(4, r.word) {
		if res.Aux == nil {
			res.Aux = map[string][]byte{}
		}
		res.Aux[name] = []byte(strings.Repeat("v", r.IntN(300)))
	}
	return res
}

func (r random) fn() Func { return []Func{BLAKE3, SHA256}[r.IntN(2)] }

// unordered compares what Encode may have sorted.
var unordered = gocmp.Options{
	cmpopts.EquateEmpty(),
	cmpopts.SortSlices(func(a, b FileNode) bool { return a.Name < b.Name }),
	cmpopts.SortSlices(func(a, b DirectoryNode) bool { return a.Name < b.Name }),
	cmpopts.SortSlices(func(a, b SymlinkNode) bool { return a.Name < b.Name }),
	cmpopts.SortSlices(func(a, b OutputFile) bool { return a.Path < b.Path }),
	cmpopts.SortSlices(func(a, b OutputFolder) bool { return a.Path < b.Path }),
	cmpopts.SortSlices(func(a, b OutputLink) bool { return a.Path < b.Path }),
	cmpopts.SortSlices(func(a, b EnvVar) bool { return a.Name < b.Name }),
}

func check[T any](t *testing.T, x T, encode func() ([]byte, error), m proto.Message, decode func([]byte) (T, error), more ...gocmp.Option) {
	t.Helper()
	b, err := encode()
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	same(t, b, m)
	got, err := decode(b)
	if err != nil {
		t.Fatalf("%+v: %v", x, err)
	}
	if diff := gocmp.Diff(x, got, append(more, unordered)...); diff != "" {
		t.Errorf("decoded differs: %s", diff)
	}
}

func checkRandom(t *testing.T, seed uint64) {
	r := newRandom(seed)
	fn := r.fn()
	d, c, a, res := r.directory(fn), r.command(), r.action(fn), r.result(fn)
	check(t, d, d.Encode, protoDirectory(d), func(b []byte) (Directory, error) { return DecodeDirectory(fn, b) })
	check(t, c, c.Encode, protoCommand(c), DecodeCommand,
		gocmp.FilterPath(func(p gocmp.Path) bool { return p.String() == "OutputPaths" },
			cmpopts.SortSlices(func(a, b string) bool { return a < b })))
	check(t, a, a.Encode, protoAction(a), func(b []byte) (Action, error) { return DecodeAction(fn, b) })
	check(t, res, res.Encode, protoResult(res), func(b []byte) (Result, error) { return DecodeResult(fn, b) })
}

func TestDifferential(t *testing.T) {
	for seed := range uint64(60) { // comparing what was decoded is what takes time
		checkRandom(t, seed)
	}
	for seed := range uint64(1000) {
		r := newRandom(seed)
		fn := r.fn()
		d, c, a, res := r.directory(fn), r.command(), r.action(fn), r.result(fn)
		for m, x := range map[proto.Message]interface{ Encode() ([]byte, error) }{
			protoDirectory(d): d, protoCommand(c): c, protoAction(a): a, protoResult(res): res,
		} {
			b, err := x.Encode()
			if err != nil {
				t.Fatalf("seed %d: %+v: %v", seed, x, err)
			}
			same(t, b, m)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	d, other := BLAKE3.Sum(nil), SHA256.Sum(nil)
	file := func(names ...string) (dir Directory) {
		for _, n := range names {
			dir.Files = append(dir.Files, FileNode{Name: n, Digest: d})
		}
		return dir
	}
	out := func(paths ...string) (r Result) {
		for _, p := range paths {
			r.Files = append(r.Files, OutputFile{Path: p, Digest: d})
		}
		return r
	}
	tests := map[string]interface{ Encode() ([]byte, error) }{
		"empty name":             file(""),
		"dot":                    file("."),
		"dot dot":                file(".."),
		"slash":                  file("a/b"),
		"NUL":                    file("a\x00"),
		"name not UTF-8":         file("\xff"),
		"twice":                  file("a", "b", "a"),
		"two kinds":              Directory{Files: file("a").Files, Symlinks: []SymlinkNode{{"a", "b"}}},
		"two kinds, folders":     Directory{Directories: []DirectoryNode{{"a", d}}, Symlinks: []SymlinkNode{{"a", "b"}}},
		"no target":              Directory{Symlinks: []SymlinkNode{{"a", ""}}},
		"no digest":              Directory{Files: []FileNode{{Name: "a"}}},
		"negative size":          Directory{Files: []FileNode{{Name: "a", Digest: Digest{Func: BLAKE3, Size: -1}}}},
		"two functions":          Directory{Files: []FileNode{{Name: "a", Digest: d}, {Name: "b", Digest: other}}},
		"variable twice":         Command{Env: []EnvVar{{"A", "1"}, {"B", ""}, {"A", "1"}}},
		"variable with =":        Command{Env: []EnvVar{{"A=", "1"}}},
		"variable without name":  Command{Env: []EnvVar{{"", "1"}}},
		"argument not UTF-8":     Command{Arguments: []string{"\xff"}},
		"argument with NUL":      Command{Arguments: []string{"a\x00b"}},
		"output twice":           Command{OutputPaths: []string{"a", "a"}},
		"absolute output":        Command{OutputPaths: []string{"/a"}},
		"output above":           Command{OutputPaths: []string{"../a"}},
		"absolute work dir":      Command{WorkingDirectory: "/w"},
		"unclean work dir":       Command{WorkingDirectory: "w/"},
		"no command":             Action{InputRoot: d},
		"no input root":          Action{Command: d},
		"negative timeout":       Action{Command: d, InputRoot: d, Timeout: -1},
		"property twice":         Action{Command: d, InputRoot: d, Platform: []Property{{"a", "b"}, {"a", "b"}}},
		"action, two functions":  Action{Command: d, InputRoot: other},
		"result path twice":      out("a", "a"),
		"result path above":      out("a/../b"),
		"result path empty":      out(""),
		"result path, two kinds": Result{Folders: []OutputFolder{{Path: "a", Tree: d}}, Links: []OutputLink{{"a", "b"}}},
		"file and folder":        Result{Files: out("a").Files, Folders: []OutputFolder{{Path: "a", Tree: d}}},
		"folder without digest":  Result{Folders: []OutputFolder{{Path: "a"}}},
		"folder above":           Result{Folders: []OutputFolder{{Path: "../a", Tree: d}}},
		"folder, two functions":  Result{Folders: []OutputFolder{{Path: "a", Tree: d}}, Stdout: other},
		"link without target":    Result{Links: []OutputLink{{Path: "a"}}},
		"link at the root":       Result{Links: []OutputLink{{"/a", "b"}}},
		"link to NUL":            Result{Links: []OutputLink{{"a", "b\x00"}}},
		"aux without name":       Result{Aux: map[string][]byte{"": nil}},
		"result, two functions":  Result{Stdout: d, Stderr: other},
	}
	for name, x := range tests {
		if b, err := x.Encode(); err == nil {
			t.Errorf("%s: encoded to %x", name, b)
		}
	}
}

// REAPI's own example of what a canonical Directory refuses to be is any other
// order: an accepted variant would be a second key for one input.
func TestDecodeRefusesVariants(t *testing.T) {
	d := BLAKE3.Sum([]byte("x"))
	m := protoDirectory(Directory{Files: []FileNode{{"a", d, false}, {"b", d, true}}})
	slices.Reverse(m.Files)
	unsorted := marshal(t, m)
	properties := marshal(t, &repb.Directory{NodeProperties: &repb.NodeProperties{}})
	upper := marshal(t, &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: &repb.Digest{Hash: strings.ToUpper(d.Hex())}}}})
	negative := marshal(t, &repb.Directory{Files: []*repb.FileNode{{Name: "a", Digest: &repb.Digest{Hash: d.Hex(), SizeBytes: -1}}}})
	for name, b := range map[string][]byte{"unsorted": unsorted, "properties": properties, "upper": upper, "negative": negative} {
		if _, err := DecodeDirectory(BLAKE3, b); err == nil {
			t.Errorf("%s: decoded", name)
		}
	}
	if _, err := DecodeDirectory(0, nil); err == nil {
		t.Error("decoded without a function")
	}
}

func TestDecodeResultOfServer(t *testing.T) {
	d := BLAKE3.Sum([]byte("x"))
	m := &repb.ActionResult{
		OutputFiles:       []*repb.OutputFile{{Path: "b", Digest: protoDigest(d), Contents: []byte("x")}, {Path: "a", Digest: protoDigest(d)}},
		OutputDirectories: []*repb.OutputDirectory{{Path: "f", TreeDigest: protoDigest(d), IsTopologicallySorted: true, RootDirectoryDigest: protoDigest(BLAKE3.Sum(nil))}},
		OutputSymlinks:    []*repb.OutputSymlink{{Path: "m", Target: "/t", NodeProperties: &repb.NodeProperties{}}, {Path: "k", Target: "t"}},
		//lint:ignore SA1019 servers still write both
		OutputFileSymlinks: []*repb.OutputSymlink{{Path: "k", Target: "t"}, {Path: "j", Target: "old"}},
		//lint:ignore SA1019 servers still write both
		OutputDirectorySymlinks: []*repb.OutputSymlink{{Path: "n", Target: "old"}},
		StdoutDigest:            protoDigest(d), StdoutRaw: []byte("x"),
		ExecutionMetadata: &repb.ExecutedActionMetadata{
			Worker:            "w",
			AuxiliaryMetadata: []*anypb.Any{{TypeUrl: "type.googleapis.com/other"}, {TypeUrl: "eval/cost", Value: []byte("1")}},
		},
	}
	got, err := DecodeResult(BLAKE3, marshal(t, m))
	want := Result{
		Files:   []OutputFile{{"a", d, false, nil}, {"b", d, false, []byte("x")}},
		Folders: []OutputFolder{{Path: "f", Tree: d}}, Links: []OutputLink{{"j", "old"}, {"k", "t"}, {"m", "/t"}, {"n", "old"}}, Stdout: d,
		Aux: map[string][]byte{"cost": []byte("1")},
	}
	if diff := gocmp.Diff(want, got); diff != "" || err != nil {
		t.Errorf("%v %s", err, diff)
	}
	for _, m := range []*repb.ActionResult{
		{StdoutRaw: []byte("only here")},
		{StderrRaw: []byte("only here")},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "d"}}},
		{OutputDirectories: []*repb.OutputDirectory{{Path: "d", RootDirectoryDigest: protoDigest(d)}}},
		{OutputDirectories: []*repb.OutputDirectory{{TreeDigest: protoDigest(d)}}}, // the whole working directory
		{OutputSymlinks: []*repb.OutputSymlink{{Path: "l"}}},
		{OutputSymlinks: []*repb.OutputSymlink{{Path: "l", Target: "a"}}, OutputFileSymlinks: []*repb.OutputSymlink{{Path: "l", Target: "b"}}},
		{OutputFiles: []*repb.OutputFile{{Path: "../../etc/passwd", Digest: protoDigest(d)}}},
		{OutputFiles: []*repb.OutputFile{{Path: "a"}}},
		{OutputFiles: []*repb.OutputFile{{Path: "a", Digest: protoDigest(d), Contents: []byte("y")}}},
	} {
		if r, err := DecodeResult(BLAKE3, marshal(t, m)); err == nil {
			t.Errorf("%v: decoded as %+v", m, r)
		}
	}
}

func FuzzDirectory(f *testing.F) {
	for seed := range uint64(8) {
		b, _ := newRandom(seed).directory(BLAKE3).Encode()
		f.Add(b, seed, "name", "target")
	}
	f.Fuzz(func(t *testing.T, b []byte, seed uint64, name, target string) {
		whole := newRandom(seed).directory(BLAKE3)
		if got, err := whole.Encode(); err != nil {
			t.Errorf("%+v: %v", whole, err)
		} else {
			same(t, got, protoDirectory(whole))
		}
		if d, err := DecodeDirectory(BLAKE3, b); err == nil {
			same(t, b, protoDirectory(d))
			if again, err := d.Encode(); err != nil || !bytes.Equal(again, b) {
				t.Errorf("%x encodes again as %x, %v", b, again, err)
			}
		}
		d := Directory{Symlinks: []SymlinkNode{{name, target}, {"other", "x"}}}
		if got, err := d.Encode(); err == nil {
			same(t, got, protoDirectory(d))
		}
		DecodeCommand(b)
		DecodeAction(SHA256, b)
	})
}

func FuzzResult(f *testing.F) {
	for seed := range uint64(8) {
		b, _ := newRandom(seed).result(BLAKE3).Encode()
		f.Add(b, int32(seed), "name", []byte("value"))
	}
	f.Fuzz(func(t *testing.T, b []byte, exit int32, name string, value []byte) {
		r, err := DecodeResult(BLAKE3, b)
		if err == nil {
			check(t, r, r.Encode, protoResult(r), func(b []byte) (Result, error) { return DecodeResult(BLAKE3, b) })
		}
		r = Result{ExitCode: exit, Aux: map[string][]byte{name: value}, Stdout: SHA256.Sum(b)}
		if _, err := r.Encode(); err == nil {
			check(t, r, r.Encode, protoResult(r), func(b []byte) (Result, error) { return DecodeResult(SHA256, b) })
		}
	})
}

func ExampleDigest_String() {
	fmt.Println(SHA256.Sum(nil))
	// Output: sha256:e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855/0
}
