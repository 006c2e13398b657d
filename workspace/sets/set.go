package sets

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Set is a published set in memory. It is not to be changed.
type Set struct {
	Manifest Manifest
	files    map[string][]byte // all but the manifest
	manifest []byte
}

// Name gives the name of the set's folder.
func (s *Set) Name() string { return s.Manifest.name(s.manifest) }

// Digest gives the digest of the manifest, which is that of the whole set.
func (s *Set) Digest() cas.Digest { return s.Manifest.Digest.Sum(s.manifest) }

// File gives the content of a file, nil if there is none.
func (s *Set) File(path string) []byte { return s.files[path] }

// Paths lists the files, sorted, without the manifest.
func (s *Set) Paths() []string { return slices.Sorted(maps.Keys(s.files)) }

// Content is what a set is made of.
type Content struct {
	Func     cas.Func
	Eval     string
	Module   string
	Platform graph.Platform
	Settings map[string]string
	Target   graph.Label
	Unsealed bool
	Outputs  map[string][]byte // by path below the target's output folder
	Results  []Result
	Blob     func(cas.Digest) ([]byte, error) // of what results name
	Tree     func(cas.Digest) (*cas.Tree, error)
	Draws    []byte
	Tools    []Tool
	Sources  *Sources
}

// A Result is what is recorded of a process.
type Result struct {
	Slot      string // its first output's path
	Key       graph.Key
	Result    cas.Result
	ID        *draws.ID // of a draw, else nil
	Stopped   bool      // by a limit that was raised since
	Withdrawn bool
}

// repFolders is where a rep's files are, by their names below reps/NAME.
var repFolders = map[string]string{
	"transcript.jsonl": "transcripts", "reply.txt": "replies", "usage.json": "usage", "egress.jsonl": "egress",
	"seal.json": "seals", "exit.json": "exits", "facts.json": "facts", "outcome.json": "outcomes",
}

// topOutputs are at the top of a set under their own names.
var topOutputs = []string{"scorecard.json", "history.json", "cost.json"}

// place gives where an output is in a set.
func place(output string) string {
	if slices.Contains(topOutputs, output) {
		return output
	}
	if rep, ok := strings.CutPrefix(output, "reps/"); ok {
		name, file, _ := strings.Cut(rep, "/")
		if dir := repFolders[file]; dir != "" {
			return dir + "/" + name + path.Ext(file)
		}
	}
	return "outputs/" + output
}

// path gives where a result is in a set.
func (r Result) path() string {
	if r.ID == nil {
		return processes + r.Slot + ".bin"
	}
	s := r.ID.Sample
	name := fmt.Sprintf("%s-%d", s.Stream, s.Index)
	switch {
	case r.Withdrawn:
		name = fmt.Sprintf("withdrawn/%d-%d/%s", s.Epoch, s.Redraw, name)
	case r.Stopped: // several, each with a key of its own
		name = "stopped/" + name
	default:
		return "results/" + name + ".bin"
	}
	return "results/" + name + "-" + cas.Digest(r.Key).Hex()[:16] + ".bin"
}

// processes begins the paths of results that are of no draw.
const processes = "results/processes/"

// attributes keep git from changing line ends on a checkout.
const attributes = "* -text\n"

// New makes a set.
func New(c Content) (*Set, error) {
	s := &Set{files: map[string][]byte{}}
	s.Manifest = Manifest{
		Digest: c.Func, DigestName: c.Func.String(), Epoch: 1, Eval: c.Eval, Executable: []string{}, Files: map[string]string{},
		Module: c.Module, Platform: Platform{c.Platform.ISA, c.Platform.OSFamily}, Reps: map[string]Rep{}, Results: map[string]string{},
		Schema: Schema, Settings: map[string]string{}, Target: c.Target.String(), Unsealed: c.Unsealed,
	}
	maps.Copy(s.Manifest.Settings, c.Settings)
	if err := s.fill(c); err != nil {
		return nil, fmt.Errorf("publish %s: %w", c.Target, err)
	}
	for p, b := range s.files {
		s.Manifest.Files[p] = c.Func.Sum(b).String()
	}
	slices.Sort(s.Manifest.Executable)
	if err := s.Manifest.check(); err != nil {
		return nil, fmt.Errorf("publish %s: %w", c.Target, err)
	}
	s.manifest = s.Manifest.encode()
	return s, nil
}

func (s *Set) add(p string, b []byte) error {
	if _, ok := s.files[p]; ok {
		return fmt.Errorf("%s would be there twice", p)
	}
	if b == nil {
		b = []byte{}
	}
	s.files[p] = b
	return nil
}

func (s *Set) fill(c Content) error {
	have := map[cas.Digest]bool{}
	for p, b := range c.Outputs {
		if err := s.add(place(p), b); err != nil {
			return err
		}
		have[c.Func.Sum(b)] = true
	}
	for _, r := range c.Results {
		if err := s.addResult(c, r, have); err != nil {
			return err
		}
	}
	for p, b := range map[string][]byte{
		".gitattributes": []byte(attributes), drawsName: c.Draws, toolsName: encodeTools(c.Tools), sourcesName: c.Sources.asked(),
	} {
		if err := s.add(p, b); err != nil {
			return err
		}
	}
	for l, b := range c.Sources.files {
		p := sourcePath(l.repo, l.path)
		if err := s.add(p, b); err != nil {
			return err
		}
		if c.Sources.executable[l] {
			s.Manifest.Executable = append(s.Manifest.Executable, p)
		}
	}
	return nil
}

