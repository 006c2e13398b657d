package remote

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// The names of the calls, as the fake counts them.
const (
	getResult   = "GetActionResult"
	putResult   = "UpdateActionResult"
	findMissing = "FindMissingBlobs"
	readBatch   = "BatchReadBlobs"
	writeBatch  = "BatchUpdateBlobs"
	readStream  = "Read"
	writeStream = "Write"
)

var pureKey = keyOf(cas.BLAKE3, "one")

// published gives a server that has the pure result "one", with a large file.
func published(t *testing.T, k remotetest.Knobs) (*remotetest.Fake, cas.Result) {
	t.Helper()
	f := remotetest.Start(t, k)
	a := join(t, f.Address, setup{})
	return f, a.send(t, cas.Pure, "one", large)
}

// wantNothing wants the store not to have the result, nor the caller to get it.
func (m *machine) wantNothing(t *testing.T, part string) {
	t.Helper()
	err := m.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{})
	wantMiss(t, err, part)
	if r, err := m.store.Lookup(cas.Pure, pureKey); err == nil {
		t.Errorf("recorded: %+v", r)
	}
}

func (m *machine) wantFetched(t *testing.T) {
	t.Helper()
	if err := m.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}); err != nil {
		t.Error(err)
	}
	if _, err := m.store.Lookup(cas.Pure, pureKey); err != nil {
		t.Error(err)
	}
}

// A server that is not there costs one warning; when it is back, a probe finds out.
func TestDown(t *testing.T) {
	t.Parallel()
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{timeout: time.Second})
	f.Stop()
	start := time.Now()
	var wg sync.WaitGroup
	for range 100 {
		wg.Go(func() {
			_, err := b.Find(t.Context(), cas.Pure, pureKey, cas.Digest{})
			wantMiss(t, err, "can't be used")
		})
	}
	wg.Wait()
	b.send(t, cas.Capture, "mine", 10)
	wantMiss(t, b.Keep(t.Context(), cas.Pure, pureKey), "can't be used")
	if took := time.Since(start); took > 12*time.Second {
		t.Errorf("it took %v", took)
	}
	b.wantWarnings(t, "the build goes on without")
	if s := b.Stats(); s.Sent != 0 || s.NotSent[notUnavailable] != 1 {
		t.Errorf("%+v", s)
	}
	// The first probe finds nothing either.
	if n := b.clock.advance(firstProbe - 1); n != 0 {
		t.Errorf("%d probes before their time", n)
	}
	if n := b.clock.advance(1); n != 1 {
		t.Errorf("%d probes", n)
	}
	b.wantNothing(t, "can't be used")
	f.Restart(t)
	if n := b.clock.advance(firstProbe); n != 0 {
		t.Errorf("%d probes, and the pause should have doubled", n)
	}
	// gRPC has pauses of its own before it connects again.
	for deadline := time.Now().Add(10 * time.Second); b.breaker.down() != nil; {
		if time.Now().After(deadline) {
			t.Fatal("no probe was answered")
		}
		b.clock.advance(lastProbe)
	}
	b.wantFetched(t)
	b.wantWarnings(t, "the build goes on without")
}

// A server that doesn't answer costs one time-out, for all callers together.
func TestSlow(t *testing.T) {
	t.Parallel()
	for _, method := range []string{getResult, readBatch, readStream, findMissing} {
		t.Run(method, func(t *testing.T) {
			f, _ := published(t, remotetest.Knobs{})
			f.Inject(method, remotetest.Fault{Times: -1, Hang: make(chan struct{})})
			b := join(t, f.Address, setup{timeout: 300 * time.Millisecond})
			start := time.Now()
			var wg sync.WaitGroup
			for range 50 {
				wg.Go(func() {
					if method == findMissing {
						wantMiss(t, b.Keep(t.Context(), cas.Pure, pureKey), "can't be used")
					} else {
						wantMiss(t, b.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}), "can't be used")
					}
				})
			}
			wg.Wait()
			// It is tried again, so as not to give up for one lost packet.
			if took := time.Since(start); took > 12*time.Second {
				t.Errorf("it took %v", took)
			}
			b.wantWarnings(t, "no answer in 300ms; the build goes on without it")
		})
	}
}

