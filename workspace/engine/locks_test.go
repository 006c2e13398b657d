package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/workspace/graph"
)

const (
	oneTool   = `tool(name = "prog", path = "HOST/prog")` + "\n"
	useOne    = oneTool + `use(name = "a", tools = [":prog"], text = "1")`
	oldFolder = ".= empty= l=sub/fin sub= sub/f=in x=#!x*"
)

// TestLockedSources: the key comes from the lock alone, and the bytes from
// wherever they are.
func TestLockedSources(t *testing.T) {
	f := newLockFixture(t, useOne)
	f.lock("prog", "link", "folder")
	b := f.build("a")
	f.wantRan(b, "a o")
	key := b.event("a o").Key
	want := map[string]string{"prog": "#!prog", "link": "-> prog", "folder": oldFolder}
	is := func() {
		t.Helper()
		if got := f.has(); len(got) != len(want) || got["prog"] != want["prog"] || got["link"] != want["link"] || got["folder"] != want["folder"] {
			t.Errorf("inside was %q", got)
		}
	}
	specs := f.runner.specs
	for _, m := range specs[0].Mounts {
		if m.Source != "" && m.Source != m.Path {
			t.Errorf("%s is from %s, and is the same here", m.Path, m.Source)
		}
	}
	is()
	// The machine changes in each way: the same key, and the same bytes inside.
	for n, change := range []func(){
		func() { f.write("prog", "#!other", 0o755) },
		func() { f.write("folder/sub/f", "out", 0o644) },
		func() { f.check(os.Chmod(f.path("prog"), 0o644)) },
		func() { f.check(os.Remove(f.path("link"))); f.check(os.Symlink("x", f.path("link"))) },
		func() { f.check(os.Remove(f.path("folder/empty"))) },
		func() { f.check(os.RemoveAll(f.host)) },
	} {
		change()
		f.redeclare(useOne)
		again := f.build("a")
		f.wantRan(again)
		if got := again.event("a o").Key; got != key {
			t.Errorf("change %d: another key", n)
		}
		f.redeclare(strings.Replace(useOne, `"1"`, `"`+strings.Repeat("x", n+1)+`"`, 1))
		f.wantRan(f.build("a"), "a o")
		is()
	}
	// A copy that somebody wrote into is made again.
	copies, err := filepath.Glob(f.state("folders", "*"))
	if err != nil || len(copies) != 1 {
		t.Fatal(copies, err)
	}
	f.check(os.WriteFile(filepath.Join(copies[0], "new"), nil, 0o644))
	killed, yesterday := f.state("folders", copyPrefix+"1"), fixedNow().Add(-25*time.Hour)
	f.check(os.MkdirAll(killed, 0o755))
	f.check(os.Chtimes(killed, yesterday, yesterday))
	f.redeclare(strings.Replace(useOne, `"1"`, `"y"`, 1))
	f.wantRan(f.build("a"), "a o")
	is()
	if left, _ := filepath.Glob(f.state("folders", "*")); len(left) != 1 {
		t.Errorf("left are %q", left)
	}
}

// TestDrift: what is nowhere is an error of the user's, and nothing runs.
func TestDrift(t *testing.T) {
	for _, c := range []struct {
		name  string
		spoil func(f *lockFixture)
		want  string
	}{
		{"file", func(f *lockFixture) { f.write("prog", "#!other", 0o755); f.lose("prog", "prog") }, "/prog is not what tools.lock pins (locked blake3:"},
		{"file gone", func(f *lockFixture) { os.Remove(f.path("prog")); f.lose("prog", "prog") }, "…, here no such file or directory), and the store doesn't have the locked one"},
		{"mode", func(f *lockFixture) { os.Chmod(f.path("prog"), 0o644); f.lose("prog", "prog") }, "(locked executable, here not executable), and"},
		{"folder", func(f *lockFixture) { f.write("folder/new", "", 0o644); f.lose("prog", "folder") }, "/folder is not what tools.lock pins"},
		{"folder's file", func(f *lockFixture) {
			f.lock("x", "folder/sub/f")
			f.write("folder/sub/f", "out", 0o644)
			f.lose("x", "folder/sub/f")
		}, "/folder is not what tools.lock pins"},
		{"damaged", func(f *lockFixture) {
			f.write("prog", "#!other", 0o755)
			for _, p := range f.stored("cas") {
				f.check(damages[0].do(p))
			}
		}, "and the store's copy of the locked one is damaged"},
	} {
		f := newLockFixture(t, useOne)
		f.lock("prog", "link", "folder")
		c.spoil(f)
		results := len(f.stored("ac"))
		b := f.run(context.Background(), "a")
		f.check(b.err)
		if len(b.Problems) != 1 || b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), c.want) ||
			!strings.HasPrefix(b.Problems[0].Err.Error(), "tool drifted: "+f.host) {
			t.Errorf("%s: %+v", c.name, b.Problems)
			continue
		}
		var many interface{ Hints() []string }
		if !errors.As(b.Problems[0].Err, &many) || !strings.Contains(many.Hints()[0], "`ev lock //p:prog`") {
			t.Errorf("%s: no hint", c.name)
		}
		if len(f.took()) > 0 || len(f.stored("ac")) != results {
			t.Errorf("%s: something ran", c.name)
		}
	}
	// It is here, so that nothing else matters.
	f := newLockFixture(t, useOne)
	f.lock("prog", "link", "folder")
	f.lose("prog", "prog")
	f.wantRan(f.build("a"), "a o")
}

