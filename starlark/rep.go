package starlark

import (
	"bytes"
	"encoding/hex"
	"fmt"
	"io"
	"iter"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/starlarkstruct"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/rules/transcript"

	"github.com/evalbuild/eval/workspace/graph"
)

// A repValue is a recorded rep as a discriminator sees it: reply, events,
// commands, usage and nothing that tells which arm it is from. The transcript
// is read when an attribute is asked for, and events are streamed: a large
// transcript costs time, never memory.
type repValue struct {
	opaque
	codec  *transcript.Codec
	blob   Blob
	sum    *transcript.Summary
	events []sl.Value // of a small transcript, once read
}

// keepEvents is the size of a transcript up to which its events are kept once
// they were read, so that loops over them parse once.
const keepEvents = 1 << 20

func newRep(c *transcript.Codec, b Blob) *repValue {
	return &repValue{opaque: opaque{"rep"}, codec: c, blob: b}
}

func (r *repValue) AttrNames() []string { return []string{"commands", "events", "reply", "usage"} }

func (r *repValue) Attr(name string) (sl.Value, error) {
	switch name {
	case "events":
		return &eventSeq{opaque{"events"}, r, false}, nil
	case "commands":
		return &eventSeq{opaque{"commands"}, r, true}, nil
	case "reply", "usage":
		if err := r.scan(nil); err != nil {
			return nil, err
		}
		if name == "reply" {
			return sl.String(r.sum.Reply), nil
		}
		return usageValue(r.sum.Usage), nil
	}
	return nil, sl.NoSuchAttrError(fmt.Sprintf("rep has no .%s; it has reply, events, commands and usage, and nothing that tells its arm", name))
}

// scan reads the transcript once; with each, once more if need be.
func (r *repValue) scan(each func(transcript.Event) error) error {
	if r.sum != nil && each == nil {
		return nil
	}
	rc, err := r.blob.Open()
	if err != nil {
		return err
	}
	defer rc.Close()
	sum, err := r.codec.Scan(rc, each)
	if err != nil && err != errStop {
		return err
	}
	// The codec or the loop may stop before the end; only there does the
	// reader know whether the bytes were right.
	if _, err := io.Copy(io.Discard, rc); err != nil {
		return err
	}
	if err == nil {
		r.sum = &sum
	}
	return err
}

// each streams events to f, from memory if they were kept.
func (r *repValue) each(f func(sl.Value) error) error {
	if r.events != nil {
		for _, e := range r.events {
			if err := f(e); err != nil {
				return err
			}
		}
		return nil
	}
	keep := r.blob.Digest.Size <= keepEvents
	var kept []sl.Value
	begun := false
	err := r.scan(func(e transcript.Event) error {
		// Some logs repeat the prompt, which tells the arm, before anything that
		// the agent did; there may be warnings before it.
		switch {
		case e.Role == transcript.RoleUser && !begun:
			return nil
		case e.Kind != transcript.KindError:
			begun = true
		}
		v, err := eventValue(e)
		if err != nil {
			return err
		}
		if keep {
			kept = append(kept, v)
		}
		return f(v)
	})
	if err == nil && keep {
		r.events = kept
	}
	return err
}

func usageValue(u transcript.Usage) sl.Value {
	d := sl.StringDict{}
	for name, n := range map[string]*int64{
		"input": u.Input, "cached_input": u.CachedInput,
		"cache_write": u.CacheWrite, "output": u.Output, "reasoning": u.Reasoning,
	} {
		d[name] = sl.None
		if n != nil {
			d[name] = sl.MakeInt64(*n)
		}
	}
	return frozenStruct(d)
}

func frozenStruct(d sl.StringDict) sl.Value {
	s := starlarkstruct.FromStringDict(starlarkstruct.Default, d)
	s.Freeze()
	return s
}

func eventValue(e transcript.Event) (sl.Value, error) {
	d := sl.StringDict{"kind": sl.String(e.Kind)}
	switch e.Kind {
	case transcript.KindMessage:
		d["role"], d["text"] = sl.String(e.Role), sl.String(e.Text)
	case transcript.KindCommand:
		d["text"], d["output"], d["status"], d["exit"] = sl.String(e.Text), sl.String(e.Output), sl.String(e.Status), sl.None
		if e.Exit != nil {
			d["exit"] = sl.MakeInt(*e.Exit)
		}
	case transcript.KindTool:
		d["name"], d["status"] = sl.String(e.Name), sl.String(e.Status)
		for name, raw := range map[string][]byte{"arguments": e.Arguments, "result": e.Result} {
			d[name] = sl.None
			if len(raw) == 0 {
				continue
			}
			v, err := parseForeignJSON(raw)
			if err != nil { // invalid UTF-8, say: the text itself is still evidence
				v = sl.String(raw)
			}
			d[name] = v
		}
	case transcript.KindError:
		d["message"] = sl.String(e.Message)
	}
	return frozenStruct(d), nil
}

