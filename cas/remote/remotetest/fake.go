// Package remotetest has what tests of the remote cache need: a server in this
// process that fails on demand, a proxy that is a bad link, and one suite that
// every place for blobs and results must pass. It is for tests only.
package remotetest

import (
	"bytes"
	"context"
	"crypto/tls"
	"maps"
	"net"
	"path/filepath"
	"slices"
	"sync"
	"testing"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
)

// Knobs is how a Fake behaves. The zero value is a good server with both
// digest functions, without zstd and without limits.
type Knobs struct {
	Unix bool        // listen on a socket file; read by Start only
	TLS  *tls.Config // read by Start only

	Instance string     // the only instance there is
	Funcs    []cas.Func // nil: BLAKE3 and SHA-256
	Zstd     bool
	MaxBatch int64 // bytes of blobs in a batch; 0: no limit but gRPC's 4 MiB
	Chunk    int   // bytes in a message of Read; 0: 64 KiB

	// Caps changes what GetCapabilities answers, not what the server does.
	Caps func(*repb.ServerCapabilities)
	// Before is called at the start of each call, in the call's goroutine.
	Before func(ctx context.Context, method string)

	Complete     bool // GetActionResult finds only results whose blobs are all there
	ReadOnly     bool // writes are denied, and the capabilities say so
	DenyWrites   bool // writes are denied, though the capabilities don't say so
	Full         bool // writes of anything new find no room
	WrongDigest  codes.Code
	NoResume     bool // no QueryWriteStatus, and writes and packed reads start at 0 only
	NoReadOffset bool // plain reads start at 0 only
	CommitPlain  bool // committed_size of a packed upload counts plain bytes
	NoRecord     bool // don't keep what is received
}

// Fake is a cache server in this process.
type Fake struct {
	Address string // for reapi.Options, without the instance

	network, listen string
	server          *grpc.Server

	mu       sync.Mutex
	knobs    Knobs
	blobs    map[cas.Digest][]byte
	results  map[cas.Digest][]byte
	partial  map[string][]byte // uploads that were cut, by resource name
	calls    map[string]int
	flying   map[string]int
	changed  chan struct{} // closed and replaced at each change of calls and flying
	messages []Message
	headers  []metadata.MD
	faults   map[string][]Fault
}

// Message is what came in one message, or the plain bytes of a packed blob.
type Message struct {
	Method string
	Bytes  []byte
}

// Start starts a server that ends with the test.
func Start(t testing.TB, k Knobs) *Fake {
	t.Helper()
	f := &Fake{
		knobs: k, network: "tcp", listen: "127.0.0.1:0",
		blobs: map[cas.Digest][]byte{}, results: map[cas.Digest][]byte{}, partial: map[string][]byte{},
		calls: map[string]int{}, flying: map[string]int{}, changed: make(chan struct{}), faults: map[string][]Fault{},
	}
	if k.Unix {
		f.network, f.listen = "unix", filepath.Join(t.TempDir(), "s")
	}
	l, err := f.serve()
	if err != nil {
		t.Fatalf("start fake server: %v", err)
	}
	switch {
	case k.Unix:
		f.Address = "unix://" + f.listen
	case k.TLS != nil:
		f.listen = l.Addr().String()
		f.Address = "grpcs://" + f.listen
	default:
		f.listen = l.Addr().String()
		f.Address = "grpc://" + f.listen
	}
	t.Cleanup(f.Stop)
	return f
}

func (f *Fake) serve() (net.Listener, error) {
	l, err := net.Listen(f.network, f.listen)
	if err != nil {
		return nil, err
	}
	opts := []grpc.ServerOption{
		grpc.ForceServerCodecV2(rawCodec{}), grpc.UnaryInterceptor(f.unary), grpc.StreamInterceptor(f.stream),
	}
	if f.knobs.TLS != nil {
		opts = append(opts, grpc.Creds(credentials.NewTLS(f.knobs.TLS)))
	}
	s := grpc.NewServer(opts...)
	repb.RegisterCapabilitiesServer(s, f)
	repb.RegisterActionCacheServer(s, f)
	repb.RegisterContentAddressableStorageServer(s, casServer{f: f})
	bytestream.RegisterByteStreamServer(s, f)
	f.mu.Lock()
	f.server = s
	f.mu.Unlock()
	go s.Serve(l)
	return l, nil
}

