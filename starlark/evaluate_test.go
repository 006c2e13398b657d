package starlark

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// action makes an evaluate action of the function f in source. Inputs are
// written NAME=DECODE, outputs as paths; one output is the single one.
func action(t *testing.T, source string, inputs []string, outputs ...string) *graph.Action {
	t.Helper()
	l, g := program{"m.star": source}.globals(t)
	r, err := l.prints.value(g["f"])
	if err != nil {
		t.Fatal(err)
	}
	a := &graph.Action{Kind: graph.Evaluate, Mnemonic: "Test", Fn: &param{g["f"], r}, Semantics: Semantics, StepLimit: 10_000_000}
	for _, in := range inputs {
		name, decode, _ := strings.Cut(in, "=")
		i := graph.Input{Name: name, Decode: decode, File: &graph.File{Label: graph.Label{Pkg: "p", Name: name + ".in"}}}
		if err := setCodec(&i); err != nil {
			t.Fatal(err)
		}
		a.Inputs = append(a.Inputs, i)
	}
	for _, p := range outputs {
		name := "out"
		if len(outputs) > 1 {
			name = strings.TrimSuffix(p, "."+p[strings.LastIndexByte(p, '.')+1:])
		}
		a.Outputs = append(a.Outputs, graph.Output{Name: name, Format: outputFormat(p), File: &graph.File{Path: p, Action: a}})
	}
	return a
}

func evaluate(a *graph.Action, inputs ...string) (string, error) {
	blobs := make([]Blob, len(inputs))
	for i, s := range inputs {
		blobs[i] = blobOf([]byte(s))
	}
	out, err := Evaluate(context.Background(), a, blobs, nil)
	return string(bytes.Join(out, []byte("|"))), err
}

func TestEvaluate(t *testing.T) {
	for _, c := range []struct {
		name, source, input, text, output, want string
	}{
		{"json", "def f(x):\n    return x", "x=json", ` {"b": [1, 2.50, -0, 1e2], "a": null} `, "o.json", `{"a":null,"b":[1,2.5,0,100]}` + "\n"},
		{"jsonl", "def f(x):\n    return x", "x=jsonl", "1\n\n  \n{\"a\":2}", "o.jsonl", "1\n{\"a\":2}\n"},
		{"no lines", "def f(x):\n    return x", "x=jsonl", "", "o.jsonl", ""},
		{"text", "def f(x):\n    return x", "x=text", "a\r\n\xff\n", "o.txt", "a\r\n\xff\n"},
		{"rep of text", "def f(x):\n    return x.reply", "x=rep", "hello\n\n", "o.txt", "hello\n"},
		{"nothing", "def f(x):\n    return None", "x=text", "", "o.json", "null\n"},
		{"rows of a tuple", "def f(x):\n    return (1, 2)", "x=text", "", "o.jsonl", "1\n2\n"},
		{"events as rows", "def f(x):\n    return x.events", "x=rep", "hi", "o.jsonl", `{"kind":"message","role":"assistant","text":"hi"}` + "\n"},
		{"usage", "def f(x):\n    return x.usage", "x=rep", "hi", "o.json", `{"cache_write":null,"cached_input":null,"input":null,"output":null,"reasoning":null}` + "\n"},
		{"inputs are frozen", "def f(x):\n    x.append(1)", "x=json", "[]", "o.json", "error: append: cannot append to frozen list"},
		{"not JSON", "def f(x):\n    return x", "x=json", "{", "o.json", `error: input p/x.in: not JSON: offset 1: an object's key is a string`},
		{"not JSON lines", "def f(x):\n    return x", "x=jsonl", "1\n{}\n[", "o.json", `error: input p/x.in: not JSONL: line 3: offset 1: the text ends where a value is meant`},
		{"JSON of invalid UTF-8", "def f(x):\n    return x", "x=json", "\"\xff\"", "o.json", "error: input p/x.in: not JSON: offset 0: the string is not valid UTF-8"},
		{"a number as text", "def f(x):\n    return 1", "x=text", "", "o.txt", "error: //:m.star%f: output o.txt: a string is meant, not int; only .json and .jsonl files take other values"},
		{"a number as rows", "def f(x):\n    return 1", "x=text", "", "o.jsonl", "error: //:m.star%f: output o.jsonl: a list of rows is meant, not int"},
		{"a function as JSON", "def f(x):\n    return [f]", "x=text", "", "o.json", "error: //:m.star%f: output o.json: in [0]: a value of type function has no JSON form"},
		{"a rep as JSON", "def f(x):\n    return x", "x=rep", "", "o.json", "error: //:m.star%f: output o.json: a value of type rep has no JSON form"},
		{"a cycle as JSON", "def f(x):\n    l = []\n    l.append(l)\n    return l", "x=text", "", "o.json", "nested deeper than 1000, or cyclic"},
		{"infinity as JSON", "def f(x):\n    return float('inf')", "x=text", "", "o.json", "error: //:m.star%f: output o.json: +Inf has no JSON form"},
		{"too large a number", "def f(x):\n    return (1 << 500) * (1 << 500) * (1 << 500) * (1 << 500) * (1 << 500) * (1 << 500) * (1 << 500)", "x=text", "", "o.json", "a number of 1054 digits"},
		{"no such argument", "def f(x, y):\n    return 1", "x=text", "", "o.json", "error: function f missing 1 argument (y)"},
		{"an argument too many", "def f():\n    return 1", "x=text", "", "o.json", "error: function f accepts no arguments (1 given)"},
		{"a dict as rows", "def f(x):\n    return {'a': 1}", "x=text", "", "o.jsonl", "error: //:m.star%f: output o.jsonl: a list of rows is meant, not dict"},
		{"fail", "def f(x):\n    fail('why', x)", "x=text", "7", "o.json", "error: fail: why 7"},
		{"load-phase builtins", "def f(x):\n    return config.string('x')", "x=text", "", "o.json", "error: config.string() works only while .star files load, not inside of an action or an implementation"},
	} {
		a := action(t, c.source, []string{c.input}, c.output)
		got, err := evaluate(a, c.text)
		if err != nil {
			got = "error: " + err.Error()
			var own *Error
			if errors.As(err, &own) {
				got = "error: " + own.Msg
				if own.Pos == "" || strings.Contains(own.Msg, "m.star:") {
					t.Errorf("%s: positions belong into Pos: %+v", c.name, own)
				}
			}
		}
		if got != c.want && !(strings.HasPrefix(got, "error: ") && strings.Contains(got, c.want)) {
			t.Errorf("%s: got %q, want %q", c.name, got, c.want)
		}
	}
}

