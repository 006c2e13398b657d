// Command eval-world is the world that an agent acts in, for one act of a
// scenario. `ev` starts it; files are given by flags, outputs are written in the
// working directory. The clients of a world are in eval-play, which needs no
// databases and starts in a fraction of the time.
//
// Its standard input is a unix socket: the first message on it carries the
// listener to serve on, and its end says that the agent has ended.
package main

import (
	"os"

	"github.com/evalbuild/eval/rules/world/program"
	"github.com/evalbuild/eval/workspace/graph"
)

func main() {
	os.Exit(program.Main(program.Program{
		Name:     graph.WorldProgram,
		Usage:    "a simulated enterprise",
		Commands: []program.Command{serveCommand},
	}))
}
