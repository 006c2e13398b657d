package cas

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// A result file is a line that says its class, 32 bytes of BLAKE3 over that
// line, the key and the message, 8 bytes with the size in the key, and the
// message. The key is in the sum so that a file under another's name is no
// answer; its size is in the file since the name has only the hash, and who
// lists results must be able to check them. No single changed byte makes one
// header the other.
const (
	pureHeader    = "eval result 2: pure\n"
	captureHeader = "eval result 2: capture\n"
	// formerHeader is of pure results without the size; they count for nothing.
	formerHeader = "eval result 1: pure\n"
)

func resultHeader(c Class) string {
	if c == Capture {
		return captureHeader
	}
	return pureHeader
}

func resultSum(header string, key Digest, msg []byte) (sum [32]byte) {
	scratch := scratches.Get().(*[]byte)
	b := append(append(append((*scratch)[:0], header...), key.String()...), msg...)
	sum = blake3.Sum256(b)
	*scratch = b
	scratches.Put(scratch)
	return sum
}

// scratches are what resultSum copies into: a blake3.Hasher is 10 kB large.
var scratches = sync.Pool{New: func() any { return new([]byte) }}

func encodeResultFile(c Class, key Digest, msg []byte) []byte {
	b := []byte(resultHeader(c))
	sum := resultSum(resultHeader(c), key, msg)
	b = append(b, sum[:]...)
	b = binary.LittleEndian.AppendUint64(b, uint64(key.Size))
	return append(b, msg...)
}

// decodeResultFile reads the file that has key's function and hash in its path.
// The key that it gives has the size in the file.
func decodeResultFile(key Digest, b []byte) (Digest, Class, []byte, error) {
	for _, c := range [2]Class{Pure, Capture} {
		rest, ok := bytes.CutPrefix(b, []byte(resultHeader(c)))
		if !ok || len(rest) < 40 {
			continue
		}
		sum, size, msg := rest[:32], rest[32:40], rest[40:]
		key.Size = int64(binary.LittleEndian.Uint64(size))
		if [32]byte(sum) == resultSum(resultHeader(c), key, msg) {
			return key, c, msg, nil
		}
	}
	if bytes.HasPrefix(b, []byte(formerHeader)) {
		return Digest{}, 0, nil, errFormer
	}
	return Digest{}, 0, nil, errChecksum
}

var (
	errChecksum = errors.New("its checksum is wrong")
	errFormer   = errors.New("an earlier version of eval wrote it")
)

// record is what is stored under a key.
type record struct {
	root  *root
	class Class  // what it is or, if it is damaged, has to be taken for
	msg   []byte // the encoded Result
	err   error  // why msg can't be had
	used  time.Time
}

// load gives the record of key in the first of the roots that has one, or nil.
func (s *Store) load(key Digest, roots []*root) *record {
	for _, r := range roots {
		got, rec := s.loadFile(r, r.resultPath(key), key)
		switch {
		case rec == nil:
			continue
		case rec.err == nil && got != key:
			rec.err = errChecksum
		}
		return rec
	}
	return nil
}

// loadFile is load for the file at path, of a key of which only function and
// hash need be known; it gives the whole.
func (s *Store) loadFile(r *root, path string, key Digest) (Digest, *record) {
	b, used, err := readResult(path)
	if absent(err) {
		return Digest{}, nil
	}
	rec := &record{root: r, err: err, used: used}
	if err == nil {
		key, rec.class, rec.msg, rec.err = decodeResultFile(key, b)
	}
	if rec.err != nil {
		rec.class = s.suspect(r, b, err)
	}
	return key, rec
}

