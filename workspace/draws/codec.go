package draws

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// maxInt is the largest integer that every reader of JSON keeps exactly.
const maxInt = 1<<53 - 1

var repFields = []string{"kind", "seq", "label", "stream", "index", "epoch", "redraw", "block", "key", "run"}

// fields are those of each kind.
var fields = map[Kind][]string{
	Intent:    repFields,
	Draw:      append(slices.Clip(repFields), "capture", "attempts"),
	Abandoned: append(slices.Clip(repFields), "why"),
	Adopted:   append(slices.Clip(repFields), "from", "capture"),
	Surplus:   append(slices.Clip(repFields), "from", "capture"),
	Look: {
		"kind", "seq", "label", "block", "n", "fingerprint", "alpha", "effect", "margin", "verdict", "conclusion", "reps",
	},
}

// at gives the place of a field.
func (l *Line) at(field string) any {
	switch field {
	case "kind":
		return (*string)(&l.Kind)
	case "seq":
		return &l.Seq
	case "label":
		return &l.Label
	case "stream":
		return &l.Sample.Stream
	case "index":
		return &l.Sample.Index
	case "epoch":
		return &l.Sample.Epoch
	case "redraw":
		return &l.Sample.Redraw
	case "block":
		return &l.Sample.Block
	case "key":
		return (*cas.Digest)(&l.Key)
	case "run":
		return &l.Run
	case "capture":
		return &l.Capture
	case "attempts":
		return &l.Attempts
	case "why":
		return &l.Why
	case "from":
		return &l.From
	case "n":
		return &l.N
	case "fingerprint":
		return &l.Fingerprint
	case "reps":
		return &l.Reps
	case "alpha":
		return &l.Alpha
	case "effect":
		return &l.Effect
	case "margin":
		return &l.Margin
	case "verdict":
		return &l.Verdict
	case "conclusion":
		return &l.Conclusion
	}
	panic("draws: no field " + field)
}

// minimum is the least value of integers; the others' is 0.
var minimum = map[string]int64{"seq": 1, "index": 1, "epoch": 1, "attempts": 1}

// mayBeEmpty are the strings that need no content. A probe with one arm has no
// block, a cause is better empty than not recorded, and what binds a scoring
// comes before any rep.
var mayBeEmpty = map[string]bool{"block": true, "why": true, "reps": true}

// check judges one field's value.
func check(name string, at any) error {
	integer := func(n int64) error {
		if n < minimum[name] || n > maxInt {
			return fmt.Errorf("%s is %d, want %d to %d", name, n, minimum[name], int64(maxInt))
		}
		return nil
	}
	switch v := at.(type) {
	case *string:
		switch {
		case !utf8.ValidString(*v):
			return fmt.Errorf("%s is not valid UTF-8", name)
		case strings.Contains(*v, "\x00"):
			return fmt.Errorf("%s has a NUL", name)
		case *v == "" && !mayBeEmpty[name]:
			return fmt.Errorf("%s is empty", name)
		case name == "run" && !validRun(*v):
			return fmt.Errorf("run %q is not %d lower-case hex digits", *v, runDigits)
		}
	case *int:
		return integer(int64(*v))
	case *int64:
		return integer(*v)
	case *float64:
		if !(*v >= 0) || math.IsInf(*v, 0) || math.Signbit(*v) {
			return fmt.Errorf("%s is %v, want a number from 0", name, *v)
		}
	case *cas.Digest:
		if d, err := cas.ParseDigest(v.String()); err != nil || d != *v {
			return fmt.Errorf("%s is no digest", name)
		}
	case *graph.Label:
		if l, err := graph.ParseLabel(v.String(), graph.Label{}); err != nil || l != *v {
			return fmt.Errorf("%s %q is no label", name, v.String())
		}
	}
	return nil
}

