package starlark

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math"
	"strings"
	"sync"

	"github.com/zeebo/blake3"
	"go.starlark.net/resolve"
	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// A Fingerprint identifies a frozen value by meaning: for a function, its
// syntax and everything that it reaches.
type Fingerprint [32]byte

// String returns the first 12 hex digits, for people.
func (f Fingerprint) String() string { return hex.EncodeToString(f[:6]) }

// fingerprinter computes fingerprints over the functions of one Loader.
//
// The digest is of a pre-order walk of the closure from the root, in which an
// object met again is written as a back-reference. Digests of sub-closures are
// never reused inside another root: in mutual recursion they would depend on
// which function came first. So results are memoised per root only.
type fingerprinter struct {
	mu    sync.RWMutex
	codes map[codeKey]*code
	roots sync.Map // *sl.Function -> fingerprintResult, only for finished files
}

type fingerprintResult struct {
	fp      Fingerprint
	parts   []graph.Part // functions and constants, for explanations
	objects []any        // what has an identity that programs can see, in the walk's order
}

func (f *fingerprinter) add(k codeKey, c *code) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.codes[k] = c
}

func (f *fingerprinter) code(fn *sl.Function) (*code, error) {
	pos := fn.Position()
	f.mu.RLock()
	defer f.mu.RUnlock()
	c := f.codes[codeKey{fn.Module().Program(), pos.Line, pos.Col}]
	if c == nil { // never fall back to the name: two functions may share it
		return nil, fmt.Errorf("the syntax of function %s at %s is not known", fn.Name(), pos)
	}
	return c, nil
}

// value fingerprints v. Everything reachable must be frozen; the caller sees
// to it that the files that define its functions have finished.
func (f *fingerprinter) value(v sl.Value) (fingerprintResult, error) {
	root, isFn := v.(*sl.Function)
	if isFn {
		if r, ok := f.roots.Load(root); ok {
			return r.(fingerprintResult), nil
		}
	}
	w := closureWalk{f: f, seen: map[any]int{}}
	if err := w.value(v, "value"); err != nil {
		return fingerprintResult{}, err
	}
	r := fingerprintResult{Fingerprint(blake3.Sum256(w.buf)), w.parts, w.objects}
	if isFn {
		f.roots.Store(root, r)
	}
	return r, nil
}

// sharing tells which objects of several values are one, or nil if none are.
// Functions and instances are equal only to themselves, so `a == b` of two
// params depends on it, and each param's own fingerprint can't tell.
func sharing(lists ...[]any) []byte {
	var b []byte
	first, n := map[any]int{}, 0
	for _, list := range lists {
		for _, obj := range list { // each once: a second time is a back-reference
			if was, ok := first[obj]; ok {
				b = binary.AppendUvarint(binary.AppendUvarint(b, uint64(n)), uint64(was))
			} else {
				first[obj] = n
			}
			n++
		}
	}
	return b
}

// A capture is one captured variable of a function, and what it held.
type capture struct {
	function, name string
	loop           bool // the variable of a loop
	held           [32]byte
}

// captures lists the captured variables of the functions reachable from v
// that code still running could bind anew.
func (f *fingerprinter) captures(v sl.Value) ([]capture, error) {
	w := closureWalk{f: f, seen: map[any]int{}, cellsOnly: true}
	err := w.value(v, "value")
	return w.captures, err
}

// A cellCheck remembers what the functions in a value had captured when it
// was handed over. Freezing doesn't stop `for i in …: evaluate(lambda: i)`
// from binding i anew: all the lambdas would run with the last i, under a
// valid key.
type cellCheck struct {
	value  sl.Value
	at     syntax.Position
	before []capture
}

func newCellCheck(f *fingerprinter, v sl.Value, at syntax.Position) (cellCheck, error) {
	before, err := f.captures(v)
	return cellCheck{v, at, before}, err
}

