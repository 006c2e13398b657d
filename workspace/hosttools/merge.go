package hosttools

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Merge makes one list of several: sorted by path, each thing once, and nothing
// of its own that a mounted folder has in it already. It is an error if two
// things have one path, or if one lies below what isn't a folder, or in a
// folder that has no such thing; errors read "mount PATH: cause".
func Merge(lists ...[]graph.Mount) ([]graph.Mount, error) {
	var all []graph.Mount
	for _, list := range lists {
		all = append(all, list...)
	}
	slices.SortStableFunc(all, func(a, b graph.Mount) int { return strings.Compare(a.Path, b.Path) })
	byPath := make(map[string]*graph.Mount, len(all))
	kept := all[:0]
	for _, m := range all {
		if first := byPath[m.Path]; first == nil {
			kept = append(kept, m)
			byPath[m.Path] = &kept[len(kept)-1]
		} else if !sameMount(*first, m) {
			return nil, conflict(m.Path, "is %s and %s", describe(*first), describe(m))
		}
	}
	inside := map[string]map[string]graph.Mount{} // by outermost folder and the path in it
	for _, m := range kept {
		folder, err := above(byPath, m.Path)
		if err != nil {
			return nil, err
		}
		if folder == "" {
			continue
		}
		if inside[folder] == nil {
			inside[folder] = map[string]graph.Mount{}
		}
		inside[folder][strings.TrimPrefix(m.Path, folder+"/")] = m
	}
	for _, folder := range slices.Sorted(maps.Keys(inside)) { // so that one input has one error
		if err := contains(*byPath[folder], inside[folder]); err != nil {
			return nil, err
		}
	}
	return slices.DeleteFunc(slices.Clone(kept), func(m graph.Mount) bool {
		folder, _ := above(byPath, m.Path)
		return folder != ""
	}), nil
}

func conflict(name, format string, args ...any) error {
	return &fault{op: "mount", object: name, cause: fmt.Errorf(format, args...)}
}

func describe(m graph.Mount) string {
	switch {
	case m.Link != "":
		return "a link to " + m.Link
	case m.Tree != nil:
		return "a folder " + m.Digest.String()
	case m.Executable:
		return "an executable file " + m.Digest.String()
	}
	return "a file " + m.Digest.String()
}

// sameMount doesn't ask where the bytes are: they are the same.
func sameMount(a, b graph.Mount) bool {
	return a.Link == b.Link && a.Digest == b.Digest && a.Executable == b.Executable && (a.Tree == nil) == (b.Tree == nil)
}

// above gives the outermost mounted folder that a path lies in, or "".
func above(mounts map[string]*graph.Mount, name string) (folder string, err error) {
	for dir := path.Dir(name); ; dir = path.Dir(dir) {
		if m := mounts[dir]; m != nil {
			if m.Tree == nil {
				return "", conflict(name, "%s is %s, not a folder", dir, describe(*m))
			}
			folder = dir
		}
		if dir == "/" || dir == "." {
			return folder, nil
		}
	}
}

var errFound = errors.New("all found")

// contains checks that a folder has these things in it, by their paths there.
func contains(folder graph.Mount, want map[string]graph.Mount) error {
	found := func(rel string, has graph.Mount) error {
		m, ok := want[rel]
		if !ok {
			return nil
		}
		if !sameMount(has, m) {
			return conflict(m.Path, "is %s, and in the folder %s %s", describe(m), folder.Path, describe(has))
		}
		delete(want, rel)
		if len(want) == 0 {
			return errFound
		}
		return nil
	}
	err := folder.Tree.Visit(cas.Visitor{
		Dir: func(rel string, t *cas.Tree) error {
			return found(rel, graph.Mount{Digest: t.Digest(), Tree: t})
		},
		File: func(rel string, f cas.FileNode) error {
			return found(rel, graph.Mount{Digest: f.Digest, Executable: f.Executable})
		},
		Symlink: func(rel string, l cas.SymlinkNode) error {
			return found(rel, graph.Mount{Link: l.Target})
		},
	})
	if err != nil && !errors.Is(err, errFound) {
		return err
	}
	for _, rel := range slices.Sorted(maps.Keys(want)) {
		m := want[rel]
		return conflict(m.Path, "is %s in the folder %s, which has no such thing", describe(m), folder.Path)
	}
	return nil
}
