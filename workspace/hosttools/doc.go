// Package hosttools finds what a program of this machine needs on disk, so that
// it runs in a root that holds nothing else.
//
// # Vocabulary
//
//   - program: a file that can be executed, by its absolute path on this machine.
//   - data: further files and folders that it reads.
//   - closure: a program with the symbolic links on the way to it, its
//     interpreters and its shared libraries, as mounts.
//   - loader: the program that an ELF file names as its interpreter (ld.so).
//   - stat cache: digests of files, known by what lstat says of them.
//
// # Layout is kept
//
// The mounts reproduce this machine path by path. Each symbolic link on the way
// is a link there too, and a file is only ever mounted at its real path:
//
//	Program("/bin/sh")   /bin -> usr/bin   /usr/bin/sh -> dash   /usr/bin/dash
//	                     /lib64 -> usr/lib64   /usr/lib64/ld-linux-x86-64.so.2 -> …
//
// So two closures can't disagree about a path, $0 and realpath give what they
// give outside, and a program finds what lies beside its real file, as the
// bin/x -> ../lib/node_modules/… of npm does.
//
// # What is found
//
//   - Scripts: the program of the #! line, and the one that its own #! line
//     names, five in a row as in Linux. For env also NAME, after -S too, from a
//     PATH that is fixed: /usr/local/sbin … /bin.
//   - ELF: the loader, and all needed libraries as this very loader would find
//     them with the environment unset. Its cache becomes a mount only if a
//     library is found by no other means: it changes with every installed package.
//   - ELF files in data, such as extension modules: the same, but what isn't
//     found is left out, since the program may do without or bring it itself.
//   - macOS: #! lines and the file. What dyld loads isn't in files.
//
// # What isn't
//
// What a program opens by a name of its own: libraries by dlopen (NSS, gconv,
// libgcc_s for thread cancellation), locales, time zones, certificates; where
// links inside data folders lead; variants in glibc-hwcaps folders, as plain
// ones do. Such things are listed as data.
//
// # Errors
//
// They read "tool PATH: cause" or "data PATH: cause"; those with something to do
// about have a method Hint() string, for errors.As. All are the user's to mend.
package hosttools
