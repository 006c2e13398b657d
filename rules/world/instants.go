package world

import (
	"fmt"
	"maps"
	"slices"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

// An instant is the state at a moment.
type instant struct {
	name    string
	clock   int64
	systems map[string]*state
}

// A state is that of one system. Events never change, so their number is all
// that it needs of them. Mostly several instants have one state, so it is held as
// it is written.
type state struct {
	seq    int64  // number of the last event
	tables []byte // {table: rows} in canonical JSON
}

// snapshot takes the instant of now.
func (a *Act) snapshot(name string) (instant, error) {
	in := instant{name, a.clock.now, map[string]*state{}}
	for _, sys := range a.world.systems {
		st, err := a.databases[sys.Name].state()
		if err != nil {
			return in, err
		}
		in.systems[sys.Name] = st
	}
	return in, nil
}

// state reads the system's state, unless nothing was written since the last time.
func (d *database) state() (*state, error) {
	if d.last != nil {
		return d.last, nil
	}
	rows, err := d.query(`SELECT coalesce(max(seq), 0) FROM "#events" WHERE system = ?`, d.system.Name)
	if err != nil {
		return nil, err
	}
	st := &state{seq: rows[0][0].(int64)}
	tables := map[string]*table{}
	for _, t := range d.system.tables {
		tables[t.name] = t
	}
	if st.tables, err = appendObject(nil, tables, d.appendRows); err != nil {
		return nil, err
	}
	d.last = st
	return st, nil
}

// appendObject appends an object with the names of m, which need no escapes, in
// canonical JSON.
func appendObject[V any](b []byte, m map[string]V, value func([]byte, V) ([]byte, error)) ([]byte, error) {
	b = append(b, '{')
	for i, name := range slices.Sorted(maps.Keys(m)) {
		if i > 0 {
			b = append(b, ',')
		}
		b = append(append(append(b, '"'), name...), `":`...)
		var err error
		if b, err = value(b, m[name]); err != nil {
			return nil, err
		}
	}
	return append(b, '}'), nil
}

// appendRows appends the rows of a table in the order of insertion, as objects.
func (d *database) appendRows(b []byte, t *table) ([]byte, error) {
	rows, err := d.query("SELECT " + t.selection() + " FROM " + t.stored() + ` ORDER BY "#"`)
	if err != nil {
		return nil, err
	}
	cells := map[string]int{}
	for i, c := range t.columns {
		cells[c.name] = i
	}
	b = append(b, '[')
	for n, row := range rows {
		if n > 0 {
			b = append(b, ',')
		}
		b, err = appendObject(b, cells, func(b []byte, i int) ([]byte, error) { return t.columns[i].appendJSON(b, row[i]) })
		if err != nil {
			return nil, err
		}
	}
	return append(b, ']'), nil
}

// appendJSON appends what SQLite holds for a column.
func (c column) appendJSON(b []byte, x any) ([]byte, error) {
	if text, ok := x.(string); ok && c.kind == "json" {
		return append(b, text...), nil // encode has made it
	}
	v, err := c.decode(x)
	if err != nil {
		return nil, err
	}
	return starlark.AppendJSON(b, v)
}

// byName are the instants; each has a name of its own.
func (a *Act) byName() map[string]instant {
	m := map[string]instant{}
	for _, in := range a.instants {
		m[in.name] = in
	}
	return m
}

// tablesJSON is tables.json.
func (a *Act) tablesJSON() ([]byte, error) {
	b, err := appendObject(nil, a.byName(), func(b []byte, in instant) ([]byte, error) {
		b = fmt.Appendf(b, `{"clock":%d,"systems":`, in.clock)
		b, err := appendObject(b, in.systems, func(b []byte, st *state) ([]byte, error) { return append(b, st.tables...), nil })
		return append(b, '}'), err
	})
	return append(b, '\n'), err
}

// eventsJSON is events.json.
func (a *Act) eventsJSON() ([]byte, error) {
	b, err := appendObject([]byte(`{"events":`), a.databases, func(b []byte, d *database) ([]byte, error) { return d.appendEvents(b) })
	if err != nil {
		return nil, err
	}
	b, err = appendObject(append(b, `,"instants":`...), a.byName(), func(b []byte, in instant) ([]byte, error) {
		b = fmt.Appendf(b, `{"clock":%d,"seq":`, in.clock)
		b, err := appendObject(b, in.systems, func(b []byte, st *state) ([]byte, error) { return fmt.Append(b, st.seq), nil })
		return append(b, '}'), err
	})
	return append(b, "}\n"...), err
}

// appendEvents appends all events of a system.
func (d *database) appendEvents(b []byte) ([]byte, error) {
	rows, err := d.query(`SELECT actor, at, attrs, kind, seq, subject FROM "#events" WHERE system = ? ORDER BY seq`, d.system.Name)
	if err != nil {
		return nil, err
	}
	b = append(b, '[')
	for i, r := range rows {
		if i > 0 {
			b = append(b, ',')
		}
		var text [6][]byte
		for _, j := range []int{0, 3, 5} {
			if text[j], err = starlark.AppendJSON(nil, sl.String(r[j].(string))); err != nil {
				return nil, err
			}
		}
		b = fmt.Appendf(b, `{"actor":%s,"at":%d,"attrs":%s,"kind":%s,"seq":%d,"subject":%s}`, text[0], r[1], r[2], text[3], r[4], text[5])
	}
	return append(b, ']'), nil
}
