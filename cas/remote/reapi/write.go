package reapi

import (
	"bufio"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/evalbuild/eval/cas"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
)

// chunkSize is what one message of a written stream has.
const chunkSize = 512 << 10

var chunks = sync.Pool{New: func() any {
	b := make([]byte, chunkSize)
	return &b
}}

// Write writes a blob as a stream. open gives its bytes from the start, once
// for each try; if they can be sought, a resumed stream does so. An error of
// open or of its reader is returned as it is, wrapped, and has no Kind. It
// returns early if the server has the blob.
func (c *Client) Write(ctx context.Context, d cas.Digest, open func() (io.ReadCloser, error)) error {
	u := &upload{c: c, ctx: ctx, d: d, open: open, patience: patience{c: c}}
	if _, err := oneFunc([]cas.Digest{d}); err != nil {
		return u.wrap(failure{kind: Refused, err: err})
	}
	if d.Size == 0 {
		return nil
	}
	s, err := c.known(ctx)
	if err != nil {
		return err
	}
	if s.maxBlob > 0 && d.Size > s.maxBlob {
		return u.wrap(failure{kind: Refused, err: fmt.Errorf("the server takes blobs of up to %d bytes", s.maxBlob)})
	}
	u.mayPack = s.Zstd && !c.local && d.Size >= minPack
	u.rename()
	return u.run()
}

// upload is a blob across several streams.
type upload struct {
	c    *Client
	ctx  context.Context
	d    cas.Digest
	open func() (io.ReadCloser, error)
	patience

	mayPack bool
	packed  bool
	id      string
	off     int64 // bytes that the server has
	fresh   bool  // off was refused once: no more of it
}

func (u *upload) wrap(f failure) error {
	return f.error(u.ctx, "write blob", u.d.String())
}

// rename gives the upload a new name, so that the server starts afresh.
func (u *upload) rename() {
	var b [16]byte
	rand.Read(b[:])
	b[6], b[8] = b[6]&0x0f|0x40, b[8]&0x3f|0x80
	u.id = fmt.Sprintf("%x-%x-%x-%x-%x", b[:4], b[4:6], b[6:8], b[8:10], b[10:])
	u.off = 0
}

func (u *upload) resource() string {
	return u.c.resource("uploads/" + u.id + "/" + blobName(u.d, u.packed))
}

func (u *upload) run() error {
	for {
		f, err := u.attempt()
		switch {
		case err != nil:
			return fmt.Errorf("write blob %v: %w", u.d, err)
		case f.err == nil:
			return nil
		case f.kind == Refused && u.packed:
			// It may be the compression that the server can't cope with.
			u.mayPack = false
			u.rename()
			continue
		case f.kind == Refused && u.off > 0 && !u.fresh:
			u.fresh = true
			u.rename()
			continue
		case !u.again(u.ctx, f):
			return u.wrap(f)
		}
		if u.resume() {
			return nil
		}
	}
}

// resume asks how much of the blob the server has, and reports that it has all.
// A server that can't tell gets it from the start.
func (u *upload) resume() (done bool) {
	ctx, cancel := u.c.attemptContext(u.ctx)
	defer cancel(nil)
	defer u.guard(cancel)()
	conn, release := u.c.large.take()
	defer release()
	st, err := byteStream(conn).QueryWriteStatus(ctx, &bytestream.QueryWriteStatusRequest{ResourceName: u.resource()})
	n := st.GetCommittedSize()
	switch {
	case err != nil:
		u.rename()
	case st.GetComplete(), u.packed && n == -1:
		return true
	// What committed_size counts of a compressed upload is not agreed on.
	case u.packed, u.fresh, n < 0, n >= u.d.Size:
		u.rename()
	default:
		if n > u.off {
			u.progress(n - u.off)
		}
		u.off = n
	}
	return false
}

// attempt sends the blob from off on. An error is the source's; a failure
// without err is success.
func (u *upload) attempt() (failure, error) {
	src, err := u.open()
	if err != nil {
		return failure{}, err
	}
	defer src.Close()
	if err := skip(src, u.off); err != nil {
		return failure{}, err
	}
	in := bufio.NewReaderSize(src, sampleSize)
	if u.off == 0 {
		u.packed = false
		if u.mayPack {
			head, _ := in.Peek(int(min(sampleSize, u.d.Size)))
			u.packed = u.c.zstd.pack(head) != nil
		}
	}
	actx, cancel := u.c.attemptContext(u.ctx)
	defer cancel(nil)
	conn, release := u.c.large.take()
	defer release()
	w := &writeStream{u: u, cancel: cancel, off: u.off}
	if err := w.send(actx, conn, in); err != nil {
		if s, ok := errors.AsType[*localError](err); ok {
			return failure{}, s.err
		}
		return u.c.classify(u.ctx, actx, write, err), nil
	}
	return failure{}, nil
}

