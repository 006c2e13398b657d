package starlark

import (
	"fmt"
	"os"
	"strings"
	"testing"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/rules"
)

// TestEdits edits real code, one place at a time: every literal, operator,
// attribute, keyword and statement inside of a function. The local encodings
// of the functions around the place must change, and no other's.
func TestEdits(t *testing.T) {
	sources := map[string]string{}
	for _, name := range []string{"probe.star", "producer.star", "action.star"} {
		b, err := rules.Files.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		sources[name] = string(b)
	}
	all, err := os.ReadFile("testdata/syntax.star")
	if err != nil {
		t.Fatal(err)
	}
	sources["syntax.star"] = string(all)
	edits := 0
	for name, src := range sources {
		stride := 1 + len(src)/2000 // an edit takes as long as the file is
		if testing.Short() || raceEnabled {
			stride *= 5
		}
		edits += editAll(t, name, src, stride)
	}
	if edits < 100 {
		t.Errorf("%d edits only", edits)
	}
}

// anyName makes every name that a file doesn't define a predeclared one.
func anyName(string) bool { return true }

// A span is a function of a file: its encoding, and where its body is.
type span struct {
	name       string
	code       string
	start, end int
}

// spans lists the functions in the order of the text, or fails like the parser.
func spans(name, src string) ([]span, *syntax.File, error) {
	f, program, err := sl.SourceProgramOptions(dialect, name, src, anyName)
	if err != nil {
		return nil, nil, err
	}
	codes := map[codeKey]string{}
	err = indexCode(f, program, func(k codeKey, c *code) {
		codes[k] = fmt.Sprintf("%x %v", c.bytes, c.refs)
	})
	if err != nil {
		return nil, nil, err
	}
	var out []span
	add := func(name string, pos syntax.Position, first, last syntax.Node) {
		start, _ := first.Span()
		_, end := last.Span()
		out = append(out, span{name, codes[codeKey{program, pos.Line, pos.Col}], offset(src, start), offset(src, end)})
	}
	syntax.Walk(f, func(n syntax.Node) bool {
		switch n := n.(type) {
		case *syntax.DefStmt:
			add(n.Name.Name, n.Def, n.Body[0], n.Body[len(n.Body)-1])
		case *syntax.LambdaExpr:
			add("lambda", n.Lambda, n.Body, n.Body)
		}
		return true
	})
	return out, f, nil
}

// offset turns a position, which counts characters, into a byte offset.
func offset(src string, p syntax.Position) int {
	at := 0
	for range p.Line - 1 {
		at += strings.IndexByte(src[at:], '\n') + 1
	}
	for range p.Col - 1 {
		_, n := firstRune(src[at:])
		at += n
	}
	return at
}

func firstRune(s string) (rune, int) {
	for i, r := range s {
		if i > 0 {
			return r, i
		}
	}
	return 0, len(s)
}

