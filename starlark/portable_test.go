package starlark

import (
	"os"
	"strings"
	"testing"
)

func (p program) portable(tb testing.TB, name string) (*Portable, error) {
	tb.Helper()
	l, g := p.globals(tb)
	return l.Portable(g[name])
}

// TestPortablePairs: the pairs of the fingerprints are pairs of texts.
func TestPortablePairs(t *testing.T) {
	data, err := os.ReadFile("testdata/fingerprints.star")
	if err != nil {
		t.Fatal(err)
	}
	failed := 0
	for _, pair := range strings.Split("\n"+string(data), "\n--- ")[1:] {
		title, text, _ := strings.Cut(pair, "\n")
		a, b, _ := strings.Cut(text, "\n+++\n")
		verdict, _, _ := strings.Cut(title, ":")
		x, errX := parseProgram(a).portable(t, "f")
		y, errY := parseProgram(b).portable(t, "f")
		if errX != nil || errY != nil {
			failed++
			t.Log(title, errX, errY)
			continue
		}
		if same := string(x.Text) == string(y.Text); same != (verdict == "same") {
			t.Errorf("%s:\n%s--- and\n%s", title, x.Text, y.Text)
		}
		t.Logf("%s\n%s", title, x.Text)
	}
}
