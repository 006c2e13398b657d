package main

import (
	"os"
	"strconv"

	"golang.org/x/sys/unix"
)

// memory are attempts to use more than there is. N is in MiB.
var memory = table{
	"anonymous": func(a []string) string {
		n := mebibytes(a[0])
		b, err := unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err == nil {
			touch(b)
		}
		return is(err)
	},
	"memfd": func(a []string) string {
		fd, err := unix.MemfdCreate("escape", 0)
		if err != nil {
			return "create-" + is(err)
		}
		return is(fill(fd, mebibytes(a[0])))
	},
	"file": func(a []string) string {
		f, err := os.Create(name("fill"))
		if err != nil {
			return "create-" + is(err)
		}
		defer os.Remove(f.Name())
		return is(fill(int(f.Fd()), mebibytes(a[0])))
	},
	"sysv": func(a []string) string {
		n := mebibytes(a[0])
		id, err := unix.SysvShmGet(unix.IPC_PRIVATE, n, unix.IPC_CREAT|0o600)
		if err != nil {
			return "get-" + is(err)
		}
		b, err := unix.SysvShmAttach(id, 0, 0)
		unix.SysvShmCtl(id, unix.IPC_RMID, nil) // once nobody has it attached
		if err != nil {
			return is(err)
		}
		touch(b)
		return "ok"
	},
	"mlock": func(a []string) string {
		b, err := unix.Mmap(-1, 0, mebibytes(a[0]), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return "map-" + is(err)
		}
		return is(unix.Mlock(b))
	},
}

func mebibytes(s string) int {
	n, _ := strconv.Atoi(s)
	return n << 20
}

func touch(b []byte) {
	for i := 0; i < len(b); i += 4096 {
		b[i] = 1
	}
}

func fill(fd, n int) error {
	chunk := make([]byte, 1<<20)
	for range n >> 20 {
		if _, err := unix.Write(fd, chunk); err != nil {
			return err
		}
	}
	return nil
}
