package transcript

import "strings"

const (
	maxSteps  = 2000    // pipelines that one command may run
	maxParsed = 1 << 20 // bytes of scripts, those in `sh -c` again
	maxSpent  = 8 << 20 // bytes that expansion makes
	maxTaints = 32      // kinds of content in one stream; more than there can be reasons
	maxFields = 1024    // words of one command after expansion
	maxValue  = 4 << 10
	maxEchoes = 1024
)

// flow is what comes out of a command: content of trapped files, names of files, and text that is known.
type flow struct {
	taints []taint
	names  []field
	text   string
}

// field is a word after expansion.
type field struct {
	text   string
	glob   bool
	taints []taint // its own bytes are content
	file   bool    // or it names a file with such content: <(…)
}

type variable struct {
	fields []field
	loop   bool // takes its fields one after the other, quoted or not
}

// shell follows the content of trapped files through one command.
type shell struct {
	traps  *Traps
	vars   map[string]variable
	echoes map[string]bool
	step   int // the pipelines so far
	nest   int
	parsed int
	spent  int
}

func newShell(t *Traps) *shell {
	return &shell{traps: t, vars: map[string]variable{}, echoes: map[string]bool{}}
}

// command judges a shell command that has ended.
func (t *Traps) command(e Event) {
	if t.marks.in(e.Output, e.Text) {
		t.add(SourceRead, "treatment", e.Text)
	}
	failed := e.Status == StatusFailed || e.Exit != nil && *e.Exit != 0
	if failed && e.Exit == nil {
		return // refused or killed: nothing tells that it ran
	}
	sh := newShell(t)
	out := sh.script(e.Text, flow{})
	// The exit code is that of the last pipeline; those before it may well have read.
	undone := func(step int) bool { return failed && step == sh.step }
	var seen *evidence
	searched := false
	for _, x := range out.taints {
		if undone(x.step) {
			continue
		}
		if x.search {
			searched = true
			continue
		}
		if seen == nil {
			seen = newEvidence(e.Output, sh.echoes)
		}
		if seen.printed && !seen.refuses(x.path) {
			t.add(x.code, x.path, e.Text)
		}
	}
	if searched {
		t.found(e.Output, func(code, file string) { t.add(code, file, e.Text) })
	}
	t.remove(func(c fileCopy) bool { return c.step != 0 && undone(c.step) })
	for i := range t.copies {
		t.copies[i].step = 0
	}
}

func (f *flow) add(g flow) {
	f.taints = join(f.taints, g.taints)
	if len(f.names) < maxFields {
		f.names = append(f.names, g.names...)
	}
	if len(f.text) < maxValue {
		f.text += g.text
	}
}

// join keeps one taint of each kind: content may pass through many pipes.
func join(a, b []taint) []taint {
	for _, x := range b {
		known := false
		for i := range a {
			if a[i].code == x.code && a[i].path == x.path && a[i].search == x.search {
				known = true
				a[i].step = min(a[i].step, x.step)
			}
		}
		if !known && len(a) < maxTaints {
			a = append(a[:len(a):len(a)], x)
		}
	}
	return a
}

func (sh *shell) run(s script, in flow) flow {
	var out flow
	for _, line := range s {
		if sh.step >= maxSteps {
			break
		}
		sh.step++
		stream := in
		for _, n := range line {
			stream = sh.node(n, stream)
		}
		out.add(stream)
	}
	return out
}

// script runs a text.
func (sh *shell) script(text string, in flow) flow {
	if sh.parsed += len(text); sh.parsed > maxParsed {
		return flow{}
	}
	return sh.run(parseShell(text, sh.nest), in)
}

func (sh *shell) node(n node, in flow) flow {
	for _, r := range n.redirects {
		if r.op[0] == '<' && r.op != "<&" && r.op != "<>" {
			in = sh.input(r)
		}
	}
	var out flow
	switch {
	case n.loop != "":
		sh.vars[n.loop] = variable{fields: sh.expand(n.words), loop: true}
		out = sh.run(n.body, in)
	case n.group:
		out = sh.run(n.body, in)
	default:
		out = sh.simple(n.words, in)
	}
	for _, r := range n.redirects {
		if toFile := strings.HasPrefix(r.op, "&>") || r.op[0] == '>' && (r.fd == "" || r.fd == "1"); !toFile {
			continue
		}
		for _, f := range sh.expand([]word{r.target}) {
			switch f.text {
			case "/dev/stdout", "/dev/stderr", "/dev/tty", "/dev/fd/1":
				continue
			}
			if r.op == ">&" && strings.Trim(f.text, "0123456789-") == "" {
				continue // to another descriptor: still shown
			}
			sh.traps.write(f.text, out.taints, sh.step, strings.HasSuffix(r.op, ">>"))
			out = flow{}
		}
	}
	return out
}

// input is what a redirection gives to the standard input.
func (sh *shell) input(r *redirect) flow {
	fields := sh.expand([]word{r.target})
	if r.op == "<" {
		return flow{taints: sh.read(fields)}
	}
	var in flow
	for _, f := range sh.words([]word{r.target}, true) {
		in.add(flow{taints: f.taints, names: []field{f}, text: f.text})
	}
	return in
}

// simple runs assignments and a program.
func (sh *shell) simple(words []word, in flow) flow {
	for len(words) > 0 {
		name, value, ok := assignment(words[0])
		if !ok {
			break
		}
		sh.assign(name, sh.words([]word{value}, true))
		words = words[1:]
	}
	args := sh.expand(words)
	if len(args) == 0 {
		return flow{taints: in.taints, names: in.names} // "< file" alone prints in $(…)
	}
	return sh.program(args, in)
}

