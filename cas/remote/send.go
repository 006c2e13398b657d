package remote

import (
	"cmp"
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

const (
	senders      = 2       // loads on their way at once
	loadMost     = 256     // parcels in a load
	loadBytes    = 8 << 20 // of what a load holds in memory
	entryFlights = 128     // results written at once by a load
	// longQueue is when parcels let go of their bytes and read them again later.
	longQueue = 256
	// maxVague is how many writes in a row are refused for no reason before nothing
	// more is sent: each is tried twice, and a server with a full disk may refuse
	// all that there are.
	maxVague = 5
)

// parcel is a result that is to be sent. Its blobs stay in the store until its
// turn comes, and in a long queue the result does as well.
type parcel struct {
	class           cas.Class
	key             cas.Digest
	action, command []byte
	result          *cas.Result // nil: it is in the store
	spilled         [2]cas.Digest
	surplus         func(first cas.Digest)
}

// sender is the queue. Captures go first: they are what can't be made again.
type sender struct {
	mu       sync.Mutex
	captures []*parcel
	pures    []*parcel
	busy     int           // senders at work
	idle     chan struct{} // closed while nothing is queued or on its way
	off      string        // why uploads have ended, one of the not… words
	vague    int           // writes in a row that were refused for no reason
	outage   error         // of the first parcel that the server didn't take: down, full, denied
	entered  []entered     // captures that were recorded under their keys
	doubles  map[cas.Digest]cas.Digest
	uploads  map[cas.Digest]*answer[bool] // blobs that a load has in hand, by their digests there
}

// entered is a capture that was seen under its key after it was sent.
type entered struct {
	key, there, capture cas.Digest
	fn                  cas.Func
	surplus             func(first cas.Digest)
}

func (s *sender) init() {
	s.uploads = map[cas.Digest]*answer[bool]{}
	s.idle = make(chan struct{})
	close(s.idle)
}

// Send queues an upload and returns at once. The result is recorded in the store
// already. action and command are the encoded messages of the key, or nil.
// surplus, unless nil, is called from another goroutine, at the latest by Flush,
// if the server has another capture under the key, which was first; ours can be
// found there by its digest alone. What came from any server, and what this one
// has by a receipt younger than a day, isn't sent.
func (c *Cache) Send(class cas.Class, key cas.Digest, action, command []byte, r cas.Result, surplus func(first cas.Digest)) {
	p := &parcel{class: class, key: key, action: action, command: command, result: &r, surplus: surplus}
	if why := c.needless(p); why != "" {
		c.notSent(why, 1)
		return
	}
	s := &c.sender
	s.mu.Lock()
	long := len(s.captures)+len(s.pures) >= longQueue
	s.mu.Unlock()
	if long {
		c.spill(p)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.off != "" {
		c.notSent(s.off, 1)
		return
	}
	if class == cas.Capture {
		s.captures = append(s.captures, p)
	} else {
		s.pures = append(s.pures, p)
	}
	if s.busy == senders {
		return
	}
	if !c.begin() {
		c.dropQueue(notClosed)
		return
	}
	if s.busy == 0 {
		s.idle = make(chan struct{})
	}
	s.busy++
	go c.sending()
}

// needless says why a parcel need not be sent, as far as the store knows, or "":
// a build that has all there is doesn't even connect.
func (c *Cache) needless(p *parcel) string {
	rec, ok := c.store.Receipt(c.name, p.key)
	received := c.store.Received(p.key)
	if !ok && !received {
		return ""
	}
	raw, err := p.result.Encode()
	if err != nil {
		return ""
	}
	switch {
	case received && !c.surplus(p, raw):
		return notReceived
	case ok && c.now().Sub(rec.When) < believe && c.sameCapture(rec, p.key, p.key.Func.Sum(raw)) != nil:
		return notKnown
	}
	return ""
}

// Wants says whether Send would send a pure result of the key, as far as the store
// knows: it didn't come from a server, and this one isn't known to have it.
func (c *Cache) Wants(key cas.Digest) bool {
	r, ok := c.store.Receipt(c.name, key)
	return !(ok && c.now().Sub(r.When) < believe) && !c.store.Received(key)
}

// spill lets go of the bytes that the store has or can have. Of a surplus capture
// it has another.
func (c *Cache) spill(p *parcel) {
	if raw, err := p.result.Encode(); err == nil && !c.surplus(p, raw) {
		p.result = nil
	}
	for i, b := range [2]*[]byte{&p.action, &p.command} {
		if len(*b) == 0 {
			continue
		}
		if d, err := c.store.Put(cas.Pure, *b); err == nil {
			p.spilled[i], *b = d, nil
		}
	}
}

// dropQueue wants the sender's lock held.
func (c *Cache) dropQueue(why string) {
	s := &c.sender
	c.notSent(why, len(s.captures)+len(s.pures))
	s.captures, s.pures = nil, nil
}

// next gives a parcel, or nil if there is none of this class, zero for any. A load
// has one class, so that no capture waits for what can be made again.
func (s *sender) next(class cas.Class) *parcel {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, q := range [2]*[]*parcel{&s.captures, &s.pures} {
		if class == [2]cas.Class{cas.Pure, cas.Capture}[i] {
			continue
		}
		if len(*q) > 0 {
			p := (*q)[0]
			(*q)[0] = nil
			*q = (*q)[1:]
			return p
		}
	}
	return nil
}

// sending works until the queue is empty.
func (c *Cache) sending() {
	defer c.end()
	s := &c.sender
	for {
		var load []*outgoing
		held, class := 0, cas.Class(0)
		for n := 0; n < loadMost && held < loadBytes; n++ {
			p := s.next(class)
			if p == nil {
				break
			}
			class = p.class
			if why := c.stopped(); why != "" {
				c.notSent(why, 1)
				continue
			}
			o, err := c.pack(p)
			if err != nil {
				c.unsent(p.key, err)
				continue
			}
			load = append(load, o)
			held += o.held
		}
		c.ship(load)
		s.mu.Lock()
		if len(s.captures)+len(s.pures) == 0 {
			if s.busy--; s.busy == 0 {
				close(s.idle)
			}
			s.mu.Unlock()
			return
		}
		s.mu.Unlock()
	}
}

// stopped says why nothing can be sent now, or "".
func (c *Cache) stopped() string {
	s := &c.sender
	if c.ctx.Err() != nil {
		return notClosed
	}
	info, err := c.info(c.ctx)
	if err == nil && !info.Updates && !c.o.Required {
		c.warn(troubleWrite, "%v; nothing is uploaded", errReadOnly)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.off != "":
	case err != nil:
		if s.outage == nil && c.ctx.Err() == nil {
			s.outage = err
		}
		return notUnavailable
	case !info.Updates:
		s.off, s.outage = notReadOnly, cmp.Or(s.outage, errReadOnly)
	}
	return s.off
}

var errReadOnly = errors.New("it says that it takes no results")

// ended says why uploads have ended, or "".
func (s *sender) ended() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.off
}

// put makes a call that writes, and judges it.
func (c *Cache) put(ctx context.Context, call func(context.Context) error) error {
	err := c.breaker.do(ctx, callWrite, call)
	refused, ok := errors.AsType[*reapi.Error](err)
	s := &c.sender
	s.mu.Lock()
	switch {
	case err == nil:
		s.vague = 0
	case ok && refused.Vague:
		s.vague++
	}
	enough := s.vague >= maxVague && s.off == ""
	if enough {
		s.off, s.outage = notRefused, cmp.Or(s.outage, err)
	}
	s.mu.Unlock()
	if enough && !c.o.Required {
		c.warn(troubleWrite, "%v, as for other writes before; nothing more is uploaded", err)
	}
	return err
}

// unsentError says why a parcel isn't sent.
type unsentError struct{ why string }

func (e *unsentError) Error() string { return e.why }

// unsent counts a parcel that failed, and draws the consequences for the rest.
func (c *Cache) unsent(key cas.Digest, err error) {
	s := &c.sender
	var skip *unsentError
	why := notRefused
	kind := reapi.KindOf(err)
	switch {
	case errors.As(err, &skip):
		why = skip.why
	case c.ctx.Err() != nil:
		why = notClosed
	case errors.Is(err, errTooLarge):
		why = notTooLarge
		c.warn(troubleLarge, "the result of %v is not uploaded: %v", key, err)
	case kind == reapi.Denied, kind == reapi.Full:
		why = notDenied
		if kind == reapi.Full {
			why = notFull
		}
		s.mu.Lock()
		s.off, s.outage = why, cmp.Or(s.outage, err)
		s.mu.Unlock()
		if !c.o.Required {
			c.warn(troubleWrite, "%v; nothing more is uploaded", err)
		}
	case c.out(err):
		why = notUnavailable
		c.failing(err)
		s.mu.Lock()
		if s.outage == nil {
			s.outage = err
		}
		s.mu.Unlock()
	case kind != 0 && s.ended() == "": // else it was said
		c.warn(troubleRefused, "a result is not uploaded: %v", err)
	case kind != 0:
	default:
		why = notWhole // trouble of the store, which its other readers meet too
	}
	c.notSent(why, 1)
}

// Pending tells how many results wait for their turn, less those on their way.
func (c *Cache) Pending() int {
	s := &c.sender
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.captures) + len(s.pures)
}

