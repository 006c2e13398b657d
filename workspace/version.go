package workspace

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
)

// A version is up to three numbers; those that are left out are 0.
type version [3]uint64

// parseVersion reads 1, 1.2 or 1.2.3. What follows a '-' or '+' is dropped:
// a development build of 0.2 counts as 0.2, since a module that asks for 0.2
// is what its developer wants to try it on.
func parseVersion(s string) (version, error) {
	var v version
	numbers, _, _ := strings.Cut(s, "+")
	numbers, _, _ = strings.Cut(numbers, "-")
	fields := strings.Split(numbers, ".")
	if len(fields) > len(v) {
		return v, fmt.Errorf("version %q has more than three numbers", s)
	}
	for i, f := range fields {
		n, err := strconv.ParseUint(f, 10, 32)
		if err != nil || f[0] == '+' {
			return v, fmt.Errorf("version %q is not numbers with dots, as in 0.1", s)
		}
		v[i] = n
	}
	return v, nil
}

func (v version) compare(u version) int {
	for i := range v {
		if c := cmp.Compare(v[i], u[i]); c != 0 {
			return c
		}
	}
	return 0
}

// operators in the order in which they are tried: ">=" before ">".
var operators = []struct {
	text string
	ok   func(c int) bool
}{
	{">=", func(c int) bool { return c >= 0 }},
	{"<=", func(c int) bool { return c <= 0 }},
	{"==", func(c int) bool { return c == 0 }},
	{">", func(c int) bool { return c > 0 }},
	{"<", func(c int) bool { return c < 0 }},
}

// satisfies reports whether v meets every term of a constraint such as
// ">=0.1, <0.2". The constraint is checked to its end even if v fails early.
func satisfies(v version, constraint string) (bool, error) {
	all := true
	for term := range strings.SplitSeq(constraint, ",") {
		term = strings.TrimSpace(term)
		ok, err := satisfiesTerm(v, term)
		if err != nil {
			return false, err
		}
		all = all && ok
	}
	return all, nil
}

func satisfiesTerm(v version, term string) (bool, error) {
	for _, op := range operators {
		rest, found := strings.CutPrefix(term, op.text)
		if !found {
			continue
		}
		u, err := parseVersion(strings.TrimSpace(rest))
		if err != nil {
			return false, err
		}
		return op.ok(v.compare(u)), nil
	}
	return false, fmt.Errorf("constraint %q does not begin with >=, >, <=, < or ==, as in \">=0.1, <0.2\"", term)
}
