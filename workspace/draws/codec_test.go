package draws

import (
	"math"
	"strings"
	"testing"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

func TestEncodingIsFixed(t *testing.T) {
	key := cas.Digest(rep("control", 1).Key).String()
	same := `"block":"b",%"epoch":1,@"index":1,"key":"` + key + `","kind":"KIND","label":"//p:a","redraw":0,"run":"` + runA + `","seq":`
	fill := func(kind, capture, from string) string {
		return strings.NewReplacer("KIND", kind, "%", capture, "@", from).Replace(same)
	}
	capture := `"capture":"` + cap1.String() + `",`
	want := []string{
		"{" + fill("intent", "", "") + `7,"stream":"control"}`,
		`{"attempts":2,` + fill("draw", capture, "") + `8,"stream":"control"}`,
		"{" + fill("abandoned", "", "") + `9,"stream":"control","why":"laptop <slept> & died"}`,
		"{" + fill("adopted", capture, `"from":"remote",`) + `10,"stream":"control"}`,
		`{"alpha":0.05,"block":"b","conclusion":"undetermined","effect":0.5,"fingerprint":"f","kind":"look","label":"//p:a","margin":0.2,"n":6,"reps":"","seq":11,"verdict":"v"}`,
		"{" + fill("surplus", `"capture":"`+cap2.String()+`",`, `"from":"run",`) + `12,"stream":"control"}`,
	}
	for i, l := range oneOfEach() {
		if got := text(t, l); got != want[i]+"\n" {
			t.Errorf("got  %swant %s", got, want[i])
		}
		if got, err := decode([]byte(want[i])); err != nil || got != l {
			t.Errorf("decoded %+v, %v", got, err)
		}
	}
}

func TestEncodeRefuses(t *testing.T) {
	for name, change := range map[string]func(*Line){
		"unknown kind":            func(l *Line) { l.Kind = "note" },
		"seq is 0":                func(l *Line) { l.Seq = 0 },
		"stream is empty":         func(l *Line) { l.Sample.Stream = "" },
		"stream has a NUL":        func(l *Line) { l.Sample.Stream = "a\x00" },
		"not valid UTF-8":         func(l *Line) { l.Sample.Block = "\xff" },
		"index is 0":              func(l *Line) { l.Sample.Index = 0 },
		"epoch is 0":              func(l *Line) { l.Sample.Epoch = 0 },
		"redraw is -1":            func(l *Line) { l.Sample.Redraw = -1 },
		"key is no digest":        func(l *Line) { l.Key = graph.Key{} },
		"lower-case hex":          func(l *Line) { l.Run = strings.Repeat("A", 32) },
		"is no label":             func(l *Line) { l.Label.Name = "" },
		"lines don't have":        func(l *Line) { l.Alpha = math.NaN() },
		"a field is set":          func(l *Line) { l.Why = "no" },
		"bytes, more than":        func(l *Line) { l.Sample.Stream = strings.Repeat("x", MaxLine) },
		"seq is 9007199254740992": func(l *Line) { l.Seq = 1 << 53 },
	} {
		l := oneOfEach()[0]
		change(&l)
		if _, err := encode(l); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, x := range []float64{math.NaN(), math.Inf(1), -1, math.Copysign(0, -1)} {
		l := oneOfEach()[4]
		l.Alpha = x
		if _, err := encode(l); err == nil {
			t.Errorf("alpha %v is taken", x)
		}
	}
}

// TestReadRefuses puts a bad line between good ones: file and line are named.
func TestReadRefuses(t *testing.T) {
	all := oneOfEach()
	intent, draw, look := strings.TrimSpace(text(t, all[0])), strings.TrimSpace(text(t, all[1])), strings.TrimSpace(text(t, all[4]))
	edit := func(s, from, to string) string {
		if !strings.Contains(s, from) {
			t.Fatalf("%s has no %s", s, from)
		}
		return strings.Replace(s, from, to, 1)
	}
	for _, c := range []struct{ line, want string }{
		{"", "empty"},
		{"null", "no JSON object"},
		{"[1]", "no JSON object"},
		{intent + " {}", "no JSON object"},
		{"<<<<<<< HEAD", "merge=union"},
		{"=======", "merge=union"},
		{intent + "\x00", "NUL"},
		{edit(intent, "control", "con\xfftrol"), "UTF-8"},
		{edit(intent, "control", `con\u0000trol`), "NUL"},
		{edit(intent, "control", `con\ud800trol`), "not canonical"},
		{edit(intent, "control", `c\u006fntrol`), "not canonical"},
		{edit(intent, `"intent"`, `"note"`), `unknown kind "note"`},
		{edit(intent, `"kind":"intent",`, ``), `"kind" is missing`},
		{edit(intent, `"epoch":1,`, ``), `"epoch" is missing`},
		{edit(intent, `}`, `,"why":"x"}`), `unknown field "why" of intent`},
		{edit(intent, `"epoch":1`, `"epoch":"1"`), "epoch is"},
		{edit(intent, `"epoch":1`, `"epoch":1.0`), "epoch is"},
		{edit(intent, `"epoch":1`, `"epoch":null`), "epoch is null"},
		{edit(intent, `"epoch":1`, `"epoch":0`), "epoch is 0"},
		{edit(intent, `"epoch":1`, `"epoch":1,"epoch":1`), "not canonical"},
		{edit(intent, `"epoch":1`, `"Epoch":1`), "missing"},
		{edit(intent, `"block":"b"`, `"block":null`), "block is null"},
		{edit(intent, `"epoch":1`, `"epoch": 1`), "not canonical"},
		{intent + "\r", "not canonical"},
		{edit(intent, "//p:a", "//p:a/../b"), "label"},
		{edit(intent, "//p:a", "//p"), "not canonical"},
		{edit(intent, runA, "1"), "run"},
		{edit(draw, cap1.String(), "none"), "capture"},
		{edit(look, "0.05", "5e-2"), "not canonical"},
		{edit(look, "0.05", "-1"), "alpha"},
		{edit(look, "0.05", "1e999"), "alpha"},
		{edit(intent, "control", strings.Repeat("x", MaxLine)), "bytes, more than"},
	} {
		path := lockPath(t)
		put(t, path, intent+"\n"+c.line+"\n"+draw+"\n")
		_, err := Open(path)
		if err == nil || !strings.HasPrefix(err.Error(), "read "+path+":2: ") || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%.80q: got %v, want %s", c.line, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, l := range oneOfEach() {
		b, _ := encode(l)
		f.Add(b[:len(b)-1])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := decode(b)
		if err != nil {
			return
		}
		if again := text(t, l); again != string(b)+"\n" {
			t.Errorf("%q is read as %q", b, again)
		}
		for n := range b {
			if _, err := decode(b[:n]); err == nil || !torn(b[:n]) {
				t.Fatalf("%q of %q is a line, or not torn", b[:n], b)
			}
		}
	})
}

// FuzzEncode: two lines are equal exactly if their bytes are, and come back.
func FuzzEncode(f *testing.F) {
	f.Add([]byte("abc"), []byte("abd"))
	f.Add([]byte{3, 0, 'a', 'b', 'c', 1, 0}, []byte{2, 0, 'a', 'b', 1, 0})
	f.Fuzz(func(t *testing.T, a, b []byte) {
		l, m := (&source{a}).line(), (&source{b}).line()
		x, y := text(t, l), text(t, m)
		if (l == m) != (x == y) {
			t.Errorf("%+v and %+v are %q and %q", l, m, x, y)
		}
		if got, err := decode([]byte(strings.TrimSuffix(x, "\n"))); err != nil || got != l {
			t.Errorf("%+v comes back as %+v, %v", l, got, err)
		}
		if strings.Count(x, "\n") != 1 {
			t.Errorf("%q is not one line", x)
		}
	})
}
