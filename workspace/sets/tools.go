package sets

import (
	"fmt"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

const (
	drawsName   = "draws.jsonl"
	toolsName   = "tools.json"
	sourcesName = "sources.json"
)

// A Tool is what the tools of an action came to on the machine where it ran.
type Tool struct {
	Tools  []graph.Label
	Mounts []graph.Mount
}

// toolsFile is the content of tools.json. Fields are in the order of keys.
type toolsFile struct {
	Tools []toolEntry `json:"tools"`
}

type toolEntry struct {
	Labels []string     `json:"labels"`
	Mounts []mountEntry `json:"mounts"`
}

type mountEntry struct {
	Digest     string `json:"digest"` // "" of a link
	Executable bool   `json:"executable"`
	Folder     bool   `json:"folder"`
	Link       string `json:"link"`
	Path       string `json:"path"`
}

func encodeTools(tools []Tool) []byte {
	out := toolsFile{Tools: []toolEntry{}}
	for _, t := range tools {
		e := toolEntry{Labels: labelNames(t.Tools), Mounts: []mountEntry{}}
		for _, m := range t.Mounts {
			x := mountEntry{Executable: m.Executable, Folder: m.Tree != nil, Link: m.Link, Path: m.Path}
			if m.Link == "" {
				x.Digest = m.Digest.String()
			}
			e.Mounts = append(e.Mounts, x)
		}
		out.Tools = append(out.Tools, e)
	}
	return canonical(out)
}

func labelNames(labels []graph.Label) []string {
	out := []string{}
	for _, l := range labels {
		out = append(out, l.String())
	}
	return out
}

// Mounts gives what is recorded of the tools of an action.
func (s *Set) Mounts() (func(tools []graph.Label) ([]graph.Mount, error), error) {
	var f toolsFile
	if err := decodeCanonical(s.files[toolsName], &f); err != nil {
		return nil, fmt.Errorf("read %s: %w", toolsName, err)
	}
	known := map[string][]graph.Mount{}
	for _, t := range f.Tools {
		mounts := []graph.Mount{}
		for _, x := range t.Mounts {
			m := graph.Mount{Path: x.Path, Executable: x.Executable, Link: x.Link}
			if x.Link == "" {
				d, err := s.Manifest.parse(x.Digest)
				if err != nil {
					return nil, fmt.Errorf("read %s: %q: %w", toolsName, x.Path, err)
				}
				m.Digest = d
				if x.Folder { // a key wants no more of it than that
					m.Tree = cas.HollowTree(d, d)
				}
			}
			mounts = append(mounts, m)
		}
		known[strings.Join(t.Labels, " ")] = mounts
	}
	return func(tools []graph.Label) ([]graph.Mount, error) {
		m, ok := known[strings.Join(labelNames(tools), " ")]
		if !ok {
			return nil, fmt.Errorf("%s says nothing of %s", toolsName, strings.Join(labelNames(tools), ", "))
		}
		return m, nil
	}, nil
}