func editAll(t *testing.T, name, src string, stride int) int {
	before, f, err := spans(name, src)
	if err != nil {
		t.Fatal(err)
	}
	n, turn := 0, 0
	try := func(what string, start, end int, text string) {
		if turn++; turn%stride != 0 {
			return
		}
		edited := src[:start] + text + src[end:]
		after, _, err := spans(name, edited)
		if err != nil || len(after) != len(before) {
			return // not a program, or a function is gone
		}
		n++
		for i, s := range before {
			around := s.start <= start && end <= s.end
			// A name or a statement may bind what other functions use.
			binds := what == "name" || what == "statement"
			if changed := after[i].code != s.code; changed != around && !(binds && changed) {
				line := strings.Count(src[:start], "\n") + 1
				t.Errorf("%s:%d: %s %q → %q: the code of %s changed: %v, want %v", name, line, what, src[start:end], text, s.name, changed, around)
			}
		}
	}
	replace := func(what string, n syntax.Node, text string) {
		start, end := n.Span()
		try(what, offset(src, start), offset(src, end), text)
	}
	operators := map[syntax.Token]string{
		syntax.PLUS: "-", syntax.MINUS: "+", syntax.STAR: "//", syntax.SLASHSLASH: "*", syntax.SLASH: "*", syntax.PERCENT: "*",
		syntax.LT: "<=", syntax.GT: ">=", syntax.LE: "<", syntax.GE: ">", syntax.EQL: "!=", syntax.NEQ: "==",
		syntax.AND: "or ", syntax.OR: "and", syntax.PIPE: "&", syntax.AMP: "|", syntax.LTLT: ">>", syntax.GTGT: "<<", syntax.IN: "==", syntax.CIRCUMFLEX: "|",
		syntax.PLUS_EQ: "-=", syntax.MINUS_EQ: "+=", syntax.EQ: "+=", syntax.STAR_EQ: "+=",
	}
	operator := func(pos syntax.Position, op syntax.Token) {
		if text, ok := operators[op]; ok {
			at := offset(src, pos)
			try("operator", at, at+len(op.String()), text)
		}
	}
	keywords := map[*syntax.Ident]bool{}
	syntax.Walk(f, func(x syntax.Node) bool {
		switch x := x.(type) {
		case *syntax.ExprStmt:
			if _, ok := x.X.(*syntax.Literal); ok {
				return false // a docstring
			}
		case *syntax.Literal:
			replace("literal", x, "4711")
			replace("literal", x, "b'other'")
		case *syntax.BinaryExpr:
			if x.Op != syntax.EQ {
				operator(x.OpPos, x.Op)
			}
		case *syntax.UnaryExpr:
			if x.Op == syntax.MINUS || x.Op == syntax.TILDE {
				at := offset(src, x.OpPos)
				try("operator", at, at+1, "+")
			}
		case *syntax.AssignStmt:
			operator(x.OpPos, x.Op)
		case *syntax.DotExpr:
			replace("attribute", x.Name, x.Name.Name+"_x")
		case *syntax.CallExpr:
			for _, a := range x.Args {
				if b, ok := a.(*syntax.BinaryExpr); ok && b.Op == syntax.EQ {
					keywords[b.X.(*syntax.Ident)] = true
					replace("keyword", b.X, b.X.(*syntax.Ident).Name+"_x")
				}
			}
			if len(x.Args) > 1 {
				replace("last argument", x.Args[len(x.Args)-1], "*x_")
			}
		case *syntax.SliceExpr:
			for _, part := range []syntax.Expr{x.Lo, x.Hi, x.Step} {
				if part != nil {
					replace("slice", part, "x_")
				}
			}
		case *syntax.CondExpr:
			replace("condition", x.Cond, "x_")
			replace("then", x.True, "x_")
			replace("else", x.False, "x_")
		case *syntax.IfStmt:
			replace("condition", x.Cond, "x_")
		case *syntax.ForStmt:
			replace("iterable", x.X, "x_")
		case *syntax.ForClause:
			replace("iterable", x.X, "x_")
		case *syntax.IfClause:
			replace("condition", x.Cond, "x_")
		case *syntax.IndexExpr:
			replace("index", x.Y, "x_")
			replace("indexed", x.X, "x_")
		case *syntax.DictEntry:
			replace("key", x.Key, "x_")
			replace("value", x.Value, "x_")
		case *syntax.ListExpr:
			for _, e := range x.List {
				replace("element", e, "x_")
			}
		case *syntax.TupleExpr:
			for _, e := range x.List {
				replace("element", e, "x_")
			}
		case *syntax.Ident:
			if b := x.Name; !keywords[x] && b != "x_" {
				replace("name", x, "x_")
			}
		case *syntax.BranchStmt:
			text := map[syntax.Token]string{syntax.BREAK: "continue", syntax.CONTINUE: "break", syntax.PASS: "x_()"}[x.Token]
			at := offset(src, x.TokenPos)
			try("branch", at, at+len(x.Token.String()), text)
		}
		return true
	})
	// Statements, as they stand in lists.
	drop := func(list []syntax.Stmt) {
		for _, s := range list {
			if x, ok := s.(*syntax.ExprStmt); ok {
				if _, ok := x.X.(*syntax.Literal); ok {
					continue
				}
			}
			if b, ok := s.(*syntax.BranchStmt); !ok || b.Token != syntax.PASS {
				replace("statement", s, "pass")
			}
		}
	}
	syntax.Walk(f, func(x syntax.Node) bool {
		switch x := x.(type) {
		case *syntax.DefStmt:
			drop(x.Body)
		case *syntax.IfStmt:
			drop(x.True)
			if len(x.False) != 1 || !isIf(x.False[0]) { // elif is no statement of its own
				drop(x.False)
			}
		case *syntax.ForStmt:
			drop(x.Body)
		}
		return true
	})
	// And what means nothing.
	for i, line := range newlines(src) {
		if i%stride != 0 {
			continue
		}
		edited := src[:line] + "  # a comment" + src[line:]
		after, _, err := spans(name, edited)
		if err != nil {
			continue
		}
		for i, s := range before {
			if after[i].code != s.code && !strings.Contains(edited[s.start:s.end], `"""`) {
				t.Errorf("%s: a comment changed %s", name, s.name)
			}
		}
	}
	return n
}

func isIf(s syntax.Stmt) bool { _, ok := s.(*syntax.IfStmt); return ok }

func newlines(src string) (out []int) {
	for i := range len(src) {
		if src[i] == '\n' {
			out = append(out, i)
		}
	}
	return out
}
