package remotetest

import (
	"bytes"
	"context"
	"encoding/hex"
	"errors"
	"slices"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/bazelbuild/remote-apis/build/bazel/semver"
	"github.com/evalbuild/eval/cas"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/protoadapt"
)

func protoV1(m proto.Message) protoadapt.MessageV1 { return protoadapt.MessageV1Of(m) }

func (k Knobs) funcs() []cas.Func {
	if k.Funcs == nil {
		return []cas.Func{cas.BLAKE3, cas.SHA256}
	}
	return k.Funcs
}

func (k Knobs) checkInstance(name string) error {
	if name != k.Instance {
		return status.Errorf(codes.NotFound, "no instance %q", name)
	}
	return nil
}

// fn gives the digest function of a request. None is SHA-256: so it was before
// requests could say.
func (k Knobs) fn(v repb.DigestFunction_Value) (cas.Func, error) {
	f := cas.SHA256
	switch v {
	case repb.DigestFunction_UNKNOWN, repb.DigestFunction_SHA256:
	case repb.DigestFunction_BLAKE3:
		f = cas.BLAKE3
	default:
		f = 0
	}
	if !slices.Contains(k.funcs(), f) {
		return 0, status.Errorf(codes.InvalidArgument, "digest function %v", v)
	}
	return f, nil
}

func readDigest(f cas.Func, d *repb.Digest) (cas.Digest, error) {
	b, err := hex.DecodeString(d.GetHash())
	if err != nil || len(b) != 32 || d.GetSizeBytes() < 0 {
		return cas.Digest{}, status.Error(codes.InvalidArgument, "malformed digest")
	}
	return cas.Digest{Func: f, Hash: [32]byte(b), Size: d.GetSizeBytes()}, nil
}

// mayWrite is what stands between a client and a write.
func (k Knobs) mayWrite() error {
	switch {
	case k.ReadOnly, k.DenyWrites:
		return status.Error(codes.PermissionDenied, "read only")
	case k.Full:
		return status.Error(codes.ResourceExhausted, "no space left")
	}
	return nil
}

func (k Knobs) wrongDigest() error {
	code := k.WrongDigest
	if code == codes.OK {
		code = codes.InvalidArgument
	}
	return status.Error(code, "the blob has another digest")
}

// GetCapabilities says what the knobs say.
func (f *Fake) GetCapabilities(_ context.Context, req *repb.GetCapabilitiesRequest) (*repb.ServerCapabilities, error) {
	k := f.knob()
	if err := k.checkInstance(req.GetInstanceName()); err != nil {
		return nil, err
	}
	caps := &repb.CacheCapabilities{
		ActionCacheUpdateCapabilities: &repb.ActionCacheUpdateCapabilities{UpdateEnabled: !k.ReadOnly},
		MaxBatchTotalSizeBytes:        k.MaxBatch,
	}
	for _, fn := range k.funcs() {
		v := repb.DigestFunction_SHA256
		if fn == cas.BLAKE3 {
			v = repb.DigestFunction_BLAKE3
		}
		caps.DigestFunctions = append(caps.DigestFunctions, v)
	}
	if k.Zstd {
		caps.SupportedCompressors = []repb.Compressor_Value{repb.Compressor_ZSTD}
		caps.SupportedBatchUpdateCompressors = caps.SupportedCompressors
	}
	s := &repb.ServerCapabilities{
		CacheCapabilities: caps,
		LowApiVersion:     &semver.SemVer{Major: 2},
		HighApiVersion:    &semver.SemVer{Major: 2, Minor: 3},
	}
	if k.Caps != nil {
		k.Caps(s)
	}
	return s, nil
}

// GetActionResult gives the bytes that are under the key.
func (f *Fake) GetActionResult(ctx context.Context, req *repb.GetActionResultRequest) (*repb.ActionResult, error) {
	key, err := f.key(req.GetInstanceName(), req.GetDigestFunction(), req.GetActionDigest())
	if err != nil {
		return nil, err
	}
	msg, ok := f.Result(key)
	if ok && f.knob().Complete && !f.complete(key.Func, msg) {
		f.DropResult(key)
		ok = false
	}
	if !ok {
		return nil, status.Error(codes.NotFound, "no result")
	}
	callOf(ctx).raw = msg
	return nil, nil
}

func (f *Fake) key(instance string, fn repb.DigestFunction_Value, d *repb.Digest) (cas.Digest, error) {
	k := f.knob()
	if err := k.checkInstance(instance); err != nil {
		return cas.Digest{}, err
	}
	function, err := k.fn(fn)
	if err != nil {
		return cas.Digest{}, err
	}
	return readDigest(function, d)
}

// complete says whether all blobs are there that a result names, those that a
// tree names included.
func (f *Fake) complete(fn cas.Func, msg []byte) bool {
	var r repb.ActionResult
	if proto.Unmarshal(msg, &r) != nil {
		return false
	}
	has := func(d *repb.Digest) ([]byte, bool) {
		if d == nil || d.GetSizeBytes() == 0 {
			return nil, true
		}
		name, err := readDigest(fn, d)
		if err != nil {
			return nil, false
		}
		return f.Blob(name)
	}
	want := []*repb.Digest{r.GetStdoutDigest(), r.GetStderrDigest()}
	for _, file := range r.GetOutputFiles() {
		want = append(want, file.GetDigest())
	}
	for _, dir := range r.GetOutputDirectories() {
		b, ok := has(dir.GetTreeDigest())
		var tree repb.Tree
		if !ok || proto.Unmarshal(b, &tree) != nil {
			return false
		}
		for _, d := range append(tree.GetChildren(), tree.GetRoot()) {
			for _, file := range d.GetFiles() {
				want = append(want, file.GetDigest())
			}
		}
	}
	return !slices.ContainsFunc(want, func(d *repb.Digest) bool { _, ok := has(d); return !ok })
}

