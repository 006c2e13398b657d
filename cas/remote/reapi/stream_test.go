package reapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/iotest"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/proto"
)

func cutAt(after int64) remotetest.Fault { return remotetest.Fault{Cut: true, After: after} }

// TestReadResumes cuts streams at many places, of servers that can start in
// the middle and of those that can't.
func TestReadResumes(t *testing.T) {
	for _, k := range []remotetest.Knobs{
		{Chunk: 1000},
		{Chunk: 1000, NoReadOffset: true},
		{Chunk: 1000, Zstd: true},
		{Chunk: 1000, Zstd: true, NoResume: true},
		{Chunk: 1000, Zstd: true, NoResume: true, NoReadOffset: true},
	} {
		for _, packable := range []bool{false, true} {
			f, c := setup(t, k)
			blob := remotetest.Bytes(1, 100_000, packable)
			d := put(f, blob)
			for _, faults := range [][]remotetest.Fault{
				{cutAt(0)},
				{cutAt(1)},
				{cutAt(20_000), cutAt(0), cutAt(7)},
				{{Cut: true, After: 20_000, Code: codes.Internal}},
				{{Short: true, After: 20_000}},
				{{Short: true}, {Short: true, After: 1}},
				{cutAt(100_000)},
			} {
				f.Inject("Read", faults...)
				got, err := c.readWhole(t.Context(), d)
				f.Heal()
				if err != nil || !bytes.Equal(got, blob) {
					t.Errorf("%+v, packable %v, %+v: %d bytes, %v", k, packable, faults, len(got), err)
				}
			}
		}
	}
}

func TestReadFails(t *testing.T) {
	for _, zstd := range []bool{false, true} {
		f, c := setup(t, remotetest.Knobs{Chunk: 1000, Zstd: zstd})
		blob := remotetest.Bytes(1, 100_000, true)
		d := put(f, blob)
		for _, x := range []struct {
			fault remotetest.Fault
			want  Kind
		}{
			{remotetest.Fault{Cut: true, After: 0}, Down},
			{remotetest.Fault{Cut: true, After: 10, Code: codes.PermissionDenied}, Denied},
			{remotetest.Fault{Short: true}, Garbage},
			{remotetest.Fault{Garbage: true}, Garbage},
		} {
			x.fault.Times = -1
			f.Inject("Read", x.fault)
			_, err := c.readWhole(t.Context(), d)
			f.Heal()
			wantKind(t, err, x.want)
		}
	}
}

// TestReadBounds shows that a reader gives what has the digest's size, and
// nothing that is longer or shorter without an error.
func TestReadBounds(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	blob := remotetest.Bytes(1, 5000, false)
	d := put(f, blob)
	f.Inject("Read", remotetest.Fault{More: true})
	got, err := c.readWhole(t.Context(), d)
	wantKind(t, err, Garbage)
	if len(got) != len(blob) {
		t.Errorf("%d bytes of %d", len(got), len(blob))
	}
	// The caller hashes.
	f.Inject("Read", remotetest.Fault{Flip: true})
	if got, err = c.readWhole(t.Context(), d); err != nil || bytes.Equal(got, blob) {
		t.Errorf("a wrong blob: %v", err)
	}
	// What doesn't unpack is asked for plain.
	f.Set(func(k *remotetest.Knobs) { k.Zstd = true })
	c = open(t, Options{Address: f.Address})
	f.Inject("Read", remotetest.Fault{Cut: true, Code: codes.InvalidArgument})
	if got, err = c.readWhole(t.Context(), d); err != nil || !bytes.Equal(got, blob) {
		t.Errorf("a blob that the server doesn't pack: %v", err)
	}
	if !c.plainReads.Load() {
		t.Error("the client asks for packed blobs again")
	}
	r, err := c.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	if err := iotest.TestReader(r, blob); err != nil {
		t.Error(err)
	}
	r.Close()
	if _, err := r.Read(make([]byte, 1)); err == nil {
		t.Error("read from a closed reader")
	}
}

// writes gives the offsets and sizes of all messages of Write.
func writes(t *testing.T, f *remotetest.Fake) (offsets []int64, names []string) {
	t.Helper()
	for _, m := range f.Received() {
		var w bytestream.WriteRequest
		if m.Method != "Write" || proto.Unmarshal(m.Bytes, &w) != nil {
			continue
		}
		if w.GetResourceName() != "" {
			offsets = append(offsets, w.GetWriteOffset())
			names = append(names, w.GetResourceName())
		}
	}
	return offsets, names
}

