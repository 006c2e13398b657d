package main

import (
	"os"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/world/agent"
	"github.com/evalbuild/eval/rules/world/wire"
)

// replyTime is how long a client waits for a reply. A world answers in
// milliseconds or cuts: silence is a fault of the machine.
const replyTime = 30 * time.Second

// urlVariable names the server to the clients.
const urlVariable = "EVAL_WORLD_URL"

// worldClient makes the client of the world that this process is an agent or an
// extractor of.
func worldClient() (*wire.Client, error) {
	url := os.Getenv(urlVariable)
	if url == "" {
		return nil, usageErrorf("find the world: %s is not set", urlVariable)
	}
	return wire.NewClient(url, replyTime)
}

func agentCommand() *cli.Command {
	return &cli.Command{
		Name:  "agent",
		Usage: "a scripted agent, under the profile that its file says",
		Flags: []cli.Flag{fileFlag("agent", "script, profile, task, request")},
		Action: func(c *cli.Context) error {
			name, text, err := readFlag(c, "agent")
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
			return def.Run(c.Context, world, printLine)
		},
	}
}
