package pid1

import (
	"encoding/binary"
	"fmt"
)

// Encodings: Arm Architecture Reference Manual, C6.2. Portable registers are
// x19…x23, which a call leaves alone as it does all but x0; x9 is scratch.
const (
	armScratch = 9
	armNumber  = 8
	armSP      = 31 // in "add" with an immediate
	armZero    = 31 // elsewhere
	armFirst   = 19
)

var armCond = [...]uint32{eq: 0, ne: 1, lt: 11, ge: 10, gt: 12, le: 13}

var arm64 = &backend{machine: 183, column: 1, encode: armEncode, patch: armPatch}

func armReg(r reg) uint32 { return armFirst + uint32(r) }

func armEncode(c *code, i ins) error {
	dst := armReg(i.dst)
	switch i.op {
	case opSP:
		arm(c, 0x91000000|armSP<<5|dst) // add dst, sp, #0
	case opMove:
		armMove(c, dst, i.x)
	case opAdd:
		arm(c, 0x8b000000|armValue(c, i.x)<<16|dst<<5|dst)
	case opSub:
		arm(c, 0xcb000000|armValue(c, i.x)<<16|dst<<5|dst)
	case opAnd:
		arm(c, 0x8a000000|armValue(c, i.x)<<16|dst<<5|dst)
	case opMul:
		arm(c, 0x9b007c00|armValue(c, i.x)<<16|dst<<5|dst)
	case opLoad:
		return armMem(c, 0xf9400000, 8, dst, i)
	case opLoadW:
		return armMem(c, 0xb9800000, 4, dst, i) // ldrsw
	case opStore:
		return armMem(c, 0xf9000000, 8, armValue(c, i.x), i)
	case opStoreW:
		return armMem(c, 0xb9000000, 4, armValue(c, i.x), i)
	case opBranch:
		arm(c, 0xeb00001f|armValue(c, i.x)<<16|dst<<5) // cmp
		arm(c, 0x54000000|armCond[i.cond])
		c.branchTo(i.target)
	case opJump:
		arm(c, 0x14000000)
		c.branchTo(i.target)
	case opCall:
		n, err := c.number(i.call)
		if err != nil {
			return err
		}
		for k, a := range i.args {
			armMove(c, uint32(k), a)
		}
		armMove(c, armNumber, imm(n))
		arm(c, 0xd4000001) // svc #0
		arm(c, 0xaa0003e0|dst)
	default:
		return fmt.Errorf("arm64: opcode %d", i.op)
	}
	return nil
}

// armPatch fills the distance of the branch that ends at place at: 26 bits of
// b, 19 of b.cond.
func armPatch(b []byte, at, to int) {
	w := binary.LittleEndian.Uint32(b[at-4:])
	words := uint32(int32(to-(at-4)) >> 2)
	if w>>24 == 0x54 {
		w |= words & (1<<19 - 1) << 5
	} else {
		w |= words & (1<<26 - 1)
	}
	binary.LittleEndian.PutUint32(b[at-4:], w)
}

func arm(c *code, w uint32) { c.b = binary.LittleEndian.AppendUint32(c.b, w) }

// armMem encodes t with memory at base+off, the offset scaled by size.
func armMem(c *code, op uint32, size int32, t uint32, i ins) error {
	if i.off < 0 || i.off%size != 0 || i.off/size >= 1<<12 {
		return fmt.Errorf("arm64: offset %d of %d bytes", i.off, size)
	}
	arm(c, op|uint32(i.off/size)<<10|armReg(i.base)<<5|t)
	return nil
}

// armValue returns a register that holds x: its own, that of zero, or the
// scratch.
func armValue(c *code, x operand) uint32 {
	if r, ok := x.(reg); ok {
		return armReg(r)
	}
	if x == imm(0) {
		return armZero
	}
	armMove(c, armScratch, x)
	return armScratch
}

// armMove encodes r = x: one movz or movn and a movk for each further 16 bits
// that differ from the filling.
func armMove(c *code, r uint32, x operand) {
	if s, ok := x.(reg); ok {
		arm(c, 0xaa0003e0|armReg(s)<<16|r)
		return
	}
	v := uint64(x.(imm))
	first, fill := uint32(0xd2800000), uint64(0) // movz
	if int64(v) < 0 {
		first, fill = 0x92800000, 0xffff // movn
	}
	started := false
	for k := range uint32(4) {
		part := v >> (16 * k) & 0xffff
		switch {
		case part == fill:
		case !started:
			arm(c, first|k<<21|uint32(part^fill)<<5|r)
			started = true
		default:
			arm(c, 0xf2800000|k<<21|uint32(part)<<5|r)
		}
	}
	if !started { // 0 or -1
		arm(c, first|r)
	}
}
