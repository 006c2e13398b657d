package transcript

import (
	"bytes"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write testdata/*.golden")

// golden is what a codec makes of a file, as JSON for people.
type golden struct {
	Summary Summary
	Events  []json.RawMessage
}

// render drops the fields of an event that its kind does not have.
func render(t *testing.T, e Event) json.RawMessage {
	t.Helper()
	all, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(all, &fields); err != nil {
		t.Fatal(err)
	}
	for name, v := range fields {
		if v == nil || v == "" {
			delete(fields, name)
		}
	}
	out, err := json.Marshal(fields)
	if err != nil {
		t.Fatal(err)
	}
	return out
}

func scanFile(t *testing.T, path string) (Summary, []Event) {
	t.Helper()
	name, _, _ := strings.Cut(filepath.Base(path), "-")
	codec, ok := Lookup(name)
	if !ok {
		t.Fatalf("no codec %s", name)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return scanBytes(t, codec, b)
}

func scanBytes(t *testing.T, codec *Codec, b []byte) (Summary, []Event) {
	t.Helper()
	var events []Event
	sum, err := codec.Scan(bytes.NewReader(b), func(e Event) error {
		events = append(events, e)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return sum, events
}

func samplePaths() []string {
	files, err := filepath.Glob("testdata/*.json*")
	if err != nil || len(files) < 24 {
		panic("the samples are not there")
	}
	return files
}

func TestGolden(t *testing.T) {
	for _, path := range samplePaths() {
		t.Run(filepath.Base(path), func(t *testing.T) {
			sum, events := scanFile(t, path)
			g := golden{Summary: sum}
			for _, e := range events {
				g.Events = append(g.Events, render(t, e))
			}
			var buf bytes.Buffer
			enc := json.NewEncoder(&buf)
			enc.SetEscapeHTML(false)
			enc.SetIndent("", "  ")
			if err := enc.Encode(g); err != nil {
				t.Fatal(err)
			}
			file := strings.TrimSuffix(strings.TrimSuffix(path, ".jsonl"), ".json") + ".golden"
			if *update {
				if err := os.WriteFile(file, buf.Bytes(), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), buf.String()); diff != "" {
				t.Errorf("%s (-want +got):\n%s", file, diff)
			}
		})
	}
}

// TestSamples says of the golden files what must be true whoever updates them.
func TestSamples(t *testing.T) {
	n := func(v int64) *int64 { return &v }
	one := map[string]Usage{
		"codex":    {Input: n(1034), CachedInput: n(200), CacheWrite: n(0), Output: n(56), Reasoning: n(7)},
		"claude":   {Input: n(1034), CachedInput: n(200), CacheWrite: n(100), Output: n(56), Reasoning: n(0)},
		"gemini":   {Input: n(1034), CachedInput: n(200), Output: n(49)},
		"pi":       {Input: n(1034), CachedInput: n(200), CacheWrite: n(0), Output: n(56)},
		"opencode": {Input: n(1034), CachedInput: n(200), CacheWrite: n(0), Output: n(56), Reasoning: n(7)},
		"qwen":     {Input: n(1034), CachedInput: n(200), Output: n(56)},
		"eval":     {Input: n(1034), CachedInput: n(200), CacheWrite: n(0), Output: n(56), Reasoning: n(7)},
	}
	for _, path := range samplePaths() {
		base := filepath.Base(path)
		name, rest, _ := strings.Cut(base, "-")
		sum, events := scanFile(t, path)
		if sum.Events != len(events) {
			t.Errorf("%s: Events = %d, delivered %d", base, sum.Events, len(events))
		}
		if strings.HasPrefix(rest, "error") {
			if len(sum.Degraded) != 1 || sum.Degraded[0].Code != ProducerFailed || sum.Reply != "" {
				t.Errorf("%s: reply %q, degraded %v", base, sum.Reply, sum.Degraded)
			}
			continue
		}
		if len(sum.Degraded) != 0 || sum.Reply != "The answer is 42." || sum.ThreadID == "" {
			t.Errorf("%s: %+v", base, sum)
		}
		want := one[name]
		switch {
		case rest == "json-mode.json":
			want.Output, want.Reasoning = n(56), n(7)
		case strings.HasPrefix(rest, "tool"):
			var twice Usage
			twice.add(want)
			twice.add(want)
			want = twice
			for _, e := range events {
				if e.Kind == KindCommand && (!strings.Contains(e.Text, "echo hi > made.txt") || e.Output != "" || e.Status != StatusCompleted) {
					t.Errorf("%s: %+v", base, e)
				}
			}
		}
		if diff := cmp.Diff(want, sum.Usage); diff != "" {
			t.Errorf("%s: usage (-want +got):\n%s", base, diff)
		}
	}
}
