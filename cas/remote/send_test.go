package remote

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// watched records the calls of a Client.
type watched struct {
	Client
	mu      sync.Mutex
	sent    map[cas.Digest]int
	results []cas.Digest
	largest int64 // batch
	streams int   // at once
	most    int
}

func watch(w *watched) func(Client) Client {
	return func(c Client) Client {
		w.Client, w.sent = c, map[cas.Digest]int{}
		return w
	}
}

func (w *watched) WriteBatch(ctx context.Context, blobs []reapi.Blob) error {
	w.mu.Lock()
	size := int64(0)
	for _, b := range blobs {
		w.sent[b.Digest]++
		size += int64(len(b.Data))
	}
	w.largest = max(w.largest, size)
	w.mu.Unlock()
	return w.Client.WriteBatch(ctx, blobs)
}

func (w *watched) Write(ctx context.Context, d cas.Digest, open func() (io.ReadCloser, error)) error {
	w.mu.Lock()
	w.sent[d]++
	w.streams++
	w.most = max(w.most, w.streams)
	w.mu.Unlock()
	defer func() {
		w.mu.Lock()
		w.streams--
		w.mu.Unlock()
	}()
	return w.Client.Write(ctx, d, open)
}

func (w *watched) PutResult(ctx context.Context, key cas.Digest, msg []byte) error {
	w.mu.Lock()
	w.results = append(w.results, key)
	w.mu.Unlock()
	return w.Client.PutResult(ctx, key, msg)
}

