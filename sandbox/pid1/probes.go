package pid1

import "slices"

// A Probe is one call that PID 1 makes inside the seal. Each is harmless if
// it succeeds, as it does without a seal.
type Probe struct {
	Name  string  // the call as one would write it
	Layer string  // what refuses it
	Want  []int64 // raw results that show the layer: negative errnos or values
	// emit puts the call into the program and leaves the raw result in rA.
	emit func(*program)
}

// Holds says whether raw is what a seal gives.
func (p Probe) Holds(raw int64) bool { return slices.Contains(p.Want, raw) }

// Constants of the kernel, the same on both architectures.
const (
	prSetDumpable   = 4
	prGetSeccomp    = 21
	prCapbsetRead   = 23
	prGetNoNewPrivs = 39
	ptraceSeize     = 0x4206
	capSysAdmin     = 21
	rlimitCore      = 4

	atFDCWD     = -100
	atRemoveDir = 0x200
	oRdwr       = 0x2
	oNoctty     = 0x100
	oNonblock   = 0x800
	oCloexec    = 0x80000
	oPath       = 0x200000

	afInet      = 2
	afVsock     = 40
	sockStream  = 1
	sockDgram   = 2
	sockCloexec = 0x80000

	ePERM         = -1
	eNOENT        = -2
	eNXIO         = -6
	eBADF         = -9
	eACCES        = -13
	eINVAL        = -22
	eROFS         = -30
	eNOSYS        = -38
	eAFNOSUPPORT  = -97
	eNETUNREACH   = -101
	eINTR         = -4
	fGetfd        = 1
	fSetfd        = 2
	fdCloexec     = 1
	firstUnusedFD = 6
)

// Probes are made in this order; the hello has one result for each.
var Probes = [...]Probe{
	{"io_uring_setup(0, NULL)", "seccomp", []int64{eNOSYS}, plain("io_uring_setup", 0, 0)},
	{"ptrace(PTRACE_SEIZE, 0)", "seccomp", []int64{ePERM}, plain("ptrace", ptraceSeize, 0, 0, 0)},
	{"socket(AF_VSOCK, SOCK_STREAM)", "seccomp", []int64{eAFNOSUPPORT}, descriptor("socket", afVsock, sockStream|sockCloexec, 0)},
	{"clone3(NULL, 0)", "seccomp", []int64{eNOSYS}, plain("clone3", 0, 0)},
	{"prctl(PR_GET_SECCOMP)", "seccomp", []int64{2}, plain("prctl", prGetSeccomp, 0, 0, 0, 0)},
	{"prctl(PR_GET_NO_NEW_PRIVS)", "caps", []int64{1}, plain("prctl", prGetNoNewPrivs, 0, 0, 0, 0)},
	{"prctl(PR_CAPBSET_READ, CAP_SYS_ADMIN)", "caps", []int64{0}, plain("prctl", prCapbsetRead, capSysAdmin, 0, 0, 0)},
	// Root without user namespaces has uid 0 beside its own: EPERM. Else 0
	// isn't mapped.
	{"setresuid(0, 0, 0)", "user", []int64{eINVAL, ePERM}, plain("setresuid", 0, 0, 0)},
	{"getpid()", "pid", []int64{1}, plain("getpid")},
	{"getppid()", "pid", []int64{0}, plain("getppid")},
	// PID 1 may use its own memory; that it can't open the file shows that it
	// isn't dumpable, for then the file belongs to root.
	{`openat("/proc/1/mem", O_RDWR)`, "pid", []int64{eACCES}, open("/proc/1/mem", oRdwr)},
	{`openat("/proc/sys", O_PATH)`, "proc", []int64{eNOENT}, open("/proc/sys", oPath)},
	{`mkdirat("/.probe", 0700)`, "root", []int64{eROFS}, makeDir("/.probe")},
	{`openat("/sys", O_PATH)`, "root", []int64{eNOENT}, open("/sys", oPath)},
	{`openat("/old", O_PATH)`, "root", []int64{eNOENT}, open("/old", oPath)},
	{`openat("/.seal", O_RDONLY)`, "landlock", []int64{eACCES}, open("/.seal", 0)},
	{`openat("/dev/kmsg", O_RDONLY)`, "dev", []int64{eNOENT}, open("/dev/kmsg", oNonblock)},
	// Without a terminal of the session the device says ENXIO, if it is there.
	{`openat("/dev/tty", O_RDWR)`, "session", []int64{eNOENT, eNXIO}, open("/dev/tty", oRdwr|oNoctty|oNonblock)},
	{"connect(udp, 192.0.2.1:9)", "net", []int64{eNETUNREACH}, connectUDP},
	{"prlimit64(RLIMIT_CORE, 2)", "limits", []int64{ePERM}, raiseCore},
	{"fcntl(6, F_GETFD)", "fds", []int64{eBADF}, plain("fcntl", firstUnusedFD, fGetfd, 0)},
}

// plain is a call that makes nothing.
func plain(name string, args ...imm) func(*program) {
	return func(p *program) { p.call(name, operands(args)...) }
}

// descriptor is a call whose success is a descriptor, to be closed.
func descriptor(name string, args ...imm) func(*program) {
	return func(p *program) {
		p.call(name, operands(args)...)
		p.closeKeeping()
	}
}

// open tries to open a file.
func open(path string, flags imm) func(*program) {
	return func(p *program) {
		p.call("openat", imm(atFDCWD), p.text(path), flags|oCloexec, imm(0))
		p.closeKeeping()
	}
}

// makeDir tries to make a folder, and removes it.
func makeDir(path string) func(*program) {
	return func(p *program) {
		name := p.text(path)
		p.call("mkdirat", imm(atFDCWD), name, imm(0o700))
		p.unless(rA, ne, imm(0), func() {
			p.call("unlinkat", imm(atFDCWD), name, imm(atRemoveDir))
			p.move(rA, imm(0))
		})
	}
}

// connectUDP gives a datagram socket a peer, which sends nothing and needs a
// route. The address is reserved for documentation (RFC 5737).
func connectUDP(p *program) {
	peer := p.constant(afInet, 0, 0, 9, 192, 0, 2, 1, 0, 0, 0, 0, 0, 0, 0, 0)
	p.call("socket", imm(afInet), imm(sockDgram|sockCloexec), imm(0))
	p.unless(rA, lt, imm(0), func() {
		p.move(rC, rA)
		p.call("connect", rC, peer, imm(16))
		p.move(rB, rA)
		p.call("close", rC)
		p.move(rA, rB)
	})
}

// raiseCore sets the limit on core files to 2 bytes, which a seal's limit of 1
// refuses. Elsewhere it lowers the limit of PID 1 and its target.
func raiseCore(p *program) {
	limit := p.constant(2, 0, 0, 0, 0, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0)
	p.call("prlimit64", imm(0), imm(rlimitCore), limit, imm(0))
}

// closeKeeping closes the descriptor rA, if it is one, and keeps rA.
func (p *program) closeKeeping() {
	p.unless(rA, lt, imm(0), func() {
		p.move(rB, rA)
		p.call("close", rB)
		p.move(rA, rB)
	})
}

func operands(args []imm) []operand {
	out := make([]operand, len(args))
	for i, a := range args {
		out[i] = a
	}
	return out
}
