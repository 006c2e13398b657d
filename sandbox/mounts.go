package sandbox

import (
	"fmt"
	"path"
	"strings"

	"github.com/evalbuild/eval/workspace/graph"
)

// checkMounts wants a sorted list in which nothing lies below a file or link,
// or hides what the seal itself puts there.
func checkMounts(mounts []graph.Mount) error {
	leaves := map[string]bool{}
	last := ""
	for _, m := range mounts {
		switch {
		case !strings.HasPrefix(m.Path, "/") || path.Clean(m.Path) != m.Path || m.Path == "/" || strings.ContainsRune(m.Path, 0):
			return fmt.Errorf("mount %q: no clean absolute path", m.Path)
		case m.Path <= last:
			return fmt.Errorf("mount %q: out of order or twice", m.Path)
		case (m.Source == "") == (m.Link == ""):
			return fmt.Errorf("mount %q: either a source or a link", m.Path)
		}
		last = m.Path
		if own := graph.ReservedPath(m.Path); own != "" && own != InDir {
			return fmt.Errorf("mount %q: the seal keeps %s to itself", m.Path, own)
		}
		for up := path.Dir(m.Path); up != "/"; up = path.Dir(up) {
			if leaves[up] {
				return fmt.Errorf("mount %q: %s is a file, a link or a folder of its own", m.Path, up)
			}
		}
		leaves[m.Path] = true
	}
	return nil
}

// top is the first component of an absolute path.
func top(p string) string {
	if i := strings.IndexByte(p[1:], '/'); i >= 0 {
		return p[:i+1]
	}
	return p
}
