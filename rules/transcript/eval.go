package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
)

// canonical reads the format `eval`, which only an Encoder writes. Here nothing is ignored and nothing is allowed for:
// a line counts if the encoder gives its very bytes for what was read of it, so that a transcript has one encoding.
func (s *scan) canonical(r io.Reader) {
	lines := newLines(r)
	own := &ownLines{scan: s}
	seen := false
	for s.err == nil && lines.next() {
		s.number, seen = lines.number, true
		switch {
		case lines.tooLong:
			s.bad("longer than %d bytes", MaxLine)
		case lines.last:
			s.bad("cut off: no line end")
		default:
			s.one(lines.line, false, own.line)
		}
	}
	if s.err == nil {
		s.err = lines.err
	}
	if s.err != nil {
		return
	}
	if !seen {
		s.number = 1
		s.bad("empty")
	}
	s.end()
}

// ownLines is the state of one pass over lines of ours.
type ownLines struct {
	*scan
	stage string // as in Encoder
	want  []byte // what the encoder gives for a line
}

func (o *ownLines) line(v value) {
	stage := v.get("type").text()
	var use func()
	var err error
	switch o.want = o.want[:0]; stage {
	case "":
		e := ownEvent(v)
		o.want, err = appendEvent(o.want, e)
		use = func() {
			if e.Kind == KindMessage {
				o.message(e.Role, e.Text)
			} else {
				o.emit(e)
			}
		}
	case typeThread:
		id := v.get("id").bytes()
		if o.want = appendThread(o.want, id); id == "" {
			err = errors.New("thread without an id")
		}
		use = func() { o.thread(id) }
	case typeUsage:
		u := ownUsage(v)
		o.want, err = appendUsage(o.want, u)
		use = func() { o.sum.Usage = u }
	default:
		err = fmt.Errorf("unknown type %q", brief(stage))
	}
	if err == nil {
		err = o.differs(v)
	}
	if err == nil {
		o.stage, err = follow(o.stage, stage)
	}
	if err != nil {
		o.bad("%v", err)
		return
	}
	use()
}

// differs says where a line is not as the encoder writes it: other order, white space, escapes, names twice, names
// that the format does not have.
func (o *ownLines) differs(v value) error {
	if bytes.Equal(v, o.want) {
		return nil
	}
	at := 0
	for at < len(v) && at < len(o.want) && v[at] == o.want[at] {
		at++
	}
	return fmt.Errorf("not as it is written, at byte %d", at+1)
}

func ownEvent(v value) Event {
	e := Event{Kind: Kind(v.get("kind").text())}
	switch e.Kind {
	case KindMessage:
		e.Role, e.Text = v.get("role").text(), v.get("text").bytes()
	case KindCommand:
		e.Exit = v.get("exit").exit()
		e.Output, e.Status, e.Text = v.get("output").bytes(), v.get("status").text(), v.get("text").bytes()
	case KindTool:
		e.Name, e.Status = v.get("name").bytes(), v.get("status").text()
		e.Arguments, e.Result = v.foreign("arguments"), v.foreign("result")
	case KindError:
		e.Message = v.get("message").bytes()
	}
	return e
}

func ownUsage(v value) Usage {
	return Usage{
		CacheWrite:  v.get("cache_write").count(),
		CachedInput: v.get("cached_input").count(),
		Input:       v.get("input").count(),
		Output:      v.get("output").count(),
		Reasoning:   v.get("reasoning").count(),
	}
}

// foreign is the JSON of a producer, or what stood in its place.
func (v value) foreign(name string) []byte {
	if raw := v.get(name); raw != nil {
		return raw.raw()
	}
	if text := v.get(name + "_text").bytes(); text != "" {
		return []byte(text)
	}
	return nil
}

// bytes is text, in which \udcXX from \udc80 on is the byte XX. text has made three bytes of it, which a line of ours
// does not have themselves: as invalid UTF-8 they would be three escapes.
func (v value) bytes() string {
	text := v.text()
	if bytes.IndexByte(v, '\\') < 0 {
		return text
	}
	out := make([]byte, 0, len(text))
	for i := 0; i < len(text); i++ {
		c := text[i]
		if c == 0xed && i+2 < len(text) && (text[i+1] == 0xb2 || text[i+1] == 0xb3) {
			c = text[i+1]<<6 | text[i+2]&0x3f
			i += 2
		}
		out = append(out, c)
	}
	return string(out)
}
