package chaos

import (
	"strings"
	"testing"
)

func TestNthCountsPerRule(t *testing.T) {
	c := NewCounter([]*Rule{
		{System: "a", Nth: 2, Mode: Error, Status: 500},
		{Nth: 3, Mode: Unreachable},
		{System: "a", Operation: "GET /a/x", Mode: LostResponse},
		{Nth: 3, Mode: Before},
	})
	var got []string
	for _, call := range []string{"a GET /a/y", "b GET /b/x", "a GET /a/x", "a GET /a/x", "a GET /a/y"} {
		system, op, _ := strings.Cut(call, " ")
		p := c.Next(system, op)
		mode := "-"
		if p.Failure != nil {
			mode = p.Failure.Mode
		}
		got = append(got, mode+strings.Repeat("+before", len(p.Before)))
	}
	// The third call: the first rule that fires wins, though two others would.
	if want := "- - error+before lost_response -"; strings.Join(got, " ") != want {
		t.Errorf("%v, want %s", got, want)
	}
}
