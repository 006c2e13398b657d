package main

import (
	"context"
	"os"

	"github.com/evalbuild/eval/rules/world"
	"github.com/evalbuild/eval/rules/world/program"
)

var serveCommand = program.Command{
	Name:  "serve",
	Usage: "the world that an agent acts in; writes run.jsonl, tables.json, events.json",
	Files: []program.File{{Name: "world", Usage: "systems and seeds"}, {Name: "scenario", Usage: "request, chaos, prior runs"}},
	Run:   serve,
}

func serve(ctx context.Context, c *program.Call) error {
	name, text, err := c.Read("world")
	if err != nil {
		return err
	}
	w, err := world.ParseWorld(name, text)
	if err != nil {
		return err
	}
	if name, text, err = c.Read("scenario"); err != nil {
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
	act, err := world.Start(ctx, w, sc, folder, program.Print)
	if err != nil {
		return err
	}
	defer act.Close()
	tools, err := toolServer(act)
	if err != nil {
		return err
	}
	if err := program.ServeUntilEnd(ctx, os.Stdin, act.Handler(tools)); err != nil {
		return err
	}
	return act.Finish()
}
