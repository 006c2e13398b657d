package cas

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"
)

// CollectOptions say what Collect may remove.
type CollectOptions struct {
	MaxAge  time.Duration // what was unused for longer goes; zero: nothing goes by age
	MaxSize int64         // bytes that pure things may take, oldest use goes first; zero: any number
	DryRun  bool          // count only
}

// A Tally counts things in the Cache root that aren't captures.
type Tally struct {
	Results     int // pure ones
	Blobs       int
	Copies      int   // plain ones, for sealed roots
	Receipts    int   // of pure results
	Quarantined int   // damaged files, in removals only
	Bytes       int64 // each file in whole blocks of 4096, since most file systems keep it so
}

func (t *Tally) add(n *int, size int64) {
	*n++
	t.Bytes += size
}

// CollectReport is what a collection did or, dry, would do.
type CollectReport struct {
	Removed, Kept Tally
}

// Collect removes from the Cache root pure results and plain copies that nobody
// has used of late, and blobs that no result names then. The use of a result is
// known to the day (see Lookup), that of a copy to the half hour. Nothing is
// removed that was used, written or put again within the last hour, so that
// builds may go on meanwhile: grace.go says why they lose nothing. A build that
// found a result before may find its blob gone after, as a *BlobError.
//
// Receipts of pure results go as these do, but one that says that its result came
// from a server goes no sooner than the result.
//
// Captures stay, by their header also in a root of both classes, and so do their
// receipts and the blobs that they name. A blob put as Capture that no capture
// names is garbage there; whoever needs it must record it in one. A capture that
// can't be read is an error before anything is removed, since what it names isn't
// known. The Data root of its own is not touched. The quarantine goes by age where
// it holds no captures, that is, in a Cache root of its own.
//
// A process killed in the middle leaves blobs that the next collection finds.
func (s *Store) Collect(ctx context.Context, o CollectOptions) (CollectReport, error) {
	c := &collector{s: s, ctx: ctx, o: o, start: s.now(), refs: newReferences(s)}
	c.cutoff = c.start.Add(-s.grace)
	err := c.collect()
	if err != nil {
		err = fmt.Errorf("collect garbage in %s: %w", s.cache.dir, err)
	}
	return c.report, err
}

type collector struct {
	s             *Store
	ctx           context.Context
	o             CollectOptions
	start, cutoff time.Time
	refs          *references
	items         []item
	total         int64 // bytes of what may be removed, and is not
	report        CollectReport
}

// An item goes by its use: a pure result, a plain copy, or a receipt.
type item struct {
	digest Digest // key of a result or receipt, content of a copy; without the size
	path   string
	copy   bool
	// receipt is set of one; held then says that it stays while there is a result.
	receipt, held bool
	size          int64
	used          time.Time
	names         []*reference
}

func (c *collector) collect() error {
	for _, step := range []func() error{c.findResults, c.findBlobs, c.findCopies, c.findReceipts, c.dropItems, c.dropBlobs, c.dropQuarantine} {
		if err := step(); err != nil {
			return err
		}
	}
	return nil
}

func (c *collector) findResults() error {
	err := c.s.cache.eachFile(c.ctx, "ac", func(path, name string, d Digest) error {
		if name != d.Hex() {
			return nil // not ours
		}
		key, rec := c.s.loadFile(c.s.cache, path, d)
		if rec == nil {
			return nil
		}
		size, _, err := c.s.statFile(path)
		if err != nil {
			return ignoreAbsent(err)
		}
		names, err := c.refs.ofRecord(key, rec)
		switch {
		case rec.class == Capture && err != nil:
			return fmt.Errorf("capture %v:%s can't be read, so that what it names isn't known: %w", d.Func, d.Hex(), err)
		case rec.class == Capture:
			for _, b := range names {
				b.pinned = true
			}
			return nil
		case err != nil:
			names = nil // a miss
		}
		for _, b := range names {
			b.count++
		}
		c.items = append(c.items, item{digest: d, path: path, size: size, used: rec.used, names: names})
		c.report.Kept.add(&c.report.Kept.Results, size)
		return nil
	})
	c.s.hook("marked")
	return err
}

func (c *collector) findBlobs() error {
	return c.s.cache.eachFile(c.ctx, "cas", func(path, name string, d Digest) error {
		size, changed, err := c.s.statFile(path)
		if err != nil {
			return ignoreAbsent(err)
		}
		b := c.refs.of(d)
		b.files = append(b.files, heldFile{path, size, changed})
		if !b.pinned {
			c.report.Kept.add(&c.report.Kept.Blobs, size)
			if b.count == 0 && changed.Before(c.cutoff) {
				return nil
			}
			c.total += size
		}
		return nil
	})
}

func (c *collector) findCopies() error {
	return c.s.cache.eachFile(c.ctx, "plain", func(path, name string, d Digest) error {
		size, changed, err := c.s.statFile(path)
		if err != nil {
			return ignoreAbsent(err)
		}
		c.items = append(c.items, item{digest: d, path: path, copy: true, size: size, used: changed})
		c.report.Kept.add(&c.report.Kept.Copies, size)
		return nil
	})
}

