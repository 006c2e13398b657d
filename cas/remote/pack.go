package remote

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

// item is a blob on its way to a server: in the store under its local digest, or
// here.
type item struct {
	server cas.Digest
	local  cas.Digest // zero: the bytes are in data
	data   []byte
}

// outgoing is a parcel in the form that the server gets.
type outgoing struct {
	class            cas.Class
	key              cas.Digest
	fn               cas.Func
	message          []byte
	capture          cas.Digest
	byKey, byCapture cas.Digest
	items            []item // an item may be there twice
	held             int    // bytes in memory
	surplus          func(first cas.Digest)
}

// pack reads what the form needs. An *unsentError says that there is no need to
// send it.
func (c *Cache) pack(p *parcel) (*outgoing, error) {
	info, err := c.info(c.ctx)
	if err != nil {
		return nil, err
	}
	r, err := c.resultOf(p)
	if err != nil {
		return nil, err
	}
	o := &outgoing{class: p.class, key: p.key, fn: info.Func, surplus: p.surplus}
	f := form{key: p.key, fn: info.Func, result: r, sign: c.o.Sign}
	if err := c.collect(&f, o); err != nil {
		return nil, err
	}
	if o.message, o.capture, err = f.encode(); errors.Is(err, errName) {
		c.warn(troubleName, "the result of %v is not uploaded: %v", p.key, err)
		return nil, &unsentError{notPossible}
	} else if err != nil {
		return nil, err
	}
	c.place(p, o)
	o.held = len(o.message)
	for _, it := range o.items {
		o.held += len(it.data)
	}
	return o, nil
}

// surplus says whether the capture is not the one that the store has under its
// key: that came from a server, and this one is our own.
func (c *Cache) surplus(p *parcel, raw []byte) bool {
	if p.class != cas.Capture {
		return false
	}
	stored, err := c.store.Lookup(cas.Capture, p.key)
	if err != nil {
		return false
	}
	has, err := stored.Encode()
	return err == nil && !bytes.Equal(has, raw)
}

func (c *Cache) resultOf(p *parcel) (cas.Result, error) {
	if p.result != nil {
		return *p.result, nil
	}
	return c.store.Lookup(p.class, p.key)
}

// place finds the keys, and adds the Actions that they are digests of: servers
// may want to have them.
func (c *Cache) place(p *parcel, o *outgoing) {
	stand := byKey(o.fn, p.key)
	o.byKey = stand.key
	o.items = append(o.items, stand.blobs...)
	if o.fn == p.key.Func {
		for i, b := range [2][]byte{p.action, p.command} {
			switch d := p.spilled[i]; {
			case !d.IsZero():
				o.items = append(o.items, item{server: d, local: d})
			case len(b) > 0:
				o.items = append(o.items, item{server: o.fn.Sum(b), data: b})
			}
		}
	}
	if p.class == cas.Capture {
		stand := byCapture(o.fn, p.key, o.capture)
		o.byCapture = stand.key
		o.items = append(o.items, stand.blobs...)
	}
}

// collect lists the blobs of the result and fills in what the form asks for.
func (c *Cache) collect(f *form, o *outgoing) error {
	inlined := map[cas.Digest]cas.Digest{} // the store may not have these
	f.double = func(d cas.Digest) (cas.Digest, error) {
		if there, ok := inlined[d]; ok {
			return there, nil
		}
		return c.double(f.fn, d)
	}
	add := func(d cas.Digest) (there cas.Digest, err error) {
		there, err = c.double(f.fn, d)
		o.items = append(o.items, item{server: there, local: d})
		return there, err
	}
	for _, file := range f.result.Files {
		if !file.Inlined() {
			if _, err := add(file.Digest); err != nil {
				return err
			}
			continue
		}
		inlined[file.Digest] = f.fn.Sum(file.Contents)
		o.items = append(o.items, item{server: inlined[file.Digest], data: file.Contents})
	}
	trees := map[cas.Digest]cas.Digest{}
	folders := make([]cas.OutputFolder, len(f.result.Folders))
	for i, folder := range f.result.Folders {
		tree, err := c.store.ReadTree(folder.Tree)
		if err != nil {
			return err
		}
		if _, err := add(folder.Tree); err != nil {
			return err
		}
		if trees[folder.Tree], err = c.collectTree(f, o, tree, folder.Tree, add); err != nil {
			return err
		}
		folders[i] = folder
		folders[i].Root = tree.Digest()
	}
	f.result.Folders = folders
	for _, d := range [2]cas.Digest{f.result.Stdout, f.result.Stderr} {
		if !d.IsZero() {
			if _, err := add(d); err != nil {
				return err
			}
		}
	}
	f.tree = func(d cas.Digest) (cas.Digest, error) { return trees[d], nil }
	return nil
}

