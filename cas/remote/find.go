package remote

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

// entryError says that what is under a key can't be used.
type entryError struct{ cause error }

func (e *entryError) Error() string { return e.cause.Error() }
func (e *entryError) Unwrap() error { return e.cause }

var (
	errUntrusted = errors.New("no trusted builder has signed it")
	errDistrust  = errors.New("it named blobs that were missing or wrong")
	errOther     = errors.New("it is another capture")
)

// Find looks a result up and gives it without its blobs; the roots of its folders
// are known, and the caller must not change it. want is the capture that is asked
// for, zero for any one and always for Pure. A *cas.MissError says that there is
// none that counts: absent, garbled, unsigned where a signature is required, no
// server. Whether its blobs are there is found out by Fetch and Keep. The only
// other errors are an *OutageError, with Required, and that of ctx.
func (c *Cache) Find(ctx context.Context, class cas.Class, key, want cas.Digest) (cas.Result, error) {
	if !c.begin() {
		return cas.Result{}, c.closedMiss(key)
	}
	defer c.end()
	e, err := c.find(ctx, key, want, true)
	if err != nil {
		return cas.Result{}, err
	}
	c.count(func(s *Stats) { s.Found++ })
	return e.result, nil
}

func (c *Cache) closedMiss(key cas.Digest) error {
	return &cas.MissError{Key: key, Reason: errClosed.Error(), Err: errClosed}
}

// found is an entry with what is known of its blobs.
type found struct {
	*entry
	receipt bool // it is from one
	first   bool // there was no receipt of the key
	all     bool // its blobs were seen, not long ago
}

// find asks the receipts, if it may, and then the server.
func (c *Cache) find(ctx context.Context, key, want cas.Digest, receipts bool) (*found, error) {
	first := false
	if receipts {
		r, ok := c.store.Receipt(c.name, key)
		if f := c.fromReceipt(r, key, want); ok && f != nil {
			c.believed.add(f)
			return f, nil
		}
		first = !ok
	}
	s, err := c.info(ctx)
	if err != nil {
		return nil, c.fail(ctx, "find", key, err)
	}
	places := []standIn{byKey(s.Func, key)}
	if !want.IsZero() {
		places = []standIn{byCapture(s.Func, key, want), places[0]}
	}
	var reason error // of the last entry that doesn't count
	for _, p := range places {
		e, err := c.lookup(ctx, s.Func, key, p.key)
		var bad *entryError
		switch {
		case reapi.KindOf(err) == reapi.NotFound:
			continue
		case errors.As(err, &bad):
			reason = bad.cause
			continue
		case err != nil:
			return nil, c.fail(ctx, "find", key, err)
		}
		if !want.IsZero() && e.capture != want {
			reason = errOther
			continue
		}
		if err := c.believable(e); err != nil {
			reason = err
			continue
		}
		f := &found{entry: e, first: first}
		c.believed.add(f)
		return f, nil
	}
	miss := &cas.MissError{Key: key, Reason: "no result in the remote cache"}
	if reason != nil {
		miss.Reason, miss.Err = "the result in the remote cache doesn't count: "+reason.Error(), reason
	}
	return nil, miss
}

// fromReceipt gives the entry of one that still counts. What is trusted may have
// changed since it was written.
func (c *Cache) fromReceipt(r cas.Receipt, key, want cas.Digest) *found {
	if c.now().Sub(r.When) >= believe {
		return nil
	}
	e := c.sameCapture(r, key, want)
	if e == nil || !c.trusts(e) || c.believed.not(e) {
		return nil
	}
	return &found{entry: e, receipt: true, all: true}
}

// sameCapture gives what is in a receipt, or nil if that isn't the wanted one.
func (c *Cache) sameCapture(r cas.Receipt, key, want cas.Digest) *entry {
	e, err := decode(r.Func, key, r.Message)
	if err != nil || !want.IsZero() && e.capture != want {
		return nil
	}
	return e
}

