package seccomp

import "fmt"

// A call is what the kernel shows to a filter: struct seccomp_data without the
// instruction pointer.
type call struct {
	arch uint32
	nr   uint32
	args [6]uint64
}

func (c call) word(offset uint32) uint32 {
	switch {
	case offset == offNumber:
		return c.nr
	case offset == offArch:
		return c.arch
	}
	arg := c.args[(offset-offArgs)/8]
	if offset%8 == 4 {
		arg >>= 32
	}
	return uint32(arg)
}

// simulate runs a valid program as the kernel would, and says how many
// instructions it took.
func simulate(p []Instruction, c call) (value uint32, steps int) {
	var a uint32
	for pc := 0; ; pc++ {
		steps++
		i := p[pc]
		branch := func(yes bool) {
			if yes {
				pc += int(i.JT)
			} else {
				pc += int(i.JF)
			}
		}
		switch i.Code {
		case loadWord:
			a = c.word(i.K)
		case andConst:
			a &= i.K
		case jumpAlways:
			pc += int(i.K)
		case jumpEqual:
			branch(a == i.K)
		case jumpAtLeast:
			branch(a >= i.K)
		case jumpAnyBit:
			branch(a&i.K != 0)
		case returnConst:
			return i.K, steps
		}
	}
}

// validate is what the kernel asks of a filter (bpf_check_classic,
// seccomp_check_filter): length, known codes, aligned loads inside of struct
// seccomp_data, jumps that stay inside, a return at the end.
func validate(p []Instruction) error {
	if len(p) == 0 || len(p) > 4096 {
		return fmt.Errorf("%d instructions", len(p))
	}
	for pc, i := range p {
		left := len(p) - pc - 1
		switch i.Code {
		case loadWord:
			if i.K%4 != 0 || i.K >= offArgs+6*8 || i.K == 8 || i.K == 12 {
				return fmt.Errorf("instruction %d loads offset %d", pc, i.K)
			}
		case andConst, returnConst:
		case jumpAlways:
			if i.K >= uint32(left) {
				return fmt.Errorf("instruction %d jumps %d of %d", pc, i.K, left)
			}
		case jumpEqual, jumpAtLeast, jumpAnyBit:
			if int(i.JT) >= left || int(i.JF) >= left {
				return fmt.Errorf("instruction %d jumps %d, %d of %d", pc, i.JT, i.JF, left)
			}
		default:
			return fmt.Errorf("instruction %d has code %#x", pc, i.Code)
		}
	}
	if p[len(p)-1].Code != returnConst {
		return fmt.Errorf("last instruction has code %#x", p[len(p)-1].Code)
	}
	return nil
}
