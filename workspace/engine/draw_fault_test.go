package engine

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/draws"
)

// one is a probe of a single pair.
var one = strings.Replace(luck, "reps = 2", "reps = 1", 1)

// TestInfrastructure: what the machine or the network did is no draw, and what
// the rep did is one. Here the first three processes end so, and then none.
func TestInfrastructure(t *testing.T) {
	setup := &sandbox.SetupError{Row: 3, Layer: "mount", Call: "mount", Err: unix.ENOMEM}
	for _, c := range []struct {
		name  string
		words string
		fail  error
		stall string
		draws bool   // it is a draw at once
		cause string // else, why not
		once  bool   // no use in trying again
		infra bool   // the machine's, if it stays
	}{
		{name: "seal could not be set up", fail: setup, cause: "mount", infra: true},
		{name: "runner broke", fail: errors.New("read pipe: I/O error"), cause: "read pipe", infra: true},
		{name: "disk full", fail: &storeError{unix.ENOSPC}, cause: "no space left", infra: true, once: true},
		{name: "host stalled", words: "out:six", stall: "the clock jumped by 9m0s", cause: "the clock jumped", infra: true},
		{name: "no such name", words: "code:1 refused:" + egress.NoName, cause: "api.test:443 can't be reached (resolve)", infra: true},
		{name: "no connection", words: "signal:9 refused:" + egress.NoDial, cause: "api.test:443 can't be reached (dial)", infra: true},
		{name: "stopped while it waited for it", words: "limit:wall refused:" + egress.NoDial, cause: "can't be reached", infra: true},
		{name: "no program", fail: &sandbox.ExecError{Path: "/bin/sh", Err: unix.ENOEXEC}, cause: "start /bin/sh", once: true},
		{name: "no seal here", fail: &sandbox.UnavailableError{Layer: "user", Err: unix.EPERM}, cause: "can't be had here", once: true},

		{name: "got along without", words: "out:six refused:" + egress.NoName, draws: true},
		{name: "refused by the policy", words: "code:1 refused:" + egress.NoDial + " refused:policy", draws: true},
		{name: "failed", words: "code:1", draws: true},
		{name: "killed", words: "signal:9", draws: true},
		{name: "survivor", words: "survivor:2", draws: true},
		{name: "limit", words: "limit:wall", draws: true},
		{name: "rejected", words: "reject:usage.json", draws: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			for _, fails := range []int{2, 3} {
				f := newDrawFixture(t, one)
				f.jobs = 1
				f.keep = true
				bad := func() bool { return f.runner.count <= fails }
				f.runner.fail = func(sandbox.Spec) error {
					if bad() {
						return c.fail
					}
					return nil
				}
				f.runner.words = func(int, string) ([]string, error) {
					if bad() {
						return strings.Fields(c.words), nil
					}
					return []string{"out:well"}, nil
				}
				f.watch = func() string {
					if bad() {
						return c.stall
					}
					return ""
				}
				b := f.run(context.Background())
				f.check(b.err)
				var line draws.Line // the first that closes an intent
				for _, l := range f.lock().Lines() {
					if line.Kind == "" && (l.Kind == draws.Draw || l.Kind == draws.Abandoned) {
						line = l
					}
				}
				switch {
				case c.draws:
					if line.Kind != draws.Draw || line.Attempts != 1 || b.Drawn != 2 || f.slept != nil {
						t.Errorf("%+v; slept %v; %v", line, f.slept, b.problems())
					}
				case fails == 2 && !c.once:
					if line.Kind != draws.Draw || line.Attempts != 3 || !slices.Equal(f.slept, []time.Duration{2 * time.Second, 4 * time.Second}) {
						t.Errorf("%+v; slept %v; %v", line, f.slept, b.problems())
					}
					f.wantCard("luck", map[string]string{"arms.control.attempts": "3", "arms.control.usable": "1"})
				default:
					err := b.problems()["control-1"]
					if line.Kind != draws.Abandoned || !strings.Contains(line.Why, c.cause) || err == nil || !strings.Contains(err.Error(), c.cause) || b.Problems[0].Infra != c.infra {
						t.Errorf("%+v; %v, infra %v", line, err, b.Problems[0].Infra)
					}
					if n := len(f.slept); c.once && n != 0 || !c.once && n != 2 {
						t.Errorf("slept %v", f.slept)
					}
					if _, err := os.Stat(f.out("p", "luck", "scorecard.json")); err == nil {
						t.Error("there is a scorecard")
					}
					if c := f.countsOf("luck"); c.Intents != c.Draws+c.Abandoned {
						t.Errorf("an intent is open: %+v", c)
					}
					f.runner.fail, f.runner.words, f.watch = nil, nil, nil
					f.draws(2 - f.countsOf("luck").Draws)
					if got := fmt.Sprint(at(f.card("luck"), "arms.control.abandoned")); got == "0" {
						t.Error("the abandoned rep is not in the scorecard")
					}
				}
			}
		})
	}
}

