package transcript

import (
	"path"
	"strings"
)

// What programs do with the files that they are given. Whatever is not here shows them: an agent has many pagers.

// silent programs do not show what is in a file: they name it, measure it, change it, or make one.
var silent = set(`[ [[ : alias apply_patch apt apt-get ar basename break bunzip2 bzip2 cd chgrp chmod chown cksum
	cmp continue date declare dirname docker du exit false fc file getopt getopts gzip hash jobs kill let locate ls md5sum mkdir
	mkfifo mktemp patch popd ps pushd pwd readlink realpath return rm rmdir sha1sum sha224sum sha256sum sha384sum
	sha512sum shasum shift shopt sleep stat sum tar test touch trap tree true truncate type ulimit umask unalias uname unlink
	unset wait wc whereis which who whoami xz zip zstd`)

// wrapped programs run the rest of their words; the value says how many operands come first.
var wrapped = map[string]int{
	"sudo": 0, "doas": 0, "env": 0, "command": 0, "builtin": 0, "exec": 0, "nohup": 0, "time": 0, "nice": 0, "ionice": 0, "stdbuf": 0,
	"timeout": 1, "setsid": 0, "unbuffer": 0, "busybox": 0, "chronic": 0, "gtimeout": 1,
}

var (
	shells    = set("sh bash zsh dash ksh ash")
	languages = set("python python2 python3 node nodejs ruby perl php deno bun lua pypy pypy3")
	searches  = set("grep egrep fgrep zgrep rg ag ack ripgrep ugrep")
	scripted  = set("sed gsed awk gawk mawk nawk jq yq") // the first operand is a program, not a file
	copiers   = set("cp mv ln install scp rsync gcp gmv")
	// valued are options whose next word is no input: an expression, a number, a file that is written.
	valued = map[string]map[string]bool{
		"head": set("-n -c --lines --bytes"), "tail": set("-n -c --lines --bytes"), "sed": set("-e -E --expression"),
		"awk": set("-F -v"), "gawk": set("-F -v"), "jq": set("--arg --argjson --indent"), "curl": set("-o -H -X -d"), "wget": set("-O"),
		"sort": set("-o -k -t"), "cut": set("-d -f -c"), "tr": set(""), "pandoc": set("-o"),
	}
)

func set(words string) map[string]bool {
	s := map[string]bool{}
	for _, w := range strings.Fields(words) {
		s[w] = true
	}
	return s
}

// program runs one program: args[0] is its name.
func (sh *shell) program(args []field, in flow) flow {
	sh.nest++
	defer func() { sh.nest-- }()
	if sh.nest > maxNest || len(args) == 0 {
		return flow{}
	}
	name := path.Base(args[0].text)
	rest := args[1:]
	if skip, ok := wrapped[name]; ok {
		return sh.wrapped(name, rest, skip, in)
	}
	switch {
	case silent[name]:
		return flow{names: rest}
	case name == "echo" || name == "printf":
		return sh.echo(rest)
	case name == "read" || name == "mapfile" || name == "readarray":
		return sh.assignInput(rest, in)
	case name == "export" || name == "local" || name == "readonly" || name == "typeset" || name == "set":
		return sh.export(rest)
	case name == "eval":
		return sh.script(text(rest), in)
	case name == "source" || name == ".":
		return flow{}
	case shells[name]:
		return sh.shell(rest, in)
	case languages[name]:
		return sh.language(name, rest, in)
	case name == "xargs" || name == "parallel":
		return sh.xargs(rest, in)
	case name == "find" || name == "fd" || name == "fdfind":
		return sh.find(rest, in)
	case searches[name]:
		return sh.search(rest, in, name == "rg" || name == "ag" || name == "ack")
	case name == "git":
		return sh.git(rest, in)
	case copiers[name]:
		return sh.copy(name, rest)
	case name == "tee":
		for _, f := range operands(name, rest) {
			sh.traps.write(f.text, in.taints, sh.step, hasOption(rest, "a", "--append"))
		}
		return in
	case name == "dd":
		return sh.dd(rest, in)
	}
	return sh.show(name, rest, in)
}

