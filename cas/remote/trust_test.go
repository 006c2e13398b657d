package remote

import (
	"context"
	"crypto/ed25519"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// builder gives a key of its own for each seed.
func builder(seed byte) (ed25519.PublicKey, ed25519.PrivateKey) {
	k := ed25519.NewKeyFromSeed(append(make([]byte, 31), seed))
	return k.Public().(ed25519.PublicKey), k
}

func TestTrust(t *testing.T) {
	ours, sign := builder(1)
	others, otherSign := builder(2)
	for name, c := range map[string]struct {
		sign    ed25519.PrivateKey
		trusted []ed25519.PublicKey
		warn    string // "": it counts
	}{
		"anybody, unsigned":    {nil, nil, ""},
		"anybody, signed":      {otherSign, nil, ""},
		"signed by ours":       {sign, []ed25519.PublicKey{others, ours}, ""},
		"signed by another":    {otherSign, []ed25519.PublicKey{ours}, "is signed by " + FormatKey(others)},
		"unsigned":             {nil, []ed25519.PublicKey{ours}, "is not signed"},
		"nobody is trusted":    {sign, []ed25519.PublicKey{}, "is signed by"},
		"unsigned, no builder": {nil, []ed25519.PublicKey{}, "is not signed"},
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(t *testing.T, f *remotetest.Fake) {
				a := join(t, f.Address, setup{sign: c.sign})
				b := join(t, f.Address, setup{trusted: c.trusted})
				a.send(t, cas.Pure, "one", 10)
				if c.warn == "" {
					b.wantFetched(t)
					b.wantWarnings(t)
					return
				}
				b.wantNothing(t, "no trusted builder has signed it")
				b.wantNothing(t, "no trusted builder has signed it")
				wantMiss(t, b.Keep(t.Context(), cas.Pure, pureKey), "no trusted builder")
				b.wantWarnings(t, c.warn)
			})
		})
	}
}

// A receipt is no way around: whom to trust may have changed since.
func TestTrustChanges(t *testing.T) {
	f, _ := published(t, remotetest.Knobs{})
	b := join(t, f.Address, setup{})
	if err := b.Keep(t.Context(), cas.Pure, pureKey); err != nil {
		t.Fatal(err)
	}
	ours, _ := builder(1)
	c := join(t, f.Address, setup{store: b.store, trusted: []ed25519.PublicKey{ours}})
	c.wantNothing(t, "no trusted builder has signed it")
}

// Who isn't trusted doesn't take the place of who is: others would miss it.
func TestTrustedStays(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	ours, sign := builder(1)
	trusted := []ed25519.PublicKey{ours}
	ci := join(t, f.Address, setup{sign: sign, trusted: trusted})
	ci.send(t, cas.Pure, "one", 10)
	before, _ := f.Result(pureKey)
	dev := join(t, f.Address, setup{trusted: trusted})
	dev.send(t, cas.Pure, "one", 10)
	dev.send(t, cas.Pure, "two", 10)
	if after, _ := f.Result(pureKey); string(after) != string(before) {
		t.Error("the signed result was replaced")
	}
	if s := dev.Stats(); s.Sent != 1 || s.NotSent[notKnown] != 1 {
		t.Errorf("%+v", s)
	}
	// The other way round it is.
	ci.send(t, cas.Pure, "two", 10)
	join(t, f.Address, setup{trusted: trusted}).wantFetched(t)
	if err := join(t, f.Address, setup{trusted: trusted}).Fetch(t.Context(), cas.Pure, keyOf(cas.BLAKE3, "two"), cas.Digest{}); err != nil {
		t.Error(err)
	}
}

// A root that isn't the tree's is noticed when the tree comes, whoever said it.
func TestWrongRoot(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		a := join(t, f.Address, setup{})
		r := a.send(t, cas.Pure, "one", 10)
		info, err := a.client.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		lie := form{key: pureKey, fn: info.Func, result: r}
		o := &outgoing{}
		if err := a.collect(&lie, o); err != nil {
			t.Fatal(err)
		}
		lie.result.Folders[0].Root = cas.BLAKE3.Sum([]byte("another"))
		msg, _, err := lie.encode()
		if err != nil {
			t.Fatal(err)
		}
		f.PutResult(byKey(info.Func, pureKey).key, msg)
		b := join(t, f.Address, setup{})
		wantMiss(t, b.Keep(t.Context(), cas.Pure, pureKey), "is not the one that it says")
		b.wantNothing(t, errDistrust.Error())
		b.wantWarnings(t, "is not the one that it says")
	})
}

