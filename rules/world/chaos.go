package world

import sl "go.starlark.net/starlark"

// Modes of chaos. What each does is in Act.exchange and Recording.ServeHTTP.
const (
	modeLostResponse   = "lost_response"   // committed, then cut without a reply
	modePhantomSuccess = "phantom_success" // rolled back, and the reply is sent
	modeError          = "error"           // nothing executed; a reply with the rule's status
	modeUnreachable    = "unreachable"     // nothing executed; cut
	modeBefore         = "before"          // another actor first
	modeRewrite        = "rewrite"         // another body in a reply that is no error
	modeStaleRead      = "stale_read"      // of the extractor: the events of the start
)

// A rule says which calls something happens to.
type rule struct {
	system    string // "": of every system
	operation string // a declared pattern; "": every operation
	nth       int    // of the calls that match, from 1; 0: every one
	mode      string
	status    int         // of error
	fn        sl.Callable // of before and rewrite
}

// A plan is what happens to one call.
type plan struct {
	failure *rule // the first that fires of those that aren't before or rewrite
	before  []sl.Callable
	rewrite []sl.Callable
}

// A chaos counts the calls of one client. Each rule counts the calls that it
// matches, whether or not another one fires.
type chaos struct {
	rules []*rule
	seen  []int
}

func newChaos(rules []*rule) *chaos { return &chaos{rules, make([]int, len(rules))} }

// next counts one call and says what happens to it.
func (c *chaos) next(system, operation string) plan {
	var p plan
	for i, r := range c.rules {
		if r.system != "" && r.system != system || r.operation != "" && r.operation != operation {
			continue
		}
		c.seen[i]++
		if r.nth != 0 && r.nth != c.seen[i] {
			continue
		}
		switch {
		case r.mode == modeBefore:
			p.before = append(p.before, r.fn)
		case r.mode == modeRewrite:
			p.rewrite = append(p.rewrite, r.fn)
		case p.failure == nil:
			p.failure = r
		}
	}
	return p
}

// fails says whether the call fails in that way.
func (p plan) fails(mode string) bool { return p.failure != nil && p.failure.mode == mode }
