package starlark

import (
	"bytes"
	"encoding/json"
	"math"
	"math/big"
	"strings"
	"testing"
	"unicode/utf8"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/transcript"
)

func list(xs ...sl.Value) sl.Value { return sl.NewList(xs) }

func dict(kvs ...sl.Value) sl.Value {
	d := new(sl.Dict)
	for i := 0; i < len(kvs); i += 2 {
		if err := d.SetKey(kvs[i], kvs[i+1]); err != nil {
			panic(err)
		}
	}
	return d
}

func set(xs ...sl.Value) sl.Value {
	s := new(sl.Set)
	for _, x := range xs {
		if err := s.Insert(x); err != nil {
			panic(err)
		}
	}
	return s
}

func TestAppendJSON(t *testing.T) {
	big1, _ := new(big.Int).SetString("123456789012345678901234567890", 10)
	for _, c := range []struct {
		v    sl.Value
		want string
	}{
		{sl.None, "null"},
		{sl.True, "true"},
		{sl.False, "false"},
		{sl.MakeInt(0), "0"},
		{sl.MakeInt(-7), "-7"},
		{sl.MakeInt64(math.MaxInt64), "9223372036854775807"},
		{sl.MakeInt64(math.MinInt64), "-9223372036854775808"},
		{sl.MakeBigInt(big1), "123456789012345678901234567890"},
		{sl.Float(0), "0"},
		{sl.Float(math.Copysign(0, -1)), "0"},
		{sl.Float(1), "1"},
		{sl.Float(-1.5), "-1.5"},
		{sl.Float(0.1), "0.1"},
		{sl.Float(0.30000000000000004), "0.30000000000000004"},
		{sl.Float(1.0 / 3), "0.3333333333333333"},
		{sl.Float(1e20), "100000000000000000000"},
		{sl.Float(1e21), "1e+21"},
		{sl.Float(1e-6), "0.000001"},
		{sl.Float(1e-7), "1e-07"},
		{sl.Float(1 << 53), "9007199254740992"},
		{sl.Float(math.MaxFloat64), "1.7976931348623157e+308"},
		{sl.Float(math.SmallestNonzeroFloat64), "5e-324"},
		{sl.String(""), `""`},
		{sl.String("a\"b\\c/d"), `"a\"b\\c/d"`},
		{sl.String("\n\r\t\b\f\x00\x01\x1f\x7f"), `"\n\r\t\u0008\u000c\u0000\u0001\u001f\u007f"`},
		{sl.String("é∑😀\u2028\u0085\ufffd\ufeff"), "\"é∑😀\u2028\u0085\ufffd\ufeff\""},
		{sl.String("<&>'"), `"<&>'"`},
		{sl.String("\x80\xff"), `"\udc80\udcff"`},
		{sl.String("\xed\xb2\x80"), `"\udced\udcb2\udc80"`}, // what U+DC80 would be
		{sl.String("a\xc3"), `"a\udcc3"`},
		{list(), "[]"},
		{list(sl.MakeInt(1), list(sl.None)), "[1,[null]]"},
		{sl.Tuple{sl.MakeInt(1), sl.MakeInt(2)}, "[1,2]"},
		{set(sl.MakeInt(2), sl.MakeInt(1)), "[2,1]"},
		{dict(), "{}"},
		{dict(sl.String("b"), sl.MakeInt(1), sl.String("a"), sl.MakeInt(2), sl.String(""), sl.None), `{"":null,"a":2,"b":1}`},
		// By the bytes of the keys, not by those of their escapes, nor as UTF-16.
		{dict(sl.String("é"), sl.None, sl.String("z"), sl.None, sl.String("\n"), sl.None, sl.String("\""), sl.None, sl.String("\x80"), sl.None), `{"\n":null,"\"":null,"z":null,"\udc80":null,"é":null}`},
		{dict(sl.String("\U00010000"), sl.None, sl.String("\uffff"), sl.None), "{\"\uffff\":null,\"\U00010000\":null}"},
		{frozenStruct(sl.StringDict{"b": sl.None, "a": list()}), `{"a":[],"b":null}`},
		{&instance{provider: defaultInfo, values: sl.StringDict{"files": list()}}, `{"files":[]}`},
	} {
		got, err := AppendJSON(nil, c.v)
		if err != nil || string(got) != c.want {
			t.Errorf("%v: got %s, %v; want %s", c.v, got, err, c.want)
			continue
		}
		if !json.Valid(got) {
			t.Errorf("%s is no JSON", got)
		}
		back, err := ParseJSON(got)
		if err != nil {
			t.Errorf("%s: %v", got, err)
			continue
		}
		again, err := AppendJSON(nil, back)
		if err != nil || !bytes.Equal(again, got) {
			t.Errorf("%s became %s, %v", got, again, err)
		}
	}
	for _, c := range []struct {
		v    sl.Value
		want string
	}{
		{sl.Float(math.NaN()), "NaN has no JSON form"},
		{sl.Float(math.Inf(-1)), "-Inf has no JSON form"},
		{dict(sl.MakeInt(1), sl.None), "an object's key is a string, not int"},
		{dict(sl.String("a"), list(sl.Bytes("x"))), `in "a": in [0]: a value of type bytes has no JSON form`},
		{sl.NewBuiltin("b", nil), "a value of type builtin_function_or_method has no JSON form"},
		{present, "a value of type outcome has no JSON form"},
		{frozenStruct(sl.StringDict{"a": present}), "in a: a value of type outcome has no JSON form"},
		{sl.MakeBigInt(new(big.Int).Lsh(big.NewInt(1), 4000)), "a number of 1205 digits"},
	} {
		if b, err := AppendJSON(nil, c.v); err == nil || err.Error() != c.want {
			t.Errorf("%v: got %s, %v; want %s", c.v, b, err, c.want)
		}
	}
}