// A stream that is cut goes on where it was; one that is cut for ever is a miss.
func TestCut(t *testing.T) {
	t.Parallel()
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	f.Inject(readStream, remotetest.Fault{Cut: true, After: 300_000}, remotetest.Fault{Cut: true, After: 1000})
	b.wantFetched(t)
	b.wantWarnings(t)
	c := join(t, f.Address, setup{})
	f.Inject(readStream, remotetest.Fault{Times: -1, Cut: true, After: 0})
	c.wantNothing(t, "can't be used")
	c.wantWarnings(t, "the build goes on without what it doesn't give")
}

func TestRestarted(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	if _, err := b.Find(t.Context(), cas.Pure, pureKey, cas.Digest{}); err != nil {
		t.Fatal(err)
	}
	f.Restart(t)
	b.wantFetched(t)
	b.wantWarnings(t)
}

func TestGarbage(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	for _, method := range []string{getResult, readBatch, readStream} {
		b := join(t, f.Address, setup{})
		f.Inject(method, remotetest.Fault{Times: -1, Garbage: true})
		for range maxFailures {
			b.wantNothing(t, "")
		}
		before := f.Calls(getResult)
		b.wantNothing(t, "can't be used")
		if n := f.Calls(getResult); n != before {
			t.Errorf("%s: it is still asked: %d calls", method, n-before)
		}
		if method == getResult { // it may have been one entry, at first
			b.wantWarnings(t, "a result doesn't count", "the build goes on without")
		} else {
			b.wantWarnings(t, "the build goes on without")
		}
		f.Heal()
	}
}

// Entries that can't be right are misses: their blobs aren't asked for.
func TestGarbledEntry(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	msg, _ := f.Result(pureKey)
	for name, bad := range map[string][]byte{
		"cut": msg[:len(msg)/2], "noise": noise(1, 1000), "of another": nil,
		"a bit": append(append([]byte{}, msg[:len(msg)-50]...), append([]byte{msg[len(msg)-50] ^ 1}, msg[len(msg)-49:]...)...),
	} {
		b := join(t, f.Address, setup{})
		if bad == nil { // the entry of another key, whole
			b.send(t, cas.Pure, "two", 10)
			bad, _ = f.Result(keyOf(cas.BLAKE3, "two"))
		}
		f.PutResult(pureKey, bad)
		before := f.Calls(readBatch)
		for range 2 {
			b.wantNothing(t, "doesn't count")
		}
		if n := f.Calls(readBatch); n != before {
			t.Errorf("%s: blobs of it were asked for", name)
		}
		b.wantWarnings(t, "doesn't count")
	}
	b := join(t, f.Address, setup{})
	f.PutResult(pureKey, nil) // an empty message: some other program's
	for range 2 * maxFailures {
		b.wantNothing(t, "not written by eval")
	}
	b.wantWarnings(t, "not written by eval")
}

// What a server promised and doesn't have is a miss, and told once; another
// result isn't affected.
func TestEvicted(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		a := join(t, f.Address, setup{})
		a.send(t, cas.Pure, "one", large)
		a.send(t, cas.Pure, "other", 1000)
		all := f.Blobs()
		a.send(t, cas.Pure, "late", 10)
		b := join(t, f.Address, setup{})
		for _, d := range all {
			if d.Size == large || d.Size == int64(len("one of one")) {
				f.DropBlob(d)
			}
		}
		b.wantNothing(t, "missing in the remote cache")
		_, err := b.Find(t.Context(), cas.Pure, pureKey, cas.Digest{})
		wantMiss(t, err, errDistrust.Error())
		b.wantNothing(t, errDistrust.Error())
		if err := b.Fetch(t.Context(), cas.Pure, keyOf(cas.BLAKE3, "other"), cas.Digest{}); err != nil {
			t.Error(err)
		}
		b.wantWarnings(t, "though a result names it")

		c := join(t, f.Address, setup{})
		if _, err := c.Find(t.Context(), cas.Pure, pureKey, cas.Digest{}); err != nil {
			t.Error(err) // Find alone doesn't look
		}
		err = c.Keep(t.Context(), cas.Pure, pureKey)
		wantMiss(t, err, "missing in the remote cache")
		var blob *cas.BlobError
		if !errors.As(err, &blob) || blob.Reason != cas.Missing || blob.Digest.Func != cas.BLAKE3 {
			t.Errorf("%v", err)
		}
		if _, ok := c.store.Receipt(c.client.Name(), pureKey); ok {
			t.Error("there is a receipt of it")
		}
	})
}

