package sets

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// written puts the set below a folder of the test.
func written(t testing.TB, s *Set) string {
	t.Helper()
	dir, was, err := s.Write(filepath.Join(t.TempDir(), "captures", "live"))
	check(t, err)
	if was {
		t.Fatal("it was there")
	}
	return dir
}

func faultsIn(t testing.TB, dir string) []Fault {
	t.Helper()
	s, _, faults, err := Read(dir)
	check(t, err)
	if (s == nil) != (len(faults) > 0) {
		t.Fatalf("a set beside %d faults", len(faults))
	}
	return faults
}

func TestWriteAndRead(t *testing.T) {
	s := made(t)
	dir := written(t, s)
	back, renamed, faults, err := Read(dir)
	check(t, err)
	if renamed || len(faults) > 0 || !bytes.Equal(archive(t, back), archive(t, s)) || back.Digest() != s.Digest() {
		t.Fatalf("another set came back: renamed %v, %v", renamed, faults)
	}
	parent := filepath.Dir(dir)
	if again, was, err := s.Write(parent); again != dir || !was || err != nil {
		t.Errorf("the second write: %s, %v, %v", again, was, err)
	}
	if entries, err := os.ReadDir(parent); len(entries) != 1 || err != nil {
		t.Errorf("%d entries are beside it, %v", len(entries), err)
	}
	to := filepath.Join(parent, "mine")
	check(t, os.Rename(dir, to))
	if _, renamed, faults, err := Read(to); !renamed || len(faults) > 0 || err != nil {
		t.Errorf("renamed: %v, %v, %v", renamed, faults, err)
	}
	// Something else under the set's name is left alone.
	check(t, os.Mkdir(dir, 0o755))
	check(t, os.WriteFile(filepath.Join(dir, "mine"), nil, 0o644))
	if _, _, err := s.Write(parent); err == nil || !strings.Contains(err.Error(), "another folder is there") {
		t.Errorf("over another folder: %v", err)
	}
	if entries, err := os.ReadDir(dir); len(entries) != 1 || err != nil {
		t.Errorf("it has %d entries now, %v", len(entries), err)
	}
}

// TestPublished: another version of what isn't evidence is the same set.
func TestPublished(t *testing.T) {
	dir := written(t, made(t))
	parent := filepath.Dir(dir)
	c := content(t)
	c.Sources.files[source{"", "p/BUILD.star"}] = []byte("probe() # and more")
	same, err := New(c)
	check(t, err)
	c.Outputs["scorecard.json"] = []byte("[]\n")
	other, err := New(c)
	check(t, err)
	if got, err := same.Published(parent); got != dir || err != nil {
		t.Errorf("the same: %q, %v", got, err)
	}
	if got, err := other.Published(parent); got != "" || err != nil {
		t.Errorf("another: %q, %v", got, err)
	}
	if got, err := same.Published(filepath.Join(parent, "none")); got != "" || err != nil {
		t.Errorf("none: %q, %v", got, err)
	}
	check(t, os.Remove(filepath.Join(dir, "draws.jsonl"))) // a damaged one doesn't count
	if got, err := same.Published(parent); got != "" || err != nil {
		t.Errorf("damaged: %q, %v", got, err)
	}
}

// TestEveryByte flips each byte of each file of a set.
func TestEveryByte(t *testing.T) {
	s := made(t)
	dir := written(t, s)
	for _, p := range append(s.Paths(), ManifestName) {
		path := filepath.Join(dir, filepath.FromSlash(p))
		good, err := os.ReadFile(path)
		check(t, err)
		check(t, os.Chmod(path, 0o644))
		step := 1 + len(good)/60 // of large files some
		for i := 0; i < len(good); i += step {
			bad := bytes.Clone(good)
			bad[i] ^= 1 << (i % 8)
			check(t, os.WriteFile(path, bad, 0o644))
			if f := faultsIn(t, dir); len(f) == 0 || f[0].Path != p {
				t.Fatalf("%s byte %d: %v", p, i, f)
			}
		}
		for _, bad := range [][]byte{good[:max(0, len(good)-1)], append(bytes.Clone(good), 'x')} {
			check(t, os.WriteFile(path, bad, 0o644))
			if f := faultsIn(t, dir); len(f) == 0 && !bytes.Equal(bad, good) {
				t.Fatalf("%s with %d bytes: no fault", p, len(bad))
			}
		}
		check(t, os.WriteFile(path, good, 0o644))
	}
	if f := faultsIn(t, dir); len(f) > 0 {
		t.Fatal(f)
	}
}