// readResult is os.ReadFile without following a symlink or waiting for a pipe,
// and without offering the file to the network poller: that was half the time of
// a Lookup. It gives the modification time too.
func readResult(path string) ([]byte, time.Time, error) {
	fd, err := retried(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, time.Time{}, err
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil {
		return nil, time.Time{}, err
	}
	used := time.Unix(st.Mtim.Unix())
	b := make([]byte, 0, 1024)
	for {
		room := cap(b) - len(b)
		n, err := retried(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, used, err
		}
		// A read of a plain file that gives less than asked was the last one;
		// if it ever is not, the checksum fails and costs a miss.
		if b = b[:len(b)+n]; n < room {
			return b, used, nil
		}
		b = append(b, 0)[:len(b)]
	}
}

func retried(call func() (int, error)) (int, error) {
	for {
		n, err := call()
		if !errors.Is(err, unix.EINTR) {
			return n, err
		}
	}
}

// suspect gives the class of a record that is damaged. In doubt it is a
// capture: the price of being wrong is then a question to the user, and not a
// draw that is made again. An empty file is what a power cut leaves of a pure
// one; a capture has been fsynced before it had its name.
func (s *Store) suspect(r *root, b []byte, readErr error) Class {
	switch {
	case s.cache != s.data && r == s.cache:
		return Pure
	case s.cache != s.data:
		return Capture
	case readErr != nil:
		return Capture
	case len(b) == 0, bytes.HasPrefix(b, []byte(pureHeader)), bytes.HasPrefix(b, []byte(formerHeader)):
		return Pure
	}
	return Capture
}

// Lookup gives the result of key if each blob that it names is in the store
// (see Has), in either root. Otherwise the error is a *MissError, or an
// *IncompleteError if a capture is recorded that can't be given back whole. c is
// the class of what the key is of. Pure asks the Cache root alone: no key is of
// both classes, since what a draw is is in its key. Capture asks both, and gives a
// *TombstoneError if the capture was deleted. That a pure result was used is
// recorded once a day, for Collect.
func (s *Store) Lookup(c Class, key Digest) (Result, error) {
	if err := key.check(); err != nil {
		return Result{}, fmt.Errorf("look up %v: %w", key, err)
	}
	roots := s.roots(Capture)
	if c == Pure {
		roots = []*root{s.cache}
	} else if t, err := s.tombstone(key); err != nil {
		return Result{}, err
	} else if t != nil {
		return Result{}, &TombstoneError{*t}
	}
	rec := s.load(key, roots)
	if rec == nil {
		return Result{}, &MissError{Key: key, Reason: "no result"}
	}
	if rec.err != nil {
		if c == Pure { // what it was doesn't matter: no capture is asked for
			rec.class = Pure
		}
		return Result{}, rec.lost(key, "the result can't be read: "+rec.err.Error(), rec.err)
	}
	result, err := DecodeResult(key.Func, rec.msg)
	if err != nil {
		return Result{}, rec.lost(key, "the result can't be read: "+err.Error(), err)
	}
	role, err := s.incomplete(result, s.roots(rec.class), false)
	var blob *BlobError
	switch {
	case errors.As(err, &blob):
		return Result{}, rec.lost(key, role+" is "+blob.Reason.String(), err)
	case err != nil:
		return Result{}, rec.lost(key, role+" can't be read: "+err.Error(), err)
	}
	s.look(rec, key)
	return result, nil
}

// incomplete gives the first error of a blob that r needs, and what that is to
// the reader of the error. Of the folders it reads the trees, and looks at each
// file of each distinct directory. With spare, Collect is kept from the blobs.
func (s *Store) incomplete(r Result, roots []*root, spare bool) (role string, err error) {
	has := func(what string, d Digest) error {
		role = what
		f, err := s.find(d, roots)
		if err == nil && spare && !s.spare(d, f.path, f.changed) {
			err = &BlobError{Digest: d, Reason: Missing}
		}
		return err
	}
	if err := r.eachBlob(has); err != nil {
		return role, err
	}
	seen := map[Digest]bool{}
	for _, f := range r.Folders {
		role = f.Path
		t, err := s.ReadTree(f.Tree)
		if err == nil {
			err = t.eachFile(seen, f.Path+"/", func(path string, f FileNode) error { return has(path, f.Digest) })
		}
		if err != nil {
			return role, err
		}
	}
	return "", nil
}

func (rec *record) lost(key Digest, reason string, cause error) error {
	if rec.class == Capture {
		return &IncompleteError{Key: key, Reason: reason, Err: cause}
	}
	return &MissError{Key: key, Reason: reason, Err: cause}
}

// PutResult records r under key, which must have the digest function of r's
// digests. Every blob of r must be in the store, for Capture in the Data root
// (Put with that class sees to it). A capture is never replaced: recording the
// same again does nothing, anything else under its key is an error, after a
// DeleteCapture too (*TombstoneError). The caller holds Lock(key).
func (s *Store) PutResult(c Class, key Digest, r Result) error {
	if err := s.putResult(c, key, r); err != nil {
		return fmt.Errorf("write result %v: %w", key, err)
	}
	return nil
}

func (s *Store) putResult(c Class, key Digest, r Result) error {
	msg, err := r.Encode()
	if err := cmp.Or(err, key.check(), c.check()); err != nil {
		return err
	}
	roots := s.roots(c)
	if c == Capture {
		roots = []*root{s.data}
	}
	err = r.eachBlob(func(role string, d Digest) error {
		if d.Func != key.Func {
			return fmt.Errorf("%s has a digest of %v under a key of %v", role, d.Func, key.Func)
		}
		return nil
	})
	if err != nil {
		return err
	}
	if role, err := s.incomplete(r, roots, true); err != nil {
		return fmt.Errorf("%s: %w", role, err)
	}
	if c == Capture {
		if err := s.mayReturn(key, msg); err != nil {
			return err
		}
	}
	path := s.root(c).resultPath(key)
	switch old := s.load(key, s.roots(c)); {
	case old == nil:
	case old.err != nil: // whatever it was, it goes to the quarantine
		old.putAway(key)
	case old.class == Capture && c != Capture:
		return errors.New("a capture is recorded under this key")
	case old.class == c && bytes.Equal(old.msg, msg):
		if c == Capture {
			if err := (blobFile{root: old.root, path: path}).sync(); err != nil {
				return err
			}
			return s.returned(key)
		}
		s.look(old, key)
		return nil
	case old.class == Capture:
		return errors.New("another capture is recorded under this key")
	}
	err = s.writeSmall(c, path, Digest{}, time.Time{}, encodeResultFile(c, key, msg))
	if err == nil && c == Capture {
		err = s.returned(key)
	}
	return err
}

// putAway moves a record that can't be read to the quarantine, and gives its
// new place as quarantine does.
func (rec *record) putAway(key Digest) string {
	path := rec.root.resultPath(key)
	fi, err := os.Lstat(path)
	if err != nil {
		return ""
	}
	return rec.root.quarantine(path, key, fi)
}

// Delete forgets the result of key, a capture too; its blobs stay. It is no
// error if there is none.
func (s *Store) Delete(key Digest) error {
	for _, r := range s.roots(Pure) {
		path := r.resultPath(key)
		err := ignoreAbsent(os.Remove(path))
		if err == nil {
			continue
		}
		// Whatever else is in the place of a result isn't ours to delete.
		if fi, statErr := os.Lstat(path); statErr != nil || r.quarantine(path, key, fi) == "" {
			return fmt.Errorf("delete result %v: %w", key, err)
		}
	}
	return nil
}
