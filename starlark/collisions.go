package starlark

import (
	"fmt"
	"strings"
)

// collisions finds outputs of different targets that would be one path below
// eval-out, or a file where another has a folder. Only a target whose folder
// is a package (or below one) can collide with another's.
func collisions(levels [][]*Target) error {
	folders := map[string]*Target{} // output folder -> target
	above := map[string]*Target{}   // the folders above it, and itself
	for _, level := range levels {
		for _, t := range level {
			root := t.Label.Repo + "//" + t.Label.Path()
			folders[root] = t
			for end := len(root); end > len(t.Label.Repo)+1; end = strings.LastIndexByte(root[:end], '/') {
				if was := above[root[:end]]; was == nil || t.Label.Compare(was.Label) < 0 {
					above[root[:end]] = t
				}
			}
		}
	}
	var errs []error
	for _, level := range levels {
		for _, t := range level {
			if t.Result == nil {
				continue
			}
			root := t.Label.Repo + "//" + t.Label.Path() + "/"
			check := func(p string) {
				other := above[root+p] // where p is a file, another has a folder
				for end := len(p); other == nil && end > 0; end = strings.LastIndexByte(p[:end], '/') {
					other = folders[root+p[:end]] // p is within the folder of another
				}
				if other != nil {
					errs = append(errs, &Error{Pos: t.Pos, Msg: fmt.Sprintf("%s %s: its output %q is where the outputs of %s go (%s)",
						t.Kind, t.Label, p, other.Label, other.Pos)})
				}
			}
			for _, a := range t.Result.Actions {
				for _, o := range a.Outputs {
					check(o.File.Path)
				}
			}
			for _, e := range t.Result.Exports {
				check(e.Path)
			}
		}
	}
	return joinErrors(errs)
}
