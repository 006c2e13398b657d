package engine

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"strings"

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
	// Merge joins lists, sorted by path, none in another.
	Merge(lists ...[]graph.Mount) ([]graph.Mount, error)
}

// mounts resolves the tools of a run, whose inputs are known. What it gives is
// shared: many actions have the same tools.
func (b *build) mounts(n *node) ([]graph.Mount, error) {
	if len(n.action.Tools) == 0 {
		return nil, nil
	}
	if b.o.Tools == nil {
		return nil, errors.New("find its tools: not supported on this system")
	}
	key := n.toolsKey()
	if m, ok := b.resolved.Load(key); ok {
		return m.([]graph.Mount), nil
	}
	var lists [][]graph.Mount
	for _, t := range n.action.Tools {
		list, err := b.resolve(n, t)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", t.Label, err)
		}
		lists = append(lists, list...)
	}
	m, err := b.o.Tools.Merge(lists...)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", n.action.Tools[0].Label, err)
	}
	b.resolved.Store(key, m)
	return m, nil
}

// checkTools makes sure that a process had the tools that are in its key.
func (b *build) checkTools(n *node) error {
	if len(n.inputs.Mounts) == 0 {
		return nil
	}
	if err := b.o.Tools.Check(n.inputs.Mounts); err != nil {
		return &toolError{fmt.Errorf("a tool of it: %w", err)}
	}
	return nil
}

// A toolError is of a tool that changed: whoever changed it can build again.
type toolError struct{ error }

// toolsKey names what the action's tools resolve to in this process.
func (n *node) toolsKey() string {
	var s strings.Builder
	for _, t := range n.action.Tools {
		fmt.Fprintf(&s, "%q %q", t.Program, t.Data)
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

func (b *build) resolve(n *node, t graph.Tool) ([][]graph.Mount, error) {
	var lists [][]graph.Mount
	add := func(m []graph.Mount, err error) error {
		lists = append(lists, m)
		return err
	}
	var err error
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
	return lists, err
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

// unlocked gives the tools of an action that no lock pins.
func (b *build) unlocked(*graph.Action) []graph.Label { return nil }
