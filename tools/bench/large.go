package main

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"google.golang.org/genproto/googleapis/bytestream"
	"google.golang.org/grpc"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/reapi"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// size is that of the blob whose way is timed.
const size = 256 << 20

// Two kinds of bytes: some that no compression makes smaller, and the lines of a
// log, of which a fifth is left.
var kinds = []struct {
	name string
	fill func(b []byte, seed uint64)
}{{"random bytes", fillRandom}, {"lines of a log", fillLog}}

func fillRandom(b []byte, seed uint64) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[:], seed)
	rand.NewChaCha8(key).Read(b)
}

func fillLog(b []byte, seed uint64) {
	r := rand.New(rand.NewPCG(seed, 1))
	var line []byte
	for at := 0; at < len(b); {
		line = fmt.Appendf(line[:0], "{\"time\":%d,\"level\":\"info\",\"tool\":\"read_file\",\"path\":\"src/%x/main.go\",\"bytes\":%d,\"id\":\"%08x\"}\n", at, r.IntN(4096), r.IntN(100_000), r.Uint32())
		at += copy(b[at:], line)
	}
}

// large measures a blob of 256 MiB: the cache's whole way from store to store,
// and the client's alone.
func (b *bench) large() {
	server := launch(remotetest.BazelRemoteOptions{MaxSize: 16})
	if server == nil {
		return
	}
	defer server.Stop()
	b.whole(server)
	b.throughput(server)
}

// whole times cas/remote: a result with one large file, sent from a store and
// fetched into another.
func (b *bench) whole(server *remotetest.BazelRemote) {
	fmt.Printf("\n%-*s %9s %9s %8s\n", nameWidth, "a result of 256 MiB, store to bazel-remote to store", "seconds", "MiB/s", "MB")
	for _, k := range kinds {
		var sent, fetched []time.Duration
		var peakSend, peakFetch int64
		for i := range 3 {
			from, to := filepath.Join(b.dir, "large-from"), filepath.Join(b.dir, "large-to")
			key := putLarge(from, k.fill, uint64(i+100))
			s := b.child(childTask{Do: "send", Store: from, Address: server.Address(), Keys: []childKey{{Key: key}}})
			f := b.child(childTask{Do: "fetch", Store: to, Address: server.Address(), Keys: []childKey{{Key: key}}})
			sent, fetched = append(sent, s.Took), append(fetched, f.Took)
			peakSend, peakFetch = max(peakSend, s.Peak), max(peakFetch, f.Peak)
			check(os.RemoveAll(from))
			check(os.RemoveAll(to))
		}
		printRate("sent: "+k.name, median(sent), peakSend)
		printRate("fetched: "+k.name, median(fetched), peakFetch)
	}
}

func printRate(name string, took time.Duration, peak int64) {
	fmt.Printf("%-*s %9.2f %9.0f %8d\n", nameWidth, name, took.Seconds(), rate(took), peak)
}

func rate(took time.Duration) float64 { return size / float64(1<<20) / took.Seconds() }

// putLarge gives a store a result with a large file, a piece at a time: this
// process isn't to grow.
func putLarge(dir string, fill func([]byte, uint64), seed uint64) cas.Digest {
	store, err := cas.Open(cas.Options{Cache: dir, Data: dir})
	check(err)
	r, w := io.Pipe()
	go func() {
		piece := make([]byte, 1<<20)
		for i := range uint64(size >> 20) {
			fill(piece, seed<<16+i)
			w.Write(piece)
		}
		w.Close()
	}()
	d, err := store.PutReader(cas.Pure, r)
	check(err)
	key := store.Func().Sum([]byte(d.String()))
	check(store.PutResult(cas.Pure, key, cas.Result{Files: []cas.OutputFile{{Path: "large", Digest: d}}}))
	return key
}

func send(t childTask) time.Duration {
	store, cache, done := t.open()
	defer done()
	start := time.Now()
	for _, k := range t.Keys {
		r, err := store.Lookup(cas.Pure, k.Key)
		check(err)
		cache.Send(cas.Pure, k.Key, nil, nil, r, nil)
	}
	flush(cache, len(t.Keys))
	return time.Since(start)
}

func fetch(t childTask) time.Duration {
	_, cache, done := t.open()
	defer done()
	start := time.Now()
	for _, k := range t.Keys {
		_, err := cache.Find(context.Background(), cas.Pure, k.Key, cas.Digest{})
		check(err)
		check(cache.Fetch(context.Background(), cas.Pure, k.Key, cas.Digest{}))
	}
	return time.Since(start)
}