// A tree is read into memory: one that claims to be huge isn't even asked for.
func TestHugeTree(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		a := join(t, f.Address, setup{})
		info, err := a.client.Server(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		huge := func(fn cas.Func) cas.Digest {
			d := fn.Sum([]byte("huge"))
			d.Size = maxTree + 1
			return d
		}
		lie := form{
			key: pureKey, fn: info.Func,
			result: cas.Result{Folders: []cas.OutputFolder{{Path: "folder", Tree: huge(cas.BLAKE3), Root: cas.BLAKE3.Sum(nil)}}},
			double: func(cas.Digest) (cas.Digest, error) { return huge(info.Func), nil },
			tree:   func(cas.Digest) (cas.Digest, error) { return huge(info.Func), nil },
		}
		if info.Func != cas.BLAKE3 { // the tree in the server's digests
			lie.tree = func(cas.Digest) (cas.Digest, error) { return info.Func.Sum(nil), nil }
		}
		msg, _, err := lie.encode()
		if err != nil {
			t.Fatal(err)
		}
		f.PutResult(byKey(info.Func, pureKey).key, msg)
		b := join(t, f.Address, setup{})
		wantMiss(t, b.Fetch(t.Context(), cas.Pure, pureKey, cas.Digest{}), "has a tree of")
		if n := f.Calls("Read") + f.Calls("BatchReadBlobs"); n != 0 {
			t.Errorf("%d calls for blobs", n)
		}
		b.wantWarnings(t, "has a tree of")
	})
}

// capture makes the capture of one key that only this machine has.
func (m *machine) capture(t *testing.T, text string) (key, capture cas.Digest, r cas.Result) {
	t.Helper()
	key = keyOf(cas.BLAKE3, "drawn")
	r = cas.Result{Stdout: must(m.store.Put(cas.Capture, []byte(text)))}
	if err := m.store.PutResult(cas.Capture, key, r); err != nil {
		t.Fatal(err)
	}
	return key, captureOf(key, r), r
}