// Stop cuts all connections and listens no more. What it has stays.
func (f *Fake) Stop() {
	f.mu.Lock()
	s := f.server
	f.server = nil
	f.mu.Unlock()
	if s != nil {
		s.Stop()
	}
}

// Restart listens again at the same address.
func (f *Fake) Restart(t testing.TB) {
	t.Helper()
	f.Stop()
	if _, err := f.serve(); err != nil {
		t.Fatalf("restart fake server: %v", err)
	}
}

// Set changes knobs while the server runs.
func (f *Fake) Set(change func(*Knobs)) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change(&f.knobs)
}

func (f *Fake) knob() Knobs {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.knobs
}

// Blob gives a blob that the server has.
func (f *Fake) Blob(d cas.Digest) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.blobs[d]
	return b, ok
}

// PutBlob gives the server a blob, or other bytes under a digest.
func (f *Fake) PutBlob(d cas.Digest, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.blobs[d] = b
}

// DropBlob evicts a blob and reports whether it was there.
func (f *Fake) DropBlob(d cas.Digest) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, ok := f.blobs[d]
	delete(f.blobs, d)
	return ok
}

// Blobs gives the digests of all blobs.
func (f *Fake) Blobs() []cas.Digest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.blobs))
}

// Result gives the bytes under a key.
func (f *Fake) Result(key cas.Digest) ([]byte, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	b, ok := f.results[key]
	return b, ok
}

// PutResult puts bytes under a key, whether they are an ActionResult or not.
func (f *Fake) PutResult(key cas.Digest, msg []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.results[key] = msg
}

// DropResult removes a result.
func (f *Fake) DropResult(key cas.Digest) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.results, key)
}

// Results gives the keys of all results.
func (f *Fake) Results() []cas.Digest {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Collect(maps.Keys(f.results))
}

// Calls tells how many calls of a method began: "GetActionResult", "Read", …
func (f *Fake) Calls(method string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.calls[method]
}

// AllCalls tells how many calls of each method began.
func (f *Fake) AllCalls() map[string]int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return maps.Clone(f.calls)
}

// Await waits until n calls of the method have begun.
func (f *Fake) Await(ctx context.Context, method string, n int) error {
	return f.await(ctx, func() bool { return f.calls[method] >= n })
}

// AwaitFlying waits until n calls of the method are going on, no more or less.
func (f *Fake) AwaitFlying(ctx context.Context, method string, n int) error {
	return f.await(ctx, func() bool { return f.flying[method] == n })
}

func (f *Fake) await(ctx context.Context, done func() bool) error {
	for {
		f.mu.Lock()
		ok, changed := done(), f.changed
		f.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// Received gives all messages that came, and the plain bytes of what was packed
// in them.
func (f *Fake) Received() []Message {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.messages)
}

// Headers gives the headers of all calls. They are not in Received, since a
// credential belongs into a header and nowhere else.
func (f *Fake) Headers() []metadata.MD {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.headers)
}

// Grep gives the methods by which bytes came that contain the text. A text
// that was cut by two messages of a stream is found in the blob.
func (f *Fake) Grep(text string) []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var in []string
	for _, m := range f.messages {
		if bytes.Contains(m.Bytes, []byte(text)) {
			in = append(in, m.Method)
		}
	}
	for _, b := range f.blobs {
		if bytes.Contains(b, []byte(text)) {
			in = append(in, "blob")
		}
	}
	for _, b := range f.results {
		if bytes.Contains(b, []byte(text)) {
			in = append(in, "result")
		}
	}
	slices.Sort(in)
	return slices.Compact(in)
}

func (f *Fake) record(method string, b []byte) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if !f.knobs.NoRecord {
		f.messages = append(f.messages, Message{method, b})
	}
}

func (f *Fake) stir() {
	close(f.changed)
	f.changed = make(chan struct{})
}
