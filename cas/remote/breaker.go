package remote

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/evalbuild/eval/cas/remote/reapi"
)

const (
	maxFailures = 3 // of a kind of call in a row, each after the client's own retries
	maxWrong    = 5 // blobs that are not what they were promised to be
	firstProbe  = 15 * time.Second
	lastProbe   = 10 * time.Minute
)

// call is a kind of call. Failures in a row are counted for each: a server that
// answers some calls well and others never would not be found out otherwise.
type call uint8

const (
	callInfo call = iota
	callLookup
	callMissing
	callBatch
	callStream
	callWrite
	callKinds
)

// errOpen is the cause of calls that were not made, or cut short.
var errOpen = errors.New("the server is not used now")

// breaker decides whether the server is asked at all. It is closed while the
// server answers. What opens it ends all calls that are on their way; from then
// on calls fail at once, until a probe was answered. The pauses between probes
// grow and never shrink again in a process: a server that goes down each time it
// is back costs one time-out for each doubling, not one a minute.
type breaker struct {
	limit int // failures in a row that open it, of a server that is down
	// probe asks the server something small.
	probe func(context.Context) error
	after func(time.Duration, func()) (stop func() bool)
	// opened is called, without locks, each time it opens.
	opened func(cause error)

	mu      sync.Mutex
	parent  context.Context
	cancel  context.CancelFunc
	up      context.Context // ends when it opens
	upEnd   context.CancelCauseFunc
	isOpen  bool
	cause   error
	failed  [callKinds]int
	wrong   int
	wait    time.Duration
	stop    func() bool
	probing sync.WaitGroup
}

func newBreaker(limit int, after func(time.Duration, func()) func() bool) *breaker {
	b := &breaker{limit: limit, after: after, wait: firstProbe, stop: func() bool { return false }}
	b.parent, b.cancel = context.WithCancel(context.Background())
	b.up, b.upEnd = context.WithCancelCause(b.parent)
	return b
}

// close ends everything, and waits for a probe.
func (b *breaker) close() {
	b.mu.Lock()
	b.cancel()
	b.stop()
	b.mu.Unlock()
	b.probing.Wait()
}

// down gives why the server isn't used, or nil.
func (b *breaker) down() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case b.isOpen:
		return fmt.Errorf("%w: %w", errOpen, b.cause)
	case b.parent.Err() != nil:
		return errOpen
	}
	return nil
}

// do makes a call with a context that ends with ctx and when the breaker opens,
// and judges the error. Whoever was cut short by another's failure gets errOpen.
func (b *breaker) do(ctx context.Context, kind call, fn func(context.Context) error) error {
	if err := b.down(); err != nil {
		return err
	}
	b.mu.Lock()
	up := b.up
	b.mu.Unlock()
	ctx, end := context.WithCancelCause(ctx)
	defer end(nil)
	defer context.AfterFunc(up, func() { end(errOpen) })()
	err := fn(ctx)
	if err == nil {
		b.answered(kind)
		return nil
	}
	if up.Err() != nil {
		if open := b.down(); open != nil {
			return open
		}
		return errOpen
	}
	if ctx.Err() == nil {
		b.judge(kind, err)
	}
	return err
}

func (b *breaker) answered(kind call) {
	b.mu.Lock()
	b.failed[kind] = 0
	b.mu.Unlock()
}

// judge counts a failure.
func (b *breaker) judge(kind call, err error) {
	at := maxFailures
	switch reapi.KindOf(err) {
	case reapi.Down:
		at = b.limit
		if e, ok := errors.AsType[*reapi.Error](err); ok && e.Timeout {
			at = 1 // one is dear enough
		}
	case reapi.Garbage:
	case reapi.NotFound, reapi.Denied, reapi.Refused, reapi.Full:
		b.answered(kind) // it is there, and says no
		return
	default:
		return // ours: a cancelled call, a reader that failed
	}
	b.mu.Lock()
	b.failed[kind]++
	open := b.failed[kind] >= at
	b.mu.Unlock()
	if open {
		b.open(err, true)
	}
}

// lied counts a wrong blob. Who is opened for that stays so: a server that lies
// answers probes as well as any.
func (b *breaker) lied(err error) {
	b.mu.Lock()
	b.wrong++
	open := b.wrong >= maxWrong
	b.mu.Unlock()
	if open {
		b.open(err, false)
	}
}

// open opens it, for good unless it may be probed.
func (b *breaker) open(cause error, mayProbe bool) {
	b.mu.Lock()
	if b.isOpen || b.parent.Err() != nil {
		b.mu.Unlock()
		return
	}
	b.isOpen, b.cause = true, cause
	b.upEnd(errOpen)
	if mayProbe {
		b.schedule()
	}
	b.mu.Unlock()
	b.opened(cause)
}

// schedule wants b.mu held.
func (b *breaker) schedule() {
	wait := b.wait
	b.wait = min(2*b.wait, lastProbe)
	b.stop = b.after(wait, func() {
		b.mu.Lock()
		if b.parent.Err() != nil {
			b.mu.Unlock()
			return
		}
		b.probing.Add(1)
		b.mu.Unlock()
		defer b.probing.Done()
		err := b.probe(b.parent)
		b.mu.Lock()
		defer b.mu.Unlock()
		switch {
		case b.parent.Err() != nil:
		case err != nil:
			b.schedule()
		default:
			b.isOpen, b.cause, b.failed = false, nil, [callKinds]int{}
			b.up, b.upEnd = context.WithCancelCause(b.parent)
		}
	})
}