func (m *machine) small(t testing.TB, class cas.Class, name string) cas.Result {
	t.Helper()
	r := cas.Result{Stdout: must(m.store.Put(class, []byte("stdout of "+name))), Stderr: must(m.store.Put(class, []byte("the same for all")))}
	if err := m.store.PutResult(class, keyOf(m.store.Func(), name), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// Many small results take few calls both ways, each blob goes once, and who has
// the same sends nothing.
func TestThrift(t *testing.T) {
	t.Parallel()
	const n = 290 // more than stay whole in the queue
	each(t, func(t *testing.T, f *remotetest.Fake) {
		var w watched
		a := join(t, f.Address, setup{wrap: watch(&w)})
		action := []byte("an action")
		hang := make(chan struct{}) // until all are queued
		f.Inject(findMissing, remotetest.Fault{Hang: hang, Times: senders})
		for i := range n {
			name := fmt.Sprint(i)
			r := a.small(t, cas.Pure, name)
			a.Send(cas.Pure, keyOf(cas.BLAKE3, name), action, []byte("command of "+name), r, nil)
		}
		close(hang)
		a.flush(t)
		for d, times := range w.sent {
			if times != 1 {
				t.Errorf("%v was sent %d times", d, times)
			}
		}
		if n := f.Calls(findMissing) + f.Calls(writeBatch); n > 60 {
			t.Errorf("it took %d calls", n)
		}
		if s := a.Stats(); s.Sent != n {
			t.Fatalf("%+v", s)
		}
		if info, _ := a.client.Server(t.Context()); info.Func == cas.BLAKE3 {
			for _, want := range []string{"an action", "command of 0", fmt.Sprint("command of ", n-1)} {
				if _, ok := f.Blob(cas.BLAKE3.Sum([]byte(want))); !ok {
					t.Errorf("%q is missing", want)
				}
			}
		}
		b := join(t, f.Address, setup{})
		var wg sync.WaitGroup
		for i := range n {
			wg.Go(func() {
				if err := b.Fetch(t.Context(), cas.Pure, keyOf(cas.BLAKE3, fmt.Sprint(i)), cas.Digest{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		if n := f.Calls(readBatch); n > 200 {
			t.Errorf("it took %d batches", n)
		}
		// Another with the same of its own, and one that forgot what it has sent.
		before := f.Calls(writeBatch)
		for _, m := range []*machine{join(t, f.Address, setup{}), join(t, f.Address, setup{store: a.store})} {
			r := m.small(t, cas.Pure, "1")
			m.Send(cas.Pure, keyOf(cas.BLAKE3, "1"), nil, nil, r, nil)
			m.flush(t)
		}
		if n := f.Calls(writeBatch); n != before {
			t.Errorf("blobs that are there were sent in %d calls", n-before)
		}
	})
}

// A receipt younger than a day spares the questions; an older one doesn't.
func TestReceipts(t *testing.T) {
	f, sent := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	if err := b.Keep(t.Context(), cas.Pure, pureKey); err != nil {
		t.Fatal(err)
	}
	if err := b.store.Has(sent.Files[2].Digest); err == nil {
		t.Error("Keep brings blobs")
	}
	later := func(d time.Duration) (*machine, int) {
		before := len(f.Received())
		m := join(t, f.Address, setup{store: b.store})
		m.clock.now = m.clock.now.Add(d)
		got, err := m.Find(t.Context(), cas.Pure, pureKey, cas.Digest{})
		if err != nil || got.Folders[0].Root.IsZero() {
			t.Errorf("%+v, %v", got, err)
		}
		if err := m.Keep(t.Context(), cas.Pure, pureKey); err != nil {
			t.Error(err)
		}
		return m, len(f.Received()) - before
	}
	if _, n := later(believe - time.Hour); n != 0 {
		t.Errorf("%d calls for what is known", n)
	}
	if _, n := later(believe + time.Hour); n == 0 {
		t.Error("the receipt is believed for ever")
	}
	// What Keep has written then is younger.
	m, n := later(believe + 2*time.Hour)
	if n != 0 {
		t.Errorf("%d calls for what is known again", n)
	}
	results := f.Calls(getResult)
	m.wantFetched(t) // by the receipt
	if n := f.Calls(getResult); n != results {
		t.Errorf("%d lookups for what is known", n-results)
	}
}

// A receipt of what the server has lost since is given up; what it got again
// meanwhile, in another form, is found.
func TestStaleReceipt(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	if err := b.Keep(t.Context(), cas.Pure, pureKey); err != nil {
		t.Fatal(err)
	}
	stale, ok := b.store.Receipt(b.client.Name(), pureKey)
	if !ok {
		t.Fatal("Keep left no receipt")
	}
	for _, d := range f.Blobs() {
		f.DropBlob(d)
	}
	c := join(t, f.Address, setup{store: b.store})
	f.DropResult(pureKey)
	c.wantNothing(t, "no result")
	if _, ok := b.store.Receipt(c.client.Name(), pureKey); ok {
		t.Error("the receipt is still there")
	}
	c.wantWarnings(t)

	if err := b.store.PutReceipt(b.client.Name(), pureKey, stale); err != nil {
		t.Fatal(err)
	}
	_, sign := builder(1)
	join(t, f.Address, setup{sign: sign}).send(t, cas.Pure, "one", large)
	d := join(t, f.Address, setup{store: b.store})
	d.wantFetched(t)
	d.wantWarnings(t)
}

// What we sent stays ours when the server shows it to us again.
func TestSentStaysOurs(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	a := join(t, f.Address, setup{})
	a.send(t, cas.Capture, "one", 10)
	b := join(t, f.Address, setup{store: a.store})
	b.clock.now = b.clock.now.Add(2 * believe)
	if err := b.Keep(t.Context(), cas.Capture, pureKey); err != nil {
		t.Fatal(err)
	}
	if err := b.Fetch(t.Context(), cas.Capture, pureKey, cas.Digest{}); err != nil {
		t.Fatal(err)
	}
	if a.store.Received(pureKey) {
		t.Error("it counts as received")
	}
}

// Captures go before pure results, whoever came first.
func TestCapturesFirst(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	var w watched
	a := join(t, f.Address, setup{wrap: watch(&w)})
	var hang [senders]chan struct{}
	for i := range hang {
		hang[i] = make(chan struct{})
		f.Inject(findMissing, remotetest.Fault{Hang: hang[i]})
	}
	send := func(class cas.Class, name string) {
		r := a.small(t, class, name)
		a.Send(class, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
	}
	for i := range senders { // these are on their way
		send(cas.Pure, fmt.Sprint("early", i))
		if err := f.AwaitFlying(t.Context(), findMissing, i+1); err != nil {
			t.Fatal(err)
		}
	}
	const pures, captures = loadMost + 100, 40
	for i := range pures {
		send(cas.Pure, fmt.Sprint("pure", i))
	}
	for i := range captures {
		send(cas.Capture, fmt.Sprint("capture", i))
	}
	close(hang[0]) // one sender goes on, so that the order is one
	if err := f.Await(t.Context(), putResult, 1+pures+2*captures); err != nil {
		t.Fatal(err)
	}
	close(hang[1])
	a.flush(t)
	last := 0
	for i := range captures {
		last = max(last, slices.Index(w.results, keyOf(cas.BLAKE3, fmt.Sprint("capture", i))))
	}
	if len(w.results) != senders+pures+2*captures || last != 2*captures {
		t.Errorf("of %d results, the last capture was number %d", len(w.results), last)
	}
}

// Large blobs are streamed, a few at once; batches stay within the server's bounds.
func TestLarge(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		f.Set(func(k *remotetest.Knobs) { k.MaxBatch = 100_000 })
		var w watched
		a := join(t, f.Address, setup{wrap: watch(&w)})
		for i := range 12 {
			name := fmt.Sprint("one", strings.Repeat("x", i))
			size := []int{120_000, 60_000, 300_000}[i%3]
			r := a.make(t, cas.Capture, name, size)
			a.Send(cas.Capture, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
		}
		a.flush(t)
		if s := a.Stats(); s.Sent != 12 {
			t.Errorf("%+v", s)
		}
		if w.largest > 100_000 || w.most > 2*streamFlights || w.most == 0 {
			t.Errorf("a batch of %d bytes, %d streams at once", w.largest, w.most)
		}
		b := join(t, f.Address, setup{})
		var wg sync.WaitGroup
		for i := range 12 {
			wg.Go(func() {
				key := keyOf(cas.BLAKE3, fmt.Sprint("one", strings.Repeat("x", i)))
				if err := b.Fetch(t.Context(), cas.Capture, key, cas.Digest{}); err != nil {
					t.Error(err)
				}
			})
		}
		wg.Wait()
		b.wantWarnings(t)
	})
}

// What can't be sent is counted by why, said once, and doesn't hold up others.
func TestUnsent(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		a := join(t, f.Address, setup{})
		foreign := false
		if info, err := a.client.Server(t.Context()); err != nil || info.Func != cas.BLAKE3 {
			foreign = true
		}
		send := func(name string, r cas.Result) {
			if err := a.store.PutResult(cas.Pure, keyOf(cas.BLAKE3, name), r); err != nil {
				t.Fatal(err)
			}
			a.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
		}
		for i := range 2 {
			send(fmt.Sprint("large", i), cas.Result{Aux: map[string][]byte{"a": make([]byte, maxMessage)}})
			send(fmt.Sprint("name", i), cas.Result{Links: []cas.OutputLink{{Path: ".eval-trees", Target: "x"}}})
		}
		a.flush(t)
		gone := cas.Result{Stdout: must(a.store.Put(cas.Pure, noise(7, 1000)))}
		if err := a.store.PutResult(cas.Pure, keyOf(cas.BLAKE3, "gone"), gone); err != nil {
			t.Fatal(err)
		}
		removeBlob(t, a.store, gone.Stdout)
		a.Send(cas.Pure, keyOf(cas.BLAKE3, "gone"), nil, nil, gone, nil)
		a.send(t, cas.Pure, "one", 10)
		want := map[string]int{notTooLarge: 2, notWhole: 1}
		warns := []string{"is not uploaded: it takes more than"}
		sent := 3
		if foreign {
			want[notPossible], sent = 2, 1
			warns = append(warns, "the name is taken")
		}
		s := a.Stats()
		if s.Sent != sent || fmt.Sprint(s.NotSent) != fmt.Sprint(want) {
			t.Errorf("%+v, want %v", s, want)
		}
		a.mu.Lock()
		if len(a.warns) == 2 && !strings.Contains(a.warns[0], warns[0]) { // two senders
			a.warns[0], a.warns[1] = a.warns[1], a.warns[0]
		}
		a.mu.Unlock()
		a.wantWarnings(t, warns...)
	})
}

// removeBlob takes the file of a blob away, as a person would.
func removeBlob(t *testing.T, s *cas.Store, d cas.Digest) {
	t.Helper()
	path, err := s.Stage(d, false, nil)
	if err != nil {
		t.Fatal(err)
	}
	root := path[:strings.LastIndex(path, "/plain/")]
	files, err := filepath.Glob(root + "/cas/*/*/" + d.Hex() + "*")
	if err != nil || len(files) != 1 {
		t.Fatalf("%v, %v", files, err)
	}
	if err := os.Remove(files[0]); err != nil {
		t.Fatal(err)
	}
}

// A blob that the server doesn't like doesn't take the others of its batch along.
func TestOneRefused(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	refused := &refuser{}
	a := join(t, f.Address, setup{wrap: func(c Client) Client { refused.Client = c; return refused }})
	hang := make(chan struct{})
	f.Inject(findMissing, remotetest.Fault{Hang: hang, Times: senders})
	for i := range 20 {
		name := fmt.Sprint(i)
		r := a.small(t, cas.Pure, name)
		if i == 13 {
			refused.bad = r.Stdout
		}
		a.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
		if i < senders {
			if err := f.AwaitFlying(t.Context(), findMissing, i+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	close(hang)
	a.flush(t)
	if s := a.Stats(); s.Sent != 19 || s.NotSent[notRefused] != 1 {
		t.Errorf("%+v", s)
	}
	a.wantWarnings(t, "a result is not uploaded: write blobs: too ugly")
}

// refuser refuses each batch that has a bad blob in it.
type refuser struct {
	Client
	bad cas.Digest
}

func (r *refuser) WriteBatch(ctx context.Context, blobs []reapi.Blob) error {
	for _, b := range blobs {
		if b.Digest == r.bad {
			return &reapi.Error{Op: "write", Object: "blobs", Kind: reapi.Refused, Err: errors.New("too ugly")}
		}
	}
	return r.Client.WriteBatch(ctx, blobs)
}

// A server that goes away in the middle of an upload costs what is still to be
// sent, and Flush returns.
func TestDownWhileSending(t *testing.T) {
	t.Parallel()
	f := remotetest.Start(t, remotetest.Knobs{})
	a := join(t, f.Address, setup{timeout: 500 * time.Millisecond})
	f.Inject(putResult, remotetest.Fault{Times: 10}, remotetest.Fault{Times: -1, Code: codes.Unavailable})
	for i := range 300 {
		name := fmt.Sprint(i)
		r := a.small(t, cas.Pure, name)
		a.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, r, nil)
	}
	a.flush(t)
	if s := a.Stats(); s.Sent != 10 || s.NotSent[notUnavailable] != 290 {
		t.Errorf("%+v", s)
	}
	a.wantWarnings(t, "the build goes on without")
	// What has no receipt is sent the next time, and what has one isn't.
	f.Heal()
	b := join(t, f.Address, setup{store: a.store})
	for i := range 300 {
		name := fmt.Sprint(i)
		b.Send(cas.Pure, keyOf(cas.BLAKE3, name), nil, nil, must(b.store.Lookup(cas.Pure, keyOf(cas.BLAKE3, name))), nil)
	}
	b.flush(t)
	if s := b.Stats(); s.Sent != 290 || s.NotSent[notKnown] != 10 {
		t.Errorf("%+v", s)
	}
}
