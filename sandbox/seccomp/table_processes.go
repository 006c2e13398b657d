package seccomp

// processes are the calls about memory, threads, processes, signals, time,
// identity and talk between processes. The namespaces settle whom they reach.
var processes = []row{
	// Memory.
	{"mmap", 9, 222, allow},
	{"munmap", 11, 215, allow},
	{"mremap", 25, 216, allow},
	{"mprotect", 10, 226, allow},
	{"msync", 26, 227, allow},
	{"madvise", 28, 233, allow},
	{"brk", 12, 214, allow},
	{"mincore", 27, 232, allow}, // about files that the caller could write, and no others
	{"mlock", 149, 228, allow},
	{"mlock2", 325, 284, allow},
	{"munlock", 150, 229, allow},
	{"mlockall", 151, 230, allow},
	{"munlockall", 152, 231, allow},
	{"remap_file_pages", 216, 234, allow}, // emulated by mmap since Linux 4.0
	{"pkey_alloc", 330, 289, allow},
	{"pkey_free", 331, 290, allow},
	{"pkey_mprotect", 329, 288, allow},
	{"map_shadow_stack", 453, 453, allow}, // glibc with CET
	{"mseal", 462, 462, allow},            // only takes away
	{"membarrier", 324, 283, allow},       // Go, liburcu
	{"memfd_create", 319, 279, allow},     // exec from it is allowed too: it hides nothing from us
	{"memfd_secret", 447, 447, nosys},     // nobody needs it
	{"process_madvise", 440, 440, allow},  // of others: needs ptrace's rights, or the same memory
	{"process_mrelease", 448, 448, allow}, // of a dying process only
	{"process_vm_readv", 310, 270, deny},
	{"process_vm_writev", 311, 271, deny},
	{"userfaultfd", 323, 282, deny},    // lets a process stop the kernel in the middle of a copy
	{"get_mempolicy", 239, 236, allow}, // libnuma's test for being there
	{"set_mempolicy", 238, 237, deny},  // where memory lies is the machine's business
	{"set_mempolicy_home_node", 450, 450, deny},
	{"mbind", 237, 235, deny},
	{"migrate_pages", 256, 238, deny},
	{"move_pages", 279, 239, deny},
	{"modify_ldt", 154, none, deny}, // 16-bit segments; a nest of old bugs; not on arm64

	// Threads and processes.
	{"clone", 56, 220, cloneFlags}, // no new namespaces
	{"clone3", 435, 435, nosys},    // flags are behind a pointer; glibc and Go fall back to clone
	{"fork", 57, none, allow},
	{"vfork", 58, none, allow},
	{"execve", 59, 221, allow},
	{"execveat", 322, 281, allow},
	{"exit", 60, 93, allow},
	{"exit_group", 231, 94, allow},
	{"wait4", 61, 260, allow},
	{"waitid", 247, 95, allow},
	{"futex", 202, 98, allow},
	{"futex_wait", 455, 455, allow},
	{"futex_wake", 454, 454, allow},
	{"futex_waitv", 449, 449, allow},
	{"futex_requeue", 456, 456, allow},
	{"set_robust_list", 273, 99, allow},
	{"get_robust_list", 274, 100, allow},
	{"set_tid_address", 218, 96, allow},
	{"gettid", 186, 178, allow},
	{"getpid", 39, 172, allow},
	{"getppid", 110, 173, allow},
	{"rseq", 334, 293, allow},             // glibc 2.35 and later, at the start of each thread
	{"rseq_slice_yield", 471, 471, allow}, // gives a time slice back
	{"restart_syscall", 219, 128, allow},  // the kernel's own, after SIGCONT
	{"arch_prctl", 158, none, allow},      // thread-local storage; not on arm64
	{"set_thread_area", 205, none, nosys}, // 32-bit only
	{"get_thread_area", 211, none, nosys},
	{"prctl", 157, 167, prctlOption}, // all but PR_SET_MM
	{"seccomp", 317, 277, allow},     // a further filter can only take away
	{"personality", 135, 92, personalityValue},
	{"unshare", 272, 97, deny},
	{"setns", 308, 268, deny},
	{"ptrace", 101, 117, deny}, // no gdb, no strace: the documentation says so
	{"kcmp", 312, 272, deny},
	{"pidfd_open", 434, 434, allow}, // Go's os/exec, python
	{"pidfd_send_signal", 424, 424, allow},
	{"pidfd_getfd", 438, 438, deny}, // takes a descriptor from another process
	{"uretprobe", 335, none, allow}, // put into a process by an observer outside; without it the process dies
	{"uprobe", 336, none, allow},

	// Scheduling. Nothing here may raise: by rights, and where an RLIMIT_RTPRIO
	// of the user's would allow it, by the filter.
	{"sched_yield", 24, 124, allow},
	{"sched_getaffinity", 204, 123, allow},
	{"sched_setaffinity", 203, 122, notInit},
	{"getcpu", 309, 168, allow},
	{"sched_getparam", 143, 121, allow},
	{"sched_getscheduler", 145, 120, allow},
	{"sched_getattr", 315, 275, allow},
	{"sched_get_priority_max", 146, 125, allow},
	{"sched_get_priority_min", 147, 126, allow},
	{"sched_rr_get_interval", 148, 127, allow},
	{"sched_setparam", 142, 118, notInit},            // keeps the class; with 0 as the only priority of the allowed ones
	{"sched_setscheduler", 144, 119, schedulerClass}, // OTHER, BATCH, IDLE
	{"sched_setattr", 314, 274, deny},                // class behind a pointer, real-time and deadline among them
	{"getpriority", 140, 141, allow},
	{"setpriority", 141, 140, ownPriority}, // nice(1); raising fails by itself
	{"ioprio_get", 252, 31, allow},
	{"ioprio_set", 251, 30, deny},

	// Signals: the PID namespace says whom they reach.
	{"kill", 62, 129, allow},
	{"tkill", 200, 130, allow},
	{"tgkill", 234, 131, allow},
	{"rt_sigqueueinfo", 129, 138, allow},
	{"rt_tgsigqueueinfo", 297, 240, allow},
	{"rt_sigaction", 13, 134, allow},
	{"rt_sigprocmask", 14, 135, allow},
	{"rt_sigreturn", 15, 139, allow},
	{"rt_sigpending", 127, 136, allow},
	{"rt_sigsuspend", 130, 133, allow},
	{"rt_sigtimedwait", 128, 137, allow},
	{"sigaltstack", 131, 132, allow},
	{"pause", 34, none, allow},

	// Time. None of these sets a clock.
	{"nanosleep", 35, 101, allow},
	{"clock_nanosleep", 230, 115, allow},
	{"clock_gettime", 228, 113, allow},
	{"clock_getres", 229, 114, allow},
	{"gettimeofday", 96, 169, allow},
	{"time", 201, none, allow},
	{"times", 100, 153, allow},
	{"alarm", 37, none, allow},
	{"getitimer", 36, 102, allow},
	{"setitimer", 38, 103, allow},
	{"timer_create", 222, 107, allow},
	{"timer_settime", 223, 110, allow},
	{"timer_gettime", 224, 108, allow},
	{"timer_getoverrun", 225, 109, allow},
	{"timer_delete", 226, 111, allow},

	// Identity. No capabilities and no_new_privs: what would raise fails by
	// itself, and a program that drops its rights must not fail.
	{"getuid", 102, 174, allow},
	{"geteuid", 107, 175, allow},
	{"getgid", 104, 176, allow},
	{"getegid", 108, 177, allow},
	{"getresuid", 118, 148, allow},
	{"getresgid", 120, 150, allow},
	{"getgroups", 115, 158, allow},
	{"setuid", 105, 146, allow},
	{"setgid", 106, 144, allow},
	{"setreuid", 113, 145, allow},
	{"setregid", 114, 143, allow},
	{"setresuid", 117, 147, allow},
	{"setresgid", 119, 149, allow},
	{"setfsuid", 122, 151, allow},
	{"setfsgid", 123, 152, allow},
	{"setgroups", 116, 159, allow},
	{"capget", 125, 90, allow},
	{"capset", 126, 91, allow},
	{"getpgid", 121, 155, allow},
	{"getpgrp", 111, none, allow},
	{"setpgid", 109, 154, allow},
	{"getsid", 124, 156, allow},
	{"setsid", 112, 157, allow},
	{"landlock_create_ruleset", 444, 444, allow},
	{"landlock_add_rule", 445, 445, allow},
	{"landlock_restrict_self", 446, 446, allow},
	{"getrlimit", 97, 163, allow},
	{"setrlimit", 160, 164, allow},   // raising a hard limit fails by itself
	{"prlimit64", 302, 261, notInit}, // also glibc's getrlimit
	{"getrusage", 98, 165, allow},
	{"uname", 63, 160, allow},
	{"sysinfo", 99, 179, allow},
	{"getrandom", 318, 278, allow},

	// Sockets.
	{"socket", 41, 198, socketDomain},         // unix; inet and inet6, TCP and UDP only
	{"socketpair", 53, 199, socketpairDomain}, // unix
	{"bind", 49, 200, allow},
	{"listen", 50, 201, allow},
	{"accept", 43, 202, allow},
	{"accept4", 288, 242, allow},
	{"connect", 42, 203, allow},
	{"shutdown", 48, 210, allow},
	{"getsockname", 51, 204, allow},
	{"getpeername", 52, 205, allow},
	{"getsockopt", 55, 209, allow},
	{"setsockopt", 54, 208, allow},
	{"sendto", 44, 206, allow},
	{"recvfrom", 45, 207, allow},
	{"sendmsg", 46, 211, allow},
	{"recvmsg", 47, 212, allow},
	{"sendmmsg", 307, 269, allow},
	{"recvmmsg", 299, 243, allow},

	// System V and POSIX: in an IPC namespace of one's own.
	{"shmget", 29, 194, allow},
	{"shmat", 30, 196, allow},
	{"shmdt", 67, 197, allow},
	{"shmctl", 31, 195, allow},
	{"semget", 64, 190, allow},
	{"semop", 65, 193, allow},
	{"semtimedop", 220, 192, allow},
	{"semctl", 66, 191, allow},
	{"msgget", 68, 186, allow},
	{"msgsnd", 69, 189, allow},
	{"msgrcv", 70, 188, allow},
	{"msgctl", 71, 187, allow},
	{"mq_open", 240, 180, allow},
	{"mq_unlink", 241, 181, allow},
	{"mq_timedsend", 242, 182, allow},
	{"mq_timedreceive", 243, 183, allow},
	{"mq_notify", 244, 184, allow},
	{"mq_getsetattr", 245, 185, allow},
}
