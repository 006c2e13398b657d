package main

import (
	"os"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/world"
)

func eventsCommand() *cli.Command {
	return &cli.Command{
		Name:  "events",
		Usage: "the events of an act that has ended, for an extractor",
		Flags: []cli.Flag{fileFlag("events", "events.json of the act"), fileFlag("chaos", "what fails for the extractor")},
		Action: func(c *cli.Context) error {
			events, eventsText, err := readFlag(c, "events")
			if err != nil {
				return err
			}
			chaos, chaosText, err := readFlag(c, "chaos")
			if err != nil {
				return err
			}
			rec, err := world.ParseRecording(events, eventsText, chaos, chaosText)
			if err != nil {
				return err
			}
			return serveUntilEnd(os.Stdin, rec)
		},
	}
}
