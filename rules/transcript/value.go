package transcript

import (
	"bytes"
	"encoding/json"
	"strconv"
)

// value is one checked JSON value, a window into its line. nil is an absent one, and so are the members of what is
// no object: formats grow, and a field of another shape is a field that is not there.
//
// Why not encoding/json with structs: it matches names without regard to case ("TYPE" is "type"), fails the line for
// one field of another type, and read the codex sample at 41 MB/s where this reads 130 (with strings that kept their bytes).
type value []byte

func (v value) is(first byte) bool { return len(v) > 0 && v[0] == first }

func (v value) isObject() bool { return v.is('{') }

func (v value) isTrue() bool { return v.is('t') }

// some says whether v is there and not null.
func (v value) some() bool { return len(v) > 0 && v[0] != 'n' }

// members calls f for each member of an object in order.
func (v value) members(f func(name string, member value)) {
	if !v.isObject() {
		return
	}
	for i := space(v, 1); v[i] != '}'; {
		end := skipString(v, i)
		name := v[i:end]
		i = space(v, space(v, end)+1)
		end = skip(v, i)
		f(name.text(), v[i:end])
		if i = space(v, end); v[i] == ',' {
			i = space(v, i+1)
		}
	}
}

// elements calls f for each element of an array in order.
func (v value) elements(f func(value)) {
	if !v.is('[') {
		return
	}
	for i := space(v, 1); v[i] != ']'; {
		end := skip(v, i)
		f(v[i:end])
		if i = space(v, end); v[i] == ',' {
			i = space(v, i+1)
		}
	}
}

// get follows names into objects. Of members with one name the last counts, as everywhere in JavaScript.
func (v value) get(path ...string) value {
	for _, want := range path {
		if !v.isObject() {
			return nil
		}
		var found value
		for i := space(v, 1); v[i] != '}'; {
			end := skipString(v, i)
			name := v[i:end]
			i = space(v, space(v, end)+1)
			end = skip(v, i)
			if name.named(want) {
				found = v[i:end]
			}
			if i = space(v, end); v[i] == ',' {
				i = space(v, i+1)
			}
		}
		v = found
	}
	return v
}

func (v value) named(want string) bool {
	if bytes.IndexByte(v, '\\') >= 0 {
		return unquote(v) == want
	}
	return string(v[1:len(v)-1]) == want
}

// text is the string, or "" for what is none.
func (v value) text() string {
	if !v.is('"') {
		return ""
	}
	return unquote(v)
}

// raw is a copy that outlives the line.
func (v value) raw() json.RawMessage {
	if v == nil {
		return nil
	}
	return bytes.Clone(v)
}

// count is a number of tokens: a whole number from 0 to 2^53. Anything else is nil.
func (v value) count() *int64 {
	n, err := strconv.ParseInt(string(v), 10, 64)
	if err != nil {
		f, err := strconv.ParseFloat(string(v), 64)
		if err != nil || f < 0 || f > 1<<53 || f != float64(int64(f)) {
			return nil
		}
		n = int64(f)
	}
	if n < 0 || n > 1<<53 {
		return nil
	}
	return &n
}

// exit is an exit code, nil for what is none.
func (v value) exit() *int {
	n, err := strconv.ParseInt(string(v), 10, 32)
	if err != nil {
		return nil
	}
	code := int(n)
	return &code
}

// skip gives the end of the value that begins at i.
func skip(v value, i int) int {
	switch v[i] {
	case '"':
		return skipString(v, i)
	case '{', '[':
		depth := 0
		for {
			switch v[i] {
			case '"':
				i = skipString(v, i)
				continue
			case '{', '[':
				depth++
			case '}', ']':
				if depth--; depth == 0 {
					return i + 1
				}
			}
			i++
		}
	}
	for i < len(v) && v[i] != ',' && v[i] != '}' && v[i] != ']' && v[i] > ' ' {
		i++
	}
	return i
}

func skipString(v value, i int) int {
	for i++; ; i++ {
		i += bytes.IndexByte(v[i:], '"')
		back := i
		for v[back-1] == '\\' {
			back--
		}
		if (i-back)%2 == 0 {
			return i + 1
		}
	}
}
