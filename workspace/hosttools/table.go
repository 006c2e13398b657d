package hosttools

import (
	"bytes"
	"encoding/binary"
	"errors"
	"maps"
	"slices"

	"github.com/evalbuild/eval/cas"
)

// The file of the stat cache, all numbers little-endian:
//
//	magic     8 bytes "evalhost"
//	version   u32, 1
//	function  u32, the digest function as cas numbers it
//	count     u32, of records
//	kept      u32, records when last pruned
//	          records: u32 length of the path, u32 mode, u32 1 if ELF,
//	            i64 size, mtime, ctime, at; u64 ino, dev; 32 bytes hash; path
//	checksum  32 bytes, BLAKE3 of all before
const (
	tableMagic   = "evalhost"
	tableVersion = 1
	headerSize   = 8 + 4*4
	recordSize   = 3*4 + 6*8 + 32
	checksumSize = 32
)

var (
	errTable = errors.New("not a stat cache of this machine")
	le       = binary.LittleEndian
)

// decodeTable leaves out records that are younger than now: the clock was ahead
// when they were made, so that they say nothing about what came after.
func decodeTable(b []byte, fn cas.Func, now int64) (records map[string]record, kept int, err error) {
	if len(b) < headerSize+checksumSize || string(b[:8]) != tableMagic || le.Uint32(b[8:]) != tableVersion || le.Uint32(b[12:]) != uint32(fn) {
		return nil, 0, errTable
	}
	body := b[:len(b)-checksumSize]
	if h := cas.BLAKE3.Sum(body).Hash; !bytes.Equal(h[:], b[len(body):]) {
		return nil, 0, errTable
	}
	n := int(le.Uint32(b[16:]))
	kept = int(le.Uint32(b[20:]))
	rest := body[headerSize:]
	if n > len(rest)/recordSize {
		return nil, 0, errTable
	}
	records = make(map[string]record, n)
	for range n {
		if len(rest) < recordSize {
			return nil, 0, errTable
		}
		size := le.Uint32(rest)
		r := record{
			facts: facts{
				mode: le.Uint32(rest[4:]), size: int64(le.Uint64(rest[12:])),
				mtime: int64(le.Uint64(rest[20:])), ctime: int64(le.Uint64(rest[28:])),
				ino: le.Uint64(rest[44:]), dev: le.Uint64(rest[52:]),
			},
			elf: le.Uint32(rest[8:]) == 1,
			at:  int64(le.Uint64(rest[36:])),
		}
		copy(r.hash[:], rest[60:])
		rest = rest[recordSize:]
		if uint64(size) > uint64(len(rest)) {
			return nil, 0, errTable
		}
		if r.at <= now {
			records[string(rest[:size])] = r
		}
		rest = rest[size:]
	}
	if len(rest) > 0 {
		return nil, 0, errTable
	}
	return records, kept, nil
}

func encodeTable(records map[string]record, kept int, fn cas.Func) []byte {
	size := headerSize + len(records)*recordSize + checksumSize
	for path := range records {
		size += len(path)
	}
	b := append(make([]byte, 0, size), tableMagic...)
	for _, n := range [...]int{tableVersion, int(fn), len(records), kept} {
		b = le.AppendUint32(b, uint32(n))
	}
	for _, path := range slices.Sorted(maps.Keys(records)) {
		r := records[path]
		elf := uint32(0)
		if r.elf {
			elf = 1
		}
		for _, n := range [...]uint32{uint32(len(path)), r.mode, elf} {
			b = le.AppendUint32(b, n)
		}
		for _, n := range [...]uint64{uint64(r.size), uint64(r.mtime), uint64(r.ctime), uint64(r.at), r.ino, r.dev} {
			b = le.AppendUint64(b, n)
		}
		b = append(append(b, r.hash[:]...), path...)
	}
	sum := cas.BLAKE3.Sum(b)
	return append(b, sum.Hash[:]...)
}
