package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/world/agent"
)

func replayCommand() *cli.Command {
	return &cli.Command{
		Name:  "replay",
		Usage: "a recorded run as the agent; writes replay.json: the replies that differ",
		Flags: []cli.Flag{fileFlag("run", "run.jsonl of an act")},
		Action: func(c *cli.Context) error {
			name, text, err := readFlag(c, "run")
			if err != nil {
				return err
			}
			rec, err := agent.ParseRecord(text)
			if err != nil {
				return fmt.Errorf("read %s: %w", name, err)
			}
			world, err := worldClient()
			if err != nil {
				return err
			}
			r, err := rec.Replay(c.Context, world)
			if err != nil {
				return err
			}
			return os.WriteFile("replay.json", r.AppendJSON(nil), 0o644)
		},
	}
}
