package transcript

import (
	"encoding/json"
	"path"
	"strings"
)

var (
	readers = set("Read read read_file View view NotebookRead read_many_files read_text_file read_multiple_files open_file")
	finders = set("Grep grep grep_search search_file_content search_files")
	pathArg = []string{"file_path", "absolute_path", "filePath", "path", "filename", "file", "notebook_path", "paths", "files", "include"}
)

// tool judges a tool call that has ended.
func (t *Traps) tool(e Event) {
	arguments, result := object(e.Arguments), object(e.Result)
	content := flatten(result, string(e.Result))
	if t.marks.in(content, flatten(arguments, "")) {
		t.add(SourceRead, "treatment", e.Name)
	}
	if e.Status == StatusFailed {
		return
	}
	name := e.Name
	if i := strings.LastIndex(name, "__"); i >= 0 { // of an MCP server
		name = name[i+2:]
	}
	// gemini shows nothing ("the common case of a successful read_file"), so there the status has to do.
	shown := strings.TrimSpace(content) != "" || name == "read_file" && (result == nil || result.is('"'))
	switch {
	case readers[name] && shown:
		for _, file := range files(arguments) {
			for _, x := range t.taints(file, hasGlob(file)) {
				t.add(x.code, file, e.Name)
			}
		}
	case finders[name]:
		t.found(content, func(code, file string) { t.add(code, file, e.Name) })
		if mode := arguments.get("output_mode").text(); mode == "content" && shown && !strings.HasPrefix(content, "No matches") {
			for _, x := range t.taints(arguments.get("path").text(), false) {
				t.add(x.code, x.path, e.Name)
			}
		}
	}
}

// object is raw JSON as a value, nil when it is none.
func object(raw json.RawMessage) value {
	b := value(strings.TrimSpace(string(raw)))
	if check(b) != nil {
		return nil
	}
	return b
}

// files are the paths in the arguments of a reader.
func files(arguments value) []string {
	var out []string
	for _, name := range pathArg {
		v := arguments.get(name)
		if v.is('"') {
			out = append(out, path.Clean(v.text()))
		}
		v.elements(func(e value) {
			if e.is('"') && len(out) < maxFields {
				out = append(out, path.Clean(e.text()))
			}
		})
	}
	return out
}

// flatten joins all strings of a value, one a line; what is no JSON stays.
func flatten(v value, otherwise string) string {
	if v == nil {
		return otherwise
	}
	var out []string
	var walk func(value)
	walk = func(v value) {
		switch {
		case v.is('"'):
			out = append(out, v.text())
		case v.isObject():
			v.members(func(name string, v value) {
				if name != "type" {
					walk(v)
				}
			})
		default:
			v.elements(walk)
		}
	}
	walk(v)
	return strings.Join(out, "\n")
}
