package transcript

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"strings"
	"testing"
	"testing/iotest"

	"github.com/google/go-cmp/cmp"
)

func TestCodecs(t *testing.T) {
	want := []string{"text", "codex", "claude", "gemini", "pi", "opencode", "qwen", "eval"}
	if diff := cmp.Diff(want, Names()); diff != "" {
		t.Error(diff)
	}
	for _, name := range Names() {
		c, ok := Lookup(name)
		if !ok || c.ID() != name+"@1" || c.CLI() == (name == "text" || name == "eval") {
			t.Errorf("%s: %v %v", name, c, ok)
		}
	}
	if _, ok := Lookup("Codex"); ok {
		t.Error("names are exact")
	}
}

func mustScan(t *testing.T, format, content string) (Summary, []Event) {
	t.Helper()
	codec, ok := Lookup(format)
	if !ok {
		t.Fatal(format)
	}
	return scanBytes(t, codec, []byte(content))
}

func TestText(t *testing.T) {
	for content, want := range map[string]string{
		"": "", "\n": "", "a": "a", "a\n": "a", "a\n\n": "a\n", "a\r\n": "a\r", "\xff\x00\n": "\xff\x00",
	} {
		sum, events := mustScan(t, "text", content)
		if sum.Reply != want || len(sum.Degraded) != 0 {
			t.Errorf("%q: %+v", content, sum)
		}
		if diff := cmp.Diff([]Event{{Kind: KindMessage, Role: RoleAssistant, Text: want}}, events); diff != "" {
			t.Errorf("%q: %s", content, diff)
		}
	}
}

const (
	started   = `{"type":"thread.started","thread_id":"t1"}` + "\n"
	completed = `{"type":"turn.completed","usage":{"input_tokens":10}}` + "\n"
)

func agent(text string) string {
	return `{"type":"item.completed","item":{"id":"i","type":"agent_message","text":` + text + `}}` + "\n"
}

func TestMalformed(t *testing.T) {
	for name, c := range map[string]struct{ content, want string }{
		"empty":         {"", "line 1: empty"},
		"blank":         {"\n \r\n", "line 1: empty"},
		"not JSON":      {started + "hello\n" + completed, "line 2: not JSON: 'h' where a value is expected at byte 1"},
		"not an object": {started + "[1]\n" + completed, "line 2: not an object"},
		"two values":    {started + "{} {}\n" + completed, "line 2: not JSON: bytes after the value at byte 4"},
		"NUL":           {started + "{\x00}\n" + completed, `line 2: not JSON: '\x00' where a name is expected at byte 2`},
		"NUL in string": {started + "{\"a\":\"\x00\"}\n" + completed, `line 2: not JSON: '\x00' where a string byte is expected at byte 7`},
		"cut in middle": {started + completed + `{"type":"turn.st`, "line 3: cut off: unexpected end at byte 17"},
		"cut line":      {started + "{\"type\":\n" + completed, "line 2: not JSON: unexpected end at byte 9"},
		"two threads":   {started + `{"type":"thread.started","thread_id":"t2"}` + "\n" + completed, "line 2: a second thread id"},
		"deep": {
			started + `{"a":` + strings.Repeat("[", MaxDepth) + strings.Repeat("]", MaxDepth) + "}\n" + completed,
			"line 2: not JSON: nested deeper than 1000 at byte 1005",
		},
	} {
		t.Run(name, func(t *testing.T) {
			sum, _ := mustScan(t, "codex", c.content)
			if len(sum.Degraded) == 0 || sum.Degraded[0] != (Reason{Malformed, c.want}) {
				t.Errorf("%q, want %q", sum.Degraded, c.want)
			}
			if name != "empty" && name != "blank" && len(sum.Degraded) != 1 {
				t.Errorf("scanning did not go on: %q", sum.Degraded)
			}
		})
	}
	sum, _ := mustScan(t, "codex", started+strings.Repeat("x\n", 100)+completed)
	if n := len(sum.Degraded); n != maxMalformed+1 || sum.Degraded[n-1].Detail != "95 more" {
		t.Errorf("many: %q", sum.Degraded)
	}
	deep := `{"a":` + strings.Repeat("[", MaxDepth-1) + strings.Repeat("]", MaxDepth-1) + "}\n"
	if sum, _ := mustScan(t, "codex", started+deep+"\n\n"+completed); len(sum.Degraded) != 0 {
		t.Errorf("depth %d, blank lines: %q", MaxDepth, sum.Degraded)
	}
	if sum, _ := mustScan(t, "codex", started+strings.TrimSuffix(completed, "\n")); len(sum.Degraded) != 0 {
		t.Errorf("last line without its end: %q", sum.Degraded)
	}
}

