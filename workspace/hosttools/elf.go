package hosttools

import (
	"debug/elf"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"unicode/utf8"
)

const elfMagic = "\x7fELF"

// object is what a loader wants to know of an ELF file.
type object struct {
	class       elf.Class
	machine     elf.Machine
	interpreter string   // "" for a library or a static program
	needed      []string // in order
	soname      string
	rpath       string // as written: colons, $ORIGIN
	runpath     string
}

// The bounds of what parseELF reads, each far above what linkers write.
const (
	maxSegments = 1 << 10
	maxDynamic  = 1 << 20 // bytes
	maxNeeded   = 1 << 9
	maxText     = 1 << 20 // bytes of all names together
)

var errELF = errors.New("damaged ELF file")

// parseELF reads what a loader reads, the program headers and the dynamic
// segment, and not the sections as debug/elf does: those may be stripped from a
// file that runs well, and their number and sizes are anybody's. What it reads is
// bounded, so that a hostile file costs no more than an honest one.
func parseELF(r io.ReaderAt, size int64) (*object, error) {
	f := &elfReader{r: r, size: size}
	o := &object{}
	segments, err := f.header(o)
	if err != nil {
		return nil, err
	}
	for _, p := range segments {
		switch p.kind {
		case elf.PT_INTERP:
			if o.interpreter, err = f.text(p.offset, p.size); err != nil {
				return nil, fmt.Errorf("%w: interpreter: %w", errELF, err)
			}
		case elf.PT_DYNAMIC:
			if err := f.dynamic(o, p, segments); err != nil {
				return nil, fmt.Errorf("%w: dynamic segment: %w", errELF, err)
			}
		}
	}
	return o, nil
}

type elfReader struct {
	r     io.ReaderAt
	size  int64
	order binary.ByteOrder
	wide  bool // 64 bits
	texts int  // bytes of names read
}

// segment is a program header.
type segment struct {
	kind                  elf.ProgType
	offset, address, size uint64 // size is that in the file
}

func (f *elfReader) read(offset, size uint64) ([]byte, error) {
	if offset > uint64(f.size) || size > uint64(f.size)-offset {
		return nil, io.ErrUnexpectedEOF
	}
	b := make([]byte, size)
	if n, err := f.r.ReadAt(b, int64(offset)); n < len(b) {
		return nil, noEOF(err)
	}
	return b, nil
}

func noEOF(err error) error {
	if err == io.EOF {
		return io.ErrUnexpectedEOF
	}
	return bare(err)
}

// word reads a number as wide as an address.
func (f *elfReader) word(b []byte) uint64 {
	if f.wide {
		return f.order.Uint64(b)
	}
	return uint64(f.order.Uint32(b))
}

func (f *elfReader) header(o *object) ([]segment, error) {
	b, err := f.read(0, 52) // the header of a 32-bit file; the other has 64
	if err != nil {
		return nil, fmt.Errorf("%w: header: %w", errELF, err)
	}
	o.class = elf.Class(b[elf.EI_CLASS])
	f.wide = o.class == elf.ELFCLASS64
	switch data := elf.Data(b[elf.EI_DATA]); {
	case string(b[:4]) != elfMagic, !f.wide && o.class != elf.ELFCLASS32:
		return nil, fmt.Errorf("%w: header: not of 32 or 64 bits", errELF)
	case data == elf.ELFDATA2LSB:
		f.order = binary.LittleEndian
	case data == elf.ELFDATA2MSB:
		f.order = binary.BigEndian
	default:
		return nil, fmt.Errorf("%w: header: unknown byte order", errELF)
	}
	o.machine = elf.Machine(f.order.Uint16(b[18:]))
	table, each, at := uint64(f.order.Uint32(b[28:])), uint64(32), 42
	if f.wide {
		if b, err = f.read(0, 64); err != nil {
			return nil, fmt.Errorf("%w: header: %w", errELF, err)
		}
		table, each, at = f.order.Uint64(b[32:]), 56, 54
	}
	n := uint64(f.order.Uint16(b[at+2:]))
	if n == 0 {
		return nil, nil // an object file of a compiler
	}
	if n > maxSegments || uint64(f.order.Uint16(b[at:])) != each {
		return nil, fmt.Errorf("%w: header: %d program headers of %d bytes", errELF, n, f.order.Uint16(b[at:]))
	}
	if b, err = f.read(table, n*each); err != nil {
		return nil, fmt.Errorf("%w: program headers: %w", errELF, err)
	}
	list := make([]segment, n)
	for i := range list {
		list[i] = f.segment(b[uint64(i)*each:])
	}
	return list, nil
}

