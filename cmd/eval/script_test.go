package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"
	"github.com/rogpeppe/go-internal/txtar"
)

// Scripts of the command are in testdata/script, one a verb or a promise. They
// run the real program, as ev and as eval, in a folder of their own with a
// store of their own. The commands that testscript doesn't have are below;
// programs_test.go has those that are processes.

func TestMain(m *testing.M) {
	testscript.Main(m, map[string]func(){
		"ev":        func() { os.Exit(run()) },
		"eval":      func() { os.Exit(run()) },
		"asuser":    asUser,
		"later":     later,
		"putpaid":   putPaid,
		"rss":       maxRSS,
		"interrupt": interrupt,
		"gen":       generate,
	})
}

// buildWorld puts eval-world beside the program that scripts run.
func buildWorld(t *testing.T) {
	t.Helper()
	ev, err := exec.LookPath("ev")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("go", "build", "-o", filepath.Dir(ev), "../eval-world", "../eval-play", "../../rules/world/mcp/mcptest")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("build the programs of worlds: %v\n%s", err, out)
	}
}

func TestScripts(t *testing.T) {
	buildWorld(t)
	testscript.Run(t, testscript.Params{
		Dir:                "testdata/script",
		RequireUniqueNames: true,
		Setup:              setup,
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"fixture": fixture,
			"blocks":  blocks,
			"exits":   exits,
			"ran":     ran,
			"edit":    edit,
			"keys":    keys,
			"plain":   plain,
			"jsonl":   jsonl,
			"sums":    sums,
			"json":    jsonFileOf,
			"forge":   forge,
			"found":   found,
		},
		Condition: func(cond string) (bool, error) {
			switch cond {
			case "race":
				return raceEnabled, nil
			case "user": // asuser works
				return needed(canBeUser(), "a second user id (a user namespace that maps one has none)")
			case "seal":
				return needed(canSeal(), "whole seal here (see ev doctor)")
			case "userseal": // and asuser has one too
				return needed(canUserSeal(), "whole seal for an ordinary user (see ev doctor)")
			case "terminal":
				_, err := exec.LookPath("script")
				return needed(runtime.GOOS == "linux" && err == nil, "script(1) of Linux, for a terminal")
			}
			return false, fmt.Errorf("unknown condition %q", cond)
		},
	})
}

// needed makes the lack of what a test needs a failure where EVAL_STRICT is set.
func needed(have bool, what string) (bool, error) {
	if !have && os.Getenv("EVAL_STRICT") != "" {
		return false, fmt.Errorf("EVAL_STRICT is set, and there is no %s", what)
	}
	return have, nil
}

// canBeUser is false where root can't become another, as in a user namespace
// that maps one uid.
var canBeUser = sync.OnceValue(func() bool { return exec.Command("asuser", "ev", "version").Run() == nil })

// canSeal is false where a layer of the seal is missing.
var canSeal = sync.OnceValue(func() bool { return exec.Command("ev", "doctor").Run() == nil })

// The home of who runs the tests may be closed to others.
var canUserSeal = sync.OnceValue(func() bool {
	cmd := exec.Command("asuser", "ev", "doctor")
	cmd.Env = append(os.Environ(), "HOME=/")
	return cmd.Run() == nil
})

// setup gives a script a home and a store below $WORK, in dot folders, which
// are no packages. The folders above must be open to asuser.
func setup(env *testscript.Env) error {
	for dir := env.WorkDir; dir != filepath.Clean(os.TempDir()) && dir != "/"; dir = filepath.Dir(dir) {
		if err := os.Chmod(dir, 0o755); err != nil { // not ours: GOTMPDIR, say
			break
		}
	}
	for _, v := range [][2]string{{"HOME", ".home"}, {"XDG_CACHE_HOME", ".cache"}, {"XDG_DATA_HOME", ".data"}} {
		dir := filepath.Join(env.WorkDir, v[1])
		if err := os.Mkdir(dir, 0o755); err != nil {
			return err
		}
		env.Setenv(v[0], dir)
	}
	env.Setenv("EXAMPLES", filepath.Join(testdata, "../../../examples"))
	return nil
}