// TestInterrupted: a rep that Ctrl-C stops is counted.
func TestInterrupted(t *testing.T) {
	for _, during := range []string{"run", "back-off"} {
		f := newDrawFixture(t, luck)
		f.jobs = 1
		ctx, cancel := context.WithCancel(context.Background())
		f.runner.words = func(n int, _ string) ([]string, error) {
			switch {
			case n == 2 && during == "run":
				cancel()
			case n == 2:
				return nil, errors.New("broken pipe")
			}
			return []string{"out:six"}, nil
		}
		change := f.change
		f.change = func(o *Options) {
			change(o)
			o.Sleep = func(ctx context.Context, _ time.Duration) error {
				cancel()
				return ctx.Err()
			}
		}
		b := f.run(ctx)
		if !errors.Is(b.err, ErrInterrupted) || b.Drawn != 1 || b.Problems != nil {
			t.Errorf("%s: %v, drew %d: %v", during, b.err, b.Drawn, b.problems())
		}
		if got, want := f.lines(), []string{"intent control-1", "draw control-1", "intent treatment-1", "abandoned treatment-1"}; !slices.Equal(got, want) {
			t.Errorf("%s: %q", during, got)
		}
		if last := f.lock().Lines(); last[len(last)-1].Why != "interrupted" {
			t.Errorf("%s: %+v", during, last[len(last)-1])
		}
		f.draws(3)
		f.wantCard("luck", map[string]string{"arms.treatment.abandoned": "1", "arms.treatment.attempts": "3", "schedule.pairs_split_over_runs": "1"})
	}
}

// TestKilledBetween: a process that ends between two steps of a draw leaves what
// the next build needs: nothing is drawn twice, nothing paid is lost.
func TestKilledBetween(t *testing.T) {
	f := newDrawFixture(t, one)
	f.jobs = 1
	f.draws(2)
	lines := strings.SplitAfter(f.lockText("p"), "\n")
	want := f.captures()
	at := func(kind, stream string) int {
		return slices.IndexFunc(lines, func(l string) bool {
			return strings.Contains(l, `"kind":"`+kind+`"`) && strings.Contains(l, stream)
		})
	}
	t.Run("capture stored, no draw line", func(t *testing.T) {
		f.TB = t
		f.check(os.WriteFile(f.lockPath("p"), []byte(strings.Join(lines[:at("draw", "treatment")], "")), 0o644))
		f.draws(0)
		if got := f.lines()[3:]; !slices.Equal(got, []string{"abandoned treatment-1", "adopted treatment-1"}) || f.captures() != want {
			t.Errorf("%q", got)
		}
		f.wantCard("luck", map[string]string{"arms.treatment.adopted": "1", "arms.treatment.abandoned": "1", "arms.treatment.drawn": "1"})
	})
	t.Run("the intent only", func(t *testing.T) {
		f.TB = t
		f.lose("treatment-1")
		f.check(os.WriteFile(f.lockPath("p"), []byte(strings.Join(lines[:at("draw", "treatment")], "")), 0o644))
		b := f.draws(1)
		if got := f.lines()[3:]; !slices.Equal(got, []string{"abandoned treatment-1", "intent treatment-1", "draw treatment-1"}) {
			t.Errorf("%q", got)
		}
		if why := b.why("luck reps/treatment-1/reply.txt"); why != "it was begun and never finished" {
			t.Errorf("why %q", why)
		}
	})
	t.Run("a torn line", func(t *testing.T) {
		f.TB = t
		text := f.lockText("p")
		look := strings.LastIndex(text[:len(text)-1], "\n") + 1
		f.check(os.WriteFile(f.lockPath("p"), []byte(text[:look+20]), 0o644))
		f.draws(0)
		if f.lock().Torn() != nil || f.lockText("p") != text {
			t.Error("the torn look was not written again")
		}
	})
	t.Run("a run that lives", func(t *testing.T) {
		f.TB = t
		f.lose("treatment-1")
		text := strings.Join(lines[:at("draw", "treatment")], "")
		f.check(os.WriteFile(f.lockPath("p"), []byte(text), 0o644))
		f.alive[fmt.Sprintf("%032x", 1)] = true
		b := f.run(context.Background())
		f.check(b.err)
		var hinted *hintedError
		if err := b.problems()["treatment-1"]; !errors.As(err, &hinted) || !strings.Contains(err.Error(), "another build is drawing it") || b.Problems[0].Infra || b.Drawn != 0 {
			t.Errorf("%v", b.problems())
		}
		if f.lockText("p") != text {
			t.Error("the lock changed")
		}
		f.alive = map[string]bool{}
		f.draws(1)
	})
}

