package cas

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
)

// Export writes a copy of the blob to dst, replacing what is there unless it is
// a folder: a file with mode 0444 and the time Stamp(d), so that Stamped tells
// later whether it is untouched. It never links into the store; where the file
// system can, the copy shares blocks until one side is written. The copy is
// verified before it gets its name. Folders above dst are made with mode 0755.
//
// Errors read "export blob D to DST: cause" and are a *BlobError inside if the
// store doesn't have the blob. A killed process may leave ".eval-tmp-*" in the
// folder of dst.
func (s *Store) Export(d Digest, dst string) error {
	small := func(b []byte) error { return exportSmall(b, d, dst) }
	err := s.withBlob(d, small, func(r *blobReader) error { return export(r, dst) })
	if err != nil {
		return fmt.Errorf("export blob %v to %s: %w", d, dst, err)
	}
	return nil
}

func export(r *blobReader, dst string) error {
	dir := filepath.Dir(dst)
	if err := makeDirs(dir, 0o755); err != nil {
		return err
	}
	temp, err := os.CreateTemp(dir, besideTemp)
	if err != nil {
		return err
	}
	cloned := false
	if r.unpack == nil && r.want.Size >= minCompress { // a small file has no blocks worth sharing
		cloned = clone(temp, r.src.file) == nil
	}
	if cloned {
		err = r.verifyClone(temp.Name())
	} else {
		_, err = io.Copy(temp, r)
	}
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = publish(temp.Name(), dst, r.want)
	}
	if err != nil {
		return errors.Join(err, ignoreAbsent(os.Remove(temp.Name())))
	}
	return nil
}

// exportSmall is export of bytes at hand. As writeSmall does, it goes past package
// os, and it looks at the folder only if the file can't be made.
func exportSmall(b []byte, d Digest, dst string) error {
	dir := filepath.Dir(dst)
	temp := filepath.Join(dir, besideTemp[:len(besideTemp)-1]+strconv.FormatUint(rand.Uint64(), 36))
	err := writeTemp(temp, Stamp(d), false, b)
	if absent(err) {
		if err := makeDirs(dir, 0o755); err != nil {
			return err
		}
		err = writeTemp(temp, Stamp(d), false, b)
	}
	if err == nil {
		err = os.Rename(temp, dst)
	}
	if err != nil {
		return errors.Join(err, ignoreAbsent(os.Remove(temp)))
	}
	return nil
}

// verifyClone reads the clone and not the original, which could still change.
// It goes by name, since on macOS the clone is another file than the one made.
func (r *blobReader) verifyClone(name string) error {
	file, err := os.Open(name)
	if err != nil {
		return err
	}
	got, err := r.want.Func.SumReader(file)
	if err := errors.Join(err, file.Close()); err != nil {
		return err
	}
	if got != r.want {
		return r.fail()
	}
	return nil
}
