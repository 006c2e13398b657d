package pid1

import (
	"encoding/binary"
	"fmt"
)

// Where an image lies. The address is fixed: there is nothing in the process
// to hide from, and no relocation to do. Segments are 64 KiB apart, since
// arm64 may have such pages.
const (
	textBase  = 0x10000000
	stateBase = textBase + segmentAlign
	dataBase  = textBase + headerSize

	segmentAlign = 0x10000
	ehdrSize     = 64
	phdrSize     = 56
	headerSize   = ehdrSize + 3*phdrSize
)

// image wraps p as a static ELF executable: one segment of headers, constants
// and code that can be read and executed, one of zeroes that can be written,
// and a stack that can't be executed. There are no sections.
func image(p *program, be *backend) ([]byte, error) {
	text, err := assemble(p, be)
	if err != nil {
		return nil, err
	}
	size := headerSize + len(p.data) + len(text)
	if size > segmentAlign || p.state > segmentAlign {
		return nil, fmt.Errorf("image of %d bytes, state of %d: too large for a segment", size, p.state)
	}
	le := binary.LittleEndian
	b := make([]byte, 0, size)
	b = append(b, 0x7f, 'E', 'L', 'F', 2 /* 64 bits */, 1 /* little-endian */, 1, 0)
	b = le.AppendUint64(b, 0)
	b = le.AppendUint16(b, 2) // ET_EXEC
	b = le.AppendUint16(b, be.machine)
	b = le.AppendUint32(b, 1)
	b = le.AppendUint64(b, uint64(dataBase+len(p.data))) // entry
	b = le.AppendUint64(b, ehdrSize)                     // program headers
	b = le.AppendUint64(b, 0)                            // section headers
	b = le.AppendUint32(b, 0)
	for _, v := range []uint16{ehdrSize, phdrSize, 3, 0, 0, 0} {
		b = le.AppendUint16(b, v)
	}
	const x, w, r = 1, 2, 4
	b = appendSegment(b, 1, r|x, textBase, size, size, segmentAlign)
	b = appendSegment(b, 1, r|w, stateBase, 0, int(p.state), segmentAlign)
	b = appendSegment(b, 0x6474e551 /* PT_GNU_STACK */, r|w, 0, 0, 0, 16)
	b = append(b, p.data...)
	return append(b, text...), nil
}

func appendSegment(b []byte, kind, flags uint32, addr, inFile, inMemory, align int) []byte {
	le := binary.LittleEndian
	b = le.AppendUint32(b, kind)
	b = le.AppendUint32(b, flags)
	for _, v := range []int{0 /* offset */, addr, addr, inFile, inMemory, align} {
		b = le.AppendUint64(b, uint64(v))
	}
	return b
}
