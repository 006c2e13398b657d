package pid1

import (
	"encoding/binary"
	"fmt"
	"time"
)

// Descriptors that PID 1 expects besides 0, 1 and 2, which are the target's.
const (
	DeathFD   = 3 // read end of the death pipe
	ControlFD = 4 // unix stream socket to the harness
)

// Go is the byte that lets the target start.
const Go = 'g'

// Exit codes of PID 1. They mean nothing for the target, whose status is in
// the End.
const (
	ExitDone   = 0  // the End has been sent
	ExitBroken = 97 // a call that PID 1 needs failed: a fault of the seal
	ExitDeath  = 98 // the death pipe closed while the target ran
	ExitNoGo   = 99 // the death pipe or the control socket closed before Go, or another byte came
)

// What the target's leavings get.
const (
	Grace     = 50 * time.Millisecond // to end by themselves
	KillLimit = 2 * time.Second       // to be gone after SIGKILL
)

// Sizes of the two messages, each sent by one write.
const (
	HelloSize = 8 + 8*len(Probes)
	EndSize   = 20
)

var (
	helloMagic = binary.LittleEndian.Uint32([]byte("ev1h"))
	endMagic   = binary.LittleEndian.Uint32([]byte("ev1e"))
)

// Offsets in an End.
const (
	endExecErrno = 4
	endStatus    = 8
	endSurvivors = 12
	endReaped    = 16
)

// DecodeHello returns the raw results of Probes, in their order.
func DecodeHello(b []byte) ([]int64, error) {
	if len(b) != HelloSize {
		return nil, fmt.Errorf("pid1 hello: %d bytes, want %d", len(b), HelloSize)
	}
	if m := binary.LittleEndian.Uint32(b); m != helloMagic {
		return nil, fmt.Errorf("pid1 hello: magic %#x", m)
	}
	if n := binary.LittleEndian.Uint32(b[4:]); n != uint32(len(Probes)) {
		return nil, fmt.Errorf("pid1 hello: %d probes, want %d", n, len(Probes))
	}
	raw := make([]int64, len(Probes))
	for i := range raw {
		raw[i] = int64(binary.LittleEndian.Uint64(b[8+8*i:]))
	}
	return raw, nil
}

// An End says how the target and its leavings ended.
type End struct {
	// ExecErrno is not 0 if the target could not be started: what clone or
	// execve said. WaitStatus is then that of exit code 127.
	ExecErrno int32
	// WaitStatus is the raw status of the target, as wait4 gives it, so that
	// exit code 137 and SIGKILL are different.
	WaitStatus int32
	// Survivors is how many processes had to be killed after the grace. One
	// is added if not all were gone after KillLimit.
	Survivors int32
	// Reaped is how many processes PID 1 waited for, the target among them: no
	// record has it, but with it tests see that no zombie was left.
	Reaped uint32
}

// DecodeEnd decodes the last message.
func DecodeEnd(b []byte) (End, error) {
	le := binary.LittleEndian
	if len(b) != EndSize {
		return End{}, fmt.Errorf("pid1 end: %d bytes, want %d", len(b), EndSize)
	}
	if m := le.Uint32(b); m != endMagic {
		return End{}, fmt.Errorf("pid1 end: magic %#x", m)
	}
	return End{
		ExecErrno:  int32(le.Uint32(b[endExecErrno:])),
		WaitStatus: int32(le.Uint32(b[endStatus:])),
		Survivors:  int32(le.Uint32(b[endSurvivors:])),
		Reaped:     le.Uint32(b[endReaped:]),
	}, nil
}
