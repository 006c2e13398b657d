package world

import (
	"context"
	"database/sql"
	"fmt"
	"math"
	"strings"

	sl "go.starlark.net/starlark"
	_ "modernc.org/sqlite" // the driver "sqlite"

	"github.com/evalbuild/eval/starlark"
)

// A store is the SQLite database of one act, in memory: it is scratch, and ends
// with the process. One for all systems: a connection takes 200 kB before it
// holds anything, and an enterprise has seven systems.
//
// Tables have their system's name before their own. Names that begin with # are
// ours: no table or column of a definition can have one. The column # is the
// order of insertion.
type store struct {
	pool       *sql.DB
	conn       *sql.Conn
	statements map[string]*sql.Stmt // by text: preparing takes longer than running
	room       room
}

// A database is what of a store is one system's.
type database struct {
	*store
	system *System
	last   *state // nil: something was written since
}

// schema is what all systems have in common. Pages are small, since most tables
// have few rows and each takes one or two.
const schema = `
PRAGMA page_size = 1024;
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
PRAGMA temp_store = MEMORY;
BEGIN;
CREATE TABLE "#events" (system TEXT, seq INTEGER, kind TEXT, subject TEXT, at INTEGER, actor TEXT, attrs TEXT, PRIMARY KEY (system, seq)) STRICT, WITHOUT ROWID;
CREATE TABLE "#replies" (operation TEXT, key TEXT, request TEXT, status INTEGER, body TEXT, PRIMARY KEY (operation, key)) STRICT, WITHOUT ROWID;
CREATE TABLE "#keys" (name TEXT PRIMARY KEY, last INTEGER) STRICT, WITHOUT ROWID;
`

var sqlTypes = map[string]string{"string": "TEXT", "int": "INTEGER", "float": "REAL", "bool": "INTEGER", "json": "TEXT"}

// background is the context of all statements. With one that can end, database/sql
// and the driver start goroutines for each statement that wait for it; an act
// that ends early ends between two of them, in the function.
var background = context.Background()

// openStore makes the tables of all systems.
func openStore(systems []*System) (*store, error) {
	pool, err := sql.Open("sqlite", ":memory:")
	if err != nil {
		return nil, fmt.Errorf("open database: %w", err)
	}
	st := &store{pool: pool, statements: map[string]*sql.Stmt{}}
	var text strings.Builder
	text.WriteString(schema)
	for _, sys := range systems {
		for _, t := range sys.tables {
			fmt.Fprintf(&text, `CREATE TABLE %s ("#" INTEGER PRIMARY KEY`, t.stored())
			for _, c := range t.columns {
				text.WriteString(", " + quoted(c.name) + " " + sqlTypes[c.kind])
				if c.name == t.key {
					text.WriteString(" NOT NULL UNIQUE")
				}
			}
			text.WriteString(") STRICT;\n")
		}
	}
	text.WriteString("COMMIT;")
	if st.conn, err = pool.Conn(background); err == nil {
		_, err = st.conn.ExecContext(background, text.String())
	}
	if err != nil {
		st.close()
		return nil, fmt.Errorf("make tables: %w", err)
	}
	return st, nil
}

func (st *store) close() {
	for _, s := range st.statements {
		s.Close()
	}
	if st.conn != nil {
		st.conn.Close()
	}
	st.pool.Close()
}

// stored is the table's name in SQL.
func (t *table) stored() string { return quoted(t.system + "." + t.name) }

// quoted is a name in SQL. Names of definitions hold no quotes.
func quoted(name string) string { return `"` + name + `"` }

func (st *store) prepare(text string) (*sql.Stmt, error) {
	if s := st.statements[text]; s != nil {
		return s, nil
	}
	s, err := st.conn.PrepareContext(background, text)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
	}
	st.statements[text] = s
	return s, nil
}

// run executes a statement and says how many rows it changed.
func (st *store) run(text string, args ...any) (int64, error) {
	s, err := st.prepare(text)
	if err != nil {
		return 0, err
	}
	res, err := s.ExecContext(background, args...)
	if err != nil {
		return 0, fmt.Errorf("database: %w", err)
	}
	return res.RowsAffected()
}

// query returns the rows of a statement: int64, float64, string or nil each.
func (st *store) query(text string, args ...any) ([][]any, error) {
	s, err := st.prepare(text)
	if err != nil {
		return nil, err
	}
	rows, err := s.QueryContext(background, args...)
	if err != nil {
		return nil, fmt.Errorf("database: %w", err)
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
			return nil, fmt.Errorf("database: %w", err)
		}
		out = append(out, row)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("database: %w", err)
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
