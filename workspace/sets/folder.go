package sets

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
)

// IsSet says whether a folder is meant as a set.
func IsSet(dir string) bool {
	fi, err := os.Lstat(filepath.Join(dir, ManifestName))
	return err == nil && fi.Mode().IsRegular()
}

// Read reads a set's folder and checks each file against the manifest. If there
// are faults the set is nil. renamed says that the folder's name is not that of
// a set, so that nothing vouches for the manifest.
func Read(dir string) (s *Set, renamed bool, faults []Fault, err error) {
	abs, err := filepath.Abs(dir)
	if err != nil {
		return nil, false, nil, fmt.Errorf("read set %s: %w", dir, err)
	}
	root, err := os.OpenRoot(abs)
	if err != nil {
		return nil, false, nil, fmt.Errorf("read set %s: %w", dir, err)
	}
	defer root.Close()
	text, err := readFile(root, ManifestName, maxManifest)
	var m *Manifest
	if err == nil {
		m, err = decodeManifest(text)
	}
	if err != nil {
		return nil, false, []Fault{{Path: ManifestName, Cause: err.Error()}}, nil
	}
	base := filepath.Base(abs)
	renamed = !setName.MatchString(base)
	if !renamed && base != m.name(text) {
		faults = append(faults, Fault{Path: ManifestName, Cause: fmt.Sprintf("by its digest the set is %s and not %s", m.name(text), base)})
	}
	s = &Set{Manifest: *m, manifest: text, files: map[string][]byte{}}
	found, err := s.take(root)
	if err != nil {
		return nil, renamed, nil, fmt.Errorf("read set %s: %w", dir, err)
	}
	if faults = append(faults, found...); len(faults) > 0 {
		return nil, renamed, faults, nil
	}
	return s, renamed, nil, nil
}

// take reads all files, in no more memory than the manifest says.
func (s *Set) take(root *os.Root) (faults []Fault, err error) {
	fault := func(p, cause string) { faults = append(faults, Fault{Path: p, Cause: cause}) }
	folders := map[string]bool{".": true}
	for p := range s.Manifest.Files {
		for dir := path.Dir(p); !folders[dir]; dir = path.Dir(dir) {
			folders[dir] = true
		}
	}
	err = fs.WalkDir(root.FS(), ".", func(p string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		text, listed := s.Manifest.Files[p]
		switch {
		case d.IsDir() && folders[p] || p == ManifestName:
			return nil
		case !listed && d.IsDir():
			fault(p, "the manifest doesn't list the folder")
			return fs.SkipDir
		case !listed:
			fault(p, "the manifest doesn't list it")
			return nil
		}
		want, err := s.Manifest.parse(text)
		if err != nil {
			return err
		}
		b, err := readFile(root, p, want.Size)
		switch {
		case err != nil:
			fault(p, err.Error())
		case s.Manifest.Digest.Sum(b) != want:
			fault(p, "it is not what the manifest says")
		default:
			s.files[p] = b
		}
		if d.IsDir() {
			return fs.SkipDir
		}
		return nil
	})
	bad := map[string]bool{}
	for _, f := range faults {
		bad[f.Path] = true
	}
	for p := range s.Manifest.Files {
		if _, ok := s.files[p]; !ok && !bad[p] {
			fault(p, "it is missing")
		}
	}
	sort.Slice(faults, func(i, j int) bool { return faults[i].Path < faults[j].Path })
	return faults, err
}

var errNotRegular = errors.New("it is no regular file")

