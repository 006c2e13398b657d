package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// A lockCheck compares locks with version control.
type lockCheck struct {
	*session
	faults   int
	compared int             // locks whose whole history was looked at
	locks    []graph.Label   // the packages that have a lock or had one
	said     map[string]bool // why a history is not known: alike for all locks
}

// verifyLocks compares each draws.lock that the arguments are about with version
// control: of the packages of the targets, of every package of a pattern, and
// what is gone below a pattern though a commit has it.
func (s *session) verifyLocks(ctx context.Context, targets []*starlark.Target) (*lockCheck, error) {
	c := &lockCheck{session: s, said: map[string]bool{}}
	places, err := c.places(ctx, targets)
	if err != nil {
		return nil, err
	}
	for _, l := range places {
		if err := c.check(ctx, l); err != nil {
			return nil, failf(exitInfra, "verify %s: %v", lockName(l), err)
		}
	}
	return c, nil
}

// lockName is how a package's lock is called in messages.
func lockName(pkg graph.Label) string { return pkg.Package() + " " + draws.Name }

// places gives the packages whose locks are to be looked at, in order; of
// some the lock or the whole package is gone.
func (c *lockCheck) places(ctx context.Context, targets []*starlark.Target) ([]graph.Label, error) {
	var patterns []graph.Pattern
	for _, a := range c.args {
		p, err := graph.ParsePattern(a, c.cwd)
		if err != nil {
			return nil, usageErrorf("%v", err)
		}
		patterns = append(patterns, p)
	}
	wanted := map[graph.Label]bool{}
	repos := map[string]bool{}
	for _, t := range targets {
		repos[t.Label.Repo] = true
		wanted[graph.Label{Repo: t.Label.Repo, Pkg: t.Label.Pkg}] = true
	}
	var places []graph.Label
	for repo := range repos {
		had, err := c.lockedPackages(ctx, repo)
		if err != nil {
			return nil, err
		}
		c.locks = append(c.locks, had...)
		for _, l := range had {
			if wanted[l] || matchesPackage(patterns, l) {
				places = append(places, l)
			}
		}
	}
	slices.SortFunc(places, graph.Label.Compare)
	return slices.Compact(places), nil
}

// lockedPackages gives the folders of a repository that have a lock, or had one
// in a commit, but for those of workspaces within it.
func (s *session) lockedPackages(ctx context.Context, repo string) (had []graph.Label, err error) {
	root, err := s.ws.Root(repo)
	if err != nil {
		return nil, userError(err)
	}
	committed, err := draws.Committed(ctx, root)
	if err != nil {
		return nil, failf(exitInfra, "verify: %v", err)
	}
	for _, name := range committed {
		if dir := path.Dir(name); !nested(root, dir) {
			had = append(had, graph.Label{Repo: repo, Pkg: strings.TrimPrefix(dir, ".")})
		}
	}
	packages, err := s.ws.Packages(repo, "")
	if err != nil {
		return nil, userError(err)
	}
	for _, pkg := range packages {
		if _, err := os.Lstat(filepath.Join(root, filepath.FromSlash(pkg), draws.Name)); err == nil {
			had = append(had, graph.Label{Repo: repo, Pkg: pkg})
		}
	}
	return had, nil
}

// nested says whether a folder below root is another workspace's.
func nested(root, dir string) bool {
	for ; dir != "."; dir = path.Dir(dir) {
		if _, err := os.Lstat(filepath.Join(root, filepath.FromSlash(dir), "MODULE.star")); err == nil {
			return true
		}
	}
	return false
}

// matchesPackage says whether patterns select a whole package; the last that
// is about it counts.
func matchesPackage(patterns []graph.Pattern, pkg graph.Label) (selected bool) {
	for _, p := range patterns {
		if (p.Below || p.All) && p.Matches(pkg) {
			selected = !p.Negative
		}
	}
	return selected
}

