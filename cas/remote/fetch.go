package remote

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

// want is a blob that is to come: into the store in the place of class, or with
// class zero into memory, and then only its digest on the server is known.
type want struct {
	class         cas.Class
	local, server cas.Digest
}

// got is what came of it.
type got struct {
	data []byte // for class zero
	err  error
}

// blobError says that the server doesn't have a blob that an entry names, or has
// other bytes under its digest.
type blobError struct {
	local, server cas.Digest
	wrong         bool
}

func (e *blobError) Error() string {
	if e.wrong {
		return fmt.Sprintf("blob %v: its bytes are wrong", e.server)
	}
	return fmt.Sprintf("blob %v: missing", e.server)
}

// storeError is trouble of our own disk, which is no miss: who ran the action
// again would run into it, too, and perhaps have paid for it.
type storeError struct{ error }

func (e *storeError) Unwrap() error { return e.error }

// Fetch brings all blobs of what Find found into the store and records the result
// there, whole and for Capture on the disk when it returns; a capture beside another
// one, as surplus. For Capture the caller
// holds the store's Lock(key), as for PutResult; a pure result may take the place of
// one that is put meanwhile, and the other way round. A *cas.MissError says that a
// blob is gone or wrong, and then what was found isn't believed again, or that the
// server can't be used. Other errors are those of Find and of the store: a full disk
// is no miss.
func (c *Cache) Fetch(ctx context.Context, class cas.Class, key, want cas.Digest) error {
	if !c.begin() {
		return c.closedMiss(key)
	}
	defer c.end()
	f, err := c.known(ctx, key, want)
	if err != nil {
		return err
	}
	if s, err := c.info(ctx); f.receipt && err == nil && s.Func != f.fn {
		// Another server answers at this address now.
		c.forget(f.entry, false)
		if f, err = c.find(ctx, key, want, false); err != nil {
			return err
		}
	}
	err = c.bring(ctx, class, f.entry)
	var blob *blobError
	if f.receipt && errors.As(err, &blob) && !blob.wrong {
		// The server may have got it again since: perhaps in another form.
		c.forget(f.entry, false)
		if f, err = c.find(ctx, key, want, false); err != nil {
			return err
		}
		err = c.bring(ctx, class, f.entry)
	}
	if err != nil {
		return c.broken(ctx, "fetch", f.entry, err)
	}
	at := key
	if class == cas.Capture {
		has, _, err := c.store.LookupCapture(key, f.capture)
		if raw, eerr := has.Encode(); err == nil && eerr == nil && key.Func.Sum(raw) != f.capture {
			at = cas.SurplusKey(key, f.capture) // what is recorded isn't replaced
		}
	}
	if err := c.store.PutResult(class, at, f.result); err != nil {
		return err
	}
	c.count(func(s *Stats) { s.Fetched++ })
	if at != key { // a receipt is of what the store has under the key
		return nil
	}
	return c.settled(class, f)
}

// forget drops an entry and its receipt.
func (c *Cache) forget(e *entry, refuted bool) {
	c.believed.drop(e, refuted)
	c.store.DropReceipt(c.name, e.key)
}

// broken gives what a caller gets for a failure with the blobs of an entry.
func (c *Cache) broken(ctx context.Context, op string, e *entry, err error) error {
	var blob *blobError
	var mine *storeError
	var entry *entryError
	switch {
	case ctx.Err() != nil:
	case errors.As(err, &mine):
		return fmt.Errorf("%s %v: %w", op, e.key, mine.error)
	case errors.As(err, &blob):
		c.forget(e, true)
		cause := &cas.BlobError{Digest: blob.local, Reason: cas.Missing}
		if blob.local.IsZero() { // it is only there
			cause.Digest = blob.server
		}
		if blob.wrong {
			cause.Reason = cas.Damaged
			c.warn(troubleWrong, "%v; the result doesn't count", blob)
		} else {
			c.warn(troubleEvicted, "%v, though a result names it; such results don't count", blob)
		}
		return &cas.MissError{Key: e.key, Reason: fmt.Sprintf("blob %v is %v in the remote cache", blob.server, cause.Reason), Err: cause}
	case errors.As(err, &entry):
		c.forget(e, true)
		c.warn(troubleEntry, "the result of %v doesn't count: %v", e.key, err)
	}
	return c.fail(ctx, op, e.key, err)
}

