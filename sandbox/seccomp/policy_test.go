package seccomp

import (
	"slices"
	"strings"
	"testing"
)

// The lists here are written down a second time on purpose: a row that changes
// its verdict must change here too.

// What programs were seen to use, and what is easily missed.
const allowedCalls = `
	accept accept4 access alarm arch_prctl bind brk cachestat capget capset chdir chmod clock_getres
	clock_gettime clock_nanosleep close close_range connect copy_file_range dup dup2 dup3 epoll_create1
	epoll_ctl epoll_pwait epoll_pwait2 epoll_wait eventfd2 execve execveat exit exit_group faccessat
	faccessat2 fadvise64 fallocate fchdir fchmod fchmodat fchmodat2 fchown fchownat fcntl fdatasync
	fgetxattr flistxattr flock fork fstat fstatfs fsync ftruncate futex futex_requeue futex_wait
	futex_waitv futex_wake get_mempolicy get_robust_list getcpu getcwd getdents64 getegid geteuid
	getgid getgroups getitimer getpeername getpgid getpgrp getpid getppid getpriority getrandom
	getresgid getresuid getrlimit getrusage getsid getsockname getsockopt gettid gettimeofday getuid
	getxattr inotify_add_watch inotify_init1 inotify_rm_watch ioprio_get kill landlock_add_rule
	landlock_create_ruleset landlock_restrict_self lgetxattr link linkat listen listxattr lseek lstat
	madvise map_shadow_stack membarrier memfd_create mincore mkdir mkdirat mlock mlock2 mlockall mmap
	mprotect mq_open mremap mseal msgget msync munlock munlockall munmap nanosleep newfstatat open
	openat openat2 pause pidfd_open pidfd_send_signal pipe pipe2 pkey_alloc pkey_free pkey_mprotect
	poll ppoll pread64 preadv preadv2 process_madvise process_mrelease pselect6 pwrite64
	pwritev pwritev2 read readahead readlink readlinkat readv recvfrom recvmmsg recvmsg
	remap_file_pages rename renameat renameat2 restart_syscall rmdir rseq rt_sigaction rt_sigpending
	rt_sigprocmask rt_sigqueueinfo rt_sigreturn rt_sigsuspend rt_sigtimedwait rt_tgsigqueueinfo
	sched_getaffinity sched_getparam sched_getscheduler sched_yield seccomp select
	semget semop semtimedop sendfile sendmmsg sendmsg sendto set_robust_list set_tid_address setgid
	setgroups setitimer setpgid setregid setresgid setresuid setreuid setrlimit setsid
	setsockopt setuid setxattr shmat shmctl shmdt shmget shutdown sigaltstack signalfd4 splice stat
	statfs statx symlink symlinkat sync sync_file_range syncfs sysinfo tee tgkill time timer_create
	timer_delete timer_getoverrun timer_gettime timer_settime timerfd_create timerfd_gettime
	timerfd_settime times tkill truncate umask uname unlink unlinkat utimensat vfork vmsplice wait4
	waitid write writev`

// The escape catalogue, and what else needs rights that nobody has.
const deniedCalls = `
	_sysctl acct add_key adjtimex bpf chroot clock_adjtime clock_settime create_module delete_module
	fanotify_init fanotify_mark finit_module fsconfig fsmount fsopen fspick get_kernel_syms
	init_module ioperm iopl ioprio_set kcmp kexec_file_load kexec_load keyctl lookup_dcookie mbind
	migrate_pages modify_ldt mount mount_setattr move_mount move_pages name_to_handle_at nfsservctl
	open_by_handle_at open_tree open_tree_attr perf_event_open pidfd_getfd pivot_root
	process_vm_readv process_vm_writev ptrace query_module quotactl quotactl_fd reboot request_key
	sched_setattr set_mempolicy set_mempolicy_home_node setdomainname sethostname setns settimeofday
	swapoff swapon sysfs syslog umount2 unshare uselib userfaultfd ustat vhangup`

const absentCalls = `
	clone3 io_uring_setup io_uring_enter io_uring_register io_setup io_submit memfd_secret statmount
	listmount listns lsm_get_self_attr lsm_set_self_attr lsm_list_modules file_getattr file_setattr`

// What arm64 doesn't have, of the lists.
const amd64Only = ` access alarm arch_prctl chmod dup2 epoll_wait fork getpgrp link lstat mkdir open pause pipe
	poll readlink rename rmdir select stat symlink time unlink vfork _sysctl create_module get_kernel_syms
	ioperm iopl modify_ldt query_module sysfs uselib ustat `