// lookup gives what is under a key of the server. Garbage counts as a failure of
// the server, so it is judged before the call counts as answered.
func (c *Cache) lookup(ctx context.Context, fn cas.Func, key, there cas.Digest) (*entry, error) {
	select {
	case c.lookups <- struct{}{}:
		defer func() { <-c.lookups }()
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	var e *entry
	err := c.breaker.do(ctx, callLookup, func(ctx context.Context) error {
		msg, err := c.client.Result(ctx, there)
		switch {
		case reapi.KindOf(err) == reapi.Garbage:
			return &entryError{err}
		case err != nil:
			return err
		}
		c.count(func(s *Stats) { s.Down += int64(len(msg)) })
		switch e, err = decode(fn, key, msg); {
		case errors.Is(err, errNotOurs):
			return &entryError{err}
		case err != nil:
			return &entryError{&reapi.Error{Op: "read result", Object: there.String(), Kind: reapi.Garbage, Err: err}}
		}
		return nil
	})
	var bad *entryError
	if errors.As(err, &bad) {
		if errors.Is(err, errNotOurs) {
			c.warn(troubleForeign, "what it has under %v doesn't count: %v", key, err)
		} else {
			c.warn(troubleEntry, "a result doesn't count: %v", err)
		}
	}
	return e, err
}

func (c *Cache) trusts(e *entry) bool { return c.trusted == nil || c.trusted[string(e.signer)] }

// believable says why an entry doesn't count.
func (c *Cache) believable(e *entry) error {
	switch {
	case !c.trusts(e) && e.signer == nil:
		c.warn(troubleUnsigned, "the result of %v is not signed; results that none of the trusted_builders has signed don't count", e.key)
	case !c.trusts(e):
		c.warn(troubleUnsigned, "the result of %v is signed by %s; results that none of the trusted_builders has signed don't count", e.key, FormatKey(e.signer))
	case c.believed.not(e):
		return errDistrust
	default:
		return nil
	}
	return errUntrusted
}

// maxBelieved bounds the messages of entries that are remembered from Find to
// Fetch or Keep, in bytes. What was forgotten is asked for again.
const maxBelieved = 32 << 20

// believed remembers entries, the last of each key, and those that proved wrong.
type believed struct {
	mu      sync.Mutex
	byKey   map[cas.Digest]*list.Element
	order   list.List // of *found, the oldest in front
	size    int
	refuted map[cas.Digest]bool // by the digest of the message
}

func (f *found) weight() int { return len(f.message) + 512 }

func (b *believed) add(f *found) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.byKey == nil {
		b.byKey = map[cas.Digest]*list.Element{}
	}
	if was := b.byKey[f.key]; was != nil {
		b.remove(was)
	}
	b.byKey[f.key] = b.order.PushBack(f)
	for b.size += f.weight(); b.size > maxBelieved && b.order.Len() > 1; {
		b.remove(b.order.Front())
	}
}

// remove wants b.mu held.
func (b *believed) remove(e *list.Element) {
	f := b.order.Remove(e).(*found)
	delete(b.byKey, f.key)
	b.size -= f.weight()
}

// get gives what was last found of the key, or nil.
func (b *believed) get(key, want cas.Digest) *found {
	b.mu.Lock()
	defer b.mu.Unlock()
	e := b.byKey[key]
	if e == nil {
		return nil
	}
	if f := e.Value.(*found); want.IsZero() || f.capture == want {
		return f
	}
	return nil
}

// drop forgets an entry; for good if it has proved false.
func (b *believed) drop(e *entry, refuted bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if at := b.byKey[e.key]; at != nil && at.Value.(*found).entry == e {
		b.remove(at)
	}
	if refuted {
		if b.refuted == nil {
			b.refuted = map[cas.Digest]bool{}
		}
		b.refuted[cas.BLAKE3.Sum(e.message)] = true
	}
}

func (b *believed) not(e *entry) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return len(b.refuted) > 0 && b.refuted[cas.BLAKE3.Sum(e.message)]
}

// known gives what Find found, or finds it.
func (c *Cache) known(ctx context.Context, key, want cas.Digest) (*found, error) {
	if f := c.believed.get(key, want); f != nil {
		return f, nil
	}
	return c.find(ctx, key, want, true)
}

// Keep notes that what Find found of key is relied on without its blobs: that
// they are all on the server is checked, and a receipt is written. A
// *cas.MissError says that they aren't, and then what was found isn't believed
// again. Other errors are as those of Find.
func (c *Cache) Keep(ctx context.Context, class cas.Class, key cas.Digest) error {
	if !c.begin() {
		return c.closedMiss(key)
	}
	defer c.end()
	f, err := c.known(ctx, key, cas.Digest{})
	if err != nil || f.all {
		return err
	}
	if err := c.keep(ctx, f.entry); err != nil {
		return c.broken(ctx, "keep", f.entry, err)
	}
	return c.settled(class, f)
}

func (c *Cache) keep(ctx context.Context, e *entry) error {
	// Trees are brought as pure ones: no capture names them yet.
	all, err := c.contents(ctx, cas.Pure, e)
	if err != nil {
		return err
	}
	var ask []cas.Digest
	for _, d := range e.blobs() {
		if err := all.add(d, e.doubles.server[d]); err != nil {
			return &entryError{err}
		}
	}
	for local, there := range all.server {
		if local.Size > 0 { // nothing is everywhere
			ask = append(ask, there)
		}
	}
	lacks, err := c.lacking(ctx, ask)
	if err != nil {
		return err
	}
	for d := range lacks {
		return &blobError{local: all.local[d], server: d}
	}
	return nil
}

// settled writes a receipt, in which an entry is remembered from now on: in a
// build of 10,000 results their messages would be most of the memory.
// What we sent stays ours when it is seen again.
func (c *Cache) settled(class cas.Class, f *found) error {
	e, had := f.entry, true
	if !f.first {
		if r, ok := c.store.Receipt(c.name, e.key); ok && !r.Had {
			had = c.sameCapture(r, e.key, e.capture) == nil
		}
	}
	if err := c.store.PutReceipt(c.name, e.key, cas.Receipt{Class: class, Had: had, Func: e.fn, Message: e.message, When: c.now()}); err != nil {
		return fmt.Errorf("remote cache: %w", err)
	}
	c.believed.drop(e, false)
	return nil
}
