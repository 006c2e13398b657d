package pid1

// callNumbers are the numbers of the system calls that PID 1 makes: amd64
// (arch/x86/entry/syscalls/syscall_64.tbl) and arm64 (the generic table). A
// call that only one of them has can't be used.
var callNumbers = map[string][2]int64{
	"clock_gettime":  {228, 113},
	"clone":          {56, 220},
	"clone3":         {435, 435},
	"close":          {3, 57},
	"connect":        {42, 203},
	"execve":         {59, 221},
	"exit_group":     {231, 94},
	"fcntl":          {72, 25},
	"getpid":         {39, 172},
	"getppid":        {110, 173},
	"io_uring_setup": {425, 425},
	"kill":           {62, 129},
	"mkdirat":        {258, 34},
	"openat":         {257, 56},
	"ppoll":          {271, 73},
	"prctl":          {157, 167},
	"prlimit64":      {302, 261},
	"ptrace":         {101, 117},
	"read":           {0, 63},
	"rt_sigaction":   {13, 134},
	"rt_sigprocmask": {14, 135},
	"setresuid":      {117, 147},
	"signalfd4":      {289, 74},
	"socket":         {41, 198},
	"unlinkat":       {263, 35},
	"wait4":          {61, 260},
	"write":          {1, 64},
}
