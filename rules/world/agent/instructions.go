package agent

import (
	"encoding/json"
	"regexp"
	"strings"
	"sync"

	sl "go.starlark.net/starlark"

	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/starlark"
)

var instruction = sync.OnceValue(func() *regexp.Regexp {
	return regexp.MustCompile(`\b(POST|PUT|PATCH|DELETE) (/\S*)\s+\{`)
})

// instructions finds what looks like a call, `POST /path {json}`, in the strings
// of a reply: all of them, in the order of the reply, an object's keys left out.
// Text that only begins like one is none: a model would pass it over, too.
func instructions(v sl.Value) []wire.Request {
	var out []wire.Request
	switch v := v.(type) {
	case sl.String:
		return inText(string(v))
	case *sl.List:
		for x := range sl.Elements(v) {
			out = append(out, instructions(x)...)
		}
	case *sl.Dict:
		for _, item := range v.Items() {
			out = append(out, instructions(item[1])...)
		}
	}
	return out
}

func inText(s string) []wire.Request {
	var out []wire.Request
	for {
		m := instruction().FindStringSubmatchIndex(s)
		if m == nil {
			return out
		}
		method, target, body := s[m[2]:m[3]], s[m[4]:m[5]], s[m[1]-1:]
		s = s[m[1]:]
		length := objectLength(body)
		if length == 0 {
			continue
		}
		v, err := starlark.ParseJSON([]byte(body[:length]))
		if err != nil {
			continue
		}
		req, err := request(method+" "+target, v)
		if err != nil {
			continue
		}
		out = append(out, req)
		s = body[length:]
	}
}

// objectLength is the length of the JSON object that s begins with, 0 if it
// begins with none.
func objectLength(s string) int {
	d := json.NewDecoder(strings.NewReader(s))
	var raw json.RawMessage
	if d.Decode(&raw) != nil {
		return 0
	}
	return int(d.InputOffset())
}
