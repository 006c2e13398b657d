package pid1

import (
	"encoding/hex"
	"testing"
)

// The bytes were read back with objdump when they were written down.
func TestEncoding(t *testing.T) {
	for _, tt := range []struct {
		name         string
		emit         func(*program)
		amd64, arm64 string
	}{
		{
			"sp", func(p *program) { p.stackPointer(rA) },
			"4889e3",
			"f3030091",
		},
		{
			"move reg", func(p *program) { p.move(rD, rA) },
			"4989df",
			"f60313aa",
		},
		{
			"move 0", func(p *program) { p.move(rA, imm(0)); p.move(rB, imm(0)) },
			"31db4531ed",
			"130080d2140080d2",
		},
		{
			"move 64 bits", func(p *program) { p.move(rB, imm(0x123456789abcdef0)) },
			"49bdf0debc9a78563412",
			"14de9bd29457b3f214cfcaf29446e2f2",
		},
		{
			"move 32 bits", func(p *program) { p.move(rA, imm(0xfffffffe)); p.move(rC, imm(stateBase)) },
			"bbfeffffff41be00000110",
			"d3ff9fd2f3ffbff23500a2d2",
		},
		{
			"move negative", func(p *program) { p.move(rA, imm(-1)); p.move(rC, imm(-100)); p.move(rA, imm(-0x10000)) },
			"48c7c3ffffffff49c7c69cffffff48c7c30000ffff",
			"13008092750c8092f3ff9f92",
		},
		{
			"add", func(p *program) { p.add(rA, rD); p.add(rB, imm(1)); p.add(rS, imm(1000)) },
			"4c01fb4983c5014881c5e8030000",
			"7302168b290080d29402098b097d80d2f702098b",
		},
		{
			"sub", func(p *program) { p.sub(rA, rB); p.sub(rA, imm(-1)); p.sub(rC, imm(1e9)) },
			"4c29eb4883ebff4981ee00ca9a3b",
			"730214cb09008092730209cb094099d24973a7f2b50209cb",
		},
		{
			"and", func(p *program) { p.and(rA, rB); p.and(rC, imm(0x7f)); p.and(rC, imm(0xff00)) },
			"4c21eb4983e67f4981e600ff0000",
			"7302148ae90f80d2b502098a09e09fd2b502098a",
		},
		{
			"mul", func(p *program) { p.mul(rC, imm(8)); p.mul(rA, imm(1000000)) },
			"4d69f6080000004869db40420f00",
			"090180d2b57e099b094888d2e901a0f2737e099b",
		},
		{
			"load", func(p *program) { p.load(rA, 8); p.load(rD, 0x108); p.loadAt(rC, rB, 16) },
			"488b5d084c8bbd080100004d8b7510",
			"f30640f9f68640f9950a40f9",
		},
		{
			"load 32", func(p *program) { p.loadW(rA, 4); p.loadW(rC, 0x104) },
			"48635d044c63b504010000",
			"f30680b9f50681b9",
		},
		{
			"store", func(p *program) { p.store(8, rA); p.store(0x108, rD); p.store(0, imm(0)) },
			"48895d084c89bd0801000031c048894500",
			"f30600f9f68600f9ff0200f9",
		},
		{
			"store 32", func(p *program) { p.storeW(4, rA); p.storeW(0x104, rC); p.storeW(0, imm(7)) },
			"895d044489b504010000b807000000894500",
			"f30600b9f50601b9e90080d2e90200b9",
		},
		{
			"branch", func(p *program) {
				l := p.here()
				for _, c := range []cond{eq, ne, lt, ge, gt, le} {
					p.branch(rA, c, rB, l)
				}
				p.branch(rC, eq, imm(-4), l)
				p.branch(rC, lt, imm(1e9), l)
			},
			"4c39eb0f84f7ffffff4c39eb0f85eeffffff4c39eb0f8ce5ffffff4c39eb0f8ddcffffff4c39eb0f8fd3ffffff4c39eb0f8ecaffffff4983fefc0f84c0ffffff4981fe00ca9a3b0f8cb3ffffff",
			"7f0214ebe0ffff547f0214eba1ffff547f0214eb6bffff547f0214eb2affff547f0214ebecfeff547f0214ebadfeff5469008092bf0209eb40feff54094099d24973a7f2bf0209ebcbfdff54",
		},
		{
			"forward", func(p *program) {
				l := p.newLabel()
				p.jump(l)
				p.branch(rA, ge, imm(0), l)
				p.place(l)
				p.jump(l)
			},
			"e90a0000004883fb000f8d00000000e9fbffffff",
			"030000147f021feb2a00005400000014",
		},
		{
			"call", func(p *program) {
				p.call("prlimit64", rB, imm(0), imm(-1), rS, imm(stateBase), rC)
			},
			"4c89ef31f648c7c2ffffffff4989ea41b8000001104d89f1b82e0100000f054889c3",
			"e00314aa010080d202008092e30317aa2400a2d2e50315aaa82080d2010000d4f30300aa",
		},
	} {
		p := &program{}
		tt.emit(p)
		for _, be := range []struct {
			name string
			*backend
			want string
		}{{"amd64", amd64, tt.amd64}, {"arm64", arm64, tt.arm64}} {
			got, err := assemble(p, be.backend)
			if err != nil {
				t.Errorf("%s: %s: %v", tt.name, be.name, err)
			}
			if s := hex.EncodeToString(got); s != be.want {
				t.Errorf("%s: %s: got %s", tt.name, be.name, s)
			}
		}
	}
}

func TestEncodingRefuses(t *testing.T) {
	for name, emit := range map[string]func(*program){
		"unknown call":        func(p *program) { p.call("reboot") },
		"label never placed":  func(p *program) { p.jump(p.newLabel()) },
		"label placed twice":  func(p *program) { l := p.here(); p.place(l) },
		"unaligned offset":    func(p *program) { p.load(rA, 4) },
		"offset out of reach": func(p *program) { p.load(rA, 1<<20) },
	} {
		p := &program{}
		emit(p)
		if _, err := assemble(p, arm64); err == nil {
			t.Errorf("arm64: %s: encoded", name)
		}
	}
	for name, emit := range map[string]func(*program){
		"wide immediate": func(p *program) { p.add(rA, imm(1<<40)) },
		"mul by reg":     func(p *program) { p.mul(rA, rB) },
	} {
		p := &program{}
		emit(p)
		if _, err := assemble(p, amd64); err == nil {
			t.Errorf("amd64: %s: encoded", name)
		}
	}
}
