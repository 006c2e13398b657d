package sandbox

import (
	"encoding/hex"
	"fmt"

	"github.com/zeebo/blake3"

	"github.com/evalbuild/eval/sandbox/seatbelt"
	"github.com/evalbuild/eval/workspace/graph"
)

// TierSeatbelt is what a Mac gives: files, network and writes confined by
// sandbox-exec; processes, names and limits not. It is below full.
const TierSeatbelt = "seatbelt"

// seatbeltStates are the layers of a Mac's seal. Nothing can be read back, so
// what there is, is applied. It was never run on a Mac: see package seatbelt.
var seatbeltStates = map[string]string{
	"root": Applied, "dev": Applied, "fds": Applied, "env": Applied, "session": Applied,
	"reap": Applied, "egress": Applied, "limits": Applied,
}

// symbolicRoot stands for the stage in the profile that is hashed, so that one
// policy has one profile on all Macs.
const symbolicRoot = "/eval"

// seatbeltProgram is the digest of the profile with symbolic paths.
func seatbeltProgram(p Plan) (string, error) {
	params := seatbelt.Params{
		Policy: p.Policy, Root: symbolicRoot, Scratch: symbolicRoot + "/scratch",
		Mounts: stagedMounts(p.Mounts, symbolicRoot),
	}
	if p.Listener || len(p.Policy.Network) > 0 {
		params.ProxyPort = ProxyPort
	}
	for _, f := range p.Policy.Forward {
		params.ForwardPorts = append(params.ForwardPorts, int(f.Port))
	}
	profile, err := seatbelt.Profile(params)
	if err != nil {
		return "", err
	}
	sum := blake3.Sum256([]byte(profile))
	return hex.EncodeToString(sum[:]), nil
}

// stagedMounts are the mounts with sources as they would be below a root: of
// inputs there, of host tools where they always are.
func stagedMounts(mounts []graph.Mount, root string) []graph.Mount {
	out := make([]graph.Mount, len(mounts))
	for i, m := range mounts {
		if m.Link == "" {
			m.Source = m.Path
			if top(m.Path) == InDir {
				m.Source = root + m.Path
			}
		}
		out[i] = m
	}
	return out
}

// seatbeltRecord is the record of a run under a profile.
func seatbeltRecord(p Plan, kernel Kernel) (Record, error) {
	program, err := seatbeltProgram(p)
	if err != nil {
		return Record{}, fmt.Errorf("record the seal: %w", err)
	}
	pol := policyRecord(p.Policy)
	r := Record{
		Schema: recordSchema, Tier: TierSeatbelt, SealVersion: graph.SealVersion, Compiler: CompilerVersion, Policy: pol, PolicyHash: pol.digest(),
		Mounts: mountRecords(p.Mounts), Folders: append([]string{}, p.Folders...), Listener: p.Listener, Facts: p.Facts, Program: program,
		Limits: "none", Kernel: kernel,
		Notes: []string{"only the wall limit and the size of outputs were enforced"},
		NotSealed: append([]string{
			"other processes can be seen, though not signalled", "the host's name", "ports of the host's loopback that are named",
		}, notSealed...),
	}
	for _, name := range LayerNames {
		state := seatbeltStates[name]
		if state == "" {
			state = Absent
		}
		r.Layers = append(r.Layers, Layer{Name: name, State: state})
	}
	return r, nil
}
