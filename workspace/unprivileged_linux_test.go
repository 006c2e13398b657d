package workspace

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// unprivileged runs f so that permissions count, also for root: with the file
// system user of this one thread set to nobody.
func unprivileged(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		unix.Setfsuid(65534)
		defer unix.Setfsuid(0)
	}
	f()
}
