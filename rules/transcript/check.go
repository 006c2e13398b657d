package transcript

import "fmt"

// fault is why bytes are not one JSON value. short: they are the beginning of one.
type fault struct {
	at    int
	cause string
	short bool
}

func (f *fault) Error() string { return fmt.Sprintf("%s at byte %d", f.cause, f.at+1) }

// check finds out whether b is exactly one JSON value (RFC 8259, but string bytes need not be UTF-8) no deeper than
// MaxDepth. It is encoding/json's Valid with a depth, an offset and a difference between wrong and cut off; later
// steps walk the value without checking again.
func check(b []byte) *fault {
	i, f := checkValue(b, space(b, 0), 1)
	if f != nil {
		return f
	}
	if i = space(b, i); i < len(b) {
		return &fault{at: i, cause: "bytes after the value"}
	}
	return nil
}

func space(b []byte, i int) int {
	for i < len(b) && (b[i] == ' ' || b[i] == '\n' || b[i] == '\t' || b[i] == '\r') {
		i++
	}
	return i
}

func short(b []byte) *fault { return &fault{at: len(b), cause: "unexpected end", short: true} }

func wrong(b []byte, i int, want string) (int, *fault) {
	if i >= len(b) {
		return 0, short(b)
	}
	return 0, &fault{at: i, cause: fmt.Sprintf("%q where %s is expected", b[i], want)}
}

func checkValue(b []byte, i, depth int) (int, *fault) {
	if i >= len(b) {
		return 0, short(b)
	}
	switch c := b[i]; {
	case c == '"':
		return checkString(b, i)
	case c == '{' || c == '[':
		if depth > MaxDepth {
			return 0, &fault{at: i, cause: fmt.Sprintf("nested deeper than %d", MaxDepth)}
		}
		if c == '{' {
			return checkObject(b, i, depth)
		}
		return checkArray(b, i, depth)
	case c == '-' || '0' <= c && c <= '9':
		return checkNumber(b, i)
	case c == 't':
		return checkWord(b, i, "true")
	case c == 'f':
		return checkWord(b, i, "false")
	case c == 'n':
		return checkWord(b, i, "null")
	}
	return wrong(b, i, "a value")
}

func checkObject(b []byte, i, depth int) (int, *fault) {
	i = space(b, i+1)
	if i < len(b) && b[i] == '}' {
		return i + 1, nil
	}
	for {
		if i >= len(b) || b[i] != '"' {
			return wrong(b, i, "a name")
		}
		var f *fault
		if i, f = checkString(b, i); f != nil {
			return 0, f
		}
		if i = space(b, i); i >= len(b) || b[i] != ':' {
			return wrong(b, i, "':'")
		}
		if i, f = checkValue(b, space(b, i+1), depth+1); f != nil {
			return 0, f
		}
		i = space(b, i)
		switch {
		case i < len(b) && b[i] == '}':
			return i + 1, nil
		case i >= len(b) || b[i] != ',':
			return wrong(b, i, "',' or '}'")
		}
		i = space(b, i+1)
	}
}

func checkArray(b []byte, i, depth int) (int, *fault) {
	i = space(b, i+1)
	if i < len(b) && b[i] == ']' {
		return i + 1, nil
	}
	for {
		var f *fault
		if i, f = checkValue(b, i, depth+1); f != nil {
			return 0, f
		}
		i = space(b, i)
		switch {
		case i < len(b) && b[i] == ']':
			return i + 1, nil
		case i >= len(b) || b[i] != ',':
			return wrong(b, i, "',' or ']'")
		}
		i = space(b, i+1)
	}
}

func checkString(b []byte, i int) (int, *fault) {
	for i++; i < len(b); i++ {
		switch c := b[i]; {
		case c == '"':
			return i + 1, nil
		case c < ' ':
			return wrong(b, i, "a string byte")
		case c == '\\':
			i++
			if i < len(b) && b[i] == 'u' {
				for range 4 {
					if i++; i >= len(b) || hex(b[i]) < 0 {
						return wrong(b, i, "a hex digit")
					}
				}
			} else if i >= len(b) || unescape(b[i]) == 0 {
				return wrong(b, i, "an escape")
			}
		}
	}
	return 0, short(b)
}

func checkNumber(b []byte, i int) (int, *fault) {
	if b[i] == '-' {
		i++
	}
	var f *fault
	if i < len(b) && b[i] == '0' {
		i++
	} else if i, f = checkDigits(b, i); f != nil {
		return 0, f
	}
	if i < len(b) && b[i] == '.' {
		if i, f = checkDigits(b, i+1); f != nil {
			return 0, f
		}
	}
	if i < len(b) && (b[i] == 'e' || b[i] == 'E') {
		if i++; i < len(b) && (b[i] == '+' || b[i] == '-') {
			i++
		}
		return checkDigits(b, i)
	}
	return i, nil
}

func checkDigits(b []byte, i int) (int, *fault) {
	if i >= len(b) || b[i] < '0' || b[i] > '9' {
		return wrong(b, i, "a digit")
	}
	for i < len(b) && '0' <= b[i] && b[i] <= '9' {
		i++
	}
	return i, nil
}

func checkWord(b []byte, i int, word string) (int, *fault) {
	for k := range len(word) {
		if i+k >= len(b) || b[i+k] != word[k] {
			return wrong(b, i+k, word)
		}
	}
	return i + len(word), nil
}
