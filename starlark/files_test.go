package starlark

import (
	"context"
	"fmt"
	"io"
	"maps"
	"path"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// fakeFiles is a workspace in memory. Files of another module have the key
// "@repo//path". The knobs stand for what a disk can do.
type fakeFiles struct {
	module string
	files  map[string]string

	mu     sync.Mutex
	fail   map[string]error  // reading the file fails
	onRead func(file string) // runs before a read, outside of mu; may block
	reads  map[string]int
}

func newFiles(files map[string]string) *fakeFiles {
	return &fakeFiles{module: "test", files: files, fail: map[string]error{}, reads: map[string]int{}}
}

func fileKey(repo, rel string) string {
	if repo == "" {
		return rel
	}
	return "@" + repo + "//" + rel
}

func (f *fakeFiles) Canonical(repo string) (string, error) {
	if repo == f.module || repo == "" {
		return "", nil
	}
	for k := range f.files {
		if strings.HasPrefix(k, "@"+repo+"//") {
			return repo, nil
		}
	}
	return "", fmt.Errorf("there is no module @%s", repo)
}

func (f *fakeFiles) ReadFile(repo, rel string) ([]byte, error) {
	key := fileKey(repo, rel)
	if f.onRead != nil {
		f.onRead(key)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reads[key]++
	if err := f.fail[key]; err != nil {
		return nil, err
	}
	if err := f.IsFile(repo, rel); err != nil {
		return nil, err
	}
	return []byte(f.files[key]), nil
}

func (f *fakeFiles) ReadHead(repo, rel string, n int) ([]byte, error) {
	b, err := f.ReadFile(repo, rel)
	return b[:min(n, len(b))], err
}

func (f *fakeFiles) IsFile(repo, rel string) error {
	key := fileKey(repo, rel)
	if _, ok := f.files[key]; ok {
		return nil
	}
	var siblings []string
	for _, k := range slices.Sorted(maps.Keys(f.files)) {
		if path.Dir(k) == path.Dir(key) {
			siblings = append(siblings, path.Base(k))
		}
	}
	return fmt.Errorf("%s does not exist%s", rel, graph.DidYouMean(path.Base(key), siblings))
}

func (f *fakeFiles) HasPackage(repo, pkg string) (bool, error) {
	_, ok := f.files[fileKey(repo, path.Join(pkg, buildFile))]
	return ok, nil
}

func (f *fakeFiles) Glob(repo, pkg string, include, exclude []string) ([]string, error) {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(f.files)) {
		rel, ok := strings.CutPrefix(k, fileKey(repo, pkg+"/"))
		matches := func(list []string) bool {
			return slices.ContainsFunc(list, func(p string) bool { m, _ := path.Match(p, rel); return m })
		}
		if ok && matches(include) && !matches(exclude) {
			out = append(out, rel)
		}
	}
	return out, nil
}

// packages lists the packages of the fake, for Loader.Select.
func (f *fakeFiles) packages(repo, prefix string) ([]string, error) {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(f.files)) {
		if rel, ok := strings.CutPrefix(k, fileKey(repo, "")); ok && path.Base(rel) == buildFile && !(repo == "" && strings.HasPrefix(k, "@")) {
			pkg := strings.TrimPrefix(path.Dir("/"+rel), "/")
			if (graph.Pattern{Pkg: prefix, Below: true}).Matches(graph.Label{Pkg: pkg}) {
				out = append(out, pkg)
			}
		}
	}
	return out, nil
}

// A build is a fake workspace with a Loader on it.
type build struct {
	*Loader
	files *fakeFiles
	logs  []string
	mu    sync.Mutex
}

func newBuild(files map[string]string, config map[string]string) *build {
	b := &build{files: newFiles(files)}
	b.Loader = New(Options{Files: b.files, Module: b.files.module, Config: config, Print: func(s string) {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.logs = append(b.logs, s)
	}})
	return b
}

// all loads and analyses //... and returns the targets.
func (b *build) all() ([]*Target, error) {
	targets, _, err := b.Select(context.Background(), []graph.Pattern{{Below: true}}, b.files.packages)
	if err != nil {
		return nil, err
	}
	return targets, b.Analyze(context.Background(), targets)
}

// target analyses one workspace that must be right.
func mustAnalyze(t *testing.T, files map[string]string) (*build, map[string]*Target) {
	t.Helper()
	b := newBuild(files, nil)
	list, err := b.all()
	if err != nil {
		t.Fatal(err)
	}
	byLabel := map[string]*Target{}
	for _, x := range list {
		byLabel[x.Label.String()] = x
	}
	return b, byLabel
}

// content makes the bytes of a file, running what it needs.
func (b *build) content(f *graph.File) ([]byte, error) {
	if f.Source() {
		return b.files.ReadFile(f.Label.Repo, f.Label.Path())
	}
	a := f.Action
	if a.Kind == graph.Write {
		return a.Content, nil
	}
	blobs := make([]Blob, len(a.Inputs))
	for i, in := range a.Inputs {
		data, err := b.content(in.File)
		if err != nil {
			return nil, err
		}
		blobs[i] = blobOf(data)
	}
	out, err := Evaluate(context.Background(), a, blobs, func(s string) { b.print(s) })
	if err != nil {
		return nil, err
	}
	return out[f.Index], nil
}

func blobOf(data []byte) Blob {
	return Blob{Digest: cas.BLAKE3.Sum(data), Open: func() (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader(string(data))), nil
	}}
}

// output finds a target's output by its path.
func output(t *Target, p string) *graph.File {
	for _, a := range t.Result.Actions {
		for _, o := range a.Outputs {
			if o.File.Path == p {
				return o.File
			}
		}
	}
	return nil
}
