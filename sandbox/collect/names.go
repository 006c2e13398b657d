package collect

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

// checkPath accepts a declared path.
func checkPath(p string) *refusal {
	switch {
	case len(p) > maxPath:
		return refuse(Long, "a path of %d bytes, at most %d", len(p), maxPath)
	case strings.HasPrefix(p, "/"):
		return refuse(Name, "an absolute path")
	}
	for name := range strings.SplitSeq(p, "/") {
		if no := checkName(name); no != nil {
			return no
		}
	}
	return nil
}

// checkName accepts one component of a path.
func checkName(name string) *refusal {
	switch {
	case name == "" || name == "." || name == "..":
		return refuse(Name, "not a clean path")
	case len(name) > maxName:
		return refuse(Name, "a name of %d bytes, at most %d", len(name), maxName)
	}
	return checkText(name)
}

// checkText accepts UTF-8, as REAPI does, of one line that reads as it is
// written: no control characters, and none that turn the direction around.
// Hebrew and Arabic letters are as good as any.
func checkText(s string) *refusal {
	if !utf8.ValidString(s) {
		return refuse(Name, "not UTF-8")
	}
	for _, r := range s {
		if unicode.In(r, unicode.Cc, unicode.Zl, unicode.Zp, unicode.Bidi_Control) {
			return refuse(Name, "the character %U", r)
		}
	}
	return nil
}

// checkLink gives the canonical form of a link's target, if it stays below the
// output folder whichever other links it passes. The folder of the link is
// real, so leading ".." are what they seem; after a name, which may be a link,
// a ".." could lead anywhere.
func checkLink(output, link, target string) (string, error) {
	if no := checkText(target); no != nil {
		return "", no
	}
	if strings.HasPrefix(target, "/") {
		return "", refuse(Escapes, "a link to an absolute path")
	}
	at := strings.Split(strings.TrimPrefix(link, output+"/"), "/")
	at = at[:len(at)-1]
	ups := 0
	var names []string
	for seg := range strings.SplitSeq(target, "/") {
		switch {
		case seg == "" || seg == ".":
		case seg == ".." && len(names) > 0:
			return "", refuse(Escapes, `a link with ".." after a name`)
		case seg == "..":
			ups++
		default:
			names = append(names, seg)
		}
	}
	if ups > len(at) {
		return "", refuse(Escapes, "a link out of the output folder")
	}
	to := strings.Join(append([]string{output}, append(at[:len(at)-ups:len(at)-ups], names...)...), "/")
	if link == to || strings.HasPrefix(link, to+"/") {
		return "", refuse(Loop, "a link to itself or to a folder that it is in")
	}
	return strings.Repeat("../", ups) + strings.Join(names, "/"), nil
}

// collisions gives for each name another one that it can't share a folder with
// where case doesn't count. Of two such names neither is the right one.
func collisions(names []string) map[string]string {
	first := make(map[string]string, len(names))
	var collides map[string]string
	for _, name := range names {
		key := fold(name)
		other, taken := first[key]
		if !taken {
			first[key] = name
			continue
		}
		if collides == nil {
			collides = map[string]string{}
		}
		collides[name] = other
		if collides[other] == "" {
			collides[other] = name
		}
	}
	return collides
}

// fold maps names that differ in case alone to one: each rune to the least of
// its orbit under unicode.SimpleFold. Bytes that are no UTF-8 stay, or two
// different ones would fold to one.
func fold(name string) string {
	if !utf8.ValidString(name) {
		return name
	}
	return strings.Map(func(r rune) rune {
		if r < utf8.RuneSelf {
			if 'a' <= r && r <= 'z' {
				r -= 'a' - 'A'
			}
			return r
		}
		least := r
		for f := unicode.SimpleFold(r); f != r; f = unicode.SimpleFold(f) {
			least = min(least, f)
		}
		return least
	}, name)
}
