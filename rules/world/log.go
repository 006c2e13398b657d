package world

import (
	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A journal is run.jsonl: the agent's calls in the order of execution, then what it
// reported last.
type journal struct {
	lines  []byte
	calls  int64
	report *sl.Dict
}

// maxLog is the size of the log, in bytes, at which it takes no more calls. It
// bounds what all requests of an agent put in together, so an operation that keeps
// what it gets can't fill a disk.
const maxLog = 16 << 20

func (l *journal) full() bool { return len(l.lines) >= maxLog }

// add appends a call and what the agent saw of it.
func (l *journal) add(c call, in content, op *Operation, out wire.Answer) error {
	operation, status, seen := "", 0, sl.Value(sl.None)
	if op != nil {
		operation = op.Pattern
	}
	if !out.Cut {
		status = out.Status
		var err error
		if seen, err = out.Value(); err != nil {
			return err
		}
	}
	body, err := starlark.ParseJSON(in.text)
	if err != nil {
		return err
	}
	key := sl.Value(sl.None)
	if c.key != "" {
		key = sl.String(c.key)
	}
	l.calls++
	entry := mapping("n", sl.MakeInt64(l.calls), "operation", sl.String(operation), "path", sl.String(c.url.EscapedPath()), // as req.path has it: a / in a variable stays apart
		"query", stringDict(firstValues(c.url)), "key", key, "body", body, "delivered", sl.Bool(!out.Cut), "status", sl.MakeInt(status), "reply", seen)
	// Without these a replay could not make the call again.
	extra := mapping()
	if op == nil {
		extra = mapping("method", sl.String(c.method))
	}
	switch {
	case c.large:
		err = extra.SetKey(sl.String("oversize"), sl.MakeInt(wire.MaxBody+1)) // more was not read
	case in.err != nil:
		err = extra.SetKey(sl.String("malformed"), sl.String(c.body))
	case in.raw:
		err = extra.SetKey(sl.String("raw"), sl.String(c.body))
	}
	if err != nil {
		return err
	}
	line, err := starlark.AppendJSON(nil, mapping("call", entry.Union(extra)))
	l.lines = append(append(l.lines, line...), '\n')
	return err
}

// bytes are the whole file.
func (l *journal) bytes() ([]byte, error) {
	if l.report == nil {
		return l.lines, nil
	}
	line, err := starlark.AppendJSON(nil, mapping("report", l.report))
	return append(append(l.lines[:len(l.lines):len(l.lines)], line...), '\n'), err
}
