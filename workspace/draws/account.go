package draws

import (
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Rep is one of a label's reps as its declaration is now.
type Rep struct {
	ID
	// Withdrawn: it is of an earlier epoch or redraw, and counts no more.
	Withdrawn bool
	// Stopped are its former identities: draws that a limit stopped, which has
	// been raised since.
	Stopped []ID
}

// An Account is what the lock tells whoever scores a label's reps. It holds no
// run, time or seq: those of two clones with the same history are equal.
type Account struct {
	Arms        map[string]Arm     `json:"arms"`        // by stream
	Block       string             `json:"block"`       // of the last stream: with a reused control, that of the treatment
	Bound       *Terms             `json:"bound"`       // that the first draw was made under; nil: nothing is drawn
	DrawnApart  bool               `json:"drawn_apart"` // streams are of different blocks
	Epoch       int                `json:"epoch"`
	Fingerprint string             `json:"fingerprint"`
	Looks       []Seen             `json:"looks"` // at this block in this epoch, less the one that is made now
	PairsSplit  int                `json:"pairs_split"`
	Prior       []Prior            `json:"prior"`
	Reps        map[string]RepLine `json:"reps"` // by stream-index; those that count
	Schema      string             `json:"schema"`
	Scored      string             `json:"scored"`    // which captures the reps have: Lock.Scored
	Withdrawn   []Withdrawn        `json:"withdrawn"` // by epoch
}

// AccountSchema is the version of an Account's form.
const AccountSchema = "eval.history/1"

// An Arm counts the lines of one stream in the present block and epoch.
type Arm struct {
	Abandoned int `json:"abandoned"`
	Adopted   int `json:"adopted"`           // of those drawn
	Attempts  int `json:"attempts"`          // of all draws, and one for each that was abandoned
	Drawn     int `json:"drawn"`             // reps that were had, used now or not
	Surplus   int `json:"surplus,omitempty"` // further captures of the reps that count
}

// Terms are what a scoring is done with.
type Terms struct {
	Alpha       float64 `json:"alpha"`
	Effect      float64 `json:"effect"`
	Fingerprint string  `json:"fingerprint"`
	Margin      float64 `json:"margin"`
}

// Seen is a look without its label and block.
type Seen struct {
	Terms
	Conclusion string `json:"conclusion"`
	N          int    `json:"n"`
	Reps       string `json:"reps"`
	Verdict    string `json:"verdict"`
}

// A RepLine is what the lock says of one rep.
type RepLine struct {
	Abandoned int    `json:"abandoned"`
	Adopted   bool   `json:"adopted"`
	Attempts  int    `json:"attempts"`
	Capture   string `json:"capture"`
	Rivals    int    `json:"rivals"`            // other captures for it: two branches drew
	Stopped   int    `json:"stopped"`           // earlier draws that a limit stopped
	Surplus   int    `json:"surplus,omitempty"` // further captures: two runs drew
}

// A Prior counts draws of the label that are none of its reps now.
type Prior struct {
	Changed    []string `json:"changed"` // block, epoch, limits, stream
	Conclusion string   `json:"conclusion"`
	Count      int      `json:"count"`
	Epoch      int      `json:"epoch"`
	Verdict    string   `json:"verdict"` // when it was looked at last; "" if never
}

// Withdrawn counts what an earlier epoch has in the present block.
type Withdrawn struct {
	Conclusion string         `json:"conclusion"`
	Drawn      map[string]int `json:"drawn"` // by stream
	Epoch      int            `json:"epoch"`
	Verdict    string         `json:"verdict"`
}

// Account tells the history of a label's reps to the scoring that look
// describes. A label that was renamed has the history of its draws' labels too.
func (l *Lock) Account(label graph.Label, reps []Rep, look graph.Look) Account {
	v := l.view()
	a := accounting{
		view: v, look: look, labels: map[graph.Label]bool{label: true},
		blocks: map[string]string{}, current: map[graph.Sample]ID{}, stopped: map[ID]bool{}, first: map[int]int64{},
		had: math.MaxInt64, began: math.MaxInt64, label: label,
		Account: Account{
			Schema: AccountSchema, Fingerprint: look.Fingerprint, Arms: map[string]Arm{}, Looks: []Seen{},
			Reps: map[string]RepLine{}, Prior: []Prior{}, Withdrawn: []Withdrawn{},
		},
	}
	a.Scored = l.scored(v, reps)
	a.takeReps(reps)
	a.countLines()
	a.takeLooks()
	return a.Account
}

// Scored names what a scoring of the reps sees: a digest of their captures. Two
// looks with one see the same, however the reps came to be these.
func (l *Lock) Scored(reps []Rep) string { return l.scored(l.view(), reps) }

func (l *Lock) scored(v *view, reps []Rep) string {
	var lines []string
	for _, r := range reps {
		if s := v.state(r.ID); s != nil && !r.Withdrawn && s.Line.Kind != "" {
			lines = append(lines, name(r.Sample)+" "+digestName(s.Line)+"\n")
		}
	}
	if lines == nil {
		return ""
	}
	slices.Sort(lines)
	return cas.BLAKE3.Sum([]byte(strings.Join(lines, ""))).Hex()
}

// JSON gives the account's bytes.
func (a Account) JSON() ([]byte, error) {
	b, err := json.Marshal(a)
	return append(b, '\n'), err
}

type accounting struct {
	Account
	view    *view
	look    graph.Look
	label   graph.Label
	labels  map[graph.Label]bool // whose lines count
	blocks  map[string]string    // stream -> present block
	stopped map[ID]bool
	first   map[int]int64       // epoch -> seq of its first line in the present block
	had     int64               // seq of the first capture in the present block and epoch
	began   int64               // seq of the label's own first line of a rep
	current map[graph.Sample]ID // of the reps that count
}

// takeReps notes what each rep is, and which labels it has lines under.
func (a *accounting) takeReps(reps []Rep) {
	runs := map[int]map[string]bool{}
	surplus := map[string]int{}
	for _, r := range reps {
		if s := a.view.state(r.ID); s != nil {
			for _, h := range s.held {
				a.labels[h.Label] = true
			}
		}
		if r.Withdrawn {
			continue
		}
		a.Block, a.Epoch = r.Sample.Block, max(a.Epoch, r.Sample.Epoch)
		a.blocks[r.Sample.Stream] = r.Sample.Block
		line := RepLine{Stopped: len(r.Stopped)}
		if s := a.view.state(r.ID); s != nil && s.Line.Kind != "" {
			line.Capture, line.Attempts = digestName(s.Line), max(1, s.Attempts)
			line.Adopted, line.Abandoned = s.Line.Kind == Adopted, s.Abandoned
			line.Rivals, line.Surplus = len(s.Rivals), len(s.surplus())
			surplus[r.Sample.Stream] += line.Surplus
			if runs[r.Sample.Index] == nil {
				runs[r.Sample.Index] = map[string]bool{}
			}
			runs[r.Sample.Index][s.Line.Run] = true
		}
		a.Reps[name(r.Sample)], a.current[r.Sample] = line, r.ID
		for _, id := range r.Stopped {
			a.stopped[id] = true
		}
	}
	for _, r := range runs {
		if len(r) > 1 {
			a.PairsSplit++
		}
	}
	for s, b := range a.blocks {
		a.DrawnApart = a.DrawnApart || b != a.Block
		a.Arms[s] = Arm{Surplus: surplus[s]}
	}
}

func name(s graph.Sample) string {
	return ID{Sample: graph.Sample{Stream: s.Stream, Index: s.Index, Epoch: 1}}.String()
}

func digestName(l Line) string { return l.Capture.Func.String() + ":" + l.Capture.Hex() }

// countLines sorts every line of the labels: of the present block and epoch, of
// an earlier epoch, or of something else that the label once was.
func (a *accounting) countLines() {
	t := tally{seen: map[ID]bool{}, places: map[repPlace]bool{}, earlier: map[int]map[string]map[int]bool{}, priors: map[prior]int{}}
	for _, l := range a.view.lines {
		if a.labels[l.Label] && l.Kind != Look {
			a.countLine(l, &t)
		}
	}
	a.listWithdrawn(t.earlier)
	a.listPriors(t.priors)
}

// A tally is what countLines knows of the lines before.
type tally struct {
	seen    map[ID]bool                     // that were had
	places  map[repPlace]bool               // of the present block and epoch
	earlier map[int]map[string]map[int]bool // epoch -> stream -> index
	priors  map[prior]int
}

type repPlace struct {
	stream string
	index  int
}

type prior struct {
	block   string
	epoch   int
	changed string
}

func (a *accounting) countLine(l Line, t *tally) {
	s := l.Sample
	block, known := a.blocks[s.Stream]
	same := known && s.Block == block
	now := same && s.Epoch == a.Epoch
	if l.Label == a.label {
		a.began = min(a.began, l.Seq)
	}
	if same {
		if f, ok := a.first[s.Epoch]; !ok || l.Seq < f {
			a.first[s.Epoch] = l.Seq
		}
	}
	if now && l.captured() {
		a.had = min(a.had, l.Seq)
	}
	// Under another limit, one rep has draws with several keys.
	limits := now && (a.stopped[l.ID] || a.sibling(l.ID))
	if now {
		a.Arms[s.Stream] = a.Arms[s.Stream].with(l, limits, t)
	}
	if !l.captured() || t.seen[l.ID] {
		return
	}
	t.seen[l.ID] = true
	switch {
	case limits:
		t.priors[prior{s.Block, s.Epoch, "limits"}]++
	case now:
	case same && s.Epoch < a.Epoch:
		if t.earlier[s.Epoch] == nil {
			t.earlier[s.Epoch] = map[string]map[int]bool{}
		}
		if t.earlier[s.Epoch][s.Stream] == nil {
			t.earlier[s.Epoch][s.Stream] = map[int]bool{}
		}
		t.earlier[s.Epoch][s.Stream][s.Index] = true
	default:
		var changed []string
		if !known {
			changed = append(changed, "stream")
		} else if !same {
			changed = append(changed, "block")
		}
		if s.Epoch != a.Epoch {
			changed = append(changed, "epoch")
		}
		t.priors[prior{s.Block, s.Epoch, strings.Join(changed, " ")}]++
	}
}

// sibling says whether one of the reps is this identity but for the key.
func (a *accounting) sibling(id ID) bool {
	is, ok := a.current[id.Sample]
	return ok && is != id
}

// with counts a line of the present block and epoch; stopped says that it is of
// a rep that was asked again since.
func (arm Arm) with(l Line, stopped bool, t *tally) Arm {
	switch {
	case l.Kind == Abandoned:
		arm.Abandoned++
		arm.Attempts++
	case l.captured() && !t.seen[l.ID]:
		arm.Attempts += max(1, l.Attempts)
		if stopped {
			break
		}
		if l.Kind == Adopted {
			arm.Adopted++
		}
		if p := (repPlace{l.Sample.Stream, l.Sample.Index}); !t.places[p] {
			t.places[p] = true
			arm.Drawn++
		}
	}
	return arm
}

func (a *accounting) listWithdrawn(earlier map[int]map[string]map[int]bool) {
	for e, streams := range earlier {
		w := Withdrawn{Epoch: e, Drawn: map[string]int{}}
		for s, indices := range streams {
			w.Drawn[s] = len(indices)
		}
		if last, ok := a.lastLook(a.Block, a.first[e], a.nextFirst(e)); ok {
			w.Verdict, w.Conclusion = last.Verdict, last.Conclusion
		}
		a.Withdrawn = append(a.Withdrawn, w)
	}
	slices.SortFunc(a.Withdrawn, func(x, y Withdrawn) int { return x.Epoch - y.Epoch })
}

func (a *accounting) listPriors(priors map[prior]int) {
	for p, n := range priors {
		x := Prior{Changed: strings.Fields(p.changed), Count: n, Epoch: p.epoch}
		if last, ok := a.lastLook(p.block, 0, 0); ok && p.changed != "limits" {
			x.Verdict, x.Conclusion = last.Verdict, last.Conclusion
		}
		a.Prior = append(a.Prior, x)
	}
	slices.SortFunc(a.Prior, func(x, y Prior) int {
		return cmp.Or(x.Epoch-y.Epoch, slices.Compare(x.Changed, y.Changed), y.Count-x.Count, strings.Compare(x.Verdict+x.Conclusion, y.Verdict+y.Conclusion))
	})
}

// nextFirst is the seq at which the epoch after e began, or 0.
func (a *accounting) nextFirst(e int) int64 {
	for _, later := range slices.Sorted(maps.Keys(a.first)) {
		if later > e {
			return a.first[later]
		}
	}
	return 0
}

// looksAt gives the looks of the labels at a block with seq in [from, to), to 0
// meaning no end; those before the first draw, with n 0, only bind.
func (a *accounting) looksAt(block string, from, to int64) (looks []Line) {
	for l := range a.labels {
		for _, x := range a.view.looksOf(l, block) {
			if x.Seq >= from && (to == 0 || x.Seq < to) {
				looks = append(looks, x)
			}
		}
	}
	slices.SortFunc(looks, func(x, y Line) int {
		return cmp.Or(cmp.Compare(x.Seq, y.Seq), x.Label.Compare(y.Label), strings.Compare(fmt.Sprint(x.Looked), fmt.Sprint(y.Looked)))
	})
	return looks
}

func (a *accounting) lastLook(block string, from, to int64) (last Line, ok bool) {
	for _, x := range a.looksAt(block, from, to) {
		if x.N > 0 {
			last, ok = x, true
		}
	}
	return last, ok
}

// takeLooks lists the looks of the present epoch, less the last ones that are
// like the one that is being made: a scoring is no input of itself. A label that
// scores the same reps beside this one says something of them only where it
// scored another number; one that did so before this one began was its name.
func (a *accounting) takeLooks() {
	first, began := a.first[a.Epoch]
	if !began {
		return
	}
	beside := func(x Line) bool { return x.Label != a.label && x.Seq > a.began }
	a.bind(beside)
	for _, x := range a.looksAt(a.Block, first, 0) {
		if x.N > 0 && !(beside(x) && x.N == a.look.N) {
			a.Looks = append(a.Looks, Seen{*terms(x), x.Conclusion, x.N, x.Reps, x.Verdict})
		}
	}
	n := len(a.Looks)
	if n == 0 || a.Looks[n-1].Terms != a.now() || a.Looks[n-1].N != a.look.N || a.Looks[n-1].Reps != a.Scored {
		return
	}
	// The one that is made now; the old name of a target may have said the same.
	own := a.Looks[n-1]
	for n > 0 && a.Looks[n-1] == own {
		n--
	}
	a.Looks = a.Looks[:n]
}

// bind finds the terms that were settled when nobody had seen a reply of the
// block: the label's own, else those of the label that it was, or whose reps it
// joined. What was drawn by something that bound nothing, the first look binds.
func (a *accounting) bind(beside func(Line) bool) {
	var own, other, looked *Terms
	for _, x := range a.looksAt(a.Block, 0, 0) {
		switch {
		case x.N == 0 && x.Seq > a.had:
		case x.N == 0 && x.Label == a.label:
			own = terms(x)
		case x.N == 0:
			other = terms(x)
		case looked == nil && x.Seq >= a.first[a.Epoch] && !beside(x):
			looked = terms(x)
		}
	}
	now := a.now()
	a.Bound = cmp.Or(own, other, looked, &now)
}

func (a *accounting) now() Terms {
	return Terms{a.look.Alpha, a.look.Effect, a.look.Fingerprint, a.look.Margin}
}

func terms(l Line) *Terms { return &Terms{l.Alpha, l.Effect, l.Fingerprint, l.Margin} }

// Bind gives the line that binds what reps will be scored with, to be appended
// before the first intent of a block in an epoch. ok is false if the label has
// begun there, and there is nothing left to bind.
func (l *Lock) Bind(label graph.Label, s graph.Sample, by graph.Look) (line Line, ok bool) {
	for _, x := range l.view().lines {
		if x.Label == label && x.Kind != Look && x.Sample.Block == s.Block && x.Sample.Epoch == s.Epoch {
			return Line{}, false
		}
	}
	return NewLook(label, s.Block, Looked{
		Fingerprint: by.Fingerprint, Alpha: by.Alpha, Effect: by.Effect, Margin: by.Margin, Verdict: "UNMEASURED", Conclusion: "unmeasured",
	}), true
}
