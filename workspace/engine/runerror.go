package engine

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/evalbuild/eval/sandbox"
	"github.com/evalbuild/eval/sandbox/collect"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/graph"
)

// A RunError says that a process ran, and that what it did is no result. Such
// a run is not stored.
type RunError struct {
	Status         sandbox.Status
	Limits         []string // that stopped it
	Missing        []string // outputs that were not made
	Rejected       []collect.Rejection
	Stdout, Stderr sandbox.Stream
	Egress         []egress.Attempt

	policy *graph.Policy
}

// failureOf judges what a process did; nil if it is a result. Where how it ended
// is an output, all is.
func failureOf(a *graph.Action, res *sandbox.Result) *RunError {
	e := &RunError{
		Status: res.Status, Limits: limitsHit(res), Rejected: res.Rejected,
		Stdout: res.Stdout, Stderr: res.Stderr, Egress: res.Egress, policy: a.Policy,
	}
	for _, o := range a.Outputs {
		if o.Format == graph.FormatExit {
			return nil
		}
		if o.Format != graph.FormatOptional && slices.Contains(res.Missing, o.Name) {
			e.Missing = append(e.Missing, o.Name)
		}
	}
	if res.Status.Code != 0 || res.Status.Signal != 0 || len(e.Limits)+len(e.Missing)+len(e.Rejected) > 0 {
		return e
	}
	return nil
}

// Error says what happened, in order of what explains most, and then what the
// process had to say.
func (e *RunError) Error() string {
	var causes []string
	for _, l := range e.Limits {
		causes = append(causes, fmt.Sprintf("the %s limit of %s was reached", l, e.policy.Limits.Named(l)))
	}
	if len(e.Limits) == 0 && (e.Status.Code != 0 || e.Status.Signal != 0) {
		causes = append(causes, e.Status.String())
	}
	if len(causes) == 0 { // a process that failed makes no outputs: that says nothing more
		for _, p := range e.Missing {
			causes = append(causes, fmt.Sprintf("output %q was not made", p))
		}
	}
	for i, r := range e.Rejected {
		if i == maxNamed {
			causes = append(causes, fmt.Sprintf("and %d more", len(e.Rejected)-i))
			break
		}
		causes = append(causes, fmt.Sprintf("output %q was rejected: %s", r.Path, r.Reason))
	}
	return strings.Join(causes, "; ") + e.refused() + said("stderr", e.Stderr) + said("stdout", e.Stdout)
}

// refused lists what the process asked of the network in vain.
func (e *RunError) refused() string {
	var b strings.Builder
	n := 0
	for _, a := range e.Egress {
		if a.Verdict != egress.Refused {
			continue
		}
		if n++; n > maxNamed {
			fmt.Fprintf(&b, "\n  egress: and more")
			break
		}
		fmt.Fprintf(&b, "\n  egress: %s:%d was refused: %s", a.Host, a.Port, a.Reason)
	}
	return b.String()
}

// Hints are what can be done about it.
func (e *RunError) Hints() []string {
	var out []string
	for _, l := range e.Limits {
		out = append(out, fmt.Sprintf("raise %s in the seal(…) of the action", l))
	}
	stderr := string(e.Stderr.Data)
	switch {
	case e.policy.Unsealed:
	case e.Status.Code == 127 || strings.Contains(stderr, "not found"):
		out = append(out, "nothing is inside but what is declared: list each program that a tool calls in tool(data = […])")
	case strings.Contains(stderr, "No such file or directory"):
		out = append(out, "nothing is inside but what is declared: inputs in srcs, programs and folders of this machine in tool(data = […])")
	case len(e.policy.Network) == 0 && (strings.Contains(stderr, "Name or service not known") || strings.Contains(stderr, "name resolution") ||
		strings.Contains(stderr, "unreachable") || strings.Contains(stderr, "Could not resolve")):
		out = append(out, "this action has no network: seal(network = [\"HOST\"]) declares one")
	}
	if len(e.Limits) == 0 && e.Status == (sandbox.Status{}) && len(e.Missing) > 0 {
		out = append(out, "outputs are made in the working directory; $(out NAME) is their path")
	}
	return out
}

const (
	maxNamed = 5   // rejected outputs
	maxSaid  = 20  // lines of a stream
	maxLine  = 400 // bytes of one
)

// said gives the last lines of a stream, indented.
func said(name string, s sandbox.Stream) string {
	text := bytes.TrimRight(s.Data, "\n")
	if len(text) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n  %s:", name)
	lines := bytes.Split(text, []byte("\n"))
	if n := len(lines) - maxSaid; n > 0 {
		fmt.Fprintf(&b, " (the last %d of %d lines)", maxSaid, len(lines))
		lines = lines[n:]
	}
	for _, l := range lines {
		more := ""
		if len(l) > maxLine {
			l, more = l[:maxLine], "…"
		}
		b.WriteString("\n    " + string(l) + more)
	}
	if s.Truncated() {
		fmt.Fprintf(&b, "\n    … (%d bytes were written, %d are kept)", s.Total, len(s.Data))
	}
	return b.String()
}
