package collect

import (
	"context"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
)

// store keeps what was put.
type store struct{ blobs []string }

func (s *store) put(r io.Reader) (cas.Digest, error) {
	b, err := io.ReadAll(r)
	if err != nil {
		return cas.Digest{}, err
	}
	s.blobs = append(s.blobs, string(b))
	return cas.BLAKE3.Sum(b), nil
}

func sum(content string) cas.Digest { return cas.BLAKE3.Sum([]byte(content)) }

// plain is a limit that no test means to reach.
var plain = Limits{Bytes: 1 << 20}

func openDir(t *testing.T, dir string) int {
	t.Helper()
	fd, err := unix.Open(dir, unix.O_RDONLY|unix.O_DIRECTORY|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	return fd
}

// collected is Collect without an error; it runs twice, with openOne and as
// where there is no openat2, and both have to find the same.
func collected(t *testing.T, dir string, lim Limits, outs ...Output) Result {
	t.Helper()
	fd := openDir(t, dir)
	got, err := Collect(t.Context(), fd, outs, lim, new(store).put)
	if err != nil {
		t.Fatal(err)
	}
	if lim.Entries == 0 {
		lim.Entries = DefaultEntries
	}
	if lim.Depth == 0 {
		lim.Depth = DefaultDepth
	}
	c := collector{
		ctx: t.Context(), put: new(store).put, lim: lim, bytes: lim.Bytes, entries: lim.Entries,
		open: func(dirfd int, name string, flags int) (int, error) { return unix.Openat(dirfd, name, flags, 0) },
	}
	again, err := c.collect(fd, outs)
	if err != nil {
		t.Fatal(err)
	}
	if d := cmp.Diff(got, again); d != "" {
		t.Errorf("openat finds something else (-openat2 +openat):\n%s", d)
	}
	return got
}

// write makes a file and the folders above it.
func write(t *testing.T, dir, name, content string) {
	t.Helper()
	p := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.WriteFile(p, []byte(content), 0o644))
}

func link(t *testing.T, dir, target, name string) {
	t.Helper()
	p := filepath.Join(dir, name)
	must(t, os.MkdirAll(filepath.Dir(p), 0o755))
	must(t, os.Symlink(target, p))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// codes gives path → code of all rejections.
func codes(r Result) map[string]string {
	m := map[string]string{}
	for _, no := range r.Rejected {
		m[no.Path] = no.Code()
	}
	return m
}

func paths(r Result) []string {
	var p []string
	for _, f := range r.Files {
		p = append(p, f.Path)
	}
	return p
}

func same(t *testing.T, what string, got, want any) {
	t.Helper()
	if d := cmp.Diff(want, got); d != "" {
		t.Errorf("%s (-want +got):\n%s", what, d)
	}
}

func cancelled() context.Context {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	return ctx
}

// lacking skips a test for what this machine hasn't got, or fails it where
// nothing may be missing.
func lacking(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Getenv("EVAL_STRICT") != "" {
		t.Fatalf("this machine lacks "+format, args...)
	}
	t.Skipf("this machine lacks "+format, args...)
}
