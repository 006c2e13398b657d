package world

import (
	"io"

	"github.com/evalbuild/eval/rules/world/wire"
)

const (
	smallBody = 64 << 10 // bytes of a body that every connection may have
	manyLarge = 32       // larger ones that are read or answered at once
)

// bodies reads bodies, and bounds what those that come in at once take: 128
// connections of 64 KiB and 32 of 1 MiB. The rest waits in its sockets.
type bodies chan struct{}

func newBodies() bodies { return make(bodies, manyLarge) }

// read reads a body, but no more than MaxBody+1 bytes. When the request is
// answered, done must be called. An error means that it never came whole.
func (b bodies) read(r io.Reader) (body []byte, done func(), err error) {
	body, err = io.ReadAll(io.LimitReader(r, smallBody))
	if err != nil || len(body) < smallBody {
		return body, func() {}, err
	}
	b <- struct{}{}
	rest, err := io.ReadAll(io.LimitReader(r, wire.MaxBody+1-smallBody))
	return append(body, rest...), func() { <-b }, err
}
