package draws

import (
	"fmt"
	"strconv"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Name is the lock's name beside BUILD.star, and Attributes the line of
// .gitattributes that makes git merge it, and leave its bytes alone.
const (
	Name       = "draws.lock"
	Attributes = "draws.lock merge=union -text"
)

// MaxLine bounds a line, in bytes with its newline.
const MaxLine = 64 << 10

// Kind says what a line records. The values are as written.
type Kind string

// The kinds of lines.
const (
	Intent    Kind = "intent"
	Draw      Kind = "draw"
	Abandoned Kind = "abandoned"
	Adopted   Kind = "adopted"
	Surplus   Kind = "surplus"
	Look      Kind = "look"
)

// An ID is the identity of a rep.
type ID struct {
	Key    graph.Key // the rep key
	Sample graph.Sample
}

// String gives stream-index, as in treatment-3, and epoch and redraw if they
// are not the first.
func (id ID) String() string {
	s := id.Sample.Stream + "-" + strconv.Itoa(id.Sample.Index)
	if id.Sample.Epoch != 1 {
		s += fmt.Sprintf(" epoch %d", id.Sample.Epoch)
	}
	if id.Sample.Redraw != 0 {
		s += fmt.Sprintf(" redraw %d", id.Sample.Redraw)
	}
	return s
}

// A Line is one line of the lock. Fields that its kind doesn't have are zero; a
// look has of the ID only Sample.Block.
type Line struct {
	Kind  Kind
	Seq   int64 // from 1; given by Append
	Label graph.Label
	ID

	Run      string     // all but look: whose intent
	Capture  cas.Digest // draw, adopted, surplus
	Attempts int        // draw: how often the rep was begun, from 1
	Why      string     // abandoned
	From     string     // adopted: the store or remote; surplus: the run or remote

	Looked // look
}

// Looked is what a look saw.
type Looked struct {
	N           int    // reps scored
	Reps        string // which: Lock.Scored; "" of the line that binds, before any
	Fingerprint string // of what scored them
	Alpha       float64
	Effect      float64
	Margin      float64
	Verdict     string
	Conclusion  string
}

// NewIntent gives the line to append before the rep is dispatched.
func NewIntent(l graph.Label, id ID, run string) Line {
	return Line{Kind: Intent, Label: l, ID: id, Run: run}
}

// NewAdopted gives the line for a capture that was found.
func NewAdopted(l graph.Label, id ID, run, from string, capture cas.Digest) Line {
	return Line{Kind: Adopted, Label: l, ID: id, Run: run, From: from, Capture: capture}
}

// NewLook gives the line for a scoring of a block.
func NewLook(l graph.Label, block string, seen Looked) Line {
	return Line{Kind: Look, Label: l, ID: ID{Sample: graph.Sample{Block: block}}, Looked: seen}
}

// Drawn gives the line that closes the intent with a capture.
func (l Line) Drawn(capture cas.Digest, attempts int) Line {
	return Line{Kind: Draw, Label: l.Label, ID: l.ID, Run: l.Run, Capture: capture, Attempts: attempts}
}

// NewSurplus gives the line for a capture that is not the one that counts.
func NewSurplus(l graph.Label, id ID, run, from string, capture cas.Digest) Line {
	return Line{Kind: Surplus, Label: l, ID: id, Run: run, From: from, Capture: capture}
}

// Abandoned gives the line that closes the intent without one.
func (l Line) Abandoned(why string) Line {
	return Line{Kind: Abandoned, Label: l.Label, ID: l.ID, Run: l.Run, Why: why}
}

// What names the line's subject in errors.
func (l Line) what() string {
	if l.Kind == Look {
		return fmt.Sprintf("%s %v", l.Kind, l.Label)
	}
	return fmt.Sprintf("%s %v %v", l.Kind, l.Label, l.ID)
}

// captured says whether the line gives its identity a capture.
func (l Line) captured() bool { return l.Kind == Draw || l.Kind == Adopted }

// same says whether two lines differ in seq at most.
func (l Line) same(m Line) bool {
	l.Seq = m.Seq
	return l == m
}