// An eventSeq is rep.events or rep.commands: it can be iterated, indexed and
// measured, and reads the transcript as it goes.
type eventSeq struct {
	opaque
	rep      *repValue
	commands bool // only the command events that ended
}

func (s *eventSeq) each(f func(sl.Value) error) error {
	return s.rep.each(func(v sl.Value) error {
		if s.commands {
			x := v.(*starlarkstruct.Struct)
			kind, _ := x.Attr("kind")
			if kind != sl.String(transcript.KindCommand) {
				return nil
			}
			if status, _ := x.Attr("status"); status == sl.String(transcript.StatusInProgress) {
				return nil
			}
		}
		return f(v)
	})
}

// Len counts by reading; an unreadable transcript is an error at the next
// iteration, since Len can't return one.
func (s *eventSeq) Len() int {
	n := 0
	_ = s.each(func(sl.Value) error { n++; return nil })
	return n
}

func (s *eventSeq) Truth() sl.Bool { return s.Len() > 0 }

func (s *eventSeq) Index(i int) sl.Value {
	var at sl.Value = sl.None
	n := 0
	_ = s.each(func(v sl.Value) error {
		if n == i {
			at = v
		}
		n++
		return nil
	})
	return at
}

func (s *eventSeq) Iterate() sl.Iterator {
	it := &eventIterator{}
	it.next, it.stop = iter.Pull(func(yield func(sl.Value) bool) {
		err := s.each(func(v sl.Value) error {
			if !yield(v) {
				return errStop
			}
			return nil
		})
		if err != errStop {
			it.err = err
		}
	})
	return it
}

var errStop = fmt.Errorf("the loop ended early")

type eventIterator struct {
	next func() (sl.Value, bool)
	stop func()
	err  error
}

func (it *eventIterator) Next(p *sl.Value) bool {
	v, ok := it.next()
	if ok {
		*p = v
	}
	return ok
}

func (it *eventIterator) Done()      { it.stop() }
func (it *eventIterator) Err() error { return it.err }

// nativeModule is for the built-in rules only: what it tells of a rep (its
// thread, the arm that its log names, its digest) is not blind.
func nativeModule() *starlarkstruct.Module {
	return &starlarkstruct.Module{Name: "native", Members: sl.StringDict{
		// facts(rep, treatment, path): what judgement needs beside the reply.
		"facts": pureBuiltin("native.facts", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var v sl.Value
			var treatment, path string
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "rep", &v, "treatment", &treatment, "path", &path); err != nil {
				return nil, err
			}
			rep, ok := v.(*repValue)
			if !ok {
				return nil, fmt.Errorf("%s: a rep is meant, not %s", b.Name(), v.Type())
			}
			return rep.facts(treatment, path)
		}),
		// codec(format): id@version, and whether its reps have a thread.
		"codec": pureBuiltin("native.codec", 2, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var format string
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "format", &format); err != nil {
				return nil, err
			}
			c, ok := transcript.Lookup(format)
			if !ok {
				return nil, fmt.Errorf("there is no transcript format %q%s; there are %s", format,
					graph.DidYouMean(format, transcript.Names()), strings.Join(transcript.Names(), ", "))
			}
			return frozenStruct(sl.StringDict{"id": sl.String(c.ID()), "cli": sl.Bool(c.CLI())}), nil
		}),
		// is_outcome(x), is_instance(x, provider): type() is a word that anybody's
		// provider may have.
		"is_outcome": pureBuiltin("native.is_outcome", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var x sl.Value
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "x", &x); err != nil {
				return nil, err
			}
			_, ok := x.(outcome)
			return sl.Bool(ok), nil
		}),
		"is_instance": pureBuiltin("native.is_instance", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var x, p sl.Value
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "x", &x, "provider", &p); err != nil {
				return nil, err
			}
			in, ok := x.(*instance)
			return sl.Bool(ok && sl.Value(in.provider) == p), nil
		}),
		// digest(text): BLAKE3 of a text, as scorecards write it.
		"digest": pureBuiltin("native.digest", 1, func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var text string
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "text", &text); err != nil {
				return nil, err
			}
			return sl.String(digestName(cas.BLAKE3.Sum([]byte(text)))), nil
		}),
		// claims(file): the arm and index that a transcript's first line names.
		"claims": sl.NewBuiltin("native.claims", claims),
		// name(fn): a function as //pkg:file.star%name. Where a function is is
		// not in its fingerprint: an action gets its name as a param.
		"name": sl.NewBuiltin("native.name", func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var fn *sl.Function
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "fn", &fn); err != nil {
				return nil, err
			}
			return sl.String(functionName(fn)), nil
		}),
		"block": sl.NewBuiltin("native.block", nativeBlock),
		// glob: for macros, which can't be handed the one of the BUILD.star.
		"glob":      globBuiltin,
		"host_path": sl.NewBuiltin("native.host_path", nativeHostPath),
		"label":     sl.NewBuiltin("native.label", nativeLabel),
		"parts":     sl.NewBuiltin("native.parts", nativeParts),
		"policy":    sl.NewBuiltin("native.policy", nativePolicy),
		// did_you_mean(s, candidates): a hint, or "".
		"did_you_mean": sl.NewBuiltin("native.did_you_mean", func(_ *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
			var s string
			var candidates sl.Value
			if err := sl.UnpackArgs(b.Name(), args, kwargs, "s", &s, "candidates", &candidates); err != nil {
				return nil, err
			}
			list, err := stringList(candidates)
			return sl.String(graph.DidYouMean(s, list)), err
		}),
		"server": sl.NewBuiltin("native.server", nativeServer),
		"world":  ownValue{opaque{"program"}, graph.WorldProgram},
		"play":   ownValue{opaque{"program"}, graph.PlayProgram},
		// operation(fn), seeded(fn): what events a world's function can emit.
		"operation": sl.NewBuiltin("native.operation", nativeOperation),
		"seeded":    sl.NewBuiltin("native.seeded", nativeSeeded),
		// portable(value): the text of a frozen value, for actions.write.
		"portable": sl.NewBuiltin("native.portable", nativePortable),
		"network":  sl.NewBuiltin("native.network", nativeNetwork),
		"reported": pureBuiltin("native.reported", 1, reported),
		// fingerprint(fn): of a function that is a param of the running action.
		"fingerprint": pureBuiltin("native.fingerprint", 1, fingerprintOfParam),
	}}
}

