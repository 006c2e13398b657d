// Package wire is what passes between a world and its clients: agents, replays
// and the extractor.
//
//	agent    ─┐                   ┌─ operations, /report
//	replay   ─┼─ Client ── HTTP ──┤
//	extractor─┘    │              └─ /{system}/events, /clock
//	               └ Reply        └ Answer: a reply, or a cut
//
// A lost reply is a fact about the world, so a Client keeps it apart from all
// else that can go wrong: a connection that the server cut is a Reply that was
// not delivered; a server that isn't there, or doesn't answer in time, is an
// error, and never becomes a score. One Do is one attempt, whatever happens.
//
// The package decides nothing: profiles, comparison and facts are its users'.
package wire
