package main

import (
	"errors"
	"os"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/rules/world"
)

func serveCommand() *cli.Command {
	return &cli.Command{
		Name:  "serve",
		Usage: "the world that an agent acts in; writes run.jsonl, tables.json, events.json",
		Flags: []cli.Flag{fileFlag("world", "systems and seeds"), fileFlag("scenario", "request, chaos, prior runs")},
		Action: func(c *cli.Context) error {
			name, text, err := readFlag(c, "world")
			if err != nil {
				return err
			}
			w, err := world.ParseWorld(name, text)
			if err != nil {
				return err
			}
			if name, text, err = readFlag(c, "scenario"); err != nil {
				return err
			}
			sc, err := world.ParseScenario(name, text, w)
			if err != nil {
				return err
			}
			folder, err := os.Getwd()
			if err != nil {
				return err
			}
			act, err := world.Start(c.Context, w, sc, folder, printLine)
			if err != nil {
				return err
			}
			tools, err := toolServer(act)
			if err == nil {
				err = serveUntilEnd(os.Stdin, act.Handler(tools))
			}
			if err == nil {
				err = act.Finish()
			}
			return errors.Join(err, act.Close())
		},
	}
}
