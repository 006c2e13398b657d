package sandbox

import (
	"bytes"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"
	"time"

	"github.com/zeebo/blake3"

	"github.com/evalbuild/eval/cas"
	"github.com/evalbuild/eval/workspace/graph"
)

// A Record says what was enforced on one process: seal.json. It is testimony
// of the harness that ran it. Verify compiles the program again from it; what
// that proves, and what not, is Proves.
type Record struct {
	Schema      int      `json:"schema"`
	Tier        string   `json:"tier"`
	SealVersion int      `json:"seal_version"`
	Compiler    int      `json:"compiler"` // version of what made the program of the policy
	Policy      Policy   `json:"policy"`
	PolicyHash  string   `json:"policy_digest"`
	Mounts      []Mount  `json:"mounts"`
	Folders     []string `json:"folders"`  // made below the working directory, for outputs
	Listener    bool     `json:"listener"` // egress was listened for, so that attempts are known
	Facts       Facts    `json:"facts"`
	Program     string   `json:"program_digest"`
	Layers      []Layer  `json:"layers"`
	Limits      string   `json:"limits"` // grade: hard, per-process or none
	Notes       []string `json:"notes"`  // what of the limits is soft, and why
	Kernel      Kernel   `json:"kernel"`
	NotSealed   []string `json:"not_sealed"`
}

// The tiers of a seal; TierSeatbelt is between them.
const (
	TierFull = "full" // all confinement layers; limits are graded apart
	TierNone = "none" // unsealed
)

// recordSchema is the version of Record's form.
const recordSchema = 1

// CompilerVersion is raised whenever Compile makes another program of the same
// plan: the golden programs tell. It is in records and not in keys, other than
// graph.SealVersion, so that a fix doesn't orphan what was paid for; a record of
// another version can't be verified, which is said, and is no fault.
const CompilerVersion = 1

// A Policy is a graph.Policy as records write it.
type Policy struct {
	Network   []string          `json:"network"`
	Forward   map[string]string `json:"forward"`
	Memory    int64             `json:"memory"`
	Processes int64             `json:"processes"`
	Scratch   int64             `json:"scratch"`
	Output    int64             `json:"output"`
	Wall      string            `json:"wall"`
}

// A Mount is a graph.Mount as records write it: without the place on the host.
type Mount struct {
	Path       string `json:"path"`
	Digest     string `json:"digest,omitempty"`
	Executable bool   `json:"executable,omitempty"`
	Folder     bool   `json:"folder,omitempty"`
	Link       string `json:"link,omitempty"`
}

// How a layer is known to have been there, the strongest first.
const (
	Observed = "observed" // read from /proc of the process, from outside
	Probed   = "probed"   // a call inside, through all layers, was refused as it must be
	Applied  = "applied"  // its rows returned 0; nothing more can be known of it
	Absent   = "absent"
)

// A Layer is one layer of a seal and how it is known.
type Layer struct {
	Name   string `json:"name"`
	State  string `json:"state"`
	Detail string `json:"detail,omitempty"`
}

// layerState is how a layer is known on Linux. That it is so of a run is
// checked before its target starts.
func layerState(f Facts, name string) string {
	switch name {
	case "user", "mount", "pid", "net", "ipc", "uts", "cgroup", "caps", "seccomp", "limits", "session", "env":
		return Observed
	case "fds":
		// An ordinary user can't list the descriptors of a process that isn't
		// dumpable.
		if f.Variant == VariantRoot {
			return Observed
		}
		return Probed
	case "root", "proc", "dev", "landlock":
		return Probed
	}
	return Applied
}

// Kernel says what ran below the seal; programs don't depend on it.
type Kernel struct {
	System  string `json:"system"` // linux, darwin
	Release string `json:"release"`
	Machine string `json:"machine"`
}

// LayerNames are the layers of a seal in the order in which people read them.
var LayerNames = []string{
	"user", "mount", "pid", "net", "ipc", "uts", "cgroup", "root", "proc", "dev",
	"caps", "seccomp", "landlock", "limits", "fds", "env", "session", "reap", "egress",
}

