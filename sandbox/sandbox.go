package sandbox

import (
	"context"
	"io"
	"net"
	"sync"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/workspace/graph"
)

// Options are a Sandbox's parts.
type Options struct {
	// Put stores what outputs hold: Store.PutReader of a class.
	Put func(io.Reader) (cas.Digest, error)
	// UIDBase is the first of the 65,536 uids that a root harness gives to running
	// slots; nobody else may have them. 0: DefaultUIDBase.
	UIDBase uint32
	// Resolver and Dial are the egress side's; nil: the system's.
	Resolver egress.Resolver
	Dial     func(ctx context.Context, network, addr string) (net.Conn, error)
}

// DefaultUIDBase is far from what systems, containers and directories hand out.
const DefaultUIDBase = 0x65760000

// A Sandbox runs processes under seals. It may be used by many goroutines.
type Sandbox struct {
	o     Options
	sweep sync.Once // of stages
	platform
}

// New returns a Sandbox. What the machine lacks is told by Run and Probe.
func New(o Options) *Sandbox {
	if o.UIDBase == 0 {
		o.UIDBase = DefaultUIDBase
	}
	return &Sandbox{o: o}
}

func (s *Sandbox) newEgress(allow []graph.Endpoint) *egress.Server {
	return &egress.Server{Allow: allow, Resolver: s.o.Resolver, Dial: s.o.Dial}
}
