package cas

import (
	"context"
	"encoding/binary"
	"os"
	"time"
)

// How Collect and writers share a store without waiting for each other.
//
// Blobs are written before the result that names them, so a blob without a name
// may be garbage or about to be named. Its age tells: Collect removes a blob or
// plain copy only if its inode was last changed before the start of the
// collection less graceTime. (Stamps are the modification time, so age is taken
// from ctime, which nobody can set back.) A writer that finds the blob that it
// wants to write there makes it young (spare) before it counts on it, and
// PutResult does so with every blob of the result. So:
//
//   - A result that was recorded before the collection began is seen by it, and
//     so are the blobs that it names.
//   - The blobs of a result recorded later were made young by its PutResult, at
//     most graceTime/2 before the collection began or after that: too young to
//     be removed, however long the collection takes. The assumption is that
//     PutResult takes less than graceTime/2, and Put to PutResult too.
//   - Between Collect's look at a file and its removal a writer could make it
//     young, or put another in its place. All of this happens under the lock of
//     the blob: either Collect sees a young file and keeps it, or the writer finds
//     it gone and writes it anew. A file that is
//     young enough already needs no lock, since graceTime/2 lies between what a
//     writer trusts and what Collect removes.
//
// Where the assumption fails (a process stopped for half an hour between two
// calls), a result names a blob that is gone, which Lookup tells.
const graceTime = time.Hour

// lookAge is how old the recorded use of a result may grow before a Lookup
// records another: a no-op build of many results must not write as many times.
const lookAge = 24 * time.Hour

// spare makes the file young, so that no collection that has begun or begins
// within half of the grace time removes it. It reports false if the file is
// gone. Where it can't be touched, in a store that is another user's or
// read-only, it does nothing.
func (s *Store) spare(d Digest, path string, changed time.Time) bool {
	if s.now().Sub(changed) < s.grace/2 {
		return true
	}
	unlock, err := s.lockOffset(context.Background(), blobOffset(d))
	if err == nil {
		defer unlock()
	}
	fi, err := os.Lstat(path)
	if absent(err) {
		return false
	}
	if err == nil && fi.Mode().IsRegular() {
		os.Chmod(path, fi.Mode().Perm()) // to the mode that it has: only ctime moves
	}
	return true
}

// blobOffset gives the byte of the lock file that stands for the blob. Those of
// keys are below: a key is the digest of a blob too, and may be locked meanwhile.
func blobOffset(d Digest) int64 {
	return 1<<62 | int64(binary.LittleEndian.Uint64(d.Hash[:])>>2)
}

// look records that a pure result was used, in its modification time, once a
// day. Where that can't be written, it stays as it is.
func (s *Store) look(rec *record, key Digest) {
	if now := s.now(); rec.class == Pure && now.Sub(rec.used) > lookAge {
		setTime(rec.root.resultPath(key), now)
	}
}