func TestTooLong(t *testing.T) {
	if testing.Short() {
		t.Skip("allocates 64 MiB")
	}
	long := io.LimitReader(repeat("a"), MaxLine+1)
	codec, _ := Lookup("codex")
	r := io.MultiReader(strings.NewReader(started), long, strings.NewReader("\n"+completed+"x"))
	sum, err := codec.Scan(r, nil)
	want := []Reason{{Malformed, "line 2: longer than 67108864 bytes"}, {Malformed, "line 4: not JSON: 'x' where a value is expected at byte 1"}}
	if diff := cmp.Diff(want, sum.Degraded); diff != "" || err != nil {
		t.Error(err, diff)
	}
	text, _ := Lookup("text")
	sum, _ = text.Scan(io.LimitReader(repeat("a\n"), MaxReply+2), nil)
	if len(sum.Degraded) != 1 || sum.Degraded[0].Code != Malformed || sum.Reply != "" {
		t.Errorf("text: %q", sum.Degraded)
	}
	delta := `{"type":"message","role":"assistant","delta":true,"content":"` + strings.Repeat("a", 1<<20) + `"}` + "\n"
	gemini, _ := Lookup("gemini")
	sum, _ = gemini.Scan(strings.NewReader(strings.Repeat(delta, 65)+`{"type":"result","status":"success"}`), nil)
	if len(sum.Degraded) != 1 || sum.Degraded[0].Detail != "line 65: reply longer than 67108864 bytes" || sum.Reply != "" {
		t.Errorf("gemini: %q, reply of %d", sum.Degraded, len(sum.Reply))
	}
}

// repeat is an endless reader of one text.
func repeat(text string) io.Reader { return &endless{text: text} }

type endless struct {
	text string
	at   int
}

func (e *endless) Read(p []byte) (int, error) {
	for n := 0; n < len(p); {
		k := copy(p[n:], e.text[e.at:])
		n += k
		e.at = (e.at + k) % len(e.text)
	}
	return len(p), nil
}

func TestBytesStay(t *testing.T) {
	replies := map[string]string{}
	for _, text := range []string{`"\ud83d"`, `"\ud83e"`, "\"\xff\"", "\"\xfe\"", `"\ufffd"`} {
		sum, events := mustScan(t, "codex", started+agent(text)+completed)
		if other, ok := replies[sum.Reply]; ok {
			t.Errorf("%q and %q are one reply", text, other)
		}
		replies[sum.Reply] = text
		if events[0].Text != sum.Reply {
			t.Errorf("%q: event %q, reply %q", text, events[0].Text, sum.Reply)
		}
	}
	_, events := mustScan(t, "codex", started+
		"{\"type\":\"item.completed\",\"item\":{\"type\":\"command_execution\",\"command\":\"\xff\",\"aggregated_output\":\"\\ud83d\xc3\",\"exit_code\":2,\"status\":\"failed\"}}\n"+completed)
	two := 2
	want := []Event{{Kind: KindCommand, Text: "\xff", Output: "\xed\xa0\xbd\xc3", Exit: &two, Status: StatusFailed}}
	if diff := cmp.Diff(want, events); diff != "" {
		t.Error(diff)
	}
}

