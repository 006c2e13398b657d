package hosttools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"path"
	"strings"
)

// program adds the closure of the program at a path; depth counts the scripts
// that it is the interpreter of.
func (r *Resolver) program(s set, name string, depth int) error {
	p, err := r.file(s, name)
	if err != nil {
		return err
	}
	if !p.facts.executable() {
		return &hinted{errors.New("is not executable"), "chmod +x " + name}
	}
	f, err := openFile(p.real)
	if err != nil {
		return err
	}
	defer f.Close()
	return r.needs(s, f, p.facts.size, p.real, depth)
}

// headSize is how much of a program Linux looks at (BINPRM_BUF_SIZE).
const headSize = 256

// needs adds what the program with this content needs. real is where it is, ""
// if not on this machine.
func (r *Resolver) needs(s set, content io.ReaderAt, size int64, real string, depth int) error {
	head := make([]byte, min(size, headSize))
	if n, err := content.ReadAt(head, 0); n < len(head) {
		return noEOF(err)
	}
	darwin := r.host.goos == "darwin"
	switch {
	case bytes.HasPrefix(head, []byte("#!")):
		return r.script(s, string(head), size, depth)
	case darwin && machO(head):
		return nil
	case !darwin && bytes.HasPrefix(head, []byte(elfMagic)):
		o, err := parseELF(content, size)
		if err != nil {
			return err
		}
		return r.elf(s, o, real, true)
	}
	return &hinted{errors.New("is neither a program of this system nor a script with a #! line"), "a script begins with a line such as #!/bin/sh"}
}

// machO knows files for one machine and, with 0xcafebabe, for several.
func machO(head []byte) bool {
	for _, magic := range [...]string{"\xcf\xfa\xed\xfe", "\xce\xfa\xed\xfe", "\xca\xfe\xba\xbe", "\xca\xfe\xba\xbf"} {
		if bytes.HasPrefix(head, []byte(magic)) {
			return true
		}
	}
	return false
}

// maxScripts is how many scripts may be each other's interpreters.
const maxScripts = 5

func (r *Resolver) script(s set, head string, size int64, depth int) error {
	if depth == maxScripts {
		return fmt.Errorf("more than %d scripts are each other's interpreters", maxScripts)
	}
	line, _, ended := strings.Cut(head, "\n")
	if !ended && int64(len(head)) < size {
		return fmt.Errorf("its #! line is longer than %d bytes, where Linux cuts it", headSize-1)
	}
	if strings.HasSuffix(line, "\r") {
		return &hinted{
			errors.New("its #! line ends with a carriage return, which the system takes for a part of the name"),
			"write the script with line ends of Unix, \\n alone",
		}
	}
	name, arg, _ := cutBlank(strings.TrimPrefix(line, "#!"))
	switch {
	case name == "":
		return errors.New("its #! line names no interpreter")
	case !strings.HasPrefix(name, "/"):
		return &hinted{
			fmt.Errorf("its #! line names %q, which is not an absolute path", name),
			"use #!/usr/bin/env " + path.Base(name) + " to have it looked for",
		}
	}
	name = path.Clean(name)
	if err := r.program(s, name, depth+1); err != nil {
		return fmt.Errorf("interpreter %s: %w", name, err)
	}
	if path.Base(name) != "env" {
		return nil
	}
	return r.env(s, arg, depth)
}

// env adds the program that env is to find.
func (r *Resolver) env(s set, arg string, depth int) error {
	name, err := envName(arg, r.host.goos == "darwin")
	if err != nil {
		return err
	}
	if strings.Contains(name, "/") && !path.IsAbs(name) {
		return fmt.Errorf("env is to run %q, which is relative to the current folder", name)
	}
	found := name
	if !path.IsAbs(name) {
		if found = r.lookPath(name); found == "" {
			return &hinted{
				fmt.Errorf("env is to run %q, which is in none of %s", name, strings.Join(r.host.path, ":")),
				"install it there, or name its absolute path in the #! line; PATH is not looked at",
			}
		}
	}
	found = path.Clean(found)
	if err := r.program(s, found, depth+1); err != nil {
		return fmt.Errorf("interpreter %s: %w", found, err)
	}
	return nil
}

func (r *Resolver) lookPath(name string) string {
	for _, dir := range r.host.path {
		p, err := r.locate(path.Join(dir, name))
		if err == nil && p.facts.kind() == 0 && p.facts.executable() {
			return path.Join(dir, name)
		}
	}
	return ""
}

// envName gives NAME of the one argument that Linux hands to an interpreter:
// NAME itself, or that of "-S [OPTION]... [VARIABLE=VALUE]... NAME [ARGUMENT]...".
// macOS splits the argument itself.
func envName(arg string, split bool) (string, error) {
	whole := arg
	for _, flag := range [...]string{"--split-string=", "--split-string", "-vS", "-S"} {
		if rest, ok := strings.CutPrefix(arg, flag); ok {
			arg, split = rest, true
			break
		}
	}
	word, rest, more := cutBlank(arg)
	if more && !split {
		return "", &hinted{
			fmt.Errorf("env is given %q as one name, since a #! line has one argument", whole),
			"use #!/usr/bin/env -S " + whole,
		}
	}
	for ; word != ""; word, rest, _ = cutBlank(rest) {
		switch {
		case word == "-u" || word == "-C" || word == "--unset" || word == "--chdir":
			_, rest, _ = cutBlank(rest) // its value
		case strings.HasPrefix(word, "-") || strings.Contains(word, "="):
		case strings.ContainsAny(word, `"'\$`):
			return "", fmt.Errorf("env is to run %s, which is quoted: want a plain name", word)
		default:
			return word, nil
		}
	}
	return "", errors.New("env is given no program to run")
}

// cutBlank gives the first word, what follows it, and whether anything does.
func cutBlank(s string) (word, rest string, more bool) {
	s = strings.Trim(s, " \t")
	i := strings.IndexAny(s, " \t")
	if i < 0 {
		return s, "", false
	}
	return s[:i], strings.TrimLeft(s[i:], " \t"), true
}
