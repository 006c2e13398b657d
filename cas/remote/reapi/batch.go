package reapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Blob is a blob in memory. Data must be what Digest says.
type Blob struct {
	Digest cas.Digest
	Data   []byte
}

func (b Blob) open() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b.Data)), nil }

const (
	// A digest in a message takes up to 80 bytes: 1.3 MB.
	maxDigests = 16 << 10
	// What a blob in a batch takes beside its bytes.
	blobOverhead = 128
)

// Missing gives those of the digests whose blobs the server doesn't have, in
// the order and as often as they were given. The empty blob is never missing.
func (c *Client) Missing(ctx context.Context, ds []cas.Digest) ([]cas.Digest, error) {
	var missing []cas.Digest
	for len(ds) > 0 {
		n := min(len(ds), maxDigests)
		some, err := c.missing(ctx, ds[:n])
		if err != nil {
			return nil, err
		}
		missing = append(missing, some...)
		ds = ds[n:]
	}
	return missing, nil
}

func (c *Client) missing(ctx context.Context, ds []cas.Digest) ([]cas.Digest, error) {
	const op = "find missing"
	fn, err := oneFunc(ds)
	if err != nil {
		return nil, &Error{Op: op, Object: plural(len(ds)), Kind: Refused, Err: err}
	}
	req := &repb.FindMissingBlobsRequest{InstanceName: c.instance, DigestFunction: wireFunc(fn)}
	for _, d := range ds {
		if d.Size > 0 {
			req.BlobDigests = append(req.BlobDigests, wireDigest(d))
		}
	}
	if len(req.BlobDigests) == 0 {
		return nil, nil
	}
	var resp *repb.FindMissingBlobsResponse
	err = c.unary(ctx, &c.small, op, plural(len(ds)), ask, func(ctx context.Context, conn *conn) (err error) {
		resp, err = repb.NewContentAddressableStorageClient(conn).FindMissingBlobs(ctx, req)
		return err
	})
	if err != nil {
		return nil, err
	}
	gone := make(map[name]bool, len(resp.GetMissingBlobDigests()))
	for _, d := range resp.GetMissingBlobDigests() {
		gone[nameOf(d)] = true
	}
	var missing []cas.Digest
	for _, d := range ds {
		n := name{d.Hex(), d.Size}
		if _, ok := gone[n]; ok {
			gone[n] = false
			missing = append(missing, d)
		}
	}
	for n, unasked := range gone {
		if unasked {
			return nil, &Error{
				Op: op, Object: plural(len(ds)), Kind: Garbage,
				Err: fmt.Errorf("the answer has a digest that was not asked for, %s", c.clean(n.hash)),
			}
		}
	}
	return missing, nil
}

// name is a digest on the wire.
type name struct {
	hash string
	size int64
}

func nameOf(d *repb.Digest) name { return name{d.GetHash(), d.GetSizeBytes()} }

func plural(blobs int) string {
	if blobs == 1 {
		return "1 blob"
	}
	return strconv.Itoa(blobs) + " blobs"
}

// oneFunc gives the digest function of all of ds: a message has room for one.
func oneFunc(ds []cas.Digest) (cas.Func, error) {
	if len(ds) == 0 {
		return 0, errors.New("no digest")
	}
	for _, d := range ds {
		switch {
		case d.Func != ds[0].Func:
			return 0, fmt.Errorf("digests of %v and %v", ds[0].Func, d.Func)
		case wireFunc(d.Func) == repb.DigestFunction_UNKNOWN || d.Size < 0:
			return 0, errors.New("not a digest")
		}
	}
	return ds[0].Func, nil
}

// ReadBatch reads small blobs. One that the server doesn't have is not in the
// map. The bytes are what the server sent for a digest, perhaps wrong and of
// another length: the caller hashes them. All is in memory at once; a blob that
// no batch has room for is read as a stream. With an error, the map has what
// came before it.
func (c *Client) ReadBatch(ctx context.Context, ds []cas.Digest) (map[cas.Digest][]byte, error) {
	blobs := make(map[cas.Digest][]byte, len(ds))
	if len(ds) == 0 {
		return blobs, nil
	}
	s, err := c.known(ctx)
	if err != nil {
		return blobs, err
	}
	if _, err := oneFunc(ds); err != nil {
		return blobs, &Error{Op: "read", Object: plural(len(ds)), Kind: Refused, Err: err}
	}
	var batch []cas.Digest
	var size int64
	asked := make(map[cas.Digest]bool, len(ds))
	flush := func() error {
		if len(batch) == 0 {
			return nil
		}
		err := c.readBatch(ctx, s, batch, blobs)
		batch, size = batch[:0], 0
		return err
	}
	for _, d := range ds {
		switch {
		case asked[d]:
			continue
		case d.Size == 0:
			blobs[d] = []byte{}
		case d.Size+blobOverhead > s.MaxBatch:
			b, err := c.readWhole(ctx, d)
			if KindOf(err) == NotFound {
				continue
			}
			if err != nil {
				return blobs, err
			}
			blobs[d] = b
		default:
			if size+d.Size+blobOverhead > s.MaxBatch {
				if err := flush(); err != nil {
					return blobs, err
				}
			}
			batch = append(batch, d)
			size += d.Size + blobOverhead
		}
		asked[d] = true
	}
	return blobs, flush()
}

func (c *Client) readWhole(ctx context.Context, d cas.Digest) ([]byte, error) {
	r, err := c.Open(ctx, d)
	if err != nil {
		return nil, err
	}
	b, err := io.ReadAll(r)
	return b, errors.Join(err, r.Close())
}