// UpdateActionResult keeps the message with the fields that it doesn't know.
func (f *Fake) UpdateActionResult(ctx context.Context, req *repb.UpdateActionResultRequest) (*repb.ActionResult, error) {
	key, err := f.key(req.GetInstanceName(), req.GetDigestFunction(), req.GetActionDigest())
	if err != nil {
		return nil, err
	}
	if err := f.knob().mayWrite(); err != nil {
		return nil, err
	}
	if req.GetActionResult() == nil {
		return nil, status.Error(codes.InvalidArgument, "no result")
	}
	b, err := proto.Marshal(req.GetActionResult())
	if err != nil {
		return nil, err
	}
	if !callOf(ctx).Lose {
		f.PutResult(key, b)
	}
	return req.GetActionResult(), nil
}

// casServer has the methods whose names Fake has for tests.
type casServer struct {
	repb.UnimplementedContentAddressableStorageServer
	f *Fake
}

// FindMissingBlobs tells which blobs are not there.
func (s casServer) FindMissingBlobs(ctx context.Context, req *repb.FindMissingBlobsRequest) (*repb.FindMissingBlobsResponse, error) {
	resp := &repb.FindMissingBlobsResponse{}
	for _, d := range req.GetBlobDigests() {
		name, err := s.f.key(req.GetInstanceName(), req.GetDigestFunction(), d)
		if err != nil {
			return nil, err
		}
		if _, ok := s.f.Blob(name); !ok && name.Size > 0 && !callOf(ctx).Present {
			resp.MissingBlobDigests = append(resp.MissingBlobDigests, d)
		}
	}
	return resp, nil
}

// BatchUpdateBlobs writes each blob, or says why not.
func (s casServer) BatchUpdateBlobs(ctx context.Context, req *repb.BatchUpdateBlobsRequest) (*repb.BatchUpdateBlobsResponse, error) {
	k := s.f.knob()
	total := int64(0)
	resp := &repb.BatchUpdateBlobsResponse{}
	for _, r := range req.GetRequests() {
		total += int64(len(r.GetData()))
		name, err := s.f.key(req.GetInstanceName(), req.GetDigestFunction(), r.GetDigest())
		if err == nil {
			err = s.put(ctx, k, name, r)
		}
		resp.Responses = append(resp.Responses, &repb.BatchUpdateBlobsResponse_Response{
			Digest: r.GetDigest(), Status: status.Convert(err).Proto(),
		})
	}
	if k.MaxBatch > 0 && total > k.MaxBatch {
		return nil, status.Error(codes.InvalidArgument, "the batch is too large")
	}
	return resp, nil
}

func (s casServer) put(ctx context.Context, k Knobs, d cas.Digest, r *repb.BatchUpdateBlobsRequest_Request) error {
	if err := k.mayWrite(); err != nil {
		return err
	}
	data := r.GetData()
	switch r.GetCompressor() {
	case repb.Compressor_IDENTITY:
	case repb.Compressor_ZSTD:
		if !k.Zstd {
			return status.Error(codes.InvalidArgument, "no zstd")
		}
		plain, err := unpack(data)
		if err != nil {
			return status.Error(codes.InvalidArgument, "not zstd")
		}
		s.f.record("BatchUpdateBlobs", plain)
		data = plain
	default:
		return status.Error(codes.InvalidArgument, "unknown compressor")
	}
	if d.Func.Sum(data) != d {
		return k.wrongDigest()
	}
	if !callOf(ctx).Lose {
		s.f.PutBlob(d, bytes.Clone(data))
	}
	return nil
}

// BatchReadBlobs reads each blob, or says that it isn't there.
func (s casServer) BatchReadBlobs(ctx context.Context, req *repb.BatchReadBlobsRequest) (*repb.BatchReadBlobsResponse, error) {
	k := s.f.knob()
	total := int64(0)
	resp := &repb.BatchReadBlobsResponse{}
	for _, d := range req.GetDigests() {
		name, err := s.f.key(req.GetInstanceName(), req.GetDigestFunction(), d)
		if err != nil {
			return nil, err
		}
		total += name.Size
		r := &repb.BatchReadBlobsResponse_Response{Digest: d, Status: status.New(codes.OK, "").Proto()}
		b, ok := s.f.Blob(name)
		switch {
		case name.Size == 0:
		case !ok:
			r.Status = status.New(codes.NotFound, "no blob").Proto()
		default:
			b = callOf(ctx).flip(b)
			if k.Zstd && slices.Contains(req.GetAcceptableCompressors(), repb.Compressor_ZSTD) {
				b, r.Compressor = pack(b), repb.Compressor_ZSTD
			}
			r.Data = b
		}
		resp.Responses = append(resp.Responses, r)
	}
	if k.MaxBatch > 0 && total > k.MaxBatch {
		return nil, status.Error(codes.InvalidArgument, "the batch is too large")
	}
	return resp, nil
}

// flip gives b, or another blob of its size.
func (c *call) flip(b []byte) []byte {
	if !c.Flip || len(b) == 0 {
		return b
	}
	b = bytes.Clone(b)
	b[len(b)/2] ^= 0x10
	return b
}

var (
	errShort   = errors.New("end here")
	encoder, _ = zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1))
	decoder, _ = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1))
)

func pack(b []byte) []byte { return encoder.EncodeAll(b, nil) }

func unpack(b []byte) ([]byte, error) { return decoder.DecodeAll(b, nil) }
