package transcript

import (
	"bytes"
	"fmt"
	"io"
	"strings"
)

const (
	maxOpen      = 1024     // calls that are open at a time
	maxOpenBytes = 64 << 20 // and the bytes of their arguments
	maxMalformed = 5        // reasons that are spelt out; the others are counted
	maxDetail    = 200      // bytes of foreign text in a reason
)

// decoder turns the lines of one format into events. end is called once, after the last line.
type decoder interface {
	line(v value)
	end()
}

// documenter is a decoder of a format that may also be one JSON document over many lines.
type documenter interface {
	document(v value)
}

// scan is the state of one pass: what all formats share.
type scan struct {
	each func(Event) error
	sum  Summary
	err  error

	number    int // of the line, from 1
	malformed int
	threads   bool // a second thread was reported

	failed  bool
	failure string

	open      []call
	openBytes int
}

// call is a command or tool that has begun.
type call struct {
	id    string
	event Event
}

func (c *call) size() int { return len(c.id) + len(c.event.Text) + len(c.event.Arguments) }

func (s *scan) run(r io.Reader, d decoder) {
	lines := newLines(r)
	seen := false
	for s.err == nil && lines.next() {
		s.number = lines.number
		line := bytes.Trim(lines.line, " \t\r\n")
		switch {
		case lines.tooLong:
			s.bad("longer than %d bytes", MaxLine)
		case len(line) == 0:
			continue
		default:
			doc, ok := d.(documenter)
			if ok && !seen && isDocument(line) {
				s.document(lines, line, doc)
			} else {
				s.one(line, lines.last, d.line)
			}
		}
		seen = true
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
	d.end()
	s.end()
}

// one checks the bytes of one value and hands an object on.
func (s *scan) one(b []byte, last bool, use func(value)) {
	switch f := check(b); {
	case f != nil && f.short && last:
		s.bad("cut off: %v", f)
	case f != nil:
		s.bad("not JSON: %v", f)
	case b[0] != '{':
		s.bad("not an object")
	default:
		use(b)
	}
}

// isDocument says whether the first line begins a document rather than being an event: an object that has no type,
// whole or cut off by the end of the line.
func isDocument(line []byte) bool {
	f := check(line)
	if f != nil {
		return f.short && line[0] == '{' && !bytes.Contains(line, []byte(`"type"`))
	}
	v := value(line)
	return v.isObject() && v.get("type") == nil && (v.get("response") != nil || v.get("stats") != nil || v.get("error") != nil)
}

// document reads the lines of the rest as one value.
func (s *scan) document(lines *lines, first []byte, d documenter) {
	text := bytes.Clone(first)
	for lines.next() {
		if lines.tooLong || len(text)+len(lines.line) >= MaxLine {
			s.bad("document longer than %d bytes", MaxLine)
			for lines.next() {
			}
			return
		}
		text = append(append(text, '\n'), lines.line...)
	}
	s.one(bytes.Trim(text, " \t\r\n"), true, d.document)
}

// text is the format without structure: the reply is the file less one trailing "\n". A "\r" before it stays; it may
// be the producer's.
func (s *scan) text(r io.Reader) {
	b, err := io.ReadAll(io.LimitReader(r, MaxReply+2))
	if err != nil {
		s.err = fmt.Errorf("read transcript: %w", err)
		return
	}
	b = bytes.TrimSuffix(b, []byte("\n"))
	if len(b) > MaxReply {
		s.number = 1 + bytes.Count(b[:MaxReply], []byte("\n"))
		s.bad("reply longer than %d bytes", MaxReply)
		return
	}
	s.message(RoleAssistant, string(b))
}

func (s *scan) end() {
	for _, c := range s.open {
		s.abandon(c)
	}
	s.open = nil
	if more := s.malformed - maxMalformed; more > 0 {
		s.sum.Degraded = append(s.sum.Degraded, Reason{Malformed, fmt.Sprintf("%d more", more)})
	}
	if s.failed {
		s.sum.Degraded = append(s.sum.Degraded, Reason{ProducerFailed, s.failure})
	}
}

func (s *scan) bad(format string, args ...any) {
	if s.malformed++; s.malformed <= maxMalformed {
		detail := fmt.Sprintf("line %d: ", s.number) + fmt.Sprintf(format, args...)
		s.sum.Degraded = append(s.sum.Degraded, Reason{Malformed, detail})
	}
}

// fail records that the producer failed; the first cause is kept. quote is text of the transcript, or "".
func (s *scan) fail(cause, quote string) {
	if s.failed {
		return
	}
	s.failed, s.failure = true, cause
	if quote != "" {
		s.failure += ": " + brief(quote)
	}
}

func brief(text string) string {
	if len(text) > maxDetail {
		return strings.Clone(text[:maxDetail]) + "…"
	}
	return text
}

func (s *scan) emit(e Event) {
	if s.err != nil {
		return
	}
	s.sum.Events++
	if s.each != nil {
		s.err = s.each(e)
	}
}

func (s *scan) message(role, text string) {
	if role == RoleAssistant {
		s.sum.Reply = text
	}
	s.emit(Event{Kind: KindMessage, Role: role, Text: text})
}

func (s *scan) problem(message string) { s.emit(Event{Kind: KindError, Message: message}) }

func (s *scan) thread(id string) {
	switch {
	case id == "" || id == s.sum.ThreadID:
	case s.sum.ThreadID == "":
		s.sum.ThreadID = id
	case !s.threads:
		s.threads = true
		s.bad("a second thread id")
	}
}

// begin opens a call. A transcript with more open calls than any agent has would grow in memory: the oldest is given up.
func (s *scan) begin(id string, e Event) {
	c := call{id, e}
	s.open = append(s.open, c)
	s.openBytes += c.size()
	for len(s.open) > maxOpen || s.openBytes > maxOpenBytes && len(s.open) > 1 {
		oldest := s.open[0]
		s.open = append(s.open[:0], s.open[1:]...)
		s.openBytes -= oldest.size()
		s.bad("too many open calls")
		s.abandon(oldest)
	}
}

func (s *scan) abandon(c call) {
	c.event.Status = StatusInProgress
	s.emit(c.event)
}

// finish closes a call and gives it, or a tool without a name when its beginning was not in the transcript.
func (s *scan) finish(id string) Event {
	for i, c := range s.open {
		if c.id == id {
			s.open = append(s.open[:i], s.open[i+1:]...)
			s.openBytes -= c.size()
			return c.event
		}
	}
	return Event{Kind: KindTool}
}

// ended emits a call that is over. A command that exits non-zero has failed, in all formats.
func (s *scan) ended(e Event, failed bool) {
	e.Status = StatusCompleted
	if failed || e.Exit != nil && *e.Exit != 0 {
		e.Status = StatusFailed
	}
	s.emit(e)
}
