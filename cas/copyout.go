package cas

import (
	"errors"
	"fmt"
	"hash"
	"io"
	"os"
	"path/filepath"
)

// ExportReader is Export for bytes that are not in the store: it copies r,
// which must be the content of d, to dst. What is at dst stays if r ends early
// or holds anything else.
func ExportReader(r io.Reader, d Digest, dst string) error {
	fail := func(err error) error { return fmt.Errorf("export %v to %s: %w", d, dst, err) }
	if err := d.check(); err != nil {
		return fail(err)
	}
	if d.Size < minCompress {
		b, err := readAll(io.LimitReader(r, d.Size+1), d.Size)
		if err == nil && d.Func.Sum(b) != d {
			err = errContent
		}
		if err == nil {
			err = exportSmall(b, d, dst)
		}
		if err != nil {
			return fail(err)
		}
		return nil
	}
	dir := filepath.Dir(dst)
	if err := makeDirs(dir, 0o755); err != nil {
		return fail(err)
	}
	temp, err := os.CreateTemp(dir, besideTemp)
	if err != nil {
		return fail(err)
	}
	h := d.Func.New()
	n, err := io.Copy(io.MultiWriter(temp, h), r)
	err = errors.Join(err, temp.Close())
	if err == nil {
		err = sameContent(h, n, d)
	}
	if err == nil {
		err = publish(temp.Name(), dst, d)
	}
	if err != nil {
		return fail(errors.Join(err, ignoreAbsent(os.Remove(temp.Name()))))
	}
	return nil
}

var errContent = errors.New("the content is not what it was")

func sameContent(h hash.Hash, n int64, d Digest) error {
	if n != d.Size || [32]byte(h.Sum(nil)) != d.Hash {
		return errContent
	}
	return nil
}

// publish gives a finished temporary file its mode, its time and its name.
func publish(temp, dst string, d Digest) error {
	if err := os.Chmod(temp, 0o444); err != nil {
		return err
	}
	stamp := Stamp(d)
	if err := os.Chtimes(temp, stamp, stamp); err != nil {
		return err
	}
	return os.Rename(temp, dst)
}
