package reapi

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"
	"testing"
	"time"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/durationpb"
)

func put(f *remotetest.Fake, b []byte) cas.Digest {
	d := cas.BLAKE3.Sum(b)
	f.PutBlob(d, b)
	return d
}

func setup(t *testing.T, k remotetest.Knobs) (*remotetest.Fake, *Client) {
	t.Helper()
	f := remotetest.Start(t, k)
	return f, open(t, Options{Address: f.Address})
}

func wantKind(t *testing.T, err error, want Kind) *Error {
	t.Helper()
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Kind != want {
		t.Fatalf("error %v of kind %v, want %v", err, KindOf(err), want)
	}
	return e
}

func TestKinds(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	ctx := t.Context()
	blob := remotetest.Bytes(1, 5000, false)
	d := cas.BLAKE3.Sum(blob)
	calls := map[string]func() error{
		"GetActionResult":    func() error { _, err := c.Result(ctx, d); return err },
		"UpdateActionResult": func() error { return c.PutResult(ctx, d, nil) },
		"FindMissingBlobs":   func() error { _, err := c.Missing(ctx, []cas.Digest{d}); return err },
		"Read":               func() error { _, err := c.readWhole(ctx, d); return err },
		"BatchReadBlobs":     func() error { _, err := c.ReadBatch(ctx, []cas.Digest{d}); return err },
		"BatchUpdateBlobs":   func() error { return c.WriteBatch(ctx, []Blob{{d, blob}}) },
		"Write":              func() error { return c.Write(ctx, d, Blob{d, blob}.open) },
	}
	reads := []string{"GetActionResult", "FindMissingBlobs", "Read", "BatchReadBlobs"}
	writes := []string{"UpdateActionResult", "BatchUpdateBlobs", "Write"}
	all := append(reads, writes...)
	for _, x := range []struct {
		fault   remotetest.Fault
		methods []string
		want    Kind
		calls   int
	}{
		{remotetest.Fault{Code: codes.NotFound}, []string{"GetActionResult", "Read"}, NotFound, 1},
		{remotetest.Fault{Code: codes.NotFound}, append(writes, "FindMissingBlobs"), Refused, 1},
		{remotetest.Fault{Code: codes.Unauthenticated}, all, Denied, 1},
		{remotetest.Fault{Code: codes.PermissionDenied}, all, Denied, 1},
		{remotetest.Fault{Code: codes.InvalidArgument}, all, Refused, 1},
		{remotetest.Fault{Code: codes.FailedPrecondition}, all, Refused, 1},
		{remotetest.Fault{Code: codes.Unimplemented}, all, Refused, 1},
		{remotetest.Fault{Code: codes.DataLoss}, all, Refused, 1},
		{remotetest.Fault{Code: codes.ResourceExhausted}, writes, Full, 1},
		{remotetest.Fault{Code: codes.ResourceExhausted}, reads, Down, 4},
		{remotetest.Fault{Code: codes.ResourceExhausted, Message: "grpc: received message larger than max (5 vs. 4)"}, all, Refused, 1},
		{remotetest.Fault{Code: codes.Unavailable}, all, Down, 4},
		{remotetest.Fault{Code: codes.Aborted}, all, Down, 4},
		{remotetest.Fault{Code: codes.Canceled}, all, Down, 4},
		{remotetest.Fault{Code: codes.DeadlineExceeded}, all, Down, 4},
		{remotetest.Fault{Code: codes.Internal}, reads, Down, 2},
		{remotetest.Fault{Code: codes.Unknown}, reads, Down, 2},
		{remotetest.Fault{Code: codes.Internal}, writes, Refused, 2},
		{remotetest.Fault{Code: codes.Unknown}, writes, Refused, 2},
		{remotetest.Fault{Garbage: true}, []string{"GetActionResult", "FindMissingBlobs", "Read", "BatchReadBlobs", "BatchUpdateBlobs"}, Garbage, 1},
	} {
		for _, m := range x.methods {
			f.PutBlob(d, blob)
			if strings.Contains(m, "Write") || strings.Contains(m, "Update") {
				f.DropBlob(d)
			}
			f.PutResult(d, nil)
			before := f.Calls(m)
			x.fault.Times = -1
			f.Inject(m, x.fault)
			err := calls[m]()
			f.Heal()
			if KindOf(err) != x.want {
				t.Errorf("%s fails with %v %q: %v of kind %v, want %v", m, x.fault.Code, x.fault.Message, err, KindOf(err), x.want)
			}
			if n := f.Calls(m) - before; n != x.calls {
				t.Errorf("%s fails with %v: called %d times, want %d", m, x.fault.Code, n, x.calls)
			}
		}
	}
	// All of it works without a fault.
	f.PutResult(d, nil)
	for m, call := range calls {
		if err := call(); err != nil {
			t.Errorf("%s: %v", m, err)
		}
	}
}

