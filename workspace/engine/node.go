package engine

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// An output is one file or folder that an action made. A small file is in the
// result; of others the content is in the store.
type output struct {
	digest     cas.Digest // of the file, or of the root of tree
	contents   []byte
	inlined    bool
	executable bool
	tree       *cas.Tree // of a folder
}

// A node is one action of a build.
type node struct {
	action *graph.Action
	state  state
	users  []*node // those that its outputs are inputs of
	open   int     // inputs whose maker has not finished

	inputs  graph.Inputs
	bound   []graph.Mount // inputs.Mounts with sources, of a run that runs
	fields  []graph.Field // see explained
	key     graph.Key
	outputs []output
	ran     bool          // in this build
	took    time.Duration // of its function alone
	why     string        // of a miss
	sure    bool
	damaged int        // times that its result was found damaged
	draw    *drawState // of a draw that was checked
	feeds   bool       // a draw needs it
	whole   bool       // its bytes are needed, wherever its result is found

	unshared bool // it is, or comes from, what ran without a seal
	asking   bool // a worker is asking the remote
	remote   bool // its result came from the remote
	alone    bool // the remote lost its blobs: it isn't asked again
	planned  bool // plan only: it has no result, and was computed to go on
	// away is the key under which its blobs are on the remote only; nil: they are
	// here. Those that need them read it while the node may be checked again.
	away atomic.Pointer[graph.Key]
}

func (n *node) status() Status {
	switch n.state {
	case done:
		if n.planned {
			return Stale
		}
		switch {
		case n.ran:
			return Ran
		case n.remote:
			return Remotely
		}
		return Disk
	case failed:
		return Failed
	case stale:
		return Stale
	}
	return Skipped
}

// setOutputs leaves outputs alone that are the same: after a reopen, a check of
// a user may still be reading them.
func (n *node) setOutputs(outputs []output) {
	same := func(a, b output) bool {
		return a.digest == b.digest && a.inlined == b.inlined && a.executable == b.executable && (a.tree == nil) == (b.tree == nil)
	}
	if !slices.EqualFunc(n.outputs, outputs, same) {
		n.outputs = outputs
	}
}

func (e *Engine) newBuild(targets []*starlark.Target, plan bool) *build {
	b := &build{
		Engine: e, plan: plan, targets: targets,
		byAction:   map[*graph.Action]*node{},
		needs:      map[*starlark.Target][]*node{},
		owned:      map[graph.Label][]*node{},
		byKey:      map[graph.Key]*node{},
		parked:     map[graph.Key][]*node{},
		exported:   map[*starlark.Target]bool{},
		unscorable: map[graph.Label]bool{},
		requested:  map[graph.Label]bool{},
	}
	for _, t := range targets {
		b.requested[t.Label] = true
		seen := map[*node]bool{}
		add := func(n *node) { b.needs[t] = append(b.needs[t], n) }
		for _, f := range t.Result.Files {
			b.need(f, seen, add)
		}
		for _, e := range t.Result.Exports {
			b.need(e.File, seen, add)
		}
	}
	for _, n := range slices.Backward(b.nodes) { // those that need something first
		if n.feeds || n.action.Sample != nil {
			for _, f := range needs(n.action) {
				if d := b.byAction[f.Action]; d != nil {
					d.feeds = true
				}
			}
		}
	}
	b.markShared()
	for _, n := range b.nodes {
		if n.open == 0 {
			b.ready = append(b.ready, n)
		}
	}
	return b
}

// need adds the action that makes f, and those that it needs.
func (b *build) need(f *graph.File, seen map[*node]bool, add func(*node)) *node {
	if f.Source() {
		return nil
	}
	n, known := b.byAction[f.Action]
	if !known {
		n = &node{action: f.Action}
		b.byAction[f.Action] = n
	}
	if seen[n] {
		return n
	}
	seen[n] = true
	for _, in := range needs(f.Action) {
		d := b.need(in, seen, add)
		if d == nil || known {
			continue
		}
		d.users = append(d.users, n) // once for each output that it uses
		n.open++
	}
	if !known {
		b.nodes = append(b.nodes, n)
		b.owned[n.action.Owner] = append(b.owned[n.action.Owner], n)
	}
	add(n)
	return n
}

// markShared finds out what a remote may know of, and whose bytes are brought.
func (b *build) markShared() {
	if b.o.Remote == nil {
		return
	}
	for _, n := range b.nodes { // inputs first
		n.whole = n.whole || b.o.Download == DownloadAll
		n.unshared = n.action.Policy != nil && n.action.Policy.Unsealed
		for _, in := range n.action.Inputs {
			if maker := b.byAction[in.File.Action]; maker != nil {
				n.unshared = n.unshared || maker.unshared
				maker.whole = maker.whole || n.action.Program(in.Name)
			}
		}
	}
	for _, t := range b.targets {
		if f := t.Result.Scorecard; f != nil {
			b.byAction[f.Action].whole = true
		}
		if b.o.Download == DownloadToplevel {
			for _, e := range shown(t) {
				if !e.File.Source() {
					b.byAction[e.File.Action].whole = true
				}
			}
		}
	}
}

// needs are the files that must be there before an action's key is known: its
// inputs, and for a draw those of all arms of its block.
func needs(a *graph.Action) []*graph.File {
	arms := []*graph.Action{a}
	if a.Block != nil {
		arms = append(arms, a.Block.Arms...)
	}
	var out []*graph.File
	for _, arm := range arms {
		for _, in := range arm.Inputs {
			out = append(out, in.File)
		}
	}
	return out
}
