package starlark

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/big"
	"sort"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"

	sl "go.starlark.net/starlark"
)

// JSON as evidence is written in it. Canonical form: UTF-8, object keys sorted
// by bytes, no white space, shortest numbers that read back the same, and for
// files one trailing newline.
//
// Starlark strings are bytes. A byte that is not part of valid UTF-8 is
// carried as the escape \udcXX (a lone low surrogate, which no valid text
// needs), so two different strings are never written alike, and reading gives
// the very bytes back. Raw invalid UTF-8 in a JSON text is refused.

// maxJSONDepth bounds nesting, for reading and writing.
const maxJSONDepth = 1000

// maxJSONNumber bounds the digits of a number, since reading a decimal takes
// quadratic time; also for writing, or the result could not be read.
const maxJSONNumber = 1000

// A JSONError says where and why a text is not JSON.
type JSONError struct {
	Offset int
	Cause  string
}

func (e *JSONError) Error() string { return fmt.Sprintf("offset %d: %s", e.Offset, e.Cause) }

// AppendJSON appends v in canonical form, without a newline.
func AppendJSON(b []byte, v sl.Value) ([]byte, error) { return appendJSON(b, v, 0) }

func appendJSON(b []byte, v sl.Value, depth int) ([]byte, error) {
	if depth > maxJSONDepth {
		return nil, fmt.Errorf("nested deeper than %d, or cyclic", maxJSONDepth)
	}
	if len(b) > maxWhole { // lists of lists, each twice in the next, double without end
		return nil, fmt.Errorf("more than %d bytes", maxWhole)
	}
	var err error
	switch v := v.(type) {
	case sl.NoneType:
		return append(b, "null"...), nil
	case sl.Bool:
		return strconv.AppendBool(b, bool(v)), nil
	case sl.Int:
		s := v.String()
		if len(s) > maxJSONNumber {
			return nil, fmt.Errorf("a number of %d digits", len(s))
		}
		return append(b, s...), nil
	case sl.Float:
		return appendFloat(b, float64(v))
	case sl.String:
		return appendString(b, string(v)), nil
	case sl.IterableMapping:
		type member struct {
			key   string
			value sl.Value
		}
		items := v.Items()
		members := make([]member, len(items))
		for i, kv := range items {
			key, ok := sl.AsString(kv[0])
			if !ok {
				return nil, fmt.Errorf("an object's key is a string, not %s", kv[0].Type())
			}
			members[i] = member{key, kv[1]}
		}
		sort.Slice(members, func(i, j int) bool { return members[i].key < members[j].key })
		b = append(b, '{')
		for i, m := range members {
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, m.key), ':')
			if b, err = appendJSON(b, m.value, depth+1); err != nil {
				return nil, fmt.Errorf("in %q: %w", m.key, err)
			}
		}
		return append(b, '}'), nil
	case sl.Iterable:
		b = append(b, '[')
		it := v.Iterate()
		defer it.Done()
		var x sl.Value
		for i := 0; it.Next(&x); i++ {
			if i > 0 {
				b = append(b, ',')
			}
			if b, err = appendJSON(b, x, depth+1); err != nil {
				return nil, fmt.Errorf("in [%d]: %w", i, err)
			}
		}
		return append(b, ']'), iterErr(it)
	case sl.HasAttrs:
		if v.Type() != "struct" && !isInstance(v) {
			break
		}
		b = append(b, '{')
		for i, name := range v.AttrNames() { // sorted by contract
			x, err := v.Attr(name)
			if err != nil {
				return nil, err
			}
			if i > 0 {
				b = append(b, ',')
			}
			b = append(appendString(b, name), ':')
			if b, err = appendJSON(b, x, depth+1); err != nil {
				return nil, fmt.Errorf("in %s: %w", name, err)
			}
		}
		return append(b, '}'), nil
	}
	return nil, fmt.Errorf("a value of type %s has no JSON form", v.Type())
}

// appendFloat writes the shortest decimal that reads back as f; integers up
// to 2^53 without a fraction, as JavaScript and RFC 8785 do.
func appendFloat(b []byte, f float64) ([]byte, error) {
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, fmt.Errorf("%v has no JSON form", f)
	}
	if f == 0 { // also -0
		return append(b, '0'), nil
	}
	if abs := math.Abs(f); abs >= 1e21 || abs < 1e-6 {
		return strconv.AppendFloat(b, f, 'e', -1, 64), nil
	}
	return strconv.AppendFloat(b, f, 'f', -1, 64), nil
}

const hexDigits = "0123456789abcdef"

