package statcache

import (
	"testing"
	"time"
)

// TestAged pins the window: 2 s from the later of mtime and ctime.
func TestAged(t *testing.T) {
	const s = int64(time.Second)
	for _, c := range []struct {
		mtime, ctime, at int64
		want             bool
	}{
		{0, 0, 2*s + 1, true},
		{0, 0, 2 * s, false},
		{s, 0, 2*s + 1, false},
		{0, s, 2*s + 1, false},
		{9 * s, 0, 2*s + 1, false},
	} {
		if got := Aged(c.mtime, c.ctime, c.at); got != c.want {
			t.Errorf("%+v: %v", c, got)
		}
	}
}
