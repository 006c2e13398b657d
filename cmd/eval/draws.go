package main

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/evalbuild/eval/sandbox/hostwatch"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/engine"
	"github.com/evalbuild/eval/workspace/graph"
)

var (
	flagDraws  = &cli.StringFlag{Name: "draws", Usage: "missing reps: `WHAT` is allow, forbid, or how many may be drawn at most", DefaultText: "allow on a terminal, else forbid"}
	flagBudget = &cli.StringFlag{Name: "budget", Usage: "draw no rep that could cost more than what is left of `USD`, as in 5usd"}
	flagUnsure = &cli.StringFlag{Name: "budget_unknown", Usage: "reps of unknown price under a budget: `WHAT` is allow or refuse", DefaultText: "refuse"}
)

var budgetText = regexp.MustCompile(`^([0-9]+(?:\.[0-9]+)?)usd$`)

// consent reads what may be drawn. Off a terminal nobody is there to be asked:
// a CI job that finds reps missing fails rather than pays.
func (s *settings) consent() (engine.Consent, error) {
	c := engine.Consent{Unpriced: s.values["budget_unknown"] == "allow"}
	switch v := s.values["draws"]; v {
	case "allow":
		c.Draws = engine.AnyDraws
	case "forbid":
	case "":
		if term.IsTerminal(int(os.Stdin.Fd())) && term.IsTerminal(int(os.Stderr.Fd())) {
			c.Draws = engine.AnyDraws
		}
	default:
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 {
			return c, usageErrorf("--draws is allow, forbid or a number, not %q", v)
		}
		c.Draws = n
	}
	if v := s.values["budget"]; v != "" {
		m := budgetText.FindStringSubmatch(v)
		if m == nil {
			return c, usageErrorf("--budget is an amount in US dollars, as in 5usd or 0.50usd, not %q", v)
		}
		c.Budget, _ = strconv.ParseFloat(m[1], 64)
		if c.Budget == 0 {
			return c, usageErrorf("--budget=0usd lets nothing be drawn").hint("--draws=forbid says so")
		}
	}
	return c, nil
}

// drawLock opens the lock of a label's package.
func (s *session) drawLock(owner graph.Label) (*draws.Lock, error) {
	path, err := s.drawLockPath(owner)
	if err != nil {
		return nil, err
	}
	return draws.Open(path)
}

// readLock is drawLock for who only reads: a package's lock is opened once.
func (s *session) readLock(owner graph.Label) (*draws.Lock, error) {
	path, err := s.drawLockPath(owner)
	if err != nil {
		return nil, err
	}
	if s.locks[path] == nil {
		lock, err := draws.Open(path)
		if err != nil {
			return nil, err
		}
		if s.locks == nil {
			s.locks = map[string]*draws.Lock{}
		}
		s.locks[path] = lock
	}
	return s.locks[path], nil
}

func (s *session) drawLockPath(owner graph.Label) (string, error) {
	root := s.root
	if owner.Repo != "" {
		var err error
		if root, err = s.ws.Root(owner.Repo); err != nil {
			return "", err
		}
	}
	return filepath.Join(root, filepath.FromSlash(owner.Pkg), draws.Name), nil
}

// runs makes this process one that draws, when it is the first time asked. Its
// lock file is in the workspace, as draws.lock is: two builds of one workspace
// see each other whatever stores they have.
func (s *session) runs() func() (*engine.Run, error) {
	return sync.OnceValues(func() (*engine.Run, error) {
		dir := filepath.Join(s.root, "eval-out", runsName)
		r, err := draws.NewRun(dir, rand.Reader)
		if err != nil {
			return nil, err
		}
		s.run = r
		return &engine.Run{ID: r.ID, Alive: func(id string) bool { return draws.Alive(dir, id) }}, nil
	})
}

// runsName is the folder of run locks in eval-out; no target has such a name.
const runsName = ".runs"

