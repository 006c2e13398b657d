package sets

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"path"
	"slices"
	"sync"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Builtin is the module whose files are in the program and not in a set. In the
// workspace of that name they are its sources.
const Builtin = "eval"

// Files is what the language and the engine see of a workspace.
type Files interface {
	Canonical(repo string) (string, error)
	ReadFile(repo, rel string) ([]byte, error)
	ReadHead(repo, rel string, n int) ([]byte, error)
	Glob(repo, pkg string, include, exclude []string) ([]string, error)
	HasPackage(repo, pkg string) (bool, error)
	IsFile(repo, rel string) error

	Digest(graph.Label) (cas.Digest, error)
	Open(graph.Label) (io.ReadCloser, error)
	Executable(graph.Label) (bool, error)
}

type source struct{ repo, path string }

// Sources is what was read of a workspace.
type Sources struct {
	files      map[source][]byte
	executable map[source]bool
	questions  questions
}

// questions is the content of sources.json: what isn't told by the files. Fields
// are in the order of keys, and lists are sorted.
type questions struct {
	Exists   []string          `json:"exists"` // files that were looked for and not read
	Globs    []globAnswer      `json:"globs"`
	Modules  map[string]string `json:"modules"` // names of modules, and the canonical ones
	Packages []string          `json:"packages"`
}

type globAnswer struct {
	Exclude []string `json:"exclude"`
	Files   []string `json:"files"`
	Include []string `json:"include"`
	Package string   `json:"package"`
}

func (s *Sources) asked() []byte { return canonical(s.questions) }

// sourcePath gives where a source is in a set.
func sourcePath(repo, rel string) string {
	if repo != "" {
		return "external/" + repo + "/" + rel
	}
	return "sources/" + rel
}

// name writes a file or package as a label's beginning is.
func name(repo, rel string) string {
	if repo != "" {
		return "@" + repo + "//" + rel
	}
	return "//" + rel
}

// A Recorder passes questions on to a workspace, and notes them. It is safe for
// concurrent use.
type Recorder struct {
	Files

	mu      sync.Mutex
	read    map[source]bool
	exists  map[source]bool
	pkgs    map[string]bool
	modules map[string]string
	globs   map[string]globAnswer
}

// NewRecorder returns a Recorder.
func NewRecorder(f Files) *Recorder {
	return &Recorder{
		Files: f, read: map[source]bool{}, exists: map[source]bool{}, pkgs: map[string]bool{},
		modules: map[string]string{}, globs: map[string]globAnswer{},
	}
}

func (r *Recorder) note(f func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	f()
}

// Canonical is Files.Canonical.
func (r *Recorder) Canonical(repo string) (string, error) {
	to, err := r.Files.Canonical(repo)
	if err == nil && repo != "" {
		r.note(func() { r.modules[repo] = to })
	}
	return to, err
}

// ReadFile is Files.ReadFile.
func (r *Recorder) ReadFile(repo, rel string) ([]byte, error) {
	r.note(func() { r.read[source{repo, rel}] = true })
	return r.Files.ReadFile(repo, rel)
}

// ReadHead is Files.ReadHead.
func (r *Recorder) ReadHead(repo, rel string, n int) ([]byte, error) {
	r.note(func() { r.read[source{repo, rel}] = true })
	return r.Files.ReadHead(repo, rel, n)
}

// Glob is Files.Glob.
func (r *Recorder) Glob(repo, pkg string, include, exclude []string) ([]string, error) {
	files, err := r.Files.Glob(repo, pkg, include, exclude)
	if err == nil {
		a := globAnswer{append([]string{}, exclude...), append([]string{}, files...), append([]string{}, include...), name(repo, pkg)}
		r.note(func() { r.globs[a.key()] = a })
	}
	return files, err
}

// key is what a glob asks.
func (a globAnswer) key() string { return fmt.Sprintf("%q %q %q", a.Package, a.Include, a.Exclude) }

// HasPackage is Files.HasPackage.
func (r *Recorder) HasPackage(repo, pkg string) (bool, error) {
	has, err := r.Files.HasPackage(repo, pkg)
	if err == nil && has {
		r.note(func() { r.pkgs[name(repo, pkg)] = true })
	}
	return has, err
}

// IsFile is Files.IsFile.
func (r *Recorder) IsFile(repo, rel string) error {
	err := r.Files.IsFile(repo, rel)
	if err == nil {
		r.note(func() { r.exists[source{repo, rel}] = true })
	}
	return err
}

// Digest is Files.Digest.
func (r *Recorder) Digest(l graph.Label) (cas.Digest, error) {
	r.note(func() { r.read[source{l.Repo, l.Path()}] = true })
	return r.Files.Digest(l)
}

// Open is Files.Open.
func (r *Recorder) Open(l graph.Label) (io.ReadCloser, error) {
	r.note(func() { r.read[source{l.Repo, l.Path()}] = true })
	return r.Files.Open(l)
}

// Executable is Files.Executable.
func (r *Recorder) Executable(l graph.Label) (bool, error) {
	r.note(func() { r.read[source{l.Repo, l.Path()}] = true })
	return r.Files.Executable(l)
}

// moduleFile makes a folder a workspace of its own, in a set too.
const moduleFile = "MODULE.star"

