package reapi

import (
	"bytes"
	"slices"
	"strings"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
	"google.golang.org/grpc/codes"
	"google.golang.org/protobuf/encoding/protowire"
)

func TestCapabilities(t *testing.T) {
	good := Server{Func: cas.BLAKE3, MaxBatch: defaultBatch, Updates: true}
	with := func(change func(*Server)) Server {
		s := good
		change(&s)
		return s
	}
	for _, x := range []struct {
		name   string
		k      remotetest.Knobs
		fault  remotetest.Fault
		prefer cas.Func
		want   Server
		kind   Kind
	}{
		{name: "both functions", want: good},
		{name: "the other is preferred", prefer: cas.SHA256, want: with(func(s *Server) { s.Func = cas.SHA256 })},
		{name: "SHA-256 only", k: remotetest.Knobs{Funcs: []cas.Func{cas.SHA256}}, want: with(func(s *Server) { s.Func = cas.SHA256 })},
		{name: "BLAKE3 only", k: remotetest.Knobs{Funcs: []cas.Func{cas.BLAKE3}}, prefer: cas.SHA256, want: good},
		{name: "nothing", k: remotetest.Knobs{Caps: func(s *repb.ServerCapabilities) { s.Reset() }}, want: with(func(s *Server) { s.Func = cas.SHA256 })},
		{
			name: "no function", k: remotetest.Knobs{Caps: func(s *repb.ServerCapabilities) { s.CacheCapabilities.DigestFunctions = nil }},
			want: with(func(s *Server) { s.Func = cas.SHA256 }),
		},
		{
			name: "no word of updates", k: remotetest.Knobs{Caps: func(s *repb.ServerCapabilities) { s.CacheCapabilities.ActionCacheUpdateCapabilities = nil }},
			want: good,
		},
		{name: "unimplemented", fault: remotetest.Fault{Code: codes.Unimplemented}, want: with(func(s *Server) { s.Func = cas.SHA256 })},
		{name: "read only", k: remotetest.Knobs{ReadOnly: true}, want: with(func(s *Server) { s.Updates = false })},
		{name: "zstd", k: remotetest.Knobs{Zstd: true}, want: with(func(s *Server) { s.Zstd = true })},
		{name: "small batches", k: remotetest.Knobs{MaxBatch: 1000}, want: with(func(s *Server) { s.MaxBatch = 1000 })},
		{name: "large batches", k: remotetest.Knobs{MaxBatch: 1 << 40}, want: good},
		{name: "negative batches", k: remotetest.Knobs{MaxBatch: -1}, want: good},
		{name: "MD5", k: remotetest.Knobs{Caps: func(s *repb.ServerCapabilities) {
			s.CacheCapabilities.DigestFunctions = []repb.DigestFunction_Value{repb.DigestFunction_MD5, 77}
		}}, kind: Refused},
		{name: "no instance", k: remotetest.Knobs{Instance: "other"}, kind: Refused},
		{name: "garbage", fault: remotetest.Fault{Garbage: true}, kind: Garbage},
		{name: "denied", fault: remotetest.Fault{Code: codes.PermissionDenied}, kind: Denied},
	} {
		t.Run(x.name, func(t *testing.T) {
			f := remotetest.Start(t, x.k)
			c := open(t, Options{Address: f.Address, Prefer: x.prefer})
			f.Inject("GetCapabilities", x.fault)
			got, err := c.Server(t.Context())
			if KindOf(err) != x.kind || got != x.want {
				t.Fatalf("%+v, %v; want %+v and %v", got, err, x.want, x.kind)
			}
			// What worked is remembered, what didn't is asked again.
			_, err = c.Server(t.Context())
			again := 1
			if x.kind != 0 {
				again = 2
			}
			if n := f.Calls("GetCapabilities"); n != again {
				t.Errorf("asked %d times, want %d (%v)", n, again, err)
			}
		})
	}
}