// encode gives the line with its newline. What it gives, decode reads as l.
func encode(l Line) ([]byte, error) {
	if fields[l.Kind] == nil {
		return nil, fmt.Errorf("unknown kind %q", l.Kind)
	}
	var only Line
	b := make([]byte, 0, 512)
	for i, name := range sorted[l.Kind] {
		at := l.at(name)
		if err := check(name, at); err != nil {
			return nil, err
		}
		b = append(append(append(b, "{,"[min(i, 1)], '"'), name...), `":`...)
		var err error
		switch v, to := at, only.at(name); v := v.(type) {
		case *string:
			*to.(*string) = *v
			b, err = appendText(b, *v)
		case *int:
			*to.(*int) = *v
			b = strconv.AppendInt(b, int64(*v), 10)
		case *int64:
			*to.(*int64) = *v
			b = strconv.AppendInt(b, *v, 10)
		case *float64:
			*to.(*float64) = *v
			b, err = appendJSON(b, *v)
		case *cas.Digest:
			*to.(*cas.Digest) = *v
			b, err = appendText(b, v.String())
		case *graph.Label:
			*to.(*graph.Label) = *v
			b, err = appendText(b, v.String())
		}
		if err != nil {
			return nil, err
		}
	}
	if only != l {
		return nil, fmt.Errorf("a field is set that %s lines don't have", l.Kind)
	}
	if b = append(b, "}\n"...); len(b) > MaxLine {
		return nil, fmt.Errorf("the line has %d bytes, more than %d", len(b), MaxLine)
	}
	return b, nil
}

// sorted are the fields of each kind as lines have them.
var sorted = func() map[Kind][]string {
	m := map[Kind][]string{}
	for kind, names := range fields {
		m[kind] = slices.Sorted(slices.Values(names))
	}
	return m
}()

// appendText is appendJSON of a string, which mostly needs no escape: reading a
// lock writes each of its lines once, to compare.
func appendText(b []byte, s string) ([]byte, error) {
	for i := range len(s) {
		if c := s[i]; c < ' ' || c >= 0x7f || c == '"' || c == '\\' {
			return appendJSON(b, s)
		}
	}
	return append(append(append(b, '"'), s...), '"'), nil
}

func appendJSON(b []byte, v any) ([]byte, error) {
	var w bytes.Buffer
	e := json.NewEncoder(&w)
	e.SetEscapeHTML(false)
	err := e.Encode(v)
	return append(b, bytes.TrimSuffix(w.Bytes(), []byte("\n"))...), err
}

// decode reads a line without its newline.
func decode(b []byte) (Line, error) {
	var l Line
	switch {
	case len(b)+1 > MaxLine:
		return l, fmt.Errorf("the line has %d bytes, more than %d", len(b)+1, MaxLine)
	case bytes.IndexByte(b, 0) >= 0:
		return l, errors.New("the line has a NUL")
	case !utf8.Valid(b):
		return l, errors.New("the line is not valid UTF-8")
	case len(b) == 0:
		return l, errors.New("the line is empty")
	case bytes.HasPrefix(b, []byte("<<<<<<<")), bytes.HasPrefix(b, []byte(">>>>>>>")), bytes.Equal(b, []byte("=======")):
		return l, fmt.Errorf("a conflict of a merge was left: keep the lines of both sides, and put %q into .gitattributes", Attributes)
	}
	var m map[string]json.RawMessage
	if err := json.Unmarshal(b, &m); err != nil || m == nil {
		return l, errors.New("the line is no JSON object")
	}
	if err := get(m, "kind", (*string)(&l.Kind)); err != nil {
		return l, err
	}
	names, ok := fields[l.Kind]
	if !ok {
		return l, fmt.Errorf("unknown kind %q", l.Kind)
	}
	for _, name := range names {
		if err := get(m, name, l.at(name)); err != nil {
			return l, err
		}
	}
	for name := range m {
		if !slices.Contains(names, name) {
			return l, fmt.Errorf("unknown field %q of %s", name, l.Kind)
		}
	}
	again, err := encode(l)
	if err != nil {
		return l, err
	}
	if !bytes.Equal(again[:len(again)-1], b) {
		return l, errors.New("the line is not canonical: sorted keys, no spaces, each key once, no needless escapes")
	}
	return l, nil
}

// get reads one field.
func get(m map[string]json.RawMessage, name string, to any) error {
	raw, ok := m[name]
	if !ok {
		return fmt.Errorf("field %q is missing", name)
	}
	var s string
	var err error
	switch to := to.(type) {
	case *int, *int64, *float64:
		if raw[0] == 'n' || json.Unmarshal(raw, to) != nil {
			return fmt.Errorf("%s is %.40s, want a number", name, raw)
		}
		return nil
	default:
		if raw[0] != '"' || json.Unmarshal(raw, &s) != nil {
			return fmt.Errorf("%s is %.40s, want a string", name, raw)
		}
		switch to := to.(type) {
		case *string:
			*to = s
		case *cas.Digest:
			*to, err = cas.ParseDigest(s)
		case *graph.Label:
			*to, err = graph.ParseLabel(s, graph.Label{})
		}
	}
	if err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	return nil
}
