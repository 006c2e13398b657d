package sandbox

import (
	"encoding/binary"
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/sandbox/seccomp"
)

// opWords is how many words the trampoline's struct of one row has:
//
//	number, six arguments, result, may-fail
const (
	opWords  = 9
	opResult = 7
	opSize   = opWords * 8
)

// bindings are the values of a program's symbols for one run.
type bindings struct {
	numbers map[string]uint64 // descriptors, sizes
	bytes   map[string][]byte // strings and buffers; strings end in NUL
	vectors map[string][]string
}

// A linked program lies in memory of its own, outside of Go's heap: the child
// reads it while Go runs on, and nothing may move.
type linked struct {
	arena []byte
	rows  []Row
	at    map[string]int // offsets of the symbols' bytes
}

// A linker lays a program out. Offsets become addresses when the arena is there.
type linker struct {
	buf    []byte
	relocs []int // positions of words that hold offsets
	at     map[string]int
}

func (l *linker) align() {
	for len(l.buf)%8 != 0 {
		l.buf = append(l.buf, 0)
	}
}

func (l *linker) place(b []byte) int {
	l.align()
	at := len(l.buf)
	l.buf = append(l.buf, b...)
	return at
}

func (l *linker) word(pos int, v uint64) { binary.LittleEndian.PutUint64(l.buf[pos:], v) }

// pointer makes the word at pos the address of what lies at an offset.
func (l *linker) pointer(pos, to int) {
	l.word(pos, uint64(to))
	l.relocs = append(l.relocs, pos)
}

func link(p Program, arch string, b bindings) (*linked, error) {
	l := &linker{buf: make([]byte, len(p.Rows)*opSize, len(p.Rows)*opSize+16<<10), at: map[string]int{}}
	strings := map[string]int{}
	for i, r := range p.Rows {
		base := i * opSize
		nr, ok := seccomp.Number(arch, r.Call)
		if !ok {
			return nil, fmt.Errorf("link row %d: %s has no number on %s", i, r.Call, arch)
		}
		l.word(base, uint64(nr))
		if r.MayFail {
			l.word(base+8*8, 1)
		}
		for j, a := range r.Args {
			pos := base + 8*(1+j)
			switch a.kind {
			case number:
				l.word(pos, a.value)
			case text:
				at, ok := strings[a.text]
				if !ok {
					at = l.place(append([]byte(a.text), 0))
					strings[a.text] = at
				}
				l.pointer(pos, at)
			case data:
				l.pointer(pos, l.place(a.bytes))
			case filter:
				code := l.place(a.bytes)
				prog := l.place(make([]byte, 16)) // struct sock_fprog
				binary.LittleEndian.PutUint16(l.buf[prog:], uint16(len(a.bytes)/8))
				l.pointer(prog+8, code)
				l.pointer(pos, prog)
			case message:
				l.pointer(pos, l.message(a.bytes))
			case symbol:
				if err := l.symbol(pos, a.text, b); err != nil {
					return nil, fmt.Errorf("link row %d: %w", i, err)
				}
			}
		}
	}
	l.align()
	arena, err := unix.Mmap(-1, 0, len(l.buf), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return nil, fmt.Errorf("map %d bytes: %w", len(l.buf), err)
	}
	copy(arena, l.buf)
	start := uint64(uintptr(unsafe.Pointer(&arena[0])))
	for _, pos := range l.relocs {
		binary.LittleEndian.PutUint64(arena[pos:], start+binary.LittleEndian.Uint64(arena[pos:]))
	}
	return &linked{arena: arena, rows: p.Rows, at: l.at}, nil
}

// message lays out a struct msghdr with one byte and SCM_RIGHTS.
func (l *linker) message(fds []byte) int {
	payload := l.place([]byte{'F'})
	iov := l.place(make([]byte, 16))
	l.pointer(iov, payload)
	l.word(iov+8, 1)
	n := 16 + 4*len(fds) // cmsghdr and descriptors
	cmsg := l.place(make([]byte, (n+7)&^7))
	l.word(cmsg, uint64(n))
	binary.LittleEndian.PutUint32(l.buf[cmsg+8:], unix.SOL_SOCKET)
	binary.LittleEndian.PutUint32(l.buf[cmsg+12:], unix.SCM_RIGHTS)
	for i, fd := range fds {
		binary.LittleEndian.PutUint32(l.buf[cmsg+16+4*i:], uint32(fd))
	}
	hdr := l.place(make([]byte, 56))
	l.pointer(hdr+16, iov)
	l.word(hdr+24, 1)
	l.pointer(hdr+32, cmsg)
	l.word(hdr+40, uint64((n+7)&^7))
	return hdr
}

func (l *linker) symbol(pos int, name string, b bindings) error {
	if at, ok := l.at[name]; ok {
		l.pointer(pos, at)
		return nil
	}
	if n, ok := b.numbers[name]; ok {
		l.word(pos, n)
		return nil
	}
	if v, ok := b.bytes[name]; ok {
		l.at[name] = l.place(v)
		l.pointer(pos, l.at[name])
		return nil
	}
	v, ok := b.vectors[name]
	if !ok {
		return fmt.Errorf("$%s is not bound", name)
	}
	offsets := make([]int, len(v))
	for i, s := range v {
		offsets[i] = l.place(append([]byte(s), 0))
	}
	at := l.place(make([]byte, 8*(len(v)+1)))
	for i, o := range offsets {
		l.pointer(at+8*i, o)
	}
	l.at[name] = at
	l.pointer(pos, at)
	return nil
}

func (l *linked) free() { unix.Munmap(l.arena) }

// result is what row i's call returned, negative an errno.
func (l *linked) result(i int) int64 {
	return int64(binary.LittleEndian.Uint64(l.arena[i*opSize+opResult*8:]))
}

// bytes is where a symbol's bytes lie, for calls that write there.
func (l *linked) bytes(name string, n int) []byte {
	at, ok := l.at[name]
	if !ok {
		return nil
	}
	return l.arena[at : at+n]
}

// failure finds the row at which the child stopped.
func (l *linked) failure() error {
	for i, r := range l.rows {
		if n := l.result(i); n < 0 && n > -4096 && !r.MayFail {
			return &SetupError{Row: i, Layer: r.Layer, Call: r.call(), Err: unix.Errno(-n)}
		}
	}
	return nil
}

// unexpected finds a row that returned another descriptor than it must have.
func (l *linked) unexpected() error {
	for i, r := range l.rows {
		if n := l.result(i); r.FD >= 0 && n != int64(r.FD) {
			return &SetupError{Row: i, Layer: r.Layer, Call: r.call(), Err: fmt.Errorf("returned %d, not %d", n, r.FD)}
		}
	}
	return nil
}
