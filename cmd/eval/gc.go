package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/statcache"
)

// clock tells gc how old things are; tests set it ahead.
var clock = time.Now

const defaultMaxAge = "30d"

func gcCommand() *cli.Command {
	flags := []cli.Flag{
		flagStore,
		flagConfig,
		&cli.StringFlag{Name: "max_age", Usage: "remove pure results that were not used for `AGE`, as in 30d or 12h", DefaultText: defaultMaxAge},
		&cli.StringFlag{Name: "max_size", Usage: "then remove those not used for longest, until results and their blobs take at most `SIZE`, as in 10GiB", DefaultText: "no limit"},
		&cli.BoolFlag{Name: "dry_run", DisableDefaultText: true, Usage: "only say what would be removed"},
		&cli.StringSliceFlag{Name: "capture", Usage: "delete the capture of this `KEY`, as draws.lock has it, and nothing else; may be given several times"},
		&cli.StringFlag{Name: "why", Usage: "the `REASON` for deleting captures; it is kept in their place"},
	}
	return verb("gc", "remove results that were not used for long; captures only by name", "", flags, func(c *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("gc takes no arguments").hint("a capture is deleted by --capture=KEY --why=REASON")
		}
		return runGC(c.Context, s)
	})
}

func runGC(ctx context.Context, s *settings) error {
	captures := s.list("capture")
	_, aged := s.values["max_age"]
	_, sized := s.values["max_size"]
	_, why := s.values["why"]
	switch {
	case len(captures) > 0 && (aged || sized):
		return usageErrorf("--capture deletes captures alone: --max_age and --max_size don't go with it")
	case len(captures) > 0 && strings.TrimSpace(s.values["why"]) == "":
		return usageErrorf("--capture wants --why=REASON").hint("a capture is evidence: why it was deleted is kept in its place")
	case len(captures) == 0 && why:
		return usageErrorf("--why goes with --capture=KEY")
	}
	o := cas.CollectOptions{DryRun: s.bool("dry_run")}
	var err error
	if o.MaxAge, err = parseAge(s.values["max_age"]); err == nil && sized {
		o.MaxSize, err = parseBytes(s.values["max_size"])
	}
	if err != nil {
		return err
	}
	cache, data, err := storeRoots(s)
	if err != nil {
		return err
	}
	store, err := cas.Open(cas.Options{Cache: cache, Data: data, Now: clock})
	if err != nil {
		return failf(exitInfra, "%v", err).hint("--store=DIR names a store elsewhere")
	}
	if len(captures) > 0 {
		return deleteCaptures(ctx, store, captures, s.values["why"], o.DryRun)
	}
	r, err := store.Collect(ctx, o)
	if err != nil && ctx.Err() == nil {
		e := failf(exitInfra, "%v", err)
		if r.Removed == (cas.Tally{}) {
			e.hint("`ev verify --blobs` says what is damaged")
		}
		return e
	}
	states, stateErr := collectStates(filepath.Join(cache, "workspaces"), o)
	what := "removed "
	if o.DryRun {
		what = "would remove "
	}
	what += tallyText(r.Removed)
	if states > 0 {
		what += ", and the state of " + plural(states, "workspace", "workspaces")
	}
	fmt.Fprintf(stdout, "%s; kept %s\n", what, tallyText(r.Kept))
	if err != nil {
		return err
	}
	if stateErr != nil {
		return failf(exitInfra, "%v", stateErr)
	}
	return nil
}

// tallyText gives "2 results, 1 blob: 12.0 KiB", and rarer things if there are.
func tallyText(t cas.Tally) string {
	s := plural(t.Results, "result", "results") + ", " + plural(t.Blobs, "blob", "blobs")
	if t.Copies > 0 {
		s += ", " + plural(t.Copies, "plain copy", "plain copies")
	}
	if t.Receipts > 0 {
		s += ", " + plural(t.Receipts, "receipt of a server", "receipts of servers")
	}
	if t.Quarantined > 0 {
		s += ", " + plural(t.Quarantined, "quarantined file", "quarantined files")
	}
	return s + ": " + bytesText(t.Bytes)
}