// TestLockedUnsealed: without a seal nothing can be put in the place of what is
// here, links included.
func TestLockedUnsealed(t *testing.T) {
	for name, change := range map[string]func(f *lockFixture){
		"":       func(*lockFixture) {},
		"file":   func(f *lockFixture) { f.write("prog", "#!other", 0o755) },
		"folder": func(f *lockFixture) { f.write("folder/new", "", 0o644) },
		"link":   func(f *lockFixture) { os.Remove(f.path("link")); os.Symlink("x", f.path("link")) },
	} {
		f := newLockFixture(t, useOne)
		f.lock("prog", "link", "folder")
		change(f)
		targets := f.targets("a")
		targets[0].Result.Actions[0].Policy.Unsealed = true
		rep, err := New(f.options(f.store(), nil)).Build(context.Background(), targets)
		f.check(err)
		if drifted := len(rep.Problems) == 1 && strings.Contains(rep.Problems[0].Err.Error(), "tool drifted: ") &&
			strings.HasSuffix(rep.Problems[0].Err.Error(), "is what this machine has"); drifted != (name != "") || len(f.took()) == len(rep.Problems) {
			t.Errorf("%q: %+v", name, rep.Problems)
		}
	}
}

// TestLockedChanges: a source that changes while the process runs is noticed,
// whether it is this machine's or the store's.
func TestLockedChanges(t *testing.T) {
	for _, rel := range []string{"prog", "folder"} {
		for _, drifted := range []bool{false, true} {
			f := newLockFixture(t, useOne)
			f.lock("prog", "link", "folder")
			if drifted {
				f.check(os.RemoveAll(f.host))
			}
			f.runner.fail = func(spec sandbox.Spec) error {
				i := slices.IndexFunc(spec.Mounts, func(m graph.Mount) bool { return m.Path == f.path(rel) })
				p := spec.Mounts[i].Source
				if rel == "folder" {
					return os.WriteFile(filepath.Join(p, "new"), nil, 0o644)
				}
				return rewrite(p, false, flip)
			}
			b := f.run(context.Background(), "a")
			f.check(b.err)
			if len(b.Problems) != 1 || b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), "changed while the build ran") {
				t.Errorf("%s, drifted %v: %+v", rel, drifted, b.Problems)
			}
		}
	}
	// A link of this machine is of no tool that was used.
	f := newLockFixture(t, useOne)
	f.lock("prog", "link", "folder")
	f.runner.fail = func(sandbox.Spec) error { return os.Remove(f.path("link")) }
	f.wantRan(f.build("a"), "a o")
}

