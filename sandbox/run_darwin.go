package sandbox

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/evalbuild/eval/sandbox/egress"
	"github.com/evalbuild/eval/sandbox/seatbelt"
	"github.com/evalbuild/eval/workspace/graph"
)

// sandboxExec is named by its place: nothing is looked up in PATH.
const sandboxExec = "/usr/bin/sandbox-exec"

// platform is what a Sandbox keeps on macOS: nothing.
type platform struct{}

// Close removes what a Sandbox keeps between runs: here nothing.
func (s *Sandbox) Close() {}

// Run runs one process under a seatbelt profile. It was never run on a Mac.
func (s *Sandbox) Run(ctx context.Context, spec Spec) (*Result, error) {
	if spec.Policy.Unsealed {
		return s.runUnsealed(ctx, spec)
	}
	if _, err := os.Stat(sandboxExec); err != nil {
		return nil, &UnavailableError{Layer: "root", Err: err}
	}
	s.sweep.Do(func() { sweepStages(time.Now()) })
	st, err := newStage(&spec)
	if err != nil {
		return nil, err
	}
	defer st.remove()
	e, err := s.listen(&spec)
	if err != nil {
		return nil, err
	}
	defer e.close()
	profile, err := seatbelt.Profile(seatbelt.Params{
		Policy: spec.Policy, Mounts: resolvedMounts(spec.Mounts), Root: st.root, Scratch: st.root + "/scratch",
		ProxyPort: e.proxy, ForwardPorts: e.forwards,
	})
	if err != nil {
		return nil, err
	}
	record, err := seatbeltRecord(Plan{Policy: spec.Policy, Mounts: spec.Mounts, Folders: outputFolders(spec.Outputs), Listener: spec.Listener}, kernel())
	if err != nil {
		return nil, err
	}
	wrap := func(argv []string) []string { return append([]string{sandboxExec, "-p", profile}, argv...) }
	res, err := st.run(ctx, &spec, e.env(), wrap, s.o.Put)
	if err != nil {
		return nil, err
	}
	res.Record, res.Egress = record, e.close()
	return res, nil
}

// resolvedMounts drops links: where a profile grants a file, it is by its
// resolved path.
func resolvedMounts(mounts []graph.Mount) []graph.Mount {
	var out []graph.Mount
	for _, m := range mounts {
		if m.Link == "" {
			out = append(out, m)
		}
	}
	return out
}

// listeners are the ways out, on the host's loopback: the profile allows these
// ports and no other.
type listeners struct {
	server   *egress.Server
	proxy    int
	forwards []int
	at       []string // variables: where the action's server is
	done     []egress.Attempt
}

func (s *Sandbox) listen(spec *Spec) (*listeners, error) {
	l := &listeners{server: s.newEgress(spec.Policy.Network)}
	if spec.Listener || len(spec.Policy.Network) > 0 {
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return nil, fmt.Errorf("listen for the proxy: %w", err)
		}
		l.proxy = ln.Addr().(*net.TCPAddr).Port
		l.server.ServeProxy(ln)
	}
	for _, f := range spec.Policy.Forward {
		if f.Target == graph.ServerTarget {
			port, at, err := serveHere(spec)
			if err != nil {
				l.close()
				return nil, err
			}
			l.forwards, l.at = append(l.forwards, port), append(l.at, at)
			continue
		}
		ln, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(int(f.Port)))
		if err != nil {
			l.close()
			return nil, fmt.Errorf("listen for forward %d: %w", f.Port, err)
		}
		l.forwards = append(l.forwards, int(f.Port))
		l.server.ServeForward(ln, f)
	}
	return l, nil
}

// env points the proxy variables at the port that was free.
func (l *listeners) env() []string {
	if l.proxy == 0 {
		return l.at
	}
	url := "http://127.0.0.1:" + strconv.Itoa(l.proxy)
	return append(l.at, "HTTPS_PROXY="+url, "HTTP_PROXY="+url, "https_proxy="+url, "http_proxy="+url)
}

func (l *listeners) close() []egress.Attempt {
	if l.server != nil {
		l.done = l.server.Close()
		l.server = nil
	}
	return l.done
}

// Probe finds out by doing whether sandbox-exec works here.
func (s *Sandbox) Probe() []Finding {
	spec := Spec{Args: []string{"/usr/bin/true"}, Policy: graph.Policy{Limits: graph.DefaultLimits}, Mounts: []graph.Mount{{Path: "/usr/bin/true", Source: "/usr/bin/true", Executable: true}}}
	_, err := s.Run(context.Background(), spec)
	var out []Finding
	for _, name := range LayerNames {
		f := Finding{Layer: name, Live: err == nil && seatbeltStates[name] != "", State: Applied}
		switch {
		case err != nil:
			f.State = err.Error()
			f.Hint = "a seatbelt can't be put on inside of another: sandbox_apply EPERM means nested"
		case !f.Live:
			f.State = Absent
			f.Cause = "macOS has nothing for it: the tier is " + TierSeatbelt + ", below full"
		}
		out = append(out, f)
	}
	return out
}