// notSealed is what no layer of ours hides or fixes.
var notSealed = []string{
	"wall clock", "CPU model and count", "kernel release", "process ids", "addresses (ASLR) and random bytes",
	"order of entries in bound folders of the host, and what is put there meanwhile, sockets too", "when others use files that are bound (inotify, access times, locks)",
	"host paths, devices and the outer uid in /proc/self/mountinfo, the harness's process id in /proc/self/cgroup",
	"the machine's memory, load and uptime (sysinfo), the size of its file systems", "the owner of inputs: eval or nobody", "priority, scheduling and limits on CPU time and address space, which are the harness's",
	"traffic inside of an allowed TLS session, domain fronting included",
	"tools that a provider runs on its side",
	"direct connection attempts: they meet no route and leave no trace",
}

// policyRecord writes a policy as records do.
func policyRecord(p graph.Policy) Policy {
	l := p.Limits
	r := Policy{
		Network: []string{}, Forward: map[string]string{},
		Memory: l.Memory, Processes: l.Processes, Scratch: l.Scratch, Output: l.Output, Wall: l.Wall.String(),
	}
	for _, e := range p.Network {
		r.Network = append(r.Network, e.String())
	}
	for _, f := range p.Forward {
		r.Forward[strconv.Itoa(int(f.Port))] = f.Target
	}
	return r
}

// policy reads a policy back; what graph would not accept is an error.
func (p Policy) policy() (graph.Policy, error) {
	wall, err := time.ParseDuration(p.Wall)
	if err != nil {
		return graph.Policy{}, err
	}
	out := graph.Policy{Limits: graph.Limits{Memory: p.Memory, Scratch: p.Scratch, Output: p.Output, Processes: p.Processes, Wall: wall}}
	for _, n := range p.Network {
		e, err := graph.ParseEndpoint(n)
		if err != nil {
			return out, err
		}
		out.Network = append(out.Network, e)
	}
	for port, target := range p.Forward {
		n, err := strconv.Atoi(port)
		if err != nil {
			return out, err
		}
		f, err := graph.ParseForward(n, target)
		if err != nil {
			return out, err
		}
		out.Forward = append(out.Forward, f)
	}
	graph.SortForward(out.Forward)
	return out, nil
}

// digest is the BLAKE3 of the policy's canonical JSON, in hexadecimal.
func (p Policy) digest() string {
	b, _ := json.Marshal(p) // strings, numbers, and maps, which are sorted
	sum := blake3.Sum256(b)
	return hex.EncodeToString(sum[:])
}

func mountRecords(mounts []graph.Mount) []Mount {
	out := []Mount{}
	for _, m := range mounts {
		r := Mount{Path: m.Path, Link: m.Link, Folder: m.Tree != nil, Executable: m.Executable}
		if m.Link == "" {
			r.Digest = m.Digest.String()
		}
		out = append(out, r)
	}
	return out
}

// Encode writes the record as canonical JSON with a newline at the end.
func (r Record) Encode() []byte {
	b, err := json.Marshal(r)
	if err != nil {
		panic(err) // strings and numbers
	}
	var tree any
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.UseNumber()
	if err := dec.Decode(&tree); err != nil {
		panic(err)
	}
	var out bytes.Buffer
	enc := json.NewEncoder(&out) // through a map: keys sorted
	enc.SetEscapeHTML(false)
	if err := enc.Encode(tree); err != nil {
		panic(err)
	}
	return out.Bytes()
}

// DecodeRecord reads a record; unknown fields are errors.
func DecodeRecord(b []byte) (Record, error) {
	var r Record
	dec := json.NewDecoder(bytes.NewReader(b))
	dec.DisallowUnknownFields()
	err := dec.Decode(&r)
	if _, more := dec.Token(); err == nil && more != io.EOF {
		err = errors.New("more follows after the record")
	}
	if err != nil {
		return Record{}, fmt.Errorf("decode seal record: %w", err)
	}
	return r, nil
}

// ErrUnverifiable is of a record of a seal version that this program doesn't
// compile any more, or doesn't yet.
var ErrUnverifiable = errors.New("this version of eval does not compile such a seal")

// Proves says what a verified record means, for people.
const Proves = "this proves that it follows from the recorded policy, mounts and facts, and each layer is recorded as live; " +
	"not that it ran, where, or that what was observed is true: for that the harness vouches, and whoever signed the result"

// Verify compiles the record's program again, on any system, and compares.
func (r Record) Verify() error {
	if err := r.verify(); err != nil {
		return fmt.Errorf("verify seal record: %w", err)
	}
	return nil
}

