package agent

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"
	"sync"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/shape"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A Record is a run that a world has recorded (run.jsonl).
type Record struct {
	Calls  []Call
	Report *Report // nil if there was none
}

// A Call is one recorded call. Request has what was sent; Answer what came back.
type Call struct {
	N         int64
	Operation string // as declared, "GET /orders/{id}"; "" if no operation has the path
	Request   wire.Request
	Answer    Answer
}

// An Answer is a reply as the log has it. A lost one has status 0 and body null.
type Answer struct {
	Status int64
	Body   string // canonical JSON
}

// ParseRecord reads run.jsonl: calls numbered from 1, and the report last.
func ParseRecord(text []byte) (*Record, error) {
	rec := new(Record)
	for n, line := range bytes.Split(bytes.TrimSuffix(text, []byte("\n")), []byte("\n")) {
		if len(text) == 0 {
			break
		}
		where := fmt.Sprintf("line %d", n+1)
		if rec.Report != nil {
			return nil, fmt.Errorf("%s: the report is the last line", where)
		}
		v, err := starlark.ParseJSON(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", where, err)
		}
		s := shape.Of(where, v)
		if r := s.At("report"); !r.None() {
			s.Members("report")
			rec.Report = &Report{Success: r.At("success").Flag(), Message: r.At("message").Text()}
		} else {
			s.Members("call")
			c := readCall(s.At("call"))
			if want := int64(len(rec.Calls) + 1); c.N != want {
				s.At("call").At("n").Failf("%d, and %d is next", c.N, want)
			}
			rec.Calls = append(rec.Calls, c)
		}
		if err := s.Err(); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

func readCall(s shape.Value) Call {
	s.Members("n", "operation", "method", "path", "query", "key", "body", "malformed", "raw", "oversize", "delivered", "status", "reply")
	c := Call{N: s.At("n").Int(), Operation: s.At("operation").Text()}
	c.Request = wire.Request{Method: method(s, c.Operation), Target: target(s)}
	if key := s.At("key"); !key.None() {
		c.Request.Key = key.Text()
	}
	if body := s.At("body"); body.Any() != sl.None {
		c.Request.Body = []byte(canonical(body))
	}
	if text := s.At("malformed"); !text.None() { // of a body that is no JSON
		c.Request.Body = []byte(text.Text())
	}
	if raw := s.At("raw"); !raw.None() { // the text of a body that canonical JSON has no way to write
		c.Request.Body = []byte(raw.Text())
	}
	if size := s.At("oversize"); !size.None() { // only its length is known
		n := size.Int()
		if n <= wire.MaxBody || n > maxOversize {
			size.Failf("%d is not in %d…%d", n, wire.MaxBody+1, maxOversize)
			n = 0
		}
		c.Request.Body = blanks(n)
	}
	delivered := s.At("delivered").Flag()
	c.Answer = Answer{Status: s.At("status").Int(), Body: canonical(s.At("reply"))}
	if got := c.Answer; delivered != (got.Status != 0) || !delivered && got.Body != "null" {
		s.At("delivered").Failf("%v, with the status %d and the reply %s", delivered, got.Status, got.Body)
	}
	if err := c.Request.Check(); err != nil {
		s.At("path").Failf("%v", err)
	}
	return c
}

// maxOversize bounds the body that stands for one that was too large to be read.
const maxOversize = 2 * wire.MaxBody

// blanks are n spaces, of all calls the same ones.
func blanks(n int64) []byte { return allBlanks()[:n:n] }

var allBlanks = sync.OnceValue(func() []byte { return bytes.Repeat([]byte(" "), maxOversize) })

// method is that of the operation. A call that no operation has names its own.
func method(s shape.Value, operation string) string {
	if operation == "" {
		return s.At("method").Text()
	}
	m, _, _ := strings.Cut(operation, " ")
	return m
}

func target(s shape.Value) string {
	query := map[string]string{}
	for _, m := range s.At("query").Items("a dict") {
		query[m.Key] = m.Text()
	}
	return wire.Target(escaped(s.At("path").Text()), query)
}

// escaped is a path as it was sent. What is no escaped path is taken literally,
// so that a record that has /orders/7 8 can be replayed, too.
func escaped(path string) string {
	literal, err := url.PathUnescape(path)
	if err != nil {
		literal = path
	}
	return (&url.URL{Path: literal, RawPath: path}).EscapedPath()
}

func canonical(s shape.Value) string {
	b, err := starlark.AppendJSON(nil, s.Any())
	if err != nil {
		s.Failf("%v", err)
	}
	return string(b)
}