// Flush waits until all that was queued is sent, or can't be; then it looks once
// more whether a capture that was sent is still the first of its key. With
// Required what lost a parcel, an outage or a server that is full or lets us write
// nothing, is an *OutageError; the only other error is that of ctx.
func (c *Cache) Flush(ctx context.Context) error {
	s := &c.sender
	s.mu.Lock()
	idle := s.idle
	s.mu.Unlock()
	select {
	case <-idle:
	case <-ctx.Done():
		return fmt.Errorf("remote cache %s: upload: %w", c.name, ctx.Err())
	}
	c.lookAgain(ctx)
	s.mu.Lock()
	outage := s.outage
	s.mu.Unlock()
	if outage != nil && c.o.Required {
		return &OutageError{Server: c.name, Err: outage}
	}
	return nil
}

// ship sends a load: blobs, then what names them.
func (c *Cache) ship(load []*outgoing) {
	if len(load) == 0 {
		return
	}
	s := &c.sender
	var items []item
	for _, o := range load {
		items = append(items, o.items...)
	}
	failed := c.upload(c.ctx, items)
	var g errgroup.Group
	g.SetLimit(entryFlights)
	for _, o := range load {
		g.Go(func() error {
			err := o.failed(failed)
			if why := s.ended(); err == nil && why != "" {
				err = &unsentError{why}
			}
			if err == nil {
				err = c.enter(c.ctx, o)
			}
			if err != nil {
				c.unsent(o.key, err)
				return nil
			}
			c.count(func(s *Stats) { s.Sent++ })
			return nil
		})
	}
	g.Wait()
}