func (r Record) verify() error {
	switch {
	case r.Schema != recordSchema || r.SealVersion != graph.SealVersion || r.Compiler != CompilerVersion:
		return fmt.Errorf("schema %d, seal version %d, compiler %d: %w", r.Schema, r.SealVersion, r.Compiler, ErrUnverifiable)
	case r.Tier != TierFull && r.Tier != TierSeatbelt:
		return fmt.Errorf("tier %q is no seal", r.Tier)
	case r.Policy.digest() != r.PolicyHash:
		return fmt.Errorf("the policy has another digest than the one recorded")
	}
	policy, err := r.Policy.policy()
	if err != nil {
		return fmt.Errorf("policy: %w", err)
	}
	plan := Plan{Policy: policy, Folders: r.Folders, Listener: r.Listener, Facts: r.Facts}
	for _, m := range r.Mounts {
		g := graph.Mount{Path: m.Path, Link: m.Link, Executable: m.Executable}
		if m.Link == "" {
			if g.Digest, err = cas.ParseDigest(m.Digest); err != nil {
				return fmt.Errorf("mount %s: %w", m.Path, err)
			}
			g.Source = m.Path
		}
		if m.Folder {
			g.Tree = new(cas.Tree)
		}
		plan.Mounts = append(plan.Mounts, g)
	}
	if r.Tier == TierSeatbelt {
		return r.verifySeatbelt(plan)
	}
	prog, err := Compile(plan)
	if err != nil {
		return err
	}
	if d := prog.Digest(); d != r.Program {
		return fmt.Errorf("the program compiles to %.12s…, recorded is %.12s…", d, r.Program)
	}
	if want := grade(r.Facts); r.Limits != want {
		return fmt.Errorf("limits are graded %q; with cgroup %q they are %q", r.Limits, r.Facts.Cgroup, want)
	}
	if len(r.Layers) != len(LayerNames) {
		return fmt.Errorf("%d layers are recorded, not %d", len(r.Layers), len(LayerNames))
	}
	for i, l := range r.Layers {
		if want := layerState(r.Facts, LayerNames[i]); l.Name != LayerNames[i] || l.State != want {
			return fmt.Errorf("layer %s is recorded as %q, not %q", l.Name, l.State, want)
		}
	}
	if !slices.Equal(r.Notes, limitNotes(r.Facts)) || !slices.Equal(r.NotSealed, notSealed) {
		return errors.New("what is not sealed is recorded as something else")
	}
	return nil
}

// VerifyRecord verifies a record and that it is of a run of the spec: of that
// policy, with those mounts. Sources of mounts don't count.
func VerifyRecord(b []byte, spec Spec) error {
	r, err := DecodeRecord(b)
	if err != nil {
		return err
	}
	if err := r.Verify(); err != nil {
		return err
	}
	want := policyRecord(spec.Policy)
	switch {
	case r.PolicyHash != want.digest():
		return errors.New("verify seal record: it is of another policy")
	case !slices.Equal(r.Mounts, mountRecords(spec.Mounts)):
		return errors.New("verify seal record: other things were inside than the action's inputs and tools")
	case r.Listener != spec.Listener || !slices.Equal(r.Folders, outputFolders(spec.Outputs)):
		return errors.New("verify seal record: it is of another run")
	}
	return nil
}

func (r Record) verifySeatbelt(plan Plan) error {
	want, err := seatbeltRecord(plan, r.Kernel)
	if err != nil {
		return err
	}
	if !bytes.Equal(want.Encode(), r.Encode()) {
		return fmt.Errorf("the policy renders to another profile than the one recorded, or layers are recorded that a Mac doesn't have")
	}
	return nil
}

// grade says how the limits hold.
func grade(f Facts) string {
	if f.Cgroup == "none" {
		return "per-process"
	}
	return "hard"
}

// limitNotes says what of the limits is soft.
func limitNotes(f Facts) []string {
	if f.Cgroup == "none" {
		return []string{
			"memory: per-process only (RLIMIT_DATA); files in memory and shared memory don't count",
			"processes: RLIMIT_NPROC of the user namespace",
		}
	}
	if f.Cgroup == "v1" {
		return []string{"memory: buffers of sockets don't count in v1 groups"}
	}
	return []string{}
}