// check compares one lock with version control, and reads it.
func (c *lockCheck) check(ctx context.Context, pkg graph.Label) error {
	file, err := c.drawLockPath(pkg)
	if err != nil {
		return err
	}
	say := func(what, format string, args ...any) {
		fmt.Fprintf(stdout, "%s: %s: %s\n", what, safe(lockName(pkg)), safe(fmt.Sprintf(format, args...)))
	}
	fault := func(format string, args ...any) {
		c.faults++
		say("fault", format, args...)
	}
	lock, err := c.readLock(pkg)
	if err != nil {
		fault("%v", err)
	}
	h, err := draws.CheckHistory(ctx, c.root, file)
	if err != nil {
		return err
	}
	removed := h.Removed
	if _, err := os.Lstat(file); errors.Is(err, fs.ErrNotExist) && len(removed) > 0 {
		var to []string
		if removed, to, err = c.moved(removed); err != nil {
			return err
		}
		if len(to) > 0 {
			say("note", "it is gone, and lines of it are in %s", strings.Join(to, ", "))
		}
	}
	for i, r := range removed {
		if i == maxRemoved {
			fault("%s removed or changed", plural(len(removed)-i, "more line is", "more lines are"))
			break
		}
		fault("%s", removedText(r))
	}
	switch {
	case !h.Known && !c.said[h.Unknown]:
		c.said[h.Unknown] = true
		say("note", "not compared with version control: %s", h.Unknown)
	case h.Known && h.Commits == 0:
		say("note", "it was never committed, so nothing holds it to what was drawn")
	case h.Known:
		c.compared++
	}
	if lock == nil {
		return nil
	}
	if lock.Torn() != nil {
		say("note", "its last write was cut short; the next draw cuts that off")
	}
	for _, text := range rivals(lock) {
		say("note", "%s", text)
	}
	return nil
}

// moved sorts the lines of a lock that is gone: the rest are nowhere, and to
// are the locks that have the others, as after a package moved. Lines of a lock
// that is still there have no business elsewhere: a label's history is that of
// its own package's lock.
func (c *lockCheck) moved(lines []draws.Removed) (rest []draws.Removed, to []string, err error) {
	found := map[string]string{}
	for _, l := range c.locks {
		file, err := c.drawLockPath(l)
		if err != nil {
			return nil, nil, err
		}
		data, err := os.ReadFile(file)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			return nil, nil, err
		}
		for text := range strings.Lines(string(data)) {
			found[strings.TrimSuffix(text, "\n")] = lockName(l)
		}
	}
	for _, r := range lines {
		if name, ok := found[r.Text]; ok {
			to = append(to, name)
		} else {
			rest = append(rest, r)
		}
	}
	slices.Sort(to)
	return rest, slices.Compact(to), nil
}

// maxRemoved is how many lines of a lock are named.
const maxRemoved = 8

// removedText is a line that a commit has and the file doesn't.
func removedText(r draws.Removed) string {
	short := func(s string) string {
		const most = 160
		if len(s) > most {
			return s[:most] + "…"
		}
		return s
	}
	if r.Now != "" {
		return fmt.Sprintf("line %d of commit %.12s is changed: %s is now %s", r.Number, r.Commit, short(r.Text), short(r.Now))
	}
	return fmt.Sprintf("line %d of commit %.12s is removed: %s", r.Number, r.Commit, short(r.Text))
}

// rivals tells of reps that have several captures: two branches drew them.
func rivals(lock *draws.Lock) (out []string) {
	seen := map[draws.ID]bool{}
	for _, l := range lock.Lines() {
		if l.Kind != draws.Draw && l.Kind != draws.Adopted || seen[l.ID] {
			continue
		}
		seen[l.ID] = true
		if n := len(lock.State(l.ID).Rivals); n > 0 {
			out = append(out, fmt.Sprintf("%v %v has %s beside the one that counts: two branches drew it", l.Label, l.ID, plural(n, "capture", "captures")))
		}
		if n := len(lock.State(l.ID).Surplus); n > 0 {
			out = append(out, fmt.Sprintf("%v %v has %s: runs that didn't know of each other drew it", l.Label, l.ID, plural(n, "surplus capture", "surplus captures")))
		}
	}
	return out
}
