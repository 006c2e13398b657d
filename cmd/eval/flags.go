package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/workspace"
	"github.com/evalbuild/eval/workspace/graph"
)

// settings are a verb's flags and arguments, from all places they come from.
type settings struct {
	values map[string]string // flag -> last value
	set    map[string]string // --set name=value
	args   []string
	help   bool
}

func (s *settings) bool(name string) bool { return s.values[name] == "true" }

func (s *settings) int(name string) int {
	n, _ := strconv.Atoi(s.values[name])
	return n
}

// list gives the values of a flag that may be given several times.
func (s *settings) list(name string) []string {
	return strings.FieldsFunc(s.values[name], func(r rune) bool { return r == '\n' })
}

// The flags. What a flag means is said once, here.
var (
	flagStore  = &cli.StringFlag{Name: "store", Usage: "keep results and captures in `DIR` and not in the user's cache and data folders"}
	flagSet    = &cli.StringSliceFlag{Name: "set", Usage: "answer config.string(\"k\") with v: `k=v`"}
	flagConfig = &cli.StringFlag{Name: "config", Usage: "also take the lines of .evalrc that are marked `NAME`, as in build:NAME"}
	flagJobs   = &cli.IntFlag{Name: "jobs", Usage: "run at most `N` actions at once", DefaultText: "one a core"}
	flagKeep   = &cli.BoolFlag{Name: "keep_going", DisableDefaultText: true, Usage: "after a failure, build what doesn't depend on it"}
	flagEvents = &cli.StringFlag{Name: "events", Usage: "write what happens to `FILE` as JSON lines"}
	flagProf   = &cli.StringFlag{Name: "profile", Usage: "write a Chrome trace to `FILE`"}

	flagSeal  = &cli.StringFlag{Name: "seal", Usage: "`KIND` is full, or none: processes run without a seal, and every such result is marked", DefaultText: "full"}
	flagCheck = &cli.BoolFlag{Name: "check_determinism", DisableDefaultText: true, Usage: "run every action of the targets twice, whatever is stored, and compare"}

	loadFlags = []cli.Flag{flagStore, flagSet, flagConfig, flagSeal}
	// lookFlags are of verbs that say what a build would do, or did.
	lookFlags  = slices.Concat(loadFlags, []cli.Flag{flagJobs}, remoteFlags)
	buildFlags = slices.Concat(lookFlags, []cli.Flag{flagKeep, flagCheck, flagEvents, flagProf, flagDraws, flagBudget, flagUnsure})
)

// choices are the values of flags that take a word out of a few.
var choices = map[string][]string{
	"seal": {"full", "none"}, "budget_unknown": {"allow", "refuse"},
	"remote_upload": {"auto", "always", "never"}, "remote_download": {"toplevel", "all", "minimal"},
}

func isBool(f cli.Flag) bool { _, ok := f.(*cli.BoolFlag); return ok }

// parseArgs reads a verb's line. The flag package behind urfave/cli stops at
// the first argument; here flags may stand anywhere, "--" ends them, and
// -//pkg:name is a label. Flags come from .evalrc, then EVAL_* variables, then
// the line; the last wins, and --set adds up.
func parseArgs(c *cli.Context, flags []cli.Flag) (*settings, error) {
	s := &settings{values: map[string]string{}, set: map[string]string{}}
	line := c.Args().Slice()
	// The line comes first only to learn --config, then once more to win.
	first := *s
	first.values, first.set = map[string]string{}, map[string]string{}
	if err := first.take(line, flags, "the command line", true); err != nil {
		return nil, err
	}
	if first.help {
		s.help = true
		return s, nil
	}
	if len(flags) == 0 { // `ev version` works whatever .evalrc says
		return &first, nil
	}
	config, ok := first.values["config"]
	if !ok {
		config = os.Getenv("EVAL_CONFIG")
	}
	if err := s.takeRC(c.Command.Name, flags, config); err != nil {
		return nil, err
	}
	for _, f := range flags {
		name := f.Names()[0]
		if v, ok := os.LookupEnv("EVAL_" + strings.ToUpper(name)); ok && v != "" {
			if err := s.put(f, v, "EVAL_"+strings.ToUpper(name)); err != nil {
				return nil, err
			}
		}
	}
	return s, s.take(line, flags, "the command line", true)
}