func TestReadFinds(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(dir string) error
		want  string // begins the first fault
	}{
		"missing":        {func(d string) error { return os.Remove(d + "/scorecard.json") }, "scorecard.json: it is missing"},
		"missing folder": {func(d string) error { return os.RemoveAll(d + "/egress") }, "egress/control-1.jsonl: it is missing"},
		"more":           {func(d string) error { return os.WriteFile(d+"/more", nil, 0o644) }, "more: the manifest doesn't list it"},
		"more below":     {func(d string) error { return os.WriteFile(d+"/replies/more", nil, 0o644) }, "replies/more: the manifest doesn't list it"},
		"folder":         {func(d string) error { return os.Mkdir(d+"/more", 0o755) }, "more: the manifest doesn't list the folder"},
		"folder for file": {func(d string) error {
			os.Remove(d + "/scorecard.json")
			return os.Mkdir(d+"/scorecard.json", 0o755)
		}, "scorecard.json: it is no regular file"},
		"link": {func(d string) error {
			os.Rename(d+"/scorecard.json", d+"/../card")
			return os.Symlink("../card", d+"/scorecard.json")
		}, "scorecard.json: it is no regular file"},
		"link to the same bytes": {func(d string) error {
			os.Remove(d + "/scorecard.json")
			return os.Symlink("draws.jsonl", d+"/scorecard.json")
		}, "scorecard.json: it is no regular file"},
		"link to a folder": {func(d string) error {
			os.Rename(d+"/replies", d+"/../replies")
			return os.Symlink("../replies", d+"/replies")
		}, "replies: the manifest doesn't list it"},
		"fifo": {func(d string) error {
			os.Remove(d + "/scorecard.json")
			return unix.Mkfifo(d+"/scorecard.json", 0o644)
		}, "scorecard.json: it is no regular file"},
		"swapped": {func(d string) error {
			os.Rename(d+"/replies/control-1.txt", d+"/../x")
			os.Rename(d+"/replies/control-2.txt", d+"/replies/control-1.txt")
			return os.Rename(d+"/../x", d+"/replies/control-2.txt")
		}, "replies/control-1.txt: it is not what the manifest says"},
		"no manifest":   {func(d string) error { return os.Remove(d + "/manifest.json") }, "manifest.json: "},
		"huge":          {func(d string) error { return os.Truncate(d+"/scorecard.json", 1<<40) }, "scorecard.json: it has more than the 3 bytes"},
		"huge manifest": {func(d string) error { return os.Truncate(d+"/manifest.json", 1<<40) }, "manifest.json: it has more than"},
	} {
		t.Run(name, func(t *testing.T) {
			dir := written(t, made(t))
			for _, p := range []string{"scorecard.json", ManifestName} {
				check(t, os.Chmod(filepath.Join(dir, p), 0o644))
			}
			check(t, c.spoil(dir))
			if f := faultsIn(t, dir); len(f) == 0 || !strings.HasPrefix(f[0].String(), c.want) {
				t.Errorf("%v, not %s", f, c.want)
			}
		})
	}
	if _, _, _, err := Read(filepath.Join(t.TempDir(), "none")); err == nil {
		t.Error("a folder that isn't there can be read")
	}
	if IsSet(t.TempDir()) || !IsSet(written(t, made(t))) {
		t.Error("IsSet")
	}
}

func TestArchive(t *testing.T) {
	s := made(t)
	good := archive(t, s)
	back, err := ReadArchive(bytes.NewReader(good))
	check(t, err)
	if !bytes.Equal(archive(t, back), good) {
		t.Error("another set came back")
	}
	for i := 0; i < len(good); i += 97 {
		bad := bytes.Clone(good)
		bad[i] ^= 4
		if _, err := ReadArchive(bytes.NewReader(bad)); err == nil {
			t.Fatalf("byte %d changed: no error", i)
		}
		if _, err := ReadArchive(bytes.NewReader(good[:i])); err == nil {
			t.Fatalf("cut at byte %d: no error", i)
		}
	}
	if _, err := ReadArchive(bytes.NewReader(append(bytes.Clone(good), 0))); err == nil {
		t.Error("a byte more: no error")
	}
}

