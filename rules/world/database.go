package world

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"path/filepath"
	"strings"

	sl "go.starlark.net/starlark"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/evalbuild/eval/starlark"
)

// A database is one system's SQLite file. It is scratch: the journal is in
// memory (a rollback needs one) and nothing is synced.
//
// Names that begin with # are ours: no table or column of a definition can have
// one. The column # is the order of insertion.
type database struct {
	system     *System
	pool       *sql.DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt // by text: preparing takes longer than running
}

const schema = `
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA locking_mode = EXCLUSIVE;
BEGIN;
CREATE TABLE "#events" (seq INTEGER PRIMARY KEY, kind TEXT, subject TEXT, at INTEGER, actor TEXT, attrs TEXT) STRICT;
CREATE TABLE "#replies" (operation TEXT, key TEXT, request TEXT, status INTEGER, body TEXT, PRIMARY KEY (operation, key)) STRICT;
CREATE TABLE "#keys" (name TEXT PRIMARY KEY, last INTEGER) STRICT;
`

var sqlTypes = map[string]string{"string": "TEXT", "int": "INTEGER", "float": "REAL", "bool": "INTEGER", "json": "TEXT"}

// background is the context of all statements. With one that can end, database/sql
// and the driver start goroutines for each statement that wait for it; an act
// that ends early ends between two of them, in the function.
var background = context.Background()

// openDatabase makes the file of a system in a folder.
func openDatabase(folder string, sys *System) (*database, error) {
	pool, err := sql.Open("sqlite", filepath.Join(folder, sys.Name+".sqlite"))
	if err != nil {
		return nil, fmt.Errorf("open database %s: %w", sys.Name, err)
	}
	d := &database{system: sys, pool: pool, statements: map[string]*sql.Stmt{}}
	text := schema
	for _, t := range sys.tables {
		text += fmt.Sprintf(`CREATE TABLE %s ("#" INTEGER PRIMARY KEY`, quoted(t.name))
		for _, c := range t.columns {
			text += ", " + quoted(c.name) + " " + sqlTypes[c.kind]
			if c.name == t.key {
				text += " NOT NULL UNIQUE"
			}
		}
		text += ") STRICT;\n"
	}
	if d.conn, err = pool.Conn(background); err == nil {
		_, err = d.conn.ExecContext(background, text+"COMMIT;")
	}
	if err != nil {
		d.close()
		return nil, fmt.Errorf("make database %s: %w", sys.Name, err)
	}
	return d, nil
}

func (d *database) close() {
	for _, st := range d.statements {
		st.Close()
	}
	if d.conn != nil {
		d.conn.Close()
	}
	d.pool.Close()
}

// quoted is a name in SQL. Names of definitions hold no quotes.
func quoted(name string) string { return `"` + name + `"` }

func (d *database) prepare(text string) (*sql.Stmt, error) {
	if st := d.statements[text]; st != nil {
		return st, nil
	}
	st, err := d.conn.PrepareContext(background, text)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", d.system.Name, err)
	}
	d.statements[text] = st
	return st, nil
}

// run executes a statement and says how many rows it changed.
func (d *database) run(text string, args ...any) (int64, error) {
	st, err := d.prepare(text)
	if err != nil {
		return 0, err
	}
	res, err := st.ExecContext(background, args...)
	if err != nil {
		return 0, fmt.Errorf("database %s: %w", d.system.Name, err)
	}
	return res.RowsAffected()
}

// query returns the rows of a statement: int64, float64, string or nil each.
func (d *database) query(text string, args ...any) ([][]any, error) {
	st, err := d.prepare(text)
	if err != nil {
		return nil, err
	}
	rows, err := st.QueryContext(background, args...)
	if err != nil {
		return nil, fmt.Errorf("database %s: %w", d.system.Name, err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	if err != nil {
		return nil, err
	}
	var out [][]any
	for rows.Next() {
		row, into := make([]any, len(names)), make([]any, len(names))
		for i := range row {
			into[i] = &row[i]
		}
		if err := rows.Scan(into...); err != nil {
			return nil, fmt.Errorf("database %s: %w", d.system.Name, err)
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("database %s: %w", d.system.Name, err)
	}
	return out, nil
}

// encode makes of a value what SQLite holds for a column. None is NULL.
func (c column) encode(v sl.Value) (any, error) {
	switch v := v.(type) {
	case sl.NoneType:
		return nil, nil
	case sl.String:
		if c.kind == "string" {
			return string(v), nil
		}
	case sl.Int:
		n, ok := v.Int64()
		if c.kind == "int" && !ok {
			return nil, fmt.Errorf("column %s: %v has more than 64 bits", c.name, v)
		}
		if c.kind == "int" {
			return n, nil
		}
		if c.kind == "float" { // JSON makes 1.0 an int
			return float64(v.Float()), nil
		}
	case sl.Float:
		if c.kind == "float" {
			if f := float64(v); math.IsNaN(f) || math.IsInf(f, 0) {
				return nil, fmt.Errorf("column %s: %v is no number", c.name, v)
			}
			return float64(v), nil
		}
	case sl.Bool:
		if c.kind == "bool" {
			return bool(v), nil
		}
	}
	if c.kind == "json" {
		b, err := starlark.AppendJSON(nil, v)
		if err != nil {
			return nil, fmt.Errorf("column %s: %w", c.name, err)
		}
		return string(b), nil
	}
	return nil, fmt.Errorf("column %s: %s is meant, not %s", c.name, c.kind, v.Type())
}

// decode is the reverse of encode.
func (c column) decode(x any) (sl.Value, error) {
	switch x := x.(type) {
	case nil:
		return sl.None, nil
	case bool:
		return sl.Bool(x), nil
	case int64:
		if c.kind == "bool" {
			return sl.Bool(x != 0), nil
		}
		return sl.MakeInt64(x), nil
	case float64:
		return sl.Float(x), nil
	case string:
		if c.kind == "json" {
			return starlark.ParseJSON([]byte(x))
		}
		return sl.String(x), nil
	}
	return nil, fmt.Errorf("column %s: SQLite gave a %T", c.name, x)
}

// selection is the list of a table's columns in SQL.
func (t *table) selection() string {
	names := t.columnNames()
	for i, n := range names {
		names[i] = quoted(n)
	}
	return strings.Join(names, ", ")
}

// all are the rows of a table in the order of insertion, as dicts.
func (d *database) all(t *table) (*sl.List, error) {
	rows, err := d.query("SELECT " + t.selection() + " FROM " + quoted(t.name) + ` ORDER BY "#"`)
	if err != nil {
		return nil, err
	}
	out := make([]sl.Value, len(rows))
	for i, row := range rows {
		dict := sl.NewDict(len(row))
		for j, c := range t.columns {
			v, err := c.decode(row[j])
			if err != nil {
				return nil, err
			}
			if err := dict.SetKey(sl.String(c.name), v); err != nil {
				return nil, err
			}
		}
		out[i] = dict
	}
	return sl.NewList(out), nil
}
