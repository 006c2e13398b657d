package escape

import (
	"slices"
	"strings"
)

// A row is one attempt. Words that may come of it are separated by |.
type row struct {
	item    int
	name    string
	in      program
	try     string // words for attempt, or code
	want    string // inside
	control control

	seal  string   // arguments of seal(…); "" is the default one
	fails string   // the action fails, and says this
	soft  string   // comes of it instead where no cgroup bounds memory and processes
	outs  []string // besides the result
	twice bool     // a second time counts: the first prepares
}

// unbounded is a row's soft where the seal promises nothing without a cgroup,
// which its record says.
const unbounded = "unbounded"

type program string

const (
	native program = "attempt"
	shell  program = "sh"
	bash   program = "bash"
	python program = "python"
)

// A control says for whom the attempt succeeds outside, and what it says then.
type control struct {
	who   who
	ok    string
	lacks string // says the kernel or machine that has nothing to attack
	why   string // there is none
}

type who uint8

const (
	asRoot who = 1 << iota
	asUser
)

func (w who) String() string {
	return map[who]string{asRoot: "root", asUser: "user", asRoot | asUser: "both", 0: "none"}[w]
}

func root(ok string) control { return control{who: asRoot, ok: ok} }
func user(ok string) control { return control{who: asUser, ok: ok} }
func both(ok string) control { return control{who: asRoot | asUser, ok: ok} }

// none is of a row without a control.
func none(why string) control { return control{why: why} }

// unless names what comes of the attempt where there is nothing to attack.
func (c control) unless(lacks string) control { c.lacks = lacks; return c }

// is says whether a result is one of the words.
func is(result, words string) bool {
	return words != "" && slices.Contains(strings.Split(words, "|"), result)
}

// rows is the table.
func rows() []row {
	return slices.Concat(fileRows, deviceRows, processRows, limitRows, kernelRows, socketRows, outputRows, leakRows, shellRows, pythonRows)
}

// untried are the items that have no row, or more than one, and why.
var untried = map[string]string{
	"6":     "TestLinkSwapped: it happens between two steps of the harness",
	"9":     "TestOutputsAreData: the attempt is on the next build",
	"19-21": "TestSurvivors and TestKilled: facts of results, and of the harness's death",
	"45":    "no set-id helper is installed, by design: TestNothingPrivileged",
	"51":    "TestEgress",
	"54-64": "sandbox/egress; a handful through a process in TestEgress",
	"66":    "TestEgress",
	"67":    "out of reach of any seal: what a provider runs on its side; each record says so",
	"71":    "TestSurvivors: a survivor writes to the end",
	"79":    "TestNoSeal",
	"80":    "TestNothingByPath",
}