func deleteCaptures(ctx context.Context, store *cas.Store, names []string, why string, dry bool) error {
	keys := make([]cas.Digest, len(names))
	for i, name := range names { // all are read before one is deleted
		var err error
		if keys[i], err = cas.ParseDigest(name); err != nil {
			return usageErrorf("--capture: %v", err).hint("a key is the \"key\" of a line in draws.lock")
		}
	}
	deleted := "deleted"
	if dry {
		deleted = "would delete"
	}
	for _, key := range keys {
		d, err := store.DeleteCapture(ctx, key, why, dry)
		var stone *cas.TombstoneError
		switch {
		case errors.As(err, &stone):
			fmt.Fprintf(stdout, "capture %v was deleted on %s: %s\n", key, stone.When, safe(stone.Why))
		case errors.Is(err, cas.ErrYoung):
			return failf(exitFailed, "%v", err).hint("try again in an hour")
		case errors.Is(err, cas.ErrNoCapture):
			return failf(exitFailed, "%v", err)
		case err != nil:
			return err
		default:
			fmt.Fprintf(stdout, "%s capture %v and %s that only it names; why is kept in its place\n", deleted, key, plural(d.Blobs, "blob", "blobs"))
		}
	}
	return nil
}

// touchState records that a workspace's state is in use, once a day.
func touchState(dir string, now time.Time) {
	if fi, err := os.Stat(dir); err == nil && now.Sub(fi.ModTime()) > 24*time.Hour {
		os.Chtimes(dir, now, now)
	}
}

// collectStates removes what is known of workspaces that were not used for the
// longest age: their files' digests, what ran when and why. Whether a workspace
// still exists can't be known, as its folder is named by a hash. Of the others
// it removes temporary files that a killed process has left.
func collectStates(dir string, o cas.CollectOptions) (n int, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return 0, nil
	}
	for _, e := range entries {
		state := filepath.Join(dir, e.Name())
		fi, statErr := os.Lstat(state)
		if statErr != nil || !fi.IsDir() {
			continue
		}
		if clock().Sub(fi.ModTime()) > max(o.MaxAge, 24*time.Hour) {
			n++
			if !o.DryRun {
				err = errors.Join(err, os.RemoveAll(state))
			}
		} else if !o.DryRun {
			err = errors.Join(err, sweepState(state))
		}
	}
	return n, err
}

// sweepState removes temporary files older than a day.
func sweepState(dir string) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		if err != nil || !d.Type().IsRegular() || !isTemp(d.Name()) {
			return err
		}
		if fi, err := d.Info(); err != nil || clock().Sub(fi.ModTime()) < 24*time.Hour {
			return nil
		}
		return os.Remove(path)
	})
}

func isTemp(name string) bool {
	return strings.HasPrefix(name, ".eval-tmp-") || strings.HasPrefix(name, "tmp-") || strings.Contains(name, statcache.TempPattern)
}

// parseAge reads "30d", "12h" or "1h30m"; "" is the default.
func parseAge(s string) (time.Duration, error) {
	if s == "" {
		s = defaultMaxAge
	}
	days, ok := strings.CutSuffix(s, "d")
	if n, err := strconv.ParseUint(days, 10, 16); ok && err == nil {
		return max(time.Duration(n)*24*time.Hour, 1), nil // zero is no limit to Collect
	}
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || strings.ContainsAny(s, "+-.µnu ") {
		return 0, usageErrorf("--max_age is written 30d, 12h or 1h30m, not %q", s)
	}
	return max(d, 1), nil
}

var byteUnits = []struct {
	name string
	size int64
}{{"TiB", 1 << 40}, {"GiB", 1 << 30}, {"MiB", 1 << 20}, {"KiB", 1 << 10}}

// parseBytes reads "10GiB" or a number of bytes.
func parseBytes(s string) (int64, error) {
	digits, unit := s, int64(1)
	for _, u := range byteUnits {
		if d, ok := strings.CutSuffix(s, u.name); ok {
			digits, unit = d, u.size
		}
	}
	n, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || n == 0 || int64(n) > math.MaxInt64/unit {
		return 0, usageErrorf("--max_size is written 10GiB, 500MiB, or as a number of bytes from 1, not %q", s)
	}
	return int64(n) * unit, nil
}

// bytesText gives a size in the largest unit of which there is one.
func bytesText(n int64) string {
	for _, u := range byteUnits {
		if n >= u.size {
			return fmt.Sprintf("%.1f %s", float64(n)/float64(u.size), u.name)
		}
	}
	return strconv.FormatInt(n, 10) + " bytes"
}
