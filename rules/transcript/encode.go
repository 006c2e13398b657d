package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"unicode/utf8"
)

// The format `eval@1` is what we write ourselves. One JSON object a line, names sorted by bytes, no white space, each
// line ended by "\n":
//
//	an event, in the order of events: it has a `kind`, and the fields of that kind; a field without a value is not there
//	{"id":…,"type":"thread"}       at most one, when there is a thread
//	{…,"output":…,"type":"usage"}  at most one, when a count is known; a count that is not known is not there
//
// A byte of a string that is no part of valid UTF-8 is the escape \udcXX, half a character that valid text can't
// have: the canonical JSON of all evidence, and what Python calls surrogateescape. Base64 beside the text would have
// needed two names for a field, and hidden all of a text for one byte.
//
// The JSON of a tool's arguments and result stays the producer's (order, numbers, escapes), less white space between
// tokens. What is no JSON, or no UTF-8, is a string of its bytes, as arguments_text and result_text.
const (
	typeThread = "thread"
	typeUsage  = "usage"
)

// maxCount is the greatest number of tokens that is written: beyond it JSON numbers are not exact everywhere.
const maxCount = 1 << 53

// Encoder writes a transcript in the format `eval`: first the events, then the thread, then the usage. Equal
// arguments give equal bytes; different events never do, but for white space in the JSON of tools. After an error
// nothing more is written and every call gives that error.
type Encoder struct {
	w     io.Writer
	line  []byte
	stage string // "" while events may follow, else the type of the last line
	count int
	err   error
}

// NewEncoder gives an encoder that hands each line to w in one call. A rep without an event is not a transcript:
// what printed nothing said one message without text.
func NewEncoder(w io.Writer) *Encoder { return &Encoder{w: w} }

// Encode writes the events with a new encoder.
func Encode(w io.Writer, events ...Event) error {
	enc := NewEncoder(w)
	for _, e := range events {
		if err := enc.Event(e); err != nil {
			return err
		}
	}
	return nil
}

// Event writes one event. Fields that its kind does not have are not looked at. An event that no codec would deliver
// is an error: an unknown kind, role or status, a command with another status than its exit code says.
func (enc *Encoder) Event(e Event) error {
	enc.count++
	return enc.write("", func(b []byte) ([]byte, error) {
		b, err := appendEvent(b, e)
		if err != nil {
			err = fmt.Errorf("event %d: %w", enc.count, err)
		}
		return b, err
	})
}

// Thread writes the thread id; "" is none.
func (enc *Encoder) Thread(id string) error {
	if id == "" {
		return enc.err
	}
	return enc.write(typeThread, func(b []byte) ([]byte, error) { return appendThread(b, id), nil })
}

// Usage writes the counts that are known; nothing when there is none.
func (enc *Encoder) Usage(u Usage) error {
	if u == (Usage{}) {
		return enc.err
	}
	return enc.write(typeUsage, func(b []byte) ([]byte, error) { return appendUsage(b, u) })
}

func (enc *Encoder) write(stage string, line func([]byte) ([]byte, error)) error {
	if enc.err != nil {
		return enc.err
	}
	b, err := line(enc.line[:0])
	enc.line = b
	if err == nil {
		enc.stage, err = follow(enc.stage, stage)
	}
	if err == nil && len(b) > MaxLine {
		err = fmt.Errorf("a line longer than %d bytes", MaxLine)
	}
	if err == nil {
		enc.line = append(b, '\n')
		_, err = enc.w.Write(enc.line)
	}
	if err != nil {
		enc.err = fmt.Errorf("encode transcript: %w", err)
	}
	return enc.err
}

// follow says whether a line may follow another, and gives what the last one then is. Events are "".
func follow(last, next string) (string, error) {
	switch {
	case last == "" || last == typeThread && next == typeUsage:
		return next, nil
	case next == "":
		return last, fmt.Errorf("an event after the %s", last)
	}
	return last, fmt.Errorf("the %s after the %s", next, last)
}

