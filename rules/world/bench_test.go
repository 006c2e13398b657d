package world

import (
	"fmt"
	"strings"
	"testing"
)

// BenchmarkAct is the life of one act with four systems of fifteen seeded rows
// each, and ten calls over HTTP, a connection each.
func BenchmarkAct(b *testing.B) {
	var systems, seeds []string
	for i := range 4 {
		systems = append(systems, fmt.Sprintf(`"s%d": {"tables": {
    "items": {"key": "id", "prefix": "I-", "columns": {"id": "string", "n": "int", "data": "json"}},
    "notes": {"key": "id", "prefix": "N-", "columns": {"id": "string", "text": "string"}}},
  "operations": {"POST /s%[1]d/items": {"fn": add}, "GET /s%[1]d/items/{id}": {"fn": get}}}`, i))
		seeds = append(seeds, fmt.Sprintf(`"s%d": seed`, i))
	}
	text := `
def ok(body = None, status = 200):
    return struct(status = status, body = body)

def seed(db, emit, now):
    for i in range(15):
        emit("made", subject = db.insert("items", n = i, data = {"a": [i]}).id, ago = "1d", n = i)

def add(req, db, emit):
    r = db.insert("items", n = req.body["n"])
    emit("made", subject = r.id, n = r.n)
    return ok(r)

def get(req, db, emit):
    return ok(db.get("items", id = req.params["id"]))

root = {"clock": "2026-01-15T12:00:00Z", "systems": {` + strings.Join(systems, ",") + `}, "seed": {` + strings.Join(seeds, ",") + `}}
`
	for b.Loop() {
		w, err := ParseWorld("world.star", []byte(text))
		if err != nil {
			b.Fatal(err)
		}
		l := &live{t: b, folder: b.TempDir()}
		if l.act, err = Start(b.Context(), w, parseScene(b, w, scene{}), l.folder, nil); err != nil {
			b.Fatal(err)
		}
		l.url, l.server = serveOn(b, l.act.Handler(nil))
		for i := range 10 {
			if g := l.do(fmt.Sprintf("POST /s%d/items", i%4), fmt.Sprintf(`{"n": %d}`, i)); g.status != 200 {
				b.Fatal(g)
			}
		}
		l.finish()
	}
}