// TestAskedOnce has many callers at the start: one question for all, whose
// failure is that of all.
func TestAskedOnce(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	for _, code := range []codes.Code{codes.PermissionDenied, codes.OK} {
		release := make(chan struct{})
		before := f.Calls("GetCapabilities")
		f.Inject("GetCapabilities", remotetest.Fault{Hang: release, Code: code})
		var wg sync.WaitGroup
		errs := make([]error, 20)
		started := make(chan struct{}, len(errs))
		for i := range errs {
			wg.Go(func() {
				started <- struct{}{}
				_, errs[i] = c.Server(t.Context())
			})
		}
		for range errs {
			<-started
		}
		if err := f.AwaitFlying(t.Context(), "GetCapabilities", 1); err != nil {
			t.Fatal(err)
		}
		close(release)
		wg.Wait()
		failed := 0
		for _, err := range errs {
			if err != nil {
				failed++
			}
		}
		if code == codes.OK && (failed > 0 || f.Calls("GetCapabilities") != before+1) {
			t.Errorf("%d failed, %d calls", failed, f.Calls("GetCapabilities")-before)
		}
		if code != codes.OK && failed == 0 {
			t.Error("no caller was told of the failure")
		}
	}
}

func blobsOf(n, size int) (blobs []Blob, ds []cas.Digest) {
	for i := range n {
		b := remotetest.Bytes(uint64(i), size, i%2 == 0)
		blobs = append(blobs, Blob{cas.BLAKE3.Sum(b), b})
		ds = append(ds, blobs[i].Digest)
	}
	return blobs, ds
}

func TestBatches(t *testing.T) {
	for _, k := range []remotetest.Knobs{{}, {Zstd: true}, {MaxBatch: 10_000}, {MaxBatch: 10_000, Zstd: true}, {MaxBatch: 2000}} {
		f, c := setup(t, k)
		blobs, ds := blobsOf(100, 3000)
		if err := c.WriteBatch(t.Context(), append(blobs, blobs[:5]...)); err != nil {
			t.Fatalf("%+v: %v", k, err)
		}
		if n := len(f.Blobs()); n != 100 {
			t.Errorf("%+v: the server has %d blobs", k, n)
		}
		f.DropBlob(ds[7])
		got, err := c.ReadBatch(t.Context(), append(ds, ds[0]))
		if err != nil {
			t.Fatal(err)
		}
		for i, b := range blobs {
			data, ok := got[b.Digest]
			if ok != (i != 7) || ok && !bytes.Equal(data, b.Data) {
				t.Errorf("%+v: blob %d: %v, %d bytes", k, i, ok, len(data))
			}
		}
		if k.MaxBatch == 0 && f.Calls("BatchReadBlobs")+f.Calls("BatchUpdateBlobs") != 2 {
			t.Errorf("%+v: %v", k, f.AllCalls())
		}
	}
}

// TestBatchParts has trouble with some blobs of a batch.
func TestBatchParts(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	blobs, ds := blobsOf(10, 100)
	if err := c.WriteBatch(t.Context(), blobs); err != nil {
		t.Fatal(err)
	}
	status := func(hash string, code codes.Code) func(any) any {
		return func(answer any) any {
			for _, r := range answer.(*repb.BatchReadBlobsResponse).Responses {
				if r.Digest.Hash == hash {
					r.Status.Code, r.Data = int32(code), nil
				}
			}
			return answer
		}
	}
	before := f.Calls("BatchReadBlobs")
	f.Inject("BatchReadBlobs", remotetest.Fault{Alter: status(ds[3].Hex(), codes.Unavailable)})
	got, err := c.ReadBatch(t.Context(), ds)
	if err != nil || len(got) != 10 || f.Calls("BatchReadBlobs") != before+2 {
		t.Errorf("one blob later: %d blobs, %v, %d calls", len(got), err, f.Calls("BatchReadBlobs")-before)
	}
	f.Inject("BatchReadBlobs", remotetest.Fault{Alter: status(ds[3].Hex(), codes.PermissionDenied)})
	got, err = c.ReadBatch(t.Context(), ds)
	if e := wantKind(t, err, Denied); e.Object != ds[3].String() || len(got) != 9 {
		t.Errorf("one blob denied: %d blobs, %v", len(got), err)
	}
	f.Inject("BatchReadBlobs", remotetest.Fault{Alter: func(answer any) any {
		r := answer.(*repb.BatchReadBlobsResponse)
		r.Responses = append(r.Responses[:5], &repb.BatchReadBlobsResponse_Response{Digest: &repb.Digest{Hash: "x"}}, nil)
		r.Responses[0].Compressor = repb.Compressor_ZSTD // and isn't
		return r
	}})
	if got, err = c.ReadBatch(t.Context(), ds); err != nil || len(got) != 5 {
		t.Errorf("an answer with half of it: %d blobs, %v", len(got), err)
	}
	f.Inject("BatchUpdateBlobs", remotetest.Fault{Alter: func(any) any { return &repb.BatchUpdateBlobsResponse{} }})
	wantKind(t, c.WriteBatch(t.Context(), blobs), Garbage)
	wantKind(t, c.WriteBatch(t.Context(), []Blob{{ds[0], nil}}), Refused)
	_, err = c.ReadBatch(t.Context(), []cas.Digest{ds[0], cas.SHA256.Sum(nil)})
	wantKind(t, err, Refused)
}