func appendString(b []byte, s string) []byte {
	b = append(b, '"')
	for i := 0; i < len(s); {
		c := s[i]
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case c == '\n':
			b = append(b, '\\', 'n')
		case c == '\r':
			b = append(b, '\\', 'r')
		case c == '\t':
			b = append(b, '\\', 't')
		case c < 0x20 || c == 0x7f: // 0x7f: so that a terminal never sees a control character
			b = append(b, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
		case c < utf8.RuneSelf:
			b = append(b, c)
		default:
			r, n := utf8.DecodeRuneInString(s[i:])
			if r == utf8.RuneError && n == 1 {
				b = append(b, '\\', 'u', 'd', 'c', hexDigits[c>>4], hexDigits[c&15])
			} else {
				b = append(b, s[i:i+n]...)
			}
			i += n
			continue
		}
		i++
	}
	return append(b, '"')
}

// ParseJSON reads one JSON value. Objects become dicts in the order of the
// text (a key given twice is an error), numbers ints or floats.
func ParseJSON(data []byte) (sl.Value, error) { return parseJSON(jsonParser{data: data}) }

// parseForeignJSON reads JSON that is not ours: there \udcXX is half a character
// like any other, and no raw byte.
func parseForeignJSON(data []byte) (sl.Value, error) {
	return parseJSON(jsonParser{data: data, foreign: true})
}

func parseJSON(p jsonParser) (sl.Value, error) {
	v, err := p.value(0)
	if err != nil {
		return nil, err
	}
	p.space()
	if p.pos < len(p.data) {
		return nil, p.fail("more after the value")
	}
	return v, nil
}

// ParseJSONLines reads one value a line; blank lines are passed over. Errors
// name the line.
func ParseJSONLines(data []byte) (*sl.List, error) {
	var out []sl.Value
	for n := 1; len(data) > 0; n++ {
		line, rest, _ := bytes.Cut(data, []byte("\n"))
		data = rest
		if len(bytes.TrimSpace(line)) == 0 {
			continue
		}
		v, err := ParseJSON(line)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		out = append(out, v)
	}
	return sl.NewList(out), nil
}

type jsonParser struct {
	data    []byte
	pos     int
	foreign bool
}

func (p *jsonParser) fail(format string, args ...any) error {
	return &JSONError{p.pos, fmt.Sprintf(format, args...)}
}

func (p *jsonParser) space() {
	for p.pos < len(p.data) {
		switch p.data[p.pos] {
		case ' ', '\t', '\n', '\r':
			p.pos++
		default:
			return
		}
	}
}

func (p *jsonParser) value(depth int) (sl.Value, error) {
	if depth > maxJSONDepth {
		return nil, p.fail("nested deeper than %d", maxJSONDepth)
	}
	p.space()
	if p.pos == len(p.data) {
		return nil, p.fail("the text ends where a value is meant")
	}
	switch c := p.data[p.pos]; {
	case c == '{':
		return p.object(depth)
	case c == '[':
		return p.array(depth)
	case c == '"':
		s, err := p.str()
		return sl.String(s), err
	case c == '-' || '0' <= c && c <= '9':
		return p.number()
	}
	for word, v := range map[string]sl.Value{"null": sl.None, "true": sl.True, "false": sl.False} {
		if bytes.HasPrefix(p.data[p.pos:], []byte(word)) {
			p.pos += len(word)
			return v, nil
		}
	}
	return nil, p.fail("unexpected %q", p.data[p.pos])
}

func (p *jsonParser) object(depth int) (sl.Value, error) {
	d := new(sl.Dict)
	for first := true; ; first = false {
		p.pos++ // { or ,
		p.space()
		if first && p.peek() == '}' {
			break
		}
		if p.peek() != '"' {
			return nil, p.fail("an object's key is a string")
		}
		at := p.pos
		k, err := p.str()
		if err != nil {
			return nil, err
		}
		p.space()
		if p.peek() != ':' {
			return nil, p.fail("':' is missing after the key")
		}
		p.pos++
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		n := d.Len()
		if err := d.SetKey(sl.String(k), v); err != nil {
			return nil, err
		}
		if d.Len() == n {
			p.pos = at
			return nil, p.fail("the key %q is given twice", k)
		}
		p.space()
		if c := p.peek(); c == '}' {
			break
		} else if c != ',' {
			return nil, p.fail("',' or '}' is missing")
		}
	}
	p.pos++
	return d, nil
}

