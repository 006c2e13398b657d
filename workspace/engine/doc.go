// Package engine plans and runs a build: which actions the targets need, which
// of them have a result already, and the rest.
//
//	           all inputs known            result found
//	waiting ──────────────────▶ checking ───────────────▶ done
//	   ▲                           │ miss                   ▲
//	   │ an input was damaged      ▼                        │
//	   └──────────────────────  running ────────────────────┘
//	                               │ error
//	 an input failed               ▼
//	waiting ──────▶ skipped      failed        (plan: miss ──▶ stale)
//
// One goroutine owns all decisions and makes every transition; workers look
// up, run and store, and report back. A key depends on the content of inputs,
// so an action that ran again and gave the same bytes stops the wave there.
//
// Invariants. No action runs twice for one key, in this process or in another
// on the same store. A failed action stores nothing. What has finished is
// kept, whatever happens after.
//
// A run is an action whose work is a process: its inputs are staged as plain
// files, a Runner runs it under its seal, and what it did is judged here. One
// that can't have its seal fails alone; what needs no process is built.
//
// It does not know what targets mean, prints nothing, and never exits.
package engine