func TestOutputs(t *testing.T) {
	for _, c := range []struct{ result, want string }{
		{`{"a": [1], "b": "two"}`, "[1]\n|two"},
		{`{"b": "two", "a": [1], "c": 3}`, "[1]\n|two"},
		{`{"a": [1]}`, `error: //:m.star%f returned {"a": [1]}; a dict with the outputs a, b is meant`},
		{`[1, 2]`, `error: //:m.star%f returned [1, 2]; a dict with the outputs a, b is meant`},
		{`None`, `error: //:m.star%f returned None; a dict`},
		{`{"a": [1], "b": 2}`, "error: //:m.star%f: output b.txt: a string is meant, not int"},
		{`"x" * 1000`, `error: //:m.star%f returned "xxxxx`},
	} {
		got, err := evaluate(action(t, "def f():\n    return "+c.result, nil, "a.json", "b.txt"))
		if err != nil {
			got = "error: " + err.Error()
		}
		if !strings.HasPrefix(got, c.want) || err == nil && got != c.want || len(got) > 200 {
			t.Errorf("%s: got %s, want %s", c.result, got, c.want)
		}
	}
}

func TestEvaluateSteps(t *testing.T) {
	a := action(t, "def f():\n    for i in range(1000000000):\n        pass", nil, "o.txt")
	a.StepLimit = 5000
	_, err := evaluate(a)
	if err == nil || !strings.Contains(err.Error(), "more than 5000 steps") {
		t.Errorf("got %v", err)
	}
}

// TestEvaluateCancelled: in a loop of the language, and in the middle of
// reading, which is one step.
func TestEvaluateCancelled(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	a := action(t, "def f():\n    for i in range(1 << 40):\n        print(i)", nil, "o.txt")
	a.StepLimit = 1 << 50
	_, err := Evaluate(ctx, a, nil, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("in a loop: got %v", err)
	}

	for _, body := range []string{"str(len(x.events))", "x.reply", "str(x.events[3])", "str([e for e in x.events])"} {
		ctx, cancel = context.WithCancel(context.Background())
		endless := Blob{Digest: cas.Digest{Func: cas.BLAKE3, Size: 1 << 40}, Open: func() (io.ReadCloser, error) {
			return io.NopCloser(&codexLog{lines: 1 << 40, each: func(n int) {
				if n == 1000 {
					cancel()
				}
			}}), nil
		}}
		_, err = Evaluate(ctx, action(t, "def f(x):\n    return "+body, []string{"x=rep:codex"}, "o.txt"), []Blob{endless}, nil)
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%s: got %v", body, err)
		}
	}
}

