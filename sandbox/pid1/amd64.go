package pid1

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Encodings: Intel SDM volume 2. Registers by number; no portable register is
// rsp or r12, whose use as a base needs another byte.
const (
	amdRAX = 0
	amdRSP = 4
)

var (
	amdRegs = [numRegs]byte{rA: 3 /* rbx */, rB: 13, rC: 14, rD: 15, rS: 5 /* rbp */}
	amdArgs = [6]byte{7 /* rdi */, 6 /* rsi */, 2 /* rdx */, 10, 8, 9}
	// the second byte of jcc rel32
	amdCond = [...]byte{eq: 0x84, ne: 0x85, lt: 0x8c, ge: 0x8d, gt: 0x8f, le: 0x8e}
)

var amd64 = &backend{machine: 62, column: 0, encode: amdEncode, patch: amdPatch}

func amdEncode(c *code, i ins) error {
	dst := amdRegs[i.dst]
	switch i.op {
	case opSP:
		amdRR(c, 0x89, dst, amdRSP)
	case opMove:
		amdMove(c, dst, i.x)
	case opAdd:
		return amdArith(c, 0x01, 0, dst, i.x)
	case opSub:
		return amdArith(c, 0x29, 5, dst, i.x)
	case opAnd:
		return amdArith(c, 0x21, 4, dst, i.x)
	case opMul:
		v, ok := i.x.(imm)
		if !ok || v != imm(int32(v)) {
			return fmt.Errorf("amd64: mul by %v", i.x)
		}
		amdRR(c, 0x69, dst, dst)
		c.b = binary.LittleEndian.AppendUint32(c.b, uint32(v))
	case opLoad:
		amdMem(c, true, 0x8b, dst, amdRegs[i.base], i.off)
	case opLoadW:
		amdMem(c, true, 0x63, dst, amdRegs[i.base], i.off)
	case opStore, opStoreW:
		src := byte(amdRAX)
		if r, ok := i.x.(reg); ok {
			src = amdRegs[r]
		} else {
			amdMove(c, amdRAX, i.x)
		}
		amdMem(c, i.op == opStore, 0x89, src, amdRegs[i.base], i.off)
	case opBranch:
		if err := amdArith(c, 0x39, 7, dst, i.x); err != nil {
			return err
		}
		c.put(0x0f, amdCond[i.cond], 0, 0, 0, 0)
		c.branchTo(i.target)
	case opJump:
		c.put(0xe9, 0, 0, 0, 0)
		c.branchTo(i.target)
	case opCall:
		n, err := c.number(i.call)
		if err != nil {
			return err
		}
		for k, a := range i.args {
			amdMove(c, amdArgs[k], a)
		}
		amdMove(c, amdRAX, imm(n))
		c.put(0x0f, 0x05)
		amdRR(c, 0x89, dst, amdRAX)
	default:
		return fmt.Errorf("amd64: opcode %d", i.op)
	}
	return nil
}

// amdPatch fills the rel32 that ends at place at.
func amdPatch(b []byte, at, to int) {
	binary.LittleEndian.PutUint32(b[at-4:], uint32(int32(to-at)))
}

// amdRR encodes a 64-bit register-register form: rm is the operand that the
// r/m field names.
func amdRR(c *code, op, rm, r byte) {
	c.put(0x48|r>>3<<2|rm>>3, op, 0xc0|r&7<<3|rm&7)
}

// amdMem encodes r with memory at base+off.
func amdMem(c *code, wide bool, op, r, base byte, off int32) {
	rex := 0x40 | r>>3<<2 | base>>3
	if wide {
		rex |= 8
	}
	if rex != 0x40 {
		c.put(rex)
	}
	if off >= math.MinInt8 && off <= math.MaxInt8 {
		c.put(op, 0x40|r&7<<3|base&7, byte(off))
		return
	}
	c.put(op, 0x80|r&7<<3|base&7)
	c.b = binary.LittleEndian.AppendUint32(c.b, uint32(off))
}

// amdMove encodes r = x in its shortest form. It changes the flags.
func amdMove(c *code, r byte, x operand) {
	if s, ok := x.(reg); ok {
		amdRR(c, 0x89, r, amdRegs[s])
		return
	}
	v := int64(x.(imm))
	switch {
	case v == 0: // xor r32, r32
		if r >= 8 {
			c.put(0x45)
		}
		c.put(0x31, 0xc0|r&7<<3|r&7)
	case v > 0 && v <= math.MaxUint32: // mov r32, imm32: clears the upper half
		if r >= 8 {
			c.put(0x41)
		}
		c.put(0xb8 | r&7)
		c.b = binary.LittleEndian.AppendUint32(c.b, uint32(v))
	case v == int64(int32(v)): // mov r64, imm32: extends the sign
		c.put(0x48|r>>3, 0xc7, 0xc0|r&7)
		c.b = binary.LittleEndian.AppendUint32(c.b, uint32(v))
	default:
		c.put(0x48|r>>3, 0xb8|r&7)
		c.b = binary.LittleEndian.AppendUint64(c.b, uint64(v))
	}
}

// amdArith encodes r op x: op is the register form, ext the extension of the
// immediate forms 83 and 81.
func amdArith(c *code, op, ext, r byte, x operand) error {
	if s, ok := x.(reg); ok {
		amdRR(c, op, r, amdRegs[s])
		return nil
	}
	switch v := int64(x.(imm)); {
	case v == int64(int8(v)):
		amdRR(c, 0x83, r, ext)
		c.put(byte(v))
	case v == int64(int32(v)):
		amdRR(c, 0x81, r, ext)
		c.b = binary.LittleEndian.AppendUint32(c.b, uint32(v))
	default:
		return fmt.Errorf("amd64: immediate %#x is too large", v)
	}
	return nil
}
