#include "textflag.h"

GLOBL pipe<>(SB), NOPTR, $4

// write(pipe, any byte, 1). The kernel restores all registers afterwards.
TEXT handler<>(SB), NOSPLIT|NOFRAME, $0
	MOVW pipe<>(SB), R0
	MOVD $handler<>(SB), R1
	MOVD $1, R2
	MOVD $64, R8 // SYS_write
	SVC
	RET

// func rtminHandler(pipe int32) uintptr
TEXT ·rtminHandler(SB), NOSPLIT, $0-16
	MOVW pipe+0(FP), R0
	MOVW R0, pipe<>(SB)
	MOVD $handler<>(SB), R0
	MOVD R0, ret+8(FP)
	RET
