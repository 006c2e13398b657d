package world

import (
	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/starlark"
)

// An instant is the state at a moment.
type instant struct {
	name   string
	clock  int64
	seq    *sl.Dict // system -> number of its last event
	tables *sl.Dict // system -> table -> rows
}

// A state is that of one system. Events never change, so their number is all
// that it needs of them.
type state struct {
	seq    sl.Value
	tables *sl.Dict // table -> rows
}

// snapshot takes the instant of now.
func (a *Act) snapshot(name string) (instant, error) {
	in := instant{name, a.clock.now, mapping(), mapping()}
	for _, sys := range a.world.Systems {
		st, err := a.databases[sys.Name].state()
		if err != nil {
			return in, err
		}
		for of, v := range map[*sl.Dict]sl.Value{in.seq: st.seq, in.tables: st.tables} {
			if err := of.SetKey(sl.String(sys.Name), v); err != nil {
				return in, err
			}
		}
	}
	return in, nil
}

// state reads the system's state, unless nothing was written since the last time.
func (d *database) state() (*state, error) {
	if d.last != nil {
		return d.last, nil
	}
	rows, err := d.query("SELECT coalesce(max(seq), 0) FROM " + d.system.events())
	if err != nil {
		return nil, err
	}
	st := &state{sl.MakeInt64(rows[0][0].(int64)), mapping()}
	for _, t := range d.system.tables {
		all, err := d.all(t)
		if err != nil {
			return nil, err
		}
		if err := st.tables.SetKey(sl.String(t.name), all); err != nil {
			return nil, err
		}
	}
	d.last = st
	return st, nil
}

// tablesJSON is tables.json.
func (a *Act) tablesJSON() ([]byte, error) {
	out := mapping()
	for _, in := range a.instants {
		if err := out.SetKey(sl.String(in.name), mapping("clock", sl.MakeInt64(in.clock), "systems", in.tables)); err != nil {
			return nil, err
		}
	}
	b, err := starlark.AppendJSON(nil, out)
	return append(b, '\n'), err
}

// eventsJSON is events.json.
func (a *Act) eventsJSON() ([]byte, error) {
	instants, events := mapping(), mapping()
	for _, in := range a.instants {
		if err := instants.SetKey(sl.String(in.name), mapping("clock", sl.MakeInt64(in.clock), "seq", in.seq)); err != nil {
			return nil, err
		}
	}
	for _, sys := range a.world.Systems {
		rows, err := a.databases[sys.Name].query("SELECT seq, kind, subject, at, actor, attrs FROM " + sys.events() + " ORDER BY seq")
		if err != nil {
			return nil, err
		}
		list := make([]sl.Value, len(rows))
		for i, r := range rows {
			attrs, err := starlark.ParseJSON([]byte(r[5].(string)))
			if err != nil {
				return nil, err
			}
			list[i] = mapping("seq", sl.MakeInt64(r[0].(int64)), "kind", sl.String(r[1].(string)), "subject", sl.String(r[2].(string)),
				"at", sl.MakeInt64(r[3].(int64)), "actor", sl.String(r[4].(string)), "attrs", attrs)
		}
		if err := events.SetKey(sl.String(sys.Name), sl.NewList(list)); err != nil {
			return nil, err
		}
	}
	b, err := starlark.AppendJSON(nil, mapping("instants", instants, "events", events))
	return append(b, '\n'), err
}
