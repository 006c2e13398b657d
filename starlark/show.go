package starlark

import (
	"strings"
	"unicode/utf8"

	sl "go.starlark.net/starlark"
)

// showValue is a value for people, in at most limit bytes. The interpreter's
// own String recurses for ever on a list in a struct in that list, and takes
// its time with a long one: such a value is shown by its type.
func showValue(v sl.Value, limit int) string {
	if s, ok := v.(sl.String); ok && len(s) > limit { // quoted, it is longer yet
		v = s[:limit]
	}
	left := 1000 + limit/10
	if !isSmall(v, 50, &left) {
		return "<" + v.Type() + ">"
	}
	s := v.String()
	if len(s) <= limit {
		return s
	}
	cut := limit - len("...")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "..."
}

// isSmall says whether v has at most so many parts, nested so deep at most.
func isSmall(v sl.Value, depth int, left *int) bool {
	if *left--; *left < 0 || depth < 0 {
		return false
	}
	switch v := v.(type) {
	case sl.String:
		*left -= len(v) / 1000
	case *sl.Dict:
		for k, x := range v.Entries() {
			if !isSmall(k, depth-1, left) || !isSmall(x, depth-1, left) {
				return false
			}
		}
	case *eventSeq: // String reads nothing
	case sl.Iterable:
		for x := range sl.Elements(v) {
			if !isSmall(x, depth-1, left) {
				return false
			}
		}
	case sl.HasAttrs:
		if v.Type() != "struct" && !isInstance(v) {
			return true
		}
		for _, name := range v.AttrNames() {
			if x, err := v.Attr(name); err != nil || !isSmall(x, depth-1, left) {
				return false
			}
		}
	}
	return true
}

// shorten is a value in a line with other things.
func shorten(v sl.Value) string { return strings.ToValidUTF8(showValue(v, 60), "\ufffd") }

// AttrText is an attribute's value for people: a function by file and name, a
// string as it is.
func AttrText(v sl.Value) string {
	switch v := v.(type) {
	case nil:
		return ""
	case *sl.Function:
		return functionName(v)
	case sl.String:
		return string(v)
	}
	return showValue(v, maxAttrText)
}

// maxAttrText is enough for a list of some thousand labels.
const maxAttrText = 1 << 20
