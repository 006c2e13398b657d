//go:build !linux

package workspace

import (
	"os"
	"testing"
)

func unprivileged(t *testing.T, f func()) {
	t.Helper()
	if os.Getuid() == 0 {
		t.Skip("root may read everything, and only Linux lets one thread do without")
	}
	f()
}
