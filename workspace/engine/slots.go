package engine

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// The last action of each slot is kept, one file a target, so that a miss can
// say what changed. Slots are a convenience: a lost or damaged file costs an
// explanation, never a result. They belong to one workspace; two processes
// that build the same target at once leave the record of one of them.

// A SlotRecord is the last action that filled a slot, and the one before it
// that differed.
type SlotRecord struct {
	Path     string      `json:"path"`
	Mnemonic string      `json:"mnemonic"`
	Why      string      `json:"why,omitempty"` // of its last run
	Ran      int64       `json:"ran,omitempty"` // Unix seconds of its last run; 0: never here
	Now      SlotAction  `json:"now"`
	Before   *SlotAction `json:"before,omitempty"`
}

// A SlotAction is one action as explained, with the digests of its outputs.
type SlotAction struct {
	Key    string   `json:"key"`
	Fields []int    `json:"fields"` // indices into the table of the file
	Out    []string `json:"out"`
}

// slotFile is one target's slots. Fields repeat from rep to rep, so they are
// kept once, in Table.
type slotFile struct {
	Label   string       `json:"label"`
	Table   []row        `json:"table"`
	Records []SlotRecord `json:"records"`
	Outputs []string     `json:"outputs"` // paths copied to the output folder

	index  map[string]int // path -> record
	intern map[row]int
	from   []int // of a file being made: row of the old table -> its row here, less one
}

// A row is a field: name, value, note.
type row [3]string

func (f *slotFile) record(path string) *SlotRecord {
	if i, ok := f.index[path]; ok {
		return &f.Records[i]
	}
	return nil
}

// fields reads an action's fields back.
func (f *slotFile) fields(a *SlotAction) []graph.Field {
	out := make([]graph.Field, 0, len(a.Fields))
	for _, i := range a.Fields {
		if i >= 0 && i < len(f.Table) { // else the file is damaged
			out = append(out, graph.Field{Name: f.Table[i][0], Value: f.Table[i][1], Note: f.Table[i][2]})
		}
	}
	return out
}

func (f *slotFile) row(r row) int {
	n, ok := f.intern[r]
	if !ok {
		n = len(f.Table)
		f.intern[r] = n
		f.Table = append(f.Table, r)
	}
	return n
}

func (f *slotFile) internFields(fields []graph.Field) []int {
	out := make([]int, len(fields))
	for i, x := range fields {
		out[i] = f.row(row{x.Name, x.Value, x.Note})
	}
	return out
}

// moved gives rows of the old file's table their numbers in this one's.
func (f *slotFile) moved(old *slotFile, rows []int) []int {
	if f.from == nil {
		f.from = make([]int, len(old.Table))
	}
	out := make([]int, 0, len(rows))
	for _, i := range rows {
		if i < 0 || i >= len(old.Table) {
			continue
		}
		if f.from[i] == 0 {
			f.from[i] = f.row(old.Table[i]) + 1
		}
		out = append(out, f.from[i]-1)
	}
	return out
}

// slots reads and writes slot files; each is read once a process.
type slots struct {
	dir  string
	mu   sync.Mutex
	read map[graph.Label]*slotFile
}

func (s *slots) path(l graph.Label) string {
	sum := blake3.Sum256([]byte(l.String()))
	return filepath.Join(s.dir, hex.EncodeToString(sum[:16]))
}

// A slot file's first line has digests of what it describes, so that a build
// that changed nothing reads no further: one of the actions' keys, one of the
// outputs shown.
const slotHeader = "eval slots 2 "

type stamps struct{ keys, outputs string }

func (s stamps) line() string { return slotHeader + s.keys + " " + s.outputs + "\n" }

// stamp digests a list of strings.
func stamp(parts []string) string {
	var b []byte
	for _, p := range parts {
		b = append(binary.AppendUvarint(b, uint64(len(p))), p...)
	}
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:16])
}

// stamps reads the first line of a target's file; zero if there is none.
func (s *slots) stamps(l graph.Label) stamps {
	f, err := os.Open(s.path(l))
	if err != nil {
		return stamps{}
	}
	defer f.Close()
	line := make([]byte, len(slotHeader)+2*32+2)
	n, _ := io.ReadFull(f, line)
	var st stamps
	if rest, ok := strings.CutPrefix(string(line[:n]), slotHeader); ok && strings.HasSuffix(rest, "\n") {
		st.keys, st.outputs, _ = strings.Cut(strings.TrimSuffix(rest, "\n"), " ")
	}
	return st
}

