// Package program is what the small programs of a scenario have in common.
//
//	eval-world ─┐             ┌─ Main: command line, exit code, "NAME: error: …"
//	            ├─ Program ───┤
//	eval-play  ─┘             └─ ServeUntilEnd: a listener that comes over stdin
//
// A Program is a list of commands, and every flag of a command names a file that
// must be given. Scenarios start four such programs each, so how long a start
// takes is part of the contract: the standard library's flag package does, and
// nothing is made before it is needed.
package program

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"runtime"
	"runtime/debug"
	"syscall"

	"github.com/evalbuild/eval/workspace/graph"
)

// Exit codes.
const (
	exitFailed = 1 // a fault of a definition, or of the machine
	exitUsage  = 2 // a bad command line
)

// A Program is its commands.
type Program struct {
	Name, Usage    string
	Commands       []Command
	Stdout, Stderr io.Writer
}

// A Command is done by Run, which reads the files that the flags name.
type Command struct {
	Name, Usage string
	Files       []File
	Run         func(context.Context, *Call) error
}

// A File is a flag, --NAME=FILE; --NAME=- is standard input.
type File struct{ Name, Usage string }

// A usageError is a bad command line, or a bad environment.
type usageError struct{ error }

// UsageErrorf makes an error that the one who started the program can mend.
func UsageErrorf(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

// Main runs p as a process: with its arguments and its streams. An interrupt ends
// what a command does.
//
// A program lives for some 50 ms and does one thing after the other, and several
// scenarios run at once. So it has one processor and collects no garbage before
// there are 40 MB: that saves a third of the page faults of eval-world, which are
// half of what it costs. The limit keeps a heap that grows from growing elevenfold.
func Main(p Program) (code int) {
	runtime.GOMAXPROCS(1)
	debug.SetGCPercent(1000)
	debug.SetMemoryLimit(256 << 20)
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	p.Stdout, p.Stderr = os.Stdout, os.Stderr
	return p.Run(ctx, os.Args[1:])
}

// Run runs the command that args, without the program's name, begin with, and
// returns the exit code: 0, 1 for a fault, 2 for a bad command line.
func (p *Program) Run(ctx context.Context, args []string) int {
	err := p.run(ctx, args)
	if err == nil {
		return 0
	}
	fmt.Fprintf(p.Stderr, "%s: error: %v\n", p.Name, err)
	if errors.As(err, new(usageError)) {
		return exitUsage
	}
	return exitFailed
}

func (p *Program) run(ctx context.Context, args []string) error {
	flags := newFlags(p.Name)
	if done, err := p.parse(flags, args); done || err != nil {
		return err
	}
	if flags.NArg() == 0 {
		p.help()
		return nil
	}
	name := flags.Arg(0)
	var names []string
	for _, cmd := range p.Commands {
		if cmd.Name == name {
			return p.command(ctx, cmd, flags.Args()[1:])
		}
		names = append(names, cmd.Name)
	}
	return UsageErrorf("there is no command %q%s", name, graph.DidYouMean(name, names))
}

func (p *Program) command(ctx context.Context, cmd Command, args []string) error {
	flags := newFlags(cmd.Name)
	call := &Call{cmd.Name, map[string]*string{}}
	for _, f := range cmd.Files {
		call.files[f.Name] = flags.String(f.Name, "", f.Usage)
	}
	if done, err := p.parse(flags, args); done || err != nil {
		return err
	}
	if flags.NArg() > 0 {
		return UsageErrorf("%s: %q is not expected: files are given by flags", cmd.Name, flags.Arg(0))
	}
	return cmd.Run(ctx, call)
}

func newFlags(name string) *flag.FlagSet {
	flags := flag.NewFlagSet(name, flag.ContinueOnError)
	flags.SetOutput(io.Discard) // errors are printed in one place
	flags.Usage = func() {}
	return flags
}

// parse parses flags; done: help was asked for, and given.
func (p *Program) parse(flags *flag.FlagSet, args []string) (done bool, err error) {
	switch err := flags.Parse(args); {
	case errors.Is(err, flag.ErrHelp):
		p.help()
		return true, nil
	case err != nil:
		return false, UsageErrorf("%s: %w", flags.Name(), err)
	}
	return false, nil
}

func (p *Program) help() {
	fmt.Fprintf(p.Stdout, "%s: %s\n\n", p.Name, p.Usage)
	for _, cmd := range p.Commands {
		fmt.Fprintf(p.Stdout, "  %s %s: %s\n", p.Name, cmd.Name, cmd.Usage)
		for _, f := range cmd.Files {
			fmt.Fprintf(p.Stdout, "      --%s=FILE  %s\n", f.Name, f.Usage)
		}
	}
}

// A Call is one run of a command.
type Call struct {
	command string
	files   map[string]*string
}

// Stdin is what standard input is called, which "-" names.
const Stdin = "standard input"

// Read reads the file that a flag names; errors call it by its path.
func (c *Call) Read(flag string) (path string, text []byte, err error) {
	if path = *c.files[flag]; path == "" {
		return "", nil, UsageErrorf("%s: --%s=FILE is missing", c.command, flag)
	}
	if path == "-" {
		text, err = io.ReadAll(os.Stdin)
		return Stdin, text, err
	}
	text, err = os.ReadFile(path)
	return path, text, err // it says "open PATH: why"
}

// Print is where print() of Starlark goes.
func Print(msg string) { fmt.Fprintln(os.Stderr, msg) }
