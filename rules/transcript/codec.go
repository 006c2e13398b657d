package transcript

import (
	"encoding/json"
	"fmt"
	"io"
)

// Limits of one transcript. Beyond them it is malformed; nothing grows with its length.
const (
	MaxLine  = 64 << 20 // bytes of one line
	MaxReply = 64 << 20 // bytes of the reply
	MaxDepth = 1000     // nesting of arrays and objects
)

// Codes of the reasons that this package gives.
const (
	ProducerFailed = "producer-failed"
	Malformed      = "malformed-transcript"
	SourceRead     = "source-read"
	SiblingRead    = "sibling-read"
)

// Kind says which fields of an Event have a meaning.
type Kind string

// The kinds of events.
const (
	KindMessage Kind = "message" // Role, Text
	KindCommand Kind = "command" // Text, Exit, Output, Status
	KindTool    Kind = "tool"    // Name, Arguments, Result, Status
	KindError   Kind = "error"   // Message
)

// Values of Event.Status. An event that is in progress never ended: the transcript stops before.
const (
	StatusCompleted  = "completed"
	StatusFailed     = "failed"
	StatusInProgress = "in_progress"
)

// Roles of a message.
const (
	RoleUser      = "user"
	RoleAssistant = "assistant"
)

// Event is one thing that happened in a rep, delivered in the order in which it ended. Its strings may hold any bytes.
type Event struct {
	Kind              Kind
	Role, Text        string
	Exit              *int // nil when the format does not tell
	Output, Status    string
	Name              string
	Arguments, Result json.RawMessage // as written in the transcript; nil when there is none
	Message           string
}

// Ended says whether the event is over; the `commands` of a rep are the command events that ended.
func (e *Event) Ended() bool { return e.Status != StatusInProgress }

// Usage counts tokens with one meaning for all formats: Input, CachedInput and CacheWrite are disjoint, Output
// includes Reasoning. nil is not reported.
type Usage struct{ Input, CachedInput, CacheWrite, Output, Reasoning *int64 }

// Reason is why a rep is degraded. Detail is short and may hold any bytes: whoever prints it escapes it.
type Reason struct{ Code, Detail string }

// Summary is what a transcript says as a whole. Arm and Index are set only when the transcript itself names them.
type Summary struct {
	Reply    string
	Usage    Usage
	ThreadID string
	Arm      string
	Index    int
	Degraded []Reason
	Events   int // delivered
}

// Codec reads one format. Version rises when the same bytes would give another Summary or other events.
type Codec struct {
	Name    string
	Version int
	decode  func(*scan) decoder    // of the log of an agent CLI, or
	read    func(*scan, io.Reader) // of what is none
}

var codecs = []*Codec{
	{Name: "text", Version: 1, read: (*scan).text},
	{Name: "codex", Version: 1, decode: newCodex},
	{Name: "claude", Version: 1, decode: newClaude},
	{Name: "gemini", Version: 1, decode: newGemini},
	{Name: "pi", Version: 1, decode: newPi},
	{Name: "opencode", Version: 1, decode: newOpencode},
	{Name: "qwen", Version: 1, decode: newQwen},
	{Name: "eval", Version: 1, read: (*scan).canonical},
}

// Lookup finds the codec of a format.
func Lookup(name string) (*Codec, bool) {
	for _, c := range codecs {
		if c.Name == name {
			return c, true
		}
	}
	return nil, false
}

// Names lists the formats in their fixed order.
func Names() []string {
	names := make([]string, len(codecs))
	for i, c := range codecs {
		names[i] = c.Name
	}
	return names
}

// ID is the codec as it stands in a key: `codex@1`.
func (c *Codec) ID() string { return fmt.Sprintf("%s@%d", c.Name, c.Version) }

// CLI says whether the format is the log of an agent CLI, no two of which are the same bytes. Plain text is not, and
// neither is `eval`: two reps of a program may say the same.
func (c *Codec) CLI() bool { return c.decode != nil }

// Scan reads a transcript in one pass and hands its events to each, which may be nil. The error is one of reading or
// of each; the Summary is then what was read so far. Bad content is in Summary.Degraded.
func (c *Codec) Scan(r io.Reader, each func(Event) error) (Summary, error) {
	s := &scan{each: each}
	if c.CLI() {
		s.run(r, c.decode(s))
	} else {
		c.read(s, r)
	}
	return s.sum, s.err
}
