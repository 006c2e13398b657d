package draws

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A view is the file as read once. It doesn't change after it was given out.
type view struct {
	lines  []Line               // by seq, then bytes; each once
	raw    layers[string, bool] // their texts
	states layers[ID, *State]
	looks  layers[look, []Line]
	began  layers[string, int64] // run -> seq of its first line
	info   os.FileInfo           // of the file when it had data and no more, or nil

	data    []byte // the file's whole lines, if all have their newline
	numbers int    // lines in data
	torn    []byte // bytes after the last newline that are no line
	whole   int64  // size of the file without them
	unended bool   // the last line lacks its newline
}

type look struct {
	label graph.Label
	block string
}

// extended gives a view to which lines can be added, without a change to what v
// shows. They share arrays: of several that extend v, one after the other, only
// the last may be used.
func (v *view) extended() *view {
	return &view{
		lines: v.lines, raw: v.raw.extended(), states: v.states.extended(), looks: v.looks.extended(), began: v.began.extended(),
		data: v.data, numbers: v.numbers,
	}
}

type entry struct {
	text string
	line Line
}

// parse reads the file's bytes. A run appends two lines a rep, and each append
// reads the file: so if it begins with what prev has seen, only the rest is
// decoded and added: at 2,000 lines a thirtieth of the time (BenchmarkAppend).
func parse(path string, data []byte, prev *view) (*view, error) {
	v := new(view)
	grown := prev != nil && len(prev.data) > 0 && bytes.HasPrefix(data, prev.data)
	if grown {
		v = prev.extended()
	}
	entries, err := v.read(path, data)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(entries, func(a, b entry) int {
		return cmp.Or(cmp.Compare(a.line.Seq, b.line.Seq), strings.Compare(a.text, b.text))
	})
	if grown && len(entries) > 0 && entries[0].line.Seq < v.next() { // not after all others
		return parse(path, data, nil)
	}
	for _, e := range entries {
		v.add(e.line)
	}
	return v, nil
}

// read decodes what follows v.data in data.
func (v *view) read(path string, data []byte) (entries []entry, err error) {
	v.whole = int64(len(data))
	for rest := data[len(v.data):]; len(rest) > 0; {
		text, tail, ended := bytes.Cut(rest, []byte("\n"))
		if !ended && torn(text) {
			v.torn, v.whole = bytes.Clone(text), v.whole-int64(len(text))
			break
		}
		if known, _ := v.raw.get(string(text)); !known {
			l, err := decode(text)
			if err != nil {
				return nil, fmt.Errorf("read %s:%d: %w", path, v.numbers+1, err)
			}
			v.raw.set(string(text), true)
			entries = append(entries, entry{string(text), l})
		}
		v.numbers++
		v.unended, rest = !ended, tail
	}
	v.data = data[:v.whole]
	if v.unended {
		v.data, v.numbers = nil, 0
	}
	return entries, nil
}

// torn says whether a tail without newline is the beginning of a line that was
// being written: never valid JSON, since an object ends with its last byte. A
// file that grew and lost its bytes in a power cut ends with NULs.
func torn(tail []byte) bool {
	if len(tail) >= MaxLine || json.Valid(tail) {
		return false
	}
	begun := bytes.TrimRight(tail, "\x00")
	start := []byte(`{"`)
	return bytes.HasPrefix(begun, start) || bytes.HasPrefix(start, begun)
}

// state gives what is known of an identity, or nil.
func (v *view) state(id ID) *State {
	s, _ := v.states.get(id)
	return s
}

// looksOf gives the looks of a label at a block, in order.
func (v *view) looksOf(l graph.Label, block string) []Line {
	looks, _ := v.looks.get(look{l, block})
	return looks
}

// next is the seq of the next line.
func (v *view) next() int64 {
	if len(v.lines) == 0 {
		return 1
	}
	return v.lines[len(v.lines)-1].Seq + 1
}

// add takes a line that comes after all others.
func (v *view) add(l Line) {
	v.lines = append(v.lines, l)
	if l.Kind == Look {
		k := look{l.Label, l.Sample.Block}
		looks, _ := v.looks.get(k)
		v.looks.set(k, append(looks, l))
		return
	}
	if _, ok := v.began.get(l.Run); !ok {
		v.began.set(l.Run, l.Seq)
	}
	s := new(State)
	if was := v.state(l.ID); was != nil { // another view may have it
		*s = *was
		s.Open = slices.Clone(s.Open)
	}
	v.states.set(l.ID, s)
	s.add(l)
	v.choose(s)
}

