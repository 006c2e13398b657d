package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/evalbuild/eval/starlark"
	"github.com/evalbuild/eval/workspace/graph"
)

// Tools finds what programs need of this machine; workspace/hosttools does.
type Tools interface {
	// Program gives a program of this machine with all that it needs.
	Program(path string) ([]graph.Mount, error)
	// Data gives a file or folder of this machine.
	Data(path string) ([]graph.Mount, error)
	// Needs gives what a program that is not of this machine needs of it.
	Needs(content io.ReaderAt, size int64) ([]graph.Mount, error)
	// Check looks again at what the others gave, after it was used.
	Check(mounts []graph.Mount) error
	// Now gives what is at a mount's place at this moment, of its kind.
	Now(m graph.Mount) (graph.Mount, error)
	// Merge joins lists, sorted by path, none in another.
	Merge(lists ...[]graph.Mount) ([]graph.Mount, error)
}

// A resolution is what an action's tools come to. It is shared: many actions
// have the same tools.
type resolution struct {
	mounts []graph.Mount          // all, sorted by path: what is in the key
	host   []graph.Mount          // those of tools that no lock pins
	pinned map[string]graph.Label // paths that a lock pins, and the first tool of each

	sealed, unsealed func() ([]graph.Mount, error) // mounts with sources, found once
}

// mounts resolves the tools of a run, whose inputs are known.
func (b *build) mounts(n *node) ([]graph.Mount, error) {
	if len(n.action.Tools) == 0 {
		return nil, nil
	}
	if b.o.Recorded != nil {
		return b.o.Recorded.Mounts(toolLabels(n.action))
	}
	r, err := b.resolution(n)
	if err != nil {
		return nil, err
	}
	return b.serverMount(n.action, r.mounts)
}

func (b *build) resolution(n *node) (*resolution, error) {
	if b.o.Tools == nil {
		return nil, errors.New("find its tools: not supported on this system")
	}
	key := n.toolsKey()
	if r, ok := b.resolved.Load(key); ok {
		return r.(*resolution), nil
	}
	r := &resolution{pinned: map[string]graph.Label{}}
	lists := make([][]graph.Mount, len(n.action.Tools))
	for i, t := range n.action.Tools {
		list, _, ok, err := b.locked(t)
		if err != nil {
			return nil, err
		}
		if ok {
			for _, m := range list {
				if _, ok := r.pinned[m.Path]; !ok {
					r.pinned[m.Path] = t.Label
				}
			}
			lists[i] = list
			continue
		}
		if lists[i], err = b.resolve(n, t); err != nil {
			return nil, fmt.Errorf("%s: %w", t.Label, err)
		}
		r.host = append(r.host, lists[i]...)
	}
	if err := b.fill(lists); err != nil {
		return nil, err
	}
	var err error
	if r.mounts, err = b.o.Tools.Merge(lists...); err != nil {
		return nil, b.clash(n.action.Tools, lists, err)
	}
	r.sealed = sync.OnceValues(func() ([]graph.Mount, error) { return b.sources(r, false) })
	r.unsealed = sync.OnceValues(func() ([]graph.Mount, error) { return b.sources(r, true) })
	first, _ := b.resolved.LoadOrStore(key, r)
	return first.(*resolution), nil
}

// clash names the tools of which a path can't be had both ways.
func (b *build) clash(tools []graph.Tool, lists [][]graph.Mount, err error) error {
	for i := range lists {
		for j := range i {
			if _, err := b.o.Tools.Merge(lists[j], lists[i]); err != nil {
				return &toolError{fmt.Errorf("tools %s and %s: %w", tools[j].Label, tools[i].Label, err)}
			}
		}
	}
	return fmt.Errorf("%s: %w", tools[0].Label, err)
}

// bindTools finds where the process will have its tools from.
func (b *build) bindTools(n *node) error {
	if len(n.action.Tools) == 0 {
		return nil
	}
	r, err := b.resolution(n)
	if err != nil {
		return err
	}
	if n.onlyHost() {
		n.bound, err = r.unsealed()
	} else {
		n.bound, err = r.sealed()
	}
	return err
}