func (s *settings) take(words []string, flags []cli.Flag, from string, argsOK bool) error {
	for i := 0; i < len(words); i++ {
		w := words[i]
		switch {
		case w == "--":
			s.args = append(s.args, words[i+1:]...)
			return nil
		case w == "-h" || w == "--help":
			s.help = true
			continue
		case !strings.HasPrefix(w, "--") || len(w) == 2:
			if strings.HasPrefix(w, "-") && !isLabel(w[1:]) {
				return usageErrorf("%s: unknown flag %q", from, w).hint("flags begin with two dashes; a label to subtract looks like -//pkg:name")
			}
			if !argsOK {
				return usageErrorf("%s: %q is no flag", from, w)
			}
			s.args = append(s.args, w)
			continue
		}
		name, value, eq := strings.Cut(w[2:], "=")
		f := findFlag(flags, name)
		if f == nil && strings.HasPrefix(name, "no") {
			if f = findFlag(flags, strings.TrimPrefix(name, "no")); f != nil && isBool(f) && !eq {
				s.values[f.Names()[0]] = "false"
				continue
			}
			f = nil
		}
		if f == nil {
			var names []string
			for _, f := range flags {
				names = append(names, f.Names()[0])
			}
			for i, n := range names {
				names[i] = "--" + n
			}
			return usageErrorf("%s: unknown flag --%s%s", from, name, graph.DidYouMean("--"+name, names))
		}
		if !eq {
			if isBool(f) {
				value = "true"
			} else if i+1 < len(words) {
				i++
				value = words[i]
			} else {
				return usageErrorf("%s: --%s wants a value", from, name)
			}
		}
		if err := s.put(f, value, from); err != nil {
			return err
		}
	}
	return nil
}

// verbFirst moves the verb to the front: `ev --jobs=2 build //x` is a line like
// any other. A line without a verb stays as it is.
func verbFirst(app *cli.App, line []string) []string {
	takesValue := map[string]bool{}
	for _, cmd := range app.Commands {
		for _, f := range cmd.Flags {
			takesValue["--"+f.Names()[0]] = !isBool(f)
		}
	}
	for i := 0; i < len(line) && line[i] != "--"; i++ {
		switch {
		case takesValue[line[i]]:
			i++
		case !strings.HasPrefix(line[i], "-"):
			return slices.Concat(line[i:i+1], line[:i], line[i+1:])
		}
	}
	return line
}

func isLabel(s string) bool {
	return strings.HasPrefix(s, "//") || strings.HasPrefix(s, "@") || strings.HasPrefix(s, ":")
}

func findFlag(flags []cli.Flag, name string) cli.Flag {
	for _, f := range flags {
		if slices.Contains(f.Names(), name) {
			return f
		}
	}
	return nil
}

func (s *settings) put(f cli.Flag, value, from string) error {
	name := f.Names()[0]
	switch f.(type) {
	case *cli.BoolFlag:
		b, err := strconv.ParseBool(value)
		if err != nil {
			return usageErrorf("%s: --%s is true or false, not %q", from, name, value)
		}
		value = strconv.FormatBool(b)
	case *cli.IntFlag:
		n, err := strconv.Atoi(value)
		if err != nil || n < 1 {
			return usageErrorf("%s: --%s is a number from 1, not %q", from, name, value)
		}
	case *cli.StringSliceFlag:
		if name != "set" { // they add up, one a line: see list
			if value == "" || strings.Contains(value, "\n") {
				return usageErrorf("%s: --%s wants a value", from, name)
			}
			s.values[name] += value + "\n"
			return nil
		}
		k, v, ok := strings.Cut(value, "=")
		if !ok || k == "" {
			return usageErrorf("%s: --%s wants name=value, not %q", from, name, value)
		}
		s.set[k] = v
		return nil
	default:
		if value == "" {
			return usageErrorf("%s: --%s wants a value", from, name)
		}
		if words := choices[name]; words != nil && !slices.Contains(words, value) {
			return usageErrorf("%s: --%s is %s, not %q%s", from, name, strings.Join(words, " or "), value, graph.DidYouMean(value, words))
		}
	}
	s.values[name] = value
	return nil
}