// TestRetry shows that trouble that passes is not seen, and that pauses grow.
func TestRetry(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	var pauses []time.Duration
	c.wait = func(ctx context.Context, d time.Duration) error {
		pauses = append(pauses, d)
		return ctx.Err()
	}
	key := cas.BLAKE3.Sum([]byte("key"))
	f.PutResult(key, nil)
	f.Inject("GetActionResult", remotetest.Fault{Code: codes.Unavailable, Times: 3})
	if _, err := c.Result(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if len(pauses) != 3 {
		t.Fatalf("%d pauses", len(pauses))
	}
	base := 100 * time.Millisecond
	for i, p := range pauses {
		if p < base/2 || p > base*3/2 {
			t.Errorf("pause %d is %v, want about %v", i, p, base)
		}
		base *= 3
	}

	// A server may ask for a longer one, but not for one beyond the timeout.
	pauses = nil
	retry := &errdetails.RetryInfo{RetryDelay: durationpb.New(7 * time.Second)}
	f.Inject("GetActionResult", remotetest.Fault{Code: codes.Unavailable, Detail: retry})
	if _, err := c.Result(t.Context(), key); err != nil {
		t.Fatal(err)
	}
	if len(pauses) != 1 || pauses[0] != 7*time.Second {
		t.Errorf("pauses %v, want 7 s", pauses)
	}
	retry = &errdetails.RetryInfo{RetryDelay: durationpb.New(time.Hour)}
	f.Inject("GetActionResult", remotetest.Fault{Code: codes.Unavailable, Detail: retry})
	_, err := c.Result(t.Context(), key)
	wantKind(t, err, Down)
}

// clock has the timers of a client, which end when the test says so.
type clock struct {
	mu     sync.Mutex
	timers map[int]func()
	n      int
	set    chan struct{}
}

func newClock(c *Client) *clock {
	k := &clock{timers: map[int]func(){}, set: make(chan struct{}, 1000)}
	c.after = func(_ time.Duration, f func()) func() bool {
		k.mu.Lock()
		defer k.mu.Unlock()
		k.n++
		n := k.n
		k.timers[n] = f
		k.set <- struct{}{}
		return func() bool {
			k.mu.Lock()
			defer k.mu.Unlock()
			_, ok := k.timers[n]
			delete(k.timers, n)
			return ok
		}
	}
	return k
}

// run lets the call go on until want says that it hangs, then ends its time.
func (k *clock) run(t *testing.T, hangs func(context.Context) error, call func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- call() }()
	if err := hangs(t.Context()); err != nil {
		t.Fatal(err)
	}
	for {
		k.mu.Lock()
		for _, f := range k.timers {
			f()
		}
		k.mu.Unlock()
		select {
		case err := <-done:
			return err
		case <-k.set:
		}
	}
}

