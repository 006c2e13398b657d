package seccomp

// A row is one system call. The number is none where an architecture doesn't
// have the call: arm64 has only the *at ones.
type row struct {
	name         string // the kernel's: newfstatat, umount2, prlimit64
	amd64, arm64 int32
	verdict      verdict
}

const none = -1

// tables are all calls that golang.org/x/sys lists, each with a verdict: a test
// compares, so that a call which a new kernel adds is decided on here instead of
// by default.
var tables = [][]row{files, processes, system}

// A verdict is what the filter answers to a call.
type verdict uint8

const (
	nosys verdict = iota // ENOSYS, also what no row names
	allow
	deny // EPERM
	kill // the whole process; no row has it

	// These look at arguments: see rules.go.
	mknodMode
	mknodatMode
	ioctlCommand
	cloneFlags
	prctlOption
	personalityValue
	schedulerClass
	notInit
	ownPriority
	fcntlCommand
	socketDomain
	socketpairDomain

	verdictCount
)
