package cas

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"
)

const here, there = "grpc://here:9092", "grpcs://there/instance"

func putReceipt(t testing.TB, s *Store, server string, key Digest, r Receipt) {
	t.Helper()
	if err := s.PutReceipt(server, key, r); err != nil {
		t.Fatal(err)
	}
}

func TestReceipt(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		key, when := keyOf("one"), time.Unix(1_700_000_000, 0)
		sent := Receipt{Class: Pure, Func: SHA256, Message: []byte("as sent"), When: when}
		had := Receipt{Class: Capture, Had: true, Func: BLAKE3, Message: []byte{}, When: when.Add(time.Hour)}
		putReceipt(t, s, here, key, sent)
		putReceipt(t, s, there, keyOf("two"), had)
		for _, c := range []struct {
			server   string
			key      Digest
			want     Receipt
			ok       bool
			received bool
		}{
			{here, key, sent, true, false},
			{there, key, Receipt{}, false, false},
			{here, keyOf("two"), Receipt{}, false, true},
			{there, keyOf("two"), had, true, true},
			{there, Digest{Func: SHA256, Hash: keyOf("two").Hash, Size: keyOf("two").Size}, Receipt{}, false, false},
		} {
			got, ok := s.Receipt(c.server, c.key)
			if diff := gocmp.Diff(c.want, got); diff != "" || ok != c.ok {
				t.Errorf("%s, %v: %v, -want +got:\n%s", c.server, c.key, ok, diff)
			}
			if got := s.Received(c.key); got != c.received {
				t.Errorf("%s, %v: received: %v", c.server, c.key, got)
			}
		}
		before := time.Now().Add(-time.Second)
		had.When, had.Message = time.Time{}, []byte("newer")
		putReceipt(t, s, there, keyOf("two"), had)
		if got, _ := s.Receipt(there, keyOf("two")); got.When.Before(before) || string(got.Message) != "newer" {
			t.Errorf("confirmed at %v: %q", got.When, got.Message)
		}
		s.DropReceipt(there, keyOf("two"))
		s.DropReceipt(there, keyOf("two"))
		if _, ok := s.Receipt(there, keyOf("two")); ok || s.Received(keyOf("two")) {
			t.Error("the receipt is still there")
		}
		for _, bad := range []Receipt{{Func: BLAKE3}, {Class: Pure}} {
			if err := s.PutReceipt(here, key, bad); err == nil || !strings.HasPrefix(err.Error(), "write receipt of blake3:") {
				t.Errorf("%+v: %v", bad, err)
			}
		}
		checkNoTemps(t, s)
	})
}

// Any changed, lost or added byte makes it no receipt, and its key received.
func TestReceiptDamage(t *testing.T) {
	s := open(t, t.TempDir(), t.TempDir())
	key := keyOf("one")
	putReceipt(t, s, here, key, Receipt{Class: Pure, Func: BLAKE3, Message: []byte("message")})
	path := s.cache.receiptPath(serverFolder(here), key)
	good, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, b []byte) {
		t.Helper()
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, b, 0o444); err != nil {
			t.Fatal(err)
		}
		if _, ok := s.Receipt(here, key); ok || !s.Received(key) {
			t.Errorf("%s: a receipt: %v, received: %v", what, ok, s.Received(key))
		}
	}
	for i := range good {
		b := bytes.Clone(good)
		b[i] ^= 4
		check(fmt.Sprintf("byte %d changed", i), b)
		check(fmt.Sprintf("cut at %d", i), good[:i])
	}
	check("longer", append(bytes.Clone(good), 0))
	// Under the name of another key, or of another server, it is no answer.
	putReceipt(t, s, here, key, Receipt{Class: Pure, Func: BLAKE3, Message: []byte("message")})
	for _, other := range []string{s.cache.receiptPath(serverFolder(here), keyOf("two")), s.cache.receiptPath(serverFolder(there), key)} {
		if err := os.MkdirAll(filepath.Dir(other), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Rename(path, other); err != nil {
			t.Fatal(err)
		}
		path = other
		_, one := s.Receipt(here, keyOf("two"))
		_, two := s.Receipt(there, key)
		if one || two {
			t.Errorf("%s passes for a receipt", other)
		}
	}
}

