package world

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A match is the operation that a request is for, with its path variables.
type match struct {
	op   *Operation
	vars map[string]string
}

// route finds the operation for an escaped path. Without one, allowed are the
// methods that the path has; none: the path is unknown. A literal segment goes
// before a variable, from the left.
func (w *World) route(method, path string, internal bool) (m match, allowed []string) {
	raw := strings.Split(strings.TrimPrefix(path, "/"), "/")
	segments := make([]string, len(raw))
	for i, seg := range raw {
		var err error
		if segments[i], err = url.PathUnescape(seg); err != nil {
			return match{}, nil
		}
	}
	for _, op := range w.operations {
		vars, ok := op.matches(segments)
		switch {
		case !ok || op.Internal && !internal:
		case op.Method != method:
			if !slices.Contains(allowed, op.Method) {
				allowed = append(allowed, op.Method)
			}
		case m.op == nil || op.before(m.op):
			m = match{op, vars}
		}
	}
	slices.Sort(allowed)
	return m, allowed
}

func (op *Operation) matches(segments []string) (map[string]string, bool) {
	if len(segments) != len(op.segments) {
		return nil, false
	}
	vars := map[string]string{}
	for i, seg := range op.segments {
		name, is := variable(seg)
		if is && segments[i] != "" {
			vars[name] = segments[i]
		} else if is || seg != segments[i] {
			return nil, false
		}
	}
	return vars, true
}

// before says whether op's path is more literal than that of other, which has as
// many segments.
func (op *Operation) before(other *Operation) bool {
	for i := range op.segments {
		_, a := variable(op.segments[i])
		_, b := variable(other.segments[i])
		if a != b {
			return b
		}
	}
	return false
}

// A request is what an operation is called with.
type request struct {
	match
	path  string // as it came, escaped
	query *sl.Dict
	body  sl.Value
	actor string
	key   string // Idempotency-Key; "": none

	bounded bool // the agent's: it can use up the room in the database
}

// mapping is a dict of names and values in turn.
func mapping(pairs ...any) *sl.Dict {
	d := sl.NewDict(len(pairs) / 2)
	for i := 0; i < len(pairs); i += 2 {
		if err := d.SetKey(sl.String(pairs[i].(string)), pairs[i+1].(sl.Value)); err != nil {
			panic(err) // a new dict with strings as keys
		}
	}
	return d
}

// perform executes a request as one transaction. Without keep it is rolled back
// whatever the reply, and leaves nothing. An error is a fault.
func (a *Act) perform(r request, keep bool) (wire.Answer, error) {
	if why := r.op.refuse(r); why != "" {
		return wire.Refusal(http.StatusBadRequest, why), nil
	}
	d := a.databases[r.op.system.Name]
	t, err := d.begin(a.clock.now, r.actor, false)
	if err != nil {
		return wire.Answer{}, err
	}
	t.bounded = r.bounded
	rep, commit, err := a.inside(t, r)
	commit = commit && keep && err == nil
	if e := t.end(commit); err == nil {
		err = e
	}
	if err != nil {
		return wire.Answer{}, fmt.Errorf("run %s: %w", r.op.Pattern, err)
	}
	if commit && t.wrote {
		a.clock.tick()
	}
	return rep, nil
}

// inside is what of perform happens in the transaction; commit says whether it
// may be kept.
func (a *Act) inside(t *transaction, r request) (rep wire.Answer, commit bool, err error) {
	d := t.db
	keyed := r.key != "" && d.system.idempotency
	var asked []byte
	if keyed {
		if asked, err = r.identity(); err != nil {
			return wire.Answer{}, false, err
		}
		rows, err := d.query(`SELECT request, status, body FROM "#replies" WHERE operation = ? AND key = ?`, r.op.Pattern, r.key)
		if err != nil {
			return wire.Answer{}, false, err
		}
		if len(rows) > 0 && rows[0][0].(string) != string(asked) {
			return wire.Refusal(http.StatusUnprocessableEntity, "the Idempotency-Key was used with another request"), false, nil
		}
		if len(rows) > 0 {
			return wire.Answer{Status: int(rows[0][1].(int64)), Body: []byte(rows[0][2].(string))}, false, nil
		}
	}
	db, emit := t.values()
	v, err := starlark.CallPortable(a.ctx, r.op.fn, sl.Tuple{a.reqValue(r), db, emit}, stepLimit, a.print)
	if t.full {
		return noRoom, false, nil
	}
	if err != nil {
		return wire.Answer{}, false, err
	}
	if rep, err = readReply(v); err != nil {
		return wire.Answer{}, false, err
	}
	if rep.Status >= 400 {
		return rep, false, nil
	}
	if keyed {
		if _, err = d.run(`INSERT INTO "#replies" VALUES (?, ?, ?, ?, ?)`, r.op.Pattern, r.key, string(asked), rep.Status, string(rep.Body)); err == nil {
			err = t.took(r.key, string(asked), string(rep.Body))
		}
		if t.full {
			return noRoom, false, nil
		}
	}
	return rep, err == nil, err
}

