package toolslock

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Set answers for the tools of a workspace. It reads each file once. Its
// methods may be called from many goroutines.
type Set struct {
	fn  cas.Func
	dir func(graph.Label) (string, error)

	mu    sync.Mutex
	files map[string]func() ([]Entry, error) // by folder
}

// NewSet makes a Set for a store whose digests are of fn; dir gives the folder
// of a label's package.
func NewSet(fn cas.Func, dir func(graph.Label) (string, error)) *Set {
	return &Set{fn: fn, dir: dir, files: map[string]func() ([]Entry, error){}}
}

// Locked gives what a tool's lock pins on a platform, without sources and with
// hollow trees. If it pins nothing there, ok is false, and elsewhere names the
// platforms on which it does.
func (s *Set) Locked(t graph.Tool, p graph.Platform) (mounts []graph.Mount, elsewhere []graph.Platform, ok bool, err error) {
	dir, err := s.dir(t.Label)
	if err != nil {
		return nil, nil, false, err
	}
	entries, err := s.read(filepath.Join(dir, Name))
	if err != nil {
		return nil, nil, false, err
	}
	for _, e := range entries {
		switch {
		case e.Tool != t.Label.Name:
			continue
		case e.Platform != p:
			elsewhere = append(elsewhere, e.Platform)
			continue
		}
		fail := func(format string, args ...any) error {
			return &fault{
				"read", filepath.Join(dir, Name), fmt.Errorf("tool %s: "+format, append([]any{t.Label}, args...)...),
				fmt.Sprintf("`ev lock %s` pins it as it is declared now", t.Label),
			}
		}
		if e.Program != t.Program || !slices.Equal(e.Data, sortedSet(t.Data)) {
			return nil, nil, false, fail("it was locked as %s, and is declared as %s", declared(e.Program, e.Data), declared(t.Program, sortedSet(t.Data)))
		}
		for _, m := range e.Mounts {
			if m.Link == "" && m.Digest.Func != s.fn {
				return nil, nil, false, fail("it is pinned by digests of %v, and the workspace's are of %v", m.Digest.Func, s.fn)
			}
		}
		return e.Mounts, nil, true, nil
	}
	return nil, elsewhere, false, nil
}

// declared spells a declaration.
func declared(program string, data []string) string {
	if program == "" {
		program = "a file of the build"
	}
	if len(data) > 0 {
		program += " with " + strings.Join(data, " ")
	}
	return program
}

func (s *Set) read(name string) ([]Entry, error) {
	s.mu.Lock()
	call := s.files[name]
	if call == nil {
		call = sync.OnceValues(func() ([]Entry, error) { return Read(name) })
		s.files[name] = call
	}
	s.mu.Unlock()
	return call()
}