func TestNoAnswer(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{Chunk: 1000})
	if _, err := c.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	blob := remotetest.Bytes(1, 1_500_000, false)
	d := put(f, blob)
	fresh := cas.BLAKE3.Sum(blob[1:])
	never := make(chan struct{})
	k := newClock(c)
	for _, x := range []struct {
		name, method string
		fault        remotetest.Fault
		call         func() error
	}{
		{
			"a small call", "GetActionResult",
			remotetest.Fault{Hang: never},
			func() error { _, err := c.Result(t.Context(), d); return err },
		},
		{
			"a read before its first byte", "Read",
			remotetest.Fault{Hang: never},
			func() error { _, err := c.readWhole(t.Context(), d); return err },
		},
		{
			"a write", "Write",
			remotetest.Fault{Stall: never, After: 600 << 10},
			func() error { return c.Write(t.Context(), fresh, Blob{fresh, blob[1:]}.open) },
		},
	} {
		n := f.Calls(x.method)
		f.Inject(x.method, x.fault)
		err := k.run(t, func(ctx context.Context) error { return f.Await(ctx, x.method, n+1) }, x.call)
		if e := wantKind(t, err, Down); !e.Timeout {
			t.Errorf("%s: %v is not said to be a timeout", x.name, err)
		}
		if got := f.Calls(x.method) - n; got != 1 {
			t.Errorf("%s: tried %d times", x.name, got)
		}
		// The server is told, too.
		if err := f.AwaitFlying(t.Context(), x.method, 0); err != nil {
			t.Errorf("%s: the call goes on: %v", x.name, err)
		}
	}
}

