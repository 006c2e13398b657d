//go:build unix

package sandbox

import (
	"context"
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
	res, err := st.run(ctx, &spec, nil, func(argv []string) []string { return argv }, s.o.Put)
	if err != nil {
		return nil, err
	}
	res.Record = unsealedRecord(&spec)
	return res, nil
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
