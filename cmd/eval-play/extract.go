package main

import (
	"context"
	"fmt"
	"os"

	"github.com/evalbuild/eval/rules/world/extract"
	"github.com/evalbuild/eval/rules/world/program"
)

var extractCommand = program.Command{
	Name:  "extract",
	Usage: "reads events as far as systems can be reached; writes facts.json, reach.json",
	Files: []program.File{{Name: "links", Usage: "the systems to read, and what ties subjects"}},
	Run: func(ctx context.Context, c *program.Call) error {
		name, text, err := c.Read("links")
		if err != nil {
			return err
		}
		plan, err := extract.ParsePlan(text)
		if err != nil {
			return fmt.Errorf("read %s: %w", name, err)
		}
		world, err := worldClient()
		if err != nil {
			return err
		}
		facts, err := plan.Run(ctx, world)
		if err != nil {
			return err
		}
		b, err := facts.AppendFacts(nil)
		if err != nil {
			return err
		}
		if err := os.WriteFile("facts.json", b, 0o644); err != nil {
			return err
		}
		return os.WriteFile("reach.json", facts.AppendReach(nil), 0o644)
	},
}
