package remote

import (
	"context"
	"crypto/ed25519"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
)

// Client is what a Cache needs of *reapi.Client; see there.
type Client interface {
	Name() string
	Server(context.Context) (reapi.Server, error)
	Missing(context.Context, []cas.Digest) ([]cas.Digest, error)
	ReadBatch(context.Context, []cas.Digest) (map[cas.Digest][]byte, error)
	WriteBatch(context.Context, []reapi.Blob) error
	Open(context.Context, cas.Digest) (io.ReadCloser, error)
	Write(context.Context, cas.Digest, func() (io.ReadCloser, error)) error
	Result(context.Context, cas.Digest) ([]byte, error)
	PutResult(context.Context, cas.Digest, []byte) error
}

// Options says with whom results are shared, and what is believed.
type Options struct {
	Client   Client // the Cache doesn't close it
	Store    *cas.Store
	Required bool                // an outage is an *OutageError and not a miss
	Trusted  []ed25519.PublicKey // nil: everybody; else what none of them signed is a miss
	Sign     ed25519.PrivateKey  // nil: what is sent is unsigned
	// Warn is told each kind of trouble at most once, in one line, from any
	// goroutine; nil: nobody is told.
	Warn func(msg string)

	Now func() time.Time // nil is time.Now; tells the age of receipts
	// After calls fn once, after the time and on another goroutine, unless it is
	// stopped before; nil is time.AfterFunc. The pauses between probes use it.
	After func(d time.Duration, fn func()) (stop func() bool)
}

const (
	// believe is how long a receipt stands for what a server has: no question
	// is asked in the meantime.
	believe = 24 * time.Hour
	// Blobs up to smallBlob go in batches; for larger ones the round trip that a
	// stream takes is little beside the transfer.
	smallBlob = 512 << 10
	// maxBatch bounds the blobs of a batch, in bytes; a server may want less.
	maxBatch = 3 << 20
	// maxTree bounds a Tree message, which is read into memory. It is 300,000 files.
	maxTree = 32 << 20

	// How many calls of a kind are on their way at once. A lookup is one round
	// trip with no way to batch it, so 20 ms and 200 of them are 10,000 a second.
	lookupFlights  = 200
	missingFlights = 4
	batchFlights   = 4
	streamFlights  = 4

	missingMost = 8192 // digests in a question: 0.6 MB
	batchMost   = 2048 // blobs in a batch
)

// Cache is the cache on one server. Its methods may be called from many
// goroutines.
type Cache struct {
	o       Options
	client  Client
	store   *cas.Store
	name    string
	now     func() time.Time
	breaker *breaker
	server  atomic.Pointer[reapi.Server]
	trusted map[string]bool // nil: everybody

	ctx     context.Context // ends with Close
	cancel  context.CancelFunc
	mu      sync.Mutex
	closed  bool
	running sync.WaitGroup

	lookups chan struct{}
	missing batcher[cas.Digest, bool]
	small   batcher[want, got]
	large   batcher[want, got]

	believed believed
	sender   sender
	notes    notes
}

// New gives a Cache. It asks the server nothing. Close has to be called.
func New(o Options) *Cache {
	c := &Cache{o: o, client: o.Client, store: o.Store, name: o.Client.Name(), now: o.Now}
	if c.now == nil {
		c.now = time.Now
	}
	after := o.After
	if after == nil {
		after = func(d time.Duration, fn func()) func() bool { return time.AfterFunc(d, fn).Stop }
	}
	limit := maxFailures
	if o.Required {
		// A miss instead of the first failure could be a draw that is paid twice.
		limit = 1
	}
	c.breaker = newBreaker(limit, after)
	c.breaker.probe = c.probe
	c.breaker.opened = c.outage
	if o.Trusted != nil {
		c.trusted = map[string]bool{}
		for _, k := range o.Trusted {
			c.trusted[string(k)] = true
		}
	}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.lookups = make(chan struct{}, lookupFlights)
	c.missing = batcher[cas.Digest, bool]{
		ctx: c.ctx, running: &c.running, flights: missingFlights, most: missingMost, run: c.runMissing,
	}
	c.small = batcher[want, got]{
		ctx: c.ctx, running: &c.running, flights: batchFlights, most: batchMost,
		weight: func(w want) int64 { return w.server.Size }, room: c.room, run: c.runBatch,
	}
	c.large = batcher[want, got]{
		ctx: c.ctx, running: &c.running, flights: streamFlights, most: 1, run: c.runStream,
	}
	c.sender.init()
	return c
}

