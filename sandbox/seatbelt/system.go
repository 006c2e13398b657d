package seatbelt

// A row grants operations on some filters, and says why. Both are SBPL that
// only this file writes.
type row struct {
	why     string
	ops     string
	filters []string
}

// system is what every process needs to start. Not granted, and why:
//
//   - mach-lookup, any service. Each is a way to a process outside of the
//     seal. opendirectoryd.libinfo tells the account's name and home (a sealed
//     Linux has no /etc/passwd either); notification_center and logd carry
//     messages between runs; trustd and ocspd fetch what a certificate names,
//     past the proxy; configd, cfprefsd, lsd, securityd and PowerManagement
//     are the user's settings and keys.
//   - ipc-posix-shm and ipc-posix-sem: one name space for the whole host.
//   - iokit, nvram, user-preference-read, pseudo-tty, system-socket,
//     appleevent-send, file-ioctl: nothing declared needs them.
//   - /dev/tty, /dev/dtracehelper, /private/etc, /usr/share, /bin, /usr/bin:
//     whatever is needed of them can be declared.
//   - sysctl kern.proc.* (other processes), net.routetable.*, vm.loadavg,
//     hw.model, kern.uuid and kern.bootsessionuuid: they tell hosts apart.
var system = []row{
	{
		"dyld opens / as the start of its openat calls and aborts without (akitaonrails/ai-jail#77); the names in / show, not what is in them",
		"file-read*",
		[]string{literal("/")},
	},
	{
		"libSystem, frameworks and the shared cache that holds them: in cryptexes since macOS 13, in /System/Library/dyld with 12, in /private/var/db/dyld before",
		"file-read* file-map-executable",
		[]string{
			subpath("/System/Cryptexes/OS"), subpath("/System/Library"), subpath("/System/Volumes/Preboot/Cryptexes/OS"),
			subpath("/private/var/db/dyld"), subpath("/usr/lib"),
		},
	},
	{
		"the way to these, link by link: /System/Cryptexes/OS and /var are links",
		"file-read-metadata",
		[]string{
			literal("/System"), literal("/System/Cryptexes"), literal("/System/Volumes"), literal("/System/Volumes/Preboot"),
			literal("/System/Volumes/Preboot/Cryptexes"), literal("/private"), literal("/private/var"), literal("/private/var/db"),
			literal("/usr"), literal("/var"),
		},
	},
	{
		"devices without memory; runtimes seed hash tables from the last two",
		"file-read*",
		[]string{literal("/dev/null"), literal("/dev/zero"), literal("/dev/random"), literal("/dev/urandom")},
	},
	{
		"what is written there is gone",
		"file-write-data",
		[]string{literal("/dev/null"), literal("/dev/zero")},
	},
	{
		"descriptors that the process has: <(...) of a shell, /dev/stdin",
		"file-read* file-write-data",
		[]string{
			subpath("/dev/fd"), literal("/dev/stdin"), literal("/dev/stdout"), literal("/dev/stderr"),
		},
	},
	{
		"a child has the profile of its parent",
		"process-fork", nil,
	},
	{
		"its own processes only; without process-info a program can't ask for its own path or limits",
		"signal process-info*",
		[]string{"(target same-sandbox)"},
	},
}

// sysctls are those that may be read.
var sysctls = []struct {
	why   string
	names []string
}{
	{"page size: the runtimes of Go and Rust end without it", []string{"hw.pagesize", "hw.pagesize_compat"}},
	{"the main thread's stack: Rust's guard page", []string{"kern.usrstack64"}},
	{"how many threads to start", []string{"hw.activecpu", "hw.logicalcpu", "hw.logicalcpu_max", "hw.ncpu", "hw.nperflevels", "hw.perflevel*", "hw.physicalcpu", "hw.physicalcpu_max"}},
	{"size of heaps and buffers", []string{"hw.cachelinesize", "hw.cachelinesize_compat", "hw.l1dcachesize_compat", "hw.l1icachesize_compat", "hw.l2cachesize_compat", "hw.l3cachesize_compat", "hw.memsize"}},
	{"which instructions there are: crypto libraries and Go", []string{"hw.byteorder", "hw.cpufamily", "hw.cputype", "hw.machine", "hw.optional.*", "sysctl.proc_cputype"}},
	{"limits: sysconf, and Go when it raises the number of descriptors", []string{"kern.argmax", "kern.maxfilesperproc"}},
	{"uname fails as a whole if one is denied, so the host's name shows", []string{"kern.hostname", "kern.osproductversion", "kern.osrelease", "kern.ostype", "kern.osversion", "kern.version"}},
	{"libSystem asks whether this is an Apple-internal system", []string{"kern.osvariant_status"}},
}
