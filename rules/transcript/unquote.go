package transcript

import (
	"bytes"
	"fmt"
	"unicode/utf8"
)

// Unquote decodes a JSON string, quotes included, without losing a byte: bytes that are not UTF-8 stay as they are,
// and a surrogate without its other half (JavaScript CLIs cut strings between the two) becomes its three WTF-8
// bytes. encoding/json puts U+FFFD for both, which would make different replies equal.
func Unquote(raw []byte) (string, error) {
	if len(raw) < 2 || raw[0] != '"' {
		return "", fmt.Errorf("unquote: not a JSON string")
	}
	if end, f := checkString(raw, 0); f != nil {
		return "", fmt.Errorf("unquote: %w", f)
	} else if end != len(raw) {
		return "", fmt.Errorf("unquote: bytes after the string")
	}
	return unquote(raw), nil
}

// unquote is Unquote for a string that was checked.
func unquote(raw []byte) string {
	raw = raw[1 : len(raw)-1]
	next := bytes.IndexByte(raw, '\\')
	if next < 0 {
		return string(raw)
	}
	out := make([]byte, 0, len(raw))
	for next >= 0 {
		out = append(out, raw[:next]...)
		raw = raw[next:]
		if raw[1] != 'u' {
			out = append(out, unescape(raw[1]))
			raw = raw[2:]
		} else {
			r := unit(raw)
			raw = raw[6:]
			if isHigh(r) && len(raw) >= 6 && raw[0] == '\\' && raw[1] == 'u' && isLow(unit(raw)) {
				r = 0x10000 + (r-0xd800)<<10 + (unit(raw) - 0xdc00)
				raw = raw[6:]
			}
			out = appendWTF8(out, r)
		}
		next = bytes.IndexByte(raw, '\\')
	}
	return string(append(out, raw...))
}

// appendWTF8 is utf8.AppendRune, but for surrogates, which that replaces.
func appendWTF8(out []byte, r rune) []byte {
	if isHigh(r) || isLow(r) {
		return append(out, 0xe0|byte(r>>12), 0x80|byte(r>>6)&0x3f, 0x80|byte(r)&0x3f)
	}
	return utf8.AppendRune(out, r)
}

func isHigh(r rune) bool { return 0xd800 <= r && r < 0xdc00 }

func isLow(r rune) bool { return 0xdc00 <= r && r < 0xe000 }

// unit reads the UTF-16 code unit of a checked \uXXXX.
func unit(raw []byte) (r rune) {
	for _, c := range raw[2:6] {
		r = r<<4 | rune(hex(c))
	}
	return r
}

func hex(c byte) int {
	switch {
	case '0' <= c && c <= '9':
		return int(c - '0')
	case 'a' <= c && c <= 'f':
		return int(c-'a') + 10
	case 'A' <= c && c <= 'F':
		return int(c-'A') + 10
	}
	return -1
}

// unescape gives the byte of a one-letter escape, 0 when there is no such escape.
func unescape(c byte) byte {
	switch c {
	case '"', '\\', '/':
		return c
	case 'b':
		return '\b'
	case 'f':
		return '\f'
	case 'n':
		return '\n'
	case 'r':
		return '\r'
	case 't':
		return '\t'
	}
	return 0
}
