package hostwatch

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fake is a host whose clocks stand still unless they are moved.
type fake struct {
	Host
	mu       sync.Mutex
	clocks   Clocks
	pressure Pressure
	blind    bool // without pressure
	err      error
	ticks    chan time.Time
	stopped  chan struct{} // gets one for each ticker that was stopped
}

func newFake() *fake {
	f := &fake{clocks: Clocks{Awake: time.Hour, Boot: 2 * time.Hour, Wall: 1e6 * time.Hour}, ticks: make(chan time.Time), stopped: make(chan struct{}, 10)}
	f.pressure = Pressure{Memory: time.Minute, IO: time.Minute, CPU: time.Minute}
	f.Clocks = func() (Clocks, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		return f.clocks, f.err
	}
	f.Pressure = func() (Pressure, bool) { return f.pressure, !f.blind }
	f.Ticker = func(time.Duration) (<-chan time.Time, func()) {
		return f.ticks, func() { f.stopped <- struct{}{} }
	}
	return f
}

// pass moves the clocks by one time, in steps of the period with a tick each.
func (f *fake) pass(d time.Duration) {
	for step := DefaultPeriod; d > 0; d -= step {
		step = min(step, d)
		f.move(step, step, step)
		f.beat()
	}
}

func (f *fake) move(awake, boot, wall time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.clocks.Awake += awake
	f.clocks.Boot += boot
	f.clocks.Wall += wall
}

// beat ticks at once: h.ticks would leave open when it is done.
func (f *fake) beat() { f.tick(f.done) }

func (f *fake) start(t *testing.T) *Watch {
	t.Helper()
	w, err := f.Start()
	if err != nil {
		t.Fatal(err)
	}
	return w
}

