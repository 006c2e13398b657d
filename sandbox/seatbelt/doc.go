// Package seatbelt renders a policy to a profile of macOS's sandbox-exec.
//
// No profile of this package was ever run on a Mac. They are compared with
// golden files and parsed on any system; that a Mac takes them, that they let a
// program start and that they hold is not known. Each row comes from a profile
// that others report to work, or from a report of what breaks without it. An
// operation that a version of macOS doesn't know makes sandbox-exec refuse the
// whole profile, and a row that is missing makes a program fail: both are loud,
// and neither opens anything.
//
// Vocabulary. The staging folder stands for the root of the seal, which can't
// be changed on a Mac: the harness puts there, read-only, what the mounts say,
// as links, clones or copies. The scratch folder is the one that the process
// may write; it may be in the staging folder. A resolved path has no symbolic
// link in it: the kernel compares rules with where a file really is, so that a
// rule for /tmp/x (really /private/tmp/x) never fires. Resolving is for the
// caller; paths below the three links that every Mac has are refused here.
//
// Invariants. The first rule denies everything; rules are for single paths and
// names, but for folders that are mounts, the system's libraries, the staging
// and the scratch folder; nothing outside of the scratch folder can be written
// but /dev/null, /dev/zero and descriptors that the process has; only files
// that a mount calls executable can be executed, and only files of mounts mapped
// as code, none from the scratch folder; no path can end the literal that it is in. The same Params give the same
// bytes.
//
// What a Mac can't do, beside what Linux does: the process sees other processes
// (it can't signal or inspect them), the host's name, clock, CPU and version;
// loopback is the host's, and only the ports that are named are open; it can't
// listen; memory and file sizes are bounded by other means or not at all. Named
// semaphores are the host's and so denied: locks of Python's multiprocessing
// fail. Rosetta is not provided for.
//
// A folder is granted as it is on the disk: where a mount's Tree is less than
// the folder, the caller stages a copy.
package seatbelt
