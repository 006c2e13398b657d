package starlark

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules/transcript"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Blob is the content of an input, which can be read more than once. Open's
// reader fails at the end if the bytes are not those of Digest.
type Blob struct {
	Digest cas.Digest
	Open   func() (io.ReadCloser, error)
}

// maxWhole is the largest input that is handed to a function whole. A rep is
// streamed and may be larger.
const maxWhole = 256 << 20

// Evaluate runs an evaluate action on its inputs (in the order of a.Inputs)
// and returns the bytes of its outputs. It has no access to anything else. An
// *InputError means that an input could not be read; any other error is the
// user's: of the function, or of an input that doesn't decode.
func Evaluate(ctx context.Context, a *graph.Action, inputs []Blob, print func(string)) ([][]byte, error) {
	fn := a.Fn.(*param).value.(*sl.Function)
	kwargs := make([]sl.Tuple, 0, len(a.Inputs)+len(a.Params))
	read := watch{ctx: ctx}
	for i, in := range a.Inputs {
		v, err := decode(in, read.blob(in, inputs[i]))
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		if read.err != nil {
			return nil, read.err
		}
		if err != nil {
			return nil, err
		}
		kwargs = append(kwargs, sl.Tuple{sl.String(in.Name), v})
	}
	for _, p := range a.Params {
		kwargs = append(kwargs, sl.Tuple{sl.String(p.Name), p.Value.(*param).value})
	}
	thread := &sl.Thread{Name: a.Mnemonic, Print: func(_ *sl.Thread, msg string) {
		if print != nil {
			print(msg)
		}
	}}
	thread.SetLocal(paramsKey, a.Params)
	thread.SetMaxExecutionSteps(a.StepLimit)
	thread.OnMaxSteps = stepsExceeded(a.StepLimit)
	stop := context.AfterFunc(ctx, func() { thread.Cancel("interrupted") })
	defer stop()
	v, err := sl.Call(thread, fn, nil, kwargs)
	var out [][]byte
	if err == nil {
		out, err = encodeOutputs(a, v) // this may read, too: the function may return rep.events
	}
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if read.err != nil { // also where the language had no way to report it
		return nil, read.err
	}
	var ee *sl.EvalError
	if errors.As(err, &ee) {
		return nil, evalError(ee)
	}
	if err != nil {
		return nil, err
	}
	return out, nil
}

// An InputError says that an input could not be read, or changed meanwhile.
type InputError struct {
	File *graph.File
	Err  error
}

func (e *InputError) Error() string { return fmt.Sprintf("read %s: %v", e.File.Slash(), e.Err) }
func (e *InputError) Unwrap() error { return e.Err }

// watch keeps the first error of reading any input. Lazy values read in the
// middle of a loop or of len(), which can't fail in Starlark: the action does.
type watch struct {
	ctx context.Context
	err error
}

func (w *watch) blob(in graph.Input, b Blob) Blob {
	fail := func(err error) error {
		if err != nil && err != io.EOF && w.err == nil {
			w.err = &InputError{in.File, err}
		}
		return err
	}
	open := b.Open
	b.Open = func() (io.ReadCloser, error) {
		rc, err := open()
		if err != nil {
			return nil, fail(err)
		}
		return watchReader{rc, w.ctx, fail}, nil
	}
	return b
}

type watchReader struct {
	io.ReadCloser
	ctx  context.Context // steps don't tell time: len(rep.events) is one
	fail func(error) error
}

func (r watchReader) Read(p []byte) (int, error) {
	if err := r.ctx.Err(); err != nil {
		return 0, err
	}
	n, err := r.ReadCloser.Read(p)
	return n, r.fail(err)
}

func encodeOutputs(a *graph.Action, v sl.Value) ([][]byte, error) {
	values := []sl.Value{v}
	if len(a.Outputs) > 1 || a.Outputs[0].Name != "out" {
		values = values[:0]
		m, ok := v.(sl.Mapping)
		for _, o := range a.Outputs {
			var x sl.Value
			if ok {
				x, ok, _ = m.Get(sl.String(o.Name))
			}
			if !ok {
				return nil, fmt.Errorf("%s returned %s; a dict with the outputs %s is meant", a.Fn.Text(), shorten(v), outputNames(a))
			}
			values = append(values, x)
		}
	}
	out := make([][]byte, len(values))
	for i, o := range a.Outputs {
		b, err := encodeOutput(o.Format, values[i])
		if err != nil {
			return nil, fmt.Errorf("%s: output %s: %v", a.Fn.Text(), path.Base(o.File.Path), err)
		}
		out[i] = b
	}
	return out, nil
}

func outputNames(a *graph.Action) string {
	var names []string
	for _, o := range a.Outputs {
		names = append(names, o.Name)
	}
	return strings.Join(names, ", ")
}

func encodeOutput(format string, v sl.Value) ([]byte, error) {
	switch format {
	case "json":
		b, err := AppendJSON(nil, v)
		return append(b, '\n'), err
	case "jsonl":
		rows, ok := v.(sl.Iterable)
		if _, isDict := v.(sl.Mapping); !ok || isDict {
			return nil, fmt.Errorf("a list of rows is meant, not %s", v.Type())
		}
		var b []byte
		var err error
		for row := range sl.Elements(rows) {
			if b, err = AppendJSON(b, row); err != nil {
				return nil, err
			}
			b = append(b, '\n')
		}
		return b, nil
	}
	s, ok := sl.AsString(v)
	if !ok {
		return nil, fmt.Errorf("a string is meant, not %s; only .json and .jsonl files take other values", v.Type())
	}
	return []byte(s), nil
}

// decode makes the frozen value of one input.
func decode(in graph.Input, b Blob) (sl.Value, error) {
	if in.Decode == "rep" {
		name, _, _ := strings.Cut(in.Codec, "@")
		codec, ok := transcript.Lookup(name)
		if !ok || codec.ID() != in.Codec {
			return nil, fmt.Errorf("input %s: no codec %s", in.File.Slash(), in.Codec)
		}
		return newRep(codec, b), nil
	}
	if b.Digest.Size > maxWhole {
		return nil, fmt.Errorf("input %s: %d bytes; at most %d can be decoded as %s", in.File.Slash(), b.Digest.Size, maxWhole, in.Decode)
	}
	data, err := ReadBlob(b)
	if err != nil {
		return nil, err
	}
	var v sl.Value
	switch in.Decode {
	case "json":
		v, err = ParseJSON(data)
	case "jsonl":
		v, err = ParseJSONLines(data)
	default:
		v = sl.String(data)
	}
	if err != nil {
		return nil, fmt.Errorf("input %s: not %s: %w", in.File.Slash(), strings.ToUpper(in.Decode), err)
	}
	v.Freeze()
	return v, nil
}

// ReadBlob reads all of b.
func ReadBlob(b Blob) ([]byte, error) {
	rc, err := b.Open()
	if err != nil {
		return nil, err
	}
	defer rc.Close()
	return io.ReadAll(rc)
}
