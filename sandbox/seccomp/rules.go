package seccomp

// What the filter returns: SECCOMP_RET_*, with the errno in the low half.
const (
	retAllow = 0x7fff0000
	retErrno = 0x00050000
	retKill  = 0x80000000 // the process, not the thread: a thread's death is easily survived

	eperm           = 1
	enosys          = 38
	eprotonosupport = 93
	eafnosupport    = 97
)

// answers writes the ends that every program has.
func (a *asm) answers() {
	a.unknown = a.errno(enosys)
	a.killed = a.ret(retKill)
	a.denied = a.errno(eperm)
	a.allowed = a.ret(retAllow)
}

func (a *asm) errno(e uint32) label { return a.ret(retErrno | e) }

const (
	sIFMT   = 0xf000
	sIFIFO  = 0x1000
	sIFREG  = 0x8000
	sIFSOCK = 0xc000

	tiocsti   = 0x5412
	tioclinux = 0x541c
	tioccons  = 0x541d
	tiocsetd  = 0x5423

	// CLONE_NEWNS, CGROUP, UTS, IPC, USER, PID and NET. CLONE_NEWTIME is 0x80,
	// which for clone lies in the eight bits of the exit signal: only unshare and
	// clone3 take it.
	cloneNew = 0x20000 | 0x2000000 | 0x4000000 | 0x8000000 | 0x10000000 | 0x20000000 | 0x40000000

	prSetMM = 35

	perLinux        = 0
	addrNoRandomize = 0x40000
	personalityGet  = 0xffffffff

	// initPID is PID 1 of the seal, as those inside see it. It has the uid of all
	// of them, and for some calls that is all that counts.
	initPID = 1

	prioProcess = 0

	fSetlease    = 1024
	fNotify      = 1026
	fSetRWHint   = 1036
	fSetFileHint = 1038

	schedOther       = 0
	schedBatch       = 3
	schedIdle        = 5
	schedResetOnFork = 0x40000000

	afUnix, afInet, afInet6 = 1, 2, 10
	sockStream, sockDgram   = 1, 2
	sockTypeMask            = 0xf // above it SOCK_CLOEXEC and SOCK_NONBLOCK
	ipprotoTCP, ipprotoUDP  = 6, 17
)

// rule is where a verdict is answered: one of the common ends, or a block of its
// own that looks at arguments, which it writes. Each block says what the
// kernel's parameter is: a 32-bit one is read from its low half alone,
// since the kernel drops the rest, and so is a 16-bit one, masked. Values are
// the same on both architectures.
func (a *asm) rule(v verdict) label {
	yes, no := a.allowed, a.denied
	switch v {
	case allow:
		return a.allowed
	case deny:
		return a.denied
	case nosys:
		return a.unknown
	case kill:
		return a.killed

	case mknodMode: // umode_t mode: 16 bits
		return a.nodeType(1)
	case mknodatMode:
		return a.nodeType(2)

	case ioctlCommand: // unsigned int cmd
		// The first three put input into a terminal, or take the console's output;
		// the last loads a line discipline. There should be no terminal inside, so
		// this is the second lock (CVE-2017-5226).
		return a.load(low(1), a.oneOf([]uint32{tiocsti, tioclinux, tioccons, tiocsetd}, no, yes))

	case cloneFlags: // unsigned long flags
		// Kernels so far take the low half only. Should a later one find a meaning
		// for the upper, we will not have allowed it; no libc sets any of it.
		flags := a.load(low(0), a.jump(jumpAnyBit, cloneNew, no, yes))
		return a.load(high(0), a.jump(jumpEqual, 0, flags, no))

	case prctlOption: // int option
		// PR_SET_MM moves the borders of text, data and arguments, and the link to
		// the executable: a mask before /proc. What else there is touches only the
		// caller; a rep may make itself dumpable.
		return a.load(low(0), a.jump(jumpEqual, prSetMM, no, yes))

	case personalityValue: // unsigned int personality
		// Asking, Linux as it is, and without address randomisation (setarch -R,
		// the thread sanitizer). Others change what system calls mean: READ_IMPLIES_EXEC,
		// MMAP_PAGE_ZERO, old ABIs.
		return a.load(low(0), a.oneOf([]uint32{perLinux, addrNoRandomize, personalityGet}, yes, no))

	case notInit: // pid_t pid
		// PID 1 needs its limits and its share of a core to see the end of the rep:
		// without descriptors its poll failed, and in the idle class, beside a
		// hundred spinners, it took 12 s to die.
		return a.load(low(0), a.jump(jumpEqual, initPID, no, yes))

	case ownPriority: // int which, int who
		// A group or a user has PID 1 in it.
		process := a.load(low(1), a.jump(jumpEqual, initPID, no, yes))
		return a.load(low(0), a.jump(jumpEqual, prioProcess, process, no))

	case fcntlCommand: // unsigned int cmd
		// A lease on an input makes whoever opens it for writing wait for 45 s, if
		// the file is its own; hints about writing reach the host's inode.
		return a.load(low(1), a.oneOf([]uint32{fSetlease, fNotify, fSetRWHint, fSetFileHint}, no, yes))

	case schedulerClass: // pid_t pid, int policy
		// FIFO and RR could take a core from the other reps and from us. They need
		// a right that a sealed process lacks, or an RLIMIT_RTPRIO that audio set-ups
		// give every user.
		classes := a.oneOf([]uint32{schedOther, schedBatch, schedIdle}, yes, no)
		class := a.load(low(1), a.and(^uint32(schedResetOnFork), classes))
		return a.load(low(0), a.jump(jumpEqual, initPID, no, class))

	case socketDomain: // int family, int type, int protocol
		return a.socket()

	case socketpairDomain: // int family
		return a.load(low(0), a.jump(jumpEqual, afUnix, yes, a.errno(eafnosupport)))
	}
	panic("seccomp: verdict without a rule")
}

func (a *asm) nodeType(arg uint32) label {
	// Mode 0 is a regular file as well. Devices are EPERM, the whiteout 0:0 too.
	types := a.oneOf([]uint32{sIFIFO, sIFREG, sIFSOCK, 0}, a.allowed, a.denied)
	return a.load(low(arg), a.and(sIFMT, types))
}

// socket allows unix sockets of any type, streams over TCP and datagrams over
// UDP, in every seal: the network namespace and Landlock say where they may lead,
// and without a network "address family not supported" would help nobody to find
// out why (decision 8). All other families don't exist: vsock,
// which no network namespace contains, netlink (libc falls back), packet, alg,
// key, xdp, bluetooth, can, tipc and those to come.
//
// Types: the kernel makes a packet socket of AF_INET with SOCK_PACKET, so the
// type is a list too. Protocols: a datagram socket may be for ICMP echo, a
// stream for SCTP or MPTCP: much kernel, and of no use to a client of the proxy.
// EPROTONOSUPPORT is the answer on which Go gives up MPTCP.
func (a *asm) socket() label {
	noFamily := a.errno(eafnosupport)
	noProtocol := a.errno(eprotonosupport)
	udp := a.load(low(2), a.oneOf([]uint32{0, ipprotoUDP}, a.allowed, noProtocol))
	tcp := a.load(low(2), a.oneOf([]uint32{0, ipprotoTCP}, a.allowed, noProtocol))
	kind := a.jump(jumpEqual, sockStream, tcp, a.jump(jumpEqual, sockDgram, udp, a.denied))
	inet := a.load(low(1), a.and(sockTypeMask, kind))
	return a.load(low(0),
		a.jump(jumpEqual, afUnix, a.allowed, a.oneOf([]uint32{afInet, afInet6}, inet, noFamily)))
}