func TestPlainVerdicts(t *testing.T) {
	only := map[string]bool{}
	for _, name := range strings.Fields(amd64Only) {
		only[name] = true
	}
	each(t, func(t *testing.T, arch string, p []Instruction) {
		for names, want := range map[string]uint32{
			allowedCalls: retAllow, deniedCalls: errno(1), absentCalls: errno(38),
		} {
			for _, name := range strings.Fields(names) {
				nr, ok := Number(arch, name)
				if !ok {
					if arch != "arm64" || !only[name] {
						t.Errorf("no number for %s", name)
					}
					continue
				}
				for _, arg := range []uint64{0, 1, ^uint64(0)} {
					c := call{arch: machines[arch].audit, nr: nr, args: [6]uint64{arg, arg, arg, arg, arg, arg}}
					expect(t, p, c, name, want)
				}
			}
		}
	})
}

type argCase struct {
	name string
	args [6]uint64
	want uint32
}

// garbage is what the kernel drops from a 32-bit parameter.
const garbage = 0xdeadbeef_00000000

func args(a ...uint64) (six [6]uint64) {
	copy(six[:], a)
	return six
}

// TestArguments: each block with each answer. Where the kernel takes 32 bits or
// 16, every case is tried again with garbage above them; where it takes 64, the
// upper half is a case of its own.
func TestArguments(t *testing.T) {
	const ok, no, family, protocol = uint32(retAllow), retErrno | 1, retErrno | 97, retErrno | 93
	narrow := []argCase{
		{"personality", args(0), ok},
		{"personality", args(0x40000), ok},
		{"personality", args(0xffffffff), ok},
		{"personality", args(8), no},
		{"personality", args(0x20000), no},
		{"personality", args(0x400000), no},
		{"personality", args(0x440000), no},
		{"personality", args(0xfffffffe), no},

		{"ioctl", args(0, 0x5401), ok}, // TCGETS
		{"ioctl", args(1, 0x5413), ok}, // TIOCGWINSZ
		{"ioctl", args(3, 0), ok},
		{"ioctl", args(3, 0x541b), ok}, // FIONREAD
		{"ioctl", args(0, 0x5412), no},
		{"ioctl", args(0, 0x541c), no},
		{"ioctl", args(0, 0x541d), no},
		{"ioctl", args(0, 0x5423), no},

		{"prctl", args(35, 1), no},
		{"prctl", args(4, 1), ok},  // PR_SET_DUMPABLE
		{"prctl", args(15, 1), ok}, // PR_SET_NAME
		{"prctl", args(22, 2), ok}, // PR_SET_SECCOMP
		{"prctl", args(38, 1), ok}, // PR_SET_NO_NEW_PRIVS

		{"sched_setscheduler", args(0, 0), ok},
		{"sched_setscheduler", args(0, 1), no}, // FIFO
		{"sched_setscheduler", args(0, 2), no}, // RR
		{"sched_setscheduler", args(0, 3), ok},
		{"sched_setscheduler", args(0, 5), ok},
		{"sched_setscheduler", args(0, 6), no}, // DEADLINE
		{"sched_setscheduler", args(0, 7), no}, // EXT
		{"sched_setscheduler", args(0, 0x40000000), ok},
		{"sched_setscheduler", args(0, 0x40000001), no},
		{"sched_setscheduler", args(0, 0x80000000), no},
		{"sched_setscheduler", args(1, 0), no},
		{"sched_setscheduler", args(7, 5), ok},
		{"sched_setaffinity", args(0), ok},
		{"sched_setaffinity", args(7), ok},
		{"sched_setaffinity", args(1), no},
		{"sched_setparam", args(2), ok},
		{"sched_setparam", args(1), no},
		{"prlimit64", args(0, 7), ok},
		{"prlimit64", args(9, 7), ok},
		{"prlimit64", args(1, 7), no},
		{"setpriority", args(0, 0), ok},
		{"setpriority", args(0, 7), ok},
		{"setpriority", args(0, 1), no},
		{"setpriority", args(1, 0), no}, // PRIO_PGRP
		{"setpriority", args(2, 0), no}, // PRIO_USER
		{"fcntl", args(3, 6), ok},       // F_SETLK
		{"fcntl", args(3, 1030), ok},    // F_DUPFD_CLOEXEC
		{"fcntl", args(3, 1033), ok},    // F_ADD_SEALS
		{"fcntl", args(3, 1024), no},    // F_SETLEASE
		{"fcntl", args(3, 1026), no},
		{"fcntl", args(3, 1036), no},
		{"fcntl", args(3, 1038), no},

		{"socketpair", args(1, 1), ok},
		{"socketpair", args(1, 5|0x80000), ok},
		{"socketpair", args(2, 1), family},
		{"socketpair", args(30, 1), family}, // TIPC
		{"socketpair", args(0, 1), family},

		{"socket", args(1, 1), ok},
		{"socket", args(1, 2|0x80800), ok},
		{"socket", args(1, 3), ok}, // the kernel makes a datagram socket of it
		{"socket", args(1, 5, 1), ok},
	}
	for _, f := range []uint64{0, 3, 9, 15, 16, 17, 29, 30, 31, 38, 40, 43, 44, 45, 46, 0x10002, 0xffffffff} {
		narrow = append(narrow, argCase{"socket", args(f, 1), family}, argCase{"socket", args(f, 3), family})
	}
	for _, mode := range []uint64{0, 0o644, 0o100644, 0o010600, 0o140755} {
		narrow = append(narrow, argCase{"mknodat", args(0, 0, mode), ok}, argCase{"mknod", args(0, mode), ok})
		// umode_t: 16 bits.
		narrow = append(narrow, argCase{"mknodat", args(0, 0, 0x20000|mode), ok}, argCase{"mknod", args(0, 0x20000|mode), ok})
	}
	for _, mode := range []uint64{0o020666, 0o060600, 0o040755, 0o120777, 0o170000, 0o030000, 0o110644, 0o150644, 0x12180} {
		narrow = append(narrow, argCase{"mknodat", args(0, 0, mode), no}, argCase{"mknod", args(0, mode), no})
	}

	wide := []argCase{
		{"clone", args(17), ok},                // fork: SIGCHLD
		{"clone", args(0x4111), ok},            // vfork
		{"clone", args(0x3d0f00), ok},          // pthread_create
		{"clone", args(0x50f00), ok},           // Go's threads
		{"clone", args(0x5100 | 17), ok},       // Go's os/exec: VM, VFORK, PIDFD
		{"clone", args(0x80000000 | 17), ok},   // CLONE_IO
		{"clone", args(0x80), ok},              // CLONE_NEWTIME elsewhere; here a part of the signal
		{"clone", args(1<<32 | 17), no},        // CLEAR_SIGHAND, which only clone3 takes
		{"clone", args(1<<33 | 17), no},        // INTO_CGROUP
		{"clone", args(garbage | 17), no},      // 64 bits count
		{"clone", args(^uint64(0)), no},        //
		{"clone", args(0x7e020000 | 17), no},   // all of them
		{"clone", args(0x10000000_0000), no},   // NEWUSER, 16 bits too far up
		{"clone", args(17, 0x10000000), ok},    // the stack is not flags
		{"clone", args(1<<63 | 1<<28), no},     //
		{"clone", args(0x10000000 | 0x11), no}, // NEWUSER
	}
	for _, bit := range []uint64{0x20000, 0x2000000, 0x4000000, 0x8000000, 0x10000000, 0x20000000, 0x40000000} {
		wide = append(wide, argCase{"clone", args(bit | 17), no}, argCase{"clone", args(bit | 0x3d0f00), no})
	}

	each(t, func(t *testing.T, arch string, p []Instruction) {
		try := func(c argCase) {
			if nr, ok := Number(arch, c.name); ok {
				expect(t, p, call{arch: machines[arch].audit, nr: nr, args: c.args}, c.name, c.want)
			} else if c.name != "mknod" {
				t.Errorf("no number for %s", c.name)
			}
		}
		cases := slices.Clone(narrow)
		for _, f := range []uint64{2, 10} {
			cases = append(cases,
				argCase{"socket", args(f, 1), ok},
				argCase{"socket", args(f, 1|0x80800, 6), ok},
				argCase{"socket", args(f, 2), ok},
				argCase{"socket", args(f, 2|0x80000, 17), ok},
				argCase{"socket", args(f, 3), no},            // raw
				argCase{"socket", args(f, 3|0x80000, 1), no}, // raw ICMP
				argCase{"socket", args(f, 3, 255), no},
				argCase{"socket", args(f, 4), no},
				argCase{"socket", args(f, 5, 132), no}, // seqpacket: SCTP
				argCase{"socket", args(f, 6, 33), no},  // DCCP
				argCase{"socket", args(f, 10, 3), no},  // SOCK_PACKET becomes AF_PACKET
				argCase{"socket", args(f, 0), no},
				argCase{"socket", args(f, 1, 132), protocol}, // SCTP
				argCase{"socket", args(f, 1, 262), protocol}, // MPTCP
				argCase{"socket", args(f, 1, 17), protocol},
				argCase{"socket", args(f, 2, 1), protocol}, // ICMP echo
				argCase{"socket", args(f, 2, 58), protocol},
				argCase{"socket", args(f, 2, 136), protocol}, // UDP-Lite
			)
		}
		for _, c := range cases {
			try(c)
			for i := range c.args {
				c.args[i] |= garbage
			}
			try(c)
		}
		for _, c := range wide {
			try(c)
			for i := 1; i < len(c.args); i++ {
				c.args[i] |= garbage
			}
			try(c)
		}
	})
}