// failed gives the error of a blob that wasn't uploaded.
func (o *outgoing) failed(failed map[cas.Digest]error) error {
	if len(failed) == 0 {
		return nil
	}
	for _, it := range o.items {
		if err := failed[it.server]; err != nil {
			return err
		}
	}
	return nil
}

// enter writes the result under its keys, and a receipt.
func (c *Cache) enter(ctx context.Context, o *outgoing) error {
	var err error
	if o.class == cas.Capture {
		err = c.enterCapture(ctx, o)
	} else {
		err = c.enterPure(ctx, o)
	}
	if err != nil {
		return err
	}
	if c.store.Received(o.key) { // a surplus: the receipt is of the capture that counts
		return nil
	}
	// Without a receipt the server is asked again, that is all.
	c.store.PutReceipt(c.name, o.key, cas.Receipt{Class: o.class, Func: o.fn, Message: o.message, When: c.now()})
	return nil
}

// enterPure replaces what is there, unless a trusted builder has signed that and
// ours isn't: whoever trusts builders could no longer use it.
func (c *Cache) enterPure(ctx context.Context, o *outgoing) error {
	if c.trusted != nil && !c.trustsUs() {
		e, err := c.lookup(ctx, o.fn, o.key, o.byKey)
		if err == nil && c.trusts(e) {
			return &unsentError{notKnown}
		}
		if err != nil && c.out(err) {
			return err
		}
	}
	return c.write(ctx, o.byKey, o.message)
}