// load reads a target's slots; an empty file if there are none.
func (s *slots) load(l graph.Label) *slotFile {
	s.mu.Lock()
	defer s.mu.Unlock()
	if f, ok := s.read[l]; ok {
		return f
	}
	f := new(slotFile)
	if data, err := os.ReadFile(s.path(l)); err == nil {
		_, body, _ := bytes.Cut(data, []byte("\n"))
		if json.Unmarshal(body, f) != nil || f.Label != l.String() {
			f = new(slotFile)
		}
	}
	f.index = make(map[string]int, len(f.Records))
	for i, r := range f.Records {
		f.index[r.Path] = i
	}
	if s.read == nil {
		s.read = map[graph.Label]*slotFile{}
	}
	s.read[l] = f
	return f
}

func (s *slots) save(l graph.Label, f *slotFile, st stamps) error {
	body, err := json.Marshal(f)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(s.dir, 0o755); err != nil {
		return err
	}
	tmp, err := os.CreateTemp(s.dir, "tmp-*")
	if err != nil {
		return err
	}
	_, err = tmp.Write(append([]byte(st.line()), body...))
	if cerr := tmp.Close(); err == nil {
		err = cerr
	}
	if err == nil {
		err = os.Rename(tmp.Name(), s.path(l))
	}
	if err != nil {
		os.Remove(tmp.Name())
	}
	return err
}

// saveSlots records the actions that ended, of every target that has any in
// this build, requested or not.
func (b *build) saveSlots() error {
	targets := map[graph.Label]*starlark.Target{}
	for l := range b.owned {
		targets[l] = nil
	}
	for _, t := range b.targets {
		targets[t.Label] = t
	}
	labels := slices.SortedFunc(maps.Keys(targets), graph.Label.Compare)
	errs := make([]error, len(labels))
	var g errgroup.Group
	g.SetLimit(b.o.Jobs)
	for i, l := range labels {
		g.Go(func() error {
			errs[i] = b.saveTarget(l, targets[l])
			return nil
		})
	}
	g.Wait()
	for i, err := range errs {
		if err != nil {
			return fmt.Errorf("save slots of %s: %w", labels[i], err)
		}
	}
	return nil
}

// keyStamp digests the keys of the target's actions that ended; ran says
// whether one of them ran.
func (b *build) keyStamp(l graph.Label) (keys string, ran bool) {
	nodes := b.owned[l]
	parts := make([]string, 0, 2*len(nodes))
	for _, n := range nodes {
		if n.state == done {
			ran = ran || n.ran
			parts = append(parts, n.action.Slot().Path, string(n.key.Hash[:]))
		}
	}
	return stamp(parts), ran
}

// outputStamp digests what is shown of a requested target; exported says
// whether all of it is, or is about to be, as described.
func outputStamp(t *starlark.Target, exported bool) string {
	parts := shownPaths(t)
	if !exported {
		parts = append(parts, "") // some old outputs may still be there
	}
	return stamp(parts)
}

// slotsCurrent says whether the slot file of a requested target describes this
// very build.
func (b *build) slotsCurrent(t *starlark.Target, exported bool) bool {
	keys, ran := b.keyStamp(t.Label)
	return !ran && b.slots.stamps(t.Label) == stamps{keys, outputStamp(t, exported)}
}

// saveTarget records a target's actions; t is nil if it was not requested.
func (b *build) saveTarget(l graph.Label, t *starlark.Target) error {
	keys, ran := b.keyStamp(l)
	was := b.slots.stamps(l)
	now := stamps{keys, was.outputs}
	if t != nil {
		now.outputs = outputStamp(t, b.exported[t])
	} else if now.outputs == "" {
		now.outputs = stamp(nil)
	}
	if !ran && was == now {
		return nil
	}
	old, nodes := b.slots.load(l), b.owned[l]
	f := &slotFile{Label: l.String(), intern: map[row]int{}, Outputs: old.Outputs}
	if t != nil {
		f.Outputs = shownPaths(t)
		if !b.exported[t] { // what is there now isn't known: keep both lists
			f.Outputs = append(f.Outputs, old.Outputs...)
			slices.Sort(f.Outputs)
			f.Outputs = slices.Compact(f.Outputs)
		}
	}
	if len(nodes) == 0 && len(f.Outputs) == 0 && old.Label == "" {
		return nil // a target that makes and shows nothing
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		r := old.record(n.action.Slot().Path)
		seen[n.action.Slot().Path] = true
		switch {
		case n.state == done:
			f.Records = append(f.Records, b.newRecord(f, old, r, n))
		case r != nil:
			f.keep(old, *r)
		}
	}
	for _, r := range old.Records { // of actions that this build didn't need
		if !seen[r.Path] {
			f.keep(old, r)
		}
	}
	return b.slots.save(l, f, now)
}