// codexLog is a codex transcript of any length that is nowhere as a whole.
type codexLog struct {
	lines int // of the middle
	n     int
	rest  []byte
	each  func(n int)
}

func (c *codexLog) Read(p []byte) (int, error) {
	if len(c.rest) == 0 {
		switch {
		case c.n > c.lines+2:
			return 0, io.EOF
		case c.n == 0:
			c.rest = []byte(`{"type":"thread.started","thread_id":"t"}` + "\n")
		case c.n == c.lines+1:
			c.rest = []byte(`{"type":"item.completed","item":{"id":"last","type":"agent_message","text":"done"}}` + "\n")
		case c.n == c.lines+2:
			c.rest = []byte(`{"type":"turn.completed","usage":{"input_tokens":10,"cached_input_tokens":4,"output_tokens":3}}` + "\n")
		default:
			c.rest = fmt.Appendf(nil, `{"type":"item.completed","item":{"id":"i%d","type":"command_execution","command":"echo %d","aggregated_output":"%01000d","exit_code":0,"status":"completed"}}`+"\n", c.n, c.n, c.n)
		}
		if c.each != nil {
			c.each(c.n)
		}
		c.n++
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func size(t *testing.T, r io.Reader) int64 {
	t.Helper()
	n, err := io.Copy(io.Discard, r)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// TestLargeTranscript: memory does not grow with a transcript.
func TestLargeTranscript(t *testing.T) {
	lines := 100_000 // 115 MB
	if testing.Short() || raceEnabled {
		lines = 5000
	}
	a := action(t, `
def f(x):
    n, last = 0, ""
    for e in x.commands:
        n += len(e.output)
        last = e.text
    return [n, last, x.reply, x.usage.input]
`, []string{"x=rep:codex"}, "o.json")
	blob := Blob{Digest: cas.Digest{Func: cas.BLAKE3, Size: size(t, &codexLog{lines: lines})}, Open: func() (io.ReadCloser, error) {
		return io.NopCloser(&codexLog{lines: lines}), nil
	}}
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	out, err := Evaluate(context.Background(), a, []Blob{blob}, nil)
	if err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if want := fmt.Sprintf(`[%d,"echo %d","done",6]`+"\n", lines*1000, lines); string(out[0]) != want {
		t.Errorf("got %s, want %s", out[0], want)
	}
	if grown := int64(after.HeapSys) - int64(before.HeapSys); grown > max(blob.Digest.Size/3, 16<<20) {
		t.Errorf("the heap grew by %d bytes for a transcript of %d", grown, blob.Digest.Size)
	}
}

// TestSizes: around the limits of buffers, and of what is kept of a rep.
func TestSizes(t *testing.T) {
	for _, n := range []int{0, 1, 4095, 4096, 64<<10 - 1, 64 << 10, 64<<10 + 1, keepEvents - 1, keepEvents, keepEvents + 1, 3 << 20} {
		text := strings.Repeat("x", n)
		for _, in := range []string{"x=text", "x=rep:text"} {
			a := action(t, "def f(x):\n    s = x if type(x) == 'string' else x.events[0].text\n    return [len(s), s[-1:]]", []string{in}, "o.json")
			got, err := evaluate(a, text)
			if want := fmt.Sprintf("[%d,\"%s\"]\n", n, text[max(0, n-1):]); err != nil || got != want {
				t.Errorf("%s of %d bytes: got %.40q, %v", in, n, got, err)
			}
		}
	}
}

var errDisk = errors.New("input/output error")

// faulty gives a transcript that can't be read beyond some byte, or whose
// bytes turn out at the end not to be those of the digest.
func faulty(lines int, limit int64) Blob {
	n, _ := io.Copy(io.Discard, &codexLog{lines: lines})
	return Blob{Digest: cas.Digest{Func: cas.BLAKE3, Size: n}, Open: func() (io.ReadCloser, error) {
		if limit < 0 {
			return nil, errDisk
		}
		return io.NopCloser(io.MultiReader(io.LimitReader(&codexLog{lines: lines}, limit), failing{})), nil
	}}
}

type failing struct{}

func (failing) Read([]byte) (int, error) { return 0, errDisk }

// TestInputError: wherever a function meets the fault, and whether or not it
// could notice, there is no result.
func TestInputError(t *testing.T) {
	all := size(t, &codexLog{lines: 50})
	bodies := map[string]string{
		"reply":           "return x.reply",
		"usage":           "return x.usage.input",
		"len":             "return len(x.events)",
		"len of commands": "return len(x.commands)",
		"truth":           "return 1 if x.events else 2",
		"index":           "return x.events[0].kind",
		"negative index":  "return x.events[-1].kind",
		"loop":            "n = 0\n    for e in x.events:\n        n += 1\n    return n",
		"loop that ends":  "for e in x.events:\n        return e.kind",
		"break":           "for e in x.events:\n        break\n    return 1",
		"comprehension":   "return [e.kind for e in x.commands]",
		"list":            "return len(list(x.events))",
		"any":             "return any([e.kind == 'command' for e in x.events])",
		"enumerate":       "return len(enumerate(x.events))",
		"zip":             "return len(zip([1], x.events))",
		"unpacking":       "a = list(x.events)[:1]\n    return len(a)",
		"star":            "return len((lambda *a: a)(*x.events))",
		"extend":          "l = []\n    l.extend(x.events)\n    return len(l)",
		"sorted":          "return len(sorted(x.events, key = lambda e: e.kind))",
		"returned":        "return x.events",
		"returned within": "return [x.commands]",
		"encoded":         "return json.encode(x.events)",
		"caught by fail":  "for e in x.events:\n        fail('early')",
		"an error after":  "n = len(x.events)\n    return [][5]",
		"twice":           "return len(x.events) + len(x.events)",
		"in":              "return 1 in x.events",
	}
	for name, body := range bodies {
		for _, limit := range []int64{-1, 0, 10, all / 2, all} {
			for _, output := range []string{"o.json", "o.jsonl"} {
				a := action(t, "def f(x):\n    "+body, []string{"x=rep:codex"}, output)
				out, err := Evaluate(context.Background(), a, []Blob{faulty(50, limit)}, nil)
				var in *InputError
				if name == "in" && !errors.As(err, &in) && err != nil {
					continue // no operation of events: nothing was read
				}
				if !errors.As(err, &in) || !errors.Is(err, errDisk) || out != nil {
					t.Errorf("%s, fault after %d of %d bytes: got %s, %v", name, limit, all, out, err)
				} else if in.File != a.Inputs[0].File || err.Error() != "read p/x.in: input/output error" {
					t.Errorf("%s: got %v", name, err)
				}
			}
		}
	}
	for _, decode := range []string{"json", "jsonl", "text"} {
		a := action(t, "def f(x):\n    return 1", []string{"x=" + decode}, "o.json")
		var in *InputError
		if _, err := Evaluate(context.Background(), a, []Blob{faulty(5, 100)}, nil); !errors.As(err, &in) {
			t.Errorf("%s: got %v", decode, err)
		}
	}
	// A fault in a rep that the function never looks at is none.
	a := action(t, "def f(x):\n    return 1", []string{"x=rep:codex"}, "o.json")
	if out, err := Evaluate(context.Background(), a, []Blob{faulty(5, 0)}, nil); err != nil || string(out[0]) != "1\n" {
		t.Errorf("got %s, %v", out, err)
	}
}

func TestInputTooLarge(t *testing.T) {
	a := action(t, "def f(x):\n    return 1", []string{"x=json"}, "o.json")
	_, err := Evaluate(context.Background(), a, []Blob{{Digest: cas.Digest{Func: cas.BLAKE3, Size: maxWhole + 1}}}, nil)
	if err == nil || !strings.Contains(err.Error(), "input p/x.in: 268435457 bytes; at most 268435456 can be decoded as json") {
		t.Errorf("got %v", err)
	}
}

func TestUnknownCodec(t *testing.T) {
	a := action(t, "def f(x):\n    return 1", []string{"x=rep:codex"}, "o.json")
	a.Inputs[0].Codec = "codex@0"
	if _, err := evaluate(a, ""); err == nil || !strings.Contains(err.Error(), "input p/x.in: no codec codex@0") {
		t.Errorf("got %v", err)
	}
}

// TestBlind: a discriminator sees four attributes, and nothing of the prompt
// that a log repeats before the agent begins.
func TestBlind(t *testing.T) {
	logs := map[string]string{
		"text": "the reply",
		"codex": `{"type":"agentops.probe-input.v1","arm":"treatment","rep":3}
{"type":"thread.started","thread_id":"secret-thread"}
{"type":"item.completed","item":{"id":"1","type":"agent_message","text":"the reply"}}
{"type":"turn.completed","usage":{"input_tokens":1}}
`,
		"claude": `{"type":"system","subtype":"init","session_id":"secret-thread"}
{"type":"user","message":{"role":"user","content":"the treatment"},"session_id":"secret-thread"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"the reply"}]},"session_id":"secret-thread"}
{"type":"user","message":{"role":"user","content":"later"},"session_id":"secret-thread"}
{"type":"assistant","message":{"role":"assistant","content":[{"type":"text","text":"the reply"}]},"session_id":"secret-thread"}
{"type":"result","subtype":"success","result":"the reply","session_id":"secret-thread"}
`,
		"pi": `{"type":"session","id":"secret-thread"}
{"type":"message_end","message":{"role":"user","content":[{"type":"text","text":"the treatment"}]}}
{"type":"message_end","message":{"role":"assistant","content":[{"type":"text","text":"the reply"}]}}
`,
	}
	want := map[string]string{
		"text":   `[["message","the reply"]]`,
		"codex":  `[["message","the reply"]]`,
		"claude": `[["message","the reply"],["message","later"],["message","the reply"]]`,
		"pi":     `[["message","the reply"]]`,
	}
	for format, log := range logs {
		a := action(t, `
def f(x):
    return [dir(x), str(x), type(x), x.reply, [[e.kind, e.text] for e in x.events], x.usage.output, json.encode([x.events, x.commands])]
`, []string{"x=rep:" + format}, "o.json")
		got, err := evaluate(a, log)
		if err != nil {
			t.Errorf("%s: %v", format, err)
			continue
		}
		if begin := `[["commands","events","reply","usage"],"<rep>","rep","the reply",` + want[format]; !strings.HasPrefix(got, begin) {
			t.Errorf("%s: got %s\nwant %s", format, got, begin)
		}
		for _, word := range []string{"secret-thread", "treatment"} {
			if strings.Contains(got, word) {
				t.Errorf("%s: %q shows in %s", format, word, got)
			}
		}
	}
	for _, attr := range []string{"arm", "index", "thread", "digest", "codec", "path", "capture", "facts"} {
		if _, err := evaluate(action(t, "def f(x):\n    return x."+attr, []string{"x=rep"}, "o.json"), ""); err == nil || !strings.Contains(err.Error(), "rep has no ."+attr) {
			t.Errorf("%s: got %v", attr, err)
		}
	}
	// What tells more is out of reach of everything but the built-in rules.
	for _, name := range []string{"native", "glob", "module", "dependency"} {
		b := newBuild(map[string]string{"x.star": "x = " + name, "BUILD.star": "load(':x.star', 'x')"}, nil)
		if _, err := b.all(); err == nil || !strings.Contains(err.Error(), "undefined: "+name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

// TestEvents: kinds, order, and which commands count.
func TestEvents(t *testing.T) {
	a := action(t, `
def f(x):
    return struct(
        events = x.events,
        commands = [c.text for c in x.commands],
        n = [len(x.events), len(x.commands)],
        at = [x.events[0].kind, x.events[-1].kind, x.commands[0].text],
        truth = [bool(x.events), bool(x.commands)],
        nested = [[a.kind + b.kind for a in x.events] for b in x.commands],
    )
`, []string{"x=rep:codex"}, "o.json")
	got, err := evaluate(a, `{"type":"thread.started","thread_id":"t"}
{"type":"item.started","item":{"id":"0","type":"command_execution","command":"ls"}}
{"type":"item.completed","item":{"id":"0","type":"command_execution","command":"ls","aggregated_output":"a\n","exit_code":0,"status":"completed"}}
{"type":"item.completed","item":{"id":"1","type":"mcp_tool_call","server":"s","tool":"t","arguments":{"b":1,"a":[2]},"result":null,"status":"completed"}}
{"type":"item.completed","item":{"id":"2","type":"error","message":"oops"}}
{"type":"item.started","item":{"id":"3","type":"command_execution","command":"sleep"}}
{"type":"item.completed","item":{"id":"4","type":"agent_message","text":"done"}}
`)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"at":["command","command","ls"],"commands":["ls"],"events":[` +
		`{"exit":0,"kind":"command","output":"a\n","status":"completed","text":"ls"},` +
		`{"arguments":{"a":[2],"b":1},"kind":"tool","name":"mcp__s__t","result":null,"status":"completed"},` +
		`{"kind":"error","message":"oops"},` +
		`{"kind":"message","role":"assistant","text":"done"},` +
		`{"exit":null,"kind":"command","output":"","status":"in_progress","text":"sleep"}],` +
		`"n":[5,1],"nested":[["commandcommand","toolcommand","errorcommand","messagecommand","commandcommand"]],"truth":[true,true]}` + "\n"
	if got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	for body, want := range map[string]string{
		"x.events[99]":     "index 99 out of range",
		"x.events.append":  "events has no .append",
		"x.events[0].arm":  "struct has no .arm",
		"x.events == 1":    "",
		"x.events.reply":   "events has no .reply",
		"{x: 1}":           "unhashable: rep",
		"{x.events[0]: 1}": "",
	} {
		_, err := evaluate(action(t, "def f(x):\n    y = "+body+"\n    return 1", []string{"x=rep"}, "o.json"), "hi")
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: got %v, want %s", body, err, want)
		}
	}
}

// TestInvalidUTF8: replies that differ in one invalid byte stay different
// through JSON, and come back as the very bytes.
func TestInvalidUTF8(t *testing.T) {
	replies := []string{"caf\xe9", "caf\xe8", "caf\ufffd", "caf\xc3\xa9", "caf\\udce9", "\xed\xb3\xa9", "\xed\xb2\x80", "\x80", "\xf4\x90\x80\x80", "\xc0\x80", "\x00", "\x7f", "\xef\xbb\xbfx", "a\xffb\xfe", "\xf0\x9f\x98", "\xf0\x9f\x98\x80"}
	encode := action(t, "def f(x):\n    return {x.reply: [x.reply, x.events]}", []string{"x=rep"}, "o.json")
	decode := action(t, "def f(x):\n    return x.keys()[0] if x.keys()[0] == x.values()[0][0] else 'differ'", []string{"x=json"}, "o.txt")
	seen := map[string]string{}
	for _, r := range replies {
		j, err := evaluate(encode, r)
		if err != nil {
			t.Fatalf("%q: %v", r, err)
		}
		if other, ok := seen[j]; ok {
			t.Errorf("%q and %q are both %s", r, other, j)
		}
		seen[j] = r
		back, err := evaluate(decode, j)
		if err != nil || back != r {
			t.Errorf("%q came back as %q, %v (by way of %s)", r, back, err, j)
		}
	}
}

// Evaluate on several goroutines: values of one action are shared, frozen.
func TestEvaluateParallel(t *testing.T) {
	a := action(t, "D = {'a': [1, {}]}\ndef f(x):\n    return [D, x.reply, len(x.events), stats.mean([1, 2]), re.sub('a+', 'b', x.reply)]", []string{"x=rep"}, "o.json")
	a.Params = []graph.Param{}
	done := make(chan string)
	for range 8 {
		go func() {
			s, err := evaluate(a, "aab")
			done <- fmt.Sprint(s, err)
		}()
	}
	for range 8 {
		if got := <-done; got != `[{"a":[1,{}]},"aab",1,1.5,"bb"]`+"\n<nil>" {
			t.Errorf("got %s", got)
		}
	}
}

func TestShowValue(t *testing.T) {
	cyclic := sl.NewList(nil)
	if err := cyclic.Append(frozenStruct(sl.StringDict{"l": sl.None})); err != nil {
		t.Fatal(err)
	}
	if err := cyclic.Append(&instance{provider: defaultInfo, values: sl.StringDict{"l": cyclic}}); err != nil {
		t.Fatal(err)
	}
	long := make([]sl.Value, 100_000)
	for i := range long {
		long[i] = sl.MakeInt(i)
	}
	for _, c := range []struct {
		v    sl.Value
		want string
	}{
		{sl.MakeInt(1), "1"},
		{sl.String("a\n"), `"a\n"`},
		{list(dict(sl.String("k"), sl.Tuple{sl.None})), `[{"k": (None,)}]`},
		{sl.String(strings.Repeat("é", 100)), `"` + strings.Repeat("é", 28) + "..."},
		{sl.String("\xff"), `"\xff"`},
		{sl.NewList(long[:30]), "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16..."},
		{sl.NewList(long), "<list>"},
		{cyclic, "<list>"},
		{frozenStruct(sl.StringDict{"l": cyclic}), "<struct>"},
		{newRep(nil, Blob{}), "<rep>"},
		{&eventSeq{opaque{"events"}, nil, false}, "<events>"},
	} {
		if got := (&param{value: c.v}).Text(); got != c.want {
			t.Errorf("got %s, want %s", got, c.want)
		}
	}
}