// TestLockFails: a lock that can't be written stops the rep before it costs
// anything; after it, the capture is found by the next build.
func TestLockFails(t *testing.T) {
	f := newDrawFixture(t, one)
	f.jobs = 1
	path := f.lockPath("p")
	f.check(os.Mkdir(path, 0o755))
	b := f.run(context.Background())
	f.check(b.err)
	if len(b.Problems) == 0 || f.runner.count != 0 || b.Drawn != 0 {
		t.Errorf("%d processes: %v", f.runner.count, b.problems())
	}
	f.check(os.Remove(path))
	f.runner.words = func(n int, _ string) ([]string, error) {
		if n == 1 { // while it runs, a folder gets the lock's name
			f.check(errors.Join(os.Rename(path, path+".away"), os.Mkdir(path, 0o755)))
		}
		return []string{fmt.Sprintf("out:reply %d", n)}, nil
	}
	b = f.run(context.Background())
	f.check(b.err)
	if err := b.problems()["control-1"]; err == nil || !b.Problems[0].Infra || f.runner.count != 1 || b.Drawn != 0 {
		t.Errorf("%d processes: %v", f.runner.count, b.problems())
	}
	f.check(errors.Join(os.Remove(path), os.Rename(path+".away", path)))
	f.draws(1)
	if f.runner.count != 2 {
		t.Errorf("%d processes", f.runner.count)
	}
	if got := f.lines()[:3]; !slices.Equal(got, []string{"intent control-1", "abandoned control-1", "adopted control-1"}) {
		t.Errorf("%q", got)
	}
	f.wantCard("luck", map[string]string{"arms.control.adopted": "1", "arms.control.abandoned": "1"})
}

// TestDamagedPrompt: a prompt found damaged is made again before a rep is asked,
// and the attempt costs no consent.
func TestDamagedPrompt(t *testing.T) {
	f := newDrawFixture(t, one)
	f.jobs = 1
	f.set("p/q.md", strings.Repeat("A long question. ", 200))
	f.consent = Consent{}
	if b := f.run(context.Background()); len(b.Problems) != 2 {
		t.Fatalf("%v", b.problems())
	}
	for _, p := range f.stored("cas") {
		f.check(rot(p))
	}
	f.check(os.RemoveAll(f.out()))
	f.consent = Consent{Draws: 2}
	f.runner.words = func(_ int, stdin string) ([]string, error) {
		if !strings.HasSuffix(stdin, strings.Repeat("A long question. ", 200)) {
			t.Errorf("asked %q", stdin)
		}
		return []string{"out:six"}, nil
	}
	b := f.run(context.Background())
	f.check(b.err)
	if b.Drawn != 2 || len(b.Problems) > 0 || f.slept != nil || f.runner.count != 2 {
		t.Errorf("drew %d with %d processes, slept %v: %v", b.Drawn, f.runner.count, f.slept, b.problems())
	}
}

// TestStoreFull: a capture that can't be stored is abandoned, and nothing of it
// is taken for one.
func TestStoreFull(t *testing.T) {
	f := newDrawFixture(t, one)
	f.jobs = 1
	f.runner.words = func(n int, _ string) ([]string, error) {
		if n == 1 { // no result can be written from here on
			f.check(os.RemoveAll(filepath.Join(f.storeDir(), "ac")))
			f.check(os.WriteFile(filepath.Join(f.storeDir(), "ac"), nil, 0o644))
		}
		return []string{"out:six"}, nil
	}
	b := f.run(context.Background())
	f.check(b.err)
	if err := b.problems()["control-1"]; err == nil || !strings.Contains(err.Error(), "keep the capture") || !b.Problems[0].Infra {
		t.Errorf("%v", b.problems())
	}
	lines := f.lock().Lines()
	if last := lines[len(lines)-1]; last.Kind != draws.Abandoned || !strings.Contains(last.Why, "the capture could not be stored") {
		t.Errorf("%+v", last)
	}
	f.check(os.Remove(filepath.Join(f.storeDir(), "ac")))
	f.draws(2)
	f.wantCard("luck", map[string]string{"arms.control.abandoned": "1"})
}

