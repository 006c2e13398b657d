package pid1

import "time"

// More constants of the kernel.
const (
	sigKill      = 9
	sigChld      = 17
	sigStop      = 19
	numSignals   = 64
	sigSetMask   = 2
	sigSetSize   = 8
	sfdFlags     = oCloexec | oNonblock
	infoSize     = 128 // signalfd_siginfo
	pollIn       = 1
	cloneVfork   = 0x4000
	cloneVM      = 0x100
	waitNohang   = 1
	waitAll      = 0x40000000 // __WALL: children made with any exit signal
	clockMono    = 1
	everyone     = -1
	exitExec     = 127
	statusSignal = 0x7f // the part of a wait status that names a signal

	// reapBatch bounds how many children are reaped between two looks at the
	// death pipe and the clock.
	reapBatch = 256
)

// A supervisor is PID 1's program in the making and what it keeps in memory.
//
// Registers: rA is the result of a call; rB the budget of a batch, or a
// temporary; rC how the last batch ended; rD whether the target has ended, and
// a temporary after that.
type supervisor struct {
	*program
	stack    slot // the stack pointer at entry
	death    slot // struct pollfd, events 0: only HUP, ERR and NVAL count
	other    slot // struct pollfd, first of the control socket, then of the signalfd
	now      slot // struct timespec
	timeout  slot // struct timespec, which ppoll overwrites
	deadline slot // struct timespec
	target   slot // its pid
	status   slot // of the process just reaped
	buffer   slot // siginfo, or the byte that lets the target start
	hello    slot
	end      slot

	zeroes imm // an empty signal set, and a struct sigaction of SIG_DFL
	broken label
	done   label
}

// firstProcess builds PID 1.
func firstProcess() *program {
	p := &program{}
	s := &supervisor{
		program: p,
		stack:   p.reserve(8), death: p.reserve(8), other: p.reserve(8),
		now: p.reserve(16), timeout: p.reserve(16), deadline: p.reserve(16),
		target: p.reserve(8), status: p.reserve(8), end: p.reserve(EndSize),
		buffer: p.reserve(infoSize), hello: p.reserve(HelloSize),
		zeroes: p.constant(make([]byte, 32)...),
		broken: p.newLabel(), done: p.newLabel(),
	}
	s.prepare()
	s.probe()
	s.awaitGo()
	s.start()
	s.supervise()
	s.letGo()
	s.killAll()
	s.report()
	return p
}

// exit ends PID 1 and so its namespace.
func (s *supervisor) exit(code imm) { s.call("exit_group", code) }

func (s *supervisor) prepare() {
	s.stackPointer(rA)
	s.move(rS, imm(stateBase))
	s.store(s.stack, rA)
	// First: the memory must not be open to any process that is to come.
	s.call("prctl", imm(prSetDumpable), imm(0), imm(0), imm(0), imm(0))
	s.branch(rA, ne, imm(0), s.broken)

	s.storeW(s.death, imm(DeathFD))
	s.storeW(s.other, imm(ControlFD))
	s.storeW(s.other+4, imm(pollIn))
	s.call("ppoll", s.death.addr(), imm(1), s.timeout.addr(), imm(0), imm(0))
	s.unless(rA, eq, imm(0), func() { s.exit(ExitNoGo) })

	s.call("fcntl", imm(DeathFD), imm(fSetfd), imm(fdCloexec))
	s.call("fcntl", imm(ControlFD), imm(fSetfd), imm(fdCloexec))
	s.branch(rA, ne, imm(0), s.broken)

	// The harness starts us with all signals blocked; the signalfd needs one
	// of them, and nothing that comes may end us.
	all := s.constant(0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff)
	s.call("rt_sigprocmask", imm(sigSetMask), all, imm(0), imm(sigSetSize))
	s.branch(rA, ne, imm(0), s.broken)

	// execve kept what was ignored, and would keep it for the target.
	s.move(rB, imm(1))
	next := s.here()
	s.call("rt_sigaction", rB, s.zeroes, imm(0), imm(sigSetSize)) // EINVAL for SIGKILL and SIGSTOP
	s.add(rB, imm(1))
	s.branch(rB, le, imm(numSignals), next)
}

