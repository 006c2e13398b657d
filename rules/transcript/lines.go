package transcript

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"slices"
)

// lines cuts a reader at "\n". Unlike bufio.Scanner it goes on after a line that is too long, and says whether the
// last one was ended.
type lines struct {
	r       *bufio.Reader
	line    []byte // without its "\n"; valid until next
	number  int    // from 1
	tooLong bool   // line is not usable
	last    bool   // no "\n" came after it
	err     error  // of reading
	long    []byte
}

func newLines(r io.Reader) *lines { return &lines{r: bufio.NewReaderSize(r, 64<<10)} }

func (l *lines) next() bool {
	if l.last || l.err != nil {
		return false
	}
	l.number++
	l.tooLong = false
	part, err := l.r.ReadSlice('\n')
	if errors.Is(err, bufio.ErrBufferFull) {
		l.long = l.long[:0]
		for errors.Is(err, bufio.ErrBufferFull) {
			l.add(part)
			part, err = l.r.ReadSlice('\n')
		}
		l.add(part)
		part = l.long
	}
	if err != nil && err != io.EOF { // an error other than EOF itself, which readers return bare
		l.err = fmt.Errorf("read transcript: %w", err)
		return false
	}
	l.last = err != nil
	if n := len(part); !l.last {
		part = part[:n-1]
	}
	l.line = part
	return !l.last || len(part) > 0 || l.tooLong
}

// add grows the long line up to the limit; of the rest only the last byte is kept, to be cut off as its "\n".
func (l *lines) add(part []byte) {
	if l.tooLong || len(l.long)+len(part) > MaxLine+1 {
		l.tooLong = true
		l.long = append(l.long[:0], '\n')
		return
	}
	if cap(l.long)-len(l.long) < len(part) {
		l.long = slices.Grow(l.long, len(l.long)+len(part)) // append's own growth copies four times as much
	}
	l.long = append(l.long, part...)
}
