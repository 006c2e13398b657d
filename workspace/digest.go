package workspace

import (
	"bytes"
	"errors"
	"io"
	"os"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/statcache"
)

// tries is how often a file that changes while it is hashed is hashed anew.
const tries = 3

// Digest gives the digest of a source's content, from the stat cache if its
// stat facts say that it hasn't changed. Of a symbolic link it is that of the
// file it leads to, whose facts count.
func (w *Workspace) Digest(repo, rel string) (cas.Digest, error) {
	t, err := w.tree(repo)
	if err != nil {
		return cas.Digest{}, err
	}
	if err := checkPath(rel); err != nil {
		return cas.Digest{}, t.fail("digest", rel, err)
	}
	key := t.key(rel)
	if f, err := t.lstat(rel); err == nil && statcache.FileType(f.mode).IsRegular() {
		if d, ok := w.stats.lookup(key, f); ok {
			return d, nil
		}
	}
	file, err := t.open("digest", rel)
	if err != nil {
		return cas.Digest{}, err
	}
	defer file.Close()
	d, err := w.stats.digest(key, file, func(r io.Reader) (cas.Digest, error) { return sum(w.stats.fn, r) })
	if err != nil {
		return cas.Digest{}, t.fail("digest", rel, bare(err))
	}
	return d, nil
}

// key names a source in the stat cache. Neither part can hold a NUL.
func (t *tree) key(rel string) string {
	if t.repo == "" {
		return rel
	}
	return rel + "\x00" + t.repo
}

// digest looks an open file up, and else hashes it and records the digest.
// The time is taken before the first stat, so that a change during or after it
// counts as recent.
func (c *statCache) digest(key string, file *os.File, sum func(io.Reader) (cas.Digest, error)) (cas.Digest, error) {
	for range tries {
		at := c.now().UnixNano()
		before, err := fstat(file)
		if err != nil {
			return cas.Digest{}, err
		}
		if d, ok := c.lookup(key, before); ok {
			return d, nil // a symbolic link to a file that is known
		}
		d, err := sum(file)
		if err != nil {
			return cas.Digest{}, err
		}
		after, err := fstat(file)
		if err != nil {
			return cas.Digest{}, err
		}
		if before == after && d.Size == before.size {
			c.record(key, before, at, d)
			return d, nil
		}
		if _, err := file.Seek(0, io.SeekStart); err != nil {
			return cas.Digest{}, err
		}
	}
	return cas.Digest{}, errors.New("changed while it was read")
}

func fstat(f *os.File) (facts, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return facts{}, err
	}
	return factsOf(&st), nil
}

// blocks are the buffers of sum. Most sources fit one, which is hashed at once:
// 5 us for a small file, where a hash.Hash and io.Copy's buffer took 23.
var blocks = sync.Pool{New: func() any { return new([64 << 10]byte) }}

// sum hashes what is left of r.
func sum(fn cas.Func, r io.Reader) (cas.Digest, error) {
	block := blocks.Get().(*[64 << 10]byte)
	defer blocks.Put(block)
	n, err := io.ReadFull(r, block[:])
	if err == io.EOF || err == io.ErrUnexpectedEOF {
		return fn.Sum(block[:n]), nil
	}
	if err != nil {
		return cas.Digest{}, err
	}
	return fn.SumReader(io.MultiReader(bytes.NewReader(block[:]), r))
}
