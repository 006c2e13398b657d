package reapi

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// plain is the shortest client of a ByteStream that there is.
type plain struct{ bytestream.ByteStreamClient }

func dialPlain(b *testing.B, address string) plain {
	b.Helper()
	a, err := parseAddress(address)
	if err != nil {
		b.Fatal(err)
	}
	cc, err := grpc.NewClient(a.dial, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(func() { cc.Close() })
	return plain{bytestream.NewByteStreamClient(cc)}
}

func (p plain) upload(b *testing.B, d cas.Digest, data []byte) {
	s, err := p.Write(b.Context())
	if err != nil {
		b.Fatal(err)
	}
	u := upload{d: d, c: new(Client)}
	u.rename()
	const chunk = 1 << 20
	for off := 0; off < len(data); off += chunk {
		end := min(off+chunk, len(data))
		req := &bytestream.WriteRequest{WriteOffset: int64(off), Data: data[off:end], FinishWrite: end == len(data)}
		if off == 0 {
			req.ResourceName = u.resource()
		}
		if err := s.Send(req); err != nil {
			b.Fatal(err)
		}
	}
	if _, err := s.CloseAndRecv(); err != nil {
		b.Fatal(err)
	}
}

func (p plain) download(b *testing.B, d cas.Digest) {
	s, err := p.Read(b.Context(), &bytestream.ReadRequest{ResourceName: blobName(d, false)})
	if err != nil {
		b.Fatal(err)
	}
	n := int64(0)
	for {
		m, err := s.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			b.Fatal(err)
		}
		n += int64(len(m.GetData()))
	}
	if n != d.Size {
		b.Fatalf("%d of %d bytes", n, d.Size)
	}
}

// BenchmarkStream compares the throughput of large blobs with that of a plain
// loop over the same server, whose own connection has gRPC's defaults.
func BenchmarkStream(b *testing.B) {
	servers := []struct {
		name  string
		start func(testing.TB) Options
	}{
		{"fake", fake(remotetest.Knobs{NoRecord: true, NoResume: true, Chunk: 1 << 20}, cas.SHA256)},
		{"fake zstd", fake(remotetest.Knobs{NoRecord: true, NoResume: true, Chunk: 1 << 20, Zstd: true}, cas.SHA256)},
		{"bazel-remote", func(t testing.TB) Options {
			return Options{Address: remotetest.StartBazelRemote(t, remotetest.BazelRemoteOptions{}).Address()}
		}},
	}
	for _, s := range servers {
		for _, packable := range []bool{false, true} {
			for _, delay := range []time.Duration{0, 10 * time.Millisecond} {
				b.Run(fmt.Sprintf("%s/packable=%v/delay=%v", s.name, packable, delay), func(b *testing.B) {
					benchStream(b, s.start(b), packable, delay)
				})
			}
		}
	}
}

func benchStream(b *testing.B, o Options, packable bool, delay time.Duration) {
	if delay > 0 {
		p := remotetest.StartProxy(b, o.Address)
		p.Delay(delay)
		o.Address = p.Address
	}
	p, c := dialPlain(b, o.Address), open(b, o)
	c.local = delay == 0
	const size = 64 << 20
	data := remotetest.Bytes(1, size, packable)
	fresh := func() cas.Digest { // a blob that the server doesn't have
		for i := range 8 {
			data[i]++
			if data[i] != 0 {
				break
			}
		}
		return cas.SHA256.Sum(data)
	}
	var took [4]time.Duration // the best, as the machine has other things to do
	for b.Loop() {
		ours, theirs := fresh(), cas.Digest{}
		measure := func(i int, f func()) {
			start := time.Now()
			f()
			if d := time.Since(start); took[i] == 0 || d < took[i] {
				took[i] = d
			}
		}
		measure(0, func() {
			err := c.Write(b.Context(), ours, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
			if err != nil {
				b.Fatal(err)
			}
		})
		theirs = fresh()
		measure(1, func() { p.upload(b, theirs, data) })
		measure(2, func() {
			r, err := c.Open(b.Context(), ours)
			if err != nil {
				b.Fatal(err)
			}
			if n, err := io.Copy(io.Discard, r); err != nil || n != size {
				b.Fatal(n, err)
			}
			r.Close()
		})
		measure(3, func() { p.download(b, theirs) })
	}
	speed := func(d time.Duration) float64 { return size / 1e6 / d.Seconds() }
	b.ReportMetric(speed(took[0]), "up-MB/s")
	b.ReportMetric(speed(took[2]), "down-MB/s")
	b.ReportMetric(speed(took[0])/speed(took[1]), "up-ratio")
	b.ReportMetric(speed(took[2])/speed(took[3]), "down-ratio")
}

// BenchmarkResults looks 10,000 small results up over a link with a round trip
// of 20 ms, 300 at once.
func BenchmarkResults(b *testing.B) {
	f := remotetest.Start(b, remotetest.Knobs{NoRecord: true})
	p := remotetest.StartProxy(b, f.Address)
	p.Delay(10 * time.Millisecond)
	c := open(b, Options{Address: p.Address})
	const n = 10_000
	keys := make([]cas.Digest, n)
	msg, err := cas.Result{Aux: map[string][]byte{"eval/result": remotetest.Bytes(1, 1000, true)}}.Encode()
	if err != nil {
		b.Fatal(err)
	}
	for i := range keys {
		keys[i] = cas.BLAKE3.Sum(fmt.Appendf(nil, "key %d", i))
		f.PutResult(keys[i], msg)
	}
	for b.Loop() {
		todo := make(chan cas.Digest)
		var wg sync.WaitGroup
		for range 300 {
			wg.Go(func() {
				for key := range todo {
					if _, err := c.Result(b.Context(), key); err != nil {
						b.Error(err)
					}
				}
			})
		}
		for _, key := range keys {
			todo <- key
		}
		close(todo)
		wg.Wait()
	}
	b.ReportMetric(float64(p.Dials()), "connections")
}
