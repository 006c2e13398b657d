package hostwatch

import (
	"fmt"
	"time"
)

// What a rep may see of its host before its timing is worth nothing.
const (
	// MaxSuspended: connections time out and deadlines pass in a sleep; there is
	// no short one, and less than this is two clocks read one after the other.
	MaxSuspended = time.Second
	// MaxJump: a time server that finds the clock wrong by 128 ms steps it. Up to
	// two seconds that moves a timestamp; beyond, somebody set the clock or a
	// paused machine caught up.
	MaxJump = 2 * time.Second
	// MaxStalled: sixteen busy processes on two cores delayed the ticker by
	// 200 ms. Servers give up on a proxy from 5 s on.
	MaxStalled = 5 * time.Second
	// MaxMemory: for half of the time nothing ran, since memory was being fetched.
	MaxMemory = 0.5
	// MaxIO is higher: one process of a rep that writes through to the disk made
	// 24 % on a fast disk, and makes most of the time on a slow one, by right.
	MaxIO = 0.9
	// MinPressure is the length of a rep from which shares count: a shorter one
	// may well wait for its own program to be read, and not much else.
	MinPressure = 10 * time.Second
)

// Verdict is what happened to the host during a watch.
type Verdict struct {
	Elapsed   time.Duration // with sleep
	Suspended time.Duration // in all
	Jump      time.Duration // of the wall clock, forward or back, beyond slewing
	Stalled   time.Duration // the longest one
	Pressure  *Pressure     // nil where the kernel has none
}

// Pressure is how long tasks have waited (Linux, Documentation/accounting/psi.rst):
// in a Verdict, during the watch.
type Pressure struct {
	Memory, IO time.Duration // all that were not idle, at once ("full")
	CPU        time.Duration // any of them ("some"); never judged
}

// Infrastructure says whether the host spoilt the rep, and why.
func (v Verdict) Infrastructure() (why string, bad bool) {
	switch {
	case v.Suspended >= MaxSuspended:
		return "the host was suspended for " + seconds(v.Suspended), true
	case v.Stalled >= MaxStalled:
		return "the host or the harness stood still for " + seconds(v.Stalled), true
	case v.Jump >= MaxJump:
		return "the wall clock jumped by " + seconds(v.Jump), true
	}
	if v.Pressure == nil || v.Elapsed < MinPressure {
		return "", false
	}
	for _, p := range []struct {
		what   string
		waited time.Duration
		most   float64
	}{
		{"memory", v.Pressure.Memory, MaxMemory},
		{"disk", v.Pressure.IO, MaxIO},
	} {
		if share := float64(p.waited) / float64(v.Elapsed); share >= p.most {
			return fmt.Sprintf("the whole host waited for %s for %.0f %% of %s", p.what, share*100, seconds(v.Elapsed)), true
		}
	}
	return "", false
}

func seconds(d time.Duration) string { return fmt.Sprintf("%.1f s", d.Seconds()) }
