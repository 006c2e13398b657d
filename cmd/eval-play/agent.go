package main

import (
	"context"
	"os"
	"time"

	"github.com/evalbuild/eval/rules/world/agent"
	"github.com/evalbuild/eval/rules/world/program"
	"github.com/evalbuild/eval/rules/world/wire"
	"github.com/evalbuild/eval/workspace/graph"
)

// replyTime is how long a client waits for a reply. A world answers in
// milliseconds or cuts: silence is a fault of the machine.
const replyTime = 30 * time.Second

// worldClient makes the client of the world that this process is an agent or an
// extractor of.
func worldClient() (*wire.Client, error) {
	url := os.Getenv(graph.ServerURL)
	if url == "" {
		return nil, program.UsageErrorf("find the world: %s is not set", graph.ServerURL)
	}
	return wire.NewClient(url, replyTime)
}

var agentCommand = program.Command{
	Name:  "agent",
	Usage: "a scripted agent, under the profile that its file says",
	Files: []program.File{{Name: "agent", Usage: "script, profile, task, request"}},
	Run: func(ctx context.Context, c *program.Call) error {
		name, text, err := c.Read("agent")
		if err != nil {
			return err
		}
		def, err := agent.Open(name, text)
		if err != nil {
			return err
		}
		world, err := worldClient()
		if err != nil {
			return err
		}
		return def.Run(ctx, world, program.Print)
	},
}
