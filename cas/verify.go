package cas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Verify reads every blob in both roots, stamps those that are right, moves
// those that are not to the quarantine and calls damaged for each. The size in
// such a digest is that of the file: what the blob's was isn't known. It gives
// the number of blobs read and the first error, which doesn't stop it unless
// ctx is done. Results are not read; Lookup does that.
func (s *Store) Verify(ctx context.Context, damaged func(BlobError)) (n int, err error) {
	for _, r := range s.roots(Pure) {
		for _, fn := range [2]Func{BLAKE3, SHA256} {
			more, failed := s.verifyFunc(ctx, r, fn, damaged)
			n += more
			if err == nil && failed != nil {
				err = fmt.Errorf("verify %s: %w", r.dir, failed)
			}
		}
	}
	return n, err
}

func (s *Store) verifyFunc(ctx context.Context, r *root, fn Func, damaged func(BlobError)) (n int, first error) {
	keep := func(err error) {
		if first == nil {
			first = err
		}
	}
	folders, err := readDir(r.path("cas", fn.String()))
	keep(err)
	for _, folder := range folders {
		dir := r.path("cas", fn.String(), folder)
		names, err := readDir(dir)
		keep(err)
		for _, name := range names {
			if err := ctx.Err(); err != nil {
				return n, err
			}
			hex, packed := strings.CutSuffix(name, packedSuffix)
			hash, err := parseHash(hex)
			if err != nil {
				continue // not ours
			}
			f := blobFile{root: r, path: filepath.Join(dir, name), packed: packed}
			found, err := s.verifyFile(ctx, f, Digest{Func: fn, Hash: hash})
			var blob *BlobError
			switch {
			case errors.As(err, &blob):
				damaged(*blob)
			case err != nil:
				keep(err)
			}
			if found {
				n++
			}
		}
	}
	return n, first
}

// readDir gives the names in a folder, none if it doesn't exist.
func readDir(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, 0, len(entries))
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names, ignoreAbsent(err)
}

// verifyFile is settle for a file whose blob's size isn't known.
func (s *Store) verifyFile(ctx context.Context, f blobFile, d Digest) (found bool, err error) {
	fi, err := os.Lstat(f.path)
	if err != nil {
		return false, ignoreAbsent(err) // removed since the folder was listed
	}
	d.Size = fi.Size()
	got, fi, err := s.sumFile(ctx, f, d)
	switch {
	case err != nil:
		return true, err
	case got.Hash != d.Hash:
		return true, f.damaged(d, fi)
	}
	f.restamp(got, fi)
	return true, nil
}
