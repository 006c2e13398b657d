package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/engine"
)

// userError gives an error of loading or of the workspace its exit code.
func userError(err error) error {
	if errors.Is(err, context.Canceled) {
		return engine.ErrInterrupted
	}
	var known *exitError
	if errors.As(err, &known) {
		return err
	}
	e := &exitError{code: exitUsage, err: err}
	var hinted interface{ Hint() string }
	if errors.As(err, &hinted) && hinted.Hint() != "" {
		e.hint("%s", hinted.Hint())
	}
	return e
}

// report prints an error and returns the exit code:
//
//	eval: error: <operation> <object>: <cause>
//	hint: …
func report(w io.Writer, err error) int {
	if err == nil {
		return 0
	}
	if errors.Is(err, engine.ErrInterrupted) || errors.Is(err, context.Canceled) {
		fmt.Fprintln(w, "eval: interrupted; what was done is kept")
		return exitInterrupted
	}
	var e *exitError
	if !errors.As(err, &e) {
		e = &exitError{code: exitInfra, err: err}
	}
	if e.quiet {
		return e.code
	}
	printError(w, e.err)
	for _, h := range e.hints {
		fmt.Fprintf(w, "hint: %s\n", safe(h))
	}
	return e.code
}

// printError prints one error, or each of several, with the Starlark stack.
func printError(w io.Writer, err error) {
	var list starlark.Errors
	if errors.As(err, &list) {
		for _, x := range list {
			printError(w, x)
		}
		return
	}
	// fail() prefixes its message, which says nothing that "error" doesn't.
	fmt.Fprintf(w, "eval: error: %s\n", safeLines(strings.Replace(err.Error(), ": fail: ", ": ", 1)))
	var se *starlark.Error
	if errors.As(err, &se) {
		for _, line := range se.Stack {
			fmt.Fprintf(w, "  %s\n", safe(line))
		}
		for _, h := range se.Hints {
			fmt.Fprintf(w, "hint: %s\n", safe(h))
		}
	}
}

// safe makes untrusted text fit for a terminal: control characters (ANSI
// sequences, newlines), invisible direction marks and invalid UTF-8 are shown
// as escapes.
func safe(s string) string {
	clean := true
	for _, r := range s {
		if !printable(r) {
			clean = false
			break
		}
	}
	if clean && utf8.ValidString(s) {
		return s
	}
	var b strings.Builder
	for i := 0; i < len(s); {
		r, n := utf8.DecodeRuneInString(s[i:])
		switch {
		case r == utf8.RuneError && n == 1:
			fmt.Fprintf(&b, `\x%02x`, s[i])
		case printable(r):
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x80:
			fmt.Fprintf(&b, `\x%02x`, r)
		default:
			fmt.Fprintf(&b, `\u%04x`, r)
		}
		i += n
	}
	return b.String()
}

func printable(r rune) bool {
	return unicode.IsPrint(r) // excludes Cc, Cf (direction marks), line separators
}

// safeLines is safe for text that keeps its line breaks and tabs.
func safeLines(s string) string {
	lines := strings.Split(s, "\n")
	for i, l := range lines {
		parts := strings.Split(l, "\t")
		for j, p := range parts {
			parts[j] = safe(p)
		}
		lines[i] = strings.Join(parts, "\t")
	}
	return strings.Join(lines, "\n")
}
