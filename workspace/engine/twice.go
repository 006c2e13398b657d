package engine

import (
	"bytes"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// twice says whether the action is run twice and compared: it is pure, and one
// of a requested target.
func (b *build) twice(n *node) bool {
	return b.o.CheckDeterminism && !b.plan && n.action.Sample == nil && n.action.Kind != graph.History && b.requested[n.action.Owner]
}

// A DeterminismError says that an action gave two results for one key.
type DeterminismError struct {
	Output string // path
	Where  string // what differs
	Stored bool   // not two runs, but a run and what was stored before
}

func (e *DeterminismError) Error() string {
	pair := "two runs of it differ"
	if e.Stored {
		pair = "a run of it and its stored result differ"
	}
	return fmt.Sprintf("not deterministic: %s: output %q: %s", pair, e.Output, e.Where)
}

// compare runs the action again and compares with the outputs of its first run,
// and those with what is stored, if anything is.
func (b *build) compare(ctx context.Context, n *node, first, stored []output) error {
	_, second, err := b.perform(ctx, n, false)
	if err != nil {
		return err
	}
	for i, o := range n.action.Outputs {
		if where := b.differ(first[i], second[i]); where != "" {
			return &DeterminismError{Output: o.File.Path, Where: where}
		}
	}
	for i, o := range n.action.Outputs {
		if stored == nil {
			break
		}
		if where := b.differ(stored[i], first[i]); where != "" {
			return &DeterminismError{Output: o.File.Path, Where: where, Stored: true}
		}
	}
	return nil
}

// differ says where two outputs differ first, "" if they don't.
func (b *build) differ(x, y output) string {
	switch {
	case x.digest == y.digest && x.executable == y.executable:
		return ""
	case x.tree != nil && y.tree != nil:
		return b.differFolders(x.tree, y.tree)
	case x.digest == y.digest:
		return fmt.Sprintf("executable is %v, then %v", x.executable, y.executable)
	}
	return b.differBytes(x, y)
}

func (b *build) differBytes(x, y output) string {
	if max(x.digest.Size, y.digest.Size) > maxCompared {
		return fmt.Sprintf("the bytes differ (%d and %d)", x.digest.Size, y.digest.Size)
	}
	read := func(o output) ([]byte, error) {
		if o.inlined {
			return o.contents, nil
		}
		return b.o.Store.Read(o.digest)
	}
	p, err := read(x)
	if err != nil {
		return fmt.Sprintf("the bytes differ (%v)", err)
	}
	q, err := read(y)
	if err != nil {
		return fmt.Sprintf("the bytes differ (%v)", err)
	}
	return firstDifference(p, q)
}

// maxCompared is the size up to which two outputs are read to say where they
// differ.
const maxCompared = 64 << 20

// firstDifference names the first line that differs, or of what is no text the
// first byte.
func firstDifference(p, q []byte) string {
	n := 0
	for n < min(len(p), len(q)) && p[n] == q[n] {
		n++
	}
	if !isText(p) || !isText(q) {
		return fmt.Sprintf("byte %d differs (of %d and %d)", n, len(p), len(q))
	}
	start := bytes.LastIndexByte(p[:n], '\n') + 1
	line := func(b []byte) string {
		b, _, _ = bytes.Cut(b[start:], []byte("\n"))
		const most = 100
		if len(b) <= most {
			return fmt.Sprintf("%q", b)
		}
		at := max(0, min(n-start-most/2, len(b)-most)) // what differs, and something around it
		s := fmt.Sprintf("%q", strings.ToValidUTF8(string(b[at:at+most]), ""))
		if at > 0 {
			s = "…" + s
		}
		return s + "…"
	}
	from, to := line(p), line(q)
	if from == to { // a newline at the end of one
		return fmt.Sprintf("line %d: one ends there (%d and %d bytes)", 1+bytes.Count(p[:start], []byte("\n")), len(p), len(q))
	}
	return fmt.Sprintf("line %d: %s, then %s", 1+bytes.Count(p[:start], []byte("\n")), from, to)
}

func isText(b []byte) bool { return utf8.Valid(b) && bytes.IndexByte(b, 0) < 0 }

// differFolders names the first path at which two folders differ.
func (b *build) differFolders(x, y *cas.Tree) string {
	p, q := entries(x), entries(y)
	all := maps.Clone(p)
	maps.Copy(all, q)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		f, inFirst := p[name]
		g, inSecond := q[name]
		switch {
		case f == g:
		case !inFirst || !inSecond:
			return fmt.Sprintf("%q is in one of them only", name)
		case f.kind != g.kind || f.link != g.link:
			return fmt.Sprintf("%q is a %s, then a %s", name, f, g)
		default:
			return fmt.Sprintf("%q: %s", name, b.differ(
				output{digest: f.digest, executable: f.executable}, output{digest: g.digest, executable: g.executable}))
		}
	}
	return "its entries differ"
}

// An entry is one path in a folder.
type entry struct {
	kind       string // file, folder, link
	digest     cas.Digest
	executable bool
	link       string
}

func (e entry) String() string {
	if e.kind == "link" {
		return fmt.Sprintf("link to %q", e.link)
	}
	return e.kind
}

func entries(t *cas.Tree) map[string]entry {
	out := map[string]entry{}
	t.Visit(cas.Visitor{ // fails only if one of these does
		Dir:     func(p string, _ *cas.Tree) error { out[p] = entry{kind: "folder"}; return nil },
		File:    func(p string, f cas.FileNode) error { out[p] = entry{"file", f.Digest, f.Executable, ""}; return nil },
		Symlink: func(p string, l cas.SymlinkNode) error { out[p] = entry{kind: "link", link: l.Target}; return nil },
	})
	return out
}
