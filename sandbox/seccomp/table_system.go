package seccomp

// system are the calls about the machine. Nearly all are refused with EPERM,
// which is what a process without rights gets in any case; what is here for
// the first time in a kernel, or never was, is ENOSYS, so that callers fall
// back.
var system = []row{
	// Mounts.
	{"mount", 165, 40, deny},
	{"umount2", 166, 39, deny},
	{"pivot_root", 155, 41, deny},
	{"chroot", 161, 51, deny},
	{"fsopen", 430, 430, deny},
	{"fsconfig", 431, 431, deny},
	{"fsmount", 432, 432, deny},
	{"fspick", 433, 433, deny},
	{"open_tree", 428, 428, deny},
	{"open_tree_attr", 467, 467, deny},
	{"move_mount", 429, 429, deny},
	{"mount_setattr", 442, 442, deny},
	{"statmount", 457, 457, nosys}, // libmount falls back to /proc/self/mountinfo
	{"listmount", 458, 458, nosys},
	{"listns", 470, 470, nosys},
	{"sysfs", 139, none, deny}, // numbers of file system types
	{"quotactl", 179, 60, deny},
	{"quotactl_fd", 443, 443, deny},
	{"swapon", 167, 224, deny},
	{"swapoff", 168, 225, deny},
	{"acct", 163, 89, deny},
	{"lookup_dcookie", 212, 18, deny},
	{"nfsservctl", 180, 42, deny},

	// Keys: the session keyring is inherited, and no namespace parts it.
	{"add_key", 248, 217, deny},
	{"request_key", 249, 218, deny},
	{"keyctl", 250, 219, deny},

	// The kernel: its code, its log, what it measures.
	{"bpf", 321, 280, deny},
	{"perf_event_open", 298, 241, deny},
	{"syslog", 103, 116, deny},
	{"init_module", 175, 105, deny},
	{"finit_module", 313, 273, deny},
	{"delete_module", 176, 106, deny},
	{"create_module", 174, none, deny},
	{"query_module", 178, none, deny},
	{"get_kernel_syms", 177, none, deny},
	{"kexec_load", 246, 104, deny},
	{"kexec_file_load", 320, 294, deny},
	{"reboot", 169, 142, deny},

	// Clock, name, terminal, ports.
	{"settimeofday", 164, 170, deny},
	{"clock_settime", 227, 112, deny},
	{"clock_adjtime", 305, 266, deny},
	{"adjtimex", 159, 171, deny},
	{"sethostname", 170, 161, deny},
	{"setdomainname", 171, 162, deny},
	{"vhangup", 153, 58, deny},
	{"iopl", 172, none, deny},
	{"ioperm", 173, none, deny},
	{"_sysctl", 156, none, deny},
	{"uselib", 134, none, deny},

	// Security modules: how we are confined is not a reader's business, and the
	// older files under /proc are what libraries fall back to.
	{"lsm_get_self_attr", 459, 459, nosys},
	{"lsm_set_self_attr", 460, 460, nosys},
	{"lsm_list_modules", 461, 461, nosys},

	// Numbers that were given away and never had a call behind them.
	{"afs_syscall", 183, none, nosys},
	{"getpmsg", 181, none, nosys},
	{"putpmsg", 182, none, nosys},
	{"security", 185, none, nosys},
	{"tuxcall", 184, none, nosys},
	{"vserver", 236, none, nosys},
	{"arch_specific_syscall", none, 244, nosys}, // the first of 16 that arm64 keeps free
}
