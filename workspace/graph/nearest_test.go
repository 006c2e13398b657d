package graph

import "testing"

func TestNearest(t *testing.T) {
	for _, c := range []struct{ in, want string }{
		{"nam", "name"},
		{"anme", "name"},
		{"NAME", "name"},
		{"digset", "digest"},
		{"x", ""},
		{"shared", ""},
		{"", ""},
	} {
		if got := nearest(c.in, []string{"name", "digest", "trusted_builders"}); got != c.want {
			t.Errorf("nearest(%q) = %q, want %q", c.in, got, c.want)
		}
	}
}
