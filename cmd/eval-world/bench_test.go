package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// BenchmarkServe is one act of the program, four systems and ten calls, with
// what it took of the processor, in all its threads.
func BenchmarkServe(b *testing.B) {
	defs, root, _ := strings.Cut(worldText, "root = ")
	system := root[strings.Index(root, `"s": {`)+len(`"s": `) : len(root)-len("}}\n")]
	text := defs + `
def seed(db, emit, now):
    for i in range(15):
        emit("added", subject = db.insert("rows", text = str(i)).id, ago = "1d")

root = {"clock": "2026-01-15T12:00:00Z", "systems": {`
	seeds := ""
	for i := range 4 {
		text += fmt.Sprintf(`"s%d": %s, `, i, strings.ReplaceAll(system, "/s/", fmt.Sprintf("/s%d/", i)))
		seeds += fmt.Sprintf(`"s%d": seed, `, i)
	}
	file := filepath.Join(b.TempDir(), "world.star")
	if err := os.WriteFile(file, []byte(text+`}, "seed": {`+seeds+"}}\n"), 0o644); err != nil {
		b.Fatal(err)
	}
	var cpu float64
	for b.Loop() {
		s := startServer(b, "serve", "--world="+file, "--scenario=scenario.star")
		url := s.Serve()
		for i := range 10 {
			if status, body := post(b, fmt.Sprintf("%s/s%d/rows", url, i%4), `"x"`); status != 200 {
				b.Fatal(status, body)
			}
		}
		if code, stderr := s.End(); code != 0 {
			b.Fatal(stderr)
		}
		cpu += s.CPU()
	}
	b.ReportMetric(cpu*1000/float64(b.N), "cpu-ms/op")
}
