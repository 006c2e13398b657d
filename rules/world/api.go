package world

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/workspace/graph"
)

// A transaction is what db and emit work on, for one operation or seed.
type transaction struct {
	db    *database
	at    int64  // of events
	actor string // of events
	seed  bool   // emit takes ago
	wrote bool   // a row or an event
	ended bool

	bounded bool // it may find no room
	full    bool // it found none: whatever it returns, it is rolled back
}

// begin starts a transaction. At most one is open: the lock of the act sees to
// it.
func (d *database) begin(at int64, actor string, seed bool) (*transaction, error) {
	_, err := d.run("BEGIN")
	return &transaction{db: d, at: at, actor: actor, seed: seed}, err
}

// end commits or rolls back. What a definition kept of db doesn't work after it.
func (t *transaction) end(commit bool) error {
	t.ended = true
	text := "ROLLBACK"
	if commit {
		text = "COMMIT"
		if t.wrote {
			t.db.last = nil
		}
	}
	_, err := t.db.run(text)
	return err
}

// values are db and emit for Starlark.
func (t *transaction) values() (db, emit sl.Value) {
	method := func(name string, positional int, fn func(tab *table, args sl.Tuple, where []field) (sl.Value, error)) *sl.Builtin {
		return sl.NewBuiltin("db."+name, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			tab, fields, err := t.arguments(b.Name(), positional, args, kwargs)
			if err != nil {
				return nil, err
			}
			v, err := fn(tab, args[1:], fields)
			if err != nil {
				return nil, fmt.Errorf("%s %s: %w", b.Name(), tab.name, err)
			}
			return v, nil
		})
	}
	return starlarkstruct.FromStringDict(sl.String("db"), sl.StringDict{
		"get":    method("get", 1, t.get),
		"find":   method("find", 1, t.find),
		"insert": method("insert", 1, t.insert),
		"update": method("update", 2, t.update),
		"delete": method("delete", 2, t.delete),
	}), sl.NewBuiltin("emit", t.emit)
}

// A field is a column with a value for it, as SQLite holds it.
type field struct {
	column
	value any
}

// arguments reads those of a method: the table's name, for update and delete
// the key, and columns by name.
func (t *transaction) arguments(name string, positional int, args sl.Tuple, kwargs []sl.Tuple) (*table, []field, error) {
	if t.ended {
		return nil, nil, fmt.Errorf("%s: the operation has ended", name)
	}
	if len(args) != positional {
		want := "the table's name is meant"
		if positional == 2 {
			want = "the table's name and the key are meant"
		}
		return nil, nil, fmt.Errorf("%s: %s, and columns by name", name, want)
	}
	tname, ok := sl.AsString(args[0])
	if !ok {
		return nil, nil, fmt.Errorf("%s: the table's name is a string, not %s", name, args[0].Type())
	}
	var tab *table
	var names []string
	for _, x := range t.db.system.tables {
		names = append(names, x.name)
		if x.name == tname {
			tab = x
		}
	}
	if tab == nil {
		return nil, nil, fmt.Errorf("%s: %s has no table %q%s", name, t.db.system.Name, tname, graph.DidYouMean(tname, names))
	}
	var fields []field
	for _, kv := range kwargs {
		cname := string(kv[0].(sl.String))
		c, ok := tab.column(cname)
		if !ok {
			return nil, nil, fmt.Errorf("%s %s: there is no column %q%s", name, tname, cname, graph.DidYouMean(cname, tab.columnNames()))
		}
		v, err := c.encode(kv[1])
		if err != nil {
			return nil, nil, fmt.Errorf("%s %s: %w", name, tname, err)
		}
		fields = append(fields, field{c, v})
	}
	// One text of a statement, whatever the order of the arguments.
	slices.SortFunc(fields, func(a, b field) int { return strings.Compare(a.name, b.name) })
	return tab, fields, nil
}

func (t *transaction) get(tab *table, _ sl.Tuple, where []field) (sl.Value, error) {
	rows, err := t.rows(tab, where, " LIMIT 1")
	if err != nil || len(rows) == 0 {
		return sl.None, err
	}
	return rows[0], nil
}

func (t *transaction) find(tab *table, _ sl.Tuple, where []field) (sl.Value, error) {
	rows, err := t.rows(tab, where, "")
	return sl.NewList(rows), err
}

func (t *transaction) rows(tab *table, where []field, limit string) ([]sl.Value, error) {
	text, args := "SELECT "+tab.selection()+" FROM "+tab.stored()+" WHERE true", []any(nil)
	for _, f := range where {
		text += " AND " + quoted(f.name) + " IS ?" // IS: also NULL
		args = append(args, f.value)
	}
	return t.structs(tab, text+` ORDER BY "#"`+limit, args)
}

