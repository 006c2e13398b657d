package toolslock

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// An Entry is what is pinned of one tool on one platform.
type Entry struct {
	Tool     string // the target's name
	Platform graph.Platform
	Program  string        // as declared, absolute; "" of a file of the build
	Data     []string      // as declared, sorted
	Mounts   []graph.Mount // sorted by path, without sources; trees that were read are hollow
}

// NewEntry makes the entry of a tool that resolves to these mounts.
func NewEntry(t graph.Tool, p graph.Platform, mounts []graph.Mount) Entry {
	return Entry{t.Label.Name, p, t.Program, sortedSet(t.Data), mounts}
}

func sortedSet(list []string) []string { return slices.Compact(slices.Sorted(slices.Values(list))) }

// The kinds of lines.
const (
	kindTool   = "tool"
	kindFile   = "file"
	kindFolder = "folder"
	kindLink   = "link"
)

// A line is as it is written. The fields are in the order of their keys.
type line struct {
	Data       []string `json:"data,omitempty"`
	Digest     string   `json:"digest,omitempty"`
	Executable bool     `json:"executable,omitempty"`
	Kind       string   `json:"kind"`
	Path       string   `json:"path,omitempty"`
	Platform   string   `json:"platform"`
	Sum        string   `json:"sum,omitempty"`
	Target     string   `json:"target,omitempty"`
	Tool       string   `json:"tool"`
	Tree       string   `json:"tree,omitempty"`
}

// id is whose a line is.
type id struct{ tool, platform string }

func (l *line) id() id { return id{l.Tool, l.Platform} }

// compare orders lines: a tool's head is first of its platform.
func (l *line) compare(m *line) int {
	head := func(l *line) int {
		if l.Kind == kindTool {
			return 0
		}
		return 1
	}
	return cmp.Or(strings.Compare(l.Tool, m.Tool), strings.Compare(l.Platform, m.Platform),
		cmp.Compare(head(l), head(m)), strings.Compare(l.Path, m.Path))
}

// encode gives the line with its newline.
func (l *line) encode() []byte {
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	if err := e.Encode(l); err != nil {
		panic(err) // strings
	}
	return b.Bytes()
}

// lines gives the entry's, sorted, the head first.
func (e Entry) lines() []*line {
	at := line{Platform: e.Platform.String(), Tool: e.Tool}
	head := at
	head.Kind, head.Path, head.Data = kindTool, e.Program, e.Data
	out := []*line{&head}
	for _, m := range e.Mounts {
		l := at
		l.Path, l.Executable, l.Target = m.Path, m.Executable, m.Link
		switch {
		case m.Link != "":
			l.Kind = kindLink
		case m.Tree != nil:
			l.Kind, l.Digest, l.Tree = kindFolder, m.Digest.String(), m.Tree.Message().String()
		default:
			l.Kind, l.Digest = kindFile, m.Digest.String()
		}
		out = append(out, &l)
	}
	slices.SortFunc(out, (*line).compare)
	head.Sum = sum(out[1:])
	return out
}

// sum is over sorted lines.
func sum(lines []*line) string {
	var b []byte
	for _, l := range lines {
		b = append(b, l.encode()...)
	}
	return cas.BLAKE3.Sum(b).String()
}

// maxLine bounds a line: a path, a target and some digests.
const maxLine = 64 << 10

var (
	errConflict  = errors.New("a conflict of a merge was left")
	errCanonical = errors.New("the line is not canonical: sorted keys, no spaces, each key once, no needless escapes")
)

func conflictMark(b []byte) bool {
	for _, mark := range [...]string{"<<<<<<<", "|||||||", ">>>>>>>"} {
		if bytes.HasPrefix(b, []byte(mark)) {
			return true
		}
	}
	return string(b) == "======="
}

