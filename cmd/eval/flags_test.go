package main

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestSplitWords(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want []string
		err  string
	}{
		{in: ""},
		{in: "  \t \r"},
		{in: "# a comment"},
		{in: "build --jobs=3", want: []string{"build", "--jobs=3"}},
		{in: "\tbuild   --jobs=3\r", want: []string{"build", "--jobs=3"}},
		{in: "build --set=q=a#b # more", want: []string{"build", "--set=q=a#b"}},
		{in: `build "--set=q=a b" '#' ""`, want: []string{"build", "--set=q=a b", "#", ""}},
		{in: `a"b c"d'e "f'`, want: []string{`ab cde "f`}},
		{in: `it\'s`, err: "the quote ' is not closed"},
		{in: `build "x`, err: `the quote " is not closed`},
		{in: "ein Grüß 日本", want: []string{"ein", "Grüß", "日本"}},
	} {
		got, err := splitWords(tc.in)
		if tc.err != "" {
			if err == nil || err.Error() != tc.err {
				t.Errorf("splitWords(%q): error %v, want %s", tc.in, err, tc.err)
			}
			continue
		}
		if d := cmp.Diff(tc.want, got); err != nil || d != "" {
			t.Errorf("splitWords(%q): %v (-want +got):\n%s", tc.in, err, d)
		}
	}
}

func TestLexQuery(t *testing.T) {
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"//...", "//..."},
		{"kind(probe, //...)", "kind ( probe , //... )"},
		{"//a-b:c-d - //x", "//a-b:c-d - //x"},
		{"//a -//b", "//a - //b"},
		{"//a+//b^//c", "//a + //b ^ //c"},
		{"//a -(//b)", "//a - ( //b )"},
		{"a except b\tunion\nc", "a except b union c"},
		{`filter("a, (b)", x)`, "filter ( \x00a, (b) , x )"},
		{`'-' "+"`, "\x00- \x00+"},
		{"@m//p:x", "@m//p:x"},
	} {
		got, err := lexQuery(tc.in)
		if err != nil || strings.Join(got, " ") != tc.want {
			t.Errorf("lexQuery(%q) = %q, %v; want %q", tc.in, got, err, tc.want)
		}
	}
	for _, in := range []string{`"`, `kind('probe, //...)`} {
		if got, err := lexQuery(in); err == nil {
			t.Errorf("lexQuery(%q) = %q; an error is meant", in, got)
		}
	}
}

func TestVerbFirst(t *testing.T) {
	app := newApp()
	for _, tc := range []struct{ in, want string }{
		{"", ""},
		{"build //x", "build //x"},
		{"--jobs 3 build //x", "build --jobs 3 //x"},
		{"--jobs=3 --keep_going build //x", "build --jobs=3 --keep_going //x"},
		{"--set q=a plan --exit_code //x", "plan --set q=a --exit_code //x"},
		{"--help build", "build --help"},
		{"-h", "-h"},
		{"-- build", "-- build"},
		{"--jobs", "--jobs"},
		{"--nokeep_going build", "build --nokeep_going"},
	} {
		if got := strings.Join(verbFirst(app, strings.Fields(tc.in)), " "); got != tc.want {
			t.Errorf("verbFirst(%q) = %q, want %q", tc.in, got, tc.want)
		}
	}
}

func TestTakeFlags(t *testing.T) {
	for _, tc := range []struct {
		in   string
		want settings
		err  string
	}{
		{in: "//x --jobs 3 -//y", want: settings{values: map[string]string{"jobs": "3"}, args: []string{"//x", "-//y"}}},
		{in: "--keep_going --nokeep_going -:y -@m//z", want: settings{values: map[string]string{"keep_going": "false"}, args: []string{"-:y", "-@m//z"}}},
		{in: "--set a=1 --set=b=2,3 --set a=", want: settings{set: map[string]string{"a": "", "b": "2,3"}}},
		{in: "-- --jobs -x", want: settings{args: []string{"--jobs", "-x"}}},
		{in: "-", err: `here: unknown flag "-"`},
		{in: "--no", err: "here: unknown flag --no"},
		{in: "--nojobs=3", err: "here: unknown flag --nojobs"},
		{in: "--nokeep_going=true", err: "here: unknown flag --nokeep_going"},
	} {
		got := settings{values: map[string]string{}, set: map[string]string{}}
		err := got.take(strings.Fields(tc.in), buildFlags, "here", true)
		if tc.err != "" {
			if err == nil || !strings.HasPrefix(err.Error(), tc.err) {
				t.Errorf("%q: error %v, want %s", tc.in, err, tc.err)
			}
			continue
		}
		if tc.want.values == nil {
			tc.want.values = map[string]string{}
		}
		if tc.want.set == nil {
			tc.want.set = map[string]string{}
		}
		if d := cmp.Diff(tc.want, got, cmp.AllowUnexported(settings{})); err != nil || d != "" {
			t.Errorf("%q: %v (-want +got):\n%s", tc.in, err, d)
		}
	}
}
