package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// files are attempts on files, folders, descriptors and devices.
var files = table{
	// planted counts descriptors by device and inode: DEV:INO,DEV:INO,…
	"planted": func(a []string) string {
		n := 0
		for fd := range 4096 {
			var st unix.Stat_t
			if unix.Fstat(fd, &st) == nil && strings.Contains(","+a[0], ","+strconv.FormatUint(st.Dev, 10)+":"+strconv.FormatUint(st.Ino, 10)+",") {
				n++
			}
		}
		return strconv.Itoa(n)
	},
	// up PATH opens a path by a descriptor of the root, through dots above it.
	"up": func(a []string) string {
		root, err := unix.Open("/", unix.O_PATH|unix.O_DIRECTORY, 0)
		if err == nil {
			err = unix.Fchdir(root)
		}
		if err != nil {
			return "root-" + is(err)
		}
		fd, err := unix.Openat(root, "../../../../../../../.."+a[0], unix.O_RDONLY, 0)
		if err == nil {
			unix.Close(fd)
		}
		return is(err)
	},
	// out PATH makes a chroot below the current root, which leaves the working
	// directory outside of it, and climbs from there.
	"out": func(a []string) string {
		dir, err := os.MkdirTemp(".", "chroot")
		if err == nil {
			err = unix.Chroot(dir)
		}
		if err != nil {
			return is(err)
		}
		return open("../../../../../../../../../../.."+a[0], unix.O_RDONLY)
	},
	// through PATH follows a link of its own.
	"through": func(a []string) string {
		link := name("link")
		if err := os.Symlink(a[0], link); err != nil {
			return "link-" + is(err)
		}
		defer os.Remove(link)
		return open(link, unix.O_RDONLY)
	},
	"hardlink": func(a []string) string {
		link := name("hard")
		defer os.Remove(link)
		return is(os.Link(a[0], link))
	},
	"flock": func(a []string) string {
		fd, err := unix.Open(a[0], unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			return "open-" + is(err)
		}
		return is(unix.Flock(fd, unix.LOCK_EX|unix.LOCK_NB))
	},
	"chmod": func(a []string) string { return is(os.Chmod(a[0], 0o755)) },
	"touch": func(a []string) string { return is(unix.Utimes(a[0], []unix.Timeval{{Sec: 1}, {Sec: 1}})) },
	"xattr": func(a []string) string { return is(unix.Setxattr(a[0], "user.escape", []byte("x"), 0)) },
	"truncate": func(a []string) string {
		fi, err := os.Stat(a[0])
		if err != nil {
			return "stat-" + is(err)
		}
		return is(os.Truncate(a[0], fi.Size())) // to what it is
	},
	// rename there and back.
	"rename": func(a []string) string {
		err := os.Rename(a[0], a[0]+".moved")
		if err == nil {
			os.Rename(a[0]+".moved", a[0])
		}
		return is(err)
	},
	"create": func(a []string) string {
		f, err := os.OpenFile(a[0], os.O_CREATE|os.O_EXCL|os.O_WRONLY, 0o600)
		if err == nil {
			f.Close()
			os.Remove(a[0])
		}
		return is(err)
	},
	// mknod MODE DEV makes a node and removes it.
	"mknod": func(a []string) string {
		mode, _ := strconv.ParseUint(a[0], 0, 32)
		dev, _ := strconv.Atoi(a[1])
		node := name("node")
		defer os.Remove(node)
		return is(unix.Mknod(node, uint32(mode), dev))
	},
	// handle opens the working directory by its handle, which is how one opens
	// any other.
	"handle": func([]string) string {
		h, _, err := unix.NameToHandleAt(unix.AT_FDCWD, ".", 0)
		if err != nil { // refused as well: any handle will do to be refused again
			h = unix.NewFileHandle(1, make([]byte, 8))
		}
		dir, err := unix.Open(".", unix.O_RDONLY, 0)
		if err != nil {
			return "dir-" + is(err)
		}
		fd, err := unix.OpenByHandleAt(dir, h, unix.O_RDONLY)
		if err == nil {
			unix.Close(fd)
		}
		return is(err)
	},
	"name-handle": func([]string) string { _, _, err := unix.NameToHandleAt(unix.AT_FDCWD, ".", 0); return is(err) },
	// many N makes N files below a folder, if there is room.
	"many": func(a []string) string {
		n, _ := strconv.Atoi(a[0])
		if err := os.Mkdir(a[1], 0o755); err != nil && !os.IsExist(err) {
			return "mkdir-" + is(err)
		}
		for i := range n {
			f, err := os.Create(filepath.Join(a[1], strconv.Itoa(i)))
			if err != nil {
				return is(err)
			}
			f.Close()
		}
		return "ok"
	},
	// deep N makes N folders in each other.
	"deep": func(a []string) string {
		n, _ := strconv.Atoi(a[0])
		if err := os.MkdirAll(a[1], 0o755); err != nil {
			return "mkdir-" + is(err)
		}
		if err := os.Chdir(a[1]); err != nil {
			return is(err)
		}
		for range n {
			if err := os.Mkdir("d", 0o755); err != nil {
				return is(err)
			}
			if err := os.Chdir("d"); err != nil {
				return is(err)
			}
		}
		return is(os.WriteFile("leaf", []byte("x"), 0o644))
	},
	// sparse BYTES FILE has that size and hardly a byte.
	"sparse": func(a []string) string {
		n, _ := strconv.ParseInt(a[0], 0, 64)
		f, err := os.OpenFile(a[1], os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o644)
		if err != nil {
			return "create-" + is(err)
		}
		defer f.Close()
		if len(a) > 2 {
			defer os.Remove(a[1])
		}
		return is(f.Truncate(n))
	},
}

// name is of a file in the working directory that isn't there.
func name(what string) string { return what + "." + strconv.Itoa(os.Getpid()) }
