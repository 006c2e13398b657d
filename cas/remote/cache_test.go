package remote

import (
	"crypto/ed25519"
	"errors"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	gocmp "github.com/google/go-cmp/cmp"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// machine is one of a team's: a store, a client and a cache.
type machine struct {
	*Cache
	store  *cas.Store
	client *reapi.Client
	clock  *clock

	mu    sync.Mutex
	warns []string
}

// clock tells the time and keeps what waits for it.
type clock struct {
	mu      sync.Mutex
	now     time.Time
	waiting []*timer
}

type timer struct {
	at time.Time
	fn func()
}

func newClock() *clock { return &clock{now: time.Now()} }

func (c *clock) Now() time.Time {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.now
}

func (c *clock) After(d time.Duration, fn func()) func() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	t := &timer{c.now.Add(d), fn}
	c.waiting = append(c.waiting, t)
	return func() bool {
		c.mu.Lock()
		defer c.mu.Unlock()
		for i, w := range c.waiting {
			if w == t {
				c.waiting = append(c.waiting[:i], c.waiting[i+1:]...)
				return true
			}
		}
		return false
	}
}

// advance runs what is due, and gives how much that was.
func (c *clock) advance(d time.Duration) int {
	c.mu.Lock()
	c.now = c.now.Add(d)
	var due []*timer
	left := c.waiting[:0:0]
	for _, t := range c.waiting {
		if t.at.After(c.now) {
			left = append(left, t)
		} else {
			due = append(due, t)
		}
	}
	c.waiting = left
	c.mu.Unlock()
	for _, t := range due {
		t.fn()
	}
	return len(due)
}

type setup struct {
	fn       cas.Func      // of the store
	prefer   cas.Func      // of the server; zero: fn
	timeout  time.Duration // zero: long
	required bool
	trusted  []ed25519.PublicKey
	sign     ed25519.PrivateKey
	store    *cas.Store // zero: a new one
	wrap     func(Client) Client
}