func (c *Cache) trustsUs() bool {
	return c.o.Sign != nil && c.trusted[string(c.o.Sign.Public().(ed25519.PublicKey))]
}

func (c *Cache) write(ctx context.Context, there cas.Digest, msg []byte) error {
	err := c.put(ctx, func(ctx context.Context) error { return c.client.PutResult(ctx, there, msg) })
	if err == nil {
		c.count(func(s *Stats) { s.Up += int64(len(msg)) })
	}
	return err
}

// enterCapture writes the entry that nothing can replace, and the one under the
// key if there is none. No server has "write if absent", so two may still write
// at once: both look again, and Flush does too.
func (c *Cache) enterCapture(ctx context.Context, o *outgoing) error {
	if err := c.write(ctx, o.byCapture, o.message); err != nil {
		return err
	}
	at := entered{key: o.key, there: o.byKey, capture: o.capture, fn: o.fn, surplus: o.surplus}
	switch first, err := c.first(ctx, at); {
	case err != nil:
		return err
	case !first.IsZero():
		c.isSurplus(at, first)
		return nil
	}
	if err := c.write(ctx, o.byKey, o.message); err != nil {
		return err
	}
	switch first, err := c.first(ctx, at); {
	case err != nil:
		return err
	case first.IsZero():
		c.warn(troubleRefused, "it took a result, and doesn't have it")
		return &unsentError{notRefused}
	case first != o.capture:
		c.isSurplus(at, first)
		return nil
	}
	c.sender.mu.Lock()
	c.sender.entered = append(c.sender.entered, at)
	c.sender.mu.Unlock()
	return nil
}

// first gives the capture that is under the key, zero if there is none. What is
// there and can't be used is left alone as well, and counts as ours: nobody can
// say what it was.
func (c *Cache) first(ctx context.Context, at entered) (cas.Digest, error) {
	e, err := c.lookup(ctx, at.fn, at.key, at.there)
	var bad *entryError
	switch {
	case err == nil:
		return e.capture, nil
	case reapi.KindOf(err) == reapi.NotFound:
		return cas.Digest{}, nil
	case errors.As(err, &bad):
		return at.capture, nil
	}
	return cas.Digest{}, err
}

func (c *Cache) isSurplus(at entered, first cas.Digest) {
	if first == at.capture {
		return
	}
	c.count(func(s *Stats) { s.Surplus++ })
	if at.surplus != nil {
		at.surplus(first)
	}
}

// lookAgain asks which captures are still the first of their keys.
func (c *Cache) lookAgain(ctx context.Context) {
	if !c.begin() {
		return
	}
	defer c.end()
	c.sender.mu.Lock()
	all := c.sender.entered
	c.sender.entered = nil
	c.sender.mu.Unlock()
	var mu sync.Mutex
	var keep []entered
	var g errgroup.Group
	g.SetLimit(entryFlights)
	for _, at := range all {
		g.Go(func() error {
			first, err := c.first(ctx, at)
			if err == nil && !first.IsZero() && first != at.capture {
				c.isSurplus(at, first)
				return nil
			}
			mu.Lock()
			keep = append(keep, at) // another Flush may ask again
			mu.Unlock()
			return nil
		})
	}
	g.Wait()
	c.sender.mu.Lock()
	c.sender.entered = append(c.sender.entered, keep...)
	c.sender.mu.Unlock()
}