// maxFirstLine is how much of a transcript is read for the arm it names.
const maxFirstLine = 64 << 10

func claims(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	c, _ := t.Local(analysisKey).(*analysis)
	var v sl.Value
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "file", &v); err != nil {
		return nil, err
	}
	f, ok := v.(fileValue)
	if !ok || c == nil || !f.file.Source() {
		return nil, fmt.Errorf("%s: a source file of the analysed target is meant", b.Name())
	}
	head, err := c.loader.opts.Files.ReadHead(f.file.Label.Repo, f.file.Label.Path(), maxFirstLine)
	if err != nil {
		return nil, err
	}
	line, _, _ := bytes.Cut(head, []byte("\n"))
	codec, _ := transcript.Lookup("codex")
	sum, err := codec.Scan(bytes.NewReader(line), nil)
	if err != nil {
		return nil, err
	}
	return sl.Tuple{sl.String(sum.Arm), sl.MakeInt(sum.Index)}, nil
}

// paramsKey finds the action's params in the thread of an evaluation.
const paramsKey = "eval.params"

func fingerprintOfParam(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple) (sl.Value, error) {
	var fn *sl.Function
	if err := sl.UnpackArgs(b.Name(), args, kwargs, "fn", &fn); err != nil {
		return nil, err
	}
	params, _ := t.Local(paramsKey).([]graph.Param)
	for _, p := range params {
		if p := p.Value.(*param); p.value == fn {
			d := p.Digest()
			return sl.String(hex.EncodeToString(d[:])), nil
		}
	}
	return nil, fmt.Errorf("%s: the function is no param of this action", b.Name())
}

func (r *repValue) facts(treatment, path string) (sl.Value, error) {
	traps := transcript.NewTraps(transcript.TrapInput{TreatmentPath: path, Treatment: []byte(treatment)})
	err := r.scan(func(e transcript.Event) error {
		traps.See(e)
		return nil
	})
	if err != nil {
		return nil, err
	}
	var reasons []sl.Value
	for _, list := range [][]transcript.Reason{r.sum.Degraded, traps.Reasons()} {
		for _, x := range list {
			reasons = append(reasons, frozenStruct(sl.StringDict{"code": sl.String(x.Code), "detail": sl.String(x.Detail)}))
		}
	}
	return frozenStruct(sl.StringDict{
		"reasons": sl.NewList(reasons),
		"thread":  sl.String(r.sum.ThreadID),
		"arm":     sl.String(r.sum.Arm),
		"index":   sl.MakeInt(r.sum.Index),
		"capture": sl.String(digestName(r.blob.Digest)),
		"size":    sl.MakeInt64(r.blob.Digest.Size),
	}), nil
}

// digestName is a digest as scorecards show it.
func digestName(d cas.Digest) string { return d.Func.String() + ":" + d.Hex() }