// fixture NAME [DIR] unpacks testdata/fixture/NAME.txtar.
func fixture(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: fixture NAME [DIR]")
	}
	root, err := filepath.Abs(filepath.Join(testdata, "fixture", args[0]+".txtar"))
	ts.Check(err)
	a, err := txtar.ParseFile(root)
	ts.Check(err)
	dir := ts.MkAbs(".")
	if len(args) == 2 {
		dir = ts.MkAbs(args[1])
		ts.Check(os.MkdirAll(dir, 0o755))
	}
	ts.Check(txtar.Write(a, dir))
}

// block is a file in a document: ```python file=hotel/BUILD.star.
var block = regexp.MustCompile("(?ms)^```\\w+ file=(\\S+)\n(.*?)^```$")

// blocks FILE writes the files that a document of docs/ holds.
func blocks(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: blocks FILE")
	}
	text, err := os.ReadFile(filepath.Join(testdata, "../../../docs", args[0]))
	ts.Check(err)
	found := block.FindAllSubmatch(text, -1)
	if found == nil {
		ts.Fatalf("docs/%s holds no files", args[0])
	}
	for _, f := range found {
		name := ts.MkAbs(string(f[1]))
		ts.Check(os.MkdirAll(filepath.Dir(name), 0o755))
		ts.Check(os.WriteFile(name, f[2], 0o644))
	}
}

// testdata is absolute: a script may change what is current.
var testdata = func() string {
	dir, err := filepath.Abs("testdata")
	if err != nil {
		panic(err)
	}
	return dir
}()

// exits CODE PROGRAM ARGS… asserts an exit code, and that nothing that was
// printed could reach a terminal as more than text.
func exits(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: exits CODE PROGRAM ARGS...")
	}
	want, err := strconv.Atoi(args[0])
	ts.Check(err)
	err = ts.Exec(args[1], args[2:]...)
	got := 0
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		got = exit.ExitCode()
	} else {
		ts.Check(err)
	}
	if got != want {
		ts.Fatalf("exit code %d, not %d", got, want)
	}
	plain(ts, false, nil)
}

// plain asserts that the last program printed no control character but
// newlines and tabs, and no invalid UTF-8.
func plain(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) > 0 {
		ts.Fatalf("usage: plain")
	}
	for _, name := range []string{"stdout", "stderr"} {
		for i, line := range strings.Split(ts.ReadFile(name), "\n") {
			for _, part := range strings.Split(line, "\t") {
				if safe(part) != part {
					ts.Fatalf("%s line %d is not plain text: %q", name, i+1, line)
				}
			}
		}
	}
}

// ran FILE [//LABEL:]MNEMONIC=N… asserts which actions ran, by an events file:
// those that are named, as often as is said, and no others. Without a label
// the mnemonic counts in all targets.
func ran(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 {
		ts.Fatalf("usage: ran FILE [//LABEL:]MNEMONIC=N...")
	}
	want := map[string]int{}
	labelled := false
	for _, a := range args[1:] {
		name, n, ok := strings.Cut(a, "=")
		count, err := strconv.Atoi(n)
		if !ok || err != nil {
			ts.Fatalf("ran: %q is no MNEMONIC=N", a)
		}
		labelled = labelled || strings.HasPrefix(name, "//")
		want[name] = count
	}
	got := map[string]int{}
	var whys []string
	for _, e := range readEvents(ts, args[0]) {
		if e.Type != "action" || e.Status != "ran" {
			continue
		}
		name := e.Mnemonic
		if labelled {
			name = e.Label + ":" + name
		}
		got[name]++
		whys = append(whys, e.Label+" "+e.Mnemonic+": "+e.Why)
	}
	if !maps.Equal(want, got) {
		ts.Fatalf("what ran (-want +got):\n%s\n%s", cmp.Diff(want, got), strings.Join(whys, "\n"))
	}
}

type eventLine struct {
	Type, Label, Mnemonic, Status, Why, Key, Error string
	Targets, Actions, Ran, Disk, Failed, Skipped   int
}

func readEvents(ts *testscript.TestScript, file string) []eventLine {
	var out []eventLine
	for i, line := range strings.Split(strings.TrimSuffix(ts.ReadFile(file), "\n"), "\n") {
		var e eventLine
		if err := json.Unmarshal([]byte(line), &e); err != nil {
			ts.Fatalf("%s:%d: %v", file, i+1, err)
		}
		out = append(out, e)
	}
	return out
}

