package world

import (
	"bytes"
	"fmt"
	"net/http"
	"net/url"
	"strings"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

// maxDepth bounds the nesting of a body. A reply or a row may have it inside of
// something else, and that must still have a JSON form: or a caller could make an
// operation fail.
const maxDepth = 100

// A call is one request of the agent as it came.
type call struct {
	method string
	url    *url.URL
	body   []byte
	large  bool // more than MaxBody bytes; body is empty then
	key    string
}

// setBody takes a body of which at least the first MaxBody+1 bytes were read.
func (c *call) setBody(body []byte) {
	if len(body) > wire.MaxBody {
		c.large = true
		return
	}
	c.body = body
}

// refused says why c is no call at all: nobody could send it again, so it is not
// in the log, either.
func (c call) refused() (wire.Answer, bool) {
	if err := wire.CheckKey(c.key); err != nil {
		return wire.Refusal(http.StatusBadRequest, err.Error()), true
	}
	if !strings.HasPrefix(c.url.EscapedPath(), "/") {
		return wire.Refusal(http.StatusBadRequest, "a path begins with /"), true
	}
	if len(wire.Target(c.url.EscapedPath(), firstValues(c.url))) > wire.MaxTarget {
		return wire.Refusal(http.StatusRequestURITooLong, fmt.Sprintf("path and query have more than %d bytes", wire.MaxTarget)), true
	}
	return wire.Answer{}, false
}

// firstValues is the query; of a name given twice the first value.
func firstValues(u *url.URL) map[string]string {
	m := map[string]string{}
	for name, values := range u.Query() {
		m[name] = values[0]
	}
	return m
}

// A content is the body of a call as operations and the log have it.
type content struct {
	text []byte // canonical JSON; null if there is none, or it is no JSON
	raw  bool   // a reader of text gets another value than came
	err  error  // it is no JSON
}

func (c call) content() content {
	none := content{text: []byte("null")}
	if len(bytes.TrimSpace(c.body)) == 0 {
		return none
	}
	v, err := starlark.ParseJSON(c.body)
	var exact bool
	if err == nil {
		exact, err = survives(v, 0)
	}
	if err == nil {
		none.text, err = starlark.AppendJSON(nil, v)
	}
	if err != nil {
		return content{text: []byte("null"), err: err}
	}
	return content{text: none.text, raw: !exact || len(none.text) > wire.MaxBody}
}

// value is the body as an operation gets it, a new one each time, since operations
// may change it. Where nothing else is lost by it, objects have their members
// sorted: so a call from the log is the call that came.
func (c call) value(in content) (sl.Value, error) {
	if in.raw {
		return starlark.ParseJSON(c.body)
	}
	return starlark.ParseJSON(in.text)
}

// survives says whether v is the same after canonical JSON, but for the order of
// objects: 1.0, 1e3 and -0.0 are written as ints there.
func survives(v sl.Value, depth int) (bool, error) {
	if depth > maxDepth {
		return false, fmt.Errorf("nested deeper than %d", maxDepth)
	}
	var inner []sl.Value
	switch v := v.(type) {
	case sl.Float:
		text, err := starlark.AppendJSON(nil, v)
		return bytes.ContainsAny(text, ".e"), err
	case *sl.List:
		for i := range v.Len() {
			inner = append(inner, v.Index(i))
		}
	case *sl.Dict:
		for _, item := range v.Items() {
			inner = append(inner, item[1])
		}
	}
	all := true
	for _, v := range inner {
		exact, err := survives(v, depth+1)
		if err != nil {
			return false, err
		}
		all = all && exact
	}
	return all, nil
}