// Wrong bytes never get into the store, in a batch or a stream, longer or shorter.
func TestWrongBlob(t *testing.T) {
	for name, fault := range map[string]struct {
		method string
		fault  remotetest.Fault
		size   int
	}{
		"flipped in a batch":  {readBatch, remotetest.Fault{Flip: true, Times: -1}, 10},
		"flipped in a stream": {readStream, remotetest.Fault{Flip: true, Times: -1}, large},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *remotetest.Fake) {
				a := join(t, f.Address, setup{})
				sent := a.send(t, cas.Pure, "one", fault.size)
				b := join(t, f.Address, setup{})
				f.Inject(fault.method, fault.fault)
				b.wantNothing(t, "in the remote cache")
				if fault.method == readStream {
					if err := b.store.Has(sent.Files[2].Digest); err == nil {
						t.Error("the store has it")
					}
				}
				f.Heal()
				// The server is good again, and the entry is the same.
				b.wantNothing(t, "")
				checkStore(t, b.store)
			})
		})
	}
}

// checkStore wants each blob to be what its name says, and nothing moved away.
func checkStore(t *testing.T, s *cas.Store) {
	t.Helper()
	if _, err := s.Verify(t.Context(), func(d cas.Damage) { t.Errorf("%v", &d) }); err != nil {
		t.Error(err)
	}
}

// A server that lies again and again isn't asked any more, and no probe helps.
func TestLiar(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	a, b := join(t, f.Address, setup{}), join(t, f.Address, setup{})
	names := strings.Fields("a b c d e f g h")
	for _, name := range names {
		r := cas.Result{Stdout: must(a.store.Put(cas.Pure, []byte("a line of "+name)))}
		if err := a.store.PutResult(cas.Pure, keyOf(cas.BLAKE3, name), r); err != nil {
			t.Fatal(err)
		}
		a.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
	}
	a.flush(t)
	f.Inject(readBatch, remotetest.Fault{Times: -1, Flip: true})
	for i, name := range names {
		want := "damaged in the remote cache"
		if i >= maxWrong {
			want = "can't be used"
		}
		wantMiss(t, b.Fetch(t.Context(), cas.Pure, keyOf(cas.BLAKE3, name), cas.Digest{}), want)
	}
	if n := f.Calls(readBatch); n != maxWrong {
		t.Errorf("it was asked %d times", n)
	}
	if n := b.clock.advance(100 * time.Hour); n != 0 {
		t.Errorf("%d probes of a liar", n)
	}
	// The outage is told by who counted the fifth, before that call's own miss.
	b.wantWarnings(t, "its bytes are wrong; the result", "its bytes are wrong; the build")
	checkStore(t, b.store)
}

// Who may not read gives up at once; a server that only doesn't take results goes
// on giving them.
func TestDenied(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	f.Inject(getResult, remotetest.Fault{Times: -1, Code: codes.PermissionDenied, Message: "go away"})
	b := join(t, f.Address, setup{})
	for range 5 {
		b.wantNothing(t, "can't be used")
	}
	b.wantWarnings(t, "go away")
	if n := f.Calls(getResult); n > 1 {
		t.Errorf("it was asked %d times", n)
	}
}

func TestWritesRefused(t *testing.T) {
	for name, c := range map[string]struct {
		set  func(*remotetest.Knobs)
		why  string
		warn string
	}{
		"full":      {func(k *remotetest.Knobs) { k.Full = true }, notFull, "nothing more is uploaded"},
		"denied":    {func(k *remotetest.Knobs) { k.DenyWrites = true }, notDenied, "nothing more is uploaded"},
		"read-only": {func(k *remotetest.Knobs) { k.ReadOnly = true }, notReadOnly, "takes no results"},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := published(t, remotetest.Knobs{})
			f.Set(c.set)
			b := join(t, f.Address, setup{})
			for _, name := range strings.Fields("a b c d") {
				b.send(t, cas.Capture, name, 10)
			}
			b.wantFetched(t)
			b.wantWarnings(t, c.warn)
			if s := b.Stats(); s.Sent != 0 || s.NotSent[c.why] != 4 {
				t.Errorf("%+v", s)
			}
		})
	}
}

