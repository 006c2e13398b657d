package agent

import (
	"context"
	"fmt"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// A Replay is what came of sending a record's calls again.
type Replay struct {
	Calls  int
	Differ []Difference // in the order of the calls; empty: faithful
}

// A Difference is a call that was answered in another way than recorded.
type Difference struct {
	Call     Call
	Replayed Answer
}

// Replay sends the calls, then the report, one after the other.
func (rec *Record) Replay(ctx context.Context, world *wire.Client) (*Replay, error) {
	out := &Replay{Calls: len(rec.Calls)}
	for _, c := range rec.Calls {
		reply, err := world.Do(ctx, c.Request)
		if err != nil {
			return nil, fmt.Errorf("replay call %d: %w", c.N, err)
		}
		got, err := answer(reply)
		if err != nil {
			return nil, fmt.Errorf("replay call %d: reply to %s: %w", c.N, c.Request, err)
		}
		if got != c.Answer {
			out.Differ = append(out.Differ, Difference{c, got})
		}
	}
	if rec.Report != nil {
		if err := sendReport(ctx, world, *rec.Report); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func answer(reply wire.Reply) (Answer, error) {
	v, err := decode(reply)
	if err != nil {
		return Answer{}, err
	}
	body, err := starlark.AppendJSON(nil, v)
	return Answer{Status: int64(reply.Status), Body: string(body)}, err
}

// AppendJSON appends replay.json: {"calls", "differ": [{"n", "operation",
// "recorded": {"status", "reply"}, "replayed": {"status", "reply"}}]}.
func (r *Replay) AppendJSON(b []byte) []byte {
	b = fmt.Appendf(b, `{"calls":%d,"differ":[`, r.Calls)
	for i, d := range r.Differ {
		if i > 0 {
			b = append(b, ',')
		}
		operation, _ := starlark.AppendJSON(nil, sl.String(d.Call.Operation)) // a string always has a form
		b = fmt.Appendf(b, `{"n":%d,"operation":%s,"recorded":`, d.Call.N, operation)
		b = append(d.Call.Answer.appendJSON(b), `,"replayed":`...)
		b = append(d.Replayed.appendJSON(b), '}')
	}
	return append(b, "]}\n"...)
}

func (a Answer) appendJSON(b []byte) []byte {
	return fmt.Appendf(b, `{"reply":%s,"status":%d}`, a.Body, a.Status)
}
