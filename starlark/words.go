package starlark

import (
	"fmt"
	"strings"

	sl "go.starlark.net/starlark"
)

// nativeParts is native.parts(text, what): text cut at $(location LABEL) and
// $(out NAME), as strings and (kind, name) tuples; $$ is a dollar. An error
// begins with what the text is.
func nativeParts(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var text, what string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "text", &text, "what", &what); err != nil {
		return nil, err
	}
	var parts []sl.Value
	var plain strings.Builder
	for rest := text; rest != ""; {
		i := strings.IndexByte(rest, '$')
		if i < 0 {
			plain.WriteString(rest)
			break
		}
		plain.WriteString(rest[:i])
		rest = rest[i+1:]
		switch {
		case strings.HasPrefix(rest, "$"):
			plain.WriteByte('$')
			rest = rest[1:]
		case strings.HasPrefix(rest, "("):
			inner, after, closed := strings.Cut(rest[1:], ")")
			if !closed {
				return nil, fmt.Errorf("%s: %q: the $( is not closed", what, text)
			}
			kind, name, _ := strings.Cut(inner, " ")
			name = strings.TrimSpace(name)
			if kind != "location" && kind != "out" || name == "" {
				return nil, fmt.Errorf("%s: %q: $(%s) is neither $(location LABEL) nor $(out NAME); a dollar is written $$", what, text, inner)
			}
			if plain.Len() > 0 {
				parts = append(parts, sl.String(plain.String()))
				plain.Reset()
			}
			parts = append(parts, sl.Tuple{sl.String(kind), sl.String(name)})
			rest = after
		default:
			return nil, fmt.Errorf("%s: %q: a dollar is written $$; $(location LABEL) and $(out NAME) are paths", what, text)
		}
	}
	if plain.Len() > 0 {
		parts = append(parts, sl.String(plain.String()))
	}
	return sl.NewList(parts), nil
}

// nativeLabel is native.label(text): a label as the target that is being
// analysed would write it.
func nativeLabel(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	c, _ := t.Local(analysisKey).(*analysis)
	if c == nil {
		return nil, fmt.Errorf("%s works only in an implementation", b.Name())
	}
	var text string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "text", &text); err != nil {
		return nil, err
	}
	l, err := c.loader.resolve(text, c.target.Label)
	return labelValue{l}, err
}

// nativeHostPath is native.host_path(text): whether it is a path of this machine
// and no label. One that can't be meant is an error.
func nativeHostPath(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var text string
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "text", &text); err != nil {
		return nil, err
	}
	if !isHostPath(text) {
		return sl.False, nil
	}
	return sl.True, checkHostPath(text)
}
