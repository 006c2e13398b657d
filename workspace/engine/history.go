package engine

import (
	"encoding/json"
	"errors"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/draws"
	"github.com/evalbuild/eval/workspace/graph"
)

// What is told of draws to whoever scores them, and what a scoring leaves in the
// lock: the terms before the first draw, and each look.

// A boundPlace is what terms are bound for.
type boundPlace struct {
	owner graph.Label
	block string
	epoch int
}

// bind notes, once, what the node's reps will be scored with.
func (b *build) bind(n *node) error {
	d, owner := n.draw, n.action.Owner
	_, err := b.bound.get(boundPlace{owner, d.id.Sample.Block, d.id.Sample.Epoch}, func() (struct{}, error) {
		h := b.historyOf(n)
		if h == nil {
			return struct{}{}, nil
		}
		look, err := b.lookOf(h)
		if line, ok := d.lock.Bind(owner, d.id.Sample, look); ok && err == nil {
			_, err = d.lock.Append(line)
		}
		return struct{}{}, err
	})
	return err
}

// historyOf is the node that will account for a draw, nil if none will. Its
// tools were found, since they need nothing that is made.
func (b *build) historyOf(n *node) *node {
	for _, u := range n.users {
		if u.action.Kind != graph.History {
			continue
		}
		h := &node{action: u.action}
		for range h.action.Inputs {
			h.inputs.Files = append(h.inputs.Files, graph.Content{})
		}
		for i, in := range h.action.Inputs {
			if isDraw(in) {
				continue
			}
			if m := b.byAction[in.File.Action]; m != nil && m.outputs == nil {
				return nil // then the first look binds
			}
			c, err := b.contentOf(in.File)
			if err != nil {
				return nil
			}
			h.inputs.Files[i] = c
		}
		var err error
		h.inputs.Platform = b.platform()
		if h.inputs.Mounts, err = b.mounts(h); err != nil {
			return nil
		}
		return h
	}
	return nil
}

// account is what a history node makes: what the lock says of its draws. It is
// no result of the store: the lock is.
func (b *build) account(n *node) outcome {
	reps, lock := b.repsOf(n)
	if lock == nil {
		return outcome{err: errors.New("a history of no draws")}
	}
	look, err := b.lookOf(n)
	if err != nil {
		return outcome{err: err}
	}
	data, err := lock.Account(n.action.Owner, reps, look).JSON()
	if err != nil {
		return outcome{err: err, infra: true}
	}
	out := output{digest: b.o.Store.Func().Sum(data), contents: data, inlined: true}
	if b.again != nil {
		b.again.put(b.o.Store.Func(), data)
	}
	return outcome{hit: true, outputs: []output{out}}
}

// repsOf are the draws that a history node accounts for, and their lock.
func (b *build) repsOf(n *node) (reps []draws.Rep, lock *draws.Lock) {
	for _, in := range n.action.Inputs {
		if isDraw(in) {
			d := b.byAction[in.File.Action].draw
			lock = d.lock
			reps = append(reps, draws.Rep{ID: d.id, Withdrawn: in.File.Action.Terms.Withdrawn, Stopped: d.stopped})
		}
	}
	return reps, lock
}

// lookOf is what a history node's look is made with: a program that judges is
// known by all that it is.
func (b *build) lookOf(n *node) (graph.Look, error) {
	look := *n.action.Look
	if look.Fingerprint != "" {
		return look, nil
	}
	judge := graph.Action{Kind: graph.Run, Policy: new(graph.Policy), Args: []string{n.action.Tools[0].Path()}}
	in := graph.Inputs{Mounts: n.inputs.Mounts, Platform: n.inputs.Platform}
	for i, x := range n.action.Inputs {
		if isDraw(x) {
			continue
		}
		c := n.inputs.Files[i]
		c.Executable = c.Tree == nil // whatever its mode: only its bytes were asked for
		judge.Inputs, in.Files = append(judge.Inputs, x), append(in.Files, c)
	}
	key, err := judge.RepKey(b.o.Store.Func(), in)
	look.Fingerprint = cas.Digest(key).Hex()
	return look, err
}

// isDraw says whether a history's input is one of its draws.
func isDraw(in graph.Input) bool { return strings.HasPrefix(in.Name, graph.DrawPrefix) }

// takeLooks notes in the locks how each scoring came out that differs from the
// one before it.
func (b *build) takeLooks() error {
	for _, n := range b.nodes {
		if n.state != done || n.action.Kind != graph.Evaluate {
			continue
		}
		for _, in := range n.action.Inputs {
			if h := b.byAction[in.File.Action]; !in.File.Source() && h.action.Kind == graph.History {
				if err := b.takeLook(n, h); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// takeLook notes the look of a scoring with a history.
func (b *build) takeLook(n, h *node) error {
	var card struct{ Verdict, Conclusion string }
	data, err := starlark.ReadBlob(b.blob(n.action.Outputs[0].File, n.outputs[0].digest))
	if err != nil {
		return err
	}
	if json.Unmarshal(data, &card) != nil || card.Verdict == "" || card.Conclusion == "" {
		return nil // it looks at the history, and scores nothing
	}
	look, err := b.lookOf(h)
	if err != nil {
		return err
	}
	reps, lock := b.repsOf(h)
	for _, rep := range slices.Backward(reps) {
		if rep.Withdrawn {
			continue
		}
		seen := draws.Looked{
			N: look.N, Reps: lock.Scored(reps), Fingerprint: look.Fingerprint, Alpha: look.Alpha, Effect: look.Effect, Margin: look.Margin,
			Verdict: card.Verdict, Conclusion: card.Conclusion,
		}
		before := lock.Looks(n.action.Owner, rep.Sample.Block)
		if len(before) > 0 && before[len(before)-1].Looked == seen {
			return nil // a build that changes nothing writes nothing: the lock may be read-only
		}
		_, err := lock.Append(draws.NewLook(n.action.Owner, rep.Sample.Block, seen))
		return err
	}
	return nil
}