func (s *Set) addResult(c Content, r Result, have map[cas.Digest]bool) error {
	b, err := r.Result.Encode()
	if err != nil {
		return err
	}
	p := r.path()
	if err := s.add(p, b); err != nil {
		return err
	}
	s.Manifest.Results[p] = r.Key.String()
	if id := r.ID; id != nil && !r.Withdrawn {
		s.Manifest.Epoch = max(s.Manifest.Epoch, id.Sample.Epoch)
		if !r.Stopped {
			s.Manifest.Reps[fmt.Sprintf("%s-%d", id.Sample.Stream, id.Sample.Index)] = Rep{
				Capture: captureName(c.Func.Sum(b)), Key: r.Key.String(), Result: p,
			}
		}
	}
	blobs, err := blobsOf(r.Result, c.Tree)
	if err != nil {
		return err
	}
	for _, d := range blobs {
		if have[d] {
			continue
		}
		have[d] = true
		blob, err := c.Blob(d)
		if err != nil {
			return err
		}
		if err := s.add("blobs/"+d.Hex(), blob); err != nil {
			return err
		}
	}
	return nil
}

// blobsOf lists what a result names and doesn't hold: of a folder the message
// and the files.
func blobsOf(r cas.Result, read func(cas.Digest) (*cas.Tree, error)) ([]cas.Digest, error) {
	var out []cas.Digest
	for _, f := range r.Folders {
		tree, err := read(f.Tree)
		if err != nil {
			return nil, err
		}
		out = append(out, f.Tree)
		err = tree.Walk(func(_ string, n cas.FileNode) error {
			if n.Digest.Size > 0 {
				out = append(out, n.Digest)
			}
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	for _, f := range r.Files {
		if !f.Inlined() {
			out = append(out, f.Digest)
		}
	}
	for _, d := range []cas.Digest{r.Stdout, r.Stderr} {
		if !d.IsZero() {
			out = append(out, d)
		}
	}
	return out, nil
}

// A Fault is a file that is not what it has to be.
type Fault struct {
	Path, Cause string
	Want, Got   []byte // nil if there is nothing to compare
}

func (f Fault) String() string { return f.Path + ": " + f.Cause }

// Compare tells in which files the set differs from the one that was made again
// from its sources and results. Sources are not compared: they are where again
// comes from, and one that it didn't need says nothing.
func (s *Set) Compare(again *Set) []Fault {
	var faults []Fault
	paths := map[string]bool{}
	for _, set := range []*Set{s, again} {
		for p := range set.files {
			paths[p] = !strings.HasPrefix(p, "sources/") && !strings.HasPrefix(p, "external/")
		}
	}
	for _, p := range slices.Sorted(maps.Keys(paths)) {
		if !paths[p] || p == sourcesName {
			continue
		}
		got, has := s.files[p]
		want, wanted := again.files[p]
		switch {
		case !has:
			faults = append(faults, Fault{Path: p, Cause: "it is missing: the sources and results give it"})
		case !wanted:
			faults = append(faults, Fault{Path: p, Cause: "the sources and results don't give it"})
		case !bytes.Equal(got, want):
			faults = append(faults, Fault{Path: p, Cause: "it is not what the recorded bytes give", Want: want, Got: got})
		}
	}
	a, b := s.Manifest, again.Manifest
	if a.Epoch != b.Epoch || !maps.Equal(a.Reps, b.Reps) || !maps.Equal(a.Results, b.Results) {
		faults = append(faults, Fault{Path: ManifestName, Cause: "its epoch, reps or results are not those of the recorded bytes"})
	}
	return faults
}

// A Recorded result is one as a set has it.
type Recorded struct {
	Path   string
	Bytes  []byte
	Key    graph.Key
	Draw   bool
	Result cas.Result
	Blobs  []cas.Digest // that it names; of folders, which no draw has, nothing
}

// Results reads the results, in the order of their paths.
func (s *Set) Results() ([]Recorded, error) {
	var out []Recorded
	for _, p := range slices.Sorted(maps.Keys(s.Manifest.Results)) {
		r := Recorded{Path: p, Bytes: s.files[p], Draw: !strings.HasPrefix(p, processes)}
		key, err := s.Manifest.parse(s.Manifest.Results[p])
		r.Key = graph.Key(key)
		if err == nil {
			r.Result, err = cas.DecodeResult(s.Manifest.Digest, r.Bytes)
		}
		var b []byte
		if err == nil {
			b, err = r.Result.Encode()
		}
		if err == nil && !bytes.Equal(b, r.Bytes) {
			err = errors.New("it is not encoded as results are")
		}
		if err == nil && r.Draw && len(r.Result.Folders) > 0 {
			err = errors.New("a draw keeps no folders")
		}
		if err != nil {
			return nil, fmt.Errorf("read %s: %w", p, err)
		}
		noTree := func(cas.Digest) (*cas.Tree, error) { return cas.NewTree(s.Manifest.Digest).Build() }
		if r.Blobs, err = blobsOf(r.Result, noTree); err != nil {
			return nil, err
		}
		out = append(out, r)
	}
	return out, nil
}