func TestWriteResumes(t *testing.T) {
	const part = 512 << 10
	blob := remotetest.Bytes(1, 3*part, false)
	d := cas.BLAKE3.Sum(blob)
	seekable := func() (io.ReadCloser, error) { return nopSeekCloser{bytes.NewReader(blob)}, nil }
	for name, source := range map[string]func() (io.ReadCloser, error){"seekable": seekable, "not seekable": Blob{d, blob}.open} {
		f, c := setup(t, remotetest.Knobs{})
		f.Inject("Write", cutAt(part+5), cutAt(part), remotetest.Fault{Code: codes.Unavailable})
		if err := c.Write(t.Context(), d, source); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if got, _ := f.Blob(d); !bytes.Equal(got, blob) {
			t.Errorf("%s: the server has other bytes", name)
		}
		offsets, names := writes(t, f)
		if want := []int64{0, part + 5, 2*part + 5}; !slices.Equal(offsets, want) {
			t.Errorf("%s: streams began at %v, want %v", name, offsets, want)
		}
		if len(slices.Compact(names)) != 1 {
			t.Errorf("%s: the name changed: %v", name, names)
		}
	}
}

type nopSeekCloser struct{ io.ReadSeeker }

func (nopSeekCloser) Close() error { return nil }

// TestWriteRestarts is of servers that can't say what they have, or lose it.
func TestWriteRestarts(t *testing.T) {
	for _, k := range []remotetest.Knobs{{NoResume: true}, {Zstd: true}, {Zstd: true, CommitPlain: true}, {Zstd: true, NoResume: true}} {
		blob := remotetest.Bytes(1, 1_200_000, k.Zstd)
		d := cas.BLAKE3.Sum(blob)
		f, c := setup(t, k)
		f.Inject("Write", cutAt(600_000), cutAt(0))
		if err := c.Write(t.Context(), d, Blob{d, blob}.open); err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
		if got, _ := f.Blob(d); !bytes.Equal(got, blob) {
			t.Errorf("%+v: the server has other bytes", k)
		}
		if offsets, names := writes(t, f); len(slices.Compact(names)) != len(offsets) || slices.Max(offsets) != 0 {
			t.Errorf("%+v: streams at %v of %v", k, offsets, names)
		}
	}
	// One that forgets between the question and the stream.
	blob := remotetest.Bytes(1, 1_200_000, false)
	d := cas.BLAKE3.Sum(blob)
	f, c := setup(t, remotetest.Knobs{})
	f.Inject("Write", cutAt(600_000), remotetest.Fault{Code: codes.OutOfRange})
	if err := c.Write(t.Context(), d, Blob{d, blob}.open); err != nil {
		t.Error(err)
	}
}

// TestWriteEarly shows that hardly anything is sent of what the server has.
func TestWriteEarly(t *testing.T) {
	for _, zstd := range []bool{false, true} {
		f, c := setup(t, remotetest.Knobs{Zstd: zstd})
		blob := remotetest.Bytes(1, 6<<20, zstd)
		d := put(f, blob)
		src := &counting{Reader: bytes.NewReader(blob)}
		if err := c.Write(t.Context(), d, func() (io.ReadCloser, error) { return src, nil }); err != nil {
			t.Fatal(err)
		}
		if src.n > d.Size/2 && !zstd {
			t.Errorf("zstd %v: %d bytes were read", zstd, src.n)
		}
		if n := f.Calls("Write"); n != 1 {
			t.Errorf("zstd %v: %d calls", zstd, n)
		}
		if !src.closed {
			t.Errorf("zstd %v: the source is open", zstd)
		}
	}
	// A stream that was cut after its last byte has brought the blob.
	f, c := setup(t, remotetest.Knobs{})
	blob := remotetest.Bytes(2, 700_000, false)
	d := cas.BLAKE3.Sum(blob)
	f.Inject("Write", remotetest.Fault{Cut: true, After: 700_000 - 1})
	f.Inject("QueryWriteStatus", remotetest.Fault{Do: func(string) { f.PutBlob(d, blob) }})
	if err := c.Write(t.Context(), d, Blob{d, blob}.open); err != nil || f.Calls("Write") != 1 {
		t.Errorf("%d streams, %v", f.Calls("Write"), err)
	}
}

type counting struct {
	io.Reader
	n      int64
	closed bool
}

func (c *counting) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	c.n += int64(n)
	return n, err
}

func (c *counting) Close() error { c.closed = true; return nil }

