package transcript

import "strings"

// The grammar of the shell as far as a trap needs it: which words are given to which program, and where its output
// goes. Control flow is not decided: every branch and every body is taken once.

const (
	maxScript = 256 << 10 // bytes of one command that are looked at
	maxNest   = 24        // of substitutions, groups and `sh -c`
)

// script is pipelines in order, whatever stands between them (";", "&&", "||", "&", a new line).
type script []pipeline

type pipeline []node

// node is one command of a pipeline: words, or a body with an optional loop variable whose values are the words.
type node struct {
	words     []word
	redirects []*redirect
	body      script
	group     bool
	loop      string
}

type redirect struct {
	fd     string // digits before the operator
	op     string
	target word
}

// word is the parts that stand together.
type word []part

// part is a literal, a variable, or a substitution.
type part struct {
	text   string
	quoted bool // neither split nor a glob
	name   string
	alt    word // of ${name:-alt}
	sub    script
	hasSub bool
	file   bool // <(…): the word names a file with the output
}

type parser struct {
	src   string
	i     int
	nest  int
	heres []*redirect // whose bodies begin after the next new line
}

func parseShell(src string, nest int) script {
	if len(src) > maxScript {
		src = src[:maxScript]
	}
	p := &parser{src: src, nest: nest}
	var all script
	for p.i < len(p.src) {
		all = append(all, p.list()...)
		p.i++ // a closing word or bracket that nothing opened
	}
	return all
}

func (p *parser) peek(text string) bool { return strings.HasPrefix(p.src[p.i:], text) }

// blank skips spaces, continued lines and comments.
func (p *parser) blank() {
	for p.i < len(p.src) {
		switch c := p.src[p.i]; {
		case c == ' ' || c == '\t' || c == '\r':
			p.i++
		case p.peek("\\\n"):
			p.i += 2
		case c == '#':
			for p.i < len(p.src) && p.src[p.i] != '\n' {
				p.i++
			}
		default:
			return
		}
	}
}

// list reads pipelines up to a word or bracket that ends one, which stays.
func (p *parser) list() script {
	var s script
	for {
		p.blank()
		if p.i >= len(p.src) || p.src[p.i] == ')' || p.peek(";;") || isEnd(p.ahead()) {
			return s
		}
		switch c := p.src[p.i]; {
		case c == '\n':
			p.newline()
		case c == ';' || c == '&':
			p.i++
		case c == '|':
			p.i++
		default:
			if line := p.pipeline(); len(line) > 0 {
				s = append(s, line)
			}
		}
	}
}

func isEnd(name string) bool {
	switch name {
	case "then", "elif", "else", "fi", "do", "done", "esac", "}":
		return true
	}
	return false
}

// ahead is the bare name at this place.
func (p *parser) ahead() string {
	end := p.i
	for end < len(p.src) && !strings.ContainsRune(" \t\r\n;&|()<>", rune(p.src[end])) {
		end++
	}
	return p.src[p.i:end]
}

func (p *parser) newline() {
	p.i++
	for _, h := range p.heres {
		p.here(h)
	}
	p.heres = nil
}

func (p *parser) pipeline() pipeline {
	var line pipeline
	for p.i < len(p.src) {
		start := p.i
		if n := p.command(); len(n.words) > 0 || n.group || len(n.redirects) > 0 {
			line = append(line, n)
		}
		if p.i == start {
			p.i++ // nothing that is understood
		}
		p.blank()
		if !p.peek("|") || p.peek("||") {
			break
		}
		p.i++
		if p.peek("&") {
			p.i++
		}
		for p.blank(); p.peek("\n"); p.blank() {
			p.newline()
		}
	}
	return line
}

func (p *parser) command() node {
	p.blank()
	n := node{}
	p.nest++
	defer func() { p.nest-- }()
	if p.nest > maxNest {
		p.i = len(p.src)
		return n
	}
	switch name := p.ahead(); {
	case name == "!" || name == "time":
		p.i += len(name)
		return p.command()
	case p.peek("(("):
		p.past("))")
		return n
	case p.peek("[["):
		p.past("]]")
		return node{words: []word{{{text: "[["}}}}
	case p.peek("("):
		p.i++
		n.group, n.body = true, p.list()
		p.i = min(p.i+1, len(p.src))
	case name == "{":
		p.i++
		n.group, n.body = true, p.until("}")
	case name == "if":
		p.i += len(name)
		n.group, n.body = true, p.until("fi")
	case name == "while" || name == "until":
		p.i += len(name)
		n.group, n.body = true, p.until("done")
	case name == "for" || name == "select":
		p.i += len(name)
		p.forLoop(&n)
	case name == "case":
		p.i += len(name)
		n.group, n.body = true, p.cases()
	case name == "function":
		p.i += len(name)
		p.blank()
		p.i += len(p.ahead())
		p.blank()
		if p.peek("()") {
			p.i += 2
		}
		return p.command()
	default:
		p.simple(&n)
		return n
	}
	for p.blank(); p.redirect(&n); p.blank() {
	}
	return n
}

