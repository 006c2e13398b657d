package transcript

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// encoded is a whole transcript of ours.
func encoded(t testing.TB, thread string, u Usage, events ...Event) []byte {
	t.Helper()
	var b bytes.Buffer
	enc := NewEncoder(&b)
	for _, e := range events {
		if err := enc.Event(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(enc.Thread(thread), enc.Usage(u)); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

func number[N int | int64](n N) *N { return &n }

func TestEncode(t *testing.T) {
	events := []Event{
		{Kind: KindMessage, Role: RoleUser, Text: "é \"\\\n\x00\x7f\u2028"},
		{Kind: KindCommand, Text: "\xff", Output: "a\xed\xb2\x80\n", Exit: number(2), Status: StatusFailed},
		{Kind: KindTool, Name: "Read", Arguments: json.RawMessage(` {"b" : "x y\u0041", "a":[1.0, 2]}`), Result: json.RawMessage("null"), Status: StatusCompleted},
		{Kind: KindTool, Arguments: json.RawMessage("{"), Result: json.RawMessage("\"\xff\""), Status: StatusFailed},
		{Kind: KindError, Message: "<no>"},
		{Kind: KindMessage, Role: RoleAssistant},
		{Kind: KindCommand, Status: StatusInProgress},
	}
	want := joined(
		`{"kind":"message","role":"user","text":"é \"\\\n\u0000\u007f`+"\u2028"+`"}`,
		`{"exit":2,"kind":"command","output":"a\udced\udcb2\udc80\n","status":"failed","text":"\udcff"}`,
		`{"arguments":{"b":"x y\u0041","a":[1.0,2]},"kind":"tool","name":"Read","result":null,"status":"completed"}`,
		`{"arguments_text":"{","kind":"tool","name":"","result_text":"\"\udcff\"","status":"failed"}`,
		`{"kind":"error","message":"<no>"}`,
		`{"kind":"message","role":"assistant","text":""}`,
		`{"kind":"command","output":"","status":"in_progress","text":""}`,
		`{"id":"t","type":"thread"}`,
		`{"cache_write":0,"input":9007199254740992,"type":"usage"}`,
	)
	u := Usage{CacheWrite: number(int64(0)), Input: number(int64(maxCount))}
	got := encoded(t, "t", u, events...)
	if diff := cmp.Diff(want, string(got)); diff != "" {
		t.Error(diff)
	}
	sum, back := mustScan(t, "eval", want)
	events[2].Arguments = json.RawMessage(`{"b":"x y\u0041","a":[1.0,2]}`)
	if diff := cmp.Diff(events, back); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(Summary{ThreadID: "t", Usage: u, Events: len(events)}, sum); diff != "" {
		t.Error(diff)
	}
	for name, rest := range map[string][]byte{"no thread": encoded(t, "", u), "no usage": encoded(t, "t", Usage{})} {
		if bytes.Count(rest, []byte("\n")) != 1 {
			t.Errorf("%s: %s", name, rest)
		}
	}
}

// TestEncodeReply: what a program printed is one reply, as text and as the one message of a transcript of ours.
func TestEncodeReply(t *testing.T) {
	for _, reply := range []string{"", "a", "a\n", "\n\n", "a\r", "\xff\x00"} {
		sum, _ := mustScan(t, "eval", string(encoded(t, "", Usage{}, Event{Kind: KindMessage, Role: RoleAssistant, Text: reply})))
		text, _ := mustScan(t, "text", reply+"\n")
		if sum.Reply != reply || text.Reply != reply || len(sum.Degraded) != 0 {
			t.Errorf("%q: %q, as text %q, %q", reply, sum.Reply, text.Reply, sum.Degraded)
		}
	}
}

// TestEncodeSamples: what the other codecs deliver can be written and comes back.
func TestEncodeSamples(t *testing.T) {
	for _, path := range samplePaths() {
		sum, events := scanFile(t, path)
		again, back := mustScan(t, "eval", string(encoded(t, sum.ThreadID, sum.Usage, events...)))
		if diff := cmp.Diff(events, back); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
		sum.Degraded, sum.Arm, sum.Index = nil, "", 0
		if diff := cmp.Diff(sum, again); diff != "" {
			t.Errorf("%s: %s", path, diff)
		}
	}
}

func TestEncodeErrors(t *testing.T) {
	for want, e := range map[string]Event{
		`event 1: unknown kind ""`:                         {},
		`event 1: message with role "system"`:              {Kind: KindMessage, Role: "system"},
		`event 1: command with status ""`:                  {Kind: KindCommand},
		`event 1: tool with status "done"`:                 {Kind: KindTool, Status: "done"},
		`event 1: command is completed with exit code 1`:   {Kind: KindCommand, Status: StatusCompleted, Exit: number(1)},
		`event 1: command is in_progress with exit code 0`: {Kind: KindCommand, Status: StatusInProgress, Exit: number(0)},
		`event 1: command with exit code 4294967296`:       {Kind: KindCommand, Status: StatusFailed, Exit: number(1 << 32)},
		`a line longer than 67108864 bytes`:                {Kind: KindError, Message: strings.Repeat("\x00", MaxLine/6)},
	} {
		var b bytes.Buffer
		enc := NewEncoder(&b)
		err := enc.Event(e)
		if err == nil || err.Error() != "encode transcript: "+want {
			t.Errorf("%v, want %s", err, want)
		}
		if again := enc.Event(Event{Kind: KindError}); again != err || enc.Thread("") != err || enc.Usage(Usage{}) != err || b.Len() != 0 {
			t.Errorf("%s: it went on: %v, %q", want, again, b.String())
		}
	}
	for want, f := range map[string]func(*Encoder) error{
		"an event after the thread":   func(enc *Encoder) error { return errors.Join(enc.Thread("t"), enc.Event(Event{Kind: KindError})) },
		"the thread after the thread": func(enc *Encoder) error { return errors.Join(enc.Thread("t"), enc.Thread("t")) },
		"the thread after the usage": func(enc *Encoder) error {
			return errors.Join(enc.Usage(Usage{Input: number(int64(1))}), enc.Thread("t"))
		},
		"usage: output of -1 tokens":           func(enc *Encoder) error { return enc.Usage(Usage{Output: number(int64(-1))}) },
		"usage: input of 9007199254740993 tok": func(enc *Encoder) error { return enc.Usage(Usage{Input: number(int64(maxCount + 1))}) },
	} {
		if err := f(NewEncoder(&bytes.Buffer{})); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %s", err, want)
		}
	}
	// Another kind's fields are not looked at.
	if err := Encode(&bytes.Buffer{}, Event{Kind: KindTool, Status: StatusCompleted, Exit: number(1), Role: "x"}); err != nil {
		t.Error(err)
	}
	full := errors.New("disk full")
	if err := Encode(failing{full}, Event{Kind: KindError}); !errors.Is(err, full) {
		t.Error(err)
	}
}

type failing struct{ err error }

func (f failing) Write([]byte) (int, error) { return 0, f.err }

const said = `{"kind":"message","role":"assistant","text":"a"}` + "\n"

// TestStrict: what the encoder would not have written is malformed, and reading goes on.
func TestStrict(t *testing.T) {
	for content, want := range map[string]string{
		"":                                    "line 1: empty",
		"\n":                                  "line 1: not JSON: unexpected end at byte 1",
		said + "\n" + said:                    "line 2: not JSON: unexpected end at byte 1",
		said[:len(said)-1]:                    "line 1: cut off: no line end",
		said + `{"kind"`:                      "line 2: cut off: no line end",
		" " + said:                            "line 1: not an object",
		said[:len(said)-1] + "\r\n":           "line 1: not as it is written, at byte 49",
		"[1]\n":                               "line 1: not an object",
		"{}\n":                                `line 1: unknown kind ""`,
		`{"type":"message"}` + "\n":           `line 1: unknown type "message"`,
		`{"id":"","type":"thread"}` + "\n":    "line 1: thread without an id",
		`{"type":"usage"}` + "\n":             "line 1: usage without a count",
		`{"input":1e3,"type":"usage"}` + "\n": "line 1: not as it is written, at byte 11",
		`{"input":null,"output":1,"type":"usage"}` + "\n":                               "line 1: not as it is written, at byte 3",
		`{"id":"t","type":"thread"}` + "\n" + said:                                      "line 2: an event after the thread",
		`{"id":"t","type":"thread"}` + "\n" + `{"id":"u","type":"thread"}` + "\n":       "line 2: the thread after the thread",
		`{"input":1,"type":"usage"}` + "\n" + `{"id":"u","type":"thread"}` + "\n":       "line 2: the thread after the usage",
		`{"kind":"message", "role":"assistant","text":"a"}` + "\n":                      "line 1: not as it is written, at byte 19",
		`{"role":"assistant","kind":"message","text":"a"}` + "\n":                       "line 1: not as it is written, at byte 3",
		`{"kind":"message","role":"assistant","text":"a","x":1}` + "\n":                 "line 1: not as it is written, at byte 48",
		`{"kind":"message","role":"assistant","text":"a","text":"a"}` + "\n":            "line 1: not as it is written, at byte 48",
		`{"kind":"message","role":"assistant"}` + "\n":                                  "line 1: not as it is written, at byte 37",
		`{"kind":"message","role":"assistant","text":1}` + "\n":                         "line 1: not as it is written, at byte 45",
		`{"kind":"message","role":"assistant","text":"\u0061"}` + "\n":                  "line 1: not as it is written, at byte 46",
		`{"kind":"message","role":"assistant","text":"\udc41"}` + "\n":                  "line 1: not as it is written, at byte 50",
		`{"kind":"message","role":"assistant","text":"\ud83d"}` + "\n":                  "line 1: not as it is written, at byte 49",
		`{"kind":"message","role":"assistant","text":"\udcc3\udca9"}` + "\n":            "line 1: not as it is written, at byte 46", // é
		`{"kind":"message","role":"assistant","text":"` + "\xff" + `"}` + "\n":          "line 1: not as it is written, at byte 46",
		`{"kind":"message","role":"assistant","text":"` + "\xed\xb2\x80\"}\n":           "line 1: not as it is written, at byte 46",
		`{"kind":"message","role":"system","text":"a"}` + "\n":                          `line 1: message with role "system"`,
		`{"exit":null,"kind":"command","output":"","status":"failed","text":""}`:        "line 1: cut off: no line end",
		`{"exit":-0,"kind":"command","output":"","status":"failed","text":""}` + "\n":   "line 1: not as it is written, at byte 9",
		`{"exit":1,"kind":"command","output":"","status":"completed","text":""}` + "\n": "line 1: command is completed with exit code 1",
		`{"arguments": 1,"kind":"tool","name":"","status":"failed"}` + "\n":             "line 1: not as it is written, at byte 14",
		`{"arguments":[1, 2],"kind":"tool","name":"","status":"failed"}` + "\n":         "line 1: not as it is written, at byte 17",
		`{"arguments_text":"{}","kind":"tool","name":"","status":"failed"}` + "\n":      "line 1: not as it is written, at byte 12",
		`{"arguments_text":"","kind":"tool","name":"","status":"failed"}` + "\n":        "line 1: not as it is written, at byte 3",
	} {
		sum, events := mustScan(t, "eval", content)
		if diff := cmp.Diff([]Reason{{Malformed, want}}, sum.Degraded); diff != "" {
			t.Errorf("%q: %s", content, diff)
		}
		if len(events) != strings.Count(content, said) && !strings.Contains(want, "an event after") && !strings.HasPrefix(content, " ") {
			t.Errorf("%q: events %v", content, sketch(events))
		}
	}
}

// TestEncodeDepth: JSON that would be too deep within a line is text.
func TestEncodeDepth(t *testing.T) {
	for depth, member := range map[int]string{MaxDepth - 1: `"arguments":[`, MaxDepth: `"arguments_text":"[`} {
		e := Event{Kind: KindTool, Status: StatusFailed, Arguments: json.RawMessage(strings.Repeat("[", depth) + strings.Repeat("]", depth))}
		line := encoded(t, "", Usage{}, e)
		sum, events := mustScan(t, "eval", string(line))
		if !bytes.Contains(line, []byte(member)) || len(sum.Degraded) != 0 || !cmp.Equal([]Event{e}, events) {
			t.Errorf("depth %d: %.40s %v", depth, line, sum.Degraded)
		}
	}
}

// FuzzEval: every transcript that is not malformed is what the encoder writes for what was read of it.
func FuzzEval(f *testing.F) {
	for _, path := range samplePaths() {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(b)
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		codec, _ := Lookup("eval")
		sum, events := scanBytes(t, codec, b)
		if len(sum.Degraded) > 0 {
			return
		}
		if got := encoded(t, sum.ThreadID, sum.Usage, events...); !bytes.Equal(b, got) {
			t.Fatalf("%q is encoded as %q", b, got)
		}
	})
}

// FuzzEncode: every event comes back, and two different ones are two different lines.
func FuzzEncode(f *testing.F) {
	f.Add(uint8(0), "a", "\xed\xb2\x80", []byte(`{"a": 1}`), int32(0))
	f.Add(uint8(1), "\xff\\udcff", "\n", []byte("\"\xff\""), int32(3))
	f.Add(uint8(2), "é", "\u2028\x7f", []byte(`[1 ,2]x`), int32(-1))
	f.Add(uint8(6), "\xc3", "\xa9", []byte(` "\ud800" `), int32(1))
	f.Fuzz(func(t *testing.T, which uint8, text, output string, raw []byte, exit int32) {
		var e Event
		switch which % 4 {
		case 0:
			e = Event{Kind: KindMessage, Role: []string{RoleUser, RoleAssistant}[which/4%2], Text: text}
		case 1:
			e = Event{Kind: KindCommand, Text: text, Output: output, Status: StatusFailed}
			if which >= 128 {
				e.Exit = number(int(exit))
			}
		case 2:
			e = Event{Kind: KindTool, Name: text, Status: StatusCompleted, Arguments: raw}
			if which >= 128 {
				e.Arguments, e.Result = nil, raw
			}
		case 3:
			e = Event{Kind: KindError, Message: text}
		}
		line := encoded(t, "", Usage{}, e)
		if n := bytes.Count(line, []byte("\n")); n != 1 {
			t.Fatalf("%d lines: %q", n, line)
		}
		sum, events := mustScan(t, "eval", string(line))
		if len(events) != 1 || len(sum.Degraded) != 0 {
			t.Fatalf("%q: %v", line, sum)
		}
		var want bytes.Buffer
		for _, p := range []*json.RawMessage{&e.Arguments, &e.Result} {
			want.Reset()
			switch {
			case len(*p) == 0:
				*p = nil
			case !bytes.Contains(line, []byte("_text\":")) && json.Compact(&want, *p) == nil:
				*p = bytes.Clone(want.Bytes())
			}
		}
		if diff := cmp.Diff(e, events[0]); diff != "" {
			t.Fatalf("%q: %s", line, diff)
		}
	})
}

func BenchmarkEval(b *testing.B) {
	_, events := scanFile(&testing.T{}, "testdata/codex-tool.jsonl")
	for i := range events {
		events[i].Output += strings.Repeat(fmt.Sprintf("ok %d\n", i), 300)
	}
	var buf bytes.Buffer
	for range 1000 {
		if err := Encode(&buf, events...); err != nil {
			b.Fatal(err)
		}
	}
	codec, _ := Lookup("eval")
	b.SetBytes(int64(buf.Len()))
	for b.Loop() {
		if sum, err := codec.Scan(bytes.NewReader(buf.Bytes()), nil); err != nil || len(sum.Degraded) > 0 {
			b.Fatal(sum.Degraded, err)
		}
	}
}
