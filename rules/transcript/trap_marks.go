package transcript

import (
	"bytes"
	"strings"
)

const (
	markSize     = 80 // bytes of a mark
	markMin      = 24 // of a treatment that is shorter than a mark
	markDistinct = 12 // different bytes that a mark must have: a ruler or a table's border is nobody's text
	markPrime    = 0x100000001b3
)

// marks finds the bytes of the treatment in an output, exactly: the 80 bytes from the first letter of each line on
// (over the line's end, when it is shorter), or the whole trimmed text when there are none. A rolling hash over the
// output costs one pass for any number of marks.
type marks struct {
	whole  string
	byHash map[uint64][]string
	out    uint64 // markPrime^(markSize-1): the weight of the byte that leaves
}

func newMarks(treatment []byte) *marks {
	m := &marks{byHash: map[uint64][]string{}, out: 1}
	for range markSize - 1 {
		m.out *= markPrime
	}
	text := bytes.Clone(bytes.TrimSpace(treatment))
	for rest := text; len(rest) >= markSize; {
		if mark := rest[:markSize]; distinct(mark) >= markDistinct {
			h := hash(mark)
			m.byHash[h] = append(m.byHash[h], string(mark))
		}
		end := bytes.IndexByte(rest, '\n')
		if end < 0 {
			break
		}
		rest = bytes.TrimLeft(rest[end:], " \t\r\n")
	}
	if len(m.byHash) == 0 && len(text) >= markMin && distinct(text) >= markDistinct {
		m.whole = string(text)
	}
	return m
}

func distinct(b []byte) (n int) {
	var seen [256]bool
	for _, c := range b {
		if !seen[c] {
			seen[c] = true
			n++
		}
	}
	return n
}

func hash(b []byte) (h uint64) {
	for _, c := range b {
		h = h*markPrime + uint64(c)
	}
	return h
}

// in says whether output has a mark that said does not have: a command that quotes the treatment printed its own words.
func (m *marks) in(output, said string) bool {
	if m.whole != "" {
		return strings.Contains(output, m.whole) && !strings.Contains(said, m.whole)
	}
	if len(m.byHash) == 0 || len(output) < markSize {
		return false
	}
	h := hash([]byte(output[:markSize]))
	for i := markSize; ; i++ {
		for _, mark := range m.byHash[h] {
			if output[i-markSize:i] == mark && !strings.Contains(said, mark) {
				return true
			}
		}
		if i == len(output) {
			return false
		}
		h = (h-uint64(output[i-markSize])*m.out)*markPrime + uint64(output[i])
	}
}