// bring puts all blobs of e into the store.
func (c *Cache) bring(ctx context.Context, class cas.Class, e *entry) error {
	all, err := c.contents(ctx, class, e)
	if err != nil {
		return err
	}
	for _, d := range e.blobs() {
		if err := all.add(d, e.doubles.server[d]); err != nil {
			return &entryError{err}
		}
	}
	wants := make([]want, 0, len(all.server))
	for local, there := range all.server {
		wants = append(wants, want{class, local, there})
	}
	_, err = c.get(ctx, wants)
	return err
}

// contents brings the Tree messages of e into the store, as class, and gives the
// digests of the files that they name.
func (c *Cache) contents(ctx context.Context, class cas.Class, e *entry) (doubles, error) {
	all := newDoubles()
	var wants []want
	for i, o := range e.result.Folders {
		if o.Tree.Size > maxTree { // the store would take it, and then it is read into memory
			return all, &entryError{fmt.Errorf("the folder %q has a tree of %d bytes", o.Path, o.Tree.Size)}
		}
		wants = append(wants, want{class, o.Tree, e.trees[i].local})
		if !e.native() {
			wants = append(wants, want{server: e.trees[i].server})
		}
	}
	if len(wants) == 0 {
		return all, nil
	}
	answers, err := c.get(ctx, wants)
	if err != nil {
		return all, err
	}
	for i, o := range e.result.Folders {
		local, err := c.store.ReadTree(o.Tree)
		var gone *cas.BlobError
		switch {
		case errors.As(err, &gone):
			return all, &storeError{err} // it was there
		case err != nil:
			return all, &entryError{err}
		case local.Digest() != o.Root:
			return all, &entryError{fmt.Errorf("the folder %q is not the one that it says", o.Path)}
		}
		other := local
		if !e.native() {
			if other, err = cas.DecodeTree(e.fn, answers[2*i+1].data); err != nil {
				return all, &entryError{err}
			}
		}
		if err := pairTrees(local, other, all); err != nil {
			return all, &entryError{fmt.Errorf("the folder %q is not the same in both forms: %w", o.Path, err)}
		}
	}
	return all, nil
}

// get brings blobs; the answers are in the order of the wants. What the store has
// is not asked for.
func (c *Cache) get(ctx context.Context, wants []want) ([]got, error) {
	out := make([]got, len(wants))
	var small, large []want
	var smallAt, largeAt []int
	for i, w := range wants {
		switch have, err := c.have(w); {
		case err != nil:
			return nil, err
		case have:
		case c.isSmall(w.server):
			small, smallAt = append(small, w), append(smallAt, i)
		default:
			large, largeAt = append(large, w), append(largeAt, i)
		}
	}
	// Streams first, since they take longest.
	waits := append(c.large.start(large), c.small.start(small)...)
	for i, at := range append(largeAt, smallAt...) {
		g, _, err := waits[i].wait(ctx)
		if err == nil {
			err = g.err
		}
		if err != nil {
			return nil, err
		}
		out[at] = g
	}
	return out, nil
}

// have says whether the store has it already, perhaps in the other root.
func (c *Cache) have(w want) (bool, error) {
	if w.class == 0 {
		return w.server.Size == 0, nil
	}
	if w.local.Size == 0 {
		if _, err := c.store.Put(w.class, nil); err != nil {
			return false, &storeError{err}
		}
		return true, nil
	}
	if c.store.Has(w.local) != nil {
		return false, nil
	}
	err := c.store.PutFile(w.class, w.local, func() (io.ReadCloser, error) { return c.store.Open(w.local) })
	var blob *cas.BlobError
	switch {
	case errors.As(err, &blob):
		return false, nil // it was damaged
	case err != nil:
		return false, &storeError{err}
	}
	return true, nil
}

