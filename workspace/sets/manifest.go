package sets

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Schema is the version of the form of sets.
const Schema = "eval.set/1"

// ManifestName is the file that makes a folder a set.
const ManifestName = "manifest.json"

// The limits of a set. They are there so that one from elsewhere can't fill a
// machine: 10,000 reps of 100 kB fit.
const (
	MaxFiles    = 200_000
	MaxBytes    = 2 << 30  // of all files
	maxManifest = 64 << 20 // some 300 bytes a file
	maxPath     = 1024
)

// A Manifest says what a set is. The fields are in the order of their keys,
// which is that of canonical JSON.
type Manifest struct {
	Digest     cas.Func          `json:"-"`
	DigestName string            `json:"digest"`
	Epoch      int               `json:"epoch"`
	Eval       string            `json:"eval"`       // version that made it
	Executable []string          `json:"executable"` // sources whose owner may execute them
	Files      map[string]string `json:"files"`      // path -> digest, of all but the manifest
	Module     string            `json:"module"`     // name of the workspace's module
	Platform   Platform          `json:"platform"`   // that processes ran on
	Reps       map[string]Rep    `json:"reps"`       // those that count, by stream-index
	Results    map[string]string `json:"results"`    // path -> key
	Schema     string            `json:"schema"`
	Settings   map[string]string `json:"settings"` // --set
	Target     string            `json:"target"`
	Unsealed   bool              `json:"unsealed"` // --seal=none
}

// Platform is a graph.Platform.
type Platform struct {
	ISA string `json:"isa"`
	OS  string `json:"os"`
}

// Graph gives the platform as keys have it.
func (p Platform) Graph() graph.Platform { return graph.Platform{OSFamily: p.OS, ISA: p.ISA} }

// A Rep is one that counts.
type Rep struct {
	Capture string `json:"capture"` // as the scorecard has it
	Key     string `json:"key"`
	Result  string `json:"result"` // path of the file with that digest
}

// Label is the target.
func (m *Manifest) Label() (graph.Label, error) { return graph.ParseLabel(m.Target, graph.Label{}) }

// encode gives the canonical bytes.
func (m *Manifest) encode() []byte { return canonical(m) }

// canonical encodes what has its fields in the order of their keys.
func canonical(v any) []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		panic(err) // strings, numbers, lists and maps
	}
	return b.Bytes()
}

// decodeCanonical reads what canonical wrote, and nothing else.
func decodeCanonical(b []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(v); err != nil {
		return err
	}
	if !bytes.Equal(canonical(v), b) {
		return errors.New("it is not canonical: sorted keys, no spaces, each key once, one newline at the end")
	}
	return nil
}

// decodeManifest reads and judges a manifest.
func decodeManifest(b []byte) (*Manifest, error) {
	m := new(Manifest)
	var form struct{ Schema string }
	if json.Unmarshal(b, &form) == nil && form.Schema != "" && form.Schema != Schema {
		return nil, fmt.Errorf("it is of schema %q; this program reads %s", form.Schema, Schema)
	}
	if !utf8.Valid(b) {
		return nil, errors.New("it is not valid UTF-8")
	}
	if err := decodeCanonical(b, m); err != nil {
		return nil, err
	}
	var err error
	if m.Digest, err = cas.ParseFunc(m.DigestName); err != nil {
		return nil, err
	}
	return m, m.check()
}

func (m *Manifest) check() error {
	label, err := m.Label()
	switch {
	case err != nil:
		return fmt.Errorf("target: %w", err)
	case label.String() != m.Target || label.Repo != "":
		return fmt.Errorf("target %q is not written as a label of its workspace", m.Target)
	case m.Epoch < 1:
		return fmt.Errorf("epoch is %d", m.Epoch)
	case m.Executable == nil || m.Files == nil || m.Reps == nil || m.Results == nil || m.Settings == nil:
		return errors.New("a list is missing")
	case len(m.Files) > MaxFiles:
		return fmt.Errorf("it lists %d files, more than %d", len(m.Files), MaxFiles)
	}
	var total int64
	for p, text := range m.Files {
		d, err := m.parse(text)
		if err == nil {
			err = checkPath(p)
		}
		if err != nil {
			return fmt.Errorf("files[%q]: %w", p, err)
		}
		if total += d.Size; total > MaxBytes || d.Size > MaxBytes {
			return fmt.Errorf("its files have more than %d bytes", int64(MaxBytes))
		}
		for dir := path.Dir(p); dir != "."; dir = path.Dir(dir) {
			if _, ok := m.Files[dir]; ok {
				return fmt.Errorf("files[%q]: %s is a file", p, dir)
			}
		}
	}
	if !slices.IsSorted(m.Executable) || len(slices.Compact(slices.Clone(m.Executable))) != len(m.Executable) {
		return errors.New("executable is not sorted")
	}
	for _, p := range m.Executable {
		if _, ok := m.Files[p]; !ok {
			return fmt.Errorf("executable[%q]: it is not listed among the files", p)
		}
	}
	for p, key := range m.Results {
		if _, err := m.parse(key); err != nil {
			return fmt.Errorf("results[%q]: %w", p, err)
		}
		if _, ok := m.Files[p]; !ok {
			return fmt.Errorf("results[%q]: it is not listed among the files", p)
		}
	}
	for name, r := range m.Reps {
		d, err := m.parse(m.Files[r.Result])
		if err != nil || m.Results[r.Result] != r.Key || captureName(d) != r.Capture {
			return fmt.Errorf("reps[%q]: its result, key and capture don't belong together", name)
		}
	}
	return nil
}

// parse reads a digest of the set's function.
func (m *Manifest) parse(text string) (cas.Digest, error) {
	d, err := cas.ParseDigest(text)
	if err == nil && d.Func != m.Digest {
		err = fmt.Errorf("the digest is not one of %v", m.Digest)
	}
	if err == nil && d.String() != text {
		err = errors.New("the digest is not as it is written")
	}
	return d, err
}

// captureName writes a capture as scorecards do.
func captureName(d cas.Digest) string { return d.Func.String() + ":" + d.Hex() }

// name gives the name of the set's folder, b being the manifest's bytes.
func (m *Manifest) name(b []byte) string {
	return fmt.Sprintf("%d-%s", m.Epoch, m.Digest.Sum(b).Hex()[:8])
}

// setName is what the folder of a set is called, unless it was renamed.
var setName = regexp.MustCompile(`^[1-9][0-9]*-[0-9a-f]{8}$`)

// checkPath accepts clean slash paths below the set's folder. None is of git's
// own folder, which could make git run something, and none has what a terminal
// would act on.
func checkPath(p string) error {
	switch {
	case p == "" || len(p) > maxPath || path.Clean(p) != p || path.IsAbs(p) || p == "." || p == ".." || strings.HasPrefix(p, "../"):
		return errors.New("it is no clean path below the set's folder")
	case !utf8.ValidString(p):
		return errors.New("the path is not valid UTF-8")
	case strings.ContainsFunc(p, func(r rune) bool { return r < ' ' || r == 0x7f }):
		return errors.New("the path has a control character")
	case p == ManifestName || strings.HasPrefix(p, ManifestName+"/"):
		return errors.New("it is the manifest")
	}
	for seg := range strings.SplitSeq(p, "/") {
		if len(seg) > 255 || strings.EqualFold(seg, ".git") {
			return fmt.Errorf("%q can't be the name of a file in a set", seg)
		}
	}
	return nil
}
