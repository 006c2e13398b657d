// Package engine plans and runs a build: which actions the targets need, which
// of them have a result already, and the rest.
//
//	           all inputs known            result found
//	waiting ──────────────────▶ checking ───────────────▶ done
//	   ▲                         │     │ miss, and a        ▲ ▲
//	   │                         │     ▼ remote may have it │ │
//	   │                    miss │   asking ────────────────┘ │
//	   │ an input was            ▼     ▼ miss                 │
//	   └──────────────────────── running ─────────────────────┘
//	     damaged
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
// What tools are is in the key: by their lock, where one pins them, and else by
// what this machine has. A lock needs nothing of the machine before a process
// runs; then each thing it pins is bound from here if it is the same here, else
// from the store, and if it is nowhere that is a *DriftError. After the process
// all that it was given is looked at again.
//
// A remote cache is asked for what the store doesn't have: see Remote. What it
// has of a pure action may stay there until something here needs the bytes; if
// they are gone then, the action runs after all.
//
// It does not know what targets mean, prints nothing, and never exits.
package engine
