// Package seccomp compiles the list of system calls that a sealed process may
// make into a filter for the Linux kernel.
//
//	tables (call → verdict) ──Number──▶ verdict of each number ──▶ runs ──▶ tree of jumps
//	                                                                            │
//	verdicts that look at arguments ──────────▶ blocks ─────────────────────────┤
//	                                                                            ▼
//	                                                  []Instruction (struct sock_filter)
//
// Vocabulary. A row names a call, its number on each architecture and its
// verdict. A verdict is one answer (go on, or an errno) or a block that looks
// at arguments and then gives one. A run is a stretch of consecutive numbers
// with the same verdict.
//
// What the filter says:
//
//   - architecture first: a call by another architecture's table (int 0x80) or,
//     on amd64, by the x32 table kills the process, since numbers mean something
//     else there;
//   - known and forbidden is EPERM;
//   - anything not on the list is ENOSYS, as on a kernel that doesn't have it:
//     libraries fall back from ENOSYS and give up on EPERM;
//   - clone3 and io_uring are ENOSYS too, for the same reason.
//
// Arguments. The filter sees 64-bit registers; the kernel takes as many bits as
// the parameter's type has. A rule that compared 64 bits of a 32-bit parameter
// would be passed by with garbage in the upper half (CVE-2019-10063), one that
// compared 32 bits of a 64-bit parameter by a value in it. So each rule in
// rules.go states its parameter's type and looks at exactly those bits. What
// lies behind a pointer is never looked at: another thread may change it after
// the filter has.
//
// The result is a pure function of the architecture, on any operating system: a
// verifier compiles it again. No policy varies it. The package knows nothing of installing.
package seccomp

import (
	"fmt"
	"sync"
)

// An Instruction is one of classic BPF, laid out as the kernel's struct
// sock_filter. JT and JF count the instructions to skip.
type Instruction struct {
	Code   uint16
	JT, JF uint8
	K      uint32
}

// The numbers are below this on both architectures: the two tables have been
// growing together, from 424 on. A row beyond it fails the tests.
const numbers = 512

// x32 is the bit that marks a number as of amd64's x32 table.
const x32 = 0x40000000

// A machine is what differs between architectures, beside numbers.
type machine struct {
	audit uint32 // AUDIT_ARCH_*
	x32   bool
	nr    func(row) int32
}

var machines = map[string]machine{
	"amd64": {audit: 0xc000003e, x32: true, nr: func(r row) int32 { return r.amd64 }},
	"arm64": {audit: 0xc00000b7, nr: func(r row) int32 { return r.arm64 }},
}

// Compile returns the filter for an architecture, by Go's name for it.
func Compile(arch string) ([]Instruction, error) {
	m, ok := machines[arch]
	if !ok {
		return nil, fmt.Errorf("compile seccomp filter: no table for architecture %q", arch)
	}
	return program(m, verdicts(m)), nil
}

// Number is the number of a system call, by the kernel's name for it. It is
// false if the architecture doesn't have the call or the package doesn't know
// it. Whether the filter allows the call is another matter.
func Number(arch, name string) (uint32, bool) {
	n, ok := index()[arch][name]
	return n, ok
}

var index = sync.OnceValue(func() map[string]map[string]uint32 {
	all := map[string]map[string]uint32{}
	for arch, m := range machines {
		all[arch] = map[string]uint32{}
		for _, table := range tables {
			for _, r := range table {
				if nr := m.nr(r); nr != none {
					all[arch][r.name] = uint32(nr)
				}
			}
		}
	}
	return all
})

// verdicts spreads the tables over the numbers. What no row names stays
// ENOSYS.
func verdicts(m machine) []verdict {
	vs := make([]verdict, numbers) // all nosys
	for _, table := range tables {
		for _, r := range table {
			if nr := m.nr(r); nr != none {
				vs[nr] = r.verdict
			}
		}
	}
	return vs
}

// program puts the parts together, from the last to the first, see asm.
func program(m machine, vs []verdict) []Instruction {
	var a asm
	a.answers()
	var to [verdictCount]label // one copy of each block
	var rs []run
	add := func(nr int, v verdict) {
		if to[v] == 0 {
			to[v] = a.rule(v)
		}
		if n := len(rs); n == 0 || rs[n-1].to != to[v] {
			rs = append(rs, run{first: uint32(nr), to: to[v]})
		}
	}
	for nr, v := range vs {
		add(nr, v)
	}
	add(len(vs), nosys)
	if m.x32 {
		add(x32, kill)
	}
	tree := a.load(offNumber, a.tree(rs, 0, numbers))
	a.load(offArch, a.jump(jumpEqual, m.audit, tree, a.killed))
	return a.program()
}
