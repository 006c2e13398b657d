package graph

import (
	"fmt"
	"strconv"
	"time"
)

// Named gives a limit by its name in a seal, as a seal writes it: "1GiB",
// "120s". An unknown name gives "".
func (l *Limits) Named(name string) string {
	switch name {
	case "memory":
		return sizeText(l.Memory)
	case "scratch":
		return sizeText(l.Scratch)
	case "output":
		return sizeText(l.Output)
	case "processes":
		return strconv.FormatInt(l.Processes, 10)
	case "wall":
		if l.Wall%time.Second == 0 {
			return fmt.Sprintf("%ds", l.Wall/time.Second)
		}
		return l.Wall.String()
	}
	return ""
}

// Value gives a limit by its name: bytes, a number, or nanoseconds.
func (l *Limits) Value(name string) int64 {
	switch name {
	case "memory":
		return l.Memory
	case "scratch":
		return l.Scratch
	case "output":
		return l.Output
	case "processes":
		return l.Processes
	case "wall":
		return int64(l.Wall)
	}
	return 0
}

// LimitNames are the names of all limits.
var LimitNames = []string{"memory", "processes", "wall", "scratch", "output"}

// sizeText writes a number of bytes in the largest unit that divides it.
func sizeText(n int64) string {
	for _, u := range []struct {
		name string
		size int64
	}{{"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}} {
		if n >= u.size && n%u.size == 0 {
			return strconv.FormatInt(n/u.size, 10) + u.name
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