func TestWriteFails(t *testing.T) {
	for _, zstd := range []bool{false, true} {
		blob := remotetest.Bytes(1, 550_000, true)
		d := cas.BLAKE3.Sum(blob)
		for _, x := range []struct {
			name string
			k    remotetest.Knobs
			want Kind
		}{
			{"full", remotetest.Knobs{Full: true}, Full},
			{"denied", remotetest.Knobs{DenyWrites: true}, Denied},
			{"too large", remotetest.Knobs{Caps: func(s *repb.ServerCapabilities) { s.CacheCapabilities.MaxCasBlobSizeBytes = 100_000 }}, Refused},
		} {
			x.k.Zstd = zstd
			_, c := setup(t, x.k)
			wantKind(t, c.Write(t.Context(), d, Blob{d, blob}.open), x.want)
		}
		for _, code := range []codes.Code{codes.Internal, codes.Unknown, codes.InvalidArgument} {
			f, c := setup(t, remotetest.Knobs{Zstd: zstd, WrongDigest: code})
			wrong := remotetest.Bytes(2, 550_000, true)
			wantKind(t, c.Write(t.Context(), d, Blob{d, wrong}.open), Refused)
			wantKind(t, c.WriteBatch(t.Context(), []Blob{{cas.BLAKE3.Sum([]byte("a")), []byte("b")}}), Refused)
			if len(f.Blobs()) > 0 {
				t.Error("the server has it")
			}
		}
		// Errors of the source are the caller's.
		_, c := setup(t, remotetest.Knobs{Zstd: zstd})
		broken := errors.New("broken disk")
		for name, source := range map[string]func() (io.ReadCloser, error){
			"open": func() (io.ReadCloser, error) { return nil, broken },
			"read": func() (io.ReadCloser, error) { return io.NopCloser(iotest.ErrReader(broken)), nil },
			"later": func() (io.ReadCloser, error) {
				return io.NopCloser(io.MultiReader(bytes.NewReader(blob[:530_000]), iotest.ErrReader(broken))), nil
			},
		} {
			if err := c.Write(t.Context(), d, source); !errors.Is(err, broken) || KindOf(err) != 0 {
				t.Errorf("%s: %v of kind %v", name, err, KindOf(err))
			}
		}
		short := func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(blob[:len(blob)-1])), nil }
		if err := c.Write(t.Context(), d, short); !errors.Is(err, io.ErrUnexpectedEOF) || KindOf(err) != 0 {
			t.Errorf("a source that is too short: %v", err)
		}
	}
}

// TestEmpty shows that nobody is asked about the blob that everybody has.
func TestEmpty(t *testing.T) {
	c := open(t, Options{Address: "grpc://127.0.0.1:1"})
	d := cas.BLAKE3.Sum(nil)
	if b, err := c.readWhole(t.Context(), d); err != nil || len(b) != 0 {
		t.Error(b, err)
	}
	if err := c.Write(t.Context(), d, nil); err != nil {
		t.Error(err)
	}
	if m, err := c.Missing(t.Context(), []cas.Digest{d}); err != nil || len(m) != 0 {
		t.Error(m, err)
	}
}

func TestResourceNames(t *testing.T) {
	d := cas.BLAKE3.Sum([]byte("x"))
	s := cas.SHA256.Sum([]byte("x"))
	for _, x := range []struct{ got, want string }{
		{blobName(d, false), "blobs/blake3/" + d.Hex() + "/1"},
		{blobName(d, true), "compressed-blobs/zstd/blake3/" + d.Hex() + "/1"},
		{blobName(s, false), "blobs/" + s.Hex() + "/1"},
		{blobName(s, true), "compressed-blobs/zstd/" + s.Hex() + "/1"},
		{(&Client{}).resource("blobs"), "blobs"},
		{(&Client{instance: "a/b"}).resource("blobs"), "a/b/blobs"},
	} {
		if x.got != x.want {
			t.Errorf("%s, want %s", x.got, x.want)
		}
	}
	seen := map[string]bool{}
	for range 100 {
		u := upload{c: &Client{}, d: d}
		u.rename()
		var a, b, c, e, f uint64
		if n, err := fmt.Sscanf(u.id, "%8x-%4x-%4x-%4x-%12x", &a, &b, &c, &e, &f); n != 5 || err != nil || c>>12 != 4 || e>>14 != 2 || seen[u.id] {
			t.Fatalf("uuid %q", u.id)
		}
		seen[u.id] = true
	}
}
