package engine

import (
	"context"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// TestTwinDraws: targets with the same reps draw them once, in one package and in
// two, and the locks of all say so after the first build.
func TestTwinDraws(t *testing.T) {
	for _, jobs := range []int{1, 8} {
		twin := strings.Replace(luck, `name = "luck"`, `name = "twin"`, 1)
		_, twin, _ = strings.Cut(twin, "\nprobe")
		f := newDrawFixture(t, luck+"probe"+twin)
		f.jobs = jobs
		f.set("o/q.md", "Roll.\n")
		f.set("o/t.md", "Be lucky.\n")
		f.set("o/BUILD.star", drawHead+luck)
		f.pkgs = append(f.pkgs, "o")
		f.draws(4)
		if f.runner.count != 4 {
			t.Errorf("%d processes", f.runner.count)
		}
		locks := []string{f.lockText("p"), f.lockText("o")}
		shown := f.outputs()
		if c, d := f.countsOf("luck"), f.countsOf("twin"); c.Draws+c.Adopted != 4 || d.Draws+d.Adopted != 4 {
			t.Errorf("counts %+v, %+v", c, d)
		}
		for range 2 {
			f.draws(0)
			if now := []string{f.lockText("p"), f.lockText("o")}; !slices.Equal(now, locks) {
				t.Errorf("jobs %d: a second build wrote:\n%s%s", jobs, strings.TrimPrefix(now[0], locks[0]), strings.TrimPrefix(now[1], locks[1]))
			}
			f.wantOutputs(shown)
		}
	}
}

// TestTwoDiscriminators: probes that judge the same reps by other functions are
// each bound before the first reply; one that joins them later is not.
func TestTwoDiscriminators(t *testing.T) {
	_, probe, _ := strings.Cut(luck, "\nprobe")
	named := func(name, fn string) string {
		return "probe" + strings.NewReplacer(`"luck"`, fmt.Sprintf("%q", name), "discriminator = six", "discriminator = "+fn).Replace(probe)
	}
	fn := "def one(rep): return ABSENT\n"
	for _, first := range []string{"drawn", "adopted"} {
		f := newDrawFixture(t, fn+luck+named("other", "one"))
		f.jobs = 8
		f.draws(4)
		if first == "adopted" {
			f.check(os.Remove(f.lockPath("p")))
			f.draws(0)
		}
		f.wantCard("luck", map[string]string{"scored_as": "drawn", "looks": "1"})
		f.wantCard("other", map[string]string{"scored_as": "drawn", "looks": "1"})
		lock, shown := f.lockText("p"), f.outputs()
		f.wantRan(f.draws(0))
		f.wantOutputs(shown)
		if f.lockText("p") != lock {
			t.Errorf("%s: a second build wrote %s", first, strings.TrimPrefix(f.lockText("p"), lock))
		}
		f.redeclare("def two(rep): return PRESENT\n" + fn + luck + named("other", "one") + named("third", "two"))
		for range 2 {
			f.draws(0)
			f.wantCard("luck", map[string]string{"scored_as": "drawn"})
			f.wantCard("third", map[string]string{"scored_as": "edited-after-draw"})
		}
		// An edit behind a new name.
		f.redeclare("def three(rep): return PRESENT if rep.reply else ABSENT\n" + strings.Replace(luck, "discriminator = six", "discriminator = three", 1))
		f.edit("p/BUILD.star", `name = "luck"`, `name = "new"`)
		f.draws(0)
		f.wantCard("new", map[string]string{"scored_as": "edited-after-draw"})
	}
}

// TestOtherClone: a clone with the same lock and store draws nothing and comes
// to the same bytes.
func TestOtherClone(t *testing.T) {
	f := newDrawFixture(t, luck)
	f.draws(4)
	want := f.outputs()
	other := newDrawFixture(t, luck)
	other.jobs = 1
	f.check(os.Symlink(f.storeDir(), other.storeDir()))
	other.consent = Consent{}
	f.check(os.WriteFile(other.lockPath("p"), []byte(f.lockText("p")), 0o644))
	other.draws(0)
	other.wantOutputs(want)
	if other.lockText("p") != f.lockText("p") {
		t.Error("the lock of the clone changed")
	}
}

// TestTwinOfPair: the second of a pair isn't held up by a first that waits for
// its twin in another target.
func TestTwinOfPair(t *testing.T) {
	f := newDrawFixture(t, "")
	f.set("pair.star", `
def _impl(ctx):
    outs = []
    for stream in ["a", "b"]:
        exit = ctx.actions.declare_file(stream + ".json")
        ctx.actions.run(
            executable = ctx.attr.tool,
            arguments = [ctx.attr.text] if stream == "b" else [],
            exit = exit,
            sample = sample(stream = stream, index = 1),
        )
        outs.append(exit)
    return [DefaultInfo(files = outs)]

pair = rule(_impl, attrs = {"tool": attr.label(), "text": attr.string()})
`)
	f.set("p/BUILD.star", `load("//:pair.star", "pair")`+"\n"+drawHead+`
pair(name = "x", tool = ":sh", text = "one")
pair(name = "y", tool = ":sh", text = "two")
`)
	f.runner.words = nil
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	b := f.run(ctx)
	f.check(b.err)
	if b.Drawn != 3 || len(b.Problems) > 0 {
		t.Errorf("drew %d: %v", b.Drawn, b.problems())
	}
}
