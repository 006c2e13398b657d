package graph

import (
	"encoding/binary"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"
)

// SealVersion is the version of what the seal enforces for one policy. It is in
// the key of every run. Raise it on purpose only, when an old result could be
// wrong: every capture that was paid for gets another key.
const SealVersion = 1

// A Policy says what one process may see and use. It is data: all of it is in
// the key, and a seal is compiled from it. The zero Policy allows nothing.
type Policy struct {
	Unsealed bool // --seal=none: no seal at all; such results never leave the machine
	Network  []Endpoint
	Forward  []Forward
	Limits   Limits
}

// Limits bound what a process may use. They are in the key, but captures are
// looked up with limits blanked (RepKey).
type Limits struct {
	Memory    int64 // bytes; files in the scratch folder count where cgroups do
	Scratch   int64 // bytes of files below /scratch
	Output    int64 // bytes of all outputs, and of stdout and stderr each
	Processes int64 // processes and threads at once
	Wall      time.Duration
}

// DefaultLimits are those of a seal that sets none.
var DefaultLimits = Limits{Memory: 1 << 30, Scratch: 1 << 30, Output: 64 << 20, Processes: 256, Wall: 120 * time.Second}

// An Endpoint is an allowed host with its ports: api.example.com, or
// .example.com for every host below it. Host is in canonical form: lower case,
// ASCII, no dot at the end, never an address.
type Endpoint struct {
	Host  string
	Ports []uint16 // sorted, not empty
}

// ParseEndpoint reads HOST, HOST:PORT or HOST:PORT,PORT; the default port is
// 443. Addresses are refused: which one a name has is decided, checked and
// logged when it is dialled.
func ParseEndpoint(s string) (Endpoint, error) {
	if strings.Contains(s, "://") {
		return Endpoint{}, fmt.Errorf("%q is a URL; a host is meant: HOST or HOST:PORT", s)
	}
	host, ports, given := strings.Cut(s, ":")
	if _, err := netip.ParseAddr(strings.Trim(s, "[]")); err == nil {
		return Endpoint{}, fmt.Errorf("%q is an address; name a host, or use forward for a local port", s)
	}
	name, below := strings.CutPrefix(host, ".")
	name, err := CanonicalHost(name)
	if err != nil {
		return Endpoint{}, fmt.Errorf("%q: %w", s, err)
	}
	if below {
		name = "." + name
	}
	e := Endpoint{Host: name}
	if !given {
		ports = "443"
	}
	for p := range strings.SplitSeq(ports, ",") {
		n, err := ParsePort(p)
		if err != nil {
			return Endpoint{}, fmt.Errorf("%q: %v", s, err)
		}
		e.Ports = append(e.Ports, n)
	}
	slices.Sort(e.Ports)
	e.Ports = slices.Compact(e.Ports)
	return e, nil
}

// String writes the endpoint as ParseEndpoint reads it.
func (e Endpoint) String() string {
	ports := make([]string, len(e.Ports))
	for i, p := range e.Ports {
		ports[i] = strconv.Itoa(int(p))
	}
	return e.Host + ":" + strings.Join(ports, ",")
}

// Allows says whether the endpoint covers a host in canonical form and a port.
func (e Endpoint) Allows(host string, port uint16) bool {
	ok := host == e.Host
	if strings.HasPrefix(e.Host, ".") {
		ok = strings.HasSuffix(host, e.Host) && len(host) > len(e.Host)
	}
	return ok && slices.Contains(e.Ports, port)
}

// ProxyPort is where the proxy of a policy with a network listens, inside.
const ProxyPort = 3128

// A Forward carries plain TCP from a port of the process's own loopback to one
// declared target, HOST:PORT as the harness dials it, or hands it to the
// action's server (ServerTarget).
type Forward struct {
	Port   uint16
	Target string
}

// ParseForward checks a port and a target HOST:PORT.
func ParseForward(port int, target string) (Forward, error) {
	if port == ProxyPort {
		return Forward{}, fmt.Errorf("forward: port %d is that of the proxy inside", port)
	}
	if port < 1 || port > 65535 {
		return Forward{}, fmt.Errorf("forward: %d is no port: 1 to 65535", port)
	}
	if target == ServerTarget {
		return Forward{uint16(port), target}, nil
	}
	i := strings.LastIndexByte(target, ':')
	if i < 0 {
		return Forward{}, fmt.Errorf("forward %d: %q is no HOST:PORT", port, target)
	}
	host := target[:i]
	if _, err := ParsePort(target[i+1:]); err != nil {
		return Forward{}, fmt.Errorf("forward %d: %q: %v", port, target, err)
	}
	if _, err := netip.ParseAddr(strings.TrimSuffix(strings.TrimPrefix(host, "["), "]")); err != nil {
		if _, err := CanonicalHost(host); err != nil {
			return Forward{}, fmt.Errorf("forward %d: %q: %v", port, target, err)
		}
	}
	return Forward{uint16(port), target}, nil
}

// SortForward sorts by port, the order in keys and programs.
func SortForward(f []Forward) {
	slices.SortFunc(f, func(a, b Forward) int { return int(a.Port) - int(b.Port) })
}

// walk visits the policy's fields in the order in which they are in the key.
func (p *Policy) walk(w writer) {
	seal := "full"
	if p.Unsealed {
		seal = "none"
	}
	w.field("seal", []byte(seal), seal, "")
	w.field("seal version", binary.AppendUvarint(nil, SealVersion), strconv.Itoa(SealVersion), "")
	for _, e := range p.Network {
		w.field("seal network", []byte(e.String()), e.String(), "")
	}
	for _, f := range p.Forward {
		w.field("seal forward", binary.AppendUvarint([]byte(f.Target+"\x00"), uint64(f.Port)), fmt.Sprintf("%d: %s", f.Port, f.Target), "")
	}
	p.Limits.walk(w)
}

func (l *Limits) walk(w writer) {
	for _, f := range []struct {
		name string
		n    int64
	}{{"memory", l.Memory}, {"scratch", l.Scratch}, {"output", l.Output}, {"processes", l.Processes}} {
		w.field("seal "+f.name, binary.AppendUvarint(nil, uint64(f.n)), l.Named(f.name), "")
	}
	w.field("seal wall", binary.AppendUvarint(nil, uint64(l.Wall)), l.Named("wall"), "")
}