// show is any other program: it prints what is in its operands, its words and its input.
func (sh *shell) show(name string, args []field, in flow) flow {
	switch {
	case name == "sed" || name == "gsed" || name == "perl":
		if hasOption(args, "i", "--in-place") {
			return flow{}
		}
	case name == "diff":
		if hasOption(args, "q", "--brief") {
			return flow{}
		}
	}
	files := operands(name, args)
	if scripted[name] && !hasOption(args, "e", "--expression") && !hasOption(args, "f", "--file") && len(files) > 0 {
		files = files[1:]
	}
	out := flow{taints: join(in.taints, sh.read(files)), names: in.names, text: in.text}
	for _, f := range args {
		if !f.file {
			out.taints = join(out.taints, f.taints)
		}
	}
	return out
}

// operands are the words that are no options, and the values of --option=value.
func operands(name string, args []field) []field {
	var out []field
	options := true
	for i := 0; i < len(args); i++ {
		f := args[i]
		switch {
		case options && f.text == "--":
			options = false
		case options && valued[name][f.text]:
			i++
		case options && (f.text == "-o" || f.text == "--output" || f.text == "--out"):
			i++
		case options && strings.HasPrefix(f.text, "--"):
			if option, value, ok := strings.Cut(f.text, "="); ok && !strings.HasPrefix(option, "--out") {
				f.text = value
				out = append(out, f)
			}
		case options && len(f.text) > 1 && f.text[0] == '-':
		default:
			f.text = strings.TrimPrefix(f.text, "@")
			out = append(out, f)
		}
	}
	return out
}

func hasOption(args []field, letter, long string) bool {
	for _, f := range args {
		if strings.HasPrefix(f.text, "--") {
			if option, _, _ := strings.Cut(f.text, "="); option == long {
				return true
			}
		} else if len(f.text) > 1 && f.text[0] == '-' && strings.Contains(f.text[1:], letter) {
			return true
		}
	}
	return false
}

// text joins words, up to the length of a script.
func text(args []field) string {
	var words []string
	size := 0
	for _, f := range args {
		if size += len(f.text) + 1; size > maxScript {
			break
		}
		words = append(words, f.text)
	}
	return strings.Join(words, " ")
}

func (sh *shell) wrapped(name string, args []field, skip int, in flow) flow {
	valued := map[string]map[string]bool{
		"sudo": set("-u -g"), "env": set("-u -C"), "nice": set("-n"), "ionice": set("-c -n"), "timeout": set("-s -k"), "exec": set("-a"),
	}[name]
	for len(args) > 0 {
		word := args[0].text
		switch {
		case valued[word] && len(args) > 1:
			args = args[2:]
		case name == "command" && (word == "-v" || word == "-V"):
			return flow{}
		case strings.HasPrefix(word, "-") || name == "env" && strings.Contains(word, "="):
			args = args[1:]
		case skip > 0:
			skip--
			args = args[1:]
		default:
			return sh.program(args, in)
		}
	}
	return flow{}
}

func (sh *shell) echo(args []field) flow {
	out := flow{names: args, text: text(args)}
	for _, f := range args {
		if !f.file {
			out.taints = join(out.taints, f.taints)
		}
	}
	if len(out.text) > 4*maxValue {
		return out // no line to tell from content
	}
	lines := strings.NewReplacer(`\n`, "\n", `%s`, "").Replace(out.text)
	for line := range strings.Lines(strings.TrimPrefix(strings.TrimPrefix(lines, "-e "), "-n ")) {
		if line = strings.TrimSpace(line); len(sh.echoes) < maxEchoes && line != "" {
			sh.echoes[line] = true
		}
	}
	return out
}

