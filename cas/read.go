package cas

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"hash"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"syscall"
	"time"
)

// blobFile is a file that may hold a blob.
type blobFile struct {
	root   *root
	path   string
	packed bool // compressed, and named so

	changed time.Time // ctime, if find looked at it
}

const packedSuffix = ".zst"

// open opens the file itself: never what a symlink in its place points to, and
// without waiting for the writer of a pipe. A file of another kind is Damaged.
func (f blobFile) open(d Digest) (*os.File, os.FileInfo, error) {
	file, err := os.OpenFile(f.path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	switch {
	case absent(err):
		return nil, nil, &BlobError{Digest: d, Reason: Missing}
	case err != nil:
		if fi, statErr := os.Lstat(f.path); statErr == nil && !fi.Mode().IsRegular() {
			return nil, nil, f.damaged(d, fi)
		}
		return nil, nil, err
	}
	fi, err := file.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = f.damaged(d, fi)
	}
	if err != nil {
		file.Close()
		return nil, nil, err
	}
	return file, fi, nil
}

// absent reports whether a path doesn't exist, also because a folder above it
// is no folder.
func absent(err error) bool {
	return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR)
}

// damaged moves the file to the quarantine if it still is the one in seen.
func (f blobFile) damaged(d Digest, seen os.FileInfo) *BlobError {
	return &BlobError{Digest: d, Reason: Damaged, Moved: f.root.quarantine(f.path, d, seen)}
}

func (f blobFile) stamped(fi os.FileInfo, d Digest) bool {
	return fi.Mode().IsRegular() && (f.packed || fi.Size() == d.Size) && fi.ModTime().Equal(stampOf(d, fi.Size()))
}

// Has returns nil if the store has the blob whole, for the price of one lstat
// if its stamp is right (see Stamp), else of reading it. A *BlobError says that
// it is missing, or damaged and then moved to the quarantine.
func (s *Store) Has(d Digest) error {
	_, err := s.find(d, s.roots(Pure))
	return err
}

// find gives the first intact file of d. If there is none, damage is told
// before a file that couldn't be read, and that before absence.
func (s *Store) find(d Digest, roots []*root) (blobFile, error) {
	if err := d.check(); err != nil {
		return blobFile{}, fmt.Errorf("find blob: %w", err)
	}
	var damage, failure error
	for _, r := range roots {
		path := r.blobPath(d)
		for _, packed := range [2]bool{true, false} {
			if packed && d.Size < minCompress {
				continue
			}
			f := blobFile{root: r, path: path, packed: packed}
			if packed {
				f.path += packedSuffix
			}
			at, err := s.checkFile(f, d)
			if err == nil {
				f.changed = at
				return f, nil
			}
			var blob *BlobError
			switch {
			case !errors.As(err, &blob):
				failure = fmt.Errorf("find blob %v: %w", d, err)
			case blob.Reason == Damaged:
				damage = err
			}
		}
	}
	switch {
	case damage != nil:
		return blobFile{}, damage
	case failure != nil:
		return blobFile{}, failure
	}
	return blobFile{}, &BlobError{Digest: d, Reason: Missing}
}

// checkFile gives the file's ctime too, the zero time if it had to be read.
func (s *Store) checkFile(f blobFile, d Digest) (time.Time, error) {
	fi, err := os.Lstat(f.path)
	switch {
	case absent(err):
		return time.Time{}, &BlobError{Digest: d, Reason: Missing}
	case err != nil:
		return time.Time{}, err
	case f.stamped(fi, d):
		return s.changed(fi), nil
	}
	return time.Time{}, s.settle(f, d)
}

// settle reads the file to the end and decides what it is: nil, and stamped
// again, if it is the blob; Damaged if its content is not what its name says;
// Missing if it is, but d has the wrong size, which is no fault of the file.
func (s *Store) settle(f blobFile, d Digest) error {
	got, fi, err := s.sumFile(context.Background(), f, d)
	switch {
	case err != nil:
		return err
	case got.Hash != d.Hash:
		return f.damaged(d, fi)
	case got.Size != d.Size:
		return &BlobError{Digest: d, Reason: Missing}
	}
	f.restamp(d, fi)
	return nil
}

// restamp does its best: without a stamp the blob is read again the next time.
func (f blobFile) restamp(d Digest, fi os.FileInfo) {
	if stamp := stampOf(d, fi.Size()); !fi.ModTime().Equal(stamp) {
		os.Chtimes(f.path, stamp, stamp)
	}
}

// sumFile gives the digest of what the file holds, by the function of d. A
// frame that can't be unpacked is Damaged, moved if its hash was to be d's.
func (s *Store) sumFile(ctx context.Context, f blobFile, d Digest) (Digest, os.FileInfo, error) {
	file, fi, err := f.open(d)
	if err != nil {
		return Digest{}, nil, err
	}
	defer file.Close()
	src := &source{ctx: ctx, file: file}
	var r io.Reader = src
	if f.packed {
		unpack, err := s.codec.unpackReader(src)
		if err != nil {
			return Digest{}, nil, err
		}
		defer unpack.Close()
		r = unpack
	}
	got, err := d.Func.SumReader(r)
	switch {
	case src.err != nil:
		return Digest{}, nil, src.err
	case err != nil:
		return Digest{}, nil, f.damaged(d, fi)
	}
	return got, fi, nil
}

// source keeps errors of the file apart from those of the decoder above it.
type source struct {
	ctx  context.Context
	file *os.File
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	if s.err = s.ctx.Err(); s.err != nil {
		return 0, s.err
	}
	n, err := s.file.Read(p)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}