// decode reads a line without its newline.
func decode(b []byte) (*line, error) {
	switch {
	case len(b) >= maxLine:
		return nil, fmt.Errorf("the line has more than %d bytes", maxLine)
	case !utf8.Valid(b):
		return nil, errors.New("the line is not valid UTF-8")
	case len(b) == 0:
		return nil, errors.New("the line is empty")
	case conflictMark(b):
		return nil, errConflict
	}
	l := new(line)
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(l); err != nil {
		text, unknown := strings.CutPrefix(err.Error(), "json: ")
		if !unknown {
			text = "the line is no JSON object of such fields"
		}
		return nil, errors.New(text)
	}
	if err := l.check(); err != nil {
		return nil, err
	}
	if again := l.encode(); !bytes.Equal(again[:len(again)-1], b) {
		return nil, errCanonical
	}
	return l, nil
}

// check wants the fields of the line's kind, all of them and no others.
func (l *line) check() error {
	has := map[string]bool{
		"data": len(l.Data) > 0, "digest": l.Digest != "", "executable": l.Executable, "path": l.Path != "",
		"sum": l.Sum != "", "target": l.Target != "", "tree": l.Tree != "",
	}
	var must, may []string
	switch l.Kind {
	case kindTool:
		must, may = []string{"sum"}, []string{"data", "path"}
	case kindFile:
		must, may = []string{"digest", "path"}, []string{"executable"}
	case kindFolder:
		must = []string{"digest", "path", "tree"}
	case kindLink:
		must = []string{"path", "target"}
	default:
		return fmt.Errorf("unknown kind %q", l.Kind)
	}
	for _, name := range []string{"data", "digest", "executable", "path", "sum", "target", "tree"} {
		switch {
		case has[name] && !slices.Contains(must, name) && !slices.Contains(may, name):
			return fmt.Errorf("a %s has no field %q", l.Kind, name)
		case !has[name] && slices.Contains(must, name):
			return fmt.Errorf("field %q of a %s is missing", name, l.Kind)
		}
	}
	if _, err := graph.ParseLabel("//p:"+l.Tool, graph.Label{}); err != nil || l.Tool == "" {
		return fmt.Errorf("tool %q is no name of a target", l.Tool)
	}
	if _, err := parsePlatform(l.Platform); err != nil {
		return err
	}
	for _, p := range append(slices.Clone(l.Data), l.Path) {
		if err := checkPath(p); err != nil && p != "" {
			return err
		}
	}
	if !slices.Equal(l.Data, sortedSet(l.Data)) {
		return errors.New("data is not sorted")
	}
	if strings.Contains(l.Target, "\x00") {
		return errors.New("the target has a NUL")
	}
	for name, s := range map[string]string{"digest": l.Digest, "sum": l.Sum, "tree": l.Tree} {
		if d, err := cas.ParseDigest(s); has[name] && (err != nil || d.String() != s) {
			return fmt.Errorf("%s %q is no digest", name, s)
		}
	}
	return nil
}

func checkPath(p string) error {
	switch {
	case !path.IsAbs(p) || path.Clean(p) != p || strings.Contains(p, "\x00"):
		return fmt.Errorf("path %q is not absolute and clean", p)
	case graph.ReservedPath(p) != "":
		return fmt.Errorf("path %q is in %s, which a sealed process has its own of", p, graph.ReservedPath(p))
	}
	return nil
}

func parsePlatform(s string) (graph.Platform, error) {
	os, isa, ok := strings.Cut(s, " ")
	if !ok || os == "" || isa == "" || strings.Contains(isa, " ") {
		return graph.Platform{}, fmt.Errorf("platform %q is no pair of system and instruction set", s)
	}
	return graph.Platform{OSFamily: os, ISA: isa}, nil
}

// mount reads a line that is no head and has been checked.
func (l *line) mount() graph.Mount {
	m := graph.Mount{Path: l.Path, Executable: l.Executable, Link: l.Target}
	if l.Kind == kindLink {
		return m
	}
	m.Digest, _ = cas.ParseDigest(l.Digest)
	if l.Kind == kindFolder {
		tree, _ := cas.ParseDigest(l.Tree)
		m.Tree = cas.HollowTree(m.Digest, tree)
	}
	return m
}
