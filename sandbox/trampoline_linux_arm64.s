#include "textflag.h"

// func cloneRun(flags uintptr, pidfd *int32, ops unsafe.Pointer, n uintptr) int
//
// The kernel keeps all registers but R0 over a call. R18 and R28 (g) are not
// touched.
TEXT ·cloneRun(SB),NOSPLIT,$0-40
	MOVD flags+0(FP), R0
	MOVD $0, R1 // the child's stack: ours, unused
	MOVD pidfd+8(FP), R2
	MOVD $0, R3 // tls: before the child's tid, other than on amd64
	MOVD $0, R4
	MOVD ops+16(FP), R9
	MOVD n+24(FP), R10
	MOVD $220, R8 // clone
	SVC
	CBZ R0, child
	MOVD R0, ret+32(FP)
	RET
child:
	CBZ R10, die
	MOVD 0(R9), R8
	MOVD 8(R9), R0
	MOVD 16(R9), R1
	MOVD 24(R9), R2
	MOVD 32(R9), R3
	MOVD 40(R9), R4
	MOVD 48(R9), R5
	SVC
	MOVD R0, 56(R9)
	CMN $4095, R0 // R0 + 4095 carries for -4095 … -1
	BCC next
	B die
next:
	ADD $64, R9
	SUB $1, R10
	B child
die:
	MOVD $97, R0
	MOVD $94, R8 // exit_group
	SVC
	B die