// choose makes of several captures of an identity that one count which the run
// that began first has: two branches drew, and for all of their reps it is the
// same one whose captures count, so that its store has all of them.
func (v *view) choose(s *State) {
	if len(s.Rivals) == 0 {
		return
	}
	best := s.Line
	for _, h := range s.held {
		x, _ := v.began.get(h.Run)
		y, _ := v.began.get(best.Run)
		if cmp.Or(cmp.Compare(x, y), strings.Compare(h.Run, best.Run)) < 0 {
			best = h
		}
	}
	s.Line, s.Rivals, s.Status = best, nil, StatusAdopted
	if best.Kind == Draw {
		s.Status = StatusDrawn
	}
	for _, h := range s.held {
		if h.Capture != best.Capture {
			s.Rivals = append(s.Rivals, h)
		}
	}
}

// Status is where an identity is.
type Status uint8

// The statuses, in order of precedence: a draw counts whatever else is open.
const (
	StatusNone      Status = iota // nothing is known
	StatusAbandoned               // asked for, never had
	StatusIntent                  // being drawn, by the runs of State.Open
	StatusAdopted                 // had: found
	StatusDrawn                   // had: drawn
)

// String gives the status in a word.
func (s Status) String() string {
	return [...]string{"none", "abandoned", "intent", "adopted", "drawn"}[s]
}

// A State is what the lock says of one identity.
type State struct {
	Status    Status
	Line      Line   // the draw or adoption that counts; zero if there is none
	Open      []Line // intents that nothing has closed, one a run
	Rivals    []Line // draws and adoptions with another capture: two branches drew
	Surplus   []Line // further captures, each once: two runs drew
	Attempts  int    // of all draws
	Abandoned int    // times

	held   []Line // all draws and adoptions
	spares []Line // all surplus
}

// opened gives the position of the run's open intent, or -1.
func (s *State) opened(run string) int {
	return slices.IndexFunc(s.Open, func(l Line) bool { return l.Run == run })
}

// add is the one transition.
func (s *State) add(l Line) {
	i := s.opened(l.Run)
	switch {
	case l.Kind == Intent && i < 0:
		s.Open = append(s.Open, l)
	case l.Kind != Intent && l.Kind != Surplus && i >= 0:
		s.Open = slices.Delete(s.Open, i, i+1)
	}
	switch {
	case l.Kind == Abandoned:
		s.Abandoned++
	case l.Kind == Surplus:
		s.spares = append(s.spares, l)
	case l.captured():
		s.Attempts += l.Attempts
		s.held = append(s.held, l)
		if s.Line.Kind == "" {
			s.Line = l
		} else if l.Capture != s.Line.Capture {
			s.Rivals = append(s.Rivals, l)
		}
	}
	switch {
	case s.Line.Kind == Draw:
		s.Status = StatusDrawn
	case s.Line.Kind == Adopted:
		s.Status = StatusAdopted
	case len(s.Open) > 0:
		s.Status = StatusIntent
	case s.Abandoned > 0:
		s.Status = StatusAbandoned
	}
}

// surplus gives a line for each capture that is known, counts not and is no
// rival either: after a merge, the surplus of one branch may be the draw of the
// other.
func (s *State) surplus() (out []Line) {
	seen := map[cas.Digest]bool{s.Line.Capture: true}
	for _, r := range s.Rivals {
		seen[r.Capture] = true
	}
	for _, l := range s.spares {
		if !seen[l.Capture] {
			seen[l.Capture] = true
			out = append(out, l)
		}
	}
	return out
}

// spare gives the line that says that the label has this surplus already.
func (s *State) spare(l Line) (Line, bool) {
	for _, h := range s.spares {
		if h.Capture == l.Capture && h.Label == l.Label {
			return h, true
		}
	}
	return Line{}, false
}

// said gives the line that says that the label has this capture already.
func (s *State) said(l Line) (Line, bool) {
	for _, h := range s.held {
		if h.Capture == l.Capture && h.Label == l.Label {
			return h, true
		}
	}
	return Line{}, false
}
