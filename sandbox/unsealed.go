//go:build unix

package sandbox

import (
	"context"
	"fmt"
	"net"
	"time"

	"github.com/evalbuild/eval/workspace/graph"
)

// runUnsealed runs a process with no seal at all: --seal=none. It can read and
// write what its user can, and the network is open. Its record says so.
func (s *Sandbox) runUnsealed(ctx context.Context, spec Spec) (*Result, error) {
	s.sweep.Do(func() { sweepStages(time.Now()) })
	st, err := newStage(&spec)
	if err != nil {
		return nil, err
	}
	defer st.remove()
	var env []string
	for _, f := range spec.Policy.Forward {
		if f.Target != graph.ServerTarget {
			continue
		}
		_, at, err := serveHere(&spec)
		if err != nil {
			return nil, err
		}
		env = append(env, at)
	}
	res, err := st.run(ctx, &spec, env, func(argv []string) []string { return argv }, s.o.Put)
	if err != nil {
		return nil, err
	}
	res.Record = unsealedRecord(&spec)
	return res, nil
}

// serveHere listens for the action's server on this machine's loopback, where a
// port that is free may be another than the declared one. It returns it, and the
// variable that says where.
func serveHere(spec *Spec) (port int, env string, err error) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, "", fmt.Errorf("listen for a server: %w", err)
	}
	file, err := ln.(*net.TCPListener).File()
	ln.Close() // what is handed out is a copy
	if err == nil {
		err = spec.Serve(file)
	}
	if err != nil {
		return 0, "", fmt.Errorf("listen for a server: %w", err)
	}
	return ln.Addr().(*net.TCPAddr).Port, graph.ServerURL + "=http://" + ln.Addr().String(), nil
}

func unsealedRecord(spec *Spec) Record {
	p := policyRecord(spec.Policy)
	r := Record{
		Schema: recordSchema, Tier: TierNone, SealVersion: graph.SealVersion, Compiler: CompilerVersion, Policy: p, PolicyHash: p.digest(),
		Mounts: mountRecords(spec.Mounts), Folders: append([]string{}, outputFolders(spec.Outputs)...), Limits: "none", Kernel: kernel(),
		Notes: []string{"unsealed: only the wall limit and the size of outputs were enforced"},
		NotSealed: []string{
			"everything: files, processes and network of the user who ran it, the inputs' own files among them",
			"processes that left the session, which are not counted as survivors", "connections, which are not logged",
		},
	}
	for _, name := range LayerNames {
		r.Layers = append(r.Layers, Layer{Name: name, State: Absent})
	}
	return r
}
