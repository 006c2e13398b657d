package transcript

import (
	"bytes"
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestUnquote(t *testing.T) {
	for raw, want := range map[string]string{
		`""`:                          "",
		`"plain"`:                     "plain",
		`"\"\\\/\b\f\n\r\t"`:          "\"\\/\b\f\n\r\t",
		`"\u0041\u00e9\u20aC"`:        "Aé€",
		`"\ud83d\ude00"`:              "😀",
		`"cut \ud83d"`:                "cut \xed\xa0\xbd",
		`"\ude00\ud83d"`:              "\xed\xb8\x80\xed\xa0\xbd",
		`"\ud83d\ud83d\ude00"`:        "\xed\xa0\xbd😀",
		`"\ud83dx"`:                   "\xed\xa0\xbdx",
		`"\ufffd"`:                    "\uFFFD",
		"\"\xff\xfe \xc3\"":           "\xff\xfe \xc3",
		"\"\\\"\xff\\n\xed\xa0\xbd\"": "\"\xff\n\xed\xa0\xbd",
	} {
		if got, err := Unquote([]byte(raw)); err != nil || got != want {
			t.Errorf("Unquote(%q) = %q, %v; want %q", raw, got, err, want)
		}
	}
	for _, raw := range []string{``, `"`, `a`, `"a`, `"a"b`, `"\x"`, `"\u12"`, `"\u12g4"`, "\"\x00\"", "\"\n\"", `"\"`, `null`} {
		if got, err := Unquote([]byte(raw)); err == nil {
			t.Errorf("Unquote(%q) = %q, no error", raw, got)
		}
	}
}

// quote is the JSON string that says the bytes of s as they are.
func quote(s string) []byte {
	out := []byte{'"'}
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			out = append(out, '\\', c)
		case c < ' ':
			out = fmt.Appendf(out, `\u%04x`, c)
		default:
			out = append(out, c)
		}
	}
	return append(out, '"')
}

// FuzzUnquote: every byte string has a JSON string that gives exactly it back (so no two become one), every valid
// UTF-8 string decodes as encoding/json does, and both refuse the same.
func FuzzUnquote(f *testing.F) {
	for _, s := range []string{"", "a", `\ud83d`, "\xff", "\xed\xa0\xbd", "😀\n\"\\", `x\u0041\ude00\ud83d`, "\x00"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if got, err := Unquote(quote(s)); err != nil || got != s {
			t.Fatalf("Unquote(quote(%q)) = %q, %v", s, got, err)
		}
		raw := []byte(`"` + s + `"`)
		got, err := Unquote(raw)
		var want string
		jsonErr := json.Unmarshal(raw, &want)
		if (err == nil) != (jsonErr == nil) {
			t.Fatalf("Unquote(%q): %v, encoding/json: %v", raw, err, jsonErr)
		}
		if err == nil && utf8.Valid(raw) && utf8.ValidString(got) && got != want {
			t.Fatalf("Unquote(%q) = %q, encoding/json: %q", raw, got, want)
		}
	})
}

// FuzzUnits: different sequences of UTF-16 code units, lone surrogates among them, give different strings.
func FuzzUnits(f *testing.F) {
	f.Add([]byte{0xd8, 0x3d, 0xde, 0x00}, []byte{0xde, 0x00, 0xd8, 0x3d})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		escape := func(units []byte) string {
			var out strings.Builder
			for i := 0; i+1 < len(units); i += 2 {
				fmt.Fprintf(&out, `\u%02x%02x`, units[i], units[i+1])
			}
			return out.String()
		}
		left, right := escape(a), escape(b)
		x, errX := Unquote([]byte(`"` + left + `"`))
		y, errY := Unquote([]byte(`"` + right + `"`))
		if errX != nil || errY != nil || (left == right) != (x == y) {
			t.Fatalf("%s = %q, %s = %q: %v %v", left, x, right, y, errX, errY)
		}
	})
}

// FuzzCheck: check accepts what encoding/json does (but for depth), and the walkers agree with it on the members.
func FuzzCheck(f *testing.F) {
	for _, s := range []string{`{"a":[1,-0.5e+3,true,null,"\"\\"],"b":{}}`, `{`, `[1,]`, `01`, `1.`, "{\"a\":\"\x00\"}", ` {"a" : 1 , "a" : "x\\" } `} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got := check(b)
		if (got == nil) != json.Valid(b) {
			if got == nil || !strings.HasPrefix(got.cause, "nested") {
				t.Fatalf("check(%q) = %v, json.Valid = %v", b, got, json.Valid(b))
			}
		}
		if got != nil {
			return
		}
		v := value(bytes.Trim(b, " \t\r\n"))
		var want map[string]json.RawMessage
		if !v.isObject() || json.Unmarshal(v, &want) != nil || !utf8.Valid(v) || bytes.Contains(v, []byte(`\u`)) {
			return
		}
		v.members(func(name string, _ value) {
			if got := v.get(name); string(got) != string(want[name]) {
				t.Fatalf("get(%q) of %q = %q, want %q", name, v, got, want[name])
			}
		})
	})
}