// printDenied says once a target which reps are missing and may not be drawn,
// and what can be done.
func printDenied(rep *engine.Report) {
	type group struct {
		label      graph.Label
		why, cause string
		reps       []string
	}
	var groups []*group
	total, budget := 0, false
	seen := map[graph.Key]bool{} // one draw may be that of several targets
	var hints []string
	for _, p := range rep.Problems {
		d := denied(p.Err)
		if d == nil {
			continue
		}
		if d.Key.IsZero() || !seen[d.Key] {
			total++
		}
		seen[d.Key] = true
		if d.Unlocked != nil && !slices.Contains(hints, d.Unlocked.Hint()) {
			hints = append(hints, d.Unlocked.Hint())
		}
		budget = budget || d.Budget
		i := slices.IndexFunc(groups, func(g *group) bool {
			return g.label == p.Action.Owner && g.why == d.Why && g.cause == d.Cause
		})
		if i < 0 {
			i = len(groups)
			groups = append(groups, &group{label: p.Action.Owner, why: d.Why, cause: d.Cause})
		}
		groups[i].reps = append(groups[i].reps, d.Rep)
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "eval: error: %s would be drawn:\n", plural(total, "rep", "reps"))
	for _, g := range groups {
		fmt.Fprintf(os.Stderr, "  %s: %s: %s\n", safe(g.label.String()), safe(repRanges(g.reps)), safe(g.why))
	}
	said := map[string]bool{}
	for _, g := range groups {
		if !said[g.cause] {
			said[g.cause] = true
			fmt.Fprintf(os.Stderr, "  %s\n", safe(g.cause))
		}
	}
	for _, h := range hints {
		fmt.Fprintf(os.Stderr, "hint: %s\n", safe(h))
	}
	if budget {
		fmt.Fprintln(os.Stderr, "hint: what was drawn is kept; a larger --budget goes on from there, price = \"…usd\" on the producer says what a rep costs at most, --budget_unknown=allow draws without knowing")
	} else {
		fmt.Fprintln(os.Stderr, "hint: --draws=allow draws them, --draws=N at most N; `ev plan` says what each build would draw, and why")
	}
}

// printLost says once a target which reps are in draws.lock and not in the
// store, and what can be done.
func printLost(rep *engine.Report) {
	reps := map[graph.Label][]string{}
	first := map[graph.Label]*engine.LostError{}
	var order []graph.Label
	total := 0
	for _, p := range rep.Problems {
		e := lost(p.Err)
		if e == nil {
			continue
		}
		owner := p.Action.Owner
		if first[owner] == nil {
			first[owner] = e
			order = append(order, owner)
		}
		total++
		reps[owner] = append(reps[owner], repName(e.ID.Sample.Stream, e.ID.Sample.Index))
	}
	if total == 0 {
		return
	}
	fmt.Fprintf(os.Stderr, "eval: error: %s:\n", plural(total, "rep was drawn, and the store doesn't have its capture", "reps were drawn, and the store doesn't have their captures"))
	for _, owner := range order {
		fmt.Fprintf(os.Stderr, "  %s: %s: %s\n", safe(owner.String()), safe(repRanges(reps[owner])), safe(first[owner].Err.Error()))
	}
	for _, h := range first[order[0]].Hints() {
		fmt.Fprintf(os.Stderr, "hint: %s\n", safe(h))
	}
}

// lost is what says that a rep's capture is not in the store, or nil.
func lost(err error) *engine.LostError {
	var e *engine.LostError
	errors.As(err, &e)
	return e
}

// denied is what says that a rep may not be drawn, or nil.
func denied(err error) *engine.DeniedError {
	var e *engine.DeniedError
	errors.As(err, &e)
	return e
}

// repRanges shortens names of reps: control-1..6 treatment-2,5.
func repRanges(reps []string) string {
	byStream := map[string][]int{}
	var streams []string
	for _, r := range reps {
		i := strings.LastIndexByte(r, '-')
		n, _ := strconv.Atoi(r[i+1:])
		if byStream[r[:i]] == nil {
			streams = append(streams, r[:i])
		}
		byStream[r[:i]] = append(byStream[r[:i]], n)
	}
	var out []string
	for _, s := range streams {
		ns := byStream[s]
		slices.Sort(ns)
		ns = slices.Compact(ns)
		var parts []string
		for i := 0; i < len(ns); {
			j := i
			for j+1 < len(ns) && ns[j+1] == ns[j]+1 {
				j++
			}
			switch j - i {
			case 0:
				parts = append(parts, strconv.Itoa(ns[i]))
			case 1:
				parts = append(parts, strconv.Itoa(ns[i]), strconv.Itoa(ns[j]))
			default:
				parts = append(parts, fmt.Sprintf("%d..%d", ns[i], ns[j]))
			}
			i = j + 1
		}
		out = append(out, s+"-"+strings.Join(parts, ","))
	}
	return strings.Join(out, " ")
}

// costText is what reps cost: a lower bound where some didn't say.
func costText(c engine.Cost) string {
	s := fmt.Sprintf("$%.2f", c.USD)
	if c.USD > 0 && c.USD < 0.01 {
		s = fmt.Sprintf("$%.2g", c.USD)
	}
	if c.Unknown > 0 {
		s += fmt.Sprintf(" (and %d of unknown cost)", c.Unknown)
	}
	return s
}

// watch makes what watches this machine while reps run.
func watch() func() func(bool) string {
	host := new(hostwatch.Host)
	return func() func(bool) string {
		w, err := host.Start()
		if err != nil { // then nothing is known of the machine
			return func(bool) string { return "" }
		}
		return func(thrashed bool) string {
			v, err := w.Stop()
			if err != nil {
				return ""
			}
			if thrashed {
				v.Pressure = nil
			}
			why, _ := v.Infrastructure()
			return why
		}
	}
}
