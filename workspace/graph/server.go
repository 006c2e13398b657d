package graph

import (
	"strconv"
	"time"
)

// A Server is a process beside a run's own, in a seal of its own: the world
// that an agent acts in. The two share one socket: it listens on Port of the
// run's loopback, and the server accepts. Its inputs and outputs are those of
// the action whose names begin with ServerDir.
//
// The program is one that comes with the harness. In the key of a pure run it is
// by digest; of a draw, by WorldVersion, so that another build of the harness
// doesn't orphan what was paid for.
type Server struct {
	Program string   // WorldProgram or PlayProgram
	Args    []string // after the program, with marks
	Port    uint16
	Policy  Policy
}

// ServerDir begins the names of a server's inputs and outputs; what follows is
// as in any run: in/pkg/a.txt, out.json.
const ServerDir = ".server/"

// ServerTarget stands in a policy's forwards for the action's server.
const ServerTarget = "server"

// ServerURL is the variable that tells a run where its server is.
const ServerURL = "EVAL_WORLD_URL"

// The programs that come with the harness, beside it. Inside, each is in the
// root under its name.
const (
	WorldProgram = "eval-world" // systems of record, for agents
	PlayProgram  = "eval-play"  // scripted agents, recorded runs and events, the extractor
)

// WorldVersion is the version of what a world does with one definition, one
// scenario and the same requests. It is in the key of runs that draw. Raise it
// on purpose only, when an old capture could be wrong.
const WorldVersion = 1

// serverGrace is what a server has beyond its run's time: to begin before it, and
// to write down what there was.
const serverGrace = time.Minute

// ServerLimits are those of the server of a run with such limits. It outlives the
// run whatever that does: a run that is stopped by its limit is a result. What it
// keeps of one is bounded by itself, below these.
func ServerLimits(run Limits) Limits {
	l := DefaultLimits
	l.Memory, l.Output, l.Wall = 2<<30, 256<<20, run.Wall+serverGrace
	return l
}

// walk visits what the key has of a server but for its inputs; program says
// that those have its program.
func (s *Server) walk(w writer, program bool) {
	w.field("server program", []byte(s.Program), s.Program, "")
	for i, arg := range s.Args {
		w.field("server arg "+strconv.Itoa(i), []byte(Unmark(arg)), Unmark(arg), "")
	}
	w.field("server port", []byte(strconv.Itoa(int(s.Port))), strconv.Itoa(int(s.Port)), "")
	s.Policy.walk(named{w, "server "})
	if !program {
		w.field("world version", []byte(strconv.Itoa(WorldVersion)), strconv.Itoa(WorldVersion), "")
	}
}

// named puts a word before the names of fields.
type named struct {
	writer
	prefix string
}

func (n named) field(name string, value []byte, text, note string) {
	n.writer.field(n.prefix+name, value, text, note)
}