// verify fails if a captured variable changed since.
func (c cellCheck) verify(f *fingerprinter) error {
	if len(c.before) == 0 {
		return nil
	}
	after, err := f.captures(c.value)
	if err != nil {
		return err
	}
	for i, b := range c.before {
		if i >= len(after) || after[i] != b {
			return errorAt(c.at, "%s captures `%s`, which changed; pass it in params", b.function, b.name)
		}
		if b.loop { // the loop had ended before: no change to notice, and the same trap
			return errorAt(c.at, "%s captures `%s`, the variable of a loop, and every such function sees its last value; "+
				"make it in a function that takes `%s`, or pass it in params", b.function, b.name, b.name)
		}
	}
	return nil
}

// Value tags, part of every fingerprint: append, never renumber.
const (
	valNone byte = iota + 1
	valTrue
	valFalse
	valInt
	valFloat
	valString
	valBytes
	valList
	valTuple
	valDict
	valSet
	valStruct
	valFunction
	valBuiltin
	valMethod
	valUnset
	valSeen
	valProvider
	valInstance
	valDepset
	valModule
	valRange
	valSample
)

type closureWalk struct {
	f         *fingerprinter
	buf       []byte
	seen      map[any]int
	objects   []any
	parts     []graph.Part
	modules   map[*sl.Module]sl.StringDict
	cellsOnly bool
	captures  []capture
	depth     int
}

// maxValueDepth bounds the walk's recursion; a deeper value is an error.
const maxValueDepth = 2000

// maxValueBytes bounds what one fingerprint is made of.
const maxValueBytes = 256 << 20

func (w *closureWalk) tag(b byte)   { w.buf = append(w.buf, b) }
func (w *closureWalk) count(n int)  { w.buf = binary.AppendUvarint(w.buf, uint64(n)) }
func (w *closureWalk) str(s string) { w.count(len(s)); w.buf = append(w.buf, s...) }

// met writes a back-reference if obj was visited before.
func (w *closureWalk) met(obj any) bool {
	if i, ok := w.seen[obj]; ok {
		w.tag(valSeen)
		w.count(i)
		return true
	}
	w.seen[obj] = len(w.seen)
	switch obj.(type) {
	case *sl.Function, *sl.Builtin, *instance, *depset:
		w.objects = append(w.objects, obj)
	}
	return false
}

