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
// connections of 64 KiB and 32 of 1 MiB. The rest waits in its sockets. The
// channel has a buffer for each large one: without using them again, 900 bodies
// one after the other were 900 MB until the garbage was collected.
type bodies chan []byte

func newBodies() bodies {
	b := make(bodies, manyLarge)
	for range manyLarge {
		b <- nil // made when it is needed
	}
	return b
}

// read reads a body, but no more than MaxBody+1 bytes. It may be used until done
// is called, which must be. An error means that it never came whole.
func (b bodies) read(r io.Reader) (body []byte, done func(), err error) {
	body, err = io.ReadAll(io.LimitReader(r, smallBody))
	if err != nil || len(body) < smallBody {
		return body, func() {}, err
	}
	buf := <-b
	if buf == nil {
		buf = make([]byte, wire.MaxBody+1)
	}
	n := copy(buf, body)
	for n < len(buf) && err == nil {
		var more int
		more, err = r.Read(buf[n:])
		n += more
	}
	if err == io.EOF {
		err = nil
	}
	return buf[:n], func() { b <- buf }, err
}
