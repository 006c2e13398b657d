package cas

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	// Below this size a blob is always stored as it is: it fits in one block of
	// the file system, and its digest alone says which file name it has.
	minCompress = 4096
	// What a blob looks like is decided from its first bytes.
	sampleSize = 64 << 10
	// A window of 1 MiB bounds what an encoder or decoder holds to a few MiB.
	windowSize = 1 << 20
)

// worthwhile says whether compression saves at least 1/8.
func worthwhile(raw, packed int) bool { return packed <= raw-raw/8 }

// codec holds encoders and decoders for use again; making one costs more than
// packing a blob of 64 KiB. All are single-threaded: the caller knows how many
// cores there are to use.
type codec struct {
	encoders, decoders sync.Pool
}

func (c *codec) encoder() (*zstd.Encoder, error) {
	if e, ok := c.encoders.Get().(*zstd.Encoder); ok {
		return e, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithWindowSize(windowSize),
		zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // the digest is the check
}

// pack compresses b if it is worthwhile, else it returns nil.
func (c *codec) pack(b []byte) ([]byte, error) {
	e, err := c.encoder()
	if err != nil {
		return nil, err
	}
	defer c.encoders.Put(e)
	packed := e.EncodeAll(b, make([]byte, 0, len(b)))
	if !worthwhile(len(b), len(packed)) {
		return nil, nil
	}
	return packed, nil
}

// packWriter compresses a stream into w. Close ends the frame; w stays open.
type packWriter struct {
	c *codec
	*zstd.Encoder
}

func (c *codec) packWriter(w io.Writer) (*packWriter, error) {
	e, err := c.encoder()
	if err != nil {
		return nil, err
	}
	e.Reset(w)
	return &packWriter{c, e}, nil
}

// Close ends the frame. Only an encoder that ended well is used again.
func (w *packWriter) Close() error {
	if err := w.Encoder.Close(); err != nil {
		return err
	}
	w.Reset(nil)
	w.c.encoders.Put(w.Encoder)
	return nil
}

// unpackReader reads what a packWriter wrote. Its errors other than those of r
// itself mean that the frame is damaged.
type unpackReader struct {
	c *codec
	*zstd.Decoder
}

func (c *codec) unpackReader(r io.Reader) (*unpackReader, error) {
	d, ok := c.decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(8<<20))
		if err != nil {
			return nil, err
		}
	}
	if err := d.Reset(r); err != nil {
		return nil, err
	}
	return &unpackReader{c, d}, nil
}

func (r *unpackReader) Close() {
	if r.Reset(bytes.NewReader(nil)) == nil {
		r.c.decoders.Put(r.Decoder)
	}
	r.Decoder = nil
}
