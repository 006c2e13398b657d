package seccomp

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// foreignCall makes i386's getpid by int 0x80. It doesn't come back behind the
// filter.
func foreignCall() {
	code, err := unix.Mmap(-1, 0, os.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE|unix.PROT_EXEC, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		return
	}
	copy(code, []byte{
		0xb8, 20, 0, 0, 0, // mov eax, 20
		0xcd, 0x80, // int 0x80
		0xc3, // ret
	})
	entry := &code[0]
	function := &entry // a func value points to a pointer to its code
	(*(*func())(unsafe.Pointer(&function)))()
}
