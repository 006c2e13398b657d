package seccomp

import "slices"

// Codes of classic BPF, those that we use. The kernel's own reading of a filter
// (seccomp_is_const_allow, which fills a bitmap of the calls that are allowed
// whatever their arguments, and which skip the filter from then on) knows no
// others: one shift or table look-up, and every call would run the filter.
const (
	loadWord    = 0x20 // BPF_LD|BPF_W|BPF_ABS
	jumpAlways  = 0x05 // BPF_JMP|BPF_JA
	jumpEqual   = 0x15 // BPF_JMP|BPF_JEQ|BPF_K
	jumpAtLeast = 0x35 // BPF_JMP|BPF_JGE|BPF_K
	jumpAnyBit  = 0x45 // BPF_JMP|BPF_JSET|BPF_K
	andConst    = 0x54 // BPF_ALU|BPF_AND|BPF_K
	returnConst = 0x06 // BPF_RET|BPF_K
)

// Offsets in struct seccomp_data. Both architectures are little-endian.
const (
	offNumber = 0
	offArch   = 4
	offArgs   = 16
)

func low(arg uint32) uint32  { return offArgs + 8*arg }
func high(arg uint32) uint32 { return offArgs + 8*arg + 4 }

// A label is an instruction's distance from the end of the program; the last
// one's is 1.
type label int

// An asm writes a program from its last instruction to its first. BPF jumps
// only forward, so the target of a jump stands before the jump is written: no
// second pass. Calls nest as the program runs: load(x, jump(…, yes, no)).
type asm struct {
	rev   []Instruction
	relay map[label]label // the nearest unconditional jump to a label

	allowed, denied, unknown, killed label // the ends, see answers
}

func (a *asm) program() []Instruction {
	p := slices.Clone(a.rev)
	slices.Reverse(p)
	return p
}

func (a *asm) emit(i Instruction) label {
	a.rev = append(a.rev, i)
	return label(len(a.rev))
}

// skip is how many instructions stand between to and one written now.
func (a *asm) skip(to label) int { return len(a.rev) - int(to) }

// then makes what follows the next instruction be to.
func (a *asm) then(to label) {
	if a.skip(to) > 0 {
		a.emit(Instruction{Code: jumpAlways, K: uint32(a.skip(to))})
	}
}

func (a *asm) ret(value uint32) label { return a.emit(Instruction{Code: returnConst, K: value}) }

func (a *asm) load(offset uint32, next label) label {
	a.then(next)
	return a.emit(Instruction{Code: loadWord, K: offset})
}

func (a *asm) and(mask uint32, next label) label {
	a.then(next)
	return a.emit(Instruction{Code: andConst, K: mask})
}

// jump tests the loaded word against k. The offsets have 8 bits; what is
// farther goes by a relay, a jump of 32 bits.
func (a *asm) jump(code uint16, k uint32, yes, no label) label {
	yes, no = a.near(yes), a.near(no)
	// Writing a relay moves the others away: until nothing is too far.
	for a.skip(yes) > 255 || a.skip(no) > 255 {
		yes, no = a.near(yes), a.near(no)
	}
	return a.emit(Instruction{Code: code, JT: uint8(a.skip(yes)), JF: uint8(a.skip(no)), K: k})
}

func (a *asm) near(to label) label {
	if a.skip(to) <= 255 {
		return to
	}
	if r, ok := a.relay[to]; ok && a.skip(r) <= 255 {
		return r
	}
	if a.relay == nil {
		a.relay = map[label]label{}
	}
	a.relay[to] = a.emit(Instruction{Code: jumpAlways, K: uint32(a.skip(to))})
	return a.relay[to]
}

// oneOf goes to yes if the loaded word is one of the values.
func (a *asm) oneOf(values []uint32, yes, no label) label {
	for _, v := range slices.Backward(values) {
		no = a.jump(jumpEqual, v, yes, no)
	}
	return no
}

// A run is the numbers from first up to the next run's.
type run struct {
	first uint32
	to    label
}

// tree finds the loaded number's run and goes where it says. All runs but those
// beyond the tables lie in [from, to).
//
// Installing is what a spawn pays for: the kernel translates the program, and
// reads it once for each number there is (steps, summed over amd64's 472). So it
// halves the numbers, not the runs: long runs come near the root. Measured with
// TCP allowed, 1500 installs on new threads in turn, p10 on a loaded machine
// (quiet, the first three lines are 36, 54 and 62 µs):
//
//	                                    instructions    steps    µs
//	one instruction, the floor                     1      472    90
//	this                                         143     4537   100
//	halving the runs                             139     4928   106
//	best tree by dynamic programming             130     4441    93  not worth its code
//	a copy of the answer at each leaf            232     4985   130
//	ten hot calls first                          153     9154   122  the bitmap comes before
//	linear, one comparison a run                 149    26116   156
//	tree without merging runs                    585     6689   216
//	linear, one comparison a call                365   106830   342
//	words of bits and a shift                     74            104  no bitmap, see above
func (a *asm) tree(rs []run, from, to uint32) label {
	if len(rs) == 1 {
		return rs[0].to
	}
	if len(rs) == 3 && rs[0].to == rs[2].to && rs[2].first == rs[1].first+1 {
		return a.jump(jumpEqual, rs[1].first, rs[1].to, rs[0].to)
	}
	split := 1
	for split < len(rs)-1 && rs[split].first+rs[split+1].first <= from+to {
		split++ // the next border is nearer to the middle
	}
	at := rs[split].first
	right := a.tree(rs[split:], at, to)
	left := a.tree(rs[:split], from, at)
	return a.jump(jumpAtLeast, at, right, left)
}