func skip(r io.Reader, n int64) error {
	if n == 0 {
		return nil
	}
	if s, ok := r.(io.Seeker); ok {
		_, err := s.Seek(n, io.SeekStart)
		return err
	}
	_, err := io.CopyN(io.Discard, r, n)
	return err
}

// localError is an error of the blob's reader, not of the server.
type localError struct{ err error }

func (e *localError) Error() string { return e.err.Error() }

// writeStream is one ByteStream.Write as a writer.
type writeStream struct {
	u      *upload
	cancel context.CancelCauseFunc
	stream grpc.ClientStreamingClient[bytestream.WriteRequest, bytestream.WriteResponse]
	buf    []byte
	begun  bool
	off    int64
}

// errEarly ends the copying when the server wants no more bytes.
var errEarly = errors.New("the server has ended the stream")

func (w *writeStream) send(ctx context.Context, conn *conn, in io.Reader) error {
	stop := w.u.guard(w.cancel)
	var err error
	w.stream, err = byteStream(conn).Write(ctx)
	stop()
	if err != nil {
		return err
	}
	chunk := chunks.Get().(*[]byte)
	defer chunks.Put(chunk)
	w.buf = (*chunk)[:0]
	src := &source{r: in, left: w.u.d.Size - w.u.off}
	if err = w.copy(src); err == nil {
		err = w.flush(true)
	}
	early := errors.Is(err, errEarly)
	switch {
	case src.err != nil:
		return &localError{src.err}
	case err != nil && !early:
		return err
	}
	defer w.u.guard(w.cancel)()
	resp, err := w.stream.CloseAndRecv()
	switch {
	case codeOf(err) == codes.AlreadyExists:
		return nil
	case err != nil:
		return err
	}
	return w.committed(resp.GetCommittedSize(), early)
}

// committed judges the size in the server's answer. Of a compressed upload it
// is -1 if the server had the blob, else the bytes that were sent or those that
// they stand for; and since the server has hashed it, others will do as well.
func (w *writeStream) committed(n int64, early bool) error {
	if n == w.u.d.Size || w.u.packed && (n == -1 || !early) {
		return nil
	}
	return &cut{fmt.Sprintf("the server ended the stream with %d of %d bytes", n, w.u.d.Size)}
}

// copy sends what src gives, packed if so decided.
func (w *writeStream) copy(src *source) error {
	if !w.u.packed {
		return w.fill(src)
	}
	e, err := w.u.c.zstd.encoder()
	if err != nil {
		return &localError{err}
	}
	e.Reset(w)
	if _, err := e.ReadFrom(src); err != nil {
		return err
	}
	if err := e.Close(); err != nil {
		return err
	}
	e.Reset(nil)
	w.u.c.zstd.encoders.Put(e) // only one that ended well is used again
	return nil
}

// fill reads straight into chunks.
func (w *writeStream) fill(src *source) error {
	for {
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(false); err != nil {
				return err
			}
		}
		n, err := src.Read(w.buf[len(w.buf):cap(w.buf)])
		w.buf = w.buf[:len(w.buf)+n]
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// Write is for the encoder. A full chunk is sent when there is more, since the
// last one has a mark.
func (w *writeStream) Write(p []byte) (int, error) {
	n := len(p)
	for len(p) > 0 {
		if len(w.buf) == cap(w.buf) {
			if err := w.flush(false); err != nil {
				return 0, err
			}
		}
		k := copy(w.buf[len(w.buf):cap(w.buf)], p)
		w.buf = w.buf[:len(w.buf)+k]
		p = p[k:]
	}
	return n, nil
}

func (w *writeStream) flush(last bool) error {
	req := &bytestream.WriteRequest{WriteOffset: w.off, Data: w.buf, FinishWrite: last}
	if !w.begun {
		req.ResourceName = w.u.resource()
		w.begun = true
	}
	stop := w.u.guard(w.cancel)
	err := w.stream.Send(req)
	stop()
	if errors.Is(err, io.EOF) {
		return errEarly // CloseAndRecv tells why
	}
	if err != nil {
		return err
	}
	w.off += int64(len(w.buf))
	w.buf = w.buf[:0]
	w.u.alive() // whether it counts as progress, only resume can tell
	return nil
}

// source reads exactly left bytes and keeps its error.
type source struct {
	r    io.Reader
	left int64
	err  error
}

func (s *source) Read(p []byte) (int, error) {
	if s.left == 0 {
		return 0, io.EOF
	}
	n, err := s.r.Read(p[:min(int64(len(p)), s.left)])
	s.left -= int64(n)
	if err == nil || s.left == 0 {
		return n, nil
	}
	if errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	s.err = err
	return n, err
}
