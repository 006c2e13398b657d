package workspace

import (
	"errors"
	"fmt"
	"strings"
	"unicode/utf8"
)

// pattern is a compiled glob: one segment for each folder level.
type pattern []segment

// maxSegments is what fits the bits of a states word, with one for the end.
const maxSegments = 63

// segment matches the name of one file or folder, or, as "**", any number.
type segment struct {
	any    bool // **
	dotted bool // it begins with a dot, so it may match names that do
	text   string
	tokens []token // nil: text is literal
}

// token matches one character, or, as a star, any number.
type token struct {
	kind   byte // 'c' a character, '?', '*', '['
	char   rune
	ranges []rune // of '[': pairs of first and last
}

// parsePattern compiles a pattern relative to a package. There is no escape
// character; a class of one, [*], stands for a special character.
func parsePattern(s string) (pattern, error) {
	bad := func(err error) (pattern, error) { return nil, fmt.Errorf("pattern %q: %w", s, err) }
	if s == "" {
		return bad(errors.New("it is empty"))
	}
	if err := checkPath(s); err != nil {
		return bad(err)
	}
	var p pattern
	for text := range strings.SplitSeq(s, "/") {
		if text == "**" {
			if len(p) == 0 || !p[len(p)-1].any { // **/** is **
				p = append(p, segment{any: true, text: text})
			}
			continue
		}
		seg, err := parseSegment(text)
		if err != nil {
			return bad(err)
		}
		p = append(p, seg)
	}
	if len(p) > maxSegments {
		return bad(fmt.Errorf("more than %d segments", maxSegments))
	}
	return p, nil
}

func parseSegment(text string) (segment, error) {
	seg := segment{text: text, dotted: text[0] == '.'}
	if strings.Contains(text, "**") {
		return seg, errors.New("** stands for whole folders, between slashes")
	}
	if strings.Contains(text, `\`) {
		return seg, errors.New(`\ is not an escape; write [*] for a literal *`)
	}
	if !strings.ContainsAny(text, "*?[") {
		return seg, nil
	}
	for rest := text; rest != ""; {
		r, n := utf8.DecodeRuneInString(rest)
		switch r {
		case '*', '?':
			seg.tokens = append(seg.tokens, token{kind: byte(r)})
		case '[':
			class, size, err := parseClass(rest)
			if err != nil {
				return seg, err
			}
			seg.tokens, n = append(seg.tokens, class), size
		default:
			seg.tokens = append(seg.tokens, token{kind: 'c', char: r})
		}
		rest = rest[n:]
	}
	return seg, nil
}

// parseClass reads a class at the start of s: [abc], [a-z0-9], [-a].
func parseClass(s string) (token, int, error) {
	body, _, closed := strings.Cut(s[1:], "]")
	switch {
	case !closed:
		return token{}, 0, errors.New("a [ without its ]")
	case body == "":
		return token{}, 0, errors.New("the class [] is empty")
	case body[0] == '!' || body[0] == '^':
		return token{}, 0, fmt.Errorf("[%s] would negate a class; use exclude", body)
	}
	class := token{kind: '['}
	runes := []rune(body)
	for i := 0; i < len(runes); i++ {
		first, last := runes[i], runes[i]
		if i+2 < len(runes) && runes[i+1] == '-' {
			last, i = runes[i+2], i+2
		}
		if last < first {
			return token{}, 0, fmt.Errorf("the range %c-%c in [%s] is backwards", first, last, body)
		}
		class.ranges = append(class.ranges, first, last)
	}
	return class, len(body) + 2, nil
}

func (t token) matches(r rune) bool {
	switch t.kind {
	case 'c':
		return t.char == r
	case '[':
		for i := 0; i < len(t.ranges); i += 2 {
			if t.ranges[i] <= r && r <= t.ranges[i+1] {
				return true
			}
		}
		return false
	}
	return true
}

// match reports whether the segment, which is not "**", matches a name. On a
// mismatch it goes back to the last star only, which is enough: so the time is
// the product of the lengths at worst, never exponential.
func (s *segment) match(name string) bool {
	if s.tokens == nil {
		return name == s.text
	}
	if name[0] == '.' && !s.dotted {
		return false
	}
	at, tok := 0, 0
	star, mark := -1, 0 // the last star, and where what follows it was tried
	for at < len(name) {
		r, n := utf8.DecodeRuneInString(name[at:])
		switch {
		case tok < len(s.tokens) && s.tokens[tok].kind == '*':
			star, mark = tok, at
			tok++
		case tok < len(s.tokens) && s.tokens[tok].matches(r):
			tok++
			at += n
		case star >= 0:
			_, n := utf8.DecodeRuneInString(name[mark:])
			mark += n
			at, tok = mark, star+1
		default:
			return false
		}
	}
	for tok < len(s.tokens) && s.tokens[tok].kind == '*' {
		tok++
	}
	return tok == len(s.tokens)
}

// states says how far each pattern may have come on the way to a folder: bit i
// of word p means that segments up to i of pattern p are behind it.
type states []uint64

func start(patterns []pattern) states {
	s := make(states, len(patterns))
	for i, p := range patterns {
		s[i] = p.closure(0)
	}
	return s
}

// closure gives the bit of i, and of what follows if segment i is "**", which
// may stand for no folder at all.
func (p pattern) closure(i int) uint64 {
	bits := uint64(1) << i
	if p[i].any && i+1 < len(p) {
		bits |= 1 << (i + 1)
	}
	return bits
}

// enter gives the states in the folder name, and whether any pattern is left.
func (s states) enter(patterns []pattern, name string) (states, bool) {
	next, left := make(states, len(s)), false
	for i, p := range patterns {
		for j := range p {
			if s[i]&(1<<j) == 0 {
				continue
			}
			switch {
			case p[j].any && name[0] != '.':
				next[i] |= p.closure(j)
			case !p[j].any && j+1 < len(p) && p[j].match(name):
				next[i] |= p.closure(j + 1)
			}
		}
		left = left || next[i] != 0
	}
	return next, left
}

// matches reports whether a pattern ends with the file name.
func (s states) matches(patterns []pattern, name string) bool {
	for i, p := range patterns {
		last := len(p) - 1
		if s[i]&(1<<last) == 0 {
			continue
		}
		if p[last].any && name[0] != '.' || !p[last].any && p[last].match(name) {
			return true
		}
	}
	return false
}

// all reports whether a pattern matches every file below that no dotted
// segment names: one that is at its trailing "**".
func (s states) all(patterns []pattern) bool {
	for i, p := range patterns {
		if last := len(p) - 1; p[last].any && s[i]&(1<<last) != 0 {
			return true
		}
	}
	return false
}