// Open gives a reader of the blob, or a *BlobError as Has does. Its Read
// verifies: if the content turns out wrong it returns a *BlobError in place of
// the last bytes, so that no reader of the whole blob can miss it.
func (s *Store) Open(d Digest) (io.ReadCloser, error) {
	f, err := s.find(d, s.roots(Pure))
	if err != nil {
		return nil, err
	}
	return s.openFile(f, d)
}

func (s *Store) openFile(f blobFile, d Digest) (*blobReader, error) {
	file, _, err := f.open(d)
	if err != nil {
		return nil, err
	}
	r := &blobReader{store: s, f: f, want: d, left: d.Size, hash: d.Func.New(), src: source{ctx: context.Background(), file: file}}
	r.plain = &r.src
	if f.packed {
		if r.unpack, err = s.codec.unpackReader(&r.src); err != nil {
			file.Close()
			return nil, err
		}
		r.plain = r.unpack
	}
	return r, nil
}

// blobReader hashes what it hands out.
type blobReader struct {
	store  *Store
	f      blobFile
	want   Digest
	left   int64 // bytes of want that are still to come
	hash   hash.Hash
	src    source
	unpack *unpackReader // nil if stored as it is
	plain  io.Reader
	err    error // what every further Read returns
}

func (r *blobReader) Read(p []byte) (int, error) {
	if r.err != nil || len(p) == 0 {
		return 0, r.err
	}
	n := 0
	var err error
	if r.left > 0 {
		n, err = r.plain.Read(p[:min(int64(len(p)), r.left)])
		r.hash.Write(p[:n])
		r.left -= int64(n)
	}
	switch {
	case r.left == 0:
		r.err = r.atEnd()
	case err != nil:
		r.err = r.fail()
	}
	if r.err != nil && r.err != io.EOF {
		return 0, r.err
	}
	if n == 0 {
		return 0, r.err
	}
	return n, nil
}

// atEnd gives io.EOF if nothing follows and the hash is right.
func (r *blobReader) atEnd() error {
	var more [1]byte
	n, err := io.ReadFull(r.plain, more[:])
	if n == 0 && err == io.EOF && digestOf(r.want.Func, r.hash, r.want.Size) == r.want {
		return io.EOF
	}
	return r.fail()
}

// fail tells trouble with reading from damage, and has damage put away.
func (r *blobReader) fail() error {
	if r.src.err != nil {
		return fmt.Errorf("read blob %v: %w", r.want, r.src.err)
	}
	if err := r.store.settle(r.f, r.want); err != nil {
		return err
	}
	// Somebody has put a good file in the place of the one that we had open.
	return &BlobError{Digest: r.want, Reason: Damaged}
}

func (r *blobReader) Close() error {
	if r.unpack != nil {
		r.unpack.Close()
		r.unpack = nil
	}
	if r.err == nil {
		r.err = fs.ErrClosed
	}
	return r.src.file.Close()
}

// Read gives the whole blob, verified, or a *BlobError as Has does.
func (s *Store) Read(d Digest) (b []byte, err error) {
	small := func(all []byte) error {
		b = all
		return nil
	}
	err = s.withBlob(d, small, func(r *blobReader) error {
		b, err = readAll(r, d.Size)
		return err
	})
	if err != nil {
		return nil, err
	}
	return b, nil
}

// withBlob opens d for fn, and again if the file turned out damaged and was
// moved away: there may be a good one in the other root. Of a blob that is too
// small to be compressed, small gets the verified bytes instead, unless it is nil:
// that takes half the system calls.
func (s *Store) withBlob(d Digest, small func([]byte) error, fn func(*blobReader) error) error {
	for {
		f, err := s.find(d, s.roots(Pure))
		if err != nil {
			return err
		}
		if small != nil && d.Size < minCompress {
			// Whatever is wrong, the reader finds out what.
			if b, _, err := readResult(f.path); err == nil && d.Func.Sum(b) == d {
				return small(b)
			}
		}
		r, err := s.openFile(f, d)
		if err == nil {
			err = cmp.Or(fn(r), r.Close())
		}
		var blob *BlobError
		if !errors.As(err, &blob) || blob.Moved == "" {
			return err
		}
		if _, gone := s.find(d, s.roots(Pure)); gone != nil {
			return err
		}
	}
}

// readAll doesn't trust the size with more memory than has been read.
func readAll(r io.Reader, size int64) ([]byte, error) {
	b := make([]byte, 0, min(size+1, 1<<20))
	for {
		n, err := r.Read(b[len(b):cap(b)])
		b = b[:len(b)+n]
		switch {
		case err == io.EOF:
			return b, nil
		case err != nil:
			return nil, err
		case len(b) == cap(b):
			b = append(b, 0)[:len(b)]
		}
	}
}

// quarantine moves the file at path away if it is the one in seen, and gives
// its new place, or "" if it couldn't be moved or another has taken its name.
func (r *root) quarantine(path string, d Digest, seen os.FileInfo) string {
	fi, err := os.Lstat(path)
	if err != nil || !os.SameFile(fi, seen) {
		return ""
	}
	if err := makeDirs(r.path("quarantine"), 0o755); err != nil {
		return ""
	}
	// A folder of its own, so that nothing in the quarantine is replaced and a
	// folder in the place of a file can be moved too.
	dir, err := os.MkdirTemp(r.path("quarantine"), d.Func.String()+"-"+d.Hex()+"-*")
	if err != nil {
		return ""
	}
	to := filepath.Join(dir, filepath.Base(path))
	if err = os.Chmod(dir, 0o755); err == nil {
		err = os.Rename(path, to)
	}
	if err != nil {
		os.Remove(dir)
		return ""
	}
	if fi, err := os.Lstat(to); err == nil && !os.SameFile(fi, seen) {
		// A writer replaced the damaged file between lstat and rename.
		if os.Rename(to, path) == nil {
			os.Remove(dir)
		}
		return ""
	}
	return to
}