// keep copies a record of the old file.
func (f *slotFile) keep(old *slotFile, r SlotRecord) {
	f.Records = append(f.Records, f.movedRecord(old, r))
}

func (f *slotFile) movedRecord(old *slotFile, r SlotRecord) SlotRecord {
	r.Now.Fields = f.moved(old, r.Now.Fields)
	if r.Before != nil {
		before := *r.Before
		before.Fields = f.moved(old, before.Fields)
		r.Before = &before
	}
	return r
}

func (b *build) newRecord(f, old *slotFile, last *SlotRecord, n *node) SlotRecord {
	r := SlotRecord{Path: n.action.Slot().Path, Mnemonic: n.action.Mnemonic}
	key := n.key.String()
	if last != nil {
		moved := f.movedRecord(old, *last)
		if last.Now.Key == key {
			r.Ran, r.Why, r.Before = last.Ran, last.Why, moved.Before
		} else {
			r.Before = &moved.Now
		}
	}
	if n.ran {
		r.Ran, r.Why = b.o.Now().Unix(), n.why
	}
	r.Now = SlotAction{Key: key, Fields: f.internFields(n.explained()), Out: make([]string, len(n.outputs))}
	for i, o := range n.outputs {
		r.Now.Out[i] = o.digest.String()
	}
	return r
}

// Before returns the target's last scorecard that differed from the one of
// digest now, as far as its slot remembers and the store still has it; else nil.
func (e *Engine) Before(t *starlark.Target, now cas.Digest) []byte {
	if t.Result.Scorecard == nil {
		return nil
	}
	r := e.slots.load(t.Label).record(t.Result.Scorecard.Action.Slot().Path)
	if r == nil {
		return nil
	}
	if data := e.differing(t, &r.Now, now); data != nil || r.Before == nil {
		return data
	}
	return e.differing(t, r.Before, now)
}

func (e *Engine) differing(t *starlark.Target, a *SlotAction, now cas.Digest) []byte {
	f := t.Result.Scorecard
	if f.Index >= len(a.Out) || a.Out[f.Index] == now.String() {
		return nil
	}
	data, _ := e.ReadOutput(f, a)
	return data
}

// change fills in what a target's scorecard was in the build before, and why it
// is another now. It is called before the slots are saved. Nothing need have
// run: the result may be that of a still earlier build.
func (b *build) change(res *TargetResult) {
	t := res.Target
	if res.Scorecard == nil || b.slotsCurrent(t, b.exported[t]) {
		return
	}
	score := t.Result.Scorecard.Action
	old := b.slots.load(t.Label)
	if r := old.record(score.Slot().Path); r != nil {
		res.Before = b.differing(t, &r.Now, res.Digest)
	}
	if res.Before == nil {
		return
	}
	for _, n := range b.owned[t.Label] {
		r := old.record(n.action.Slot().Path)
		if r == nil || n.state != done || r.Now.Key == n.key.String() || n.action == score && res.Cause != "" {
			continue
		}
		res.Cause = Summarize(Diff(old.fields(&r.Now), n.explained()))
		if n.action != score {
			return
		}
	}
}

// ReadOutput reads what the action a, of f's slot, once made of f.
func (e *Engine) ReadOutput(f *graph.File, a *SlotAction) ([]byte, error) {
	key, err := cas.ParseDigest(a.Key)
	if err != nil {
		return nil, err
	}
	r, err := e.o.Store.Lookup(cas.Pure, key)
	if err != nil {
		return nil, err
	}
	for _, o := range r.Files {
		if o.Path != f.Action.Outputs[f.Index].Name {
			continue
		}
		if o.Inlined() {
			return o.Contents, nil
		}
		return e.o.Store.Read(o.Digest)
	}
	return nil, fmt.Errorf("the result has no output %q", f.Path)
}

// A History is what is known of a slot: its last record, with fields spelled
// out.
type History struct {
	SlotRecord
	Fields, BeforeFields []graph.Field
}

// Slot returns the history of a slot, or false if nothing is known.
func (e *Engine) Slot(s graph.Slot) (History, bool) {
	f := e.slots.load(s.Owner)
	r := f.record(s.Path)
	if r == nil {
		return History{}, false
	}
	h := History{SlotRecord: *r, Fields: f.fields(&r.Now)}
	if r.Before != nil {
		h.BeforeFields = f.fields(r.Before)
	}
	return h, true
}