func TestCancel(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	key := cas.BLAKE3.Sum([]byte("key"))
	for name, end := range map[string]error{"cancelled": context.Canceled, "deadline": context.DeadlineExceeded} {
		f.Inject("GetActionResult", remotetest.Fault{Hang: make(chan struct{})})
		ctx, cancel := context.WithCancel(t.Context())
		if name == "deadline" {
			ctx, cancel = context.WithTimeout(t.Context(), 20*time.Millisecond)
		}
		done := make(chan error, 1)
		go func() { _, err := c.Result(ctx, key); done <- err }()
		if name == "cancelled" {
			if err := f.AwaitFlying(t.Context(), "GetActionResult", 1); err != nil {
				t.Fatal(err)
			}
			cancel()
		}
		err := <-done
		cancel()
		wantKind(t, err, Cancelled)
		if !errors.Is(err, end) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if err := f.AwaitFlying(t.Context(), "GetActionResult", 0); err != nil {
		t.Error(err)
	}
}

func TestStalledRead(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	d := put(f, remotetest.Bytes(1, 1<<20, false))
	f.Inject("Read", remotetest.Fault{Stall: make(chan struct{}), After: 100_000})
	r, err := c.Open(t.Context(), d)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if _, err := io.ReadFull(r, make([]byte, 100_000)); err != nil {
		t.Fatal(err)
	}
	k := newClock(c)
	err = k.run(t, func(context.Context) error { return nil }, func() error { _, err := r.Read(make([]byte, 1)); return err })
	if e := wantKind(t, err, Down); !e.Timeout {
		t.Error(err)
	}
}

// TestClose shows that no call outlives the client.
func TestClose(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	f.Inject("GetActionResult", remotetest.Fault{Hang: make(chan struct{}), Times: -1})
	done := make(chan error, 1)
	go func() { _, err := c.Result(t.Context(), cas.BLAKE3.Sum(nil)); done <- err }()
	if err := f.AwaitFlying(t.Context(), "GetActionResult", 1); err != nil {
		t.Fatal(err)
	}
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
	wantKind(t, <-done, Cancelled)
	if err := c.Close(); err != nil {
		t.Errorf("closed twice: %v", err)
	}
}

func TestGone(t *testing.T) {
	f, c := setup(t, remotetest.Knobs{})
	key := cas.BLAKE3.Sum([]byte("key"))
	f.PutResult(key, nil)
	result := func() error { _, err := c.Result(t.Context(), key); return err }
	if err := result(); err != nil {
		t.Fatal(err)
	}
	f.Stop()
	e := wantKind(t, result(), Down)
	if e.Timeout || !strings.HasPrefix(e.Error(), "look up result "+key.String()+": Unavailable: ") {
		t.Errorf("error %q", e)
	}
	f.Restart(t)
	c.wait = sleep // the connection has pauses of its own
	if err := result(); err != nil {
		t.Errorf("after a restart: %v", err)
	}
}

func TestBadLink(t *testing.T) {
	f := remotetest.Start(t, remotetest.Knobs{NoRecord: true})
	p := remotetest.StartProxy(t, f.Address)
	c := open(t, Options{Address: p.Address})
	blob := remotetest.Bytes(1, 3<<20, false)
	d := put(f, blob)
	if _, err := c.Server(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.wait = sleep
	p.CutAfter(1 << 20)
	got, err := c.readWhole(t.Context(), d)
	if err != nil || cas.BLAKE3.Sum(got) != d {
		t.Fatalf("over a link that was cut: %d bytes, %v", len(got), err)
	}
	if f.Calls("Read") != 2 {
		t.Errorf("%d streams, want 2", f.Calls("Read"))
	}

	p.Pause()
	k := newClock(c)
	n := 0
	err = k.run(t, func(context.Context) error { <-k.set; return nil }, func() error {
		n++
		_, err := c.Result(t.Context(), d)
		return err
	})
	if e := wantKind(t, err, Down); !e.Timeout || n != 1 {
		t.Errorf("over a link that is paused: %v", err)
	}
	p.Resume()

	// Nobody speaks there.
	p.Refuse(true)
	p.Cut()
	_, err = c.Result(t.Context(), d)
	wantKind(t, err, Down)
}

func TestSecretsStaySecret(t *testing.T) {
	const secret = "c2VjcmV0LXRva2Vu"
	f := remotetest.Start(t, remotetest.Knobs{})
	o := Options{Address: f.Address, Headers: []Header{{"Authorization", "Basic " + secret}, {"x-key-bin", "AAECAwQFBgcI"}, {"X-Two", "a"}, {"x-two", "b"}}}
	c := open(t, o)
	if s := fmt.Sprintf("%v %+v %#v", o, o, o); strings.Contains(s, secret) {
		t.Errorf("the options show it: %s", s)
	}
	f.Inject("", remotetest.Fault{Code: codes.Unauthenticated, Message: "bad authorization: Basic " + secret + "\x1b[31m\n", Times: -1})
	_, err := c.Result(t.Context(), cas.BLAKE3.Sum(nil))
	if e := wantKind(t, err, Denied); strings.Contains(e.Error(), secret) || strings.ContainsAny(e.Error(), "\x1b\n") {
		t.Errorf("error %q", e)
	}
	if in := f.Grep(secret); len(in) > 0 {
		t.Errorf("it is in messages: %v", in)
	}
	md := f.Headers()[0]
	for name, want := range map[string]string{"authorization": "Basic " + secret, "x-key-bin": "\x00\x01\x02\x03\x04\x05\x06\x07\x08", "x-two": "a"} {
		if got := md.Get(name); len(got) == 0 || got[0] != want {
			t.Errorf("header %s: %q", name, got)
		}
	}
	if len(md.Get("x-two")) != 2 {
		t.Errorf("a header that was given twice came %d times", len(md.Get("x-two")))
	}
	var who repb.RequestMetadata
	if err := proto.Unmarshal([]byte(md.Get(requestMetadata)[0]), &who); err != nil || who.GetToolDetails().GetToolName() != "eval" {
		t.Errorf("request metadata: %v %v", &who, err)
	}
}

func TestStatusText(t *testing.T) {
	c := &Client{secrets: secretParts("Bearer abcdefghij")}
	for in, want := range map[string]string{
		"with Bearer abcdefghij in it": "with … in it",
		"with abcdefghij in it":        "with … in it",
		"a\x00b\xffc\n":                "a b c",
	} {
		if got := c.clean(in); got != want {
			t.Errorf("clean(%q) = %q, want %q", in, got, want)
		}
	}
	if got := c.clean(strings.Repeat("é", 1000)); len(got) > 510 || !strings.HasSuffix(got, "é…") {
		t.Errorf("a long text: %d bytes", len(got))
	}
	if k, again := judge(codes.ResourceExhausted, "stream terminated by RST_STREAM with error code: ENHANCE_YOUR_CALM", write); k != Down || again == 0 {
		t.Errorf("a stream that HTTP/2 has ended: %v", k)
	}
	if got := retryDelay(status.New(codes.Unavailable, "")); got != 0 {
		t.Error(got)
	}
}
