package world

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// AppendJSON appends the list as GET /tools gives it.
func (ops Operations) AppendJSON(b []byte) ([]byte, error) {
	var out []sl.Value
	for _, op := range ops {
		params := mapping()
		for _, p := range op.Params {
			if err := params.SetKey(sl.String(p.Name), sl.String(p.Declared())); err != nil {
				return nil, err
			}
		}
		out = append(out, mapping("name", sl.String(op.Name), "operation", sl.String(op.Pattern), "description", sl.String(op.Doc), "params", params))
	}
	return starlark.AppendJSON(b, sl.NewList(out))
}

// Do makes a call that didn't come by HTTP, of MCP say, with the same chaos, log
// and clock. operation is a declared pattern; args are path variables, and
// fields of the query (GET) or of the body. body is JSON. Without delivered the
// caller must see a broken connection. A call that has begun is executed even if
// its caller goes away, as one by HTTP is.
func (a *Act) Do(operation string, args map[string]any, key string) (status int, body any, delivered bool) {
	c, err := newCall(operation, args, key)
	if err != nil {
		rep := wire.Refusal(http.StatusBadRequest, err.Error())
		return rep.Status, json.RawMessage(rep.Body), true
	}
	out := a.answer(c)
	if out.Cut {
		return 0, nil, false
	}
	return out.Status, json.RawMessage(out.Body), true
}

func newCall(operation string, args map[string]any, key string) (call, error) {
	method, path, _ := strings.Cut(operation, " ")
	rest, query := mapping(), url.Values{}
	segments := strings.Split(path, "/")
	for i, seg := range segments {
		name, is := variable(seg)
		if !is {
			continue
		}
		v, ok := args[name]
		if !ok {
			return call{}, fmt.Errorf("%s is missing", name)
		}
		text, err := asText(v)
		if err != nil || text == "" {
			return call{}, fmt.Errorf("%s is empty, or no text", name)
		}
		segments[i] = url.PathEscape(text)
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		v := args[name]
		if slices.Contains(strings.Split(path, "/"), "{"+name+"}") {
			continue
		}
		data, err := json.Marshal(v)
		if err != nil {
			return call{}, fmt.Errorf("%s: %w", name, err)
		}
		value, err := starlark.ParseJSON(data)
		if err != nil {
			return call{}, fmt.Errorf("%s: %w", name, err)
		}
		if err := rest.SetKey(sl.String(name), value); err != nil {
			return call{}, err
		}
		if text, err := asText(v); err == nil {
			query.Set(name, text)
		}
	}
	u, err := url.ParseRequestURI(strings.Join(segments, "/"))
	if err != nil {
		return call{}, fmt.Errorf("the operation %q is unknown", operation)
	}
	c := call{method: method, url: u, key: key}
	if method == http.MethodGet {
		u.RawQuery = query.Encode()
	} else if rest.Len() > 0 {
		body, err := starlark.AppendJSON(nil, rest)
		if err != nil {
			return call{}, err
		}
		c.setBody(body)
	}
	return c, nil
}

// asText is a string as it is, and anything else as JSON.
func asText(v any) (string, error) {
	if s, ok := v.(string); ok {
		return s, nil
	}
	b, err := json.Marshal(v)
	return string(b), err
}