// TestMixedTools: locked and unlocked tools in one action.
func TestMixedTools(t *testing.T) {
	const build = oneTool + `
tool(name = "other", path = "HOST/other")
tool(name = "inner", path = "HOST/folder/sub/f")
use(name = "a", tools = [":prog", ":other"])
use(name = "b", tools = [":prog", ":inner"])
use(name = "c", tools = [":inner", ":prog"], text = "c")
`
	f := newLockFixture(t, build)
	f.write("other", "#!other", 0o755)
	f.lock("prog", "prog", "folder")
	f.write("prog", "#!new", 0o755)
	f.wantRan(f.build("a"), "a o")
	if got := f.has(); got["prog"] != "#!prog" || got["other"] != "#!other" {
		t.Errorf("%q", got)
	}
	f.write("other", "#!2", 0o755)
	f.wantRan(f.build("a"), "a o")
	f.took()
	f.runner.fail = func(sandbox.Spec) error { f.write("other", "#!3", 0o755); return nil }
	f.redeclare(build + `use(name = "d", tools = [":prog", ":other"], text = "d")`)
	if b := f.run(context.Background(), "d"); len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Err.Error(), "/other: changed while") {
		t.Errorf("%+v", b.Problems)
	}
	f.took()
	f.check(os.Symlink("other", f.path("name")))
	f.runner.fail = func(sandbox.Spec) error { f.check(os.Remove(f.path("name"))); return nil }
	f.redeclare(strings.Replace(build, "HOST/other", "HOST/name", 1))
	if b := f.run(context.Background(), "a"); len(b.Problems) != 1 || !strings.Contains(b.Problems[0].Err.Error(), "/name: changed while") {
		t.Errorf("%+v", b.Problems)
	}
	f.took()
	f.runner.fail = nil

	// What lies in a locked folder, and is the same there, is had with it.
	for _, locked := range []bool{false, true} {
		if locked {
			f.lock("inner", "folder/sub/f")
		}
		f.redeclare(strings.Replace(build, `text = "c"`, fmt.Sprintf(`text = "%v"`, locked), 1))
		f.build("b", "c")
		specs := f.took()
		if len(specs) == 0 {
			t.Error("nothing ran")
		}
		for _, spec := range specs {
			for _, m := range spec.Mounts {
				if m.Path == f.path("folder/sub/f") {
					t.Errorf("%s is mounted in a folder that has it", m.Path)
				}
			}
		}
	}
	fails := func(name, want string) {
		t.Helper()
		b := f.run(context.Background(), name)
		if len(b.Problems) != 1 || b.Problems[0].Infra || !strings.Contains(b.Problems[0].Err.Error(), want) {
			t.Errorf("%+v, want %s", b.Problems, want)
		}
		f.took()
	}
	// One that isn't the same, locked or not.
	f.write("folder/sub/f", "out", 0o644)
	f.lock("inner", "folder/sub/f")
	fails("b", "tools //p:prog and //p:inner: mount "+f.path("folder/sub/f")+": is a file blake3:")
	delete(f.locks, "inner")
	fails("c", "tools //p:inner and //p:prog: mount ")
	f.lose("prog", "folder")
	fails("b", "find out what is in the locked folder "+f.path("folder")+": blob ")
	// One path, two contents.
	f.lock("other", "prog")
	fails("a", "tools //p:prog and //p:other: mount "+f.path("prog")+": is an executable file blake3:")
}

// TestLockedLabels: equal tools of two labels are two, one locked and one not.
func TestLockedLabels(t *testing.T) {
	f := newLockFixture(t, oneTool+`
tool(name = "twin", path = "HOST/prog")
use(name = "a", tools = [":prog"])
use(name = "b", tools = [":twin"])
`)
	f.lock("prog", "prog")
	f.write("prog", "#!new", 0o755)
	b := f.build("a", "b")
	f.wantRan(b, "a o", "b o")
	if b.event("a o").Key == b.event("b o").Key {
		t.Error("one key")
	}
}

func TestUnlocked(t *testing.T) {
	f := newLockFixture(t, oneTool+`
tool(name = "elsewhere", path = "HOST/prog")
tool(name = "broken", path = "HOST/prog")
use(name = "a", tools = [":prog", ":elsewhere", ":sh"])
use(name = "b", tools = [":broken"])
`)
	f.lock("prog", "prog")
	targets := f.targets("a", "b")
	e := New(f.options(f.store(), nil))
	list, err := e.Unlocked(targets[0].Result.Actions[0])
	f.check(err)
	var got []string
	for _, u := range list {
		got = append(got, u.Error()+"; "+u.Hint())
	}
	want := []string{
		"tool //p:elsewhere is locked for plan9 mips, dos x86 only; `ev lock //p:elsewhere` pins it as it is on this machine",
		"tool //p:sh is not locked; `ev lock //p:sh` pins it as it is on this machine",
	}
	if !slices.Equal(got, want) {
		t.Errorf("%q", got)
	}
	if _, err := e.Unlocked(targets[1].Result.Actions[0]); err == nil {
		t.Error("a broken lock is no error")
	}
	b := f.run(context.Background(), "b")
	if len(b.Problems) != 1 || b.Problems[0].Infra || b.Problems[0].Err.Error() != "read tools.lock:1: broken" {
		t.Errorf("%+v", b.Problems)
	}
	e = New(Options{})
	if list, err := e.Unlocked(targets[0].Result.Actions[0]); len(list) != 3 || err != nil {
		t.Error(list, err)
	}
}

// TestVerifyLocked: a record holds of folders that are known by their digests.
func TestVerifyLocked(t *testing.T) {
	f := newLockFixture(t, useOne)
	f.lock("prog", "link", "folder")
	f.build("a")
	ran := f.took()[0].Mounts
	f.check(os.RemoveAll(f.host))
	var judged []graph.Mount
	change := f.change
	f.change = func(o *Options) {
		change(o)
		o.VerifySeal = func(_ []byte, spec sandbox.Spec) error { judged = spec.Mounts; return nil }
	}
	faults, rep := f.verify()
	if len(faults) > 0 || len(rep.Problems) > 0 || rep.Unverifiable > 0 {
		t.Error(faults, rep.Problems)
	}
	if !slices.EqualFunc(ran, judged, func(x, y graph.Mount) bool {
		return x.Path == y.Path && same(x, y) && (x.Tree == nil) == (y.Tree == nil)
	}) {
		t.Errorf("ran with %+v, judged with %+v", ran, judged)
	}
}
