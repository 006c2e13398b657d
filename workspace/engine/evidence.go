package engine

import (
	"context"
	"fmt"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// Evidence is all that a target's outputs stand on beside its sources, and the
// outputs that it gives. It is held in memory.
type Evidence struct {
	Report    *Report
	Faults    []Fault
	Outputs   []Shown // files only
	Processes []Process
	Tools     []ToolMounts // of processes and of programs that judge
}

// ToolMounts are what the tools of an action resolved to, as one list.
type ToolMounts struct {
	Tools  []graph.Label
	Mounts []graph.Mount
}

// Shown is a file as it is, or would be, shown in the output folder.
type Shown struct {
	Path string
	Data []byte
}

// A Process is one whose result was taken as recorded.
type Process struct {
	Slot  graph.Slot
	Terms *graph.Terms // of a draw, else nil
	// Draws are the identities of a draw: first those that a limit stopped which
	// was raised since, last what it is now. Nil of a pure process.
	Draws []draws.ID
	// Results are in the order of Draws; of a pure process there is one. A
	// withdrawn rep that is lost has none.
	Results []KeyedResult
}

// A KeyedResult is a result with what the store has it under.
type KeyedResult struct {
	Key    graph.Key
	Result cas.Result
}

// Evidence computes the target's outputs again as Verify does, and gives them
// with what they were computed from. With an output folder, it compares that
// too.
func (e *Engine) Evidence(ctx context.Context, t *starlark.Target) (*Evidence, error) {
	b := e.newBuild([]*starlark.Target{t}, false)
	err := b.recomputeAll(ctx)
	if err == nil && b.o.Out != "" {
		err = b.compareOut(t)
	}
	out := &Evidence{Report: b.verified(), Faults: b.sortedFaults()}
	if err != nil || len(out.Report.Problems) > 0 {
		return out, err
	}
	found := map[string]bool{}
	for _, n := range b.nodes {
		if tools := toolLabels(n.action); len(tools) > 0 && !found[fmt.Sprint(tools)] {
			found[fmt.Sprint(tools)] = true
			out.Tools = append(out.Tools, ToolMounts{tools, n.inputs.Mounts})
		}
		if n.action.Kind != graph.Run {
			continue
		}
		p, err := b.processOf(n)
		if err != nil {
			return out, err
		}
		out.Processes = append(out.Processes, p)
	}
	for _, x := range shown(t) {
		pieces, err := b.pieces(x)
		if err != nil {
			return out, err
		}
		for _, p := range pieces {
			if p.kind != pieceFile {
				continue
			}
			data, ok := b.again.get(p.digest)
			if !ok {
				if data, err = b.readShown(x, p.digest); err != nil {
					return out, fmt.Errorf("read %s: %w", p.path, err)
				}
			}
			out.Outputs = append(out.Outputs, Shown{p.path, data})
		}
	}
	return out, nil
}

// readShown reads what no function made: a source, or what a process left.
func (b *build) readShown(x starlark.Export, d cas.Digest) ([]byte, error) {
	if x.File.Source() {
		return starlark.ReadBlob(b.blob(x.File, d))
	}
	return b.o.Store.Read(d)
}

// processOf reads the results of a node that was recomputed.
func (b *build) processOf(n *node) (Process, error) {
	p := Process{Slot: n.action.Slot(), Terms: n.action.Terms}
	if n.draw == nil {
		r, err := b.o.Store.Lookup(cas.Pure, cas.Digest(n.key))
		if err == nil {
			p.Results = []KeyedResult{{n.key, r}}
		}
		return p, err
	}
	p.Draws = append(append(p.Draws, n.draw.stopped...), n.draw.id)
	for _, id := range p.Draws {
		if !n.draw.had {
			continue
		}
		r, _, err := b.o.Store.LookupCapture(cas.Digest(id.Key), n.draw.lock.State(id).Line.Capture)
		if err != nil {
			return p, err
		}
		p.Results = append(p.Results, KeyedResult{id.Key, r})
	}
	return p, nil
}

// Recorded stands for the machine on which evidence was recorded.
type Recorded struct {
	Platform graph.Platform
	// Mounts gives what tools resolved to there.
	Mounts func(tools []graph.Label) ([]graph.Mount, error)
}

// platform is where the build's runs run, or ran.
func (b *build) platform() graph.Platform {
	if b.o.Recorded != nil {
		return b.o.Recorded.Platform
	}
	return here
}

// toolLabels names the tools of an action.
func toolLabels(a *graph.Action) []graph.Label {
	var labels []graph.Label
	for _, t := range a.Tools {
		labels = append(labels, t.Label)
	}
	if a.Server != nil {
		labels = append(labels, graph.Label{Repo: "eval", Name: a.Server.Program})
	}
	return labels
}
