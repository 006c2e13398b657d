package transcript

import "strings"

// word reads the parts of one word. It takes at least one byte, unless the text is over or a bracket follows.
func (p *parser) word() word {
	var w word
	literal := func(text string, quoted bool) { w = append(w, part{text: text, quoted: quoted}) }
	for p.i < len(p.src) {
		c := p.src[p.i]
		switch {
		case (c == '<' || c == '>') && strings.HasPrefix(p.src[p.i+1:], "("):
			p.i += 2
			w = append(w, part{sub: p.substitution(")"), hasSub: true, file: true})
		case strings.ContainsRune(" \t\r\n;&|()<>", rune(c)):
			return w
		case c == '\\':
			if p.i++; p.i < len(p.src) {
				if p.src[p.i] != '\n' {
					literal(p.src[p.i:p.i+1], true)
				}
				p.i++
			}
		case c == '\'':
			p.i++
			text, _, _ := strings.Cut(p.src[p.i:], "'")
			p.i = min(p.i+len(text)+1, len(p.src))
			literal(text, true)
		case c == '"':
			p.i++
			w = append(w, p.double(true)...)
		case p.peek("$'"):
			p.i += 2
			literal(p.ansi(), true)
		case p.peek(`$"`):
			p.i++
		case c == '$' || c == '`':
			w = append(w, p.dollar(false))
		default:
			start := p.i
			for p.i < len(p.src) && !strings.ContainsRune(" \t\r\n;&|()<>\\'\"$`", rune(p.src[p.i])) {
				p.i++
			}
			literal(p.src[start:p.i], false)
		}
	}
	return w
}

// double reads up to the closing quote, or to the end of a here-document.
func (p *parser) double(quotes bool) word {
	w := word{{quoted: true}}
	start := p.i
	flush := func() { w = append(w, part{text: p.src[start:p.i], quoted: true}) }
	for p.i < len(p.src) {
		switch c := p.src[p.i]; {
		case c == '"' && quotes:
			flush()
			p.i++
			return w
		case c == '\\' && p.i+1 < len(p.src) && strings.ContainsRune("$`\"\\\n", rune(p.src[p.i+1])):
			flush()
			p.i++
			start = p.i
			if p.src[p.i] == '\n' {
				start++
			}
			p.i++
		case c == '$' || c == '`':
			flush()
			w = append(w, p.dollar(true))
			start = p.i
		default:
			p.i++
		}
	}
	flush()
	return w
}

// dollar reads what begins with "$" or a back quote.
func (p *parser) dollar(quoted bool) part {
	if p.src[p.i] == '`' {
		p.i++
		text, _, _ := strings.Cut(p.src[p.i:], "`")
		p.i = min(p.i+len(text)+1, len(p.src))
		return part{sub: p.inner(text), hasSub: true, quoted: quoted}
	}
	p.i++
	switch {
	case p.peek("(("):
		p.past("))")
		return part{text: "0", quoted: true}
	case p.peek("("):
		p.i++
		return part{sub: p.substitution(")"), hasSub: true, quoted: quoted}
	case p.peek("{"):
		p.i++
		return p.braced(quoted)
	}
	name := p.name()
	if name == "" {
		return part{text: "$", quoted: true}
	}
	return part{name: name, quoted: quoted}
}

func (p *parser) name() string {
	start := p.i
	for p.i < len(p.src) && isName(p.src[p.i]) {
		p.i++
		if c := p.src[start]; '0' <= c && c <= '9' {
			break
		}
	}
	if start == p.i && p.i < len(p.src) && strings.ContainsRune("@*#?!-", rune(p.src[p.i])) {
		p.i++
	}
	return p.src[start:p.i]
}

func isName(c byte) bool {
	return c == '_' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}

// braced reads ${…}. Of the operators only the defaults matter; a variable that is cut or replaced is taken whole.
func (p *parser) braced(quoted bool) part {
	if p.peek("#") && !p.peek("#}") { // a length
		p.past("}")
		return part{text: "0", quoted: true}
	}
	if p.peek("!") {
		p.i++
	}
	v := part{quoted: quoted, name: p.name()}
	start, depth := p.i, 1
	for p.i < len(p.src) && depth > 0 {
		switch p.src[p.i] {
		case '{':
			depth++
		case '}':
			depth--
		}
		p.i++
	}
	rest := strings.TrimSuffix(p.src[start:p.i], "}")
	for _, op := range []string{":-", ":=", "-", "="} {
		if text, ok := strings.CutPrefix(rest, op); ok {
			inner := &parser{src: text, nest: p.nest + 1}
			if inner.nest <= maxNest {
				v.alt = inner.word()
			}
			break
		}
	}
	return v
}

// substitution reads a list in place up to its bracket.
func (p *parser) substitution(close string) script {
	if p.nest++; p.nest > maxNest {
		p.i = len(p.src)
		return nil
	}
	heres := p.heres
	p.heres = nil
	s := p.list()
	for p.i < len(p.src) && !p.peek(close) { // a stray closing word
		p.i++
		s = append(s, p.list()...)
	}
	p.i = min(p.i+1, len(p.src))
	p.heres = heres
	p.nest--
	return s
}

func (p *parser) inner(text string) script {
	if p.nest >= maxNest {
		return nil
	}
	return parseShell(strings.NewReplacer("\\`", "`", `\\`, `\`, `\$`, `$`).Replace(text), p.nest+1)
}

// ansi reads the rest of $'…'.
func (p *parser) ansi() string {
	var out []byte
	for p.i < len(p.src) {
		c := p.src[p.i]
		p.i++
		if c == '\'' {
			break
		}
		if c != '\\' || p.i >= len(p.src) {
			out = append(out, c)
			continue
		}
		c = p.src[p.i]
		p.i++
		if c == 'x' {
			code, n := 0, 0
			for ; n < 2 && p.i < len(p.src) && hex(p.src[p.i]) >= 0; n++ {
				code = code<<4 | hex(p.src[p.i])
				p.i++
			}
			out = append(out, byte(code))
		} else if letter := unescape(c); letter != 0 {
			out = append(out, letter)
		} else {
			out = append(out, c)
		}
	}
	return string(out)
}
