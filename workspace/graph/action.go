package graph

// Kind says how an action runs. The values are part of keys: never renumber.
type Kind uint8

// The kinds of actions.
const (
	Evaluate Kind = 1 // a pure Starlark function of decoded inputs
	Write    Kind = 2 // fixed bytes
)

// String returns the kind's name as written in keys and explanations.
func (k Kind) String() string {
	switch k {
	case Evaluate:
		return "evaluate"
	case Write:
		return "write"
	}
	return "unknown"
}

// A File is a source below the root of a repository (Action is nil, Label
// names it) or one output of an action (Label is the owner's, Path is below
// the owner's output folder).
type File struct {
	Label  Label
	Path   string
	Action *Action
	Index  int // position among the action's outputs
}

// Source says whether the file is a source and no output.
func (f *File) Source() bool { return f.Action == nil }

// Slash returns where the file is: below the root of its repository for a
// source, below eval-out for an output.
func (f *File) Slash() string {
	if f.Source() {
		return f.Label.Path()
	}
	return f.Label.Path() + "/" + f.Path
}

// A Value is a frozen value that takes part in a key: a function or a
// parameter. The language implements it; this package only needs what to
// write into a key and what to tell a reader.
type Value interface {
	// Digest identifies the value by meaning: equal digests, equal values.
	Digest() [32]byte
	// Text is a short readable form, one line, for explanations.
	Text() string
}

// A Part is one function that a Value reaches, with a digest of its own
// syntax.
type Part struct{ Name, Code string }

// An Input is one named input of an action.
type Input struct {
	Name   string // the name in the input tree and the argument it is bound to
	File   *File
	Decode string // json, jsonl, text, rep: what the function is handed
	Codec  string // id@version of the Go code that decodes it, "" if fixed by Semantics
}

// A Param is one named parameter of an evaluate action.
type Param struct {
	Name  string
	Value Value
}

// An Output is one named output of an action.
type Output struct {
	Name   string // the name in the result; no path, so that a rename re-uses results
	Format string // json, jsonl or text
	File   *File
}

// An Action is one step of a build. It is immutable once analysis has ended.
// A new field is in the key (walk) or is not; fieldClasses in the tests wants
// to know.
type Action struct {
	Kind     Kind
	Mnemonic string // for people: Discriminate, Score
	Owner    Label

	Fn      Value // Evaluate: the function
	Inputs  []Input
	Params  []Param
	Sharing []byte // which parts of Fn and Params are one object, where programs can see it
	Content []byte // Write: the bytes
	Outputs []Output

	Semantics string // versions of the interpreter and its dialect
	StepLimit uint64 // Starlark steps
}

// A Slot is the place in a workspace that an action fills.
type Slot struct {
	Owner Label
	Path  string // of the first output, below the owner's output folder
}

// Slot returns the action's slot.
func (a *Action) Slot() Slot { return Slot{Owner: a.Owner, Path: a.Outputs[0].File.Path} }

// String returns the slot as //pkg:name path.
func (s Slot) String() string { return s.Owner.String() + " " + s.Path }