// A server that refuses all writes for no reason, as bazel-remote with a full disk
// does, isn't tried for each blob; one that dislikes one blob is.
func TestWritesRefusedVaguely(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	fault := remotetest.Fault{Code: codes.Internal}
	fault.Times = 4 // the batch, and one of its blobs, each twice
	f.Inject(writeBatch, fault)
	b.send(t, cas.Capture, "a", 10)
	b.wantWarnings(t, "a result is not uploaded")
	b.send(t, cas.Capture, "b", 10)
	if s := b.Stats(); s.Sent != 1 || s.NotSent[notRefused] != 1 {
		t.Errorf("%+v", s)
	}
	fault.Times = -1
	f.Inject(writeBatch, fault)
	f.Inject(putResult, fault)
	before := f.Calls(writeBatch)
	for i := range 50 {
		b.send(t, cas.Capture, fmt.Sprint("full", i), 10)
	}
	b.wantWarnings(t, "a result is not uploaded", "nothing more is uploaded")
	if s := b.Stats(); s.Sent != 1 || s.NotSent[notRefused] != 51 {
		t.Errorf("%+v", s)
	}
	if n := f.Calls(writeBatch) - before; n > 2*maxVague+2 {
		t.Errorf("%d calls", n)
	}
}

// With Required each way to be out is an error of its own, before anything runs
// again that was paid for.
func TestRequired(t *testing.T) {
	t.Parallel()
	hang := make(chan struct{})
	for name, fault := range map[string]remotetest.Fault{
		"unavailable": {Times: -1, Code: codes.Unavailable},
		"hung":        {Times: -1, Hang: hang},
		"denied":      {Times: -1, Code: codes.Unauthenticated},
	} {
		t.Run(name, func(t *testing.T) {
			f, _ := published(t, remotetest.Knobs{})
			f.Inject(getResult, fault)
			b := join(t, f.Address, setup{required: true, timeout: 300 * time.Millisecond})
			var out *OutageError
			for range 2 {
				if _, err := b.Find(t.Context(), cas.Pure, pureKey, cas.Digest{}); !errors.As(err, &out) || out.Server != b.client.Name() {
					t.Errorf("find: %v", err)
				}
				if err := b.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}); !errors.As(err, &out) {
					t.Errorf("fetch: %v", err)
				}
				if err := b.Keep(t.Context(), cas.Pure, pureKey); !errors.As(err, &out) {
					t.Errorf("keep: %v", err)
				}
			}
			r := b.make(t, cas.Capture, "mine", 10)
			b.Send(cas.Capture, keyOf(cas.BLAKE3, "mine"), nil, nil, r, nil)
			if err := b.Flush(t.Context()); !errors.As(err, &out) || !strings.HasPrefix(err.Error(), "remote cache grpc://") {
				t.Errorf("flush: %v", err)
			}
			b.wantWarnings(t)
		})
	}
	// So is one that takes nothing: who requires it wants others to have it.
	for name, knobs := range map[string]remotetest.Knobs{
		"full": {Full: true}, "denies writes": {DenyWrites: true}, "read-only": {ReadOnly: true},
	} {
		t.Run(name, func(t *testing.T) {
			f := remotetest.Start(t, knobs)
			b := join(t, f.Address, setup{required: true})
			r := b.make(t, cas.Pure, "mine", 10)
			b.Send(cas.Pure, keyOf(cas.BLAKE3, "mine"), nil, nil, r, nil)
			var out *OutageError
			if err := b.Flush(t.Context()); !errors.As(err, &out) {
				t.Errorf("flush: %v", err)
			}
			b.wantWarnings(t)
		})
	}
	// What is just not there, or can't be right, is a miss.
	f := remotetest.Start(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{required: true})
	b.wantNothing(t, "no result")
	f.PutResult(pureKey, noise(1, 100))
	b.wantNothing(t, "doesn't count")
	b.flush(t)
}

