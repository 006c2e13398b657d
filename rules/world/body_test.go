package world

import (
	"bytes"
	"errors"
	"io"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/evalbuild/eval/rules/world/wire"
)

func TestBodies(t *testing.T) {
	b := newBodies()
	text := strings.Repeat("0123456789", wire.MaxBody/5) // 2 MiB
	for _, size := range []int{0, 1, smallBody - 1, smallBody, smallBody + 1, wire.MaxBody, wire.MaxBody + 1, len(text)} {
		for name, r := range map[string]io.Reader{
			"at once":        strings.NewReader(text[:size]),
			"byte by byte":   iotest.OneByteReader(strings.NewReader(text[:size])),
			"EOF with bytes": iotest.DataErrReader(strings.NewReader(text[:size])),
		} {
			body, done, err := b.read(r)
			if want := text[:min(size, wire.MaxBody+1)]; err != nil || string(body) != want {
				t.Errorf("%d bytes %s: read %d, %v", size, name, len(body), err)
			}
			done()
		}
		cut := errors.New("cut")
		if _, done, err := b.read(io.MultiReader(strings.NewReader(text[:size]), iotest.ErrReader(cut))); size <= wire.MaxBody && !errors.Is(err, cut) {
			t.Errorf("%d bytes, and a cut: %v", size, err)
		} else {
			done()
		}
	}
	// Of large ones so many are held at once; small ones always go.
	var ends []func()
	for range manyLarge {
		_, done, err := b.read(bytes.NewReader(make([]byte, smallBody)))
		if err != nil {
			t.Fatal(err)
		}
		ends = append(ends, done)
	}
	if len(b) != 0 {
		t.Errorf("%d buffers are left", len(b))
	}
	if body, _, err := b.read(strings.NewReader("small")); string(body) != "small" || err != nil {
		t.Errorf("%q, %v", body, err)
	}
	for _, done := range ends {
		done()
	}
	if len(b) != manyLarge {
		t.Errorf("%d buffers came back", len(b))
	}
}
