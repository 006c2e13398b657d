package main

import (
	"context"
	"os"

	"github.com/evalbuild/eval/rules/world/program"
	"github.com/evalbuild/eval/rules/world/recording"
)

var eventsCommand = program.Command{
	Name:  "events",
	Usage: "the events of an act that has ended, for an extractor",
	Files: []program.File{{Name: "events", Usage: "events.json of the act"}, {Name: "chaos", Usage: "what fails for the extractor"}},
	Run: func(ctx context.Context, c *program.Call) error {
		events, eventsText, err := c.Read("events")
		if err != nil {
			return err
		}
		chaos, chaosText, err := c.Read("chaos")
		if err != nil {
			return err
		}
		rec, err := recording.Parse(events, eventsText, chaos, chaosText)
		if err != nil {
			return err
		}
		return program.ServeUntilEnd(ctx, os.Stdin, rec)
	},
}
