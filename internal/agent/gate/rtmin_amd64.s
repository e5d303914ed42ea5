#include "textflag.h"

GLOBL pipe<>(SB), NOPTR, $4

// write(pipe, any byte, 1). The kernel restores all registers afterwards.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0
	MOVL $1, AX // SYS_write
	MOVL pipe<>(SB), DI
	LEAQ handler<>(SB), SI
	MOVL $1, DX
	SYSCALL
	RET

// func rtminHandler(pipe int32) uintptr
TEXT ·rtminHandler(SB), NOSPLIT, $0-16
	MOVL pipe+0(FP), AX
	MOVL AX, pipe<>(SB)
	LEAQ handler<>(SB), AX
	MOVQ AX, ret+8(FP)
	RET
