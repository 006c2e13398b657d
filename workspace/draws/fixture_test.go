package draws

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

var (
	labelA = graph.Label{Pkg: "p", Name: "a"}
	labelB = graph.Label{Pkg: "p", Name: "b"}
	runA   = runID(1)
	runB   = runID(2)
	cap1   = cas.BLAKE3.Sum([]byte("capture 1"))
	cap2   = cas.BLAKE3.Sum([]byte("capture 2"))
	seen   = Looked{N: 6, Fingerprint: "f", Alpha: 0.05, Effect: 0.5, Margin: 0.2, Verdict: "v", Conclusion: "undetermined"}
)

func runID(n int) string { return fmt.Sprintf("%032x", n) }

// rep gives an identity whose key is that of its sample, as in life.
func rep(stream string, index int) ID {
	return identity(graph.Sample{Stream: stream, Index: index, Epoch: 1, Block: "b"})
}

func identity(s graph.Sample) ID {
	return ID{Key: graph.Key(cas.BLAKE3.Sum(fmt.Append(nil, s))), Sample: s}
}

func lockPath(t testing.TB) string { return filepath.Join(t.TempDir(), Name) }

func open(t testing.TB, path string) *Lock {
	t.Helper()
	l, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func appendOK(t testing.TB, l *Lock, lines ...Line) []Line {
	t.Helper()
	out, err := l.Append(lines...)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func contents(t testing.TB, path string) string {
	t.Helper()
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

func put(t testing.TB, path, s string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(s), 0o644); err != nil {
		t.Fatal(err)
	}
}

func text(t testing.TB, l Line) string {
	t.Helper()
	b, err := encode(l)
	if err != nil {
		t.Fatal(err)
	}
	return string(b)
}

// oneOfEach gives a line of each kind.
func oneOfEach() []Line {
	i := NewIntent(labelA, rep("control", 1), runA)
	i.Seq = 7
	d, a := i.Drawn(cap1, 2), i.Abandoned("laptop <slept> & died")
	f, l := NewAdopted(labelA, i.ID, runA, "remote", cap1), NewLook(labelA, "b", seen)
	p := NewSurplus(labelA, i.ID, runA, "run", cap2)
	d.Seq, a.Seq, f.Seq, l.Seq, p.Seq = 8, 9, 10, 11, 12
	return []Line{i, d, a, f, l, p}
}

// A source gives values from fuzz bytes, zeros when they are used up.
type source struct{ b []byte }

func (s *source) n(below int) int {
	var w [2]byte
	n := copy(w[:], s.b)
	s.b = s.b[n:]
	return int(binary.LittleEndian.Uint16(w[:])) % below
}

func (s *source) str() string {
	n := min(s.n(8), len(s.b))
	out := string(bytes.ToValidUTF8(bytes.ReplaceAll(s.b[:n], []byte{0}, nil), []byte("~")))
	s.b = s.b[n:]
	return "x" + out
}

func (s *source) line() Line {
	id := identity(graph.Sample{Stream: s.str(), Index: 1 + s.n(3), Epoch: 1 + s.n(3), Redraw: s.n(3), Block: s.str()[1:]})
	label := graph.Label{Pkg: "p", Name: string('a' + rune(s.n(3)))}
	l := NewIntent(label, id, runID(s.n(4)))
	digest := cas.SHA256.Sum([]byte{byte(s.n(4))})
	switch s.n(6) {
	case 1:
		l = l.Drawn(digest, 1+s.n(3))
	case 2:
		l = l.Abandoned(s.str()[1:])
	case 3:
		l = NewAdopted(label, id, l.Run, s.str(), digest)
	case 5:
		l = NewSurplus(label, id, l.Run, s.str(), digest)
	case 4:
		l = NewLook(label, id.Sample.Block, Looked{
			N: s.n(9), Fingerprint: s.str(), Alpha: float64(s.n(1000)) / 1000,
			Effect: float64(s.n(7)) * 1e-7, Margin: float64(s.n(3)) * 1e21, Verdict: s.str(), Conclusion: s.str(),
		})
	}
	l.Seq = int64(1 + s.n(1000))
	return l
}
