package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/sets"
)

// forge DIR [FILE] makes the manifest of an edited set fit its files, and moves the
// folder to the name that it has then, DIR's parent/forged/NAME: what somebody
// would do who wants other numbers. It sets $FORGED.
func forge(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: forge DIR [FILE]")
	}
	dir := ts.MkAbs(args[0])
	var m map[string]any
	d := json.NewDecoder(strings.NewReader(ts.ReadFile(filepath.Join(dir, "manifest.json"))))
	d.UseNumber()
	ts.Check(d.Decode(&m))
	files := map[string]any{}
	ts.Check(filepath.WalkDir(dir, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() || e.Name() == "manifest.json" {
			return err
		}
		rel, err := filepath.Rel(dir, p)
		if err != nil {
			return err
		}
		b, err := os.ReadFile(p)
		files[filepath.ToSlash(rel)] = cas.BLAKE3.Sum(b).String()
		return err
	}))
	m["files"] = files
	digest := func(path any) string { s, _ := files[path.(string)].(string); return s }
	for _, r := range m["reps"].(map[string]any) {
		rep := r.(map[string]any)
		rep["capture"], _, _ = strings.Cut(digest(rep["result"]), "/")
		rep["key"] = m["results"].(map[string]any)[rep["result"].(string)]
	}
	for p := range m["results"].(map[string]any) {
		if digest(p) == "" {
			delete(m["results"].(map[string]any), p)
		}
	}
	var b bytes.Buffer
	e := json.NewEncoder(&b)
	e.SetEscapeHTML(false)
	ts.Check(e.Encode(m))
	ts.Check(os.WriteFile(filepath.Join(dir, "manifest.json"), b.Bytes(), 0o644))
	to := filepath.Join(filepath.Dir(dir), "forged", fmt.Sprintf("%v-%s", m["epoch"], cas.BLAKE3.Sum(b.Bytes()).Hex()[:8]))
	ts.Check(os.MkdirAll(filepath.Dir(to), 0o755))
	ts.Check(os.RemoveAll(to))
	ts.Check(os.Rename(dir, to))
	ts.Setenv("FORGED", to)
	if len(args) == 1 {
		return
	}
	set, _, faults, err := sets.Read(to)
	ts.Check(err)
	if len(faults) > 0 {
		ts.Fatalf("forge: %v", faults)
	}
	f, err := os.Create(ts.MkAbs(args[1]))
	ts.Check(err)
	ts.Check(errors.Join(set.WriteArchive(f), f.Close()))
}

// found VAR GLOB sets a variable to the one path that matches.
func found(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 2 {
		ts.Fatalf("usage: found VAR GLOB")
	}
	paths, err := filepath.Glob(ts.MkAbs(args[1]))
	ts.Check(err)
	if len(paths) != 1 {
		ts.Fatalf("found: %d paths match %s", len(paths), args[1])
	}
	ts.Setenv(args[0], paths[0])
}
