package graph

import "strings"

// Kind says how an action runs. The values are part of keys: never renumber.
type Kind uint8

// The kinds of actions.
const (
	Evaluate Kind = 1 // a pure Starlark function of decoded inputs
	Write    Kind = 2 // fixed bytes
	Run      Kind = 3 // a process under a seal
	History  Kind = 4 // what draws.lock says of the draws that are its inputs
)

// String returns the kind's name as written in keys and explanations.
func (k Kind) String() string {
	switch k {
	case Evaluate:
		return "evaluate"
	case Write:
		return "write"
	case Run:
		return "run"
	case History:
		return "history"
	}
	return "unknown"
}

// RootMark stands in Args and Env of a run before the path of each input
// ("\x00/in/pkg/a.txt"). Under a seal it disappears; where the root can't be
// changed (--seal=none, macOS) it becomes the folder that stands for the root.
// No other NUL is in a run's words.
const RootMark = "\x00"

// Unmark gives a word of Args or Env as a sealed process sees it.
func Unmark(s string) string { return strings.ReplaceAll(s, RootMark, "") }

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

// Inside returns where a run finds the file below the root of its seal, without
// the leading slash: in/pkg/a.txt, in/pkg/target/out.txt, and for a file of
// another module in/external/repo/pkg/a.txt.
func (f *File) Inside() string {
	if f.Label.Repo != "" {
		return "in/external/" + f.Label.Repo + "/" + f.Slash()
	}
	return "in/" + f.Slash()
}

// Folder says whether the file is a folder that a run makes.
func (f *File) Folder() bool {
	return f.Action != nil && f.Action.Outputs[f.Index].Format == FormatFolder
}

// Same says whether two files are one: a source that two attributes name has a
// File in each.
func (f *File) Same(g *File) bool {
	return f == g || f.Source() && g.Source() && f.Label == g.Label
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
	Name   string // the name in the input tree: of a run File.Inside(), else the argument it is bound to
	File   *File
	Decode string // json, jsonl, text, rep: what the function is handed; "" of a run
	Codec  string // id@version of the Go code that decodes it, "" if fixed by Semantics
}

// A Param is one named parameter of an evaluate action.
type Param struct {
	Name  string
	Value Value
}

// An Output is one named output of an action.
type Output struct {
	// Name is the name in the result: of a run the path below the working
	// directory, else no path, so that a rename re-uses results.
	Name   string
	Format string // json, jsonl or text; of a run one of those below
	File   *File
}

// The formats of a run's outputs. With FormatExit, how the process ended is part
// of the result, whatever it was; without, only a success is a result.
const (
	FormatFile     = "file"
	FormatOptional = "optional file" // empty if the process doesn't make it
	FormatFolder   = "folder"

	// What the harness knows of the process. Their names are below FactsDir.
	FormatStdout = "stdout"
	FormatStderr = "stderr"
	FormatExit   = "exit"
	FormatEgress = "egress"
	FormatSeal   = "seal"
)

// FactsDir begins the names of outputs that the harness makes; no process can
// declare one there.
const FactsDir = ".eval/"

// Fact says whether the harness makes the output, and not the process.
func (o Output) Fact() bool { return strings.HasPrefix(o.Name, FactsDir) }

// Served says whether the action's server makes the output.
func (o Output) Served() bool { return strings.HasPrefix(o.Name, ServerDir) }

// StdinName is the name of the input that a run reads as its standard input. It
// is nowhere in the root of its seal.
const StdinName = "stdin"

// DrawPrefix begins the names of a history's inputs that are draws, each by one
// of its files.
const DrawPrefix = "draw/"

// A Sample says which draw of a stream a run is.
type Sample struct {
	Stream string
	Index  int // counted from 1
	Epoch  int
	Redraw int
	Block  string // digest of what both arms are given
}

// A Block is the arms that are drawn together: editing one re-draws all. Arms
// has the first run of each stream, in the order in which they are started in
// odd pairs; even pairs go the other way.
type Block struct{ Arms []*Action }

// Join adds a run to the block: the first of its stream stands for all.
func (b *Block) Join(a *Action) {
	for _, x := range b.Arms {
		if x.Sample.Stream == a.Sample.Stream {
			return
		}
	}
	b.Arms = append(b.Arms, a)
}

// Terms are what a draw is made on. None of them changes what it is.
type Terms struct {
	// USD is what a rep is expected to cost; nil: not known.
	USD *float64
	// Withdrawn: the rep is looked up if the lock has it, and never drawn; without
	// it all outputs are empty.
	Withdrawn bool
	// Reuse: reps of this stream that were drawn in an earlier block are kept.
	Reuse bool
}

// A Look is what a scoring looks at draws with: see draws.Looked.
type Look struct {
	N           int
	Fingerprint string // of the function that judges; "" if Tools judge
	Alpha       float64
	Effect      float64
	Margin      float64
}

// A Tool is a program that a run may start, with all that it needs on this
// machine's disk. What the key has of it are the mounts that it resolves to.
type Tool struct {
	Label   Label    // of the target that declares it, for errors
	Program string   // absolute path on this machine, or ""
	Input   string   // name of the input that is the program, or ""
	Own     string   // the name of a program that comes with the harness; then nothing else is set
	Data    []string // further files and folders of this machine, absolute
}

// Path returns the program's path as a word of Args: that of an input is below
// the root of the seal, one of this machine is the same with and without a seal.
func (t Tool) Path() string {
	if t.Own != "" {
		return "/" + t.Own
	}
	if t.Program != "" {
		return t.Program
	}
	return RootMark + "/" + t.Input
}

// Origins say where the parts of a text come from.
type Origins interface {
	// Rewrite replaces the positions in s that are of the text called name
	// ("name:LINE:COL") by those of its origins.
	Rewrite(name, s string) string
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

	Args   []string // Run: argv, with marks
	Env    []string // Run: NAME=value sorted, with marks
	Policy *Policy  // Run: the seal
	Sample *Sample  // Run: which draw; nil of a pure one
	Tools  []Tool   // Run: Tools[0] is the program of Args[0]. History: the program that judges
	Block  *Block   // Run: where the block of Sample comes from; nil: Sample has it
	Terms  *Terms   // Run: of a draw, else nil
	Look   *Look    // History
	Server *Server  // Run: what runs beside it, or nil

	Origins Origins // Write: where its content comes from, or nil
}

// Program says whether the input of this name is a tool's program: it is
// executable whatever its mode.
func (a *Action) Program(input string) bool {
	for _, t := range a.Tools {
		if t.Input == input && input != "" {
			return true
		}
	}
	return false
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
