package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/world/extract"
)

func extractCommand() *cli.Command {
	return &cli.Command{
		Name:  "extract",
		Usage: "reads events as far as systems can be reached; writes facts.json, reach.json",
		Flags: []cli.Flag{fileFlag("links", "the systems to read, and what ties subjects")},
		Action: func(c *cli.Context) error {
			name, text, err := readFlag(c, "links")
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
			facts, err := plan.Run(c.Context, world)
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
}
