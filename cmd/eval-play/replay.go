package main

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbuild/eval/rules/world/agent"
	"github.com/evalbuild/eval/rules/world/program"
)

var replayCommand = program.Command{
	Name:  "replay",
	Usage: "a recorded run as the agent; writes replay.json: the replies that differ",
	Files: []program.File{{Name: "run", Usage: "run.jsonl of an act"}},
	Run: func(ctx context.Context, c *program.Call) error {
		name, text, err := c.Read("run")
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
		r, err := rec.Replay(ctx, world)
		if err != nil {
			return err
		}
		return os.WriteFile("replay.json", r.AppendJSON(nil), 0o644)
	},
}
