package workspace

import (
	"fmt"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"
	"go.starlark.net/syntax"

	"github.com/evalbuild/eval/workspace/graph"
)

// call is a call of a builtin of MODULE.star. sl.UnpackArgs would do but for
// positions: it can't say which argument is wrong, only which call.
type call struct {
	builtin string
	expr    *syntax.CallExpr // of another function in sorted(x, key = module)
	at      syntax.Position
	args    map[string]sl.Value
}

// bind takes the arguments of a call, all by keyword and all of the given names.
func (m *moduleFile) bind(t *sl.Thread, b *sl.Builtin, args sl.Tuple, kwargs []sl.Tuple, names ...string) (*call, error) {
	c := &call{builtin: b.Name(), args: map[string]sl.Value{}}
	for i := 1; i < t.CallStackDepth(); i++ { // sorted(x, key = module) has a builtin between
		if c.at = t.CallFrame(i).Pos; c.at.Filename() == ModuleFile {
			break
		}
	}
	if c.expr = m.calls[place{c.at.Line, c.at.Col}]; c.expr != nil {
		c.at, _ = c.expr.Span()
	}
	if len(args) > 0 {
		return nil, c.errorf("", "takes keyword arguments only, as in %s(name = \"x\")", b.Name())
	}
	for _, kv := range kwargs {
		name := string(kv[0].(sl.String))
		if !slices.Contains(names, name) {
			return nil, c.errorf(name, "unexpected argument %q%s", name, graph.DidYouMean(name, names))
		}
		if c.has(name) { // by name and by **
			return nil, c.errorf(name, "the argument %q is given twice", name)
		}
		c.args[name] = kv[1]
	}
	return c, nil
}

func (c *call) has(arg string) bool { return c.args[arg] != nil }

// pos is where an argument is written, or where the call begins.
func (c *call) pos(arg string) syntax.Position {
	if c.expr == nil {
		return c.at
	}
	for _, a := range c.expr.Args {
		if kw, ok := a.(*syntax.BinaryExpr); ok && kw.Op == syntax.EQ {
			if id, ok := kw.X.(*syntax.Ident); ok && id.Name == arg {
				return id.NamePos
			}
		}
	}
	return c.at
}

func (c *call) errorf(arg, format string, args ...any) *moduleError {
	return &moduleError{pos: c.pos(arg), text: c.builtin + ": " + fmt.Sprintf(format, args...)}
}

func (c *call) text(arg, otherwise string) (string, error) {
	v := c.args[arg]
	if v == nil {
		return otherwise, nil
	}
	s, ok := sl.AsString(v)
	if !ok {
		return "", c.errorf(arg, "%s: got %s, want string", arg, v.Type())
	}
	return s, nil
}

func (c *call) texts(arg string) ([]string, error) {
	v := c.args[arg]
	if v == nil {
		return nil, nil
	}
	list, ok := v.(*sl.List)
	if !ok {
		return nil, c.errorf(arg, "%s: got %s, want list of strings", arg, v.Type())
	}
	var out []string
	for e := range list.Elements() {
		s, ok := sl.AsString(e)
		switch {
		case !ok:
			return nil, c.errorf(arg, "%s[%d]: got %s, want string", arg, len(out), e.Type())
		case strings.TrimSpace(s) == "":
			return nil, c.errorf(arg, "%s[%d] is empty", arg, len(out))
		case slices.Contains(out, s):
			return nil, c.errorf(arg, "%s: %q is given twice", arg, s)
		}
		out = append(out, s)
	}
	return out, nil
}

// name takes the argument of that name, which each builtin has.
func (c *call) name() (string, error) {
	if !c.has("name") {
		return "", c.errorf("", "the argument name is missing")
	}
	s, err := c.text("name", "")
	if err != nil {
		return "", err
	}
	if !moduleName.MatchString(s) || s == "." || s == ".." {
		return "", c.errorf("name", "name = %q: want letters, digits, '_', '-' and '.'", s)
	}
	return s, nil
}