// segment decodes {type, flags, offset, vaddr, paddr, filesz, …}, in which a
// 32-bit file has the flags further behind.
func (f *elfReader) segment(b []byte) segment {
	p := segment{kind: elf.ProgType(f.order.Uint32(b))}
	if f.wide {
		p.offset, p.address, p.size = f.word(b[8:]), f.word(b[16:]), f.word(b[32:])
	} else {
		p.offset, p.address, p.size = f.word(b[4:]), f.word(b[8:]), f.word(b[16:])
	}
	return p
}

// dynamic reads the entries up to DT_NULL, then the strings that they point to.
func (f *elfReader) dynamic(o *object, p segment, segments []segment) error {
	if p.size > maxDynamic {
		return errors.New("too large")
	}
	b, err := f.read(p.offset, p.size)
	if err != nil {
		return err
	}
	half := 4
	if f.wide {
		half = 8
	}
	var table uint64 // address of the strings
	type reference struct {
		tag elf.DynTag
		at  uint64
	}
	var texts []reference
	for ; len(b) >= 2*half && f.word(b) != uint64(elf.DT_NULL); b = b[2*half:] {
		tag, value := f.word(b), f.word(b[half:])
		if tag > math.MaxInt32 {
			continue
		}
		switch t := elf.DynTag(tag); t {
		case elf.DT_STRTAB:
			table = value
		case elf.DT_NEEDED, elf.DT_SONAME, elf.DT_RPATH, elf.DT_RUNPATH:
			texts = append(texts, reference{t, value})
		}
	}
	if len(texts) > maxNeeded {
		return errors.New("too many libraries")
	}
	if len(texts) == 0 {
		return nil
	}
	start, left, err := offsetOf(table, segments)
	if err != nil {
		return err
	}
	for _, ref := range texts {
		if ref.at >= left {
			return errors.New("name outside of the strings")
		}
		s, err := f.text(start+ref.at, left-ref.at)
		if err != nil {
			return err
		}
		switch ref.tag {
		case elf.DT_NEEDED:
			o.needed = append(o.needed, s)
		case elf.DT_SONAME:
			o.soname = s
		case elf.DT_RPATH:
			o.rpath = s
		case elf.DT_RUNPATH:
			o.runpath = s
		}
	}
	return nil
}

// offsetOf gives where in the file an address is, and how much of its segment
// follows.
func offsetOf(address uint64, segments []segment) (offset, left uint64, err error) {
	for _, p := range segments {
		if p.kind == elf.PT_LOAD && address >= p.address && address-p.address < p.size {
			skip := address - p.address
			return p.offset + skip, p.size - skip, nil
		}
	}
	return 0, 0, errors.New("strings outside of what is loaded")
}

// text reads a string of at most size bytes that ends with NUL.
func (f *elfReader) text(offset, size uint64) (string, error) {
	var s strings.Builder
	for size > 0 && f.texts < maxText {
		if offset > uint64(f.size) {
			return "", io.ErrUnexpectedEOF
		}
		b, err := f.read(offset, min(size, 128, uint64(f.size)-offset))
		if err != nil {
			return "", err
		}
		if len(b) == 0 {
			return "", io.ErrUnexpectedEOF
		}
		f.texts += len(b)
		part, _, found := strings.Cut(string(b), "\x00")
		s.WriteString(part)
		if found {
			if !utf8.ValidString(s.String()) {
				return "", errors.New("a name is not UTF-8")
			}
			return s.String(), nil
		}
		offset, size = offset+uint64(len(b)), size-uint64(len(b))
	}
	return "", errors.New("a name without end")
}