func (c *Client) readBatch(ctx context.Context, s *server, ds []cas.Digest, blobs map[cas.Digest][]byte) error {
	want := make(map[name]cas.Digest, len(ds))
	for _, d := range ds {
		want[name{d.Hex(), d.Size}] = d
	}
	const op = "read"
	var lasting error // of a blob that no other try will bring
	err := c.unary(ctx, &c.large, op, plural(len(ds)), ask, func(ctx context.Context, conn *conn) error {
		req := &repb.BatchReadBlobsRequest{InstanceName: c.instance, DigestFunction: wireFunc(ds[0].Func)}
		if s.Zstd && !c.local {
			req.AcceptableCompressors = []repb.Compressor_Value{repb.Compressor_ZSTD}
		}
		for _, d := range want {
			req.Digests = append(req.Digests, wireDigest(d))
		}
		resp, err := repb.NewContentAddressableStorageClient(conn).BatchReadBlobs(ctx, req)
		if err != nil {
			return err
		}
		var passing error
		for _, r := range resp.GetResponses() {
			n := nameOf(r.GetDigest())
			d, ok := want[n]
			if !ok {
				continue
			}
			st := status.FromProto(r.GetStatus())
			switch kind, again := judge(st.Code(), st.Message(), lookup); {
			case st.Code() == codes.OK:
				blobs[d] = c.batchData(r, d)
			case kind == NotFound:
			case again > 0:
				passing = st.Err()
				continue
			default:
				lasting = &Error{Op: op, Object: d.String(), Kind: kind, Err: errors.New(c.said(st))}
			}
			delete(want, n)
		}
		return passing
	})
	if err == nil {
		err = lasting
	}
	return err
}

// batchData gives the bytes of a blob in a batch. Of a frame that is damaged
// it gives what can be had: the caller sees that they have another digest, and
// one bad blob doesn't take the others with it.
func (c *Client) batchData(r *repb.BatchReadBlobsResponse_Response, d cas.Digest) []byte {
	if r.GetCompressor() != repb.Compressor_ZSTD {
		if r.GetData() == nil {
			return []byte{}
		}
		return r.GetData()
	}
	b, _ := c.zstd.unpack(r.GetData(), d.Size)
	return b
}

// WriteBatch writes small blobs, one that no batch has room for as a stream. An
// error is that of one blob or of all. After one that is not Refused the rest isn't
// tried.
func (c *Client) WriteBatch(ctx context.Context, blobs []Blob) error {
	if len(blobs) == 0 {
		return nil
	}
	s, err := c.known(ctx)
	if err != nil {
		return err
	}
	var batch []Blob
	var size int64
	var first error
	flush := func() {
		if len(batch) == 0 {
			return
		}
		if err := c.writeBatch(ctx, s, batch); err != nil && first == nil {
			first = err
		}
		batch, size = batch[:0], 0
	}
	for _, b := range blobs {
		n := int64(len(b.Data))
		switch {
		case n != b.Digest.Size:
			return &Error{
				Op: "write", Object: b.Digest.String(), Kind: Refused,
				Err: fmt.Errorf("the blob has %d bytes", n),
			}
		case n == 0:
			continue
		case n+blobOverhead > s.MaxBatch:
			if err := c.Write(ctx, b.Digest, b.open); err != nil && first == nil {
				first = err
			}
			continue
		case size+n+blobOverhead > s.MaxBatch, len(batch) > 0 && batch[0].Digest.Func != b.Digest.Func:
			flush()
		}
		if giveUp(first) {
			return first
		}
		batch = append(batch, b)
		size += n + blobOverhead
	}
	flush()
	return first
}

// giveUp says whether the next batch would fare no better.
func giveUp(err error) bool { return err != nil && KindOf(err) != Refused }

func (c *Client) writeBatch(ctx context.Context, s *server, blobs []Blob) error {
	want := make(map[name]*repb.BatchUpdateBlobsRequest_Request, len(blobs))
	for _, b := range blobs {
		r := &repb.BatchUpdateBlobsRequest_Request{Digest: wireDigest(b.Digest), Data: b.Data}
		if s.packedBatch && !c.local {
			if packed := c.zstd.pack(b.Data); packed != nil {
				r.Data, r.Compressor = packed, repb.Compressor_ZSTD
			}
		}
		want[nameOf(r.Digest)] = r
	}
	const op = "write"
	var lasting error
	err := c.unary(ctx, &c.large, op, plural(len(want)), write, func(ctx context.Context, conn *conn) error {
		req := &repb.BatchUpdateBlobsRequest{InstanceName: c.instance, DigestFunction: wireFunc(blobs[0].Digest.Func)}
		for _, r := range want {
			req.Requests = append(req.Requests, r)
		}
		resp, err := repb.NewContentAddressableStorageClient(conn).BatchUpdateBlobs(ctx, req)
		if err != nil {
			return err
		}
		var passing error
		for _, r := range resp.GetResponses() {
			n := nameOf(r.GetDigest())
			if want[n] == nil {
				continue
			}
			st := status.FromProto(r.GetStatus())
			switch kind, again := judge(st.Code(), st.Message(), write); {
			case st.Code() == codes.OK, st.Code() == codes.AlreadyExists:
			case again > 0:
				passing = st.Err()
				continue
			default:
				lasting = &Error{Op: op, Object: n.hash, Kind: kind, Err: errors.New(c.said(st))}
			}
			delete(want, n)
		}
		if passing == nil && len(want) > 0 {
			return &garbage{fmt.Sprintf("the answer says nothing of %s", plural(len(want)))}
		}
		return passing
	})
	if err == nil {
		err = lasting
	}
	return err
}