// appendEvent appends the line of an event, without its end.
func appendEvent(b []byte, e Event) ([]byte, error) {
	switch e.Kind {
	case KindMessage:
		if e.Role != RoleUser && e.Role != RoleAssistant {
			return b, fmt.Errorf("message with role %q", brief(e.Role))
		}
		b = append(b, `{"kind":"message","role":"`+e.Role+`","text":`...)
		b = appendText(b, e.Text)
	case KindCommand:
		if err := checkStatus(e); err != nil {
			return b, err
		}
		b = append(b, '{')
		if e.Exit != nil {
			b = strconv.AppendInt(append(b, `"exit":`...), int64(*e.Exit), 10)
			b = append(b, ',')
		}
		b = appendText(append(b, `"kind":"command","output":`...), e.Output)
		b = appendText(append(b, `,"status":"`+e.Status+`","text":`...), e.Text)
	case KindTool:
		if err := checkStatus(e); err != nil {
			return b, err
		}
		b = append(b, '{')
		if len(e.Arguments) > 0 {
			b = append(appendForeign(b, "arguments", e.Arguments), ',')
		}
		b = appendText(append(b, `"kind":"tool","name":`...), e.Name)
		if len(e.Result) > 0 {
			b = appendForeign(append(b, ','), "result", e.Result)
		}
		b = append(b, `,"status":"`+e.Status+`"`...)
	case KindError:
		b = appendText(append(b, `{"kind":"error","message":`...), e.Message)
	default:
		return b, fmt.Errorf("unknown kind %q", brief(string(e.Kind)))
	}
	return append(b, '}'), nil
}

// checkStatus holds a command or tool to what Scan promises of all formats.
func checkStatus(e Event) error {
	exit := e.Exit
	if e.Kind != KindCommand {
		exit = nil
	}
	switch {
	case e.Status != StatusCompleted && e.Status != StatusFailed && e.Status != StatusInProgress:
		return fmt.Errorf("%s with status %q", e.Kind, brief(e.Status))
	case exit == nil:
		return nil
	case int64(int32(*exit)) != int64(*exit):
		return fmt.Errorf("%s with exit code %d", e.Kind, *exit)
	case e.Status == StatusInProgress || e.Status == StatusCompleted && *exit != 0:
		return fmt.Errorf("%s is %s with exit code %d", e.Kind, e.Status, *exit)
	}
	return nil
}

func appendThread(b []byte, id string) []byte {
	return append(appendText(append(b, `{"id":`...), id), `,"type":"thread"}`...)
}

var errNoCount = errors.New("usage without a count")

func appendUsage(b []byte, u Usage) ([]byte, error) {
	if u == (Usage{}) {
		return b, errNoCount
	}
	b = append(b, '{')
	for _, c := range []struct {
		name string
		n    *int64
	}{
		{"cache_write", u.CacheWrite},
		{"cached_input", u.CachedInput},
		{"input", u.Input},
		{"output", u.Output},
		{"reasoning", u.Reasoning},
	} {
		if c.n == nil {
			continue
		}
		if *c.n < 0 || *c.n > maxCount {
			return b, fmt.Errorf("usage: %s of %d tokens", c.name, *c.n)
		}
		b = append(append(append(b, '"'), c.name...), `":`...)
		b = append(strconv.AppendInt(b, *c.n, 10), ',')
	}
	return append(b, `"type":"usage"}`...), nil
}

// appendForeign appends a member whose value is JSON of the producer.
func appendForeign(b []byte, name string, raw json.RawMessage) []byte {
	b = append(append(b, '"'), name...)
	// From depth 2: the line is the object around it.
	start := space(raw, 0)
	end, f := checkValue(raw, start, 2)
	if f != nil || space(raw, end) != len(raw) || !utf8.Valid(raw) {
		return appendText(append(b, `_text":`...), string(raw))
	}
	b = append(b, `":`...)
	for i := start; i < end; {
		next := i + 1
		if raw[i] == '"' {
			next = skipString(value(raw), i)
		}
		if bytes.IndexByte([]byte(" \t\r\n"), raw[i]) < 0 {
			b = append(b, raw[i:next]...)
		}
		i = next
	}
	return b
}

const hexDigits = "0123456789abcdef"

// appendText appends a string as canonical JSON has it. It is the one of package starlark, which rules can't import;
// a test there holds them together.
func appendText(b []byte, s string) []byte {
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
		case c < 0x20 || c == 0x7f:
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
