package sets

import (
	"archive/tar"
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
)

// WriteArchive writes the set as one file: a tar of regular files in the order of
// their paths, the manifest last, without times, owners or folders. The bytes
// depend on the set alone.
func (s *Set) WriteArchive(w io.Writer) error {
	t := tar.NewWriter(w)
	for _, p := range append(s.Paths(), ManifestName) {
		b := s.files[p]
		if p == ManifestName {
			b = s.manifest
		}
		h := &tar.Header{Typeflag: tar.TypeReg, Name: s.Name() + "/" + p, Mode: 0o444, Size: int64(len(b)), Format: tar.FormatPAX}
		if err := t.WriteHeader(h); err != nil {
			return fmt.Errorf("write archive: %s: %w", p, err)
		}
		if _, err := t.Write(b); err != nil {
			return fmt.Errorf("write archive: %w", err)
		}
	}
	if err := t.Close(); err != nil {
		return fmt.Errorf("write archive: %w", err)
	}
	return nil
}

// maxArchive bounds an archive: what tar adds to a file is at most 2.5 kB.
const maxArchive = MaxBytes + maxManifest + 2560*MaxFiles

// ReadArchive reads what WriteArchive wrote, byte for byte, and nothing else: no
// links, no devices, no path that leads out, nothing twice.
func ReadArchive(r io.Reader) (*Set, error) {
	s, err := readArchive(r)
	if err != nil {
		return nil, fmt.Errorf("read archive: %w", err)
	}
	return s, nil
}

func readArchive(r io.Reader) (*Set, error) {
	all := &same{want: io.LimitReader(r, maxArchive+1)}
	t := tar.NewReader(io.TeeReader(all.want, &all.seen))
	s := &Set{files: map[string][]byte{}}
	folder, total := "", int64(0)
	for n := 0; s.manifest == nil; n++ {
		h, err := t.Next()
		switch {
		case err == io.EOF:
			return nil, errors.New("it has no manifest")
		case err != nil:
			return nil, err
		case h.Typeflag != tar.TypeReg:
			return nil, fmt.Errorf("%q is no regular file", h.Name)
		case n > MaxFiles:
			return nil, fmt.Errorf("it has more than %d files", MaxFiles)
		}
		for record := range h.PAXRecords {
			if record != "path" && record != "size" { // a sparse file is large and takes no room
				return nil, errNotOurs
			}
		}
		dir, p, ok := strings.Cut(h.Name, "/")
		if !ok || !setName.MatchString(dir) || folder != "" && dir != folder {
			return nil, fmt.Errorf("%q is no file of one set", h.Name)
		}
		folder = dir
		limit := int64(maxManifest)
		if p != ManifestName {
			if err := checkPath(p); err != nil {
				return nil, fmt.Errorf("%q: %w", h.Name, err)
			}
			if _, ok := s.files[p]; ok {
				return nil, fmt.Errorf("%q is there twice", h.Name)
			}
			limit = MaxBytes
		}
		if total += h.Size; h.Size > limit || total > MaxBytes+maxManifest {
			return nil, fmt.Errorf("%q has more than %d bytes", h.Name, limit)
		}
		b, err := io.ReadAll(t) // which grows with what is there, not with what is said
		if err != nil {
			return nil, fmt.Errorf("%q: %w", h.Name, err)
		}
		if p == ManifestName {
			s.manifest = b
		} else {
			s.files[p] = b
		}
	}
	m, err := decodeManifest(s.manifest)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", ManifestName, err)
	}
	s.Manifest = *m
	if folder != s.Name() {
		return nil, fmt.Errorf("by its manifest's digest the set is %s and not %s", s.Name(), folder)
	}
	if err := s.listed(); err != nil {
		return nil, err
	}
	if err := s.WriteArchive(all); err != nil {
		return nil, err
	}
	return s, all.end()
}

// listed says whether the files are those of the manifest.
func (s *Set) listed() error {
	for p, text := range s.Manifest.Files {
		b, ok := s.files[p]
		if !ok {
			return fmt.Errorf("%s is missing", p)
		}
		if s.Manifest.Digest.Sum(b).String() != text {
			return fmt.Errorf("%s is not what the manifest says", p)
		}
	}
	for p := range s.files {
		if _, ok := s.Manifest.Files[p]; !ok {
			return fmt.Errorf("the manifest doesn't list %s", p)
		}
	}
	return nil
}

// same compares what is written to it with what was read, and then with what is
// left to be read.
type same struct {
	seen bytes.Buffer
	want io.Reader
}

var errNotOurs = errors.New("it is not written as this program writes archives")

func (s *same) Write(b []byte) (int, error) {
	for s.seen.Len() < len(b) {
		if n, err := io.CopyN(&s.seen, s.want, int64(len(b)-s.seen.Len())); n == 0 || err != nil {
			return 0, errNotOurs
		}
	}
	if !bytes.Equal(s.seen.Next(len(b)), b) {
		return 0, errNotOurs
	}
	return len(b), nil
}

// end says whether nothing is left.
func (s *same) end() error {
	if n, _ := io.ReadFull(s.want, make([]byte, 1)); n > 0 || s.seen.Len() > 0 {
		return errNotOurs
	}
	return nil
}
