package world

import (
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// stepLimit bounds one call of a function of a definition, in Starlark steps.
const stepLimit = 10_000_000

// A World is what world.star says.
type World struct {
	systems    []*System // in the order of the file
	now        int64     // Unix seconds; a scenario starts lead before it
	operations []*Operation
}

// A System has tables, operations and events of its own. Its operations see no
// other system's.
type System struct {
	Name string

	tables      []*table
	operations  []*Operation
	idempotency bool // whether it honours Idempotency-Key
	seed        sl.Callable
}

// A table has rows in the order of their insertion.
type table struct {
	system  string
	name    string
	key     string
	prefix  string // of keys that are made
	columns []column
}

type column struct{ name, kind string }

func (t *table) column(name string) (column, bool) {
	for _, c := range t.columns {
		if c.name == name {
			return c, true
		}
	}
	return column{}, false
}

func (t *table) columnNames() []string {
	var names []string
	for _, c := range t.columns {
		names = append(names, c.name)
	}
	return names
}

// A Param is what an operation takes: a path variable, or a field of the body, or
// of the query for a GET. Type is one of string, int, float, bool, json.
type Param struct {
	Name, Type string
	Optional   bool // never of a path variable
}

// Declared is the type as the definition has it.
func (p Param) Declared() string {
	if p.Optional {
		return p.Type + "?"
	}
	return p.Type
}

// An Operation is what a system can be asked to do.
type Operation struct {
	Name      string // of the tool: "payments_post_refunds"
	Pattern   string // as declared: "POST /payments/refunds/{id}"
	Method    string
	Path      string   // "/payments/refunds/{id}"
	Variables []string // of the path: "id"
	Doc       string
	Params    []Param // in the order of the file; none: anything goes
	Internal  bool    // agents don't see it

	system   *System
	segments []string
	fn       sl.Callable
}

// Operations is a list of operations that agents see, sorted by pattern.
type Operations []*Operation

// Operations are those that agents see.
func (w *World) Operations() Operations {
	var out Operations
	for _, op := range w.operations {
		if !op.Internal {
			out = append(out, op)
		}
	}
	slices.SortFunc(out, func(a, b *Operation) int { return strings.Compare(a.Pattern, b.Pattern) })
	return out
}

var (
	columnTypes = []string{"string", "int", "float", "bool", "json"}
	paramTypes  = append([]string{"string?", "int?", "float?", "bool?", "json?"}, columnTypes...)
	methods     = []string{http.MethodGet, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}

	// Names are path segments, struct fields, and parts of SQL and of tools' names.
	systemName  = shape.Name{First: shape.Lower, Rest: shape.Lower + shape.Digits + "_-"}
	fieldName   = shape.Name{First: shape.Letters + "_", Rest: shape.Letters + shape.Digits + "_"}
	literalPart = shape.Name{First: shape.Letters + shape.Digits + "._~-", Rest: shape.Letters + shape.Digits + "._~-"}
	notInTool   = strings.NewReplacer(".", "_", "~", "_")
)

// maxToolName is what the APIs of models allow.
const maxToolName = 64

// ParseWorld reads world.star; file is its name in errors.
func ParseWorld(file string, text []byte) (*World, error) {
	root, err := starlark.OpenPortable(file, text)
	if err != nil {
		return nil, fmt.Errorf("open %w", err)
	}
	w, s := &World{}, shape.Of(file+": root", root)
	s.Members("clock", "systems", "seed")
	w.now = timeOf(s.At("clock"))
	for _, m := range s.At("systems").Items("a dict of systems") {
		m.Named(systemName, m.Key, "a lower-case letter, then such letters, digits, _ and -")
		w.systems = append(w.systems, readSystem(m.Key, m.Value))
	}
	if !s.At("seed").None() {
		for _, m := range s.At("seed").Items("a dict of functions") {
			sys := w.system(m.Key)
			if sys == nil {
				m.Failf("there is no system %q%s", m.Key, graph.DidYouMean(m.Key, w.systemNames()))
				continue
			}
			sys.seed = m.Function()
		}
	}
	for _, sys := range w.systems {
		w.operations = append(w.operations, sys.operations...)
	}
	w.checkRoutes(s.At("systems"))
	if s.Err() != nil {
		return nil, fmt.Errorf("read %w", s.Err())
	}
	return w, nil
}

// timeOf is a time in RFC 3339, in Unix seconds.
func timeOf(s shape.Value) int64 {
	t, err := time.Parse(time.RFC3339, s.Text())
	if err != nil {
		s.Failf("a time such as 2026-01-15T12:00:00Z is meant")
		return 0
	}
	if t.Unix() < lead || t.Unix() > maxTime {
		s.Failf("the time is not in the years 1970…9999")
	}
	return t.Unix()
}

func (w *World) system(name string) *System {
	for _, s := range w.systems {
		if s.Name == name {
			return s
		}
	}
	return nil
}

func (w *World) systemNames() []string {
	var names []string
	for _, s := range w.systems {
		names = append(names, s.Name)
	}
	return names
}

func (w *World) operation(pattern string) *Operation {
	for _, op := range w.operations {
		if op.Pattern == pattern {
			return op
		}
	}
	return nil
}

func (w *World) patterns() []string {
	var out []string
	for _, op := range w.operations {
		out = append(out, op.Pattern)
	}
	return out
}

func readSystem(name string, s shape.Value) *System {
	sys := &System{Name: name, idempotency: true}
	s.Members("tables", "operations", "idempotency")
	if i := s.At("idempotency"); !i.None() {
		sys.idempotency = i.OneOf("header", "none") == "header"
	}
	for _, m := range s.At("tables").Items("a dict of tables") {
		m.Named(fieldName, m.Key, "a letter or _, then letters, digits and _")
		for _, t := range sys.tables {
			if strings.EqualFold(t.name, m.Key) { // SQLite's names have no case
				m.Failf("the table %q differs only in case", t.name)
			}
		}
		sys.tables = append(sys.tables, readTable(name, m.Key, m.Value))
	}
	for _, m := range s.At("operations").Items("a dict of operations") {
		sys.operations = append(sys.operations, readOperation(sys, m.Key, m.Value))
	}
	return sys
}

func readTable(system, name string, s shape.Value) *table {
	t := &table{system: system, name: name}
	s.Members("key", "prefix", "columns")
	t.key, t.prefix = s.At("key").Text(), s.At("prefix").Text()
	for _, m := range s.At("columns").Items("a dict of column types") {
		m.Named(fieldName, m.Key, "a letter or _, then letters, digits and _")
		for _, c := range t.columns {
			if strings.EqualFold(c.name, m.Key) {
				m.Failf("the column %q differs only in case", c.name)
			}
		}
		t.columns = append(t.columns, column{m.Key, m.OneOf(columnTypes...)})
	}
	key, ok := t.column(t.key)
	switch {
	case !ok:
		s.At("key").Failf("there is no column %q%s", t.key, graph.DidYouMean(t.key, t.columnNames()))
	case key.kind != "string":
		s.At("key").Failf("the key is a string, not %s", key.kind)
	}
	return t
}

func readOperation(sys *System, pattern string, s shape.Value) *Operation {
	op := &Operation{Pattern: pattern, system: sys}
	s.Members("fn", "doc", "params", "internal")
	op.fn = s.At("fn").Function()
	if d := s.At("doc"); !d.None() {
		op.Doc = d.Text()
	}
	if i := s.At("internal"); !i.None() {
		op.Internal = i.Flag()
	}
	if p := s.At("params"); !p.None() {
		for _, m := range p.Items("a dict of types") {
			kind, optional := strings.CutSuffix(m.OneOf(paramTypes...), "?")
			op.Params = append(op.Params, Param{m.Key, kind, optional})
		}
	}
	var ok bool
	if op.Method, op.Path, ok = strings.Cut(pattern, " "); !ok || !slices.Contains(methods, op.Method) {
		s.Failf("METHOD /%s/… is meant; METHOD is one of %s", sys.Name, strings.Join(methods, ", "))
		return op
	}
	rest, ok := strings.CutPrefix(op.Path, "/"+sys.Name+"/")
	if !ok {
		s.Failf("the path begins with /%s/", sys.Name)
		return op
	}
	op.segments = append([]string{sys.Name}, strings.Split(rest, "/")...)
	tool := []string{sys.Name, strings.ToLower(op.Method)}
	for _, seg := range op.segments[1:] {
		name, isVar := variable(seg)
		if !isVar && (!literalPart.Fits(seg) || seg == "." || seg == "..") || isVar && (!fieldName.Fits(name) || seg != "{"+name+"}") {
			s.Failf("%q is no part of a path", seg)
		}
		if isVar && slices.Contains(op.Variables, name) {
			s.Failf("the variable %q stands twice in the path", name)
		}
		if isVar {
			op.Variables = append(op.Variables, name)
		}
		if isVar && slices.ContainsFunc(op.Params, func(p Param) bool { return p.Name == name && p.Optional }) {
			s.Failf("the variable %q of the path can't be optional", name)
		}
		tool = append(tool, notInTool.Replace(name))
	}
	op.Name = strings.Join(tool, "_")
	if len(op.Name) > maxToolName {
		s.Failf("the tool's name %s is longer than %d", op.Name, maxToolName)
	}
	return op
}

// variable is what stands in braces, or the segment itself.
func variable(segment string) (name string, is bool) {
	if strings.HasPrefix(segment, "{") {
		return strings.Trim(segment, "{}"), true
	}
	return segment, false
}

// checkRoutes refuses operations that no request could tell apart, and tools of
// one name.
func (w *World) checkRoutes(s shape.Value) {
	routes, tools := map[string]string{}, map[string]string{}
	for _, op := range w.operations {
		route := op.Method
		for _, seg := range op.segments {
			if _, is := variable(seg); is {
				seg = "{}"
			}
			route += "/" + seg
		}
		at := s.At(op.system.Name).At("operations").At(op.Pattern)
		if other, ok := routes[route]; ok {
			at.Failf("every request for it is one for %q, too", other)
		}
		if other, ok := tools[op.Name]; ok {
			at.Failf("its tool has the name %s, as that of %q has", op.Name, other)
		}
		routes[route], tools[op.Name] = op.Pattern, op.Pattern
	}
}
