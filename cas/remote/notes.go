package remote

import (
	"errors"
	"fmt"
	"maps"
	"strings"
	"sync"
)

// Stats counts what a Cache has done.
type Stats struct {
	Found    int   // results that the server had
	Fetched  int   // of which the blobs were brought into the store
	Sent     int   // results
	Surplus  int   // captures under whose key another one is
	Down, Up int64 // bytes of blobs and results, as they are uncompressed
	// NotSent counts results by why they were not: "received", "known" ...
	NotSent map[string]int
}

// Why a result isn't sent.
const (
	notReceived    = "received"         // it came from a server
	notKnown       = "known"            // the server has it, by a receipt or a better signature
	notWhole       = "not whole"        // the store doesn't have all of it
	notTooLarge    = "too large"        // for a message
	notPossible    = "not possible"     // an output's name is taken
	notRefused     = "refused"          // by the server
	notUnavailable = "unavailable"      // the server is
	notDenied      = "denied"           // writing is
	notFull        = "full"             // the server is
	notReadOnly    = "read-only server" // it says so itself
	notClosed      = "closed"           // the cache was, before its turn came
)

// trouble is a kind of it, told once.
type trouble uint8

const (
	troubleOutage   trouble = iota + 1 // the server fails
	troubleRead                        // a read failed in a way of its own
	troubleWrite                       // uploads ended
	troubleRefused                     // an upload was refused
	troubleLarge                       // a result is too large
	troubleName                        // an output can't be named there
	troubleEntry                       // an entry can't be right
	troubleForeign                     // an entry isn't ours
	troubleUnsigned                    // an entry isn't signed by a trusted builder
	troubleEvicted                     // a blob is gone
	troubleWrong                       // a blob is wrong
)

type notes struct {
	mu    sync.Mutex
	stats Stats
	told  map[trouble]bool
}

// count changes the numbers.
func (c *Cache) count(change func(*Stats)) {
	c.notes.mu.Lock()
	defer c.notes.mu.Unlock()
	if c.notes.stats.NotSent == nil {
		c.notes.stats.NotSent = map[string]int{}
	}
	change(&c.notes.stats)
}

func (c *Cache) notSent(why string, n int) {
	if n > 0 {
		c.count(func(s *Stats) { s.NotSent[why] += n })
	}
}

// Stats gives the numbers up to now.
func (c *Cache) Stats() Stats {
	var s Stats
	c.count(func(now *Stats) {
		s = *now
		s.NotSent = maps.Clone(now.NotSent)
	})
	return s
}

// warn tells the first trouble of a kind.
func (c *Cache) warn(kind trouble, format string, args ...any) {
	c.notes.mu.Lock()
	told := c.notes.told[kind]
	if c.notes.told == nil {
		c.notes.told = map[trouble]bool{}
	}
	c.notes.told[kind] = true
	c.notes.mu.Unlock()
	if !told && c.o.Warn != nil {
		text := strings.Replace(fmt.Sprintf(format, args...), "ask "+c.name+": ", "", 1)
		c.o.Warn("remote cache " + c.name + ": " + text)
	}
}

// outage is called when the breaker opens. With Required the callers' errors
// say the same.
func (c *Cache) outage(cause error) {
	if !c.o.Required {
		c.warn(troubleOutage, "%v; the build goes on without it", cause)
	}
}

// failing tells a failure that didn't open the breaker. If it opens later, that
// is no news.
func (c *Cache) failing(err error) {
	if !c.o.Required && c.ctx.Err() == nil && !errors.Is(err, errOpen) {
		c.warn(troubleOutage, "%v; the build goes on without what it doesn't give or take", err)
	}
}
