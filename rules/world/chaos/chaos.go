// Package chaos says what goes wrong for a client of a world: rules that count
// its calls, and fire on some of them.
//
// The package plans and doesn't act: what a mode does to a call is with the
// servers, world.Act for agents and recording.Recording for the extractor.
package chaos

import (
	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
)

// Modes.
const (
	LostResponse   = "lost_response"   // committed, then cut without a reply
	PhantomSuccess = "phantom_success" // rolled back, and the reply is sent
	Error          = "error"           // nothing executed; a reply with the rule's status
	Unreachable    = "unreachable"     // nothing executed; cut
	Before         = "before"          // another actor first
	Rewrite        = "rewrite"         // another body in a reply that is no error
	StaleRead      = "stale_read"      // of the extractor: the events of the start
)

// A Rule says which calls something happens to.
type Rule struct {
	System    string // "": of every system
	Operation string // a declared pattern; "": every operation
	Nth       int    // of the calls that match, from 1; 0: every one
	Mode      string
	Status    int         // of Error
	Fn        sl.Callable // of Before and Rewrite
}

// ReadWhen reads what the rules of all clients have in common: nth, mode and
// status. modes are those that the client has.
func (r *Rule) ReadWhen(s shape.Value, modes ...string) {
	if n := s.At("nth"); !n.None() {
		r.Nth = int(n.Number(1, 1_000_000))
	}
	r.Mode = s.At("mode").OneOf(modes...)
	if st := s.At("status"); r.Mode == Error {
		r.Status = int(st.Number(400, 599))
	}
}

// A Plan is what happens to one call.
type Plan struct {
	Failure *Rule // the first that fires of those that aren't Before or Rewrite
	Before  []sl.Callable
	Rewrite []sl.Callable
}

// Fails says whether the call fails in that way.
func (p Plan) Fails(mode string) bool { return p.Failure != nil && p.Failure.Mode == mode }

// A Counter counts the calls of one client. Each rule counts the calls that it
// matches, whether or not another one fires. Its user sees to it that one call is
// counted at a time.
type Counter struct {
	rules []*Rule
	seen  []int
}

// NewCounter makes a counter that has seen no call.
func NewCounter(rules []*Rule) *Counter { return &Counter{rules, make([]int, len(rules))} }

// Next counts one call and says what happens to it.
func (c *Counter) Next(system, operation string) Plan {
	var p Plan
	for i, r := range c.rules {
		if r.System != "" && r.System != system || r.Operation != "" && r.Operation != operation {
			continue
		}
		c.seen[i]++
		if r.Nth != 0 && r.Nth != c.seen[i] {
			continue
		}
		switch {
		case r.Mode == Before:
			p.Before = append(p.Before, r.Fn)
		case r.Mode == Rewrite:
			p.Rewrite = append(p.Rewrite, r.Fn)
		case p.Failure == nil:
			p.Failure = r
		}
	}
	return p
}