// Close ends all calls, also those of others, and waits for them. What is still
// to be sent is dropped: Flush waits for it.
func (c *Cache) Close() {
	c.mu.Lock()
	c.closed = true
	c.mu.Unlock()
	c.cancel()
	c.breaker.close()
	c.running.Wait()
}

// begin keeps Close waiting until end, unless it was called.
func (c *Cache) begin() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if !c.closed {
		c.running.Add(1)
	}
	return !c.closed
}

func (c *Cache) end() { c.running.Done() }

var errClosed = errors.New("the cache is closed")

// OutageError says that the server can't be used, where Options.Required says
// that it must.
type OutageError struct {
	Server string
	Err    error
}

// Error gives "remote cache SERVER: cause".
func (e *OutageError) Error() string { return "remote cache " + e.Server + ": " + e.Err.Error() }

func (e *OutageError) Unwrap() error { return e.Err }

// info gives what the server is. One that refuses us even that is not asked again.
func (c *Cache) info(ctx context.Context) (reapi.Server, error) {
	if s := c.server.Load(); s != nil {
		if err := c.breaker.down(); err != nil {
			return reapi.Server{}, err
		}
		return *s, nil
	}
	var s reapi.Server
	err := c.breaker.do(ctx, callInfo, func(ctx context.Context) (err error) {
		s, err = c.client.Server(ctx)
		return err
	})
	switch reapi.KindOf(err) {
	case reapi.Denied, reapi.Refused:
		c.breaker.open(err, false)
	}
	if err == nil {
		c.server.Store(&s)
	}
	return s, err
}

// room gives the bytes of blobs in a batch.
func (c *Cache) room() int64 {
	if s := c.server.Load(); s != nil && s.MaxBatch > 0 {
		return min(s.MaxBatch, maxBatch)
	}
	return maxBatch
}

// isSmall says whether a blob goes in a batch.
func (c *Cache) isSmall(d cas.Digest) bool { return d.Size <= min(smallBlob, c.room()) }

// probe asks for a blob that each server of ours has soon: the client remembers
// what GetCapabilities said, and would answer for a server that is gone.
func (c *Cache) probe(ctx context.Context) error {
	s, err := c.client.Server(ctx)
	if err == nil {
		_, err = c.client.Missing(ctx, []cas.Digest{standFor(s.Func, "").blobs[1].server})
	}
	return err
}

// runMissing tells of each digest whether the server lacks it.
func (c *Cache) runMissing(ctx context.Context, keys []cas.Digest) (map[cas.Digest]bool, error) {
	var lacks []cas.Digest
	err := c.breaker.do(ctx, callMissing, func(ctx context.Context) (err error) {
		lacks, err = c.client.Missing(ctx, keys)
		return err
	})
	if err != nil {
		return nil, err
	}
	out := make(map[cas.Digest]bool, len(keys))
	for _, d := range keys {
		out[d] = false
	}
	for _, d := range lacks {
		out[d] = true
	}
	return out, nil
}

// lacking gives those that the server doesn't have.
func (c *Cache) lacking(ctx context.Context, digests []cas.Digest) (map[cas.Digest]bool, error) {
	lacks := map[cas.Digest]bool{}
	for i, a := range c.missing.start(digests) {
		missing, _, err := a.wait(ctx)
		if err != nil {
			return nil, err
		}
		if missing {
			lacks[digests[i]] = true
		}
	}
	return lacks, nil
}

// fail gives what a caller gets for a failed call: a miss, unless it left itself
// or, with Required, the server is out.
func (c *Cache) fail(ctx context.Context, op string, key cas.Digest, err error) error {
	if ctx.Err() != nil {
		return fmt.Errorf("%s %v: %w", op, key, ctx.Err())
	}
	if reapi.KindOf(err) == reapi.Denied {
		// Who may not read has no use of it.
		c.breaker.open(err, false)
	}
	var entry *entryError
	switch {
	case errors.As(err, &entry):
		return &cas.MissError{Key: key, Reason: "what the remote cache has can't be used: " + entry.cause.Error(), Err: err}
	case c.out(err) && c.o.Required:
		return &OutageError{Server: c.name, Err: err}
	case c.out(err):
		c.failing(err)
		return &cas.MissError{Key: key, Reason: "the remote cache can't be used", Err: err}
	}
	c.warn(troubleRead, "%v; what it can't give is made again", err)
	return &cas.MissError{Key: key, Reason: "the remote cache gives an error: " + err.Error(), Err: err}
}

// out says whether err means that the server can't be used.
func (c *Cache) out(err error) bool {
	switch reapi.KindOf(err) {
	case reapi.Down, reapi.Garbage, reapi.Cancelled, reapi.Denied:
		return true
	}
	return errors.Is(err, errOpen)
}
