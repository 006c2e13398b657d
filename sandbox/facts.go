package sandbox

import (
	"fmt"
	"strconv"
	"strings"
)

// Facts are what a program is compiled from besides the policy: what the
// machine is and has. They are recorded whole, so that a program can be
// compiled again anywhere.
type Facts struct {
	Arch     string `json:"arch"`     // amd64 or arm64
	Variant  string `json:"variant"`  // who put the seal up: user or root
	Landlock int    `json:"landlock"` // version of its ABI, 0: none
	Cgroup   string `json:"cgroup"`   // v2, v1 or none: what the limits go through
	Proc     string `json:"proc"`     // subset: own /proc with processes only
	// Ceilings are the hard limits of the harness that are low enough to matter:
	// NAME=N, sorted. A seal can only lower limits, so these stay below what a
	// policy or this package sets.
	Ceilings string `json:"ceilings"`
}

// ceiling gives the lower of a limit and the harness's own.
func (f Facts) ceiling(resource int, limit int64) int64 {
	for c := range strings.SplitSeq(f.Ceilings, " ") {
		name, n, _ := strings.Cut(c, "=")
		if name != "" && name == rlimitNames[resource] {
			if hard, err := strconv.ParseInt(n, 10, 64); err == nil && hard < limit {
				return hard
			}
		}
	}
	return limit
}

// rlimitNames are the limits that a seal sets.
var rlimitNames = map[int]string{
	rlimitData: "data", rlimitFsize: "fsize", rlimitMemlock: "memlock", rlimitMsgqueue: "msgqueue", rlimitNice: "nice",
	rlimitNofile: "nofile", rlimitNproc: "nproc", rlimitRtprio: "rtprio", rlimitSigpending: "sigpending", rlimitStack: "stack",
}

// The values of Facts.Variant.
const (
	VariantUser = "user" // maps its own uid
	VariantRoot = "root" // maps a reserved uid of the slot
)

// check refuses facts that no program can be compiled from.
func (f Facts) check() error {
	switch {
	case f.Arch != "amd64" && f.Arch != "arm64":
		return fmt.Errorf("no seal for architecture %q", f.Arch)
	case f.Variant != VariantUser && f.Variant != VariantRoot:
		return fmt.Errorf("no seal for variant %q", f.Variant)
	case f.Landlock < 1 || f.Landlock > 1000:
		return fmt.Errorf("no seal without Landlock (ABI %d)", f.Landlock)
	case f.Proc != "subset":
		return fmt.Errorf("no seal with /proc %q", f.Proc)
	case f.Cgroup != "none" && f.Cgroup != "v1" && f.Cgroup != "v2":
		return fmt.Errorf("no seal with cgroup %q", f.Cgroup)
	}
	return nil
}