// collectTree lists the files of a folder and, for a server of another function,
// its tree in that. It gives the server's digest of that.
func (c *Cache) collectTree(f *form, o *outgoing, tree *cas.Tree, message cas.Digest, add func(cas.Digest) (cas.Digest, error)) (cas.Digest, error) {
	if message.Size > maxTree { // nobody would take it
		return cas.Digest{}, fmt.Errorf("a folder's tree of %d bytes: %w", message.Size, errTooLarge)
	}
	if f.fn == message.Func {
		return message, eachFile(tree, map[cas.Digest]bool{}, func(file cas.FileNode) error {
			_, err := add(file.Digest)
			return err
		})
	}
	other, err := retree(tree, f.fn, add)
	if err != nil {
		return cas.Digest{}, err
	}
	b := other.Encode()
	if len(b) > maxTree {
		return cas.Digest{}, fmt.Errorf("a folder's tree of %d bytes: %w", len(b), errTooLarge)
	}
	o.items = append(o.items, item{server: f.fn.Sum(b), data: b})
	return f.fn.Sum(b), nil
}

// eachFile calls fn with the files of each distinct directory.
func eachFile(t *cas.Tree, seen map[cas.Digest]bool, fn func(cas.FileNode) error) error {
	if seen[t.Digest()] {
		return nil
	}
	seen[t.Digest()] = true
	for _, f := range t.Directory().Files {
		if err := fn(f); err != nil {
			return err
		}
	}
	for _, sub := range t.Below() {
		if err := eachFile(sub, seen, fn); err != nil {
			return err
		}
	}
	return nil
}

// maxDoubles bounds how many digests are remembered in two functions: 10 MB.
const maxDoubles = 1 << 16

// double gives the digest of a stored blob by fn. For another function the blob
// has to be read, once.
func (c *Cache) double(fn cas.Func, d cas.Digest) (cas.Digest, error) {
	if fn == d.Func {
		return d, nil
	}
	s := &c.sender
	s.mu.Lock()
	there, ok := s.doubles[d]
	s.mu.Unlock()
	if ok {
		return there, nil
	}
	r, err := c.store.Open(d)
	if err != nil {
		return cas.Digest{}, err
	}
	there, err = fn.SumReader(r)
	if err := errors.Join(err, r.Close()); err != nil {
		return cas.Digest{}, err
	}
	s.mu.Lock()
	if s.doubles == nil || len(s.doubles) >= maxDoubles {
		s.doubles = map[cas.Digest]cas.Digest{}
	}
	s.doubles[d] = there
	s.mu.Unlock()
	return there, nil
}

// upload sends what of the items the server lacks. It gives the error of each
// blob that failed, by its digest there. What another load has in hand is left to
// that.
func (c *Cache) upload(ctx context.Context, items []item) (failed map[cas.Digest]error) {
	s := &c.sender
	byDigest := make(map[cas.Digest]item, len(items))
	mine, others := map[cas.Digest]*answer[bool]{}, map[cas.Digest]*answer[bool]{}
	var ask []cas.Digest
	s.mu.Lock()
	for _, it := range items {
		if _, ok := byDigest[it.server]; ok {
			continue
		}
		byDigest[it.server] = it
		if a := s.uploads[it.server]; a != nil {
			others[it.server] = a
			continue
		}
		ask = append(ask, it.server)
		mine[it.server] = &answer[bool]{done: make(chan struct{})}
		s.uploads[it.server] = mine[it.server]
	}
	s.mu.Unlock()
	failed, err := c.uploadMine(ctx, byDigest, ask)
	s.mu.Lock()
	for d, a := range mine {
		if a.err = failed[d]; err != nil {
			a.err = err
			failed[d] = err
		}
		delete(s.uploads, d)
		close(a.done)
	}
	s.mu.Unlock()
	// Ours are done, so that two loads that wait for each other both go on.
	for d, a := range others {
		if _, _, err := a.wait(ctx); err != nil {
			failed[d] = err
		}
	}
	return failed
}