func stop(t *testing.T, w *Watch) Verdict {
	t.Helper()
	v, err := w.Stop()
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestCauses(t *testing.T) {
	const rep = 20 * time.Second
	for name, c := range map[string]struct {
		happens func(f *fake)
		want    Verdict // without Elapsed; Pressure nil is none waited
		why     string
	}{
		"nothing":        {func(*fake) {}, Verdict{}, ""},
		"sleep":          {func(f *fake) { f.move(0, time.Second, time.Second) }, Verdict{Suspended: time.Second}, "the host was suspended for 1.0 s"},
		"short sleep":    {func(f *fake) { f.move(0, time.Second-1, time.Second-1) }, Verdict{Suspended: time.Second - 1}, ""},
		"clock set":      {func(f *fake) { f.move(0, 0, 2010*time.Millisecond) }, Verdict{Jump: 2 * time.Second}, "the wall clock jumped by 2.0 s"},
		"clock set back": {func(f *fake) { f.move(0, 0, -time.Hour-10*time.Millisecond) }, Verdict{Jump: time.Hour}, "the wall clock jumped by 3600.0 s"},
		"clock stepped":  {func(f *fake) { f.move(0, 0, time.Second+10*time.Millisecond) }, Verdict{Jump: time.Second}, ""},
		"slewing":        {func(f *fake) { f.move(0, 0, 10*time.Millisecond) }, Verdict{}, ""},
		"stopped": {func(f *fake) {
			f.move(5250*time.Millisecond, 5250*time.Millisecond, 5250*time.Millisecond)
			f.beat()
		}, Verdict{Stalled: 5 * time.Second}, "the host or the harness stood still for 5.0 s"},
		"stopped until the end": {func(f *fake) { f.move(6*time.Second, 6*time.Second, 6*time.Second) }, Verdict{Stalled: 5750 * time.Millisecond}, "the host or the harness stood still for 5.8 s"},
		"late ticks": {func(f *fake) {
			for range 10 {
				f.move(time.Second, time.Second, time.Second)
				f.beat()
			}
		}, Verdict{Stalled: 750 * time.Millisecond}, ""},
		"out of memory": {func(f *fake) { f.pressure.Memory += rep / 2 }, Verdict{Pressure: &Pressure{Memory: rep / 2}}, "the whole host waited for memory for 50 % of 20.0 s"},
		"some memory":   {func(f *fake) { f.pressure.Memory += rep/2 - 1e6 }, Verdict{Pressure: &Pressure{Memory: rep/2 - 1e6}}, ""},
		"disk":          {func(f *fake) { f.pressure.IO += rep * 9 / 10 }, Verdict{Pressure: &Pressure{IO: rep * 9 / 10}}, "the whole host waited for disk for 90 % of 20.0 s"},
		"busy disk":     {func(f *fake) { f.pressure.IO += rep / 2 }, Verdict{Pressure: &Pressure{IO: rep / 2}}, ""},
		"busy":          {func(f *fake) { f.pressure.CPU += rep }, Verdict{Pressure: &Pressure{CPU: rep}}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			f := newFake()
			w := f.start(t)
			f.pass(rep)
			c.happens(f)
			got := stop(t, w)
			if why, bad := got.Infrastructure(); why != c.why || bad != (c.why != "") {
				t.Errorf("%q, %v, want %q", why, bad, c.why)
			}
			if got.Elapsed < rep {
				t.Errorf("elapsed %v", got.Elapsed)
			}
			got.Elapsed = 0
			if c.want.Pressure == nil {
				c.want.Pressure = &Pressure{}
			}
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestShortRepAndNoPressure(t *testing.T) {
	f := newFake()
	w := f.start(t)
	f.pass(9 * time.Second)
	f.pressure.Memory += 9 * time.Second
	if why, bad := stop(t, w).Infrastructure(); bad {
		t.Error(why)
	}
	f.blind = true
	w = f.start(t)
	f.pass(time.Minute)
	f.blind = false // one reading is no difference
	v := stop(t, w)
	if why, bad := v.Infrastructure(); bad || v.Pressure != nil {
		t.Error(why, v.Pressure)
	}
}

// TestMany: watches share a ticker and not their verdicts.
func TestMany(t *testing.T) {
	f := newFake()
	before := f.start(t)
	f.pass(time.Second)
	ended := stop(t, f.start(t)) // the first goes on
	long := 10 * time.Second
	f.move(long, long, long)
	during := f.start(t) // after the stall, before its tick
	f.beat()
	f.pass(time.Second)
	if v := stop(t, during); v.Stalled != 0 || v.Elapsed != time.Second {
		t.Errorf("began after the stall: %+v", v)
	}
	if f.done == nil {
		t.Error("the ticker ended before the last watch")
	}
	if v := stop(t, before); v.Stalled != long-DefaultPeriod {
		t.Errorf("saw the stall: %+v", v)
	}
	if ended.Stalled != 0 || ended.Elapsed != 0 {
		t.Errorf("ended before: %+v", ended)
	}
	<-f.stopped // no goroutine stays
	f.pass(0)
	f.move(long, long, long) // nobody watches
	w := f.start(t)
	f.ticks <- time.Time{} // the second run reads them
	if v := stop(t, w); v.Stalled != 0 {
		t.Errorf("of the time before it: %+v", v)
	}
	<-f.stopped
}

// TestParallel is for the race detector.
func TestParallel(t *testing.T) {
	h := &Host{Period: time.Microsecond}
	var group sync.WaitGroup
	for range 20 {
		group.Go(func() {
			for range 50 {
				w, err := h.Start()
				if err != nil {
					t.Error(err)
					return
				}
				if v, err := w.Stop(); err != nil || v.Suspended >= MaxSuspended {
					t.Error(v, err)
				}
			}
		})
	}
	group.Wait()
	if len(h.watches) != 0 || h.done != nil {
		t.Error("a watch stayed")
	}
}

func TestClockErrors(t *testing.T) {
	f := newFake()
	w := f.start(t)
	f.err = errors.New("no clock")
	f.beat()
	if _, err := w.Stop(); !errors.Is(err, f.err) {
		t.Error(err)
	}
	<-f.stopped
	if _, err := f.Start(); !errors.Is(err, f.err) {
		t.Error(err)
	}
}

func TestReadPressure(t *testing.T) {
	folder := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(folder, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("memory", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=1\n")
	put("io", "some avg10=0.00 avg60=0.00 avg300=0.00 total=9\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=2\n")
	if p, ok := readPressure(folder); ok {
		t.Error("without cpu:", p)
	}
	put("cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=3\n") // before Linux 5.13 it had no full
	want := Pressure{Memory: time.Microsecond, IO: 2 * time.Microsecond, CPU: 3 * time.Microsecond}
	if p, ok := readPressure(folder); !ok || p != want {
		t.Errorf("%+v %v", p, ok)
	}
	for _, text := range []string{"", "some total=1\n", "full avg10=0.00\n", "full total=x\n"} {
		put("io", text)
		if p, ok := readPressure(folder); ok || p != (Pressure{}) {
			t.Errorf("%q: %+v", text, p)
		}
	}
}

func TestRealClocks(t *testing.T) {
	a, err := readClocks()
	if err != nil {
		t.Fatal(err)
	}
	b, err := readClocks()
	if err != nil {
		t.Fatal(err)
	}
	if a.Awake <= 0 || b.Awake < a.Awake || b.Boot < a.Boot || a.Boot < a.Awake || strings.HasPrefix(time.Unix(0, int64(a.Wall)).Format(time.RFC3339), "1970") {
		t.Errorf("%+v, then %+v", a, b)
	}
}

func BenchmarkTick200(b *testing.B) {
	h := &Host{Period: time.Hour}
	for range 200 {
		w, err := h.Start()
		if err != nil {
			b.Fatal(err)
		}
		defer w.Stop()
	}
	for b.Loop() {
		h.tick(h.done)
	}
}
