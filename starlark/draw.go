package starlark

import (
	"encoding/hex"
	"fmt"
	"regexp"
	"sync"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/workspace/graph"
)

// A sampleValue says which draw an action is. block is a string or a blockValue.
type sampleValue struct {
	opaque
	stream       string
	index, epoch int
	redraw       int
	block        sl.Value
}

func makeSample(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	s := sampleValue{opaque: opaque{"sample"}, epoch: 1, block: sl.String("")}
	err := sl.UnpackArgs(b.Name(), args, kwargs, "stream", &s.stream, "index", &s.index,
		"epoch?", &s.epoch, "redraw?", &s.redraw, "block?", &s.block)
	if err != nil {
		return nil, err
	}
	if err := s.check(); err != nil {
		return nil, fmt.Errorf("%s: %v", b.Name(), err)
	}
	return s, nil
}

// streamName is what a stream may be called: it becomes part of file names. It is
// compiled when the first one is checked: the repetition took a tenth of the start
// of a program that never does.
var streamName = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z][a-z0-9_]{0,63}$`) })

func (s sampleValue) check() error {
	switch {
	case !streamName().MatchString(s.stream):
		return fmt.Errorf("stream: a name of lower-case letters, digits and _ is meant, not %q", s.stream)
	case s.index < 1:
		return fmt.Errorf("index is counted from 1, not %d", s.index)
	case s.epoch < 1:
		return fmt.Errorf("epoch is counted from 1, not %d", s.epoch)
	case s.redraw < 0:
		return fmt.Errorf("redraw is counted from 0, not %d", s.redraw)
	}
	switch s.block.(type) {
	case sl.String, blockValue:
		return nil
	}
	return fmt.Errorf("block: a string is meant, not %s", aValue(s.block))
}

func (s sampleValue) writeFingerprint(w *closureWalk, path string) error {
	block, ok := s.block.(sl.String)
	if !ok {
		return fmt.Errorf("%s: a sample with a block of actions has no value of its own", path)
	}
	w.tag(valSample)
	w.str(fmt.Sprintf("%q %d %d %d %q", s.stream, s.index, s.epoch, s.redraw, string(block)))
	return nil
}

// A blockValue is a graph.Block in the language, which native.block() makes:
// each run whose sample names it joins it.
type blockValue struct {
	opaque
	block *graph.Block
}

func nativeBlock(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	if err := sl.UnpackArgs(b.Name(), args, kwargs); err != nil {
		return nil, err
	}
	return blockValue{opaque{"block"}, new(graph.Block)}, nil
}

// takeSample makes the run a draw.
func takeSample(a *graph.Action, v sl.Value, terms *sl.Dict) error {
	if v == nil || v == sl.None {
		if terms != nil {
			return fmt.Errorf("terms are those of a draw: sample says of which")
		}
		return nil
	}
	s, ok := v.(sampleValue)
	if !ok {
		return fmt.Errorf("sample: sample(…) is meant, not %s", aValue(v))
	}
	a.Sample = &graph.Sample{Stream: s.stream, Index: s.index, Epoch: s.epoch, Redraw: s.redraw}
	switch b := s.block.(type) {
	case sl.String:
		a.Sample.Block = string(b)
	case blockValue:
		a.Block = b.block
		b.block.Join(a)
	}
	exit := false
	for _, o := range a.Outputs {
		exit = exit || o.Format == graph.FormatExit
		if o.Format == graph.FormatFolder {
			return fmt.Errorf("output %q: a draw keeps files, no folders", o.Name)
		}
	}
	if !exit {
		return fmt.Errorf("a draw has exit = FILE: how it ended is part of what it did, and it is paid for in any case")
	}
	return takeTerms(a, terms)
}

func takeTerms(a *graph.Action, terms *sl.Dict) error {
	a.Terms = new(graph.Terms)
	if terms == nil {
		return nil
	}
	for k, v := range terms.Entries() {
		name, _ := sl.AsString(k)
		switch v := v.(type) {
		case sl.Bool:
			switch name {
			case "withdrawn":
				a.Terms.Withdrawn = bool(v)
				continue
			case "reuse":
				a.Terms.Reuse = bool(v)
				continue
			}
		case sl.NoneType:
			if name == "usd" {
				continue
			}
		default:
			if usd, ok := sl.AsFloat(v); ok && name == "usd" && usd >= 0 {
				a.Terms.USD = &usd
				continue
			}
		}
		return fmt.Errorf("terms[%q]: usd, withdrawn or reuse are meant, not %s", name, aValue(v))
	}
	return nil
}

// history is actions.history(output, draws, n, alpha, effect, margin, judge):
// what draws.lock says of draws (each given by one of its files), to whoever
// scores them with these parameters. judge is the function or tool that judges.
func (c *analysis) history(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var output, judge sl.Value
	var draws sl.Iterable
	look := new(graph.Look)
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "output", &output, "draws", &draws, "judge", &judge, "n", &look.N,
		"alpha", &look.Alpha, "effect", &look.Effect, "margin", &look.Margin); err != nil {
		return nil, err
	}
	a := &graph.Action{Kind: graph.History, Mnemonic: "History", Owner: c.target.Label, Look: look}
	err := takeDraws(a, draws)
	if err == nil {
		err = c.takeJudge(t, a, judge)
	}
	if err == nil {
		err = c.output(output, a, "out")
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %v", b.Name(), err)
	}
	c.actions = append(c.actions, a)
	return sl.None, nil
}

func takeDraws(a *graph.Action, draws sl.Iterable) error {
	for i, v := range elements(draws) {
		f, ok := v.(fileValue)
		if !ok || f.file.Source() || f.file.Action.Sample == nil {
			return fmt.Errorf("draws[%d]: an output of a draw is meant, not %s", i, aValue(v))
		}
		a.Inputs = append(a.Inputs, graph.Input{Name: fmt.Sprintf("%s%06d", graph.DrawPrefix, i), File: f.file})
	}
	return nil
}

// takeJudge notes what judges: a function by its fingerprint, a program as a
// tool of the action.
func (c *analysis) takeJudge(t *sl.Thread, a *graph.Action, judge sl.Value) error {
	switch judge := judge.(type) {
	case *sl.Function:
		p, err := c.param(t, judge)
		if err != nil {
			return fmt.Errorf("judge: %w", err)
		}
		d := p.Digest()
		a.Look.Fingerprint = hex.EncodeToString(d[:])
		return nil
	case targetValue:
		return addTool(a, judge)
	}
	return fmt.Errorf("judge: a function or a tool is meant, not %s", aValue(judge))
}