// onlyHost says that tools are not mounted but used where they are.
func (n *node) onlyHost() bool { return n.action.Policy.Unsealed || here.OSFamily == "macos" }

// checkTools makes sure that a process had the tools that are in its key: of
// what a seal mounts the sources, of the rest what is on this machine.
func (b *build) checkTools(n *node) error {
	if len(n.bound) == 0 {
		return nil
	}
	if n.action.Server != nil {
		m, err := b.own(n.action.Server.Program)
		if err == nil {
			err = b.o.Tools.Check([]graph.Mount{m})
		}
		if err != nil {
			return &toolError{fmt.Errorf("the program of its world: %w", err)}
		}
	}
	r, err := b.resolution(n)
	if err != nil {
		return err
	}
	found := map[string]bool{}
	for _, m := range r.host {
		found[m.Path] = true
	}
	var used []graph.Mount
	for _, m := range n.bound {
		if m.Link == "" || found[m.Path] || n.onlyHost() {
			used = append(used, m)
		}
	}
	if err := b.o.Tools.Check(used); err != nil {
		return &toolError{fmt.Errorf("a tool of it: %w", err)}
	}
	return nil
}

// A toolError is of a tool that changed: whoever changed it can build again.
type toolError struct{ error }

func (e *toolError) Unwrap() error { return e.error }

// toolsKey names what the action's tools resolve to in this process.
func (n *node) toolsKey() string {
	var s strings.Builder
	for _, t := range n.action.Tools {
		fmt.Fprintf(&s, "%v %q %q", t.Label, t.Program, t.Data)
		if i := n.inputIndex(t.Input); i >= 0 {
			s.WriteString(n.inputs.Files[i].Digest.String())
		}
		s.WriteByte('\n')
	}
	return s.String()
}

// inputIndex finds an input by name, -1 if there is none.
func (n *node) inputIndex(name string) int {
	for i, in := range n.action.Inputs {
		if in.Name == name {
			return i
		}
	}
	return -1
}

// resolve finds a tool on this machine.
func (b *build) resolve(n *node, t graph.Tool) ([]graph.Mount, error) {
	var lists [][]graph.Mount
	add := func(m []graph.Mount, err error) error {
		lists = append(lists, m)
		return err
	}
	var err error
	if t.Own != "" {
		m, err := b.own(t.Own)
		return []graph.Mount{m}, err
	}
	if t.Program != "" {
		err = add(b.o.Tools.Program(t.Program))
	} else if err = add(b.programNeeds(n, t)); err != nil {
		err = fmt.Errorf("%s: %w", n.action.Inputs[n.inputIndex(t.Input)].File.Slash(), err)
	}
	for _, p := range t.Data {
		if err == nil {
			err = add(b.o.Tools.Data(p))
		}
	}
	if err != nil {
		return nil, err
	}
	return b.o.Tools.Merge(lists...)
}

// programNeeds finds what a program of the build needs of this machine.
func (b *build) programNeeds(n *node, t graph.Tool) ([]graph.Mount, error) {
	i := n.inputIndex(t.Input)
	file, c := n.action.Inputs[i].File, n.inputs.Files[i]
	if c.Tree != nil {
		return nil, errors.New("a folder is no program")
	}
	if file.Source() { // large ones are read where they are; staging checks the digest
		rc, err := b.o.Sources.Open(file.Label)
		if err != nil {
			return nil, err
		}
		defer rc.Close()
		if at, ok := rc.(io.ReaderAt); ok {
			return b.o.Tools.Needs(at, c.Digest.Size)
		}
	}
	data, err := starlark.ReadBlob(b.blob(file, c.Digest))
	if err != nil {
		return nil, err
	}
	return b.o.Tools.Needs(bytes.NewReader(data), int64(len(data)))
}
