package world

import "errors"

// maxGrowth bounds what the agent's calls may add to the database, in bytes: it is
// written out three times, as of done, settled and after, and the whole has to
// stay below what a server's outputs may take. The log bounds what requests bring
// in; this is for operations that make more of it.
const maxGrowth = 48 << 20

// lookEvery is how many bytes are written between two looks at the size.
const lookEvery = 256 << 10

// A room is what is left for the agent. It goes by bytes alone, so the same calls
// find the same room.
type room struct {
	limit   int64 // of the size of the database; 0: there is none yet
	written int64 // since the last look
}

// errNoRoom ends an operation from inside db or emit. It is never shown.
var errNoRoom = errors.New("the database is full")

// bound sets the limit, maxGrowth above what seeds and prior runs have written.
func (st *store) bound() error {
	size, err := st.size()
	st.room = room{limit: size + maxGrowth}
	return err
}

// size is that of the database in bytes, without what is free in it.
func (st *store) size() (int64, error) {
	rows, err := st.query("SELECT (p.page_count - f.freelist_count) * s.page_size FROM pragma_page_count p, pragma_freelist_count f, pragma_page_size s")
	if err != nil {
		return 0, err
	}
	return rows[0][0].(int64), nil
}

// took says that values were written, and looks whether there is still room.
// Somebody else than the agent has always some, or the agent could keep a world
// from going on.
func (t *transaction) took(values ...any) error {
	r := &t.db.room
	for _, v := range values {
		text, _ := v.(string)
		r.written += int64(len(text)) + 16 // and what SQLite needs beside it
	}
	if !t.bounded || r.written < lookEvery {
		return nil
	}
	size, err := t.db.size()
	if err != nil {
		return err
	}
	if t.full = size > r.limit; t.full {
		return errNoRoom // and the next one looks again
	}
	r.written = 0
	return nil
}
