package hostwatch

import (
	"sync"
	"time"
)

// DefaultPeriod is how often a Host ticks: a wake-up of some microseconds, so
// 250 ms costs nothing and finds a stall to a twentieth of MaxStalled.
const DefaultPeriod = 250 * time.Millisecond

// slew is how far a wall clock that is being put right may run away from the
// others without a jump: 500 ppm is the kernel's limit for NTP.
const slew = 500e-6

// Clocks is one reading of the three clocks of a host. Only differences between
// two readings have a meaning.
type Clocks struct {
	Awake time.Duration // stands still while the host sleeps
	Boot  time.Duration // counts sleep
	Wall  time.Duration // since 1970, as it was set
}

// Host watches one machine. The zero Host is this one; the fields are for
// tests and are not changed after the first Start.
type Host struct {
	Period   time.Duration // 0 is DefaultPeriod
	Clocks   func() (Clocks, error)
	Pressure func() (Pressure, bool) // false where the kernel has none
	Ticker   func(period time.Duration) (ticks <-chan time.Time, stop func())

	mu      sync.Mutex
	watches map[*Watch]struct{}
	last    time.Duration // Awake at the last tick
	done    chan struct{} // closed to end the ticker
}

// Watch is the time of one rep, from Start to Stop.
type Watch struct {
	host     *Host
	clocks   Clocks
	pressure Pressure
	has      bool
	stalled  time.Duration // the longest gap so far, less the period
}

// Start begins a watch. An error means that the clocks can't be read.
func (h *Host) Start() (*Watch, error) {
	p, has := h.readPressure()
	h.mu.Lock()
	defer h.mu.Unlock()
	now, err := h.readClocks()
	if err != nil {
		return nil, err
	}
	w := &Watch{host: h, clocks: now, pressure: p, has: has}
	if len(h.watches) == 0 {
		h.watches = map[*Watch]struct{}{}
		h.done = make(chan struct{})
		ticks, stop := h.ticker()
		go h.run(ticks, stop, h.done)
	}
	h.watches[w] = struct{}{}
	return w, nil
}

// run ticks until the last watch is stopped. It has its own done: another run
// may have begun before it notices.
func (h *Host) run(ticks <-chan time.Time, stop func(), done chan struct{}) {
	defer stop()
	for {
		select {
		case <-done:
			return
		case <-ticks:
			h.tick(done)
		}
	}
}

func (h *Host) tick(done chan struct{}) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.done != done {
		return
	}
	if now, err := h.readClocks(); err == nil {
		for w := range h.watches {
			w.gap(now.Awake)
		}
		h.last = now.Awake
	}
}

// gap accounts for the time since the last tick, or since the watch began.
func (w *Watch) gap(now time.Duration) {
	since := max(w.host.last, w.clocks.Awake)
	w.stalled = max(w.stalled, now-since-w.host.period())
}

// Stop ends the watch, once, and says what happened meanwhile.
func (w *Watch) Stop() (Verdict, error) {
	h := w.host
	h.mu.Lock()
	now, err := h.readClocks()
	if err == nil {
		w.gap(now.Awake)
	}
	delete(h.watches, w)
	if len(h.watches) == 0 && h.done != nil {
		close(h.done)
		h.done = nil
	}
	h.mu.Unlock()
	if err != nil {
		return Verdict{}, err
	}
	v := w.verdict(now)
	if p, has := h.readPressure(); has && w.has {
		v.Pressure = &Pressure{Memory: p.Memory - w.pressure.Memory, IO: p.IO - w.pressure.IO, CPU: p.CPU - w.pressure.CPU}
	}
	return v, nil
}

func (w *Watch) verdict(now Clocks) Verdict {
	boot := now.Boot - w.clocks.Boot
	drift := (now.Wall - w.clocks.Wall - boot).Abs()
	return Verdict{
		Elapsed:   boot,
		Suspended: max(0, boot-(now.Awake-w.clocks.Awake)),
		Jump:      max(0, drift-time.Duration(float64(boot)*slew)),
		Stalled:   w.stalled,
	}
}

func (h *Host) period() time.Duration {
	if h.Period > 0 {
		return h.Period
	}
	return DefaultPeriod
}

func (h *Host) readClocks() (Clocks, error) {
	if h.Clocks != nil {
		return h.Clocks()
	}
	return readClocks()
}

func (h *Host) readPressure() (Pressure, bool) {
	if h.Pressure != nil {
		return h.Pressure()
	}
	return readPressure("/proc/pressure")
}

func (h *Host) ticker() (<-chan time.Time, func()) {
	if h.Ticker != nil {
		return h.Ticker(h.period())
	}
	t := time.NewTicker(h.period())
	return t.C, t.Stop
}
