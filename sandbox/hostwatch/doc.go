// Package hostwatch notices that the host was suspended, stood still or
// choked while a rep ran, so that the rep's timing says nothing about the rep.
//
//	Start ── clocks, pressure ─┐
//	tick, tick,     tick       ├─ Verdict ── Infrastructure: why, bad
//	Stop  ── clocks, pressure ─┘
//
// Vocabulary. A Host is the machine, and has one ticker for all of its watches
// together. A Watch is one rep's. Four causes are told apart:
//
//   - suspended: the clock that counts sleep ran ahead of the one that does not;
//   - jump: the wall clock moved against both, by more than the slewing that
//     keeps clocks right;
//   - stall: our own ticker came late while the clocks ran on, because the
//     harness was stopped (SIGSTOP, ^Z) or the virtual machine paused;
//   - pressure: all tasks of the host waited for memory or disk at once.
//
// Invariants:
//   - The verdict holds figures, Infrastructure judges them, and nothing else
//     does: recorded figures can be judged again.
//   - Processors in demand are no cause. Slow reps are what --jobs asks for, and
//     the share is in the verdict for who wants to know.
//   - One goroutine that wakes every Period, however many watches there are;
//     none when there is no watch.
//
// What it can't tell: whose fault pressure is. A rep that thrashes within its
// own memory limit makes the host's figures too, and must not get another try
// for it: who judges asks first whether the rep hit a limit of its own. A stall
// of some processors only, or of a cgroup that the harness is not in, is not
// seen. A paused virtual machine whose clocks stop with it shows only when the
// wall clock is put right.
//
// Linux has all four. macOS has no pressure figures; its clocks are
// CLOCK_MONOTONIC, which counts sleep, and CLOCK_UPTIME_RAW, which does not. That
// was compiled, and not run on a Mac.
package hostwatch
