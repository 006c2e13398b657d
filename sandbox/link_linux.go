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
//	number, six arguments, result
const (
	opWords  = 8
	opResult = 7
	opSize   = opWords * 8
)

// bindings are the values of a program's symbols for one run.
type bindings struct {
	numbers map[string]uint64 // descriptors, sizes
	bytes   map[string][]byte // strings and buffers; strings end in NUL
	vectors map[string][]string
}

// A template is a program laid out but for its symbols: what the runs of one
// plan share. Offsets become addresses, and symbols values, when it is bound.
type template struct {
	rows    []Row
	buf     []byte
	relocs  []int // positions of words that hold offsets
	symbols []symbolUse
}

type symbolUse struct {
	pos  int // of the word
	name string
}

func (t *template) align() {
	for len(t.buf)%8 != 0 {
		t.buf = append(t.buf, 0)
	}
}

func (t *template) place(b []byte) int {
	t.align()
	at := len(t.buf)
	t.buf = append(t.buf, b...)
	return at
}

func (t *template) word(pos int, v uint64) { binary.LittleEndian.PutUint64(t.buf[pos:], v) }

// pointer makes the word at pos the address of what lies at an offset.
func (t *template) pointer(pos, to int) {
	t.word(pos, uint64(to))
	t.relocs = append(t.relocs, pos)
}

func layOut(p Program, arch string) (*template, error) {
	t := &template{rows: p.Rows, buf: make([]byte, len(p.Rows)*opSize, len(p.Rows)*opSize+16<<10)}
	strings := map[string]int{}
	for i, r := range p.Rows {
		base := i * opSize
		nr, ok := seccomp.Number(arch, r.Call)
		if !ok {
			return nil, fmt.Errorf("lay out row %d: %s has no number on %s", i, r.Call, arch)
		}
		t.word(base, uint64(nr))
		for j, a := range r.Args {
			pos := base + 8*(1+j)
			switch a.kind {
			case number:
				t.word(pos, a.value)
			case text:
				at, ok := strings[a.text]
				if !ok {
					at = t.place(append([]byte(a.text), 0))
					strings[a.text] = at
				}
				t.pointer(pos, at)
			case data:
				t.pointer(pos, t.place(a.bytes))
			case filter:
				code := t.place(a.bytes)
				prog := t.place(make([]byte, 16)) // struct sock_fprog
				binary.LittleEndian.PutUint16(t.buf[prog:], uint16(len(a.bytes)/8))
				t.pointer(prog+8, code)
				t.pointer(pos, prog)
			case message:
				t.pointer(pos, t.message(a.bytes))
			case symbol:
				t.symbols = append(t.symbols, symbolUse{pos, a.bind})
			}
		}
	}
	t.align()
	return t, nil
}

// message lays out a struct msghdr with one byte and SCM_RIGHTS.
func (t *template) message(fds []byte) int {
	payload := t.place([]byte{'F'})
	iov := t.place(make([]byte, 16))
	t.pointer(iov, payload)
	t.word(iov+8, 1)
	n := 16 + 4*len(fds) // cmsghdr and descriptors
	cmsg := t.place(make([]byte, (n+7)&^7))
	t.word(cmsg, uint64(n))
	binary.LittleEndian.PutUint32(t.buf[cmsg+8:], unix.SOL_SOCKET)
	binary.LittleEndian.PutUint32(t.buf[cmsg+12:], unix.SCM_RIGHTS)
	for i, fd := range fds {
		binary.LittleEndian.PutUint32(t.buf[cmsg+16+4*i:], uint32(fd))
	}
	hdr := t.place(make([]byte, 56))
	t.pointer(hdr+16, iov)
	t.word(hdr+24, 1)
	t.pointer(hdr+32, cmsg)
	t.word(hdr+40, uint64((n+7)&^7))
	return hdr
}

// A linked program lies in memory of its own, outside of Go's heap: the child
// reads it while Go runs on, and nothing may move.
type linked struct {
	arena []byte
	rows  []Row
	at    map[string]int // offsets of the symbols' bytes
}

// bind copies the template into memory and gives symbols their values. Memory
// of a run before is used again if it is large enough: unmapping is dear, for
// every thread has to hear of it.
func (t *template) bind(b bindings, arena []byte) (*linked, error) {
	tail, at := 0, map[string]int{} // of what is placed behind the template
	reserve := func(n int) int {
		o := len(t.buf) + tail
		tail += (n + 7) &^ 7
		return o
	}
	for name, v := range b.bytes {
		at[name] = reserve(len(v))
	}
	words := map[string][]int{}
	for name, v := range b.vectors {
		at[name] = reserve(8 * (len(v) + 1))
		for _, s := range v {
			words[name] = append(words[name], reserve(len(s)+1))
		}
	}
	if size := len(t.buf) + tail; len(arena) < size {
		if arena != nil {
			unix.Munmap(arena)
		}
		var err error
		size = (size + 64<<10 - 1) &^ (64<<10 - 1)
		arena, err = unix.Mmap(-1, 0, size, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS)
		if err != nil {
			return nil, fmt.Errorf("map %d bytes: %w", size, err)
		}
	}
	l := &linked{arena: arena, rows: t.rows, at: at}
	copy(arena, t.buf)
	clear(arena[len(t.buf) : len(t.buf)+tail])
	start := uint64(uintptr(unsafe.Pointer(&arena[0])))
	put := func(pos int, v uint64) { binary.LittleEndian.PutUint64(arena[pos:], v) }
	for _, pos := range t.relocs {
		put(pos, start+binary.LittleEndian.Uint64(t.buf[pos:]))
	}
	for name, v := range b.bytes {
		copy(arena[at[name]:], v)
	}
	for name, v := range b.vectors {
		for i, s := range v {
			copy(arena[words[name][i]:], s)
			put(at[name]+8*i, start+uint64(words[name][i]))
		}
	}
	for _, s := range t.symbols {
		if n, ok := b.numbers[s.name]; ok {
			put(s.pos, n)
		} else if o, ok := at[s.name]; ok {
			put(s.pos, start+uint64(o))
		} else {
			return l, fmt.Errorf("$%s is not bound", s.name)
		}
	}
	return l, nil
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
		if n := l.result(i); n < 0 && n > -4096 {
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
