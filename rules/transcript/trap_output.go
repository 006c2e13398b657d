package transcript

import (
	"strings"
)

// diagnostic is a line that says why a file was not read.
var diagnostic = lazily(`(No such file or directory|Permission denied|Is a directory|Not a directory|command not found|: not found|cannot access|no matches found)`)

// evidence is what the output of a command says beside its content.
type evidence struct {
	printed bool     // something that is neither a diagnostic nor what echo was told to say
	refused []string // the diagnostics
}

func newEvidence(output string, echoes map[string]bool) *evidence {
	e := &evidence{}
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		switch {
		case line == "" || echoes[line]:
		case len(line) < maxPath && diagnostic().MatchString(line):
			if len(e.refused) < maxCopies {
				e.refused = append(e.refused, line)
			}
		default:
			e.printed = true
		}
	}
	return e
}

// refuses says whether a diagnostic names the file.
func (e *evidence) refuses(file string) bool {
	for _, line := range e.refused {
		if at := strings.Index(line, file); file != "" && at >= 0 {
			before, after := line[:at], line[at+len(file):]
			if file[0] == '/' { // "$D/SKILL.md" with a D that is not known
				before = ""
			}
			if !strings.ContainsAny(last(before), "abcdefghijklmnopqrstuvwxyz/-_.") && !strings.HasPrefix(after, "/") {
				return true
			}
		}
	}
	return false
}

func last(s string) string {
	if s == "" {
		return ""
	}
	return strings.ToLower(s[len(s)-1:])
}

// found gives the trapped files that lines of a search begin with: `skills/x/SKILL.md:3: text`.
func (t *Traps) found(output string, f func(code, file string)) {
	for line := range strings.Lines(output) {
		file, text, ok := strings.Cut(line, ":")
		if file == "File" { // gemini's search prints "File: x"
			file, ok = strings.TrimSpace(text), true
		}
		if !ok || len(file) > maxPath {
			continue
		}
		for _, x := range t.taints(strings.TrimSpace(file), false) {
			f(x.code, file)
		}
	}
}
