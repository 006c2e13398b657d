// Package world runs simulated enterprises: systems with tables, operations and
// events, on which an agent acts under injected failures.
//
//	world.star ──┐
//	scenario.star┴─ Start ── seeds, prior runs ── instant "start"
//	                  │
//	   agent ── HTTP ─┤ chaos ── operation = one transaction ── clock + 1 s
//	                  │    └ log: what the agent asked and saw
//	                Finish ── "done", "settled", after_settlement, "after"
//	                  │
//	                  └─ run.jsonl  tables.json  events.json
//
// Vocabulary. A World is the definition: systems, tables, operations, seeds. A
// Scenario is what happens in it: request, chaos, prior runs. An Act is one run
// of a scenario, with its tables (SQLite, in memory). A call is one request of the
// agent, numbered in the order of execution. An instant is the state at a named
// moment. A fault is a mistake of the definition (an operation that fails, returns
// the wrong thing or takes too many steps): the first one ends the act, every
// later request is answered with 500, and nothing is written, so that a fault
// never becomes a score.
//
// An agent can't make a world fail: what it may send, log and add to the
// databases is bounded by bytes, and beyond that it is answered with an error. What
// is in the log can be sent again, and makes the same log.
//
// Invariants. Everything that touches the world goes through one lock, so the
// log's order is the order of execution whatever the number of clients. Time is
// virtual: no clock, randomness or environment of the host reaches an operation
// or an output, so the same calls in the same order give the same bytes. What an
// operation wrote, its events, its remembered reply and the numbers of the keys
// that it made are one transaction.
//
// The package opens no sockets and knows nothing of agents, contracts and
// oracles: it gives http.Handlers, and MCP goes through Act.Do.
package world
