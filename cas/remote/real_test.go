package remote

import (
	"fmt"
	"sync"
	"testing"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// A real server, that has SHA-256 only, gives back what it got, shows each of two
// captures, and its lost and damaged files cost no wrong byte.
func TestRealServer(t *testing.T) {
	server := remotetest.StartBazelRemote(t, remotetest.BazelRemoteOptions{})
	for _, fn := range funcs {
		a, b := join(t, server.Address(), setup{fn: fn}), join(t, server.Address(), setup{fn: fn})
		for _, class := range []cas.Class{cas.Pure, cas.Capture} {
			key := keyOf(fn, fmt.Sprint(fn, class))
			sent := a.send(t, class, fmt.Sprint(fn, class), large)
			if err := b.Keep(t.Context(), class, key); err != nil {
				t.Fatal(err)
			}
			if err := b.Fetch(t.Context(), class, key, cas.Digest{}); err != nil {
				t.Fatal(err)
			}
			got, err := b.store.Lookup(class, key)
			if diff := gocmp.Diff(sent, got); diff != "" || err != nil {
				t.Errorf("%v, -sent +fetched:\n%s", err, diff)
			}
		}
		a.wantWarnings(t)
		b.wantWarnings(t)
	}

	first, second := join(t, server.Address(), setup{}), join(t, server.Address(), setup{})
	key, capture, r := first.capture(t, "first")
	first.Send(cas.Capture, key, nil, nil, r, nil)
	first.flush(t)
	_, other, r := second.capture(t, "second")
	var mu sync.Mutex
	var told []cas.Digest
	second.Send(cas.Capture, key, nil, nil, r, func(d cas.Digest) {
		mu.Lock()
		defer mu.Unlock()
		told = append(told, d)
	})
	second.flush(t)
	if len(told) != 1 || told[0] != capture {
		t.Errorf("told %v; first is %v", told, capture)
	}
	for _, want := range []cas.Digest{{}, capture, other} {
		m := join(t, server.Address(), setup{})
		got, err := m.Find(t.Context(), cas.Capture, key, want)
		if err != nil || captureOf(key, got) != other && want == other || captureOf(key, got) != capture && want != other {
			t.Errorf("%v: %+v, %v", want, got, err)
		}
	}

	// Its disk rots: every blob, small and large.
	sent := first.send(t, cas.Pure, "one", large)
	n, err := server.Corrupt(func(string) bool { return true })
	if err != nil || n == 0 {
		t.Fatalf("%d files, %v", n, err)
	}
	m := join(t, server.Address(), setup{})
	m.wantNothing(t, "")
	if m.store.Has(sent.Files[2].Digest) == nil {
		// Its file may be packed, so that the flipped bit is none of the content.
		t.Log("the large blob came whole")
	}
	checkStore(t, m.store)
}