// assignment takes NAME=value apart.
func assignment(w word) (name string, value word, ok bool) {
	if len(w) == 0 || w[0].quoted || w[0].name != "" || w[0].hasSub {
		return "", nil, false
	}
	name, rest, ok := strings.Cut(w[0].text, "=")
	name = strings.TrimSuffix(name, "+")
	if !ok || name == "" || '0' <= name[0] && name[0] <= '9' {
		return "", nil, false
	}
	for i := range len(name) {
		if !isName(name[i]) {
			return "", nil, false
		}
	}
	return name, append(word{{text: rest}}, w[1:]...), true
}

func (sh *shell) assign(name string, fields []field) {
	if len(sh.vars) < maxFields {
		sh.vars[name] = variable{fields: fields}
	}
}

// read is the content of the files that fields name.
func (sh *shell) read(fields []field) []taint {
	var out []taint
	for _, f := range fields {
		if f.file {
			out = join(out, f.taints)
			continue
		}
		for _, x := range sh.traps.taints(f.text, f.glob) {
			x.step, x.path = sh.step, f.text
			out = join(out, []taint{x})
		}
	}
	return out
}

func (sh *shell) expand(words []word) []field { return sh.words(words, false) }

// words expands: braces, variables, substitutions, fields. whole is for places where the shell does not split.
func (sh *shell) words(words []word, whole bool) []field {
	var out []field
	for _, w := range words {
		for _, w := range braces(w) {
			out = append(out, sh.word(w, whole)...)
			if len(out) > maxFields {
				return out[:maxFields]
			}
		}
	}
	return out
}

func (sh *shell) word(w word, whole bool) []field {
	fields := []field{{}}
	quoted, bare := false, true
	for _, p := range w {
		quoted = quoted || p.quoted || p.text != ""
		bare = bare && (p.name != "" || p.hasSub)
		values, split := sh.part(p)
		split = split && !whole
		if len(values) == 0 {
			continue
		}
		if split && len(values) > 1 {
			fields = append(fields[:len(fields)-1:len(fields)-1], sh.glue(fields[len(fields)-1:], values[:1])...)
			fields = append(fields, values[1:]...)
		} else {
			fields = sh.glue(fields, values)
		}
		fields = fields[:min(len(fields), maxFields)]
	}
	if bare && !quoted && len(fields) == 1 && fields[0].text == "" && len(fields[0].taints) == 0 && !whole {
		return nil // an empty variable is no word
	}
	return fields
}

// glue puts each value after each field.
func (sh *shell) glue(fields, values []field) []field {
	limit := maxValue
	if len(fields) == 1 && len(values) == 1 {
		limit = maxScript // `sh -c` with a long script is common
	}
	var out []field
	for _, f := range fields {
		for _, v := range values[:min(len(values), max(1, maxFields-len(out)))] {
			g := f
			if size := len(g.text) + len(v.text); size <= limit && sh.spent+size <= maxSpent {
				sh.spent += size
				g.text += v.text
			}
			g.glob = g.glob || v.glob
			g.file = g.file || v.file
			g.taints = join(g.taints, v.taints)
			out = append(out, g)
		}
	}
	return out[:min(len(out), maxFields)]
}

// part gives the values of a part, and whether they are separate fields (else they are alternatives of one).
func (sh *shell) part(p part) (values []field, split bool) {
	switch {
	case p.hasSub:
		sh.nest++
		defer func() { sh.nest-- }()
		if sh.nest > maxNest {
			return nil, false
		}
		out := sh.run(p.sub, flow{})
		if p.file {
			return []field{{text: "/dev/fd/63", taints: out.taints, file: true}}, false
		}
		values = append(values, out.names...)
		if len(values) == 0 {
			values = []field{{}}
		}
		values[0].taints = join(values[0].taints, out.taints)
		return values, !p.quoted
	case p.name != "":
		v, ok := sh.vars[p.name]
		if !ok && p.alt != nil {
			sh.nest++
			defer func() { sh.nest-- }()
			if sh.nest > maxNest {
				return nil, false
			}
			return sh.word(p.alt, p.quoted), false
		}
		if v.loop || p.quoted {
			return v.fields, false
		}
		for _, f := range v.fields {
			parts := strings.Fields(f.text)
			if len(parts) < 2 {
				values = append(values, f)
				continue
			}
			for _, text := range parts {
				values = append(values, field{text: text, glob: f.glob || hasGlob(text), taints: f.taints})
			}
		}
		for i := range values {
			values[i].glob = values[i].glob || hasGlob(values[i].text)
		}
		return values, true
	}
	return []field{{text: p.text, glob: !p.quoted && hasGlob(p.text)}}, false
}

func hasGlob(text string) bool { return strings.ContainsAny(text, "*?[") }

// braces expands a{b,c}d, one pair in one literal at a time.
func braces(w word) []word {
	out := []word{w}
	for i, p := range w {
		if p.quoted || p.name != "" || p.hasSub {
			continue
		}
		open := strings.IndexByte(p.text, '{')
		if open < 0 {
			continue
		}
		end := strings.IndexByte(p.text[open:], '}')
		if end < 0 || !strings.Contains(p.text[open:open+end], ",") {
			continue
		}
		out = nil
		for _, choice := range strings.Split(p.text[open+1:open+end], ",") {
			v := append(word{}, w...)
			v[i].text = p.text[:open] + choice + p.text[open+end+1:]
			if out = append(out, v); len(out) >= maxNest {
				break
			}
		}
		return out
	}
	return out
}
