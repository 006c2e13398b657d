package seccomp

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"unsafe"
)

var arches = []string{"amd64", "arm64"}

func compile(t *testing.T, arch string) []Instruction {
	t.Helper()
	p, err := Compile(arch)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func each(t *testing.T, f func(t *testing.T, arch string, p []Instruction)) {
	for _, arch := range arches {
		t.Run(arch, func(t *testing.T) { f(t, arch, compile(t, arch)) })
	}
}

func errno(e uint32) uint32 { return retErrno | e }

func show(value uint32) string {
	switch {
	case value == retAllow:
		return "allow"
	case value == retKill:
		return "kill"
	case value&0xffff0000 == retErrno:
		return fmt.Sprintf("errno %d", value&0xffff)
	}
	return fmt.Sprintf("%#x", value)
}

func expect(t *testing.T, p []Instruction, c call, what string, want uint32) {
	t.Helper()
	if got, _ := simulate(p, c); got != want {
		t.Errorf("%s (number %d, arguments %#x): %s, want %s", what, c.nr, c.args, show(got), show(want))
	}
}

func TestUnknownArchitecture(t *testing.T) {
	if _, err := Compile("riscv64"); err == nil || !strings.Contains(err.Error(), "riscv64") {
		t.Errorf("Compile for riscv64: %v", err)
	}
	if _, ok := Number("riscv64", "read"); ok {
		t.Error("Number knows riscv64")
	}
}

func TestProgramIsValid(t *testing.T) {
	if size := unsafe.Sizeof(Instruction{}); size != 8 {
		t.Errorf("an Instruction has %d bytes, struct sock_filter 8", size)
	}
	each(t, func(t *testing.T, arch string, p []Instruction) {
		if err := validate(p); err != nil {
			t.Error(err)
		}
		// What the kernel does at each spawn: translate it, and read it for each
		// number. A sudden growth should be on purpose.
		steps := 0
		for nr := range uint32(numbers) {
			_, n := simulate(p, call{arch: machines[arch].audit, nr: nr})
			steps += n
		}
		t.Logf("%d instructions, %d steps", len(p), steps)
		if len(p) > 180 || steps > 6000 {
			t.Errorf("%d instructions, %d steps to read it for %d numbers", len(p), steps, numbers)
		}
		again := compile(t, arch)
		if fmt.Sprint(p) != fmt.Sprint(again) {
			t.Error("two compilations differ")
		}
	})
}

// TestAgainstTables holds the tree against the plain meaning of the tables, for
// each number.
func TestAgainstTables(t *testing.T) {
	each(t, func(t *testing.T, arch string, p []Instruction) {
		m := machines[arch]
		want := map[uint32]verdict{}
		for _, table := range tables {
			for _, r := range table {
				if nr := m.nr(r); nr != none {
					want[uint32(nr)] = r.verdict
				}
			}
		}
		for nr := range uint32(1024) {
			c := call{arch: m.audit, nr: nr}
			switch v, listed := want[nr]; {
			case !listed || v == nosys:
				expect(t, p, c, "unlisted", errno(38))
			case v == deny:
				expect(t, p, c, "denied", errno(1))
			case v == allow:
				expect(t, p, c, "allowed", retAllow)
				// Allowed without a look at arguments, or the kernel's bitmap misses it.
				c.args = [6]uint64{1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63, 1 << 63}
				expect(t, p, c, "allowed", retAllow)
			}
		}
	})
}

func TestNumbersBeyondTheTables(t *testing.T) {
	each(t, func(t *testing.T, arch string, p []Instruction) {
		audit := machines[arch].audit
		for _, nr := range []uint32{472, 511, 512, 999, 1 << 16, 0x3fffffff} {
			expect(t, p, call{arch: audit, nr: nr}, "unknown number", errno(38))
		}
		high := uint32(retKill) // x32
		if arch == "arm64" {
			high = errno(38)
		}
		for _, nr := range []uint32{0x40000000, 0x40000001, 0x40000000 + 39, 0x40000000 + 547, 0x80000000, 0xffffffff} {
			expect(t, p, call{arch: audit, nr: nr}, "x32 number", high)
		}
	})
}

func TestForeignArchitecture(t *testing.T) {
	each(t, func(t *testing.T, arch string, p []Instruction) {
		foreign := []uint32{0, 0x40000003 /* i386 */, 0x40000028 /* arm */, 0xc000003e, 0xc00000b7, 0xc00000f3 /* riscv64 */}
		for _, audit := range foreign {
			if audit == machines[arch].audit {
				continue
			}
			for _, nr := range []uint32{0, 1, 20, 39, 63, 93, 172, 999, 0x40000000} {
				expect(t, p, call{arch: audit, nr: nr}, fmt.Sprintf("architecture %#x", audit), retKill)
			}
		}
	})
}

// TestFarJumps: a program longer than 8-bit jumps reach, which the real one is
// not yet.
func TestFarJumps(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	plain := []verdict{allow, deny, nosys, mknodMode, mknodatMode, socketDomain, personalityValue}
	value := map[verdict]uint32{
		allow: retAllow, deny: errno(1), nosys: errno(38),
		// With all arguments 0.
		mknodMode: retAllow, mknodatMode: retAllow, socketDomain: errno(97), personalityValue: retAllow,
	}
	longest := 0
	for range 20 {
		vs := make([]verdict, numbers)
		for i := range vs {
			vs[i] = plain[rnd.IntN(len(plain))]
		}
		m := machines["amd64"]
		p := program(m, vs)
		longest = max(longest, len(p))
		if err := validate(p); err != nil {
			t.Fatal(err)
		}
		for nr, v := range vs {
			expect(t, p, call{arch: m.audit, nr: uint32(nr)}, "random table", value[v])
		}
		expect(t, p, call{arch: m.audit, nr: numbers}, "random table", errno(38))
		expect(t, p, call{arch: m.audit, nr: x32}, "random table", retKill)
	}
	if longest < 400 {
		t.Errorf("the longest program has %d instructions: it tests nothing", longest)
	}
}

// TestJumpsAtTheLimit: a relay for one target may push the other out of reach.
func TestJumpsAtTheLimit(t *testing.T) {
	for between := range 260 {
		for after := 250; after < 260; after++ {
			var a asm
			no := a.ret(1)
			for range between {
				a.ret(3)
			}
			yes := a.ret(2)
			for range after {
				a.ret(3)
			}
			for _, swap := range []bool{false, true} {
				b := asm{rev: slices.Clone(a.rev)}
				one, other := yes, no
				if swap {
					one, other = no, yes
				}
				b.load(offNumber, b.jump(jumpEqual, 7, one, other))
				p := b.program()
				equal, _ := simulate(p, call{nr: 7})
				differs, _ := simulate(p, call{nr: 8})
				if want := [2]uint32{a.rev[one-1].K, a.rev[other-1].K}; want != [2]uint32{equal, differs} {
					t.Fatalf("between %d, after %d, swap %t: %d and %d, want %d", between, after, swap, equal, differs, want)
				}
			}
		}
	}
}