// TestBomb has a batch whose blob unpacks to far more than it should.
func TestBomb(t *testing.T) {
	var c codec
	bomb := c.pack(make([]byte, 20<<20))
	b, err := c.unpack(bomb, 1000)
	if err != nil || len(b) != 1001 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}

func TestMissing(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	ds := make([]cas.Digest, 20_000)
	for i := range ds {
		ds[i] = cas.Digest{Func: cas.BLAKE3, Hash: [32]byte{byte(i), byte(i >> 8)}, Size: int64(i + 1)}
	}
	f.PutBlob(ds[1], nil)
	f.PutBlob(ds[19_999], nil)
	got, err := c.Missing(t.Context(), ds)
	if want := append(slices.Clone(ds[:1]), ds[2:19_999]...); err != nil || !slices.Equal(got, want) {
		t.Errorf("%d are missing, want %d; %v", len(got), len(want), err)
	}
	if got, err = c.Missing(t.Context(), []cas.Digest{ds[0], ds[1], ds[0]}); err != nil || !slices.Equal(got, []cas.Digest{ds[0], ds[0]}) {
		t.Errorf("one given twice: %v, %v", got, err)
	}
	f.Inject("FindMissingBlobs", remotetest.Fault{Alter: func(any) any {
		return &repb.FindMissingBlobsResponse{MissingBlobDigests: []*repb.Digest{wireDigest(ds[5])}}
	}})
	_, err = c.Missing(t.Context(), ds[:2])
	wantKind(t, err, Garbage)
}

// TestResultBytes shows that nothing is lost of a result: not a field that
// nobody knows, nor the order of them.
func TestResultBytes(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	key := cas.BLAKE3.Sum([]byte("key"))
	msg := protowire.AppendTag(nil, 9999, protowire.BytesType)
	msg = protowire.AppendString(msg, "from the future")
	msg = append(msg, 4<<3, 0) // exit code, after it and though it is 0
	f.PutResult(key, msg)
	got, err := c.Result(t.Context(), key)
	if err != nil || !bytes.Equal(got, msg) {
		t.Errorf("%x, %v; want %x", got, err, msg)
	}
	if err := c.PutResult(t.Context(), key, msg); err != nil {
		t.Fatal(err)
	}
	if got, _ := f.Result(key); !bytes.Contains(got, []byte("from the future")) {
		t.Errorf("the server got %x", got)
	}
	f.PutResult(key, []byte("\x12\x03abc"))
	_, err = c.Result(t.Context(), key)
	wantKind(t, err, Garbage)
	large := protowire.AppendString(protowire.AppendTag(nil, 5, protowire.BytesType), strings.Repeat("x", 4<<20))
	wantKind(t, c.PutResult(t.Context(), key, large), Refused)
	f.PutResult(key, large)
	if got, err = c.Result(t.Context(), key); err != nil || len(got) != len(large) {
		t.Errorf("a result of 4 MiB: %v", err)
	}
	_, err = c.Result(t.Context(), cas.Digest{})
	wantKind(t, err, Refused)
}
