package main

import (
	"os"
	"runtime/debug"
	"unsafe"

	"golang.org/x/sys/unix"
)

func init() {
	for name, nr := range map[string]uintptr{
		"modify_ldt": unix.SYS_MODIFY_LDT, "iopl": unix.SYS_IOPL, "ioperm": unix.SYS_IOPERM, "ustat": unix.SYS_USTAT,
		"x32_getpid": 1<<30 | unix.SYS_GETPID, // as an x32 program calls it
	} {
		numbers[name] = nr
	}
	kernel["int80"] = func([]string) (result string) {
		debug.SetPanicOnFault(true) // a kernel without i386 calls
		defer func() {
			if recover() != nil {
				result = "fault"
			}
		}()
		code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
		if err != nil {
			return "map-" + is(err)
		}
		copy(code, []byte{
			0xb8, 20, 0, 0, 0, // mov eax, 20: getpid of i386
			0xcd, 0x80, // int 0x80
			0xc3, // ret
		})
		entry := &code[0]
		function := &entry // a func value points to a pointer to its code
		(*(*func())(unsafe.Pointer(&function)))()
		return "ok"
	}
}