// jsonl FILE asserts that an events file is whole: JSON lines, the summary
// last, whose counts are those of the lines before.
func jsonl(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: jsonl FILE")
	}
	list := readEvents(ts, args[0])
	last := list[len(list)-1]
	count := map[string]int{}
	for _, e := range list[:len(list)-1] {
		count[e.Type]++
		count[e.Status]++
		if e.Type == "action" && (e.Label == "" || e.Mnemonic == "") {
			ts.Fatalf("an action without label or mnemonic: %+v", e)
		}
		count["target "+e.Status] += map[string]int{"target": 1}[e.Type]
	}
	if last.Type != "summary" {
		ts.Fatalf("the last line is a %q", last.Type)
	}
	for status, n := range map[string]int{"ran": last.Ran, "disk": last.Disk, "failed": last.Failed} {
		if got := count[status] - count["target "+status]; got != n {
			ts.Fatalf("%d lines say %s, the summary says %d", got, status, n)
		}
	}
	if count["target"] != last.Targets {
		ts.Fatalf("%d targets, the summary says %d", count["target"], last.Targets)
	}
}

// edit FILE OLD NEW replaces the one place where OLD stands; \n and the like
// are read as in Go.
func edit(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 3 {
		ts.Fatalf("usage: edit FILE OLD NEW")
	}
	text := ts.ReadFile(args[0])
	from, to := unquote(ts, args[1]), unquote(ts, args[2])
	if n := strings.Count(text, from); n != 1 {
		ts.Fatalf("edit %s: %q is there %d times", args[0], from, n)
	}
	path := ts.MkAbs(args[0])
	ts.Check(os.WriteFile(path, []byte(strings.Replace(text, from, to, 1)), 0o644))
}

func unquote(ts *testscript.TestScript, s string) string {
	out, err := strconv.Unquote(`"` + strings.ReplaceAll(s, `"`, `\"`) + `"`)
	ts.Check(err)
	return out
}

var keyLine = regexp.MustCompile(`^  key +(\S+)`)

// keys FILE writes each action and its key, from what `ev actions` printed.
func keys(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) != 1 {
		ts.Fatalf("usage: keys FILE")
	}
	var out strings.Builder
	for _, line := range strings.Split(ts.ReadFile("stdout"), "\n") {
		if m := keyLine.FindStringSubmatch(line); m != nil {
			if !strings.HasPrefix(m[1], "blake3:") {
				ts.Fatalf("an action without a key:\n%s", line)
			}
			out.WriteString(" " + m[1] + "\n")
		} else if line != "" && !strings.HasPrefix(line, " ") {
			out.WriteString(line)
		}
	}
	if out.Len() == 0 {
		ts.Fatalf("no actions were printed")
	}
	ts.Check(os.WriteFile(ts.MkAbs(args[0]), []byte(out.String()), 0o644))
}

// sums FILE… N asserts that the builds of these events files ran N actions in
// all: none twice, none lost.
func sums(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 2 {
		ts.Fatalf("usage: sums FILE... N")
	}
	want, err := strconv.Atoi(args[len(args)-1])
	ts.Check(err)
	keys := map[string]bool{}
	n := 0
	for _, file := range args[:len(args)-1] {
		for _, e := range readEvents(ts, file) {
			if e.Type == "action" && e.Status == "ran" {
				n++
				keys[e.Key] = true
			}
		}
	}
	if n != want || len(keys) != want {
		ts.Fatalf("%d actions ran, with %d keys; not %d", n, len(keys), want)
	}
}

// json FILE [N] asserts that a file is a JSON list, of N values.
func jsonFileOf(ts *testscript.TestScript, neg bool, args []string) {
	if neg || len(args) < 1 || len(args) > 2 {
		ts.Fatalf("usage: json FILE [N]")
	}
	var list []any
	ts.Check(json.Unmarshal([]byte(ts.ReadFile(args[0])), &list))
	if len(args) == 2 && strconv.Itoa(len(list)) != args[1] {
		ts.Fatalf("%s holds %d values, not %s", args[0], len(list), args[1])
	}
}
