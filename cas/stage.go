package cas

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
)

// executableSuffix is of executable copies.
const executableSuffix = "x"

// Stage gives the absolute path of a plain file with the content of d, to be
// bound into the root of a sealed process: mode 0444 or, executable, 0555, and
// never written. It is the store's, in plain/ of the cache root, and kept there
// until Collect finds it unused. A file that is there counts if mode, size and stamp are
// right, for the price of one lstat (Stamp says what that can't notice); else it
// is made again, which doesn't disturb a process that has the old one.
//
// The content comes from open, read from its beginning, or if that is nil from
// the blob of d; what isn't exactly d is an error. Blobs that happen to be plain
// are not handed out themselves: damaged ones move to the quarantine, and the
// modes differ. Where the file system can, blocks are shared all the same.
func (s *Store) Stage(d Digest, executable bool, open func() (io.ReadCloser, error)) (path string, err error) {
	if err := d.check(); err != nil {
		return "", fmt.Errorf("stage: %w", err)
	}
	mode := fs.FileMode(0o444)
	path = s.cache.fanOut("plain", d)
	if executable {
		mode, path = 0o555, path+executableSuffix
	}
	fi, err := os.Lstat(path)
	if err == nil && Stamped(fi, d) && fi.Mode().Perm() == mode && s.spare(d, path, s.changed(fi)) {
		return path, nil
	}
	if err == nil && fi.IsDir() { // no rename replaces it
		s.cache.quarantine(path, d, fi)
	}
	if open == nil {
		err = s.withBlob(d, nil, func(r *blobReader) error {
			return s.stage(d, mode, path, func(temp *os.File) error { return stageBlob(temp, r) })
		})
	} else {
		err = s.stage(d, mode, path, func(temp *os.File) error { return stageSource(temp, d, open) })
	}
	if err != nil {
		return "", fmt.Errorf("stage %v: %w", d, err)
	}
	return path, nil
}

// stage makes the file at path. All goes by name after fill, since a clone on
// macOS is another file than the one that was opened.
func (s *Store) stage(d Digest, mode fs.FileMode, path string, fill func(temp *os.File) error) error {
	temp, err := s.cache.temp(s.now())
	if err != nil {
		return err
	}
	name := temp.Name()
	err = errors.Join(fill(temp), temp.Close())
	if err == nil {
		err = os.Chmod(name, mode)
	}
	if err == nil {
		err = setTime(name, Stamp(d))
	}
	if err == nil {
		err = s.placeOnce(d, mode, name, path)
	}
	if err != nil {
		return errors.Join(err, ignoreAbsent(os.Remove(name)))
	}
	return nil
}

// placeOnce is place for a file that another may have made meanwhile: whoever
// has that one open and is about to bind it looks whether it still has its name.
func (s *Store) placeOnce(d Digest, mode fs.FileMode, temp, path string) error {
	unlock, err := s.lockOffset(context.Background(), blobOffset(d))
	if err != nil {
		return err
	}
	defer unlock()
	if fi, err := os.Lstat(path); err == nil && Stamped(fi, d) && fi.Mode() == mode {
		return os.Remove(temp)
	}
	return s.cache.rename(temp, path)
}

func stageBlob(temp *os.File, r *blobReader) error {
	if r.unpack == nil && r.want.Size >= minCompress && clone(temp, r.src.file) == nil {
		return r.verifyClone(temp.Name())
	}
	_, err := io.Copy(temp, r)
	return err
}

// ErrChanged says that content isn't what its digest says.
var ErrChanged = errors.New("the content has changed since it was digested")

func stageSource(temp *os.File, d Digest, open func() (io.ReadCloser, error)) error {
	src, err := open()
	if err != nil {
		return err
	}
	got, err := copyStaged(temp, src, d)
	if err := errors.Join(err, src.Close()); err != nil {
		return err
	}
	if got != d {
		return ErrChanged
	}
	return nil
}

// copyStaged gives the digest of what is in temp afterwards. A source that has
// grown is read no further than shows that.
func copyStaged(temp *os.File, src io.Reader, d Digest) (Digest, error) {
	if file, ok := src.(*os.File); ok && d.Size >= minCompress && clone(temp, file) == nil {
		made, err := os.Open(temp.Name())
		if err != nil {
			return Digest{}, err
		}
		defer made.Close()
		return d.Func.SumReader(made)
	}
	h := d.Func.New()
	n, err := io.Copy(io.MultiWriter(temp, h), io.LimitReader(src, d.Size+1))
	return digestOf(d.Func, h, n), err
}
