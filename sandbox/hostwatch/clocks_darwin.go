package hostwatch

import "golang.org/x/sys/unix"

// CLOCK_MONOTONIC goes on while a Mac sleeps, other than on Linux.
const (
	clockAwake = unix.CLOCK_UPTIME_RAW
	clockBoot  = unix.CLOCK_MONOTONIC
)