func (p *parser) past(close string) {
	if at := strings.Index(p.src[p.i:], close); at >= 0 {
		p.i += at + len(close)
	} else {
		p.i = len(p.src)
	}
}

// until joins the lists of a compound command: condition, branches, body.
func (p *parser) until(end string) script {
	var s script
	for {
		s = append(s, p.list()...)
		name := p.ahead()
		if p.i >= len(p.src) || !isEnd(name) {
			return s
		}
		p.i += len(name)
		if name == end {
			return s
		}
	}
}

func (p *parser) forLoop(n *node) {
	n.group = true
	p.blank()
	n.loop = p.ahead()
	p.i += len(n.loop)
	p.blank()
	if p.ahead() == "in" {
		p.i += len("in")
		for p.blank(); p.i < len(p.src) && !strings.ContainsRune("\n;&|()<>", rune(p.src[p.i])); p.blank() {
			n.words = append(n.words, p.word())
		}
	}
	n.body = p.until("done")
}

func (p *parser) cases() script {
	var s script
	p.blank()
	p.word()
	for {
		for p.blank(); p.peek("\n") || p.peek(";"); p.blank() {
			p.i++
		}
		if name := p.ahead(); name == "in" {
			p.i += len(name)
			continue
		} else if p.i >= len(p.src) || name == "esac" {
			p.i += len(name)
			return s
		}
		p.past(")") // the pattern
		s = append(s, p.list()...)
		if !p.peek(";;") && p.ahead() != "esac" {
			p.i = min(p.i+1, len(p.src))
		}
	}
}

func (p *parser) simple(n *node) {
	for {
		p.blank()
		if p.redirect(n) {
			continue
		}
		if p.i >= len(p.src) || strings.ContainsRune("\n;&|)", rune(p.src[p.i])) {
			return
		}
		if p.peek("()") && len(n.words) == 1 { // a function: its body is taken here
			p.i += 2
			*n = p.command()
			return
		}
		if p.peek("(") {
			p.i++ // an array's elements, or an error
			continue
		}
		n.words = append(n.words, p.word())
	}
}

// redirect reads one redirection, "<(…)" is none.
func (p *parser) redirect(n *node) bool {
	i := p.i
	for i < len(p.src) && '0' <= p.src[i] && p.src[i] <= '9' {
		i++
	}
	fd, rest := p.src[p.i:i], p.src[i:]
	for _, op := range []string{"&>>", "&>", "<<<", "<<-", "<<", "<>", "<&", "<", ">>", ">&", ">|", ">"} {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		if len(op) == 1 && strings.HasPrefix(rest[1:], "(") || op[0] == '&' && fd != "" {
			return false
		}
		p.i = i + len(op)
		p.blank()
		r := &redirect{fd: fd, op: op, target: p.word()}
		n.redirects = append(n.redirects, r)
		if op == "<<" || op == "<<-" {
			p.heres = append(p.heres, r)
		}
		return true
	}
	return false
}

// here replaces the delimiter of a here-document by its body.
func (p *parser) here(r *redirect) {
	delimiter, literal := "", false
	for _, part := range r.target {
		delimiter += part.text
		literal = literal || part.quoted
	}
	start, end := p.i, len(p.src)
	for p.i < len(p.src) {
		line, _, _ := strings.Cut(p.src[p.i:], "\n")
		at := p.i
		p.i = min(p.i+len(line)+1, len(p.src))
		if r.op == "<<-" {
			line = strings.TrimLeft(line, "\t")
		}
		if line == delimiter {
			end = at
			break
		}
	}
	body := p.src[start:end]
	if literal {
		r.target = word{{text: body, quoted: true}}
		return
	}
	inner := &parser{src: body, nest: p.nest}
	r.target = inner.double(false)
}
