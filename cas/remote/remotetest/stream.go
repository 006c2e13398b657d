package remotetest

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strconv"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// resource is what a resource name says.
type resource struct {
	cas.Digest
	packed bool
}

// parse reads [INSTANCE/]blobs/[FUNCTION/]HASH/SIZE, the same with
// compressed-blobs/zstd, and for uploads with uploads/UUID before that.
func (k Knobs) parse(name string, upload bool) (resource, error) {
	bad := status.Errorf(codes.InvalidArgument, "resource name %q", name)
	if k.Instance != "" {
		rest, ok := strings.CutPrefix(name, k.Instance+"/")
		if !ok {
			return resource{}, status.Error(codes.NotFound, "no such instance")
		}
		name = rest
	}
	seg := strings.Split(name, "/")
	if upload {
		if len(seg) < 2 || seg[0] != "uploads" || len(seg[1]) != 36 {
			return resource{}, bad
		}
		seg = seg[2:]
	}
	var r resource
	switch {
	case len(seg) > 1 && seg[0] == "blobs":
		seg = seg[1:]
	case len(seg) > 2 && seg[0] == "compressed-blobs" && seg[1] == "zstd" && k.Zstd:
		r.packed = true
		seg = seg[2:]
	default:
		return resource{}, bad
	}
	fn := repb.DigestFunction_SHA256
	if seg[0] == "blake3" {
		fn = repb.DigestFunction_BLAKE3
		seg = seg[1:]
	}
	if len(seg) != 2 {
		return resource{}, bad
	}
	size, err := strconv.ParseInt(seg[1], 10, 64)
	if err != nil {
		return resource{}, bad
	}
	f, err := k.fn(fn)
	if err != nil {
		return resource{}, err
	}
	r.Digest, err = readDigest(f, &repb.Digest{Hash: seg[0], SizeBytes: size})
	return r, err
}

// Read sends a blob.
func (f *Fake) Read(req *bytestream.ReadRequest, out bytestream.ByteStream_ReadServer) error {
	k, c := f.knob(), callOf(out.Context())
	r, err := k.parse(req.GetResourceName(), false)
	if err != nil {
		return err
	}
	b, ok := f.Blob(r.Digest)
	off := req.GetReadOffset()
	switch {
	case !ok && r.Size > 0:
		return status.Error(codes.NotFound, "no blob")
	case off < 0 || off > int64(len(b)), off > 0 && (r.packed && k.NoResume || !r.packed && k.NoReadOffset):
		return status.Error(codes.OutOfRange, "read offset")
	}
	b = c.flip(b)[off:]
	if c.More {
		b = append(bytes.Clone(b), 'x')
	}
	if r.packed {
		b = pack(b)
	}
	chunk := k.Chunk
	if chunk == 0 {
		chunk = 64 << 10
	}
	for len(b) > 0 {
		n, end := c.spend(out.Context(), min(chunk, len(b)))
		if n > 0 {
			if err := out.Send(&bytestream.ReadResponse{Data: b[:n]}); err != nil {
				return err
			}
			b = b[n:]
		}
		if errors.Is(end, errShort) {
			return nil
		}
		if end != nil {
			return end
		}
	}
	return nil
}

// Write takes a blob. What came before a cut is kept for another try, unless
// it is packed.
func (f *Fake) Write(in bytestream.ByteStream_WriteServer) error {
	k, c := f.knob(), callOf(in.Context())
	req, err := in.Recv()
	if err != nil {
		return err
	}
	name := req.GetResourceName()
	r, err := k.parse(name, true)
	if err != nil {
		return err
	}
	if _, ok := f.Blob(r.Digest); ok {
		size := r.Size
		if r.packed {
			size = -1
		}
		return in.SendAndClose(&bytestream.WriteResponse{CommittedSize: size})
	}
	if err := k.mayWrite(); err != nil {
		return err
	}
	got, err := f.uploaded(k, name, req.GetWriteOffset())
	if err != nil {
		return err
	}
	for first := true; ; first = false {
		if !first {
			req, err = in.Recv()
			if errors.Is(err, io.EOF) {
				return status.Error(codes.InvalidArgument, "the stream ended without finish_write")
			}
			if err != nil {
				return err
			}
			if req.GetResourceName() != "" && req.GetResourceName() != name {
				return status.Error(codes.InvalidArgument, "the resource name changed")
			}
		}
		if req.GetWriteOffset() != int64(len(got)) {
			return status.Error(codes.InvalidArgument, "write offset")
		}
		for data := req.GetData(); len(data) > 0; {
			n, end := c.spend(in.Context(), len(data))
			got, data = append(got, data[:n]...), data[n:]
			if !r.packed && !k.NoResume {
				f.mu.Lock()
				f.partial[name] = got
				f.mu.Unlock()
			}
			if end != nil {
				return end
			}
		}
		if !r.packed && int64(len(got)) > r.Size {
			return status.Error(codes.OutOfRange, "too many bytes")
		}
		if req.GetFinishWrite() {
			break
		}
	}
	sent := int64(len(got))
	if r.packed {
		if got, err = unpack(got); err != nil {
			return status.Error(codes.InvalidArgument, "not zstd")
		}
		f.record("Write", got)
	}
	f.mu.Lock()
	delete(f.partial, name)
	f.mu.Unlock()
	if r.Func.Sum(got) != r.Digest {
		return k.wrongDigest()
	}
	if !c.Lose {
		f.PutBlob(r.Digest, got)
	}
	if k.CommitPlain {
		sent = r.Size
	}
	return in.SendAndClose(&bytestream.WriteResponse{CommittedSize: sent})
}

// uploaded gives what an earlier stream brought of an upload.
func (f *Fake) uploaded(k Knobs, name string, off int64) ([]byte, error) {
	if off == 0 {
		return nil, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b := f.partial[name]
	if off < 0 || off > int64(len(b)) || k.NoResume {
		return nil, status.Error(codes.OutOfRange, "write offset")
	}
	return b[:off:off], nil
}

// QueryWriteStatus tells how much of an upload came.
func (f *Fake) QueryWriteStatus(_ context.Context, req *bytestream.QueryWriteStatusRequest) (*bytestream.QueryWriteStatusResponse, error) {
	k := f.knob()
	if k.NoResume {
		return nil, status.Error(codes.Unimplemented, "no QueryWriteStatus")
	}
	r, err := k.parse(req.GetResourceName(), true)
	if err != nil {
		return nil, err
	}
	if _, ok := f.Blob(r.Digest); ok {
		return &bytestream.QueryWriteStatusResponse{CommittedSize: r.Size, Complete: true}, nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.partial[req.GetResourceName()]
	if !ok {
		return nil, status.Error(codes.NotFound, "no upload")
	}
	return &bytestream.QueryWriteStatusResponse{CommittedSize: int64(len(b))}, nil
}