func (s *supervisor) probe() {
	s.storeW(s.hello, imm(helloMagic))
	s.storeW(s.hello+4, imm(len(Probes)))
	for i, probe := range Probes {
		probe.emit(s.program)
		s.store(s.hello+8+slot(8*i), rA)
	}
	s.call("write", imm(ControlFD), s.hello.addr(), imm(HelloSize))
	s.branch(rA, ne, imm(HelloSize), s.broken)
}

func (s *supervisor) awaitGo() {
	refused, granted := s.newLabel(), s.newLabel()
	s.poll(imm(0), refused)
	s.call("read", imm(ControlFD), s.buffer.addr(), imm(1)) // 0 if the harness closed it
	s.branch(rA, ne, imm(1), refused)
	s.loadW(rA, s.buffer) // one byte in zeroed memory
	s.branch(rA, eq, imm(Go), granted)
	s.place(refused)
	s.exit(ExitNoGo)
	s.place(granted)
}

// start clones the target. The child shares our memory and our stack pointer
// until it executes, while we stand still: it uses registers only, and leaves
// execve's errno in the end.
func (s *supervisor) start() {
	child := s.constant(0, 0, 1<<(sigChld-1-16), 0, 0, 0, 0, 0)
	s.call("signalfd4", imm(-1), child, imm(sigSetSize), imm(sfdFlags))
	s.branch(rA, lt, imm(0), s.broken)
	s.storeW(s.other, rA)

	parent, failed := s.newLabel(), s.newLabel()
	s.call("clone", imm(cloneVM|cloneVfork|sigChld), imm(0), imm(0), imm(0), imm(0))
	s.branch(rA, ne, imm(0), parent)

	s.call("rt_sigprocmask", imm(sigSetMask), s.zeroes, imm(0), imm(sigSetSize))
	s.load(rB, s.stack)  // argc, argv[0], argv[1], … NULL, envp[0], …
	s.loadAt(rC, rB, 0)  // argc
	s.loadAt(rD, rB, 16) // argv[1]
	s.add(rB, imm(16))   // argv+1
	s.mul(rC, imm(8))
	s.add(rC, rB) // envp = stack + 8 + 8*(argc+1)
	s.call("execve", rD, rB, rC)
	s.move(rB, imm(0))
	s.sub(rB, rA)
	s.storeW(s.end+endExecErrno, rB)
	s.exit(exitExec)

	s.place(parent)
	s.branch(rA, lt, imm(0), failed)
	s.store(s.target, rA)
	running := s.newLabel()
	s.jump(running)

	s.place(failed)
	s.move(rB, imm(0))
	s.sub(rB, rA)
	s.storeW(s.end+endExecErrno, rB)
	s.storeW(s.end+endStatus, imm(exitExec<<8))
	s.jump(s.done)
	s.place(running)
}

// supervise reaps until the target has ended and been reaped.
func (s *supervisor) supervise() {
	dead, ended := s.newLabel(), s.newLabel()
	s.move(rD, imm(0))
	s.move(rC, imm(0))
	again := s.here()
	s.store(s.timeout, imm(0))
	s.store(s.timeout+8, imm(0))
	s.move(rB, imm(0)) // for ever
	s.unless(rC, le, imm(0), func() { s.move(rB, s.timeout.addr()) })
	s.poll(rB, dead)
	s.drain()
	s.reap(func() {
		s.load(rC, s.target)
		s.unless(rA, ne, rC, func() {
			s.loadW(rC, s.status)
			s.storeW(s.end+endStatus, rC)
			s.move(rD, imm(1))
		})
	})
	s.branch(rD, ne, imm(0), ended)
	s.branch(rC, ge, imm(0), again)
	s.place(s.broken) // no child, yet the target was never seen to end
	s.exit(ExitBroken)
	s.place(dead)
	s.exit(ExitDeath)
	s.place(ended)
}

// letGo gives what the target left the grace.
func (s *supervisor) letGo() {
	over, dead := s.newLabel(), s.newLabel()
	s.branch(rC, lt, imm(0), s.done)
	s.setDeadline(Grace)
	again := s.here()
	s.waitUntilDeadline(over, dead)
	s.reap(nil)
	s.branch(rC, ge, imm(0), again)
	s.jump(s.done)
	s.place(dead)
	s.exit(ExitDeath)
	s.place(over)
}

