package cas

import (
	"encoding/binary"
	"os"
	"time"
)

// The stamps lie in the year 2000: far from the clock of any write by accident,
// and inside what every file system can store. It was a leap year.
const (
	stampBase    = 946684800 // 2000-01-01T00:00:00Z in Unix seconds
	stampSeconds = 366 * 24 * 60 * 60
)

// Stamp gives the modification time that the store sets on each file whose
// content is d: about 55 bits of the digest, in the year 2000. A file that has
// it was written by a store and not touched by a program that leaves the time
// to the system, as editors, shells and compilers do. So one lstat tells whether
// a blob is intact, where hashing would read everything on every build.
//
// It can't notice a program that sets times on purpose (touch -r, a hostile
// utimes) or bits that rot below the file system. Reading does, because it
// always hashes, and so does Verify. On a file system with coarser times than
// nanoseconds no stamp holds; blobs are then hashed each time, slow but right.
func Stamp(d Digest) time.Time { return stampOf(d, d.Size) }

// stampOf is Stamp for a file of which size bytes are on the disk. Those of a
// compressed blob differ from d.Size, and with them in the stamp a compressed
// file that a power cut has shortened doesn't pass for whole.
func stampOf(d Digest, size int64) time.Time {
	const odd = 0x9e3779b97f4a7c15 // spreads the sizes over all bits
	sec := binary.LittleEndian.Uint64(d.Hash[0:]) ^ uint64(d.Size)*odd
	nano := binary.LittleEndian.Uint64(d.Hash[8:]) ^ uint64(size)*odd
	return time.Unix(stampBase+int64(sec%stampSeconds), int64(nano%1e9))
}

// Stamped reports whether fi is a regular file of d's size and stamp, which is
// true of untouched files that Export has written.
func Stamped(fi os.FileInfo, d Digest) bool {
	return fi.Mode().IsRegular() && fi.Size() == d.Size && fi.ModTime().Equal(Stamp(d))
}
