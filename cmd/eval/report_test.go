package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/workspace/engine"
)

func TestSafe(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"plain text, Grüße → 日本", "plain text, Grüße → 日本"},
		{"a\nb\tc", `a\nb\tc`},
		{"\x1b[31mred\x1b[0m", `\x1b[31mred\x1b[0m`},
		{"nul \x00, del \x7f", `nul \x00, del \x7f`},
		{"c1 \u009b31m", `c1 \u009b31m`},
		{"bad \xff\xfe", `bad \xff\xfe`},
		{"cut \xe2\x82", `cut \xe2\x82`},
		{"the character \ufffd itself", "the character \ufffd itself"},
		{"bidi \u202eevil", `bidi \u202eevil`},
		{"zero\u200bwidth", `zero\u200bwidth`},
		{"line\u2028sep", `line\u2028sep`},
		{"cr\r", `cr\x0d`},
		{"no-break\u00a0space", `no-break\u00a0space`},
	} {
		if got := safe(tc.in); got != tc.want {
			t.Errorf("safe(%q) = %q, want %q", tc.in, got, tc.want)
		}
		if again := safe(safe(tc.in)); again != safe(tc.in) {
			t.Errorf("safe(safe(%q)) = %q", tc.in, again)
		}
	}
	if got, want := safeLines("a\n\tb\x1b\n"), "a\n\tb\\x1b\n"; got != want {
		t.Errorf("safeLines: %q, want %q", got, want)
	}
}

func FuzzSafe(f *testing.F) {
	f.Add("a\x1b[2J\xff\u202e")
	f.Fuzz(func(t *testing.T, in string) {
		out := safe(in)
		if !utf8.ValidString(out) {
			t.Fatalf("safe(%q) = %q is no valid UTF-8", in, out)
		}
		for _, r := range out {
			if !printable(r) {
				t.Fatalf("safe(%q) = %q has %U", in, out, r)
			}
		}
	})
}

func TestReportCodes(t *testing.T) {
	for _, tc := range []struct {
		err  error
		code int
		text string
	}{
		{nil, 0, ""},
		{usageErrorf("read %s: %v", "x\x1b", "no").hint("do %s", "y\n"), 2, "eval: error: read x\\x1b: no\nhint: do y\\n\n"},
		{fmt.Errorf("build: %w", engine.ErrInterrupted), 8, "eval: interrupted; what was done is kept\n"},
		{fmt.Errorf("build: %w", context.Canceled), 8, "eval: interrupted; what was done is kept\n"},
		{fmt.Errorf("disk full"), 6, "eval: error: disk full\n"},
		{exit(exitGate), 3, ""},
		{exit(0), 0, ""},
		{userError(fmt.Errorf("bad label")), 2, "eval: error: bad label\n"},
		{userError(failf(exitEmpty, "nothing")), 4, "eval: error: nothing\n"},
	} {
		var out bytes.Buffer
		code := report(&out, tc.err)
		if code != tc.code || out.String() != tc.text {
			t.Errorf("report(%v) = %d, %q; want %d, %q", tc.err, code, out.String(), tc.code, tc.text)
		}
	}
}

func TestJSONDiff(t *testing.T) {
	for _, tc := range []struct {
		want, got string
		lines     []string
	}{
		{`{"a":1}`, `{"a":1}`, nil},
		{`{"a":1,"b":2}`, `{"a":2,"b":2}`, []string{".a is 2; recomputed it is 1"}},
		{`{"a":{"b":[1,{"c":"x"}]}}`, `{"a":{"b":[1,{"c":"y"}]}}`, []string{`.a.b[1].c is "y"; recomputed it is "x"`}},
		{`{"a":[1,2]}`, `{"a":[1]}`, []string{".a is [1]; recomputed it is [1,2]"}},
		{`{"a":1}`, `{"b":1}`, []string{".a is null; recomputed it is 1", ".b is 1; recomputed it is null"}},
		{`{"a":null}`, `{"a":{}}`, []string{".a is {}; recomputed it is null"}},
		{`3`, `"3"`, []string{`. is "3"; recomputed it is 3`}},
		{`{"a":"` + strings.Repeat("x", 100) + `"}`, `{}`, []string{`.a is null; recomputed it is "` + strings.Repeat("x", 76) + `...`}},
	} {
		var want, got any
		if err := json.Unmarshal([]byte(tc.want), &want); err != nil {
			t.Fatal(err)
		}
		if err := json.Unmarshal([]byte(tc.got), &got); err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(tc.lines, jsonDiff("", want, got, nil)); d != "" {
			t.Errorf("jsonDiff(%s, %s) (-want +got):\n%s", tc.want, tc.got, d)
		}
	}
}

func TestFigure(t *testing.T) {
	for p, want := range map[float64]string{0: "<0.000001", 0.000001: "1e-06", 0.05: "0.05", 0.4857142: "0.4857", 1: "1"} {
		if got := figure(&p); got != want {
			t.Errorf("figure(%v) = %s, want %s", p, got, want)
		}
	}
	if got := figure(nil); got != "-" {
		t.Errorf("figure(nil) = %s", got)
	}
}
