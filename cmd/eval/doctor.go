package main

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote"
	"github.com/evalbuild/eval/cas/remote/reapi"
	"github.com/evalbuild/eval/sandbox"
)

func doctorCommand() *cli.Command {
	flags := append(slices.Clone(connectFlags), flagSign, flagConfig)
	return verb("doctor", "the seal's layers and the remote cache, one line each: live or not, and what to do", "", flags, func(c *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("doctor takes no arguments")
		}
		key, err := signingKey(s) // a wrong flag comes before all that is found
		if err != nil {
			return err
		}
		var client *reapi.Client
		if s.values["remote_cache"] != "" {
			if client, err = s.dialRemote(cas.BLAKE3); err != nil {
				return err
			}
			defer client.Close()
		}
		seal := doctor(sandbox.New(sandbox.Options{}).Probe())
		if key != nil {
			fmt.Fprintf(stdout, "\n%-9s %-8s %s\n", "signs", "as", remote.FormatKey(key.Public().(ed25519.PublicKey)))
		}
		if client == nil {
			return seal
		}
		return cmp.Or(seal, doctorRemote(c.Context, client))
	})
}

// doctorRemote tells of a server.
func doctorRemote(ctx context.Context, client *reapi.Client) error {
	line := func(word, format string, args ...any) {
		fmt.Fprintf(stdout, "%-9s %-8s %s\n", "remote", word, safe(fmt.Sprintf(format, args...)))
	}
	fmt.Fprintln(stdout)
	server, err := client.Server(ctx)
	if err == nil { // that one connected; this one is an answer
		start := time.Now()
		if _, err = client.Missing(ctx, []cas.Digest{server.Func.Sum([]byte("eval doctor"))}); err == nil {
			line("live", "%s answers in %v", client.Name(), time.Since(start).Round(100*time.Microsecond))
		}
	}
	if err != nil {
		line("DOWN", "%v", err)
		return failf(exitInfra, "doctor: the remote cache can't be used").hint("a build goes on without it, unless --remote_required is given")
	}
	how := "as the store has them"
	if server.Func != cas.BLAKE3 {
		how = "and by " + cas.BLAKE3.String() + " within results, unless MODULE.star says " + server.Func.String()
	}
	line("", "blobs are named by %v, %s; compressed: %v; batches of %d bytes", server.Func, how, server.Zstd, server.MaxBatch)
	if !server.Updates {
		line("", "it takes no results from here: only what others sent can be had")
	}
	return nil
}

// doctor prints what a seal that was put up for it came to. A layer is
// observed (read from /proc of the sealed process), probed (a call inside was
// refused as it must be) or applied (its calls succeeded).
func doctor(findings []sandbox.Finding) error {
	missing := 0
	for _, f := range findings {
		word := "live"
		switch {
		case f.Untried:
			word = "untried"
		case !f.Live:
			word = "MISSING"
			missing++
		}
		fmt.Fprintf(stdout, "%-9s %-8s %s\n", f.Layer, word, safe(f.State))
		if f.Cause != "" {
			fmt.Fprintf(stdout, "%-18s %s\n", "", safe(f.Cause))
		}
		if f.Hint != "" {
			fmt.Fprintf(stdout, "%-18s to change: %s\n", "", safe(f.Hint))
		}
	}
	switch {
	case runtime.GOOS == "darwin":
		fmt.Fprintf(stdout, "\ntier: %s, below full; such results are not eligible for coverage\n", sandbox.TierSeatbelt)
	case missing == 0:
		fmt.Fprintln(stdout, "\ntier: full")
	}
	if missing > 0 && runtime.GOOS != "darwin" {
		return failf(exitSeal, "doctor: %s missing: `ev build` would run no process here",
			plural(missing, "layer is", "layers are")).
			hint("--seal=none runs without a seal, and marks every result as unsealed")
	}
	return nil
}
