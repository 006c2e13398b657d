package main

import (
	"fmt"
	"runtime"

	"github.com/urfave/cli/v2"

	"github.com/evalbuild/eval/sandbox"
)

func doctorCommand() *cli.Command {
	return verb("doctor", "the seal's layers, one line each: live or not, and what to do", "", nil, func(_ *cli.Context, s *settings) error {
		if len(s.args) > 0 {
			return usageErrorf("doctor takes no arguments")
		}
		return doctor(sandbox.New(sandbox.Options{}).Probe())
	})
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
