package seccomp

// files are the calls about names, contents and attributes of files. What may
// be opened is settled by the mounts and by Landlock; here nearly everything is
// allowed, since each of these calls is somebody's ls.
var files = []row{
	// Contents.
	{"read", 0, 63, allow},
	{"write", 1, 64, allow},
	{"pread64", 17, 67, allow},
	{"pwrite64", 18, 68, allow},
	{"readv", 19, 65, allow},
	{"writev", 20, 66, allow},
	{"preadv", 295, 69, allow},
	{"pwritev", 296, 70, allow},
	{"preadv2", 327, 286, allow},
	{"pwritev2", 328, 287, allow},
	{"lseek", 8, 62, allow},
	{"close", 3, 57, allow},
	{"dup", 32, 23, allow},
	{"dup2", 33, none, allow},
	{"dup3", 292, 24, allow},
	{"fcntl", 72, 25, fcntlCommand},
	{"flock", 73, 32, allow},
	{"fsync", 74, 82, allow},
	{"fdatasync", 75, 83, allow},
	{"sync_file_range", 277, 84, allow},
	{"truncate", 76, 45, allow},
	{"ftruncate", 77, 46, allow},
	{"fallocate", 285, 47, allow},
	{"readahead", 187, 213, allow},
	{"sync", 162, 81, allow}, // reaches the host's other file systems too: slow for them, no way in
	{"syncfs", 306, 267, allow},
	{"fadvise64", 221, 223, allow},       // cat and cp
	{"copy_file_range", 326, 285, allow}, // cp, Go's io.Copy
	{"sendfile", 40, 71, allow},
	{"splice", 275, 76, allow},
	{"tee", 276, 77, allow},
	{"vmsplice", 278, 75, allow},
	{"close_range", 436, 436, allow}, // bash, python's subprocess, glibc's posix_spawn
	{"cachestat", 451, 451, allow},   // what is in the page cache; newer kernels ask for the right to write

	// Opening and finding.
	{"open", 2, none, allow},
	{"openat", 257, 56, allow},
	{"creat", 85, none, allow},
	{"openat2", 437, 437, allow}, // its flags lie behind a pointer; they only narrow
	{"access", 21, none, allow},
	{"faccessat", 269, 48, allow},
	{"faccessat2", 439, 439, allow}, // glibc's faccessat with flags
	{"stat", 4, none, allow},
	{"fstat", 5, 80, allow},
	{"lstat", 6, none, allow},
	{"newfstatat", 262, 79, allow},
	{"statx", 332, 291, allow}, // coreutils, node, Rust
	{"statfs", 137, 43, allow},
	{"fstatfs", 138, 44, allow},
	{"getdents", 78, none, allow},
	{"getdents64", 217, 61, allow},
	{"getcwd", 79, 17, allow},
	{"chdir", 80, 49, allow},
	{"fchdir", 81, 50, allow},
	{"readlink", 89, none, allow},
	{"readlinkat", 267, 78, allow},
	{"umask", 95, 166, allow},
	{"ustat", 136, none, deny}, // superseded by statfs; asks about any device by number

	// Making and removing.
	{"mkdir", 83, none, allow},
	{"mkdirat", 258, 34, allow},
	{"rmdir", 84, none, allow},
	{"unlink", 87, none, allow},
	{"unlinkat", 263, 35, allow},
	{"rename", 82, none, allow},
	{"renameat", 264, 38, allow},
	{"renameat2", 316, 276, allow}, // mv -n
	{"link", 86, none, allow},
	{"linkat", 265, 37, allow},
	{"symlink", 88, none, allow},
	{"symlinkat", 266, 36, allow},
	{"mknod", 133, none, mknodMode},   // regular, FIFO and socket only; not on arm64
	{"mknodat", 259, 33, mknodatMode}, // the same; mkfifo(1) in the scratch folder is honest work

	// Attributes.
	{"chmod", 90, none, allow},
	{"fchmod", 91, 52, allow},
	{"fchmodat", 268, 53, allow},
	{"fchmodat2", 452, 452, allow}, // glibc's fchmodat with AT_SYMLINK_NOFOLLOW
	{"chown", 92, none, allow},
	{"fchown", 93, 55, allow},
	{"lchown", 94, none, allow},
	{"fchownat", 260, 54, allow},
	{"utime", 132, none, allow},
	{"utimes", 235, none, allow},
	{"futimesat", 261, none, allow},
	{"utimensat", 280, 88, allow},
	{"setxattr", 188, 5, allow},
	{"lsetxattr", 189, 6, allow},
	{"fsetxattr", 190, 7, allow},
	{"getxattr", 191, 8, allow},
	{"lgetxattr", 192, 9, allow},
	{"fgetxattr", 193, 10, allow},
	{"listxattr", 194, 11, allow},
	{"llistxattr", 195, 12, allow},
	{"flistxattr", 196, 13, allow},
	{"removexattr", 197, 14, allow},
	{"lremovexattr", 198, 15, allow},
	{"fremovexattr", 199, 16, allow},
	{"setxattrat", 463, 463, allow},
	{"getxattrat", 464, 464, allow},
	{"listxattrat", 465, 465, allow},
	{"removexattrat", 466, 466, allow},
	{"file_getattr", 468, 468, nosys}, // callers fall back to an ioctl
	{"file_setattr", 469, 469, nosys},

	// Handles: open_by_handle_at reaches any file of a file system, whatever the
	// mounts show of it.
	{"name_to_handle_at", 303, 264, deny}, // of use only for the next row
	{"open_by_handle_at", 304, 265, deny},

	// Waiting.
	{"poll", 7, none, allow},
	{"ppoll", 271, 73, allow},
	{"select", 23, none, allow},
	{"pselect6", 270, 72, allow},
	{"epoll_create", 213, none, allow},
	{"epoll_create1", 291, 20, allow},
	{"epoll_ctl", 233, 21, allow},
	{"epoll_wait", 232, none, allow},
	{"epoll_pwait", 281, 22, allow},
	{"epoll_pwait2", 441, 441, allow},
	{"epoll_ctl_old", 214, none, nosys}, // never implemented
	{"epoll_wait_old", 215, none, nosys},
	{"eventfd", 284, none, allow},
	{"eventfd2", 290, 19, allow},
	{"signalfd", 282, none, allow},
	{"signalfd4", 289, 74, allow},
	{"timerfd_create", 283, 85, allow},
	{"timerfd_settime", 286, 86, allow},
	{"timerfd_gettime", 287, 87, allow},
	{"inotify_init", 253, none, allow},
	{"inotify_init1", 294, 26, allow},
	{"inotify_add_watch", 254, 27, allow},
	{"inotify_rm_watch", 255, 28, allow},
	{"fanotify_init", 300, 262, deny}, // watches whole mounts; inotify is enough
	{"fanotify_mark", 301, 263, deny},
	{"pipe", 22, none, allow},
	{"pipe2", 293, 59, allow},
	{"ioctl", 16, 29, ioctlCommand}, // all but four commands of terminals

	// Asynchronous: a second door to read, write, open and connect, which no
	// filter sees. Both say ENOSYS, the answer that their users fall back on.
	{"io_uring_setup", 425, 425, nosys},
	{"io_uring_enter", 426, 426, nosys},
	{"io_uring_register", 427, 427, nosys},
	{"io_setup", 206, 0, nosys}, // the older interface; databases, and they fall back
	{"io_submit", 209, 2, nosys},
	{"io_getevents", 208, 4, nosys},
	{"io_pgetevents", 333, 292, nosys},
	{"io_cancel", 210, 3, nosys},
	{"io_destroy", 207, 1, nosys},
}
