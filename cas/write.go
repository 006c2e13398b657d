package cas

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"
)

// Put stores b and gives its digest. If the blob is there, in the root of class
// c or for Pure in either, it isn't written again, but Collect takes it for new.
// When Put has returned for
// Capture, the blob survives a power cut. On an error the store is as before.
func (s *Store) Put(c Class, b []byte) (Digest, error) {
	d := s.fn.Sum(b)
	have, err := s.present(c, d)
	if err == nil && !have {
		if len(b) > sampleSize {
			_, err = s.putStream(c, d, b[:sampleSize], bytes.NewReader(b[sampleSize:]))
		} else {
			err = s.putSmall(c, d, b)
		}
	}
	if err != nil {
		return Digest{}, fmt.Errorf("write blob %v: %w", d, err)
	}
	return d, nil
}

// PutReader is Put for all that r yields, in memory that doesn't grow with it.
// The digest is only known at the end, so a blob that is there is written to a
// temporary file all the same.
func (s *Store) PutReader(c Class, r io.Reader) (Digest, error) {
	head := make([]byte, sampleSize)
	n, err := io.ReadFull(r, head)
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return s.Put(c, head[:n])
	}
	var d Digest
	if err == nil {
		d, err = s.putStream(c, Digest{}, head, r)
	}
	if err != nil {
		return Digest{}, fmt.Errorf("write blob: %w", err)
	}
	return d, nil
}

// PutFile is Put for a blob whose digest is known: if it is there, open isn't
// called. Content that isn't d is ErrChanged, and isn't kept.
func (s *Store) PutFile(c Class, d Digest, open func() (io.ReadCloser, error)) error {
	fail := func(err error) error { return fmt.Errorf("write blob %v: %w", d, err) }
	if err := d.check(); err != nil {
		return fail(err)
	}
	switch have, err := s.present(c, d); {
	case err != nil:
		return fail(err)
	case have:
		return nil
	}
	r, err := open()
	if err != nil {
		return fail(err)
	}
	err = s.putExactly(c, d, r)
	if err := errors.Join(err, r.Close()); err != nil {
		return fail(err)
	}
	return nil
}

// putExactly stores all that r yields if it is d.
func (s *Store) putExactly(c Class, d Digest, r io.Reader) error {
	head := make([]byte, min(d.Size+1, sampleSize))
	n, err := io.ReadFull(r, head)
	switch {
	case err == nil:
		// No more than shows that it is longer.
		_, err = s.putStream(c, d, head, io.LimitReader(r, d.Size+1-int64(n)))
		return err
	case err != io.EOF && err != io.ErrUnexpectedEOF:
		return err
	}
	if got := s.fn.Sum(head[:n]); got != d {
		return ErrChanged
	}
	return s.putSmall(c, d, head[:n])
}

// present reports whether there is nothing to write.
func (s *Store) present(c Class, d Digest) (bool, error) {
	switch c {
	case Pure:
		f, err := s.find(d, s.roots(Pure))
		// If it can't be read, let us see if it can be written.
		return err == nil && s.spare(d, f.path, f.changed), nil
	case Capture:
		f, err := s.find(d, []*root{s.data})
		if err != nil || !s.spare(d, f.path, f.changed) {
			return false, nil
		}
		return true, f.sync() // it may have been written as a pure one
	}
	return false, c.check()
}

// sync puts the file and its name on the disk.
func (f blobFile) sync() error {
	file, err := os.Open(f.path)
	if err != nil {
		return err
	}
	if err := errors.Join(file.Sync(), file.Close()); err != nil {
		return err
	}
	return f.root.syncDirs(f.path)
}

func (s *Store) putSmall(c Class, d Digest, b []byte) error {
	suffix := ""
	if len(b) >= minCompress {
		packed, err := s.codec.pack(b)
		if err != nil {
			return err
		}
		if packed != nil {
			b, suffix = packed, packedSuffix
		}
	}
	return s.writeSmall(c, s.root(c).blobPath(d)+suffix, d, stampOf(d, int64(len(b))), b)
}

// putStream stores head and then all of r; head decides whether to compress. If
// it isn't want, unless that is zero, nothing is kept.
func (s *Store) putStream(c Class, want Digest, head []byte, r io.Reader) (d Digest, err error) {
	packed, err := s.codec.pack(head)
	if err != nil {
		return Digest{}, err
	}
	err = s.writeFile(c, &d, func(w io.Writer) (string, time.Time, error) {
		size := &counter{w: w}
		all := io.MultiReader(bytes.NewReader(head), r)
		if packed == nil {
			d, err = s.copySum(size, all)
		} else {
			d, err = s.copyPacked(size, all)
		}
		if err != nil {
			return "", time.Time{}, err
		}
		if !want.IsZero() && d != want {
			return "", time.Time{}, ErrChanged
		}
		if have, err := s.present(c, d); have || err != nil {
			return "", time.Time{}, err
		}
		path := s.root(c).blobPath(d)
		if packed != nil {
			path += packedSuffix
		}
		return path, stampOf(d, size.n), nil
	})
	return d, err
}