var noRoom = wire.Refusal(http.StatusInsufficientStorage, "the world has no room for more")

// identity is what two requests with one key must have in common.
func (r request) identity() ([]byte, error) {
	return starlark.AppendJSON(nil, sl.NewList([]sl.Value{stringDict(r.vars), r.query, r.body}))
}

func (a *Act) reqValue(r request) sl.Value {
	var key sl.Value = sl.None
	if r.key != "" {
		key = sl.String(r.key)
	}
	return starlarkstruct.FromStringDict(starlarkstruct.Default, sl.StringDict{
		"method": sl.String(r.op.Method),
		"path":   sl.String(r.path),
		"params": stringDict(r.vars),
		"query":  r.query,
		"body":   r.body,
		"actor":  sl.String(r.actor),
		"key":    key,
		"time":   sl.MakeInt64(a.clock.now),
		"now":    sl.String(rfc3339(a.clock.now)),
	})
}

func stringDict(m map[string]string) *sl.Dict {
	d := sl.NewDict(len(m))
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if err := d.SetKey(sl.String(k), sl.String(m[k])); err != nil {
			panic(err) // a new dict with strings as keys
		}
	}
	return d
}

// refuse says what is wrong with a request for the declared params, or "": a
// caller that leaves out a field or sends the wrong type is answered, and never
// makes the operation fail, which would be a fault. Path variables are there, or
// the path were another; what they and a query hold is text.
func (op *Operation) refuse(r request) string {
	if len(op.Params) == 0 {
		return ""
	}
	fields := r.query
	if op.Method != http.MethodGet {
		d, ok := r.body.(*sl.Dict)
		if !ok && r.body != sl.None {
			return "the body is a JSON object"
		}
		if fields = d; !ok {
			fields = new(sl.Dict)
		}
	}
	for _, p := range op.Params {
		if text, is := r.vars[p.Name]; is && !p.takes(sl.String(text), true) {
			return fmt.Sprintf("%s: %s is meant", p.Name, p.Type)
		}
		v, found, _ := fields.Get(sl.String(p.Name))
		switch {
		case found && v != sl.None:
			if !p.takes(v, op.Method == http.MethodGet) {
				return fmt.Sprintf("%s: %s is meant", p.Name, p.Type)
			}
		case !p.Optional && !slices.Contains(op.Variables, p.Name):
			return fmt.Sprintf("%s is missing: %s is meant", p.Name, p.Type)
		}
	}
	return ""
}

// takes says whether v is of the type, or as text is one of the type.
func (p Param) takes(v sl.Value, asText bool) bool {
	text, _ := sl.AsString(v)
	var err error
	switch {
	case !asText && p.Type == "int":
		n, ok := v.(sl.Int)
		if !ok {
			return false
		}
		i, ok := n.Int64()
		return ok && -wire.MaxInt <= i && i <= wire.MaxInt
	case !asText && p.Type == "float":
		x, ok := sl.AsFloat(v)
		return ok && math.Abs(x) <= wire.MaxFloat
	case !asText:
		_, err = column{p.Name, p.Type}.encode(v)
	case p.Type == "int":
		var i int64
		i, err = strconv.ParseInt(text, 10, 64)
		return err == nil && -wire.MaxInt <= i && i <= wire.MaxInt
	case p.Type == "float":
		_, ok := wire.Float(text)
		return ok
	case p.Type == "bool":
		return text == "true" || text == "false"
	}
	return err == nil
}

// readReply reads what an operation returned.
func readReply(v sl.Value) (wire.Answer, error) {
	s, ok := v.(*starlarkstruct.Struct)
	if !ok || !slices.Equal(s.AttrNames(), []string{"body", "status"}) {
		return wire.Answer{}, fmt.Errorf("it returned %s; ok(…) or error(…) is meant", shorten(v))
	}
	body, _ := s.Attr("body")
	st, _ := s.Attr("status")
	i, ok := st.(sl.Int)
	n, fits := int64(0), false
	if ok {
		n, fits = i.Int64()
	}
	if !fits || n < 200 || n > 599 {
		return wire.Answer{}, fmt.Errorf("it returned the status %s; 200…599 is meant", shorten(st))
	}
	if body != sl.None && !wire.HasBody(int(n)) {
		return wire.Answer{}, fmt.Errorf("it returned a body with the status %d, which has none", n)
	}
	b, err := starlark.AppendJSON(nil, body)
	if err != nil {
		return wire.Answer{}, fmt.Errorf("its reply: %w", err)
	}
	return wire.Answer{Status: int(n), Body: b}, nil
}

// shorten is a value as an error shows it.
func shorten(v sl.Value) string {
	s := v.String()
	if len(s) > 80 {
		s = s[:80] + "…"
	}
	return s
}
