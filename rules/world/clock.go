package world

import "time"

// lead is how long before the world's "now" a scenario starts, in seconds, so
// that the window and what follows it are still in the past at "now".
const lead = 20 * 60

// tick is what a write takes, in seconds.
const tick = 1

// A clock is the virtual time in Unix seconds. It moves only when it is told to.
type clock struct{ now int64 }

func (c *clock) set(t int64) { c.now = t }
func (c *clock) tick()       { c.now += tick }

// rfc3339 is t in UTC, to the second.
func rfc3339(t int64) string { return time.Unix(t, 0).UTC().Format(time.RFC3339) }

// maxTime is the last second of the year 9999, the last that RFC 3339 can write.
const maxTime = 253402300799