func newStore(t testing.TB, fn cas.Func) *cas.Store {
	t.Helper()
	dir := t.TempDir()
	s, err := cas.Open(cas.Options{Cache: dir + "/cache", Data: dir + "/data", Func: fn})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func join(t testing.TB, address string, o setup) *machine {
	t.Helper()
	if o.fn == 0 {
		o.fn = cas.BLAKE3
	}
	if o.prefer == 0 {
		o.prefer = o.fn
	}
	if o.timeout == 0 {
		o.timeout = 20 * time.Second
	}
	m := &machine{store: o.store, clock: newClock()}
	if m.store == nil {
		m.store = newStore(t, o.fn)
	}
	var err error
	if m.client, err = reapi.New(reapi.Options{Address: address, Timeout: o.timeout, Prefer: o.prefer}); err != nil {
		t.Fatal(err)
	}
	var client Client = m.client
	if o.wrap != nil {
		client = o.wrap(client)
	}
	m.Cache = New(Options{
		Client: client, Store: m.store, Required: o.required, Trusted: o.trusted, Sign: o.sign,
		Warn: m.warn, Now: m.clock.Now, After: m.clock.After,
	})
	t.Cleanup(func() {
		m.Close()
		m.client.Close()
	})
	return m
}

func (m *machine) warn(msg string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.warns = append(m.warns, msg)
}

// wantWarnings wants one warning for each of the parts, that has it.
func (m *machine) wantWarnings(t testing.TB, parts ...string) {
	t.Helper()
	m.mu.Lock()
	defer m.mu.Unlock()
	ok := len(m.warns) == len(parts)
	for i := 0; ok && i < len(parts); i++ {
		ok = strings.Contains(m.warns[i], parts[i]) && !strings.Contains(m.warns[i], "\n")
	}
	if !ok {
		t.Errorf("warned %d times:\n%s\nwant %q", len(m.warns), strings.Join(m.warns, "\n"), parts)
	}
}

// large is the size of a blob that is streamed.
const large = smallBlob + 50_000

func noise(seed uint64, n int) []byte {
	var key [32]byte
	key[0], key[1], key[2] = byte(seed), byte(seed>>8), byte(seed>>16)
	b := make([]byte, n)
	rand.NewChaCha8(key).Read(b)
	return b
}

func keyOf(fn cas.Func, name string) cas.Digest { return fn.Sum([]byte("key " + name)) }

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// make records a result of each kind of output there is; sizes tell which are
// large enough for a stream. It is the same for the same name.
func (m *machine) make(t testing.TB, class cas.Class, name string, large int) cas.Result {
	t.Helper()
	put := func(b []byte) cas.Digest { return must(m.store.Put(class, b)) }
	text := func(s string) []byte { return []byte(s + " of " + name) }
	fn := m.store.Func()
	sub := cas.NewTree(fn)
	sub.File("same", put(text("shared")), false)
	below, err := sub.Build()
	if err != nil {
		t.Fatal(err)
	}
	b := cas.NewTree(fn)
	b.File("a/one", put(text("one")), true)
	b.File("a/none", put(nil), false)
	b.File("shared", put(text("shared")), false)
	b.Symlink("a/link", "../shared")
	b.Mount("twice/a", below)
	b.Mount("twice/b", below)
	b.Mount("void", must(cas.NewTree(fn).Build()))
	tree, err := b.Build()
	if err != nil {
		t.Fatal(err)
	}
	inlined := text("inlined")
	r := cas.Result{
		Files: []cas.OutputFile{
			{Path: "empty", Digest: fn.Sum(nil)},
			{Path: "inlined", Digest: fn.Sum(inlined), Contents: inlined},
			{Path: "large", Digest: put(noise(uint64(len(name)), large)), Executable: true},
			{Path: "small", Digest: put(text("small"))},
		},
		Folders:  []cas.OutputFolder{{Path: "folder", Tree: must(m.store.PutTree(class, tree))}},
		Links:    []cas.OutputLink{{Path: "link", Target: "small"}},
		ExitCode: 3,
		Stdout:   put(text("stdout")),
		Stderr:   put(nil),
		Aux:      map[string][]byte{"cost": text("cost"), "none": {}},
	}
	if err := m.store.PutResult(class, keyOf(fn, name), r); err != nil {
		t.Fatal(err)
	}
	return r
}

// send makes and sends a result, and waits until it is there.
func (m *machine) send(t testing.TB, class cas.Class, name string, large int) cas.Result {
	t.Helper()
	r := m.make(t, class, name, large)
	m.Send(class, keyOf(m.store.Func(), name), nil, nil, r, nil)
	m.flush(t)
	return r
}

func (m *machine) flush(t testing.TB) {
	t.Helper()
	if err := m.Flush(t.Context()); err != nil {
		t.Fatal(err)
	}
}

func captureOf(key cas.Digest, r cas.Result) cas.Digest { return key.Func.Sum(must(r.Encode())) }

// wantMiss wants a *cas.MissError with a text in it.
func wantMiss(t testing.TB, err error, part string) {
	t.Helper()
	var miss *cas.MissError
	if !errors.As(err, &miss) || !strings.Contains(miss.Reason, part) {
		t.Errorf("got %v; want a miss: %s", err, part)
	}
}

// rootless leaves out what Lookup doesn't know.
func rootless(r cas.Result) cas.Result {
	folders := make([]cas.OutputFolder, len(r.Folders))
	for i, f := range r.Folders {
		f.Root = cas.Digest{}
		folders[i] = f
	}
	r.Folders = folders
	return r
}

// each runs fn with a server of the store's function and of the other one.
func each(t *testing.T, fn func(t *testing.T, f *remotetest.Fake)) {
	for _, c := range []struct {
		name  string
		funcs []cas.Func
	}{{"native", nil}, {"foreign", []cas.Func{cas.SHA256}}} {
		t.Run(c.name, func(t *testing.T) { fn(t, remotetest.Start(t, remotetest.Knobs{Funcs: c.funcs})) })
	}
}

func TestShare(t *testing.T) {
	t.Parallel()
	each(t, func(t *testing.T, f *remotetest.Fake) {
		for _, class := range []cas.Class{cas.Pure, cas.Capture} {
			a, b := join(t, f.Address, setup{}), join(t, f.Address, setup{})
			name := "of " + class.String()
			key := keyOf(cas.BLAKE3, name)
			sent := a.send(t, class, name, large)
			wants := []cas.Digest{{}}
			if class == cas.Capture {
				wants = append(wants, captureOf(key, sent))
			}
			for _, want := range wants {
				got, err := b.Find(t.Context(), class, key, want)
				if err != nil {
					t.Fatal(err)
				}
				root := got.Folders[0].Root
				if diff := gocmp.Diff(sent, rootless(got)); diff != "" {
					t.Errorf("-sent +found:\n%s", diff)
				}
				if tree, err := a.store.ReadTree(sent.Folders[0].Tree); err != nil || tree.Digest() != root {
					t.Errorf("the root is %v, %v", root, err)
				}
			}
			if err := b.Fetch(t.Context(), class, key, wants[len(wants)-1]); err != nil {
				t.Fatal(err)
			}
			got, err := b.store.Lookup(class, key)
			if diff := gocmp.Diff(sent, got); diff != "" || err != nil {
				t.Errorf("%v, -sent +fetched:\n%s", err, diff)
			}
			if !b.store.Received(key) || a.store.Received(key) {
				t.Error("it isn't known who made it")
			}
			if s := b.Stats(); s.Found != len(wants) || s.Fetched != 1 || s.Down < large {
				t.Errorf("%+v", s)
			}
			if s := a.Stats(); s.Sent != 1 || s.Up < large {
				t.Errorf("%+v", s)
			}
			a.wantWarnings(t)
			b.wantWarnings(t)
		}
	})
}