// A disk of ours that takes nothing is no miss: the action would be run, perhaps
// paid for, and lost as well.
func TestOwnDisk(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	a := join(t, f.Address, setup{})
	for _, size := range []int{10, large} {
		name := fmt.Sprint(size)
		a.send(t, cas.Capture, name, size)
		dir := t.TempDir()
		store, err := cas.Open(cas.Options{Cache: dir + "/cache", Data: dir + "/data"})
		if err != nil {
			t.Fatal(err)
		}
		b := join(t, f.Address, setup{store: store})
		if err := os.WriteFile(filepath.Join(dir, "data", "cas"), nil, 0o600); err != nil {
			t.Fatal(err)
		}
		err = b.Fetch(t.Context(), cas.Capture, keyOf(cas.BLAKE3, name), cas.Digest{})
		var miss *cas.MissError
		var out *OutageError
		if err == nil || errors.As(err, &miss) || errors.As(err, &out) || !strings.HasPrefix(err.Error(), "fetch blake3:") {
			t.Errorf("%d bytes: %v", size, err)
		}
		b.wantWarnings(t)
	}
}

// Who leaves is told so, and the server isn't blamed.
func TestCallerLeaves(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	for _, method := range []string{getResult, readBatch, readStream} {
		b := join(t, f.Address, setup{})
		hang := make(chan struct{})
		f.Inject(method, remotetest.Fault{Hang: hang, Times: -1})
		ctx, cancel := context.WithCancel(t.Context())
		before := f.Calls(method)
		done := make(chan error)
		go func() { done <- b.Fetch(ctx, cas.Pure, pureKey, cas.Digest{}) }()
		if err := f.Await(t.Context(), method, before+1); err != nil {
			t.Fatal(err)
		}
		cancel()
		if err := <-done; !errors.Is(err, context.Canceled) {
			t.Errorf("%s: %v", method, err)
		}
		f.Heal()
		close(hang)
		b.wantFetched(t)
		b.wantWarnings(t)
	}
}

// After Close nothing of ours runs, whatever the server does, and calls are misses.
func TestClose(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	hang := make(chan struct{})
	defer close(hang)
	for _, method := range []string{getResult, readStream, findMissing, putResult} {
		f.Inject(method, remotetest.Fault{Times: -1, Hang: hang})
		b := join(t, f.Address, setup{})
		before := f.Calls(method)
		done := make(chan error, 2)
		switch method {
		case getResult, readStream:
			go func() { done <- b.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}) }()
		default:
			r := b.make(t, cas.Pure, "mine", 10)
			for range 3 {
				b.Send(cas.Pure, keyOf(cas.BLAKE3, "mine"), nil, nil, r, nil)
			}
			go func() { done <- b.Flush(t.Context()) }()
		}
		if err := f.Await(t.Context(), method, before+1); err != nil {
			t.Fatal(err)
		}
		b.Close()
		b.Close()
		<-done
		wantMiss(t, b.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}), "closed")
		wantMiss(t, b.Keep(t.Context(), cas.Pure, pureKey), "closed")
		b.Send(cas.Pure, pureKey, nil, nil, cas.Result{}, nil)
		if err := b.Flush(t.Context()); err != nil {
			t.Error(err)
		}
		b.wantWarnings(t)
		f.Heal()
	}
	wantNoGoroutines(t)
}

// wantNoGoroutines wants none in this package's code but that of tests.
func wantNoGoroutines(t *testing.T) {
	t.Helper()
	deadline := time.Now().Add(5 * time.Second)
	for {
		buf := make([]byte, 1<<20)
		buf = buf[:runtime.Stack(buf, true)]
		left := ""
		for _, g := range strings.Split(string(buf), "\n\n") {
			if strings.Contains(g, "cas/remote.(*") && !strings.Contains(g, "testing.tRunner") {
				left = g
			}
		}
		if left == "" {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("still there:\n%s", left)
		}
		runtime.Gosched()
	}
}

// A probe that hangs doesn't keep Close waiting.
func TestCloseWhileProbing(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{timeout: 200 * time.Millisecond})
	hang := make(chan struct{})
	defer close(hang)
	f.Inject("", remotetest.Fault{Times: -1, Hang: hang})
	b.wantNothing(t, "can't be used")
	var wg sync.WaitGroup
	wg.Go(func() { b.clock.advance(firstProbe) })
	b.Close()
	wg.Wait()
	if n := b.clock.advance(time.Hour); n != 0 {
		t.Errorf("%d probes after Close", n)
	}
}
