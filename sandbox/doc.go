// Package sandbox runs one process under a seal and records what it enforced.
//
//	graph.Policy ──compile──▶ Program ──link──▶ rows ──trampoline──▶ PID 1 ──go──▶ target
//	      │                      │                                     │
//	      └──────────┬───────────┘                             probes, /proc read
//	                 ▼                                                 ▼
//	              Record {policy, facts, program digest, layers, limits}
//
// Vocabulary. A Policy says what a process may see and use. A Program is the
// table of system calls that a Policy compiles to for a set of Facts (of the
// kernel and the machine): a pure function of both, so that anyone can compile
// it again from a Record. Linking puts addresses and descriptors in. The
// trampoline executes the linked table in a child that shares our memory; its
// last row executes PID 1, a program of some hundred instructions of our own,
// which probes the seal from inside, reports, waits for the word to go, runs
// the target, reaps, and ends everything that is left.
//
// Default-deny: what a Spec doesn't name isn't there. Nothing falls back: a
// seal that can't be had is an *UnavailableError, a row that fails is a
// *SetupError, and the target doesn't run.
//
// Not here: keys and caching (workspace/engine), what a rep is, judging what a
// process did.
package sandbox