// takeRC reads .evalrc of the user's home and of the workspace, in this order:
// lines of a verb (or common, or build, which all verbs that load targets
// take) and flags; `build:ci …` counts with --config=ci. A line of another
// verb's is passed over, and so is a flag in common or build that this verb
// doesn't have but another does.
func (s *settings) takeRC(verbName string, flags []cli.Flag, config string) error {
	var files []string
	if home, err := os.UserHomeDir(); err == nil {
		files = append(files, filepath.Join(home, ".evalrc"))
	}
	if cwd, err := os.Getwd(); err == nil {
		if root, err := workspace.Find(cwd); err == nil {
			files = append(files, filepath.Join(root, ".evalrc"))
		}
	}
	found := config == ""
	for _, file := range slices.Compact(files) {
		data, err := readRC(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return usageErrorf("read %s: %v", file, err)
		}
		for n, text := range strings.Split(string(data), "\n") {
			at := fmt.Sprintf("%s:%d", file, n+1)
			words, err := splitWords(text)
			if err != nil {
				return usageErrorf("%s: %v", at, err)
			}
			if len(words) == 0 {
				continue
			}
			name, marked, _ := strings.Cut(words[0], ":")
			if marked != "" && marked != config {
				continue
			}
			found = found || marked == config
			general := name == "common" || name == "build"
			if name != verbName && !general {
				if !isVerb(name) {
					return usageErrorf("%s: there is no verb %q%s", at, name, graph.DidYouMean(name, append(verbNames(), "common")))
				}
				continue
			}
			known := flags
			if general && name != verbName {
				known = buildFlags
			}
			line := settings{values: map[string]string{}, set: s.set}
			if err := line.take(words[1:], known, at, false); err != nil {
				return err
			}
			if _, ok := line.values["config"]; ok {
				return usageErrorf("%s: --config does not stand in .evalrc", at).hint("give it on the command line or in EVAL_CONFIG")
			}
			for k, v := range line.values {
				switch f := findFlag(flags, k); f.(type) {
				case nil:
				case *cli.StringSliceFlag: // they add up
					s.values[k] += v
				default:
					s.values[k] = v
				}
			}
		}
	}
	if !found {
		return usageErrorf("--config=%s: no line of .evalrc is marked :%s", config, config)
	}
	return nil
}

func verbNames() []string {
	var names []string
	for _, c := range newApp().Commands {
		names = append(names, c.Name)
	}
	return names
}

func isVerb(name string) bool { return slices.Contains(verbNames(), name) }

// splitWords splits a line at white space outside of quotes; # begins a
// comment.
func splitWords(line string) ([]string, error) {
	var words []string
	var word strings.Builder
	in, quote := false, rune(0)
	for _, r := range line {
		switch {
		case quote != 0 && r == quote:
			quote = 0
		case quote != 0:
			word.WriteRune(r)
		case r == '"' || r == '\'':
			quote, in = r, true
		case r == '#' && !in:
			return words, nil
		case r == ' ' || r == '\t' || r == '\r':
			if in {
				words = append(words, word.String())
				word.Reset()
				in = false
			}
		default:
			word.WriteRune(r)
			in = true
		}
	}
	if quote != 0 {
		return nil, fmt.Errorf("the quote %c is not closed", quote)
	}
	if in {
		words = append(words, word.String())
	}
	return words, nil
}

// maxRC is far more than anybody writes by hand.
const maxRC = 64 << 10

// readRC reads an .evalrc: a plain file of a bounded size, and no fifo that
// would be waited for.
func readRC(path string) ([]byte, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fi, err := f.Stat()
	if err == nil && !fi.Mode().IsRegular() {
		err = errors.New("it is no plain file")
	}
	if err == nil && fi.Size() > maxRC {
		err = fmt.Errorf("it has %d bytes; at most %d are read", fi.Size(), maxRC)
	}
	if err != nil {
		return nil, err
	}
	return io.ReadAll(io.LimitReader(f, maxRC))
}
