package hosttools

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/statcache"
)

// record is what is kept of a file: the facts, when they were taken, and what
// its bytes said.
type record struct {
	facts
	at   int64 // ns since 1970
	hash [32]byte
	elf  bool // begins as ELF files do: worth an open when it is in data
}

// statCache knows files by their paths and facts. Its own rather than that of
// workspace: that one is bound to a root and lives as long as a workspace, while
// what is known of this machine serves all of them.
type statCache struct {
	file string // "" keeps it in memory only
	fn   cas.Func
	now  func() time.Time

	load sync.Once

	mu      sync.RWMutex
	records map[string]record
	kept    int  // records when last pruned
	unsaved bool // set by put, cleared by save
}

func (c *statCache) loaded() {
	c.load.Do(func() {
		c.records = map[string]record{}
		if c.file == "" {
			return
		}
		// Whatever is wrong with the file, the way out is to hash again.
		if b, err := os.ReadFile(c.file); err == nil {
			if records, kept, err := decodeTable(b, c.fn, c.now().UnixNano()); err == nil {
				c.records, c.kept = records, kept
			}
		}
	})
}

// get gives the record of a file with these facts, if that is certain.
func (c *statCache) get(path string, f facts) (record, bool) {
	c.loaded()
	c.mu.RLock()
	r, ok := c.records[path]
	c.mu.RUnlock()
	return r, ok && r.facts == f && statcache.Aged(r.mtime, r.ctime, r.at)
}

// put keeps a record, unless get would never trust it.
func (c *statCache) put(path string, r record) {
	if !statcache.Aged(r.mtime, r.ctime, r.at) {
		return
	}
	c.loaded()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.records[path] = r
	c.unsaved = true
}

func (c *statCache) digest(r record) cas.Digest {
	return cas.Digest{Func: c.fn, Hash: r.hash, Size: r.size}
}

// tries is how often a file that changes while it is hashed is hashed anew.
const tries = 3

// read gives the record of the regular file at a real path, which had the facts
// f a moment ago.
func (c *statCache) read(path string, f facts) (record, error) {
	if r, ok := c.get(path, f); ok {
		return r, nil
	}
	file, err := openFile(path)
	if err != nil {
		return record{}, err
	}
	defer file.Close()
	for range tries {
		// The time is taken before the first stat, so that a change during or
		// after it counts as recent.
		at := c.now().UnixNano()
		before, err := fstat(file)
		if err != nil {
			return record{}, err
		}
		if before.kind() != 0 {
			return record{}, errors.New("is no longer a file")
		}
		d, elf, err := sum(c.fn, file)
		if err != nil {
			return record{}, bare(err)
		}
		after, err := fstat(file)
		if err != nil {
			return record{}, err
		}
		if before == after && d.Size == before.size {
			r := record{facts: before, at: at, hash: d.Hash, elf: elf}
			c.put(path, r)
			return r, nil
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return record{}, bare(err)
		}
	}
	return record{}, errors.New("changed while it was read")
}

// openFile doesn't follow a link that has taken the place of the file, nor wait
// for the writer of a pipe.
func openFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, bare(err)
	}
	return f, nil
}

func fstat(f *os.File) (facts, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return facts{}, err
	}
	return factsOf(&st), nil
}

// blocks are the buffers of sum, which most files fit.
var blocks = sync.Pool{New: func() any { return new([64 << 10]byte) }}

func sum(fn cas.Func, r io.Reader) (d cas.Digest, elf bool, err error) {
	block := blocks.Get().(*[64 << 10]byte)
	defer blocks.Put(block)
	n, err := io.ReadFull(r, block[:])
	head := block[:n]
	elf = bytes.HasPrefix(head, []byte(elfMagic))
	switch {
	case err == io.EOF || err == io.ErrUnexpectedEOF:
		return fn.Sum(head), elf, nil
	case err != nil:
		return cas.Digest{}, false, err
	}
	d, err = fn.SumReader(io.MultiReader(bytes.NewReader(head), r))
	return d, elf, err
}

// minPrune is how many files may come before any pruning.
const minPrune = 4096

// save writes the file if there is anything new. Of two processes that save,
// the last one's file stays; what the other learnt is learnt again. When the
// table has doubled since it was last pruned, files that are gone leave it.
func (c *statCache) save() error {
	c.loaded()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.file == "" || !c.unsaved {
		return nil
	}
	if len(c.records) >= 2*c.kept+minPrune {
		for path := range c.records {
			if _, err := lstat(path); err != nil {
				delete(c.records, path)
			}
		}
		c.kept = len(c.records)
	}
	if err := statcache.Replace(c.file, encodeTable(c.records, c.kept, c.fn), c.now()); err != nil {
		return fmt.Errorf("save stat cache %s: %w", c.file, bare(err))
	}
	c.unsaved = false
	return nil
}