func TestReceiptsCollected(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		old := time.Now().Add(-40 * day)
		put := func(name string, r Receipt) {
			r.Func, r.Message = BLAKE3, []byte(name)
			putReceipt(t, s, here, keyOf(name), r)
		}
		put("old sent", Receipt{Class: Pure, When: old})
		put("old had", Receipt{Class: Pure, Had: true, When: old})
		put("old had with result", Receipt{Class: Pure, Had: true, When: old})
		put("new", Receipt{Class: Pure, Had: true})
		put("capture", Receipt{Class: Capture, Had: true, When: old})
		putResult(t, s, Pure, "old had with result", Result{})
		if got := collect(t, s, CollectOptions{DryRun: true, MaxAge: 30 * day}); got != (Tally{Receipts: 2, Bytes: 8192}) {
			t.Errorf("would remove %+v", got)
		}
		r, err := s.Collect(t.Context(), CollectOptions{MaxAge: 30 * day})
		if err != nil || r.Removed != (Tally{Receipts: 2, Bytes: 8192}) || r.Kept != (Tally{Results: 1, Receipts: 2, Bytes: 3 * 4096}) {
			t.Errorf("%+v, %v", r, err)
		}
		for name, want := range map[string]bool{"old sent": false, "old had": false, "old had with result": true, "new": true, "capture": true} {
			if _, ok := s.Receipt(here, keyOf(name)); ok != want {
				t.Errorf("%s: %v", name, ok)
			}
		}
		if got := collect(t, s, CollectOptions{MaxSize: 1}); got != (Tally{}) {
			t.Errorf("young things are removed: %+v", got)
		}
	})
}

func TestDeleteCaptureDropsReceipts(t *testing.T) {
	eachStore(t, func(t *testing.T, s *Store) {
		paid(t, s, "mine", prose(10))
		age(t, s, 2*time.Hour)
		for _, server := range []string{here, there} {
			putReceipt(t, s, server, keyOf("mine"), Receipt{Class: Capture, Func: BLAKE3, Message: []byte("a password")})
		}
		if _, err := s.DeleteCapture(t.Context(), keyOf("mine"), "a mistake", false); err != nil {
			t.Fatal(err)
		}
		for _, path := range append(under(t, s.data.dir), under(t, s.cache.dir)...) {
			if b, err := os.ReadFile(path); err != nil || bytes.Contains(b, []byte("a password")) || strings.Contains(path, "receipts") {
				t.Errorf("%s is left: %v", path, err)
			}
		}
	})
}

// helpReceipts writes one receipt over and over.
func helpReceipts(args []string) error {
	s, err := Open(Options{Cache: args[0], Data: args[0]})
	if err != nil {
		return err
	}
	for i := range 300 {
		message := bytes.Repeat([]byte{byte(i)}, 1+i*37)
		if err := s.PutReceipt(here, keyOf("one"), Receipt{Class: Pure, Func: BLAKE3, Message: message}); err != nil {
			return err
		}
	}
	return nil
}

// Two processes write one receipt, a third reads: it is always a whole one.
func TestReceiptProcesses(t *testing.T) {
	dir := t.TempDir()
	s := open(t, dir, dir)
	putReceipt(t, s, here, keyOf("one"), Receipt{Class: Pure, Func: BLAKE3, Message: []byte{0}})
	done := make(chan error)
	for range 2 {
		go func() { done <- helper(t, "receipts", dir).Run() }()
	}
	for running := 2; running > 0; {
		select {
		case err := <-done:
			if err != nil {
				t.Error(err)
			}
			running--
		default:
		}
		r, ok := s.Receipt(here, keyOf("one"))
		if !ok || len(r.Message) == 0 || !bytes.Equal(r.Message, bytes.Repeat(r.Message[:1], len(r.Message))) || s.Received(keyOf("one")) {
			t.Fatalf("%v: %d bytes", ok, len(r.Message))
		}
	}
}

func FuzzReceipt(f *testing.F) {
	key := keyOf("one")
	path := "/receipts/" + serverFolder(here) + "/" + key.Hex()[:2] + "/" + key.Hex()
	f.Add(encodeReceipt(serverFolder(here), key, Receipt{Class: Pure, Had: true, Func: SHA256, Message: []byte("m")}))
	f.Add(encodeReceipt(serverFolder(here), key, Receipt{Class: Capture, Func: BLAKE3}))
	f.Add([]byte(receiptHeader(Receipt{Class: Pure, Func: BLAKE3})))
	f.Fuzz(func(t *testing.T, b []byte) {
		got, r, err := decodeReceipt(path, b)
		if err != nil {
			return
		}
		if again := encodeReceipt(serverFolder(here), got, r); !bytes.Equal(again, b) {
			t.Errorf("two files of one receipt: %q and %q", b, again)
		}
	})
}