func TestErrors(t *testing.T) {
	codec, _ := Lookup("codex")
	boom := errors.New("boom")
	sum, err := codec.Scan(strings.NewReader(started+agent(`"a"`)+agent(`"b"`)+completed), func(Event) error { return boom })
	if err != boom || sum.Events != 1 {
		t.Errorf("each: %v, %+v", err, sum)
	}
	for _, name := range Names() {
		codec, _ := Lookup(name)
		broken := io.MultiReader(strings.NewReader(started), iotest.ErrReader(boom))
		if _, err := codec.Scan(broken, nil); !errors.Is(err, boom) {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := codec.Scan(iotest.ErrReader(io.ErrUnexpectedEOF), nil); !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestStream reads a transcript that is larger than the memory it may use.
func TestStream(t *testing.T) {
	size := int64(300 << 20)
	if testing.Short() {
		size = 64 << 20
	}
	line := `{"type":"item.completed","item":{"id":"item_1","type":"command_execution","command":"/bin/sh -lc 'go test ./...'","aggregated_output":"` +
		strings.Repeat(`ok  \texample.com/a/b\t0.012s\n`, 40) + `","exit_code":0,"status":"completed"}}` + "\n"
	size -= size % int64(len(line))
	r := io.MultiReader(strings.NewReader(started), io.LimitReader(repeat(strings.Repeat(line, 64)), size), strings.NewReader(agent(`"end"`)+completed))
	var before, now runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	most := uint64(0)
	codec, _ := Lookup("codex")
	n := 0
	sum, err := codec.Scan(r, func(Event) error {
		if n++; n%50_000 == 0 {
			runtime.GC()
			runtime.ReadMemStats(&now)
			most = max(most, now.HeapAlloc)
		}
		return nil
	})
	if err != nil || sum.Reply != "end" || len(sum.Degraded) != 0 || int64(sum.Events) != size/int64(len(line))+1 {
		t.Fatalf("%v %+v", err, sum)
	}
	if grown := int64(most) - int64(before.HeapAlloc); grown > 4<<20 {
		t.Errorf("heap grew by %d bytes", grown)
	}
}

// TestOpenCalls: calls that never end don't pile up.
func TestOpenCalls(t *testing.T) {
	var b strings.Builder
	b.WriteString(started)
	for i := range 3000 {
		fmt.Fprintf(&b, `{"type":"item.started","item":{"id":"i%d","type":"command_execution","command":"c%d"}}`+"\n", i, i)
	}
	sum, events := mustScan(t, "codex", b.String()+completed)
	if len(events) != 3000 || len(sum.Degraded) != maxMalformed+1 {
		t.Fatalf("%d events, %q", len(events), sum.Degraded)
	}
	for i, e := range events {
		if e.Text != fmt.Sprintf("c%d", i) || e.Ended() || e.Exit != nil {
			t.Fatalf("event %d: %+v", i, e)
		}
	}
}

// FuzzScan: no input makes a codec panic, and two passes see the same, however the reader cuts the bytes.
func FuzzScan(f *testing.F) {
	for _, path := range samplePaths() {
		b, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		for i := range codecs {
			f.Add(uint8(i), b)
		}
	}
	f.Fuzz(func(t *testing.T, which uint8, b []byte) {
		codec := codecs[int(which)%len(codecs)]
		pass := func(r io.Reader) (Summary, []Event) {
			var events []Event
			traps := NewTraps(TrapInput{TreatmentPath: "x/plan.md", Treatment: []byte("some treatment of the probe, short")})
			sum, err := codec.Scan(r, func(e Event) error {
				events = append(events, e)
				traps.See(e)
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
			return sum, events
		}
		sum, events := pass(bytes.NewReader(b))
		again, eventsAgain := pass(iotest.HalfReader(bytes.NewReader(b)))
		if diff := cmp.Diff(sum, again); diff != "" {
			t.Fatal(diff)
		}
		if diff := cmp.Diff(events, eventsAgain); diff != "" {
			t.Fatal(diff)
		}
	})
}

func BenchmarkScan(b *testing.B) {
	for _, path := range samplePaths() {
		name, _, _ := strings.Cut(strings.TrimPrefix(path, "testdata/"), "-")
		if !strings.Contains(path, "-tool") || name == "eval" { // a thousand of them are no transcript
			continue
		}
		b.Run(name, func(b *testing.B) {
			codec, _ := Lookup(name)
			content, err := os.ReadFile(path)
			if err != nil {
				b.Fatal(err)
			}
			content = bytes.Repeat(content, 1000)
			b.SetBytes(int64(len(content)))
			for b.Loop() {
				if _, err := codec.Scan(bytes.NewReader(content), nil); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