// A client moves a blob to a server and back.
type client interface {
	put(ctx context.Context, d cas.Digest, data []byte) error
	get(ctx context.Context, d cas.Digest) (got [sha256.Size]byte, err error)
}

// plain is the least that a client can do: ByteStream, uncompressed, nothing
// checked on the way up, the digest on the way down.
type plain struct{ conn *grpc.ClientConn }

const chunk = 1 << 20

func (p plain) put(ctx context.Context, d cas.Digest, data []byte) error {
	stream, err := bytestream.NewByteStreamClient(p.conn).Write(ctx)
	if err != nil {
		return err
	}
	name := fmt.Sprintf("uploads/0c4ec6ce-3d5f-4d3c-8d5c-0a1f5d3a7f2b/blobs/%s/%d", d.Hex(), d.Size)
	for at := 0; at < len(data); at += chunk {
		end := min(at+chunk, len(data))
		err := stream.Send(&bytestream.WriteRequest{ResourceName: name, WriteOffset: int64(at), Data: data[at:end], FinishWrite: end == len(data)})
		if err == io.EOF { // the answer says why
			break
		}
		if err != nil {
			return err
		}
		name = ""
	}
	resp, err := stream.CloseAndRecv()
	if err == nil && resp.CommittedSize != d.Size {
		err = fmt.Errorf("the server took %d bytes of %d", resp.CommittedSize, d.Size)
	}
	return err
}

func (p plain) get(ctx context.Context, d cas.Digest) (got [sha256.Size]byte, err error) {
	stream, err := bytestream.NewByteStreamClient(p.conn).Read(ctx, &bytestream.ReadRequest{ResourceName: fmt.Sprintf("blobs/%s/%d", d.Hex(), d.Size)})
	if err != nil {
		return got, err
	}
	h := sha256.New()
	for {
		resp, err := stream.Recv()
		if err == io.EOF {
			return [sha256.Size]byte(h.Sum(nil)), nil
		}
		if err != nil {
			return got, err
		}
		h.Write(resp.Data)
	}
}

// ours is the client that builds use; its answers are hashed as plain's are.
type ours struct{ *reapi.Client }

func (o ours) put(ctx context.Context, d cas.Digest, data []byte) error {
	return o.Write(ctx, d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(data)), nil })
}

func (o ours) get(ctx context.Context, d cas.Digest) (got [sha256.Size]byte, err error) {
	r, err := o.Open(ctx, d)
	if err != nil {
		return got, err
	}
	defer r.Close()
	h := sha256.New()
	if _, err := io.Copy(h, r); err != nil {
		return got, err
	}
	return [sha256.Size]byte(h.Sum(nil)), nil
}

// throughput times large blobs up and down, by turns.
func (b *bench) throughput(server *remotetest.BazelRemote) {
	conn, err := server.Dial(grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(16 << 20)))
	check(err)
	defer conn.Close()
	c, err := reapi.New(reapi.Options{Address: server.Address()})
	check(err)
	defer c.Close()
	clients := []struct {
		name string
		client
	}{{"a plain ByteStream client", plain{conn}}, {"cas/remote/reapi", ours{c}}}

	data := make([]byte, size)
	for kind, k := range kinds {
		up, down := make([][]time.Duration, len(clients)), make([][]time.Duration, len(clients))
		for run := range runs {
			for i, c := range clients {
				// Other bytes each time: what the server has it doesn't take again.
				k.fill(data, uint64(2*run+i))
				d := cas.SHA256.Sum(data)
				start := time.Now()
				check(c.put(context.Background(), d, data))
				up[i] = append(up[i], time.Since(start))
				start = time.Now()
				got, err := c.get(context.Background(), d)
				check(err)
				if got != d.Hash {
					check(fmt.Errorf("%s: other bytes came back", c.name))
				}
				down[i] = append(down[i], time.Since(start))
			}
		}
		if kind == 0 {
			fmt.Printf("\n%-*s %9s %9s\n", nameWidth, "a blob of 256 MiB, bazel-remote on loopback", "MiB/s", "v plain")
		}
		for _, way := range []struct {
			name  string
			times [][]time.Duration
		}{{"up", up}, {"down", down}} {
			base := median(way.times[0])
			for i, c := range clients {
				m := median(way.times[i])
				fmt.Printf("%-*s %9.0f %9.2f\n", nameWidth, k.name+", "+way.name+": "+c.name, rate(m), float64(base)/float64(m))
			}
		}
	}
}
