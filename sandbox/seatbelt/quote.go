package seatbelt

import (
	"errors"
	"fmt"
	"path"
	"strings"
	"unicode"
	"unicode/utf8"
)

// quote makes a string literal of the profile language. Backslash and quote are
// the two characters that mean something in one; control characters, of which a
// newline could end a line that a comment is in, and bytes that are no UTF-8
// are refused and not escaped, since what sandbox-exec makes of escapes was not
// tried.
func quote(s string) (string, error) {
	if !utf8.ValidString(s) {
		return "", errors.New("not UTF-8")
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp) {
			return "", fmt.Errorf("the character %U can't stand in a profile", r)
		}
	}
	return `"` + strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s) + `"`, nil
}

// links are those that every Mac has in /. A rule below one never fires.
var links = []string{"/tmp", "/var", "/etc"}

// checkPath accepts an absolute, clean path that could be resolved, is not the
// root, and can be quoted.
func checkPath(p string) error {
	switch {
	case !path.IsAbs(p):
		return errors.New("not an absolute path")
	case path.Clean(p) != p:
		return errors.New("not a clean path")
	case p == "/":
		return errors.New("the root of this machine")
	}
	for _, l := range links {
		if within(p, l) {
			return fmt.Errorf("not resolved: %s is a link to /private%s", l, l)
		}
	}
	_, err := quote(p)
	return err
}

// within says whether p is folder or below it.
func within(p, folder string) bool { return p == folder || strings.HasPrefix(p, folder+"/") }

// literal and subpath are filters for a path that is quoted already or needs no
// quoting; filter checks first.
func literal(p string) string { return filter("literal", p) }
func subpath(p string) string { return filter("subpath", p) }

// filter panics on a path that can't be quoted: Profile has checked all that
// come from outside.
func filter(kind, p string) string {
	q, err := quote(p)
	if err != nil {
		panic(fmt.Sprintf("seatbelt: %q: %v", p, err))
	}
	return "(" + kind + " " + q + ")"
}
