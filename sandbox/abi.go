package sandbox

import "encoding/binary"

// Constants and structs of Linux's kernel interface that a program is made of:
// our own copies, since programs are compiled again on other systems too.
// Names are the kernel's.
const (
	cloneNewNS     = 0x00020000
	cloneNewCgroup = 0x02000000
	cloneNewUTS    = 0x04000000
	cloneNewIPC    = 0x08000000
	cloneNewUser   = 0x10000000
	cloneNewPID    = 0x20000000
	cloneNewNet    = 0x40000000

	atCwd            = -100
	atSymlinkNofolow = 0x100
	atNoAutomount    = 0x800
	atEmptyPath      = 0x1000
	atRecursive      = 0x8000

	openWrite     = 0x1
	openCreate    = 0x40
	openExclusive = 0x80
	openCloexec   = 0x80000
	openPath      = 0x200000

	msNosuid  = 0x2
	msNodev   = 0x4
	msNoexec  = 0x8
	msBind    = 0x1000
	msRec     = 0x4000
	msPrivate = 0x40000

	openTreeClone      = 1
	moveMountEmptyPath = 4
	mountAttrReadonly  = 1
	mountAttrNosuid    = 2
	mountAttrNodev     = 4
	mountAttrNoexec    = 8
	umountDetach       = 2
	statxIno           = 0x100
	fileRegular        = 0x8000

	rlimitData       = 2
	rlimitStack      = 3
	rlimitCore       = 4
	rlimitNproc      = 6
	rlimitNofile     = 7
	rlimitMemlock    = 8
	rlimitSigpending = 11
	rlimitMsgqueue   = 12
	rlimitNice       = 13
	rlimitRtprio     = 14
	rlimitFsize      = 1

	prCapbsetDrop     = 24
	prSetNoNewPrivs   = 38
	prCapAmbient      = 47
	prAmbientClearAll = 4
	capLast           = 40 // CAP_CHECKPOINT_RESTORE, Linux 5.9

	afInet       = 2
	sockStream   = 1
	sockDgram    = 2
	sockNonblock = 0x800
	sockCloexec  = 0x80000
	siocsifflags = 0x8914

	seccompSetModeFilter = 1
	landlockPathBeneath  = 1
	landlockNetPort      = 2
)

// rlimit is a struct rlimit64 with both limits at n.
func rlimit(n int64) Operand {
	b := binary.LittleEndian.AppendUint64(nil, uint64(n))
	return blob(binary.LittleEndian.AppendUint64(b, uint64(n)))
}

// mountAttr is a struct mount_attr that sets flags.
func mountAttr(set uint64) Operand {
	return blob(append(binary.LittleEndian.AppendUint64(nil, set), make([]byte, 24)...))
}

// loopbackUp is a struct ifreq that raises lo; the kernel then gives it
// 127.0.0.1 by itself.
func loopbackUp() Operand {
	b := make([]byte, 40)
	copy(b, "lo")
	b[16] = 0x1 | 0x40 // IFF_UP | IFF_RUNNING
	return blob(b)
}

// loopback is a struct sockaddr_in of 127.0.0.1 and a port.
func loopback(port uint16) Operand {
	b := make([]byte, 16)
	b[0] = afInet
	binary.BigEndian.PutUint16(b[2:], port)
	copy(b[4:], []byte{127, 0, 0, 1})
	return blob(b)
}