// readFile reads a regular file of at most limit bytes, without following a link
// or waiting for a fifo.
func readFile(root *os.Root, p string, limit int64) ([]byte, error) {
	name := filepath.FromSlash(p)
	is, err := root.Lstat(name) // a Root follows links whatever the flags
	if err != nil {
		return nil, bare(err)
	}
	if !is.Mode().IsRegular() {
		return nil, errNotRegular
	}
	f, err := root.OpenFile(name, os.O_RDONLY|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	defer f.Close()
	if fi, err := f.Stat(); err != nil || !os.SameFile(is, fi) { // it became another one just now
		return nil, errNotRegular
	}
	b, err := io.ReadAll(io.LimitReader(f, limit+1))
	if err == nil && int64(len(b)) > limit {
		err = fmt.Errorf("it has more than the %d bytes that it may have", limit)
	}
	return b, bare(err)
}

// bare drops an operation and a path that the caller names.
func bare(err error) error {
	var p *fs.PathError
	if errors.As(err, &p) {
		return p.Err
	}
	return err
}

// Write makes the set's folder in parent, which it makes too. If the set is there
// already, whole, it says so and does nothing.
func (s *Set) Write(parent string) (dir string, was bool, err error) {
	dir = filepath.Join(parent, s.Name())
	fail := func(err error) (string, bool, error) { return dir, false, fmt.Errorf("write set %s: %w", dir, err) }
	if _, err := os.Lstat(dir); err == nil {
		return dir, true, s.is(dir)
	}
	if err := os.MkdirAll(parent, 0o755); err != nil {
		return fail(err)
	}
	// A dot folder holds no packages, so a build meanwhile doesn't see it.
	temp, err := os.MkdirTemp(parent, ".publish-*")
	if err != nil {
		return fail(err)
	}
	defer os.RemoveAll(temp)
	if err := os.Chmod(temp, 0o755); err != nil {
		return fail(err)
	}
	for _, p := range append(s.Paths(), ManifestName) {
		b := s.files[p]
		if p == ManifestName {
			b = s.manifest
		}
		if err := writeFile(filepath.Join(temp, filepath.FromSlash(p)), b); err != nil {
			return fail(err)
		}
	}
	// A rename over an empty folder succeeds; the manifest makes ours full.
	err = os.Rename(temp, dir)
	if errors.Is(err, fs.ErrExist) || errors.Is(err, unix.ENOTEMPTY) {
		return dir, true, s.is(dir)
	}
	if err != nil {
		return fail(err)
	}
	return dir, false, syncFolder(parent)
}

// Published looks in parent for a set with the same evidence and numbers, whose
// sources may differ in what doesn't change them: another target of the package
// was edited, say. It gives "" if there is none.
func (s *Set) Published(parent string) (dir string, err error) {
	entries, err := os.ReadDir(parent)
	if errors.Is(err, fs.ErrNotExist) {
		return "", nil
	}
	if err != nil {
		return "", fmt.Errorf("look for published sets: %w", err)
	}
	for _, e := range entries {
		if !setName.MatchString(e.Name()) {
			continue
		}
		dir := filepath.Join(parent, e.Name())
		has, _, _, err := Read(dir)
		if err != nil {
			return "", err
		}
		if has != nil && len(has.Compare(s)) == 0 && has.Manifest.Target == s.Manifest.Target {
			return dir, nil
		}
	}
	return "", nil
}

// is says whether a folder holds this set.
func (s *Set) is(dir string) error {
	has, _, faults, err := Read(dir)
	switch {
	case err != nil:
		return err
	case len(faults) > 0:
		return fmt.Errorf("write set %s: another folder is there: %s", dir, faults[0])
	case !bytes.Equal(has.manifest, s.manifest):
		return fmt.Errorf("write set %s: another set is there", dir)
	}
	return nil
}

// writeFile writes what nobody is to change. Git keeps no such mode; it is for
// slips of the hand.
func writeFile(p string, b []byte) error {
	if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
		return err
	}
	f, err := os.OpenFile(p, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o444)
	if err != nil {
		return err
	}
	_, err = f.Write(b)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close())
}

func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// Blobs gives each file by its digest.
func (s *Set) Blobs() map[cas.Digest][]byte {
	out := map[cas.Digest][]byte{}
	for _, b := range s.files {
		out[s.Manifest.Digest.Sum(b)] = b
	}
	return out
}