// findReceipts leaves those of captures where they are.
func (c *collector) findReceipts() error {
	return c.s.cache.eachReceipt(c.ctx, func(path string, key Digest) error {
		b, used, err := readResult(path)
		if err != nil {
			return ignoreAbsent(err)
		}
		_, r, err := decodeReceipt(path, b)
		if err == nil && r.Class == Capture {
			return nil
		}
		size, _, err := c.s.statFile(path)
		if err != nil {
			return ignoreAbsent(err)
		}
		// A damaged one counts as received as well.
		held := err != nil || r.Had
		c.items = append(c.items, item{digest: key, path: path, receipt: true, held: held, size: size, used: used})
		c.report.Kept.add(&c.report.Kept.Receipts, size)
		return nil
	})
}

// dropItems removes results, copies and receipts, the longest unused first, until
// none is too old and the rest fits.
func (c *collector) dropItems() error {
	for _, it := range c.items {
		c.total += it.size
	}
	slices.SortStableFunc(c.items, func(a, b item) int { return a.used.Compare(b.used) })
	for i := range c.items {
		it := &c.items[i]
		old := c.o.MaxAge > 0 && c.start.Sub(it.used) > c.o.MaxAge
		large := c.o.MaxSize > 0 && c.total > c.o.MaxSize
		if !old && !large || !it.used.Before(c.cutoff) {
			return nil // and so are all that follow
		}
		if err := c.ctx.Err(); err != nil {
			return err
		}
		gone, err := c.dropItem(it)
		if err != nil {
			return err
		}
		if !gone {
			continue
		}
		c.total -= it.size
		n, kept := &c.report.Removed.Results, &c.report.Kept.Results
		switch {
		case it.copy:
			n, kept = &c.report.Removed.Copies, &c.report.Kept.Copies
		case it.receipt:
			n, kept = &c.report.Removed.Receipts, &c.report.Kept.Receipts
		}
		c.moved(n, kept, it.size)
		for _, b := range it.names {
			if b.count--; b.count > 0 || b.pinned {
				continue
			}
			for _, f := range b.files {
				if f.changed.Before(c.cutoff) {
					c.total -= f.size
				}
			}
		}
	}
	return nil
}

// moved counts a file as removed and no longer as kept.
func (c *collector) moved(removed, kept *int, size int64) {
	c.report.Removed.add(removed, size)
	*kept--
	c.report.Kept.Bytes -= size
}

func (c *collector) dropItem(it *item) (gone bool, err error) {
	if it.copy {
		return c.dropFile(it.digest, it.path)
	}
	if it.held && c.s.recorded(it.digest) {
		return false, nil
	}
	c.s.hook("result " + it.path)
	// It may have been used since it was read.
	fi, err := os.Lstat(it.path)
	if err != nil || !fi.ModTime().Equal(it.used) {
		return false, ignoreAbsent(err)
	}
	if c.o.DryRun {
		return true, nil
	}
	return true, ignoreAbsent(os.Remove(it.path))
}

// dropFile removes a file that a writer may count on, unless it is young.
func (c *collector) dropFile(d Digest, path string) (gone bool, err error) {
	c.s.hook("file " + path)
	unlock, err := c.s.lockOffset(c.ctx, blobOffset(d))
	if err != nil {
		return false, err
	}
	defer unlock()
	fi, err := os.Lstat(path)
	if err != nil || !c.s.changed(fi).Before(c.cutoff) {
		return false, ignoreAbsent(err)
	}
	if c.o.DryRun {
		return true, nil
	}
	return true, ignoreAbsent(os.Remove(path))
}

func (c *collector) dropBlobs() error {
	for d, b := range c.refs.blobs {
		if b.count > 0 || b.pinned {
			continue
		}
		for _, f := range b.files {
			if !f.changed.Before(c.cutoff) {
				continue
			}
			gone, err := c.dropFile(d, f.path)
			if err != nil {
				return err
			}
			if gone {
				c.moved(&c.report.Removed.Blobs, &c.report.Kept.Blobs, f.size)
			}
		}
	}
	return nil
}

func (c *collector) dropQuarantine() error {
	if c.o.MaxAge <= 0 || c.s.cache == c.s.data {
		return nil
	}
	dir := c.s.cache.path("quarantine")
	names, err := readDir(dir)
	for _, name := range names {
		path := dir + "/" + name
		fi, statErr := os.Lstat(path)
		if statErr != nil || c.start.Sub(fi.ModTime()) <= max(c.o.MaxAge, c.s.grace) {
			continue
		}
		c.report.Removed.Quarantined++
		if !c.o.DryRun {
			err = errors.Join(err, os.RemoveAll(path))
		}
	}
	return err
}

// statFile gives the size that a file takes and when it was last changed.
func (s *Store) statFile(path string) (size int64, at time.Time, err error) {
	fi, err := os.Lstat(path)
	if err != nil {
		return 0, time.Time{}, err
	}
	const block = 4096
	return (fi.Size() + block - 1) / block * block, s.changed(fi), nil
}
