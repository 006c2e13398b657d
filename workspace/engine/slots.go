package engine

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/zeebo/blake3"

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
// kept once, in Table, as name NUL value NUL note.
type slotFile struct {
	Label   string       `json:"label"`
	Table   []string     `json:"table"`
	Records []SlotRecord `json:"records"`
	Outputs []string     `json:"outputs"` // paths copied to the output folder

	index  map[string]int // path -> record
	intern map[string]int
}

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
		if i < 0 || i >= len(f.Table) {
			continue
		}
		name, rest, _ := strings.Cut(f.Table[i], "\x00")
		if value, note, ok := strings.Cut(rest, "\x00"); ok {
			out = append(out, graph.Field{Name: name, Value: value, Note: note})
		}
	}
	return out
}

func (f *slotFile) internFields(fields []graph.Field) []int {
	out := make([]int, len(fields))
	for i, x := range fields {
		s := x.Name + "\x00" + x.Value + "\x00" + x.Note
		n, ok := f.intern[s]
		if !ok {
			n = len(f.Table)
			f.intern[s] = n
			f.Table = append(f.Table, s)
		}
		out[i] = n
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

// slotHeader is the first line of a slot file: a digest of what it describes,
// so that a build that changed nothing reads no further.
const slotHeader = "eval slots 1 "

// stamp digests what a slot file would say.
func stamp(parts [][]byte) string {
	h := blake3.New()
	for _, p := range parts {
		fmt.Fprintf(h, "%d:", len(p))
		h.Write(p)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// current says whether the file on disk has this stamp.
func (s *slots) current(l graph.Label, stamp string) bool {
	f, err := os.Open(s.path(l))
	if err != nil {
		return false
	}
	defer f.Close()
	want := []byte(slotHeader + stamp + "\n")
	got := make([]byte, len(want))
	n, _ := f.Read(got)
	return bytes.Equal(got[:n], want)
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

func (s *slots) save(l graph.Label, f *slotFile, stamp string) error {
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
	_, err = tmp.Write(append([]byte(slotHeader+stamp+"\n"), body...))
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

// saveSlots records the actions of every requested target that ended.
func (b *build) saveSlots() error {
	for _, t := range b.targets {
		if err := b.saveTarget(t); err != nil {
			return fmt.Errorf("save slots of %s: %w", t.Label, err)
		}
	}
	return nil
}

// own are the target's own actions among those that it needs.
func (b *build) own(t *starlark.Target) []*node {
	var own []*node
	for _, n := range b.needs[t] {
		if n.action.Owner == t.Label {
			own = append(own, n)
		}
	}
	return own
}

// slotsCurrent says whether the target's slot file describes this very build;
// exported says whether all outputs are, or are about to be, as it describes.
func (b *build) slotsCurrent(t *starlark.Target, exported bool) (string, bool) {
	nodes := b.own(t)
	parts := make([][]byte, 0, 2*len(nodes))
	ran := false
	for _, n := range nodes {
		if n.state != done {
			continue
		}
		ran = ran || n.ran
		parts = append(parts, []byte(n.action.Slot().Path), []byte(cas.Digest(n.enc.Key).Hex()))
	}
	for _, o := range pathsOf(t) {
		parts = append(parts, []byte(o))
	}
	if !exported {
		parts = append(parts, nil) // some old outputs may still be there
	}
	mark := stamp(parts)
	return mark, !ran && b.slots.current(t.Label, mark)
}

func (b *build) saveTarget(t *starlark.Target) error {
	l, nodes := t.Label, b.own(t)
	mark, current := b.slotsCurrent(t, b.exported[t])
	if current {
		return nil
	}
	old := b.slots.load(l)
	if len(nodes) == 0 && len(pathsOf(t)) == 0 && old.Label == "" {
		return nil // a target that makes and shows nothing
	}
	f := &slotFile{Label: l.String(), intern: map[string]int{}, Outputs: pathsOf(t)}
	if !b.exported[t] { // what is there now isn't known: keep both lists
		f.Outputs = append(f.Outputs, old.Outputs...)
		slices.Sort(f.Outputs)
		f.Outputs = slices.Compact(f.Outputs)
	}
	seen := map[string]bool{}
	for _, n := range nodes {
		r := old.record(n.action.Slot().Path)
		seen[n.action.Slot().Path] = true
		if n.state != done {
			if r != nil {
				f.keep(old, *r)
			}
			continue
		}
		f.Records = append(f.Records, b.newRecord(f, old, r, n))
	}
	for _, r := range old.Records { // of actions that this build didn't need
		if !seen[r.Path] {
			f.keep(old, r)
		}
	}
	return b.slots.save(l, f, mark)
}

// keep copies a record from another file's table to this one's.
func (f *slotFile) keep(from *slotFile, r SlotRecord) {
	f.Records = append(f.Records, f.moved(from, r))
}

func (f *slotFile) moved(from *slotFile, r SlotRecord) SlotRecord {
	r.Now.Fields = f.internFields(from.fields(&r.Now))
	if r.Before != nil {
		before := *r.Before
		before.Fields = f.internFields(from.fields(&before))
		r.Before = &before
	}
	return r
}

func (b *build) newRecord(f, old *slotFile, last *SlotRecord, n *node) SlotRecord {
	r := SlotRecord{Path: n.action.Slot().Path, Mnemonic: n.action.Mnemonic}
	key := n.enc.Key.String()
	if last != nil {
		moved := f.moved(old, *last)
		r.Ran, r.Why, r.Before = last.Ran, last.Why, moved.Before
		if last.Now.Key != key {
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
	r := e.scorecardSlot(t)
	if r == nil {
		return nil
	}
	if data := e.differing(t, &r.Now, now); data != nil || r.Before == nil {
		return data
	}
	return e.differing(t, r.Before, now)
}

// Last is Before for what the slot held last, and nothing earlier.
func (e *Engine) Last(t *starlark.Target, now cas.Digest) []byte {
	if r := e.scorecardSlot(t); r != nil {
		return e.differing(t, &r.Now, now)
	}
	return nil
}

func (e *Engine) scorecardSlot(t *starlark.Target) *SlotRecord {
	if t.Result.Scorecard == nil {
		return nil
	}
	return e.slots.load(t.Label).record(t.Result.Scorecard.Action.Slot().Path)
}

func (e *Engine) differing(t *starlark.Target, a *SlotAction, now cas.Digest) []byte {
	f := t.Result.Scorecard
	if f.Index >= len(a.Out) || a.Out[f.Index] == now.String() {
		return nil
	}
	data, _ := e.ReadOutput(f, a)
	return data
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
