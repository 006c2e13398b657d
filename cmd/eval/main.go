// Command eval is a build system for evidence; see README.md. Its short name
// is ev.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace/graph"
)

// Exit codes; the first that applies.
const (
	exitFault       = 9 // a fault of ours
	exitInterrupted = 8
	exitUsage       = 2 // the command line or a .star file is wrong
	exitSeal        = 5 // the seal asked for can't be had
	exitInfra       = 6
	exitBudget      = 7 // the budget is reached; results are kept
	exitFailed      = 1 // an action or target failed
	exitGate        = 3 // everything was built and an expectation is not met
	exitEmpty       = 4 // no targets matched
)

func main() { os.Exit(run()) }

// run is main without exiting, for tests.
func run() (code int) {
	defer func() {
		if r := recover(); r != nil {
			fmt.Fprintf(os.Stderr, "eval: error: internal fault: %v\n%s", r, debug.Stack())
			fmt.Fprintln(os.Stderr, "hint: this is a bug in eval; nothing that was stored is lost")
			code = exitFault
		}
	}()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, func() {
		stop() // a second Ctrl-C kills
		// One step of a function can take hours (a power of a big number): after
		// a moment its worker isn't waited for. The store is safe at any time.
		time.AfterFunc(graceTime, func() {
			fmt.Fprintln(os.Stderr, "eval: interrupted in the middle of an action; what was done is kept")
			os.Exit(exitInterrupted)
		})
	})
	app := newApp()
	err := app.RunContext(ctx, append(os.Args[:1:1], verbFirst(app, os.Args[1:])...))
	code = report(os.Stderr, err)
	if stdout.err != nil && code == 0 {
		code = report(os.Stderr, failf(exitInfra, "write standard output: %v", stdout.err))
	}
	return code
}

// graceTime is how long an interrupted build waits for running actions.
const graceTime = 2 * time.Second

// stdout is where verbs print what they were asked for. It keeps the first
// error: a list cut short by a full disk is no success.
var stdout = &checkedWriter{w: os.Stdout}

type checkedWriter struct {
	w   io.Writer
	err error
}

func (c *checkedWriter) Write(p []byte) (int, error) {
	n, err := c.w.Write(p)
	if err != nil && c.err == nil {
		c.err = err
	}
	return n, err
}

func newApp() *cli.App {
	return &cli.App{
		Name:                      "ev", // eval is the shell's own, see shellenv.go
		Usage:                     "a build system for evidence",
		UsageText:                 "ev VERB [flags and arguments, in any order]",
		Description:               "`ev VERB --help` tells more of a verb. The program's full name is eval.",
		Writer:                    stdout,
		HideVersion:               true,
		HideHelpCommand:           true,
		DisableSliceFlagSeparator: true,
		Commands: []*cli.Command{
			buildCommand(), planCommand(), showCommand(), queryCommand(), actionsCommand(), explainCommand(),
			verifyCommand(), coverageCommand(), ledgerCommand(), publishCommand(), lockCommand(), doctorCommand(), gcCommand(), cleanCommand(), newCommand(), shellenvCommand(), versionCommand(),
		},
		CommandNotFound: func(*cli.Context, string) {},
		Action: func(c *cli.Context) error {
			if c.Args().Present() {
				var names []string
				for _, cmd := range c.App.Commands {
					names = append(names, cmd.Name)
				}
				return usageErrorf("there is no verb %q%s", c.Args().First(), graph.DidYouMean(c.Args().First(), names)).
					hint("`ev --help` lists the verbs")
			}
			return cli.ShowAppHelp(c)
		},
		// The only flag of the program alone is --help; verbs read their own.
		OnUsageError: func(*cli.Context, error, bool) error {
			return usageErrorf("the command line names no verb").hint("`ev --help` lists the verbs")
		},
		ExitErrHandler: func(*cli.Context, error) {},
	}
}

// verb makes a command whose flags may stand anywhere on the line, which come
// from .evalrc and EVAL_* variables too.
func verb(name, usage, args string, flags []cli.Flag, action func(*cli.Context, *settings) error) *cli.Command {
	return &cli.Command{
		Name:            name,
		Usage:           usage,
		ArgsUsage:       args,
		Flags:           flags,
		SkipFlagParsing: true, // see parseArgs
		HideHelpCommand: true,
		Action: func(c *cli.Context) error {
			s, err := parseArgs(c, flags)
			if err != nil {
				return err
			}
			if s.help {
				return cli.ShowCommandHelp(c, name)
			}
			return action(c, s)
		},
	}
}

// An exitError is an error with the exit code it means.
type exitError struct {
	code  int
	err   error
	hints []string
	quiet bool // everything was said already
}

func (e *exitError) Error() string { return e.err.Error() }
func (e *exitError) Unwrap() error { return e.err }

func (e *exitError) hint(format string, args ...any) *exitError {
	e.hints = append(e.hints, fmt.Sprintf(format, args...))
	return e
}

func usageErrorf(format string, args ...any) *exitError {
	return &exitError{code: exitUsage, err: fmt.Errorf(format, args...)}
}

func failf(code int, format string, args ...any) *exitError {
	return &exitError{code: code, err: fmt.Errorf(format, args...)}
}

var errQuiet = errors.New("")

// exit ends with a code when everything was said already.
func exit(code int) error {
	if code == 0 {
		return nil
	}
	return &exitError{code: code, err: errQuiet, quiet: true}
}