// TestTwoBuilds: two builds of one workspace at once draw each rep once.
func TestTwoBuilds(t *testing.T) {
	f := newDrawFixture(t, strings.Replace(luck, "reps = 2", "reps = 20", 1))
	f.jobs = 4
	f.alive[fmt.Sprintf("%032x", 1)], f.alive[fmt.Sprintf("%032x", 2)] = true, true
	var engines [2]*Engine
	var all [2]built
	for i := range engines {
		o := f.options(f.store(), nil)
		o.State, o.Out = filepath.Join(f.dir, fmt.Sprint("state", i)), filepath.Join(f.dir, fmt.Sprint("out", i))
		engines[i], all[i].targets = New(o), f.targets()
	}
	var wg sync.WaitGroup
	for i := range engines {
		wg.Go(func() { all[i].Report, all[i].err = engines[i].Build(context.Background(), all[i].targets) })
	}
	wg.Wait()
	for _, b := range all {
		f.check(b.err)
		if len(b.Problems) > 0 {
			t.Errorf("%v", b.problems())
		}
	}
	c := f.countsOf("luck")
	if n := all[0].Drawn + all[1].Drawn; n != 40 || f.runner.count != 40 || c.Draws != 40 || c.Intents != 40 || c.Abandoned != 0 || c.Adopted != 0 {
		t.Errorf("drew %d and %d, %d processes, %+v", all[0].Drawn, all[1].Drawn, f.runner.count, c)
	}
}

// TestOtherStore: a build with another store doesn't draw what the lock has.
func TestOtherStore(t *testing.T) {
	f := newDrawFixture(t, one)
	f.draws(2)
	was := f.lockText("p")
	f.check(os.RemoveAll(f.storeDir()))
	b := f.run(context.Background())
	f.check(b.err)
	var lost *LostError
	if err := b.problems()["control-1"]; !errors.As(err, &lost) || f.runner.count != 2 || f.lockText("p") != was {
		t.Errorf("%d processes: %v", f.runner.count, b.problems())
	}
}

// TestVerifyDraws: what is wrong with a capture, or with what follows from it,
// is a fault.
func TestVerifyDraws(t *testing.T) {
	f := newDrawFixture(t, one)
	f.runner.words = func(n int, _ string) ([]string, error) {
		return []string{fmt.Sprintf("out:%s %d", strings.Repeat("a long reply ", 200), n)}, nil
	}
	f.draws(2)
	lock := f.lockText("p")
	verify := func() []Fault {
		t.Helper()
		faults, rep, err := New(f.options(f.store(), nil)).Verify(context.Background(), f.targets())
		f.check(err)
		if f.lockText("p") != lock {
			t.Error("verify wrote to the lock")
		}
		for _, p := range rep.Problems {
			if len(faults) == 0 {
				t.Errorf("a problem without a fault: %v", p.Err)
			}
		}
		return faults
	}
	if faults := verify(); len(faults) != 0 {
		t.Fatalf("%+v", faults)
	}
	evidence := map[string]bool{} // files of the store that captures are, by digest
	for _, rep := range []string{"control-1", "treatment-1"} {
		evidence[f.keyOf(rep).Hex()] = true
		evidence[must(f.store().Lookup(cas.Capture, f.keyOf(rep))).Stdout.Hex()] = true
	}
	spoilt := 0
	for _, p := range slices.Concat(f.stored("cas"), f.stored("ac")) {
		if !evidence[filepath.Base(p)] {
			continue
		}
		was, fi := must(os.ReadFile(p)), must(os.Stat(p))
		for _, d := range damages {
			f.check(d.do(p))
			faults := verify()
			if len(faults) != 1 || faults[0].Where != "store" || faults[0].Cause == "" {
				t.Errorf("%s of %s: %+v", d.name, p, faults)
			}
			os.Remove(p)
			f.check(errors.Join(os.WriteFile(p, was, fi.Mode()), os.Chtimes(p, fi.ModTime(), fi.ModTime())))
			spoilt++
		}
	}
	if spoilt != 4*len(damages) {
		t.Errorf("%d files were spoilt", spoilt)
	}
	if faults := verify(); len(faults) != 0 {
		t.Errorf("after all is put back: %+v", faults)
	}
}