// TestArchiveRefuses writes what nobody should take in.
func TestArchiveRefuses(t *testing.T) {
	s := made(t)
	at := s.Name() + "/"
	for name, c := range map[string]struct {
		entries []tar.Header
		want    string
	}{
		"empty":     {nil, "no manifest"},
		"up":        {[]tar.Header{{Name: at + "../../etc/passwd"}}, "no clean path"},
		"absolute":  {[]tar.Header{{Name: "/etc/passwd"}}, "no file of one set"},
		"two sets":  {[]tar.Header{{Name: at + "a"}, {Name: "1-00000000/b"}}, "no file of one set"},
		"not a set": {[]tar.Header{{Name: "set/a"}}, "no file of one set"},
		"twice":     {[]tar.Header{{Name: at + "a"}, {Name: at + "a"}}, "twice"},
		"link":      {[]tar.Header{{Name: at + "a", Typeflag: tar.TypeSymlink, Linkname: "/etc/passwd"}}, "no regular file"},
		"hard link": {[]tar.Header{{Name: at + "a", Typeflag: tar.TypeLink, Linkname: at + "b"}}, "no regular file"},
		"device":    {[]tar.Header{{Name: at + "a", Typeflag: tar.TypeChar}}, "no regular file"},
		"fifo":      {[]tar.Header{{Name: at + "a", Typeflag: tar.TypeFifo}}, "no regular file"},
		"folder":    {[]tar.Header{{Name: at + "a/", Typeflag: tar.TypeDir}}, "no regular file"},
		"manifest":  {[]tar.Header{{Name: at + ManifestName}}, "manifest.json: "},
	} {
		var b bytes.Buffer
		w := tar.NewWriter(&b)
		for _, h := range c.entries {
			h.Mode = 0o644
			check(t, w.WriteHeader(&h))
		}
		check(t, w.Close())
		_, err := ReadArchive(&b)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
	// A file that is said to be huge, and isn't there.
	var b bytes.Buffer
	check(t, tar.NewWriter(&b).WriteHeader(&tar.Header{Name: at + "a", Size: 1 << 40, Format: tar.FormatPAX}))
	if _, err := ReadArchive(&b); err == nil || !strings.Contains(err.Error(), "more than") {
		t.Errorf("a huge file: %v", err)
	}
	b.Reset()
	check(t, tar.NewWriter(&b).WriteHeader(&tar.Header{Name: at + "a", Size: MaxBytes - 1, Format: tar.FormatPAX}))
	if _, err := ReadArchive(&b); err == nil {
		t.Error("a file that was cut: no error")
	}
	// One of a gigabyte of nothing, in the way of GNU tar.
	b.Reset()
	w := tar.NewWriter(&b)
	check(t, w.WriteHeader(&tar.Header{Name: "GNUSparseFile.0/a", Size: 512, Format: tar.FormatPAX, PAXRecords: map[string]string{
		"XNU.sparse.major": "1", "XNU.sparse.minor": "0", "XNU.sparse.name": at + "a", "XNU.sparse.realsize": "1073741824",
	}}))
	_, err := w.Write([]byte("1\n0\n0\n" + strings.Repeat("\x00", 506)))
	check(t, err)
	check(t, w.Close())
	// The writer refuses the real names.
	sparse := bytes.ReplaceAll(b.Bytes(), []byte(" XNU.sparse."), []byte(" GNU.sparse."))
	if h, err := tar.NewReader(bytes.NewReader(sparse)).Next(); err != nil || h.Size != 1<<30 {
		t.Fatalf("it is no sparse file: %+v, %v", h, err)
	}
	if _, err := ReadArchive(bytes.NewReader(sparse)); !errors.Is(err, errNotOurs) {
		t.Errorf("a sparse file: %v", err)
	}
	if _, err := ReadArchive(io.LimitReader(zeros{}, 1<<20)); err == nil {
		t.Error("zeros are no set")
	}
}

type zeros struct{}

func (zeros) Read(b []byte) (int, error) { clear(b); return len(b), nil }

// FuzzArchive: what can be read is written the same, and is a folder too.
func FuzzArchive(f *testing.F) {
	f.Add(archive(f, made(f)))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := ReadArchive(bytes.NewReader(b))
		if err != nil {
			return
		}
		if !bytes.Equal(archive(t, s), b) {
			t.Error("it is written in another way than it was read")
		}
		s.Results() // must not panic, whatever it says
		if v, err := s.View(); err == nil {
			v.OwnRules()
		}
		if mounts, err := s.Mounts(); err == nil {
			mounts(nil)
		}
	})
}

// FuzzManifest: one manifest has one encoding.
func FuzzManifest(f *testing.F) {
	f.Add(made(f).manifest)
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeManifest(b)
		if err == nil && !bytes.Equal(m.encode(), b) {
			t.Error("it is encoded in another way than it was read")
		}
	})
}
