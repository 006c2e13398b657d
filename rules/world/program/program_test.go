package program

import (
	"bytes"
	"context"
	"strings"
	"testing"
)

func TestHelp(t *testing.T) {
	for _, args := range []string{"", "-h", "--help", "one --help"} {
		var out, errs bytes.Buffer
		p := Program{
			Name: "it", Usage: "a program", Stdout: &out, Stderr: &errs,
			Commands: []Command{{Name: "one", Usage: "does one", Files: []File{{"file", "what is read"}}, Run: func(context.Context, *Call) error {
				t.Error("it ran")
				return nil
			}}},
		}
		if code := p.Run(t.Context(), strings.Fields(args)); code != 0 || errs.Len() > 0 {
			t.Errorf("%q: exit %d: %s", args, code, &errs)
		}
		if want := "it: a program\n\n  it one: does one\n      --file=FILE  what is read\n"; out.String() != want {
			t.Errorf("%q: %s", args, &out)
		}
	}
}
