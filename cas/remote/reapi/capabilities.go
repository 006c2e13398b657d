package reapi

import (
	"context"
	"fmt"
	"slices"
	"strings"

	repb "github.com/bazelbuild/remote-apis/build/bazel/remote/execution/v2"
	"github.com/evalbuild/eval/cas"
	"google.golang.org/grpc/codes"
)

// Server is what a server says of itself, with defaults for what it doesn't say.
type Server struct {
	Func     cas.Func // the digest function to use with it
	Zstd     bool     // it takes and gives blobs compressed
	MaxBatch int64    // bytes of blobs in one batch, at most what fits into a message
	Updates  bool     // results may be written, as far as it is known without trying
}

// server is Server and what only we need.
type server struct {
	Server
	packedBatch bool  // zstd in BatchUpdateBlobs
	maxBlob     int64 // 0: none that it says
}

// asking is a GetCapabilities on its way, for all who wait for it.
type asking struct {
	done chan struct{}
	err  error
}

// defaultBatch leaves room for digests and tags: a server's limit is on the
// message, too.
const defaultBatch = maxMessage - 256<<10

// Server asks for the server's capabilities; an answer is remembered. Servers
// say little: no digest function means SHA-256, and a server that doesn't know
// the call at all gets defaults. It is an error of kind Refused if there is no
// digest function that cas knows.
func (c *Client) Server(ctx context.Context) (Server, error) {
	s, err := c.known(ctx)
	if err != nil {
		return Server{}, err
	}
	return s.Server, nil
}

func (c *Client) known(ctx context.Context) (*server, error) {
	for {
		c.mu.Lock()
		if s := c.server; s != nil {
			c.mu.Unlock()
			return s, nil
		}
		a := c.asking
		if a == nil {
			a = &asking{done: make(chan struct{})}
			c.asking = a
			c.mu.Unlock()
			return c.ask(ctx, a)
		}
		c.mu.Unlock()
		select {
		case <-a.done:
			// Who asked may have been cancelled: that is no answer for us.
			if a.err != nil && KindOf(a.err) != Cancelled {
				return nil, a.err
			}
		case <-ctx.Done():
			return nil, &Error{Op: "ask", Object: c.name, Kind: Cancelled, Err: ctx.Err()}
		}
	}
}

func (c *Client) ask(ctx context.Context, a *asking) (*server, error) {
	s, err := c.capabilities(ctx)
	c.mu.Lock()
	defer c.mu.Unlock()
	if err == nil {
		c.server = s
	}
	a.err = err
	c.asking = nil
	close(a.done)
	return s, err
}

func (c *Client) capabilities(ctx context.Context) (*server, error) {
	var caps *repb.ServerCapabilities
	const op = "ask"
	err := c.unary(ctx, &c.small, op, c.name, ask, func(ctx context.Context, conn *conn) (err error) {
		caps, err = repb.NewCapabilitiesClient(conn).GetCapabilities(ctx, &repb.GetCapabilitiesRequest{InstanceName: c.instance})
		if codeOf(err) == codes.Unimplemented {
			return nil
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	s, err := c.choose(caps.GetCacheCapabilities())
	if err != nil {
		return nil, &Error{Op: op, Object: c.name, Kind: Refused, Err: err}
	}
	return s, nil
}

func (c *Client) choose(caps *repb.CacheCapabilities) (*server, error) {
	s := &server{Server: Server{MaxBatch: defaultBatch, Updates: true}}
	if n := caps.GetMaxBatchTotalSizeBytes(); n > 0 {
		s.MaxBatch = min(n, defaultBatch)
	}
	if u := caps.GetActionCacheUpdateCapabilities(); u != nil {
		s.Updates = u.GetUpdateEnabled()
	}
	s.Zstd = slices.Contains(caps.GetSupportedCompressors(), repb.Compressor_ZSTD)
	s.packedBatch = slices.Contains(caps.GetSupportedBatchUpdateCompressors(), repb.Compressor_ZSTD)
	s.maxBlob = max(0, caps.GetMaxCasBlobSizeBytes())

	has := caps.GetDigestFunctions()
	if len(has) == 0 {
		s.Func = cas.SHA256
		return s, nil
	}
	for _, f := range []cas.Func{c.prefer, cas.SHA256, cas.BLAKE3} {
		if slices.Contains(has, wireFunc(f)) {
			s.Func = f
			return s, nil
		}
	}
	names := make([]string, len(has))
	for i, f := range has {
		names[i] = c.clean(f.String())
	}
	return nil, fmt.Errorf("the server has the digest functions %s; want BLAKE3 or SHA256", strings.Join(names, ", "))
}

func wireFunc(f cas.Func) repb.DigestFunction_Value {
	switch f {
	case cas.BLAKE3:
		return repb.DigestFunction_BLAKE3
	case cas.SHA256:
		return repb.DigestFunction_SHA256
	}
	return repb.DigestFunction_UNKNOWN
}

func wireDigest(d cas.Digest) *repb.Digest {
	return &repb.Digest{Hash: d.Hex(), SizeBytes: d.Size}
}