// killAll ends what is left. It is stopped first, and what had already ended
// is reaped: so what is killed then was alive, however long the queue of the
// dead was, and can be counted by its status.
func (s *supervisor) killAll() {
	kill, dead, late := s.newLabel(), s.newLabel(), s.newLabel()
	s.setDeadline(KillLimit)
	s.call("kill", imm(everyone), imm(sigStop))
	more := s.here()
	s.reap(nil)
	s.branch(rC, lt, imm(0), s.done)
	s.branch(rC, eq, imm(0), kill)
	s.waitUntilDeadline(kill, dead)
	s.jump(more)

	s.place(kill)
	s.call("kill", imm(everyone), imm(sigKill))
	s.reap(func() {
		s.loadW(rC, s.status)
		s.and(rC, imm(statusSignal))
		s.unless(rC, ne, imm(sigKill), func() { s.increment(s.end + endSurvivors) })
	})
	s.branch(rC, lt, imm(0), s.done)
	s.waitUntilDeadline(late, dead)
	s.jump(kill)

	s.place(dead)
	s.exit(ExitDeath)
	s.place(late)
	s.increment(s.end + endSurvivors)
}

func (s *supervisor) report() {
	s.place(s.done)
	s.storeW(s.end, imm(endMagic))
	s.call("write", imm(ControlFD), s.end.addr(), imm(EndSize))
	s.exit(ExitDone)
}

// poll waits for death and other, until the timeout (an address, or 0 for
// ever), and goes to dead if the death pipe is closed.
func (s *supervisor) poll(timeout operand, dead label) {
	again := s.here()
	s.call("ppoll", s.death.addr(), imm(2), timeout, imm(0), imm(0))
	s.branch(rA, eq, imm(eINTR), again)
	s.branch(rA, lt, imm(0), s.broken)
	s.loadW(rA, s.death+4) // events, which are 0, and revents
	s.branch(rA, ne, imm(0), dead)
}

// drain empties the signalfd: however many children ended, there is at most
// one pending SIGCHLD.
func (s *supervisor) drain() {
	s.loadW(rB, s.other)
	s.call("read", rB, s.buffer.addr(), imm(infoSize))
}

// reap waits for a batch of ended children. After it rC is > 0 if there may be
// more, 0 if others live, < 0 if there is none. each may use rC; the pid is in
// rA, and its status in memory.
func (s *supervisor) reap(each func()) {
	out := s.newLabel()
	s.move(rB, imm(reapBatch))
	next := s.here()
	s.call("wait4", imm(everyone), s.status.addr(), imm(waitNohang|waitAll), imm(0))
	s.branch(rA, le, imm(0), out)
	if each != nil {
		each()
	}
	s.increment(s.end + endReaped)
	s.sub(rB, imm(1))
	s.branch(rB, gt, imm(0), next)
	s.place(out)
	s.move(rC, rA)
}

// increment adds 1 to 32 bits of memory, using rC.
func (s *supervisor) increment(at slot) {
	s.loadW(rC, at)
	s.add(rC, imm(1))
	s.storeW(at, rC)
}

func (s *supervisor) setDeadline(d time.Duration) {
	s.call("clock_gettime", imm(clockMono), s.now.addr())
	s.load(rA, s.now)
	s.load(rB, s.now+8)
	s.add(rA, imm(d/time.Second))
	s.add(rB, imm(d%time.Second))
	s.unless(rB, lt, imm(time.Second), func() {
		s.sub(rB, imm(time.Second))
		s.add(rA, imm(1))
	})
	s.store(s.deadline, rA)
	s.store(s.deadline+8, rB)
}

// waitUntilDeadline polls and drains. It goes to over after the deadline, and
// doesn't wait if rC says that there may be more to reap.
func (s *supervisor) waitUntilDeadline(over, dead label) {
	s.call("clock_gettime", imm(clockMono), s.now.addr())
	s.load(rA, s.deadline)
	s.load(rB, s.now)
	s.sub(rA, rB)
	s.load(rB, s.deadline+8)
	s.load(rD, s.now+8)
	s.sub(rB, rD)
	s.unless(rB, ge, imm(0), func() {
		s.add(rB, imm(time.Second))
		s.sub(rA, imm(1))
	})
	s.branch(rA, lt, imm(0), over)
	s.unless(rC, le, imm(0), func() {
		s.move(rA, imm(0))
		s.move(rB, imm(0))
	})
	s.store(s.timeout, rA)
	s.store(s.timeout+8, rB)
	s.poll(s.timeout.addr(), dead)
	s.drain()
}
