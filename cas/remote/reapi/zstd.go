package reapi

import (
	"bytes"
	"io"
	"sync"

	"github.com/klauspost/compress/zstd"
)

const (
	minPack    = 1 << 10  // a smaller blob isn't worth the trouble
	sampleSize = 64 << 10 // of a large one: tells whether it is
	// A window of 1 MiB, with which the tables of matches leave the CPU caches,
	// takes half as long again and saves no more of a log.
	packWindow = 256 << 10
)

// worthwhile says whether compression saves at least 1/8.
func worthwhile(raw, packed int) bool { return packed <= raw-raw/8 }

// codec holds encoders and decoders for use again. All are single-threaded.
type codec struct{ encoders, decoders sync.Pool }

func (c *codec) encoder() (*zstd.Encoder, error) {
	if e, ok := c.encoders.Get().(*zstd.Encoder); ok {
		return e, nil
	}
	return zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1), zstd.WithEncoderLevel(zstd.SpeedFastest),
		zstd.WithWindowSize(packWindow), zstd.WithLowerEncoderMem(true), zstd.WithEncoderCRC(false)) // the digest is the check
}

// pack compresses b if it is worthwhile, else it returns nil.
func (c *codec) pack(b []byte) []byte {
	if len(b) < minPack {
		return nil
	}
	e, err := c.encoder()
	if err != nil {
		return nil
	}
	defer c.encoders.Put(e)
	packed := e.EncodeAll(b, make([]byte, 0, len(b)))
	if !worthwhile(len(b), len(packed)) {
		return nil
	}
	return packed
}

// decoder starts to read a frame. A window above 32 MiB is refused, since
// memory must stay bounded; servers use at most 8.
func (c *codec) decoder(r io.Reader) (*zstd.Decoder, error) {
	d, ok := c.decoders.Get().(*zstd.Decoder)
	if !ok {
		var err error
		d, err = zstd.NewReader(nil, zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(32<<20))
		if err != nil {
			return nil, err
		}
	}
	if err := d.Reset(r); err != nil {
		return nil, err
	}
	return d, nil
}

func (c *codec) release(d *zstd.Decoder) {
	if d.Reset(bytes.NewReader(nil)) == nil {
		c.decoders.Put(d)
	}
}

// unpack gives what packed stands for, but no more than size+1 bytes of it.
func (c *codec) unpack(packed []byte, size int64) ([]byte, error) {
	d, err := c.decoder(bytes.NewReader(packed))
	if err != nil {
		return nil, err
	}
	defer c.release(d)
	var b bytes.Buffer
	b.Grow(int(size) + bytes.MinRead)
	_, err = b.ReadFrom(io.LimitReader(d, size+1))
	return b.Bytes(), err
}
