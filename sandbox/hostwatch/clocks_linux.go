package hostwatch

import "golang.org/x/sys/unix"

const (
	clockAwake = unix.CLOCK_MONOTONIC
	clockBoot  = unix.CLOCK_BOOTTIME
)
