package starlark

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/evalbuild/eval/rules"
)

// A chunk is one workspace in a file of testdata/rules. Chunks are separated
// by lines of dashes. One begins with a header:
//
//	# what it shows
//	set NAME=VALUE                what --set would set
//	want //pkg:name PATH TEXT     an output and its bytes (a Go string if quoted)
//	log TEXT                      what print() writes, in any order
//	rules                         @eval//rules: has the built-in rules
//
// and continues with the files, each below a line `=== path`; one whose only
// line is `USE path` is that of an earlier chunk of the file. A comment
// `### "regexp"` says that there is an error at its line, and its message; all
// errors are said. The other lines of an error's message are matched, too.
type chunk struct {
	name   string
	files  map[string]string
	config map[string]string
	wants  [][3]string
	logs   []string
	errors []*wantError
}

type wantError struct {
	file string
	line int
	re   *regexp.Regexp
	met  bool
}

var errorComment = regexp.MustCompile(`### (".*")$`)

func readChunks(t *testing.T, file string) []chunk {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var out []chunk
	shared := map[string]string{} // the last body of each path
	for text := range strings.SplitSeq("\n"+string(data), "\n---\n") {
		c := chunk{files: map[string]string{}, config: map[string]string{}}
		parts := strings.Split(text, "\n=== ")
		for line := range strings.SplitSeq(parts[0], "\n") {
			word, rest, _ := strings.Cut(line, " ")
			switch word {
			case "":
			case "#":
				c.name += rest + " "
			case "set":
				k, v, _ := strings.Cut(rest, "=")
				c.config[k] = v
			case "rules":
				addRules(c.files)
			case "log":
				c.logs = append(c.logs, rest)
			case "want":
				f := strings.SplitN(rest, " ", 3)
				if s, err := strconv.Unquote(f[2]); err == nil {
					f[2] = s
				} else {
					f[2] += "\n"
				}
				c.wants = append(c.wants, [3]string(f))
			default:
				t.Fatalf("%s: what is %q?", file, line)
			}
		}
		for _, p := range parts[1:] {
			name, body, _ := strings.Cut(p, "\n")
			if used, ok := strings.CutPrefix(strings.TrimSuffix(body, "\n"), "USE "); ok {
				body = shared[used]
			}
			shared[name] = body
			c.files[name] = body + "\n"
			for i, line := range strings.Split(body, "\n") {
				m := errorComment.FindStringSubmatch(line)
				if m == nil {
					continue
				}
				re, err := strconv.Unquote(m[1])
				if err != nil {
					t.Fatalf("%s: %s: %v", file, line, err)
				}
				c.errors = append(c.errors, &wantError{name, i + 1, regexp.MustCompile("(?s)" + re), false})
			}
		}
		out = append(out, c)
	}
	return out
}

// addRules adds the built-in rules, as the module eval.
func addRules(files map[string]string) {
	entries, _ := rules.Files.ReadDir(".")
	for _, e := range entries {
		data, _ := rules.Files.ReadFile(e.Name())
		files["@eval//rules/"+e.Name()] = string(data)
	}
}

// TestRules runs the chunks of testdata/rules.
func TestRules(t *testing.T) {
	names, _ := filepath.Glob("testdata/rules/*.star")
	if len(names) == 0 {
		t.Fatal("no testdata/rules")
	}
	for _, name := range names {
		for i, c := range readChunks(t, name) {
			t.Run(fmt.Sprintf("%s/%d", strings.TrimSuffix(filepath.Base(name), ".star"), i+1), func(t *testing.T) { c.run(t) })
		}
	}
}

func (c *chunk) run(t *testing.T) {
	defer func() {
		if t.Failed() {
			t.Logf("chunk: %s", c.name)
		}
	}()
	b := newBuild(c.files, c.config)
	targets, err := b.all()
	if err != nil {
		c.expect(t, err)
	}
	byLabel := map[string]*Target{}
	for _, x := range targets {
		byLabel[x.Label.String()] = x
	}
	if err == nil {
		for _, w := range c.wants {
			tgt := byLabel[w[0]]
			if tgt == nil {
				t.Fatalf("no target %s", w[0])
			}
			f := output(tgt, w[1])
			if f == nil {
				t.Fatalf("%s has no output %s", w[0], w[1])
			}
			got, err := b.content(f)
			if err != nil {
				c.expect(t, err)
			} else if string(got) != w[2] {
				t.Errorf("%s %s = %q, want %q", w[0], w[1], got, w[2])
			}
		}
	}
	for _, w := range c.errors {
		if !w.met {
			t.Errorf("%s:%d: no error that matches %q", w.file, w.line, w.re)
		}
	}
	slices.Sort(b.logs) // implementations run in parallel
	slices.Sort(c.logs)
	if got, want := strings.Join(b.logs, "\n"), strings.Join(c.logs, "\n"); got != want {
		t.Errorf("printed %q, want %q", got, want)
	}
}

var filePos = regexp.MustCompile(`^(.*?):(\d+):(\d+)$`)

// expect finds for each error the comment that foresees it.
func (c *chunk) expect(t *testing.T, err error) {
	t.Helper()
	var list Errors
	var one *Error
	switch {
	case errors.As(err, &one):
		list = Errors{one}
	case errors.As(err, &list):
	default:
		t.Fatalf("an error without a position: %v", err)
	}
next:
	for _, e := range list {
		m := filePos.FindStringSubmatch(e.Pos)
		if m == nil {
			t.Errorf("%q is no file:line:col: %s", e.Pos, e.Msg)
			continue
		}
		line, _ := strconv.Atoi(m[2])
		if strings.HasPrefix(m[1], "@") { // other modules' files are named by label
			m[1] = strings.Replace(strings.Replace(m[1], "//:", "//", 1), ":", "/", 1)
		}
		for _, w := range c.errors {
			if w.file == m[1] && w.line == line && w.re.MatchString(e.Msg) {
				w.met = true
				continue next
			}
		}
		t.Errorf("unexpected error: %v", e)
	}
}
