package transcript

import (
	"path"
	"strings"
)

// query is the command line of a search.
type query struct {
	files     []field
	pattern   bool // was given
	quiet     bool // counts, or says nothing
	names     bool // lists files
	plain     bool // lines without their file's name
	recursive bool
}

// search is grep and its like. A search of one file prints from it; of many, or of folders, it is the names at the
// beginning of the lines that tell.
func (sh *shell) search(args []field, in flow, recursive bool) flow {
	q := query{recursive: recursive}
	q.parse(args)
	switch {
	case q.quiet:
		return flow{}
	case q.names:
		return flow{names: below(q.files, q.recursive)}
	case len(q.files) == 0 && (!q.recursive || len(in.taints) > 0 || len(in.names) > 0):
		return flow{taints: in.taints, names: in.names}
	}
	out := flow{taints: []taint{{search: true, step: sh.step}}}
	if q.plain || sh.only(q.files) {
		out.taints = join(out.taints, sh.read(q.files))
	}
	for _, f := range q.files {
		if f.file {
			out.taints = join(out.taints, f.taints)
		}
	}
	return out
}

// only says whether nothing but trapped files is searched: then there may be no names before the lines. "*.md" may be
// any file, "skills/*/SKILL.*" may not.
func (sh *shell) only(files []field) bool {
	for _, f := range files {
		if len(sh.read([]field{f})) == 0 || f.glob && strings.HasPrefix(path.Base(f.text), "*") {
			return false
		}
	}
	return len(files) > 0
}

func (q *query) parse(args []field) {
	for i := 0; i < len(args); i++ {
		f := args[i]
		switch {
		case f.text == "--":
			for _, f := range args[i+1:] {
				q.operand(f)
			}
			return
		case strings.HasPrefix(f.text, "--"):
			if q.long(f.text) {
				i++
			}
		case len(f.text) > 1 && f.text[0] == '-':
			if q.short(f.text[1:]) {
				i++
			}
		default:
			q.operand(f)
		}
	}
}

func (q *query) operand(f field) {
	if !q.pattern {
		q.pattern = true
		return
	}
	q.files = append(q.files, f)
}

// long takes --option and says whether its value is the next word.
func (q *query) long(text string) bool {
	option, _, joined := strings.Cut(text, "=")
	switch option {
	case "--quiet", "--silent", "--count":
		q.quiet = true
	case "--files":
		q.names, q.pattern = true, true
	case "--files-with-matches", "--files-without-match":
		q.names = true
	case "--recursive":
		q.recursive = true
	case "--no-filename":
		q.plain = true
	case "--regexp", "--file":
		q.pattern = true
		return !joined
	case "--include", "--exclude", "--exclude-dir", "--glob", "--type", "--max-count", "--context":
		return !joined
	}
	return false
}

// short takes a cluster of letters and says whether the value of the last is the next word.
func (q *query) short(letters string) bool {
	for i, letter := range letters {
		switch letter {
		case 'q', 'c':
			q.quiet = true
		case 'l', 'L':
			q.names = true
		case 'r', 'R':
			q.recursive = true
		case 'h':
			q.plain = true
		case 'e', 'f':
			q.pattern = true
			return i+1 == len(letters)
		case 'A', 'B', 'C', 'm', 'g', 't', 'T', 'd', 'D', 'j':
			return i+1 == len(letters)
		}
	}
	return false
}

// below are names that a listing of files gives: themselves, and what is in them when they are folders.
func below(files []field, recursive bool) []field {
	out := append([]field{}, files...)
	if recursive {
		for _, f := range files {
			out = append(out, field{text: f.text + "/*", glob: true})
		}
	}
	return out
}

// find gives the names that it prints, or runs a program on them.
func (sh *shell) find(args []field, in flow) flow {
	var roots, names []field
	i := 0
	for ; i < len(args) && (args[i].text == "" || args[i].text[0] != '-' && args[i].text[0] != '(' && args[i].text[0] != '!'); i++ {
		roots = append(roots, args[i])
	}
	root := "."
	if len(roots) > 0 {
		root = roots[0].text
	}
	negated := false
	var out flow
	ran := false
	for ; i < len(args); i++ {
		switch option := args[i].text; option {
		case "!", "-not":
			negated = true
			continue
		case "-name", "-path", "-wholename", "-iname", "-ipath":
			if i++; i < len(args) && !negated {
				pattern := args[i].text
				if option[1] == 'i' && matches(strings.ToLower(path.Base(pattern)), strings.ToLower(skillFile)) {
					pattern = skillFile
				}
				names = append(names, field{text: path.Join(root, pattern), glob: true})
			}
		case "-exec", "-execdir", "-ok", "-x", "-X":
			end := i + 1
			for end < len(args) && args[end].text != ";" && args[end].text != "+" {
				end++
			}
			command := args[i+1 : end]
			ran = true
			i = end
			out.add(sh.program(insert(command, sh.found(roots, names)), flow{}))
		}
		negated = false
	}
	if ran {
		return out
	}
	return flow{names: sh.found(roots, names)}
}

func (sh *shell) found(roots, names []field) []field {
	if len(names) > 0 {
		return names
	}
	return below(roots, true)
}

// git shows content in few of its commands; REV:path names a file.
func (sh *shell) git(args []field, in flow) flow {
	for len(args) > 0 && strings.HasPrefix(args[0].text, "-") {
		if args[0].text == "-C" || args[0].text == "-c" {
			args = args[1:]
		}
		args = args[min(1, len(args)):]
	}
	if len(args) == 0 {
		return flow{}
	}
	command, args := args[0].text, args[1:]
	switch command {
	case "grep":
		return sh.search(args, in, true)
	case "show", "diff", "blame", "cat-file":
	case "log":
		if !hasOption(args, "p", "--patch") {
			return flow{}
		}
	default:
		return flow{names: args}
	}
	if hasOption(args, "\x00", "--stat") || hasOption(args, "\x00", "--name-only") || hasOption(args, "\x00", "--name-status") {
		return flow{}
	}
	files := operands("git", args)
	for i := range files {
		if _, file, ok := strings.Cut(files[i].text, ":"); ok {
			files[i].text = file
		}
	}
	return flow{taints: sh.read(files)}
}
