#include "textflag.h"

// func cloneRun(flags uintptr, pidfd *int32, ops unsafe.Pointer, n uintptr) int
//
// Of the registers, the kernel keeps all but RAX, RCX and R11 over a call.
TEXT ·cloneRun(SB),NOSPLIT,$0-40
	MOVQ flags+0(FP), DI
	XORQ SI, SI // the child's stack: ours, unused
	MOVQ pidfd+8(FP), DX
	XORQ R10, R10
	XORQ R8, R8
	MOVQ ops+16(FP), R12
	MOVQ n+24(FP), R13
	MOVQ $56, AX // clone
	SYSCALL
	TESTQ AX, AX
	JZ child
	MOVQ AX, ret+32(FP)
	RET
child:
	TESTQ R13, R13
	JZ die
	MOVQ 0(R12), AX
	MOVQ 8(R12), DI
	MOVQ 16(R12), SI
	MOVQ 24(R12), DX
	MOVQ 32(R12), R10
	MOVQ 40(R12), R8
	MOVQ 48(R12), R9
	SYSCALL
	MOVQ AX, 56(R12)
	CMPQ AX, $0xfffffffffffff001
	JCS next
	JMP die
next:
	ADDQ $64, R12
	DECQ R13
	JMP child
die:
	MOVQ $97, DI
	MOVQ $231, AX // exit_group
	SYSCALL
	JMP die