func (sh *shell) assignInput(args []field, in flow) flow {
	for _, f := range args {
		if f.text == "" || f.text[0] == '-' {
			continue
		}
		fields := append([]field{}, in.names...)
		if len(fields) == 0 {
			fields = []field{{}}
		}
		fields[0].taints = join(fields[0].taints, in.taints)
		sh.vars[f.text] = variable{fields: fields, loop: true}
	}
	return flow{}
}

func (sh *shell) export(args []field) flow {
	for _, f := range args {
		if name, value, ok := strings.Cut(f.text, "="); ok {
			f.text = value
			sh.assign(name, []field{f})
		}
	}
	return flow{}
}

// shell is `sh -c script name args`, `sh file args`, or a script on the input.
func (sh *shell) shell(args []field, in flow) flow {
	for i, f := range args {
		switch {
		case len(f.text) > 1 && f.text[0] == '-' && f.text[1] != '-' && strings.HasSuffix(f.text, "c"):
			if i+1 >= len(args) {
				return flow{}
			}
			for k, f := range args[i+2:] {
				if k < 10 {
					sh.vars[string(rune('0'+k))] = variable{fields: []field{f}}
				}
			}
			if len(args) > i+3 {
				sh.vars["@"] = variable{fields: args[i+3:], loop: true}
			}
			out := sh.script(args[i+1].text, in)
			out.taints = join(out.taints, args[i+1].taints)
			return out
		case f.text == "-" || f.text == "" || f.text[0] != '-':
			return sh.show("sh", args[i:], in)
		}
	}
	return sh.script(in.text, flow{})
}

// xargs gives the names on its input to a program.
func (sh *shell) xargs(args []field, in flow) flow {
	valued := set("-I -i -n -P -d -L -a -s -E --max-args --max-procs --delimiter --replace -j")
	for len(args) > 0 && strings.HasPrefix(args[0].text, "-") {
		if valued[args[0].text] && len(args) > 1 {
			args = args[1:]
		}
		args = args[1:]
	}
	if len(args) == 0 {
		return in
	}
	out := sh.program(insert(args, in.names), flow{})
	out.taints = join(out.taints, in.taints) // a line of content became a word
	return out
}

// insert puts names for {}, or after the words when there is none.
func insert(args, names []field) []field {
	var out []field
	found := false
	for _, f := range args {
		switch {
		case f.text == "{}":
			found = true
			out = append(out, names...)
		case strings.Contains(f.text, "{}"):
			found = true
			if list := text(names); len(list) <= maxValue {
				f.text = strings.Replace(f.text, "{}", list, maxNest)
			}
			out = append(out, f)
		default:
			out = append(out, f)
		}
		out = out[:min(len(out), maxFields)]
	}
	if !found {
		out = append(out, names...)
	}
	return out[:min(len(out), maxFields)]
}

// copy follows cp, mv, ln: the last operand, or that of -t, is made of the others.
func (sh *shell) copy(name string, args []field) flow {
	files := operands(name, args)
	if len(files) == 1 && name == "ln" {
		files = append(files, field{text: path.Base(files[0].text)})
	}
	if len(files) < 2 {
		return flow{}
	}
	to := files[len(files)-1].text
	for _, f := range files[:len(files)-1] {
		taints := sh.read([]field{f})
		if len(taints) == 0 {
			continue
		}
		if !strings.HasSuffix(to, "/") {
			sh.traps.write(to, taints, sh.step, false)
		}
		sh.traps.write(path.Join(to, path.Base(f.text)), taints, sh.step, false)
		if name == "mv" {
			sh.traps.write(f.text, nil, sh.step, false)
		}
	}
	return flow{}
}

func (sh *shell) dd(args []field, in flow) flow {
	out := flow{taints: in.taints}
	for _, f := range args {
		if file, ok := strings.CutPrefix(f.text, "if="); ok {
			out.taints = join(out.taints, sh.read([]field{{text: file, glob: f.glob}}))
		}
	}
	for _, f := range args {
		if file, ok := strings.CutPrefix(f.text, "of="); ok {
			sh.traps.write(file, out.taints, sh.step, false)
			return flow{}
		}
	}
	return out
}