// value writes v. path names it in errors: "value.field[2]".
func (w *closureWalk) value(v sl.Value, path string) error {
	if w.depth++; w.depth > maxValueDepth {
		return fmt.Errorf("%s: nested deeper than %d", path[:min(len(path), 80)], maxValueDepth)
	}
	if len(w.buf) > maxValueBytes { // tuples of tuples, each twice in the next, double without end
		return fmt.Errorf("%s: more than %d bytes go into its fingerprint", path[:min(len(path), 80)], maxValueBytes)
	}
	defer func() { w.depth-- }()
	switch v := v.(type) {
	case nil:
		w.tag(valUnset)
	case sl.NoneType:
		w.tag(valNone)
	case sl.Bool:
		if v {
			w.tag(valTrue)
		} else {
			w.tag(valFalse)
		}
	case sl.Int:
		w.tag(valInt)
		w.str(v.String())
	case sl.Float:
		w.tag(valFloat)
		w.buf = binary.BigEndian.AppendUint64(w.buf, math.Float64bits(float64(v)))
	case sl.String:
		w.tag(valString)
		w.str(string(v))
	case sl.Bytes:
		w.tag(valBytes)
		w.str(string(v))
	case sl.Tuple:
		w.tag(valTuple)
		w.count(len(v))
		for i, x := range v {
			if err := w.value(x, index(path, i)); err != nil {
				return err
			}
		}
	case *sl.List:
		if w.met(v) {
			return nil
		}
		w.tag(valList)
		w.count(v.Len())
		for i := range v.Len() {
			if err := w.value(v.Index(i), index(path, i)); err != nil {
				return err
			}
		}
	case *sl.Dict: // in order of insertion, which programs can see
		if w.met(v) {
			return nil
		}
		w.tag(valDict)
		w.count(v.Len())
		for _, kv := range v.Items() {
			if err := w.value(kv[0], path+" key"); err != nil {
				return err
			}
			if err := w.value(kv[1], path+"["+kv[0].String()+"]"); err != nil {
				return err
			}
		}
	case *sl.Set:
		if w.met(v) {
			return nil
		}
		w.tag(valSet)
		w.count(v.Len())
		for x := range v.Elements() {
			if err := w.value(x, path+" element"); err != nil {
				return err
			}
		}
	case *starlarkstruct.Struct:
		if w.met(v) {
			return nil
		}
		w.tag(valStruct)
		if err := w.value(v.Constructor(), path); err != nil { // str(x) shows it
			return err
		}
		return w.fields(v, path)
	case *starlarkstruct.Module:
		// The module as a value: all its members, since any may be used.
		w.tag(valModule)
		w.str(v.Name)
		w.count(len(v.Members))
		for _, name := range v.AttrNames() {
			w.str(name)
			if err := w.value(v.Members[name], path+"."+name); err != nil {
				return err
			}
		}
	case *sl.Function:
		return w.function(v, path)
	case *sl.Builtin:
		return w.builtin(v, path)
	case fingerprinted:
		if w.met(v) {
			return nil
		}
		return v.writeFingerprint(w, path)
	default:
		// A range's type is not exported; its text is exact and complete.
		if v.Type() == "range" {
			w.tag(valRange)
			w.str(v.String())
			return nil
		}
		return fmt.Errorf("%s: a value of type %s can't be in a key", path, v.Type())
	}
	return nil
}

// fingerprinted is a value type of this package that writes its own content.
type fingerprinted interface {
	writeFingerprint(w *closureWalk, path string) error
}

func index(path string, i int) string { return fmt.Sprintf("%s[%d]", path, i) }

func (w *closureWalk) fields(v sl.HasAttrs, path string) error {
	names := v.AttrNames()
	w.count(len(names))
	for _, name := range names {
		w.str(name)
		x, err := v.Attr(name)
		if err != nil {
			return err
		}
		if err := w.value(x, path+"."+name); err != nil {
			return err
		}
	}
	return nil
}

func (w *closureWalk) function(fn *sl.Function, path string) error {
	if w.met(fn) {
		return nil
	}
	c, err := w.f.code(fn)
	if err != nil {
		return fmt.Errorf("%s: %v", path, err)
	}
	w.tag(valFunction)
	if w.cellsOnly {
		return w.cells(fn, c, path)
	}
	w.str(string(c.bytes))
	sum := blake3.Sum256(c.bytes)
	w.parts = append(w.parts, graph.Part{Name: w.partName(fn), Code: hex.EncodeToString(sum[:6])})
	if err := w.defaults(fn, path); err != nil {
		return err
	}
	for _, r := range c.refs {
		v := w.refValue(fn, r) // nil: unset, which has its own tag
		start := len(w.buf)
		if err := w.value(v, functionName(fn)+" → "+r.name); err != nil {
			return err
		}
		w.constant(fn, r, v, start)
	}
	return nil
}

// refValue is what r of fn refers to, or nil.
func (w *closureWalk) refValue(fn *sl.Function, r ref) sl.Value {
	var v sl.Value
	switch r.scope {
	case resolve.Free:
		_, v = fn.FreeVar(r.free)
	case resolve.Global:
		v = w.globals(fn.Module())[r.name]
	case resolve.Predeclared:
		v = fn.Module().Predeclared()[r.name]
	case resolve.Universal:
		v = sl.Universe[r.name]
	}
	return member(v, r.member)
}

