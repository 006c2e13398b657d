package starlark

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"go.starlark.net/syntax"
)

// Origins maps positions of a portable text to those of the files that its
// functions come from. It is for messages, and in no key: an edit that moves a
// function changes the origins and not the text.
type Origins struct {
	marks []originMark // in the order of the text
}

// An originMark is the position of one token.
type originMark struct {
	line, col int32
	origin    syntax.Position
}

// Locate returns where line and col (counted from 1, in characters) of the
// text come from, as pkg/file.star:line:col: the last token that begins at or
// before col, or else the first of the line. col 0 is the line as such: the
// answer has no column. Lines that come from no file have no origin.
func (o *Origins) Locate(line, col int) (string, bool) {
	i, _ := slices.BinarySearchFunc(o.marks, int32(line), func(m originMark, line int32) int { return int(m.line) - int(line) })
	if i == len(o.marks) || int(o.marks[i].line) != line {
		return "", false
	}
	p := o.marks[i].origin
	if col == 0 {
		return fmt.Sprintf("%s:%d", showFile(p.Filename()), p.Line), true
	}
	for ; i < len(o.marks) && int(o.marks[i].line) == line && int(o.marks[i].col) <= col; i++ {
		p = o.marks[i].origin
	}
	return showPos(p), true
}

// Rewrite replaces each name:LINE:COL and name:LINE in s, where name is what
// the text was opened as, by where that comes from.
func (o *Origins) Rewrite(name, s string) string {
	re := regexp.MustCompile(regexp.QuoteMeta(name) + `:(\d+)(?::(\d+))?`)
	var b strings.Builder
	end := 0
	for _, m := range re.FindAllStringSubmatchIndex(s, -1) {
		if m[0] > 0 && partOfPath(s[m[0]-1]) { // the end of another file's name
			continue
		}
		line, err := strconv.Atoi(s[m[2]:m[3]])
		col := 0
		if err == nil && m[4] >= 0 {
			col, err = strconv.Atoi(s[m[4]:m[5]])
		}
		if err != nil {
			continue
		}
		if at, ok := o.Locate(line, col); ok {
			b.WriteString(s[end:m[0]] + at)
			end = m[1]
		}
	}
	return b.String() + s[end:]
}

func partOfPath(c byte) bool {
	return c == '.' || c == '-' || c == '_' || c == '/' || c == ':' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z' || c >= 0x80
}
