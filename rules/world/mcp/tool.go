package mcp

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/evalbuild/eval/rules/world/wire"
)

// An Operation is what a tool is made of.
type Operation struct {
	Name      string   // of the tool: "payments_post_refunds"
	Pattern   string   // as declared: "POST /payments/refunds/{id}"
	Variables []string // of the path: "id"
	Doc       string
	Params    []Param // none: any argument goes
}

// A Param is an argument. Type is one of string, int, float, bool, json.
type Param struct {
	Name, Type string
	Optional   bool
}

// keyArgument is the Idempotency-Key of a call.
const keyArgument = "idempotency_key"

var reportTool = Operation{
	Name:   "report",
	Doc:    "Report the end of your work: whether the task was done, and a message. The last report counts.",
	Params: []Param{{"success", "bool", false}, {"message", "string", true}},
}

// schemaTypes are the types as JSON Schema names them; any value has none.
var schemaTypes = map[string]string{"string": "string", "int": "integer", "float": "number", "bool": "boolean", "json": ""}

// A tool is an operation with the arguments that it must have.
type tool struct {
	Operation
	required []string
	open     bool // further arguments are taken
}

func newTool(op Operation) (*tool, error) {
	t := &tool{Operation: op, open: len(op.Params) == 0}
	declared := map[string]bool{keyArgument: true}
	for _, p := range op.Params {
		if _, ok := schemaTypes[p.Type]; !ok {
			return nil, fmt.Errorf("parameter %s: there is no type %q", p.Name, p.Type)
		}
		if declared[p.Name] {
			return nil, fmt.Errorf("parameter %s: the name is taken", p.Name)
		}
		declared[p.Name] = true
		if !p.Optional && !slices.Contains(op.Variables, p.Name) {
			t.required = append(t.required, p.Name)
		}
	}
	t.Params = slices.Clone(op.Params)
	for _, name := range op.Variables {
		if name == keyArgument {
			return nil, fmt.Errorf("path variable %s: the name is taken", name)
		}
		t.required = append(t.required, name)
		if !declared[name] {
			t.Params = append(t.Params, Param{name, "string", false})
		}
	}
	t.Params = append(t.Params, Param{keyArgument, "string", true})
	return t, nil
}

// schema is the JSON Schema of the arguments.
func (t *tool) schema() map[string]any {
	properties := map[string]any{}
	for _, p := range t.Params {
		property := map[string]any{}
		if name := schemaTypes[p.Type]; name != "" {
			property["type"] = name
		}
		if p.Type == "int" {
			property["minimum"], property["maximum"] = -wire.MaxInt, wire.MaxInt
		}
		if p.Name == keyArgument {
			property["description"] = "The same key with the same arguments is carried out once."
		}
		properties[p.Name] = property
	}
	s := map[string]any{"type": "object", "properties": properties}
	if len(t.required) > 0 {
		s["required"] = t.required
	}
	if !t.open {
		s["additionalProperties"] = false
	}
	return s
}

// read decodes arguments and holds them against the schema, which the SDK leaves
// to its tools. Every error is one that the agent can act on.
func (t *tool) read(raw json.RawMessage) (map[string]any, error) {
	args := map[string]any{}
	if len(raw) > 0 {
		d := json.NewDecoder(bytes.NewReader(raw))
		d.UseNumber()
		if err := d.Decode(&args); err != nil {
			return nil, fmt.Errorf("%s: the arguments are an object", t.Name)
		}
	}
	if args == nil { // null
		args = map[string]any{}
	}
	for _, name := range t.required {
		if _, ok := args[name]; !ok {
			return nil, fmt.Errorf("%s: the argument %s is missing", t.Name, name)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(args)) {
		i := slices.IndexFunc(t.Params, func(p Param) bool { return p.Name == name })
		switch {
		case i < 0 && !t.open:
			return nil, fmt.Errorf("%s: there is no argument %s; there are %s", t.Name, name, t.names())
		case i >= 0 && t.Params[i].Optional && args[name] == nil: // as if it were left out
			delete(args, name)
		case i >= 0 && !fits(t.Params[i].Type, args[name]):
			return nil, fmt.Errorf("%s: the argument %s is of type %s", t.Name, name, t.Params[i].Type)
		}
	}
	return args, nil
}

func (t *tool) names() string {
	var names []string
	for _, p := range t.Params {
		names = append(names, p.Name)
	}
	return strings.Join(names, ", ")
}

// fits says whether v is of a parameter's type. An int is written without
// fraction and exponent, and is not beyond MaxInt.
func fits(kind string, v any) bool {
	switch kind {
	case "string":
		_, ok := v.(string)
		return ok
	case "bool":
		_, ok := v.(bool)
		return ok
	case "int":
		n, ok := v.(json.Number)
		i, err := n.Int64() // it takes neither . nor e
		return ok && err == nil && -wire.MaxInt <= i && i <= wire.MaxInt
	case "float":
		n, ok := v.(json.Number)
		_, fits := wire.Float(n.String())
		return ok && fits
	}
	return true // json
}