// runBatch reads small blobs. They are in the store before the next batch begins,
// so that memory holds no more than a few.
func (c *Cache) runBatch(ctx context.Context, wants []want) (map[want]got, error) {
	digests := make([]cas.Digest, 0, len(wants))
	seen := make(map[cas.Digest]bool, len(wants))
	for _, w := range wants {
		if !seen[w.server] { // two classes may want it
			seen[w.server] = true
			digests = append(digests, w.server)
		}
	}
	var blobs map[cas.Digest][]byte
	err := c.breaker.do(ctx, callBatch, func(ctx context.Context) (err error) {
		blobs, err = c.client.ReadBatch(ctx, digests)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[want]got, len(wants))
	lied := map[cas.Digest]bool{}
	for _, w := range wants {
		b, ok := blobs[w.server]
		g := got{err: &blobError{local: w.local, server: w.server}}
		if ok {
			g = c.take(w, b)
		}
		var blob *blobError
		if errors.As(g.err, &blob) && blob.wrong && !lied[w.server] {
			lied[w.server] = true
			c.breaker.lied(g.err)
		}
		out[w] = g
	}
	var down int64
	for _, b := range blobs {
		down += int64(len(b))
	}
	c.count(func(s *Stats) { s.Down += down })
	return out, nil
}

// take checks bytes that came, and puts them where they belong.
func (c *Cache) take(w want, b []byte) got {
	is := w.local
	if w.class == 0 {
		is = w.server
	}
	switch {
	case is.Func.Sum(b) != is:
		return got{err: &blobError{local: w.local, server: w.server, wrong: true}}
	case w.class == 0:
		return got{data: b}
	}
	if _, err := c.store.Put(w.class, b); err != nil {
		return got{err: &storeError{err}}
	}
	return got{}
}

// runStream reads one large blob.
func (c *Cache) runStream(ctx context.Context, wants []want) (map[want]got, error) {
	w := wants[0]
	var g got
	err := c.breaker.do(ctx, callStream, func(ctx context.Context) error {
		if w.class == 0 {
			return c.streamTree(ctx, w, &g)
		}
		var src source
		err := c.store.PutFile(w.class, w.local, func() (io.ReadCloser, error) {
			src.ReadCloser, src.err = c.client.Open(ctx, w.server)
			return &src, src.err
		})
		c.count(func(s *Stats) { s.Down += src.n })
		switch {
		case err == nil:
			return nil
		case src.err != nil:
			return src.err
		case errors.Is(err, cas.ErrChanged):
			return &blobError{local: w.local, server: w.server, wrong: true}
		}
		return &storeError{err}
	})
	var blob *blobError
	if reapi.KindOf(err) == reapi.NotFound {
		err = &blobError{local: w.local, server: w.server}
	} else if errors.As(err, &blob) {
		c.breaker.lied(err)
	}
	g.err = err
	return map[want]got{w: g}, nil
}

// streamTree reads a Tree message in the server's digests.
func (c *Cache) streamTree(ctx context.Context, w want, g *got) error {
	if w.server.Size > maxTree {
		return &entryError{fmt.Errorf("a folder's tree of %d bytes", w.server.Size)}
	}
	r, err := c.client.Open(ctx, w.server)
	if err != nil {
		return err
	}
	b, err := io.ReadAll(io.LimitReader(r, w.server.Size+1))
	err = errors.Join(err, r.Close())
	c.count(func(s *Stats) { s.Down += int64(len(b)) })
	if err != nil {
		return err
	}
	*g = c.take(w, b)
	return g.err
}

// source keeps an error of the server apart from one of the store.
type source struct {
	io.ReadCloser
	n   int64
	err error
}

func (s *source) Read(p []byte) (int, error) {
	n, err := s.ReadCloser.Read(p)
	s.n += int64(n)
	if err != nil && err != io.EOF {
		s.err = err
	}
	return n, err
}
