package cas

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/zeebo/blake3"
	"golang.org/x/sys/unix"
)

// A result file is a line that says its class, 32 bytes of BLAKE3 over that
// line, the key and the message, and the message. The key is in the sum so that
// a file under another's name is no answer. No single changed byte makes one
// header the other.
const (
	pureHeader    = "eval result 1: pure\n"
	captureHeader = "eval result 1: capture\n"
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
	return append(b, msg...)
}

func decodeResultFile(key Digest, b []byte) (Class, []byte, error) {
	for _, c := range [2]Class{Pure, Capture} {
		rest, ok := bytes.CutPrefix(b, []byte(resultHeader(c)))
		if !ok || len(rest) < 32 {
			continue
		}
		sum, msg := rest[:32], rest[32:]
		if [32]byte(sum) == resultSum(resultHeader(c), key, msg) {
			return c, msg, nil
		}
	}
	return 0, nil, errors.New("its checksum is wrong")
}

// record is what is stored under a key.
type record struct {
	root  *root
	class Class  // what it is or, if it is damaged, has to be taken for
	msg   []byte // the encoded Result
	err   error  // why msg can't be had
}

// load gives the record of key in the first of the roots that has one, or nil.
func (s *Store) load(key Digest, roots []*root) *record {
	for _, r := range roots {
		b, err := readResult(r.resultPath(key))
		if absent(err) {
			continue
		}
		rec := &record{root: r, err: err}
		if err == nil {
			rec.class, rec.msg, rec.err = decodeResultFile(key, b)
		}
		if rec.err != nil {
			rec.class = s.suspect(r, b, err)
		}
		return rec
	}
	return nil
}

// readResult is os.ReadFile without following a symlink or waiting for a pipe,
// and without offering the file to the network poller: that was half the time of
// a Lookup.
func readResult(path string) ([]byte, error) {
	fd, err := retried(func() (int, error) {
		return unix.Open(path, unix.O_RDONLY|unix.O_CLOEXEC|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	})
	if err != nil {
		return nil, err
	}
	defer unix.Close(fd)
	b := make([]byte, 0, 1024)
	for {
		room := cap(b) - len(b)
		n, err := retried(func() (int, error) { return unix.Read(fd, b[len(b):cap(b)]) })
		if err != nil {
			return nil, err
		}
		// A read of a plain file that gives less than asked was the last one;
		// if it ever is not, the checksum fails and costs a miss.
		if b = b[:len(b)+n]; n < room {
			return b, nil
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
	case len(b) == 0, bytes.HasPrefix(b, []byte(pureHeader)):
		return Pure
	}
	return Capture
}

// Lookup gives the result of key if each blob that it names is in the store
// (see Has), in either root. Otherwise the error is a *MissError, or an
// *IncompleteError if a capture is recorded that can't be given back whole. c is
// the class of what the key is of. Pure asks the Cache root alone: no key is of
// both classes, since what a draw is is in its key. Capture asks both.
func (s *Store) Lookup(c Class, key Digest) (Result, error) {
	if err := key.check(); err != nil {
		return Result{}, fmt.Errorf("look up %v: %w", key, err)
	}
	roots := s.roots(Capture)
	if c == Pure {
		roots = []*root{s.cache}
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
	role, err := s.incomplete(result, s.roots(rec.class))
	var blob *BlobError
	switch {
	case errors.As(err, &blob):
		return Result{}, rec.lost(key, role+" is "+blob.Reason.String(), err)
	case err != nil:
		return Result{}, rec.lost(key, role+" can't be read: "+err.Error(), err)
	}
	return result, nil
}

// incomplete gives the first error of a blob that r needs, and what that is to
// the reader of the error. Of the folders it reads the trees, and looks at each
// file of each distinct directory.
func (s *Store) incomplete(r Result, roots []*root) (role string, err error) {
	has := func(what string, d Digest) error {
		role = what
		_, err := s.find(d, roots)
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
// same again does nothing, anything else under its key is an error. The caller
// holds Lock(key).
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
	if role, err := s.incomplete(r, roots); err != nil {
		return fmt.Errorf("%s: %w", role, err)
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
			return blobFile{root: old.root, path: path}.sync()
		}
		return nil
	case old.class == Capture:
		return errors.New("another capture is recorded under this key")
	}
	return s.writeSmall(c, path, time.Time{}, encodeResultFile(c, key, msg))
}

// putAway moves a record that can't be read to the quarantine.
func (rec *record) putAway(key Digest) {
	path := rec.root.resultPath(key)
	if fi, err := os.Lstat(path); err == nil {
		rec.root.quarantine(path, key, fi)
	}
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