// Sources reads all that was asked for.
func (r *Recorder) Sources() (*Sources, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s := &Sources{files: map[source][]byte{}, executable: map[source]bool{}}
	own := r.modules[Builtin] == Builtin // then its files are the program's
	r.read[source{"", moduleFile}] = true
	for p := range r.read {
		if p.repo != "" && (p.repo != Builtin || !own) {
			r.read[source{p.repo, moduleFile}] = true
		}
	}
	var total int64
	for p := range r.read {
		if p.repo == Builtin && own {
			continue
		}
		l := graph.Label{Repo: p.repo, Pkg: path.Dir(p.path), Name: path.Base(p.path)}
		if l.Pkg == "." {
			l.Pkg = ""
		}
		data, err := r.readAll(l, MaxBytes-total)
		if err != nil {
			return nil, err
		}
		total += int64(len(data))
		s.files[p] = data
		if s.executable[p], err = r.Files.Executable(l); err != nil {
			return nil, err
		}
	}
	s.questions = questions{Exists: []string{}, Globs: []globAnswer{}, Modules: r.modules, Packages: []string{}}
	for p := range r.exists {
		if _, ok := s.files[p]; !ok && (p.repo != Builtin || !own) {
			s.questions.Exists = append(s.questions.Exists, name(p.repo, p.path))
		}
	}
	for p := range r.pkgs {
		s.questions.Packages = append(s.questions.Packages, p)
	}
	for _, g := range r.globs {
		s.questions.Globs = append(s.questions.Globs, g)
	}
	slices.Sort(s.questions.Exists)
	slices.Sort(s.questions.Packages)
	slices.SortFunc(s.questions.Globs, func(a, b globAnswer) int { return cmp.Compare(a.key(), b.key()) })
	return s, nil
}

func (r *Recorder) readAll(l graph.Label, limit int64) ([]byte, error) {
	f, err := r.Files.Open(l)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("the sources have more than %d bytes", int64(MaxBytes))
	}
	return data, err
}

// A View is a set's sources as the workspace that they were. Files of @eval are
// not its business, see Builtin.
type View struct {
	set        *Set
	asked      questions
	globs      map[string][]string
	executable map[string]bool
}

// View opens the set's sources.
func (s *Set) View() (*View, error) {
	v := &View{set: s, globs: map[string][]string{}, executable: map[string]bool{}}
	if err := decodeCanonical(s.files[sourcesName], &v.asked); err != nil {
		return nil, fmt.Errorf("read %s: %w", sourcesName, err)
	}
	for _, g := range v.asked.Globs {
		v.globs[g.key()] = g.Files
	}
	for _, p := range s.Manifest.Executable {
		v.executable[p] = true
	}
	return v, nil
}

// errNotIn says that a set lacks what was never asked for when it was made.
var errNotIn = errors.New("it is not in the set")

// Canonical is Files.Canonical.
func (v *View) Canonical(repo string) (string, error) {
	to, ok := v.asked.Modules[repo]
	if !ok && repo != "" {
		return "", fmt.Errorf("find module @%s: %w", repo, errNotIn)
	}
	return to, nil
}

// ReadFile is Files.ReadFile.
func (v *View) ReadFile(repo, rel string) ([]byte, error) {
	b, ok := v.set.files[sourcePath(repo, rel)]
	if !ok {
		return nil, fmt.Errorf("read %s: %w", name(repo, rel), errNotIn)
	}
	return b, nil
}

// ReadHead is Files.ReadHead.
func (v *View) ReadHead(repo, rel string, n int) ([]byte, error) {
	b, err := v.ReadFile(repo, rel)
	return b[:min(n, len(b))], err
}

// Glob is Files.Glob.
func (v *View) Glob(repo, pkg string, include, exclude []string) ([]string, error) {
	a := globAnswer{Package: name(repo, pkg), Include: append([]string{}, include...), Exclude: append([]string{}, exclude...)}
	files, ok := v.globs[a.key()]
	if !ok {
		return nil, fmt.Errorf("glob in %s: %w", name(repo, pkg), errNotIn)
	}
	return slices.Clone(files), nil
}

// HasPackage is Files.HasPackage.
func (v *View) HasPackage(repo, pkg string) (bool, error) {
	return slices.Contains(v.asked.Packages, name(repo, pkg)), nil
}

// IsFile is Files.IsFile.
func (v *View) IsFile(repo, rel string) error {
	if _, ok := v.set.files[sourcePath(repo, rel)]; ok || slices.Contains(v.asked.Exists, name(repo, rel)) {
		return nil
	}
	return fmt.Errorf("find %s: %w", name(repo, rel), errNotIn)
}

// Digest is Files.Digest.
func (v *View) Digest(l graph.Label) (cas.Digest, error) {
	if _, err := v.ReadFile(l.Repo, l.Path()); err != nil {
		return cas.Digest{}, err
	}
	return v.set.Manifest.parse(v.set.Manifest.Files[sourcePath(l.Repo, l.Path())])
}

// Open is Files.Open.
func (v *View) Open(l graph.Label) (io.ReadCloser, error) {
	b, err := v.ReadFile(l.Repo, l.Path())
	return io.NopCloser(bytes.NewReader(b)), err
}

// Executable is Files.Executable.
func (v *View) Executable(l graph.Label) (bool, error) {
	return v.executable[sourcePath(l.Repo, l.Path())], nil
}

// OwnRules says whether the files of @eval are sources of the set, as they are of
// one that was published in the workspace of that name.
func (v *View) OwnRules() bool {
	to, asked := v.asked.Modules[Builtin]
	return asked && to != Builtin
}
