package reapi

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/cas/remote/remotetest"
)

// backends are all places for blobs and results that the suite runs over. A
// server is one line: how it is started, and what its client is told.
var backends = []struct {
	name  string
	start func(t testing.TB) Options
}{
	{"blake3", fake(remotetest.Knobs{NoRecord: true}, cas.BLAKE3)},
	{"blake3 zstd", fake(remotetest.Knobs{NoRecord: true, Zstd: true}, cas.BLAKE3)},
	{"sha256", fake(remotetest.Knobs{NoRecord: true, Funcs: []cas.Func{cas.SHA256}}, cas.BLAKE3)},
	{"sha256 zstd", fake(remotetest.Knobs{NoRecord: true, Funcs: []cas.Func{cas.SHA256}, Zstd: true, Complete: true}, cas.BLAKE3)},
	{"sha256 preferred", fake(remotetest.Knobs{NoRecord: true, Zstd: true, CommitPlain: true}, cas.SHA256)},
	{"unix socket, instance", fake(remotetest.Knobs{NoRecord: true, Unix: true, Instance: "team/a", Zstd: true, Complete: true}, cas.BLAKE3)},
	{"bazel-remote", bazelRemote(remotetest.BazelRemoteOptions{}, false, false)},
	{"bazel-remote on a unix socket", bazelRemote(remotetest.BazelRemoteOptions{Unix: true}, false, false)},
	{"bazel-remote with a password", bazelRemote(remotetest.BazelRemoteOptions{User: "ci", Password: "a password"}, false, false)},
	{"bazel-remote with TLS and a password", bazelRemote(remotetest.BazelRemoteOptions{User: "ci", Password: "a password"}, true, false)},
	{"bazel-remote with client certificates", bazelRemote(remotetest.BazelRemoteOptions{}, true, true)},
	{"small batches", fake(remotetest.Knobs{NoRecord: true, MaxBatch: 3000, NoResume: true, WrongDigest: 13}, cas.BLAKE3)},
}

func fake(k remotetest.Knobs, prefer cas.Func) func(testing.TB) Options {
	return func(t testing.TB) Options {
		f := remotetest.Start(t, k)
		address := f.Address
		switch {
		case k.Instance != "" && k.Unix:
			address += "?instance=" + k.Instance
		case k.Instance != "":
			address += "/" + k.Instance
		}
		return Options{Address: address, Prefer: prefer}
	}
}

func bazelRemote(o remotetest.BazelRemoteOptions, tls, certificate bool) func(testing.TB) Options {
	return func(t testing.TB) Options {
		var with Options
		if tls {
			o.Certs, o.ClientCertificates = remotetest.Certificates(t), certificate
			with.CA = o.Certs.CA
		}
		if certificate {
			with.Cert, with.Key = o.Certs.ClientCert, o.Certs.ClientKey
		}
		server := remotetest.StartBazelRemote(t, o)
		with.Address = server.Address()
		if name, value := server.Header(); name != "" {
			with.Headers = []Header{{name, value}}
		}
		return with
	}
}

// TestDenied: without the password or the certificate everything is denied or
// can't be reached, and no error has the password in it.
func TestDenied(t *testing.T) {
	certs := remotetest.Certificates(t)
	for _, c := range []struct {
		name   string
		server remotetest.BazelRemoteOptions
		with   Options
	}{
		{"no password", remotetest.BazelRemoteOptions{User: "ci", Password: "right-password"}, Options{}},
		{"wrong password", remotetest.BazelRemoteOptions{User: "ci", Password: "right-password"}, Options{Headers: []Header{{"authorization", "Basic Y2k6d3JvbmctcGFzc3dvcmQ="}}}},
		{"no certificate", remotetest.BazelRemoteOptions{Certs: certs, ClientCertificates: true}, Options{CA: certs.CA}},
		{"a server of another authority", remotetest.BazelRemoteOptions{Certs: certs}, Options{CA: remotetest.Certificates(t).CA}},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.with.Address = remotetest.StartBazelRemote(t, c.server).Address()
			client := open(t, c.with)
			_, err := client.Result(t.Context(), cas.SHA256.Sum([]byte("x")))
			if k := KindOf(err); k != Denied && k != Down {
				t.Errorf("a result: %v, of kind %v", err, k)
			}
			err = client.WriteBatch(t.Context(), []Blob{{cas.SHA256.Sum([]byte("x")), []byte("x")}})
			if k := KindOf(err); k != Denied && k != Down {
				t.Errorf("a write: %v, of kind %v", err, k)
			}
			if strings.Contains(fmt.Sprint(err), "d3Jvbmct") || strings.Contains(fmt.Sprint(err), "password=") {
				t.Errorf("the header is in %v", err)
			}
		})
	}
}

