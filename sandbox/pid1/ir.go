package pid1

import "fmt"

// A reg is one of the few portable registers. All keep their value across a
// system call, on both architectures, and none carries an argument of one.
type reg uint8

const (
	rA reg = iota // results of calls and the usual temporary
	rB
	rC
	rD
	rS // address of the state, set once at the start
	numRegs
)

// An operand is a reg or an imm.
type operand interface{ isOperand() }

type imm int64

func (reg) isOperand() {}
func (imm) isOperand() {}

// A slot is an offset in the state: the zeroed, writable segment.
type slot int32

// addr is the absolute address of s; images are linked at a fixed address.
func (s slot) addr() imm { return imm(stateBase + int64(s)) }

// A label is a place in the program that branches name.
type label int

type opcode uint8

const (
	opSP     opcode = iota // dst = stack pointer at entry
	opMove                 // dst = x
	opAdd                  // dst += x
	opSub                  // dst -= x
	opAnd                  // dst &= x
	opMul                  // dst *= x
	opLoad                 // dst = 64 bits at base+off
	opLoadW                // dst = 32 bits at base+off, sign-extended
	opStore                // 64 bits at base+off = x
	opStoreW               // 32 bits at base+off = x
	opBranch               // if dst cond x goto target (signed, 64 bits)
	opJump                 // goto target
	opLabel                // target is here
	opCall                 // dst = system call name(args)
)

type cond uint8

const (
	eq cond = iota
	ne
	lt
	ge
	gt
	le
)

type ins struct {
	op     opcode
	dst    reg
	base   reg
	off    int32
	x      operand
	cond   cond
	target label
	call   string
	args   []operand
}

// A program is portable code with its constants and the size of its state.
type program struct {
	code   []ins
	data   []byte // constants, 8-aligned each
	state  int32  // bytes of zeroed memory
	labels label
}

// constant puts b among the read-only data and returns its address.
func (p *program) constant(b ...byte) imm {
	at := imm(dataBase + len(p.data))
	p.data = append(p.data, b...)
	for len(p.data)%8 != 0 {
		p.data = append(p.data, 0)
	}
	return at
}

// text is constant for a NUL-terminated string.
func (p *program) text(s string) imm { return p.constant(append([]byte(s), 0)...) }

// reserve takes n bytes of state, 8-aligned.
func (p *program) reserve(n int) slot {
	s := slot(p.state)
	p.state += int32(n+7) &^ 7
	return s
}

func (p *program) emit(i ins) { p.code = append(p.code, i) }

func (p *program) stackPointer(dst reg)    { p.emit(ins{op: opSP, dst: dst}) }
func (p *program) move(dst reg, x operand) { p.emit(ins{op: opMove, dst: dst, x: x}) }
func (p *program) add(dst reg, x operand)  { p.emit(ins{op: opAdd, dst: dst, x: x}) }
func (p *program) sub(dst reg, x operand)  { p.emit(ins{op: opSub, dst: dst, x: x}) }
func (p *program) and(dst reg, x operand)  { p.emit(ins{op: opAnd, dst: dst, x: x}) }
func (p *program) mul(dst reg, x operand)  { p.emit(ins{op: opMul, dst: dst, x: x}) }
func (p *program) load(dst reg, s slot)    { p.loadAt(dst, rS, int32(s)) }
func (p *program) loadW(dst reg, s slot)   { p.emit(ins{op: opLoadW, dst: dst, base: rS, off: int32(s)}) }

func (p *program) store(s slot, x operand) { p.emit(ins{op: opStore, base: rS, off: int32(s), x: x}) }

func (p *program) storeW(s slot, x operand) { p.emit(ins{op: opStoreW, base: rS, off: int32(s), x: x}) }

func (p *program) loadAt(dst, base reg, off int32) {
	p.emit(ins{op: opLoad, dst: dst, base: base, off: off})
}

func (p *program) newLabel() label {
	p.labels++
	return p.labels
}

func (p *program) place(l label) { p.emit(ins{op: opLabel, target: l}) }

// here is a new label at this place.
func (p *program) here() label {
	l := p.newLabel()
	p.place(l)
	return l
}

func (p *program) jump(l label) { p.emit(ins{op: opJump, target: l}) }

func (p *program) branch(a reg, c cond, x operand, l label) {
	p.emit(ins{op: opBranch, dst: a, cond: c, x: x, target: l})
}

// unless runs body if not (a c x).
func (p *program) unless(a reg, c cond, x operand, body func()) {
	end := p.newLabel()
	p.branch(a, c, x, end)
	body()
	p.place(end)
}

// call makes a system call; its raw result goes to rA.
func (p *program) call(name string, args ...operand) {
	p.emit(ins{op: opCall, dst: rA, call: name, args: args})
}

// A backend encodes instructions of one architecture. All branches have a
// fixed size, so that one pass and a list of fixups are enough.
type backend struct {
	machine uint16 // e_machine
	column  int    // in callNumbers
	encode  func(*code, ins) error
	// patch makes the branch at place at go to place to.
	patch func(b []byte, at, to int)
}

// code is machine code in the making.
type code struct {
	b      []byte
	column int
	places map[label]int
	fixups []fixup
}

type fixup struct {
	at     int
	target label
}

func (c *code) put(b ...byte) { c.b = append(c.b, b...) }

func (c *code) branchTo(l label) { c.fixups = append(c.fixups, fixup{len(c.b), l}) }

// number is the system call's number for the architecture in the making.
func (c *code) number(name string) (int64, error) {
	n, ok := callNumbers[name]
	if !ok {
		return 0, fmt.Errorf("system call %q: no number", name)
	}
	return n[c.column], nil
}

// assemble encodes p.
func assemble(p *program, be *backend) ([]byte, error) {
	c := &code{column: be.column, places: map[label]int{}}
	for _, i := range p.code {
		if i.op == opLabel {
			if _, twice := c.places[i.target]; twice {
				return nil, fmt.Errorf("label %d: placed twice", i.target)
			}
			c.places[i.target] = len(c.b)
			continue
		}
		if err := be.encode(c, i); err != nil {
			return nil, err
		}
	}
	for _, f := range c.fixups {
		to, ok := c.places[f.target]
		if !ok {
			return nil, fmt.Errorf("label %d: never placed", f.target)
		}
		be.patch(c.b, f.at, to)
	}
	return c.b, nil
}
