// Command eval-play plays the parts of a scenario but for the world itself: a
// scripted agent, a recorded run, recorded events, the extractor. `ev` starts it;
// files are given by flags, outputs are written in the working directory.
//
// A scenario starts it three times, and what a start takes is mostly what is
// linked: so nothing is that only a world needs, which is eval-world.
package main

import (
	"os"

	"github.com/evalbuild/eval/rules/world/program"
	"github.com/evalbuild/eval/workspace/graph"
)

func main() {
	os.Exit(program.Main(program.Program{
		Name:     graph.PlayProgram,
		Usage:    "the agents and extractors of a simulated enterprise",
		Commands: []program.Command{agentCommand, replayCommand, eventsCommand, extractCommand},
	}))
}