// member is what is used of a module, which may not have it, or v itself.
func member(v sl.Value, name string) sl.Value {
	if m, ok := v.(*starlarkstruct.Module); ok && name != "" {
		return m.Members[name]
	}
	return v
}

// constant notes a value that a function reaches by name, as a part: where
// only a constant was edited, that is what to tell. Its bytes begin at start.
func (w *closureWalk) constant(fn *sl.Function, r ref, v sl.Value, start int) {
	name := r.name
	switch r.scope {
	case resolve.Global:
	case resolve.Free:
		b, _ := fn.FreeVar(r.free)
		name = b.Name
	default:
		return
	}
	switch v.(type) {
	case nil, *sl.Function, *sl.Builtin, *starlarkstruct.Module, *providerValue:
		return
	}
	name = fn.Position().Filename() + "%" + name
	for _, p := range w.parts {
		if p.Name == name {
			return
		}
	}
	const shown = 40
	if n := len(w.buf) - start; n <= 2*shown {
		if text := showValue(v, shown+1); len(text) <= shown {
			w.parts = append(w.parts, graph.Part{Name: name, Code: text})
			return
		}
	}
	sum := blake3.Sum256(w.buf[start:])
	w.parts = append(w.parts, graph.Part{Name: name, Code: hex.EncodeToString(sum[:6])})
}

func (w *closureWalk) defaults(fn *sl.Function, path string) error {
	for i := range fn.NumParams() {
		if d := fn.ParamDefault(i); d != nil {
			w.count(i + 1)
			if err := w.value(d, path+" default"); err != nil {
				return err
			}
		}
	}
	w.count(0)
	return nil
}

// cells stands in for the walk over a function while code still runs: its
// position, which names its code and its module, and what could be bound anew.
// Globals are bound once, and may not be set yet: they are not visited.
func (w *closureWalk) cells(fn *sl.Function, c *code, path string) error {
	w.str(fn.Position().String())
	if err := w.defaults(fn, path); err != nil {
		return err
	}
	for _, i := range c.captured {
		binding, v := fn.FreeVar(i)
		start, at := len(w.buf), len(w.captures)
		w.captures = append(w.captures, capture{function: fn.Name(), name: binding.Name, loop: c.loops[i]}) // before those within
		if err := w.value(v, functionName(fn)+" → "+binding.Name); err != nil {
			return err
		}
		w.captures[at].held = blake3.Sum256(w.buf[start:])
	}
	return nil
}

// globals remembers each module's globals: sl.Module copies them every time.
func (w *closureWalk) globals(m *sl.Module) sl.StringDict {
	g, ok := w.modules[m]
	if !ok {
		if w.modules == nil {
			w.modules = map[*sl.Module]sl.StringDict{}
		}
		g = m.Globals()
		w.modules[m] = g
	}
	return g
}

func (w *closureWalk) builtin(b *sl.Builtin, path string) error {
	if recv := b.Receiver(); recv != nil {
		if w.met(b) { // a bound method is equal only to itself
			return nil
		}
		w.tag(valMethod)
		w.str(recv.Type())
		w.str(b.Name())
		return w.value(recv, path+"."+b.Name())
	}
	id, ok := builtinIDs[b]
	if !ok {
		return fmt.Errorf("%s: the builtin %s has no version and can't be in a key", path, b.Name())
	}
	w.tag(valBuiltin)
	w.str(id)
	return nil
}

// partName is the function's name, numbered if there are several (lambdas).
func (w *closureWalk) partName(fn *sl.Function) string {
	name, n := functionName(fn), 1
	for _, p := range w.parts {
		if p.Name == name || strings.HasPrefix(p.Name, name+"#") {
			n++
		}
	}
	if n > 1 {
		return fmt.Sprintf("%s#%d", name, n)
	}
	return name
}

// functionName spells a function as //pkg:file.star%name.
func functionName(fn *sl.Function) string {
	return fn.Position().Filename() + "%" + fn.Name()
}
