package agent

import (
	"bytes"
	"fmt"
	"net/url"
	"strings"

	sl "go.starlark.net/starlark"

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
		o := wire.Open(where, v)
		if o.Err() == nil && o.Has("report") {
			o.Only("report")
			r := o.Object("report")
			rec.Report = &Report{Success: r.Bool("success"), Message: r.String("message")}
		} else {
			o.Only("call")
			c := readCall(o.Object("call"))
			if want := int64(len(rec.Calls) + 1); c.N != want {
				o.Failf("call.n", "%d, and %d is next", c.N, want)
			}
			rec.Calls = append(rec.Calls, c)
		}
		if err := o.Err(); err != nil {
			return nil, err
		}
	}
	return rec, nil
}

func readCall(o wire.Object) Call {
	c := Call{N: o.Int("n"), Operation: o.String("operation")}
	c.Request = wire.Request{Method: method(o, c.Operation), Target: target(o)}
	if key := o.OptionalString("key"); key != nil {
		c.Request.Key = *key
	}
	if body := o.Value("body"); body != sl.None {
		c.Request.Body = []byte(canonical(o, "body"))
	}
	if o.Has("malformed") { // the text of a body that is no JSON
		c.Request.Body = []byte(o.String("malformed"))
	}
	delivered := o.Bool("delivered")
	c.Answer = Answer{Status: o.Int("status"), Body: canonical(o, "reply")}
	if got := c.Answer; delivered != (got.Status != 0) || !delivered && got.Body != "null" {
		o.Failf("delivered", "%v, with the status %d and the reply %s", delivered, got.Status, got.Body)
	}
	if err := c.Request.Check(); err != nil {
		o.Failf("path", "%v", err)
	}
	return c
}

// method is that of the operation. A call that no operation has names its own.
func method(o wire.Object, operation string) string {
	if operation == "" {
		return o.String("method")
	}
	m, _, _ := strings.Cut(operation, " ")
	return m
}

func target(o wire.Object) string {
	query := url.Values{}
	q := o.Object("query")
	for _, name := range q.Names() {
		query.Set(name, q.String(name))
	}
	path := escaped(o.String("path"))
	if len(query) == 0 {
		return path
	}
	return path + "?" + query.Encode()
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

func canonical(o wire.Object, name string) string {
	b, err := starlark.AppendJSON(nil, o.Value(name))
	if err != nil {
		o.Failf(name, "%v", err)
	}
	return string(b)
}