// open gives a client that doesn't wait between tries, and packs though the
// server is on this machine.
func open(t testing.TB, o Options) *Client {
	t.Helper()
	c, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	c.local = false
	c.wait = func(ctx context.Context, _ time.Duration) error { return ctx.Err() }
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestConformance(t *testing.T) {
	t.Run("disk", func(t *testing.T) {
		t.Parallel()
		remotetest.Conformance(t, disk)
	})
	for _, b := range backends {
		t.Run(b.name, func(t *testing.T) {
			t.Parallel()
			c := open(t, b.start(t))
			for name, streams := range map[string]bool{"batches": false, "streams": true} {
				t.Run(name, func(t *testing.T) {
					remotetest.Conformance(t, func(t testing.TB) remotetest.Backend { return overClient(t, c, streams) })
				})
			}
		})
	}
}

// TestConformanceNotices shows that the suite can fail.
func TestConformanceNotices(t *testing.T) {
	k := remotetest.Knobs{NoRecord: true}
	for _, f := range remotetest.Faults(nil) {
		t.Run(f.Name, func(t *testing.T) {
			t.Parallel()
			b := overClient(t, open(t, fake(k, cas.BLAKE3)(t)), false)
			for _, g := range remotetest.Faults(b) {
				if g.Name == f.Name && remotetest.Check(t.Context(), g) == nil {
					t.Error("the suite did not notice")
				}
			}
		})
	}
	if err := remotetest.Check(t.Context(), overClient(t, open(t, fake(k, cas.BLAKE3)(t)), false)); err != nil {
		t.Errorf("without a fault: %v", err)
	}
}

// client is a Client as a Backend.
type client struct {
	*Client
	fn      cas.Func
	streams bool // for all blobs
}

func overClient(t testing.TB, c *Client, streams bool) remotetest.Backend {
	t.Helper()
	s, err := c.Server(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return client{c, s.Func, streams}
}

func (c client) Func() cas.Func { return c.fn }

func (c client) PutBlob(ctx context.Context, d cas.Digest, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.streams {
		return c.Write(ctx, d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
	}
	return c.WriteBatch(ctx, []Blob{{d, b}})
}

func (c client) GetBlob(ctx context.Context, d cas.Digest) ([]byte, error) {
	b, err := c.get(ctx, d)
	switch {
	case KindOf(err) == NotFound:
		return nil, remotetest.ErrAbsent
	case err != nil:
		return nil, err
	case c.fn.Sum(b) != d:
		return nil, errors.New("wrong bytes came")
	}
	return b, nil
}

func (c client) get(ctx context.Context, d cas.Digest) ([]byte, error) {
	if c.streams {
		return c.readWhole(ctx, d)
	}
	m, err := c.ReadBatch(ctx, []cas.Digest{d})
	b, ok := m[d]
	if err == nil && !ok {
		err = &Error{Op: "read", Object: d.String(), Kind: NotFound, Err: errors.New("not in the answer")}
	}
	return b, err
}

func (c client) GetResult(ctx context.Context, key cas.Digest) ([]byte, error) {
	b, err := c.Result(ctx, key)
	if KindOf(err) == NotFound {
		return nil, remotetest.ErrAbsent
	}
	return b, err
}

// disk is a cas.Store as a Backend.
func disk(t testing.TB) remotetest.Backend {
	t.Helper()
	s, err := cas.Open(cas.Options{Cache: t.TempDir(), Data: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	return store{s}
}

type store struct{ *cas.Store }

func (s store) PutBlob(ctx context.Context, d cas.Digest, b []byte) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	return s.PutFile(cas.Pure, d, func() (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(b)), nil })
}

func (s store) GetBlob(ctx context.Context, d cas.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	if d.Size == 0 {
		return []byte{}, nil
	}
	b, err := s.Read(d)
	if e, ok := errors.AsType[*cas.BlobError](err); ok && e.Reason == cas.Missing {
		return nil, remotetest.ErrAbsent
	}
	return b, err
}

func (s store) Missing(_ context.Context, ds []cas.Digest) ([]cas.Digest, error) {
	var missing []cas.Digest
	for _, d := range ds {
		if d.Size > 0 && s.Has(d) != nil {
			missing = append(missing, d)
		}
	}
	return missing, nil
}

func (s store) PutResult(_ context.Context, key cas.Digest, msg []byte) error {
	r, err := cas.DecodeResult(s.Func(), msg)
	if err != nil {
		return err
	}
	return s.Store.PutResult(cas.Pure, key, r)
}

func (s store) GetResult(ctx context.Context, key cas.Digest) ([]byte, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r, err := s.Lookup(cas.Pure, key)
	if _, ok := errors.AsType[*cas.MissError](err); ok {
		return nil, fmt.Errorf("%w: %w", remotetest.ErrAbsent, err)
	}
	if err != nil {
		return nil, err
	}
	return r.Encode()
}