// uploadMine asks what the server lacks, and sends that. The map isn't nil.
func (c *Cache) uploadMine(ctx context.Context, byDigest map[cas.Digest]item, ask []cas.Digest) (failed map[cas.Digest]error, err error) {
	lacks, err := c.lacking(ctx, ask)
	if err != nil {
		return map[cas.Digest]error{}, err
	}
	up := &uploading{c: c, failed: map[cas.Digest]error{}}
	up.g.SetLimit(streamFlights)
	var group []item
	size := int64(0)
	send := func() {
		if items := group; len(items) > 0 {
			up.g.Go(func() error { up.batch(ctx, items); return nil })
		}
		group, size = nil, 0
	}
	for _, d := range ask {
		switch it := byDigest[d]; {
		case !lacks[d]:
		case !c.isSmall(d):
			up.g.Go(func() error { up.stream(ctx, it); return nil })
		default:
			if size+d.Size > c.room() || len(group) == batchMost {
				send()
			}
			group, size = append(group, it), size+d.Size
		}
	}
	send()
	up.g.Wait()
	return up.failed, nil
}

type uploading struct {
	c      *Cache
	g      errgroup.Group
	lock   sync.Mutex
	failed map[cas.Digest]error
}

func (it item) read(s *cas.Store) ([]byte, error) {
	if it.local.IsZero() {
		return it.data, nil
	}
	return s.Read(it.local)
}

func (it item) open(s *cas.Store) (io.ReadCloser, error) {
	if it.local.IsZero() {
		return io.NopCloser(bytes.NewReader(it.data)), nil
	}
	return s.Open(it.local)
}

// batch writes small blobs. If the server refuses them together, each is tried
// by itself: one that it doesn't like must not take the others along.
func (up *uploading) batch(ctx context.Context, items []item) {
	c := up.c
	var blobs []reapi.Blob
	var size int64
	for _, it := range items {
		if up.ended(it.server) {
			continue
		}
		b, err := it.read(c.store)
		if err != nil {
			up.fail(it.server, err)
			continue
		}
		blobs = append(blobs, reapi.Blob{Digest: it.server, Data: b})
		size += int64(len(b))
	}
	if len(blobs) == 0 {
		return
	}
	err := c.put(ctx, func(ctx context.Context) error { return c.client.WriteBatch(ctx, blobs) })
	switch {
	case err == nil:
		c.count(func(s *Stats) { s.Up += size })
	case reapi.KindOf(err) == reapi.Refused && len(blobs) > 1:
		for _, b := range blobs {
			if up.ended(b.Digest) {
				continue
			}
			err := c.put(ctx, func(ctx context.Context) error { return c.client.WriteBatch(ctx, []reapi.Blob{b}) })
			if err != nil {
				up.fail(b.Digest, err)
				continue
			}
			c.count(func(s *Stats) { s.Up += b.Digest.Size })
		}
	default:
		for _, b := range blobs {
			up.fail(b.Digest, err)
		}
	}
}

func (up *uploading) stream(ctx context.Context, it item) {
	c := up.c
	if up.ended(it.server) {
		return
	}
	err := c.put(ctx, func(ctx context.Context) error {
		return c.client.Write(ctx, it.server, func() (io.ReadCloser, error) { return it.open(c.store) })
	})
	if err != nil {
		up.fail(it.server, err)
		return
	}
	c.count(func(s *Stats) { s.Up += it.server.Size })
}

// ended says whether uploads have ended meanwhile, and lets the blob fail then.
func (up *uploading) ended(d cas.Digest) bool {
	why := up.c.sender.ended()
	if why != "" {
		up.fail(d, &unsentError{why})
	}
	return why != ""
}

func (up *uploading) fail(d cas.Digest, err error) {
	up.lock.Lock()
	defer up.lock.Unlock()
	up.failed[d] = err
}
