// Command eval-world runs the parts of a scenario as actions: the world that an
// agent acts in, the agent, the recorded events, the extractor. `ev` starts it;
// files are given by flags, outputs are written in the working directory.
//
// A server has a unix socket as its standard input: the first message on it
// carries the listener to serve on, and its end says that the client has ended.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace/graph"
)

// Exit codes.
const (
	exitFailed = 1 // a fault of a definition, or of the machine
	exitUsage  = 2 // a bad command line
)

// A usageError is a bad command line.
type usageError struct{ error }

func usageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	err := newApp().RunContext(ctx, os.Args)
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "eval-world: error: %v\n", err)
	if errors.As(err, new(usageError)) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

func newApp() *cli.App {
	app := &cli.App{
		Name:                      "eval-world",
		Usage:                     "a simulated enterprise and its clients",
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Commands:                  []*cli.Command{serveCommand(), agentCommand(), replayCommand(), eventsCommand(), extractCommand()},
		CommandNotFound:           func(*cli.Context, string) {},
		Action: func(c *cli.Context) error {
			if name := c.Args().First(); name != "" {
				var names []string
				for _, cmd := range c.App.Commands {
					names = append(names, cmd.Name)
				}
				return usageErrorf("there is no command %q%s", name, graph.DidYouMean(name, names))
			}
			return cli.ShowAppHelp(c)
		},
		ExitErrHandler: func(*cli.Context, error) {},
		OnUsageError:   badFlags,
	}
	for _, cmd := range app.Commands {
		cmd.OnUsageError = badFlags
		cmd.HideHelpCommand = true
		cmd.Before = noArguments
	}
	return app
}

func badFlags(c *cli.Context, err error, _ bool) error {
	return usageErrorf("%s: %w", c.Command.Name, err)
}

func noArguments(c *cli.Context) error {
	if c.Args().Present() {
		return usageErrorf("%s: %q is not expected: files are given by flags", c.Command.Name, c.Args().First())
	}
	return nil
}

// fileFlag is a flag that names a file that must be given.
func fileFlag(name, usage string) cli.Flag {
	return &cli.StringFlag{Name: name, Usage: usage + " (`FILE`)"}
}

// readFlag reads the file that the flag names; errors call it by its path.
func readFlag(c *cli.Context, name string) (path string, text []byte, err error) {
	if path = c.String(name); path == "" {
		return "", nil, usageErrorf("%s: --%s=FILE is missing", c.Command.Name, name)
	}
	text, err = os.ReadFile(path)
	return path, text, err // it says "open PATH: why"
}

// printLine is where print() of Starlark goes.
func printLine(msg string) { fmt.Fprintln(os.Stderr, msg) }
