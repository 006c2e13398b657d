// Package agent is the scripted and the replayed agent of a scenario.
//
// A scripted agent is a Starlark function that makes calls, under a profile: what
// an agent does when a call fails, and what it claims in the end. The same
// script under another profile is another agent; that is how a matrix separates
// a world's failures from an agent's reaction to them.
//
//	agent.star: script(task, call), profile, task, request
//	                 │
//	                 v
//	      run ── call ── profile ── wire.Client ──> world
//	                                   ^    │
//	      replay ── recorded calls ────┘    └─> replies: to the script, or compared
//
// A call fails if its reply has a status of 400 or more, or was lost (status 0).
// A script that raises a Starlark error or passes its step limit is a fault of
// the definition: no report is sent and the process fails, so that it is never
// taken for an agent that gave up. An agent sees operations, never events.
//
// A replay sends the calls of a recorded run again, in order, with their keys
// and bodies, and says which replies differ. It judges nothing.
package agent