type counter struct {
	w io.Writer
	n int64
}

func (c *counter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	c.n += int64(n)
	return n, err
}

func (s *Store) copySum(w io.Writer, r io.Reader) (Digest, error) {
	h := s.fn.New()
	n, err := io.CopyBuffer(io.MultiWriter(h, w), r, make([]byte, sampleSize))
	return digestOf(s.fn, h, n), err
}

func (s *Store) copyPacked(w io.Writer, r io.Reader) (Digest, error) {
	pack, err := s.codec.packWriter(w)
	if err != nil {
		return Digest{}, err
	}
	d, err := s.copySum(pack, r)
	if err != nil {
		return Digest{}, err
	}
	return d, pack.Close()
}

// writeFile has fill write a temporary file, gives it the time and renames it
// to the path that fill returns; with path "" nothing is kept. The blob is in d
// after fill. A process killed
// at any point leaves the file at path as it was or whole.
func (s *Store) writeFile(c Class, d *Digest, fill func(io.Writer) (path string, stamp time.Time, err error)) error {
	if err := c.check(); err != nil {
		return err
	}
	r := s.root(c)
	temp, err := r.temp(s.now())
	if err != nil {
		return err
	}
	path, stamp, err := fill(temp)
	if err == nil && path != "" {
		err = finish(temp, 0o444, stamp, c == Capture)
	}
	err = errors.Join(err, temp.Close())
	if err == nil && path != "" {
		err = s.place(r, *d, temp.Name(), path)
	}
	if err != nil || path == "" {
		return errors.Join(err, ignoreAbsent(os.Remove(temp.Name())))
	}
	if c == Capture {
		return r.syncDirs(path)
	}
	return nil
}

// writeSmall is writeFile for bytes at hand. It goes past package os, which
// offers each new file to the network poller: two of nine system calls.
// d is the blob, zero if it is none.
func (s *Store) writeSmall(c Class, path string, d Digest, stamp time.Time, b []byte) error {
	if err := c.check(); err != nil {
		return err
	}
	return s.writeIn(s.root(c), c == Capture, path, d, stamp, b)
}

// writeIn is writeSmall in a root, synced or not.
func (s *Store) writeIn(r *root, sync bool, path string, d Digest, stamp time.Time, b []byte) error {
	temp := r.tempPath(s.now())
	err := writeTemp(temp, stamp, sync, b)
	if err == nil {
		err = s.place(r, d, temp, path)
	}
	if err != nil {
		return errors.Join(err, ignoreAbsent(os.Remove(temp)))
	}
	if sync {
		return r.syncDirs(path)
	}
	return nil
}

// writeTemp makes the file at temp, which isn't there, of mode 0444 and, unless
// stamp is zero, with that time. What it leaves after an error is to be removed.
func writeTemp(temp string, stamp time.Time, sync bool, b []byte) error {
	fd, err := retried(func() (int, error) {
		return unix.Open(temp, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL|unix.O_CLOEXEC, 0o600)
	})
	if err != nil {
		return &fs.PathError{Op: "open", Path: temp, Err: err}
	}
	for rest := b; err == nil && len(rest) > 0; {
		var n int
		n, err = retried(func() (int, error) { return unix.Write(fd, rest) })
		rest = rest[max(n, 0):]
	}
	if err == nil {
		err = unix.Fchmod(fd, 0o444)
	}
	if err == nil && !stamp.IsZero() {
		err = setTime(temp, stamp)
	}
	if err == nil && sync {
		err = unix.Fsync(fd)
	}
	return errors.Join(err, unix.Close(fd))
}

// setTime sets both times of the file at path.
func setTime(path string, t time.Time) error {
	ts := unix.NsecToTimespec(t.UnixNano())
	return unix.UtimesNanoAt(unix.AT_FDCWD, path, []unix.Timespec{ts, ts}, unix.AT_SYMLINK_NOFOLLOW)
}

func ignoreAbsent(err error) error {
	if absent(err) {
		return nil
	}
	return err
}

// finish sets mode and time after the last write, before the sync that is to
// put them on the disk. With a zero stamp the time stays.
func finish(temp *os.File, mode fs.FileMode, stamp time.Time, sync bool) error {
	if err := temp.Chmod(mode); err != nil {
		return err
	}
	if !stamp.IsZero() {
		if err := os.Chtimes(temp.Name(), stamp, stamp); err != nil {
			return err
		}
	}
	if sync {
		return temp.Sync()
	}
	return nil
}

// place gives a finished file its name, that of a blob or copy under the blob's
// lock: Collect must not take it for the old file that it has just looked at.
func (s *Store) place(r *root, d Digest, temp, path string) error {
	if !d.IsZero() {
		if unlock, err := s.lockOffset(context.Background(), blobOffset(d)); err == nil {
			defer unlock()
		}
	}
	return r.rename(temp, path)
}

// rename makes the folders above path only when they turn out to be missing.
func (r *root) rename(temp, path string) error {
	err := os.Rename(temp, path)
	if errors.Is(err, fs.ErrNotExist) {
		if err := makeDirs(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		err = os.Rename(temp, path)
	}
	return err
}
