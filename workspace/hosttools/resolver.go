package hosttools

import (
	"fmt"
	"io"
	"maps"
	"os"
	"runtime"
	"slices"
	"sync"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// Options says how a Resolver digests.
type Options struct {
	Func  cas.Func         // zero is BLAKE3
	Cache string           // file of the stat cache, "" for none
	Now   func() time.Time // nil is time.Now
}

// A Resolver finds closures. What it has found it doesn't look up again, so
// that all actions of a build see one state of the machine. Its methods may be
// called from many goroutines.
type Resolver struct {
	host  host
	stats *statCache

	closures  memo[closureKey, []graph.Mount]
	places    memo[string, place]
	objects   memo[string, *object]
	loaders   memo[loaderKey, *loader]
	libraries memo[libraryKey, library]
	cached    func() map[string][]string
}

// host is what differs between machines; tests put another in its place.
type host struct {
	goos        string
	path        []string // where env looks
	loaderCache string
	muslPaths   string   // folder of ld-musl-ARCH.path
	libraries   []string // instead of those of a loader, if not nil
	others      bool     // sealed processes are none of ours: we are root
}

// searchPath is fixed, and that of a sealed process, so that a tool doesn't
// depend on who looks for it.
var searchPath = []string{"/usr/local/sbin", "/usr/local/bin", "/usr/sbin", "/usr/bin", "/sbin", "/bin"}

// New gives a Resolver for this machine. It reads nothing yet.
func New(o Options) *Resolver {
	if o.Func == 0 {
		o.Func = cas.BLAKE3
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	r := &Resolver{
		host:  host{goos: runtime.GOOS, path: searchPath, loaderCache: "/etc/ld.so.cache", muslPaths: "/etc", others: os.Geteuid() == 0},
		stats: &statCache{file: o.Cache, fn: o.Func, now: o.Now},
	}
	r.cached = sync.OnceValue(func() map[string][]string { return readLoaderCache(r.host.loaderCache) })
	return r
}

type closureKey struct{ op, path string }

// Program gives the closure of the program at an absolute path, sorted by path.
func (r *Resolver) Program(path string) ([]graph.Mount, error) {
	return r.closure("tool", path, func(s set) error { return r.program(s, path, 0) })
}

// Data gives the mounts of a file or a folder at an absolute path, with the
// links on the way and what its ELF files need, sorted by path. A folder is one
// mount with its Merkle tree, in which links stay as they are; a file in it that
// is neither a file, a folder nor a link is an error.
func (r *Resolver) Data(path string) ([]graph.Mount, error) {
	return r.closure("data", path, func(s set) error { return r.data(s, path) })
}

// Needs gives what a program that isn't part of this machine needs from it: the
// interpreter of a script, the loader and libraries of an ELF file, nothing for
// a static one. Libraries that such a file looks for beside itself ($ORIGIN) are
// not its machine's and left out. Errors are causes only: the caller knows the
// program's name.
func (r *Resolver) Needs(content io.ReaderAt, size int64) ([]graph.Mount, error) {
	s := set{}
	if err := r.needs(s, content, size, "", 0); err != nil {
		return nil, err
	}
	return s.list(), nil
}

// Save writes the stat cache if this run added to it.
func (r *Resolver) Save() error { return r.stats.save() }

func (r *Resolver) closure(op, path string, find func(set) error) ([]graph.Mount, error) {
	mounts, err := r.closures.get(closureKey{op, path}, func() ([]graph.Mount, error) {
		s := set{}
		if err := find(s); err != nil {
			return nil, &fault{op: op, object: path, cause: err}
		}
		// In the set of a folder are libraries that were found in it.
		mounts, err := Merge(s.list())
		if err != nil {
			return nil, &fault{op: op, object: path, cause: fmt.Errorf("changed while it was read: %w", err)}
		}
		return mounts, nil
	})
	return slices.Clone(mounts), err
}

// set collects mounts by path.
type set map[string]graph.Mount

func (s set) add(mounts ...graph.Mount) {
	for _, m := range mounts {
		s[m.Path] = m
	}
}

func (s set) list() []graph.Mount {
	list := make([]graph.Mount, 0, len(s))
	for _, path := range slices.Sorted(maps.Keys(s)) {
		list = append(list, s[path])
	}
	return list
}

// memo keeps what a function gave for a key, errors too; each is called once.
type memo[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]func() (V, error)
}

func (m *memo[K, V]) get(key K, find func() (V, error)) (V, error) {
	m.mu.Lock()
	call := m.calls[key]
	if call == nil {
		if m.calls == nil {
			m.calls = map[K]func() (V, error){}
		}
		call = sync.OnceValues(find)
		m.calls[key] = call
	}
	m.mu.Unlock()
	return call()
}
