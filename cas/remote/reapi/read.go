package reapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strconv"

	"github.com/evalbuild/eval/cas"
	"github.com/klauspost/compress/zstd"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// blobName is the part of a resource name that says which blob. Functions that
// are older than the name's third part go without it.
func blobName(d cas.Digest, packed bool) string {
	n := "blobs"
	if packed {
		n = "compressed-blobs/zstd"
	}
	if d.Func != cas.SHA256 {
		n += "/" + d.Func.String()
	}
	return n + "/" + d.Hex() + "/" + strconv.FormatInt(d.Size, 10)
}

// Open reads a blob as a stream, which goes on where it was cut. It returns
// when the first bytes are there, so that it can say NotFound. The reader gives
// at most d.Size bytes, and io.EOF only after all; it does not hash them. It
// must be closed, and ends with ctx.
func (c *Client) Open(ctx context.Context, d cas.Digest) (io.ReadCloser, error) {
	r := &reader{c: c, ctx: ctx, d: d, patience: patience{c: c}}
	if _, err := oneFunc([]cas.Digest{d}); err != nil {
		return nil, r.wrap(failure{kind: Refused, err: err})
	}
	if d.Size > 0 {
		s, err := c.known(ctx)
		if err != nil {
			return nil, err
		}
		// A blob that doesn't shrink is packed, too: to go on with it plain, once
		// that is seen, loses what is on its way, a quarter of the speed at 20 ms.
		r.packed = s.Zstd && d.Size >= minPack && !c.local && !c.plainReads.Load()
		if err := r.begin(); err != nil {
			return nil, err
		}
	}
	return r, nil
}

// reader is a blob across several streams.
type reader struct {
	c   *Client
	ctx context.Context
	d   cas.Digest
	patience

	off      int64 // bytes of the blob that were given
	packed   bool
	unpacked bool // packed was given up for this blob
	noOffset bool // the server can't start in the middle
	stream   *readStream
	body     io.Reader // stream, or dec over it
	dec      *zstd.Decoder
	err      error
}

func (r *reader) wrap(f failure) error {
	return f.error(r.ctx, "read blob", r.d.String())
}

// begin starts a stream at off and waits for its first bytes.
func (r *reader) begin() error {
	for {
		err := r.start()
		if err == nil {
			return nil
		}
		if err := r.restart(err); err != nil {
			return err
		}
	}
}

// restart closes the stream that has failed and says whether another may be
// started, after a pause if need be.
func (r *reader) restart(err error) error {
	var f failure
	var src *sourceError
	switch s := r.stream; {
	case errors.As(err, &src):
		f = r.c.classify(r.ctx, s.ctx, lookup, src.err)
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		f = failure{
			kind: Garbage, code: codes.DataLoss, again: retries,
			err: fmt.Errorf("the stream ended after %d of %d bytes", r.off, r.d.Size),
		}
	default: // of the decoder
		f = failure{kind: Garbage, code: codes.DataLoss, err: errors.New(r.c.clean(err.Error()))}
	}
	r.drop()
	switch {
	// Not every server that lists zstd has every blob in it.
	case r.packed && (f.kind == Refused || f.kind == Garbage):
		r.packed, r.unpacked = false, f.kind == Refused
		return nil
	case r.off > 0 && !r.noOffset && f.kind == Refused:
		r.noOffset = true
		return nil
	case r.again(r.ctx, f):
		return nil
	}
	return r.wrap(f)
}

func (r *reader) drop() {
	if r.dec != nil {
		r.c.zstd.release(r.dec)
		r.dec = nil
	}
	if r.stream != nil {
		r.stream.close()
		r.stream = nil
	}
	r.body = nil
}

func (r *reader) start() error {
	skip := int64(0)
	req := &bytestream.ReadRequest{ResourceName: r.c.resource(blobName(r.d, r.packed)), ReadOffset: r.off}
	if r.noOffset {
		req.ReadOffset, skip = 0, r.off
	}
	s := &readStream{r: r}
	s.ctx, s.cancel = r.c.attemptContext(r.ctx)
	var conn *conn
	conn, s.done = r.c.large.take()
	r.stream, r.body = s, s
	stop := r.guard(s.cancel)
	var err error
	s.stream, err = byteStream(conn).Read(s.ctx, req)
	stop()
	if err != nil {
		return &sourceError{err}
	}
	if err := s.fetch(); err != nil {
		return err
	}
	if r.packed {
		if r.dec, err = r.c.zstd.decoder(s); err != nil {
			return err
		}
		r.body = r.dec
	}
	if r.unpacked {
		// The server refused this blob packed and gives it plain.
		r.c.plainReads.Store(true)
	}
	if skip > 0 {
		if _, err := io.CopyN(io.Discard, r.body, skip); err != nil {
			return err
		}
	}
	return nil
}

// Read gives the blob's next bytes.
func (r *reader) Read(p []byte) (int, error) {
	if r.err != nil {
		return 0, r.err
	}
	for {
		left := r.d.Size - r.off
		if left == 0 {
			return 0, r.end()
		}
		if len(p) == 0 {
			return 0, nil
		}
		n, err := r.body.Read(p[:min(int64(len(p)), left)])
		r.off += int64(n)
		if n > 0 {
			return n, nil // an error comes again
		}
		if err == nil {
			continue
		}
		if r.err = r.restart(err); r.err == nil {
			r.err = r.begin()
		}
		if r.err != nil {
			return 0, r.err
		}
	}
}

// end is after the last byte. What a plain stream has beyond it was perhaps
// the reason for a wrong digest, so it is said.
func (r *reader) end() error {
	r.err = io.EOF
	if s := r.stream; s != nil && !r.packed && len(s.buf) > 0 {
		r.err = r.wrap(failure{kind: Garbage, err: fmt.Errorf("the stream has more than %d bytes", r.d.Size)})
	}
	r.drop()
	return r.err
}

// Close ends the stream.
func (r *reader) Close() error {
	r.drop()
	if r.err == nil {
		r.err = errors.New("read from a closed reader")
	}
	return nil
}

// readStream is one ByteStream.Read as a reader of its bytes.
type readStream struct {
	r      *reader
	ctx    context.Context
	cancel context.CancelCauseFunc
	done   func()
	stream grpc.ServerStreamingClient[bytestream.ReadResponse]
	buf    []byte
	err    error
}

// sourceError keeps a stream's error apart from those of a decoder over it.
type sourceError struct{ err error }

func (e *sourceError) Error() string { return e.err.Error() }

// fetch waits for the next bytes. Messages without any don't count as progress.
func (s *readStream) fetch() error {
	if s.err != nil {
		return s.err
	}
	defer s.r.guard(s.cancel)()
	for len(s.buf) == 0 {
		m, err := s.stream.Recv()
		if err != nil {
			if !errors.Is(err, io.EOF) {
				err = &sourceError{err}
			}
			s.err = err
			return err
		}
		s.buf = m.GetData()
	}
	s.r.progress(int64(len(s.buf)))
	return nil
}

func (s *readStream) Read(p []byte) (int, error) {
	if len(s.buf) == 0 {
		if err := s.fetch(); err != nil {
			return 0, err
		}
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

func (s *readStream) close() {
	s.cancel(nil)
	s.done()
}