// structs makes row structs of what a statement returns in the order of the
// table's columns.
func (t *transaction) structs(tab *table, text string, args []any) ([]sl.Value, error) {
	rows, err := t.db.query(text, args...)
	if err != nil {
		return nil, err
	}
	out := make([]sl.Value, len(rows))
	for i, row := range rows {
		if out[i], err = tab.row(row); err != nil {
			return nil, err
		}
	}
	return out, nil
}

// row is a row as a struct.
func (t *table) row(values []any) (sl.Value, error) {
	d := make(sl.StringDict, len(values))
	for i, c := range t.columns {
		v, err := c.decode(values[i])
		if err != nil {
			return nil, err
		}
		d[c.name] = v
	}
	return starlarkstruct.FromStringDict(starlarkstruct.Default, d), nil
}

func (t *transaction) insert(tab *table, _ sl.Tuple, fields []field) (sl.Value, error) {
	values := map[string]any{}
	for _, f := range fields {
		values[f.name] = f.value
	}
	if values[tab.key] == nil {
		key, err := t.makeKey(tab)
		if err != nil {
			return nil, err
		}
		values[tab.key] = key
	} else if taken, err := t.taken(tab, values[tab.key]); err != nil || taken {
		return nil, orElse(err, fmt.Errorf("there is a row with the key %v already", values[tab.key]))
	}
	row := make([]any, len(tab.columns))
	for i, c := range tab.columns {
		row[i] = values[c.name]
	}
	marks := strings.TrimSuffix(strings.Repeat("?, ", len(row)), ", ")
	t.wrote = true
	if _, err := t.db.run("INSERT INTO "+tab.stored()+" ("+tab.selection()+") VALUES ("+marks+")", row...); err != nil {
		return nil, err
	}
	if err := t.took(row...); err != nil {
		return nil, err
	}
	return tab.row(row)
}

func (t *transaction) taken(tab *table, key any) (bool, error) {
	rows, err := t.db.query("SELECT 1 FROM "+tab.stored()+" WHERE "+quoted(tab.key)+" = ?", key)
	return len(rows) > 0, err
}

// makeKey gives the next key of a table. A number is never given twice, also
// not after its row was deleted; those that rows got by hand are passed over.
func (t *transaction) makeKey(tab *table) (string, error) {
	for {
		rows, err := t.db.query(`INSERT INTO "#keys" VALUES (?, 1) ON CONFLICT DO UPDATE SET last = last + 1 RETURNING last`, tab.system+"."+tab.name)
		if err != nil {
			return "", err
		}
		made := tab.prefix + strconv.FormatInt(rows[0][0].(int64), 10)
		if taken, err := t.taken(tab, made); err != nil || !taken {
			return made, err
		}
	}
}

func (t *transaction) update(tab *table, args sl.Tuple, fields []field) (sl.Value, error) {
	key, err := tab.encodeKey(args[0])
	if err != nil {
		return nil, err
	}
	if len(fields) == 0 {
		return nil, fmt.Errorf("it names no column to change")
	}
	var set []string
	var values []any
	for _, f := range fields {
		if f.name == tab.key {
			return nil, fmt.Errorf("the key %s can't be changed", tab.key)
		}
		set = append(set, quoted(f.name)+" = ?")
		values = append(values, f.value)
	}
	t.wrote = true
	text := "UPDATE " + tab.stored() + " SET " + strings.Join(set, ", ") + " WHERE " + quoted(tab.key) + " = ? RETURNING " + tab.selection()
	rows, err := t.structs(tab, text, append(values, key))
	if err != nil || len(rows) == 0 {
		return nil, orElse(err, fmt.Errorf("there is no row with the key %s", args[0]))
	}
	return rows[0], t.took(values...)
}

func (t *transaction) delete(tab *table, args sl.Tuple, fields []field) (sl.Value, error) {
	key, err := tab.encodeKey(args[0])
	if err != nil {
		return nil, err
	}
	if len(fields) > 0 {
		return nil, fmt.Errorf("it takes the table's name and the key only")
	}
	t.wrote = true
	n, err := t.db.run("DELETE FROM "+tab.stored()+" WHERE "+quoted(tab.key)+" = ?", key)
	if err != nil || n == 0 {
		return nil, orElse(err, fmt.Errorf("there is no row with the key %s", args[0]))
	}
	return sl.None, nil
}

func (t *table) encodeKey(v sl.Value) (any, error) {
	c, _ := t.column(t.key)
	key, err := c.encode(v)
	if err == nil && key == nil {
		err = fmt.Errorf("the key is None")
	}
	return key, err
}

func orElse(err, other error) error {
	if err != nil {
		return err
	}
	return other
}
