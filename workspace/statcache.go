package workspace

import (
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/statcache"
)

// record is what is kept of a file: the facts, when they were taken, the hash.
type record struct {
	facts
	at   int64 // ns since 1970
	hash [32]byte
}

// statCache knows digests by stat facts. What was loaded stays as it is; what
// this run adds lies over it, until Save merges the two.
type statCache struct {
	file string // "" keeps it in memory only
	fn   cas.Func
	root string // a file written for another root is not used
	now  func() time.Time

	load  sync.Once
	begun int64 // when old was loaded
	old   table

	mu      sync.RWMutex
	fresh   map[string]record
	unsaved bool // set by record, cleared by Save
}

func (c *statCache) loaded() {
	c.load.Do(func() {
		c.fresh, c.begun = map[string]record{}, c.now().UnixNano()
		if c.file == "" {
			return
		}
		// Whatever is wrong with the file, the way out is to hash again.
		if b, err := os.ReadFile(c.file); err == nil {
			c.old, _ = decodeTable(b, c.fn, c.root)
		}
	})
}

// lookup gives the digest of a file with these facts, if that is certain.
func (c *statCache) lookup(key string, f facts) (cas.Digest, bool) {
	c.loaded()
	c.mu.RLock()
	r, ok := c.fresh[key]
	c.mu.RUnlock()
	if !ok {
		i, found := c.old.find(key)
		if !found {
			return cas.Digest{}, false
		}
		if r = c.old.record(i); r.at > c.begun {
			return cas.Digest{}, false // the clock was ahead when it was recorded
		}
	}
	if r.facts != f || !statcache.Aged(f.mtime, f.ctime, r.at) {
		return cas.Digest{}, false
	}
	return cas.Digest{Func: c.fn, Hash: r.hash, Size: f.size}, true
}

// record keeps a digest, unless lookup would never trust it.
func (c *statCache) record(key string, f facts, at int64, d cas.Digest) {
	if !statcache.Aged(f.mtime, f.ctime, at) {
		return
	}
	c.loaded()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.fresh[key] = record{facts: f, at: at, hash: d.Hash}
	c.unsaved = true
}

// Save writes the stat cache if this run added to it. Of two processes that
// save, the last one's file stays; what the other learnt is learnt again.
//
// Files that this run didn't use are kept, so that a build of one package
// doesn't forget the others. When the table has doubled since it was last
// pruned, the files that are gone from disk leave it.
func (w *Workspace) Save() error {
	c := w.stats
	if c.file == "" {
		return nil
	}
	c.loaded()
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.unsaved {
		return nil
	}
	keys, kept := c.merged()
	if len(keys) >= 2*kept+minPrune {
		keys = slices.DeleteFunc(keys, func(k string) bool { return !w.onDisk(k) })
		kept = len(keys)
	}
	b, err := encodeTable(c.fn, c.root, kept, keys, c.get)
	if err == nil {
		err = statcache.Replace(c.file, b, c.now())
	}
	if err != nil {
		return &fault{op: "save stat cache", object: c.file, cause: bare(err)}
	}
	c.unsaved = false
	return nil
}

// minPrune is how many files may come before any pruning.
const minPrune = 1024

// merged gives all keys in order, and the size of the table when last pruned.
func (c *statCache) merged() (keys []string, kept int) {
	keys = make([]string, 0, c.old.n+len(c.fresh))
	for i := range c.old.n {
		if k := string(c.old.key(i)); !has(c.fresh, k) {
			keys = append(keys, k)
		}
	}
	for k := range c.fresh {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys, c.old.kept
}

func has(m map[string]record, k string) bool {
	_, ok := m[k]
	return ok
}

func (c *statCache) get(key string) record {
	if r, ok := c.fresh[key]; ok {
		return r
	}
	i, _ := c.old.find(key)
	return c.old.record(i)
}

// onDisk reports whether the source of a key is still there.
func (w *Workspace) onDisk(key string) bool {
	rel, repo, _ := strings.Cut(key, "\x00")
	t := w.trees[repo]
	if t == nil {
		return false
	}
	_, err := t.fstatat(rel)
	return err == nil
}