func (p *jsonParser) array(depth int) (sl.Value, error) {
	var out []sl.Value
	for first := true; ; first = false {
		p.pos++ // [ or ,
		p.space()
		if first && p.peek() == ']' {
			break
		}
		v, err := p.value(depth + 1)
		if err != nil {
			return nil, err
		}
		out = append(out, v)
		p.space()
		if c := p.peek(); c == ']' {
			break
		} else if c != ',' {
			return nil, p.fail("',' or ']' is missing")
		}
	}
	p.pos++
	return sl.NewList(out), nil
}

func (p *jsonParser) peek() byte {
	if p.pos < len(p.data) {
		return p.data[p.pos]
	}
	return 0
}

func (p *jsonParser) number() (sl.Value, error) {
	end, float := p.pos, false
	for ; end < len(p.data); end++ {
		switch c := p.data[end]; {
		case '0' <= c && c <= '9' || c == '-' || c == '+':
			continue
		case c == '.' || c == 'e' || c == 'E':
			float = true
			continue
		}
		break
	}
	text := p.data[p.pos:end]
	if !json.Valid(text) {
		return nil, p.fail("%q is no number", text[:min(len(text), 40)])
	}
	if float {
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil {
			return nil, p.fail("%q is out of range", text[:min(len(text), 40)])
		}
		p.pos = end
		return sl.Float(f), nil
	}
	p.pos = end
	if n, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return sl.MakeInt64(n), nil
	}
	if len(text) > maxJSONNumber {
		return nil, p.fail("a number of %d digits", len(text))
	}
	return bigInt(string(text)), nil
}

// str reads a string whose opening quote is at pos.
func (p *jsonParser) str() (string, error) {
	start := p.pos + 1
	i := start
	for i < len(p.data) && p.data[i] != '"' && p.data[i] != '\\' && p.data[i] >= 0x20 {
		i++
	}
	if i < len(p.data) && p.data[i] == '"' { // nothing to unescape
		s := p.data[start:i]
		if !utf8.Valid(s) {
			return "", p.fail("the string is not valid UTF-8")
		}
		p.pos = i + 1
		return string(s), nil
	}
	out := append([]byte(nil), p.data[start:i]...)
	for i < len(p.data) {
		switch c := p.data[i]; {
		case c == '"':
			if !utf8.Valid(p.data[start:i]) {
				return "", p.fail("the string is not valid UTF-8")
			}
			p.pos = i + 1
			return string(out), nil
		case c < 0x20:
			p.pos = i
			return "", p.fail("a control character in a string")
		case c != '\\':
			out = append(out, c)
			i++
		default:
			n, err := p.escape(i, &out)
			if err != nil {
				return "", err
			}
			i += n
		}
	}
	return "", p.fail("the string does not end")
}

// escape reads the escape at i, appends what it means and returns its length.
func (p *jsonParser) escape(i int, out *[]byte) (int, error) {
	p.pos, i = i, i+1
	if i == len(p.data) {
		return 0, p.fail("the string does not end")
	}
	switch c := p.data[i]; c {
	case '"', '\\', '/':
		*out = append(*out, c)
	case 'b':
		*out = append(*out, '\b')
	case 'f':
		*out = append(*out, '\f')
	case 'n':
		*out = append(*out, '\n')
	case 'r':
		*out = append(*out, '\r')
	case 't':
		*out = append(*out, '\t')
	case 'u':
		r, ok := p.hex4(i + 1)
		if !ok {
			return 0, p.fail("\\u wants four hex digits")
		}
		if utf16.IsSurrogate(r) {
			if lo, ok := p.hex4(i + 7); ok && p.data[i+5] == '\\' && p.data[i+6] == 'u' {
				if pair := utf16.DecodeRune(r, lo); pair != utf8.RuneError {
					*out = utf8.AppendRune(*out, pair)
					return 12, nil
				}
			}
			if !p.foreign && 0xdc80 <= r && r <= 0xdcff { // a raw byte
				*out = append(*out, byte(r))
			} else { // a half character of somebody else's: its three bytes
				*out = append(*out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
			}
			return 6, nil
		}
		*out = utf8.AppendRune(*out, r)
		return 6, nil
	default:
		return 0, p.fail("unknown escape \\%c", c)
	}
	return 2, nil
}

func (p *jsonParser) hex4(i int) (rune, bool) {
	if i+4 > len(p.data) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(p.data[i:i+4]), 16, 32)
	return rune(n), err == nil && p.data[i] != '+'
}

func bigInt(s string) sl.Int {
	n, _ := new(big.Int).SetString(s, 10)
	return sl.MakeBigInt(n)
}

// iterErr returns the error of an iterator that can fail (a lazy transcript).
func iterErr(it sl.Iterator) error {
	if it, ok := it.(interface{ Err() error }); ok {
		return it.Err()
	}
	return nil
}