// Two draw one key. However their uploads meet, one is first, the other's owner
// is told which, and both are found by what they are.
func TestSurplus(t *testing.T) {
	for _, race := range []string{"one after the other", "both look first", "late", "free"} {
		t.Run(race, func(t *testing.T) {
			each(t, func(t *testing.T, f *remotetest.Fake) {
				var mu sync.Mutex
				told := map[int]cas.Digest{}
				// held calls its function before the second write, that under the key.
				var held [2]func()
				var machines []*machine
				for i := range held {
					machines = append(machines, join(t, f.Address, setup{wrap: func(c Client) Client {
						return &slowWriter{Client: c, before: func(n int) {
							if n == 2 && held[i] != nil {
								held[i]()
							}
						}}
					}}))
				}
				captures := make([]cas.Digest, 2)
				var key cas.Digest
				flushFirst := func() {}
				switch race {
				case "both look first":
					meet(f, getResult, 2)
				case "late":
					// The second has looked, and writes when the first is done.
					looked, done := make(chan struct{}), make(chan struct{})
					held[0] = func() { <-looked }
					held[1] = func() { close(looked); <-done }
					defer func() {
						select {
						case <-done:
						default:
							close(done)
						}
					}()
					flushFirst = func() { machines[0].flush(t); close(done) }
				}
				var wg sync.WaitGroup
				for i, m := range machines {
					var r cas.Result
					key, captures[i], r = m.capture(t, "drawn by "+string(rune('a'+i)))
					m.Send(cas.Capture, key, nil, nil, r, func(first cas.Digest) {
						mu.Lock()
						defer mu.Unlock()
						if old, ok := told[i]; ok {
							t.Errorf("told twice: %v and %v", old, first)
						}
						told[i] = first
					})
					if race == "one after the other" {
						m.flush(t)
					}
				}
				flushFirst()
				for _, m := range machines {
					wg.Go(func() { m.flush(t) })
				}
				wg.Wait()
				for _, m := range machines {
					m.flush(t) // the last look
				}
				reader := join(t, f.Address, setup{})
				first, err := reader.Find(t.Context(), cas.Capture, key, cas.Digest{})
				if err != nil {
					t.Fatal(err)
				}
				winner := 0
				if captureOf(key, first) == captures[1] {
					winner = 1
				}
				if len(told) != 1 || told[1-winner] != captures[winner] || captures[0] == captures[1] {
					t.Errorf("capture %d is first; told: %v", winner, told)
				}
				for i, c := range captures {
					m := join(t, f.Address, setup{})
					if err := m.Fetch(t.Context(), cas.Capture, key, c); err != nil {
						t.Errorf("capture %d: %v", i, err)
					}
					if r, err := m.store.Lookup(cas.Capture, key); err != nil || captureOf(key, r) != c {
						t.Errorf("capture %d: %v, %v", i, r, err)
					}
				}
				if _, err := reader.Find(t.Context(), cas.Capture, key, cas.BLAKE3.Sum(nil)); err == nil {
					t.Error("a capture that nobody has made is found")
				}
				if s := machines[1-winner].Stats(); s.Surplus != 1 || s.Sent != 1 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// In a long queue, too, a surplus capture is sent as what it is: what the store has
// under its key is another's.
func TestSurplusInLongQueue(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	a, b := join(t, f.Address, setup{}), join(t, f.Address, setup{})
	key, theirs, r := a.capture(t, "drawn by a")
	a.Send(cas.Capture, key, nil, nil, r, nil)
	a.flush(t)
	if err := b.Fetch(t.Context(), cas.Capture, key, theirs); err != nil {
		t.Fatal(err)
	}
	ours := cas.Result{Stdout: must(b.store.Put(cas.Capture, []byte("drawn by b")))}
	for _, c := range []struct {
		result cas.Result
		let    bool
	}{{r, true}, {ours, false}} {
		p := &parcel{class: cas.Capture, key: key, result: &c.result}
		b.spill(p)
		if got, err := b.resultOf(p); err != nil || captureOf(key, got) != captureOf(key, c.result) || (p.result == nil) != c.let {
			t.Errorf("%+v: let go %v, sent %+v, %v", c.result, p.result == nil, got, err)
		}
	}
}

// slowWriter counts the writes of results.
type slowWriter struct {
	Client
	before func(n int)

	mu sync.Mutex
	n  int
}

func (w *slowWriter) PutResult(ctx context.Context, key cas.Digest, msg []byte) error {
	w.mu.Lock()
	w.n++
	n := w.n
	w.mu.Unlock()
	w.before(n)
	return w.Client.PutResult(ctx, key, msg)
}

// meet holds the next n calls of a method until all of them are there.
func meet(f *remotetest.Fake, method string, n int) {
	var mu sync.Mutex
	all, there := make(chan struct{}), 0
	f.Inject(method, remotetest.Fault{Times: n, Do: func(string) {
		mu.Lock()
		if there++; there == n {
			close(all)
		}
		mu.Unlock()
		select {
		case <-all:
		case <-time.After(10 * time.Second):
		}
	}})
}

// What is under a capture's key and can't be read isn't replaced: nobody knows
// what it was.
func TestGarbledCaptureStays(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{})
	a := join(t, f.Address, setup{})
	key, capture, r := a.capture(t, "drawn")
	f.PutResult(key, []byte("garbage"))
	a.Send(cas.Capture, key, nil, nil, r, func(first cas.Digest) { t.Errorf("surplus to %v", first) })
	a.flush(t)
	if got, _ := f.Result(key); string(got) != "garbage" {
		t.Error("it was replaced")
	}
	b := join(t, f.Address, setup{})
	if err := b.Fetch(t.Context(), cas.Capture, key, capture); err != nil {
		t.Error(err)
	}
	a.wantWarnings(t, "doesn't count")
}

// What came from one server goes to none: who passes it on would sign it.
func TestReceivedIsNotSent(t *testing.T) {
	f, r := published(t, remotetest.Knobs{})
	other := remotetest.Start(t, remotetest.Knobs{})
	_, sign := builder(1)
	b := join(t, f.Address, setup{})
	b.wantFetched(t)
	for _, server := range []*remotetest.Fake{f, other} {
		m := join(t, server.Address, setup{store: b.store, sign: sign})
		writes := server.Calls(putResult)
		m.Send(cas.Pure, pureKey, nil, nil, r, nil)
		m.flush(t)
		if s := m.Stats(); s.NotSent[notReceived] != 1 || server.Calls(putResult) != writes {
			t.Errorf("%+v", s)
		}
	}
	if got := other.Results(); len(got) != 0 {
		t.Errorf("the other server has %v", got)
	}
}

// Every byte that is sent is of the result: the store's names and places are not.
func TestNothingElseIsSent(t *testing.T) {
	each(t, func(t *testing.T, f *remotetest.Fake) {
		a := join(t, f.Address, setup{})
		must(a.store.Put(cas.Pure, []byte("a secret that no result names")))
		a.send(t, cas.Capture, "one", 1000)
		for _, secret := range []string{"a secret that", t.TempDir()[:10], strings.TrimPrefix(a.client.Name(), "grpc://")} {
			if where := f.Grep(secret); len(where) > 0 {
				t.Errorf("%q was sent: %v", secret, where)
			}
		}
	})
}