func TestParseJSON(t *testing.T) {
	for _, c := range []struct{ text, want string }{ // want: Starlark's spelling, or "error: …"
		{"null", "None"},
		{" \t\r\n true ", "True"},
		{"0", "0"},
		{"-0", "0"},
		{"-0.0", "-0.0"},
		{"1", "1"},
		{"1.0", "1.0"},
		{"1e2", "100.0"},
		{"1E+2", "100.0"},
		{"123456789012345678901234567890", "123456789012345678901234567890"},
		{"1e-400", "0.0"},
		{`"\"\\\/\b\f\n\r\t\u00e9"`, `"\"\\/\b\f\n\r\té"`},
		{`"\ud83d\ude00"`, `"😀"`},
		{`"\uD83D\uDE00"`, `"😀"`},
		{`"\udc80"`, `"\x80"`},
		{`"\udcc3\udca9"`, `"é"`},
		{`"\ud83d"`, `"\xed\xa0\xbd"`},
		{`"\ud83dx"`, `"\xed\xa0\xbdx"`},
		{`"\ud83d\u0041"`, `"\xed\xa0\xbdA"`},
		{`"\ude00"`, `"\xed\xb8\x80"`},
		{`"\u0000"`, `"\x00"`},
		{`{"b": 1, "a": {"c": []}}`, `{"b": 1, "a": {"c": []}}`},
		{"[1 , 2]", "[1, 2]"},
		{"", "error: offset 0: the text ends where a value is meant"},
		{" ", "error: offset 1: the text ends where a value is meant"},
		{"nul", "error: offset 0: unexpected 'n'"},
		{"nulls", "error: offset 4: more after the value"},
		{"1 2", "error: offset 2: more after the value"},
		{"01", `error: offset 0: "01" is no number`},
		{"1.", `error: offset 0: "1." is no number`},
		{".5", "error: offset 0: unexpected '.'"},
		{"+1", "error: offset 0: unexpected '+'"},
		{"-", `error: offset 0: "-" is no number`},
		{"1e", `error: offset 0: "1e" is no number`},
		{"1e400", `error: offset 0: "1e400" is out of range`},
		{"NaN", "error: offset 0: unexpected 'N'"},
		{"0x10", "error: offset 1: more after the value"},
		{"[1,]", "error: offset 3: unexpected ']'"},
		{"[1 2]", "error: offset 3: ',' or ']' is missing"},
		{"[", "error: offset 1: the text ends where a value is meant"},
		{"{", "error: offset 1: an object's key is a string"},
		{"{1: 2}", "error: offset 1: an object's key is a string"},
		{`{"a" 1}`, "error: offset 5: ':' is missing after the key"},
		{`{"a": 1,}`, "error: offset 8: an object's key is a string"},
		{`{"a": 1`, "error: offset 7: ',' or '}' is missing"},
		{`{"a": 1, "a": 1}`, `error: offset 9: the key "a" is given twice`},
		{`{"a": 1, "\u0061": 1}`, `error: offset 9: the key "a" is given twice`},
		{`{"\udcc3\udca9": 1, "é": 1}`, `the key "é" is given twice`},
		{`"a`, "error: offset 0: the string does not end"},
		{`"a\`, "error: offset 2: the string does not end"},
		{`"\x"`, `error: offset 1: unknown escape \x`},
		{`"\u12"`, `error: offset 1: \u wants four hex digits`},
		{`"\u+123"`, `error: offset 1: \u wants four hex digits`},
		{`"\u00_1"`, `error: offset 1: \u wants four hex digits`},
		{"\"a\nb\"", "error: offset 2: a control character in a string"},
		{"\"\x00\"", "error: offset 1: a control character in a string"},
		{"\"\x7f\"", `"\x7f"`},
		{"\"\xff\"", "error: offset 0: the string is not valid UTF-8"},
		{"\"\\n\xff\"", "not valid UTF-8"},
		{"\"\xed\xb2\x80\"", "error: offset 0: the string is not valid UTF-8"},
		{"\ufeff1", "error: offset 0: unexpected 'ï'"},
		{"// no", "error: offset 0: unexpected '/'"},
		{strings.Repeat("9", 1001), "error: offset 1001: a number of 1001 digits"},
	} {
		v, err := ParseJSON([]byte(c.text))
		got := ""
		if err != nil {
			got = "error: " + err.Error()
		} else {
			got = v.String()
		}
		if got != c.want && !(err != nil && strings.Contains(got, c.want)) {
			t.Errorf("%.40q: got %s, want %s", c.text, got, c.want)
		}
	}
}

func TestJSONDepth(t *testing.T) {
	nested := func(open, shut string, n int) string {
		return strings.Repeat(open, n) + "1" + strings.Repeat(shut, n)
	}
	for _, c := range []struct{ open, shut string }{{"[", "]"}, {`{"a":`, "}"}} {
		v, err := ParseJSON([]byte(nested(c.open, c.shut, maxJSONDepth)))
		if err != nil {
			t.Fatal(err)
		}
		if b, err := AppendJSON(nil, v); err != nil || string(b) != nested(c.open, c.shut, maxJSONDepth) {
			t.Errorf("what can be read can't be written: %v", err)
		}
		if _, err := AppendJSON(nil, list(v)); err == nil || !strings.Contains(err.Error(), "nested deeper than 1000, or cyclic") {
			t.Errorf("got %v", err)
		}
		for _, n := range []int{maxJSONDepth + 1, 1_000_000} {
			if _, err := ParseJSON([]byte(nested(c.open, c.shut, n))); err == nil || !strings.Contains(err.Error(), "nested deeper than 1000") {
				t.Errorf("depth %d: got %v", n, err)
			}
		}
	}
}

// FuzzJSONRoundTrip: reading is total and takes what JSON is, but for keys
// given twice, invalid UTF-8 and limits; what was read is written in a form
// that reads back as itself.
func FuzzJSONRoundTrip(f *testing.F) {
	for _, s := range []string{
		`null`, `[1, -0, 1.5e3, "a\u00e9\ud83d\ude00\udc80"]`, `{"b":1,"a":{"c":[true,false]}}`, `{"a":1,"a":2}`, `"\ud800"`,
		"\"\xff\"", `1e400`, `123456789012345678901234567890`, `[[[[`, `{"":""}`, `0.000001`, `1e21`, "\"\u2028\"", `"\u007f"`,
	} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		v, err := ParseJSON(data)
		if err != nil {
			if json.Valid(data) && utf8.Valid(data) {
				for _, known := range []string{"given twice", "nested deeper", "digits", "out of range"} {
					if strings.Contains(err.Error(), known) {
						return
					}
				}
				t.Fatalf("%q is JSON: %v", data, err)
			}
			return
		}
		if !json.Valid(data) {
			t.Fatalf("%q is no JSON", data)
		}
		one, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatalf("%q: %v", data, err)
		}
		if !json.Valid(one) || !utf8.Valid(one) {
			t.Fatalf("%q is no JSON", one)
		}
		w, err := ParseJSON(one)
		if err != nil {
			t.Fatalf("%q: %v", one, err)
		}
		two, err := AppendJSON(nil, w)
		if err != nil || !bytes.Equal(one, two) {
			t.Fatalf("%q became %q, %v", one, two, err)
		}
		if eq, err := sl.Equal(v, w); err != nil || !eq { // 1 == 1.0
			t.Fatalf("%v became %v, %v", v, w, err)
		}
	})
}

// FuzzJSONString: no two strings are written alike, and all come back.
func FuzzJSONString(f *testing.F) {
	f.Add("a", "b")
	f.Add("\x80", "\\udc80")
	f.Add("\xc3\xa9", "\xc3")
	f.Add("\xed\xb2\x80", "\x80")
	f.Fuzz(func(t *testing.T, a, b string) {
		x, y := appendString(nil, a), appendString(nil, b)
		if (a == b) != bytes.Equal(x, y) {
			t.Fatalf("%q and %q are %s and %s", a, b, x, y)
		}
		if !utf8.Valid(x) || bytes.ContainsFunc(x, func(r rune) bool { return r < 0x20 || r == 0x7f }) {
			t.Fatalf("%q is written %q", a, x)
		}
		v, err := ParseJSON(x)
		if err != nil || v != sl.String(a) {
			t.Fatalf("%q became %v, %v", a, v, err)
		}
	})
}

// TestTranscriptJSON: a line of an `eval` transcript is what json.encode gives
// for the event. Package transcript has a writer of its own, for its layer.
func TestTranscriptJSON(t *testing.T) {
	var all strings.Builder
	for c := range 256 {
		all.WriteByte(byte(c))
	}
	all.WriteString("é\u2028😀\xed\xb2\x80\\udcff\ufffd")
	text, exit := all.String(), 1
	for _, e := range []transcript.Event{
		{Kind: transcript.KindMessage, Role: transcript.RoleUser, Text: text},
		{Kind: transcript.KindCommand, Text: text, Output: text, Exit: &exit, Status: transcript.StatusFailed},
		{Kind: transcript.KindTool, Name: text, Arguments: []byte(`{"a": [1]}`), Result: []byte(`"r"`), Status: transcript.StatusCompleted},
		{Kind: transcript.KindError, Message: text},
	} {
		v, err := eventValue(e)
		if err != nil {
			t.Fatal(err)
		}
		want, err := AppendJSON(nil, v)
		if err != nil {
			t.Fatal(err)
		}
		var got bytes.Buffer
		if err := transcript.Encode(&got, e); err != nil {
			t.Fatal(err)
		}
		if got.String() != string(want)+"\n" {
			t.Errorf("%s\n%q, and json.encode gives\n%q", e.Kind, got.String(), want)
		}
	}
}
