package remotetest

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// waitStopped waits until no thread of a process that got SIGSTOP runs any more:
// the signal alone is only a wish, and the next answer can still come.
func waitStopped(pid int) error {
	for {
		err := unix.Waitid(unix.P_PID, pid, nil, unix.WSTOPPED|unix.WNOWAIT, nil)
		if err == nil {
			return nil
		}
		if err != unix.EINTR {
			return fmt.Errorf("wait for process %d to stop: %w", pid, err)
		}
	}
}

// SetFull makes every further write of the server to a file fail, its log
// included, as on a full disk, or lets them succeed again. A new process isn't
// full.
func (b *BazelRemote) SetFull(full bool) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.process == nil {
		return fmt.Errorf("limit bazel-remote: %w", os.ErrProcessDone)
	}
	// A limit of the process and no small file system: it needs no rights, and can
	// come in mid-build. Go programs take SIGXFSZ as nothing, and write gives EFBIG.
	// The hard limit stays, so that the soft one can rise again.
	limit := unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}
	if err := unix.Prlimit(b.process.Pid, unix.RLIMIT_FSIZE, nil, &limit); err != nil {
		return fmt.Errorf("limit bazel-remote: %w", err)
	}
	limit.Cur = limit.Max
	if full {
		limit.Cur = 0
	}
	if err := unix.Prlimit(b.process.Pid, unix.RLIMIT_FSIZE, &limit, nil); err != nil {
		return fmt.Errorf("limit bazel-remote: %w", err)
	}
	return nil
}
