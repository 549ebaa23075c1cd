/* SPDX-License-Identifier: Apache-2.0
 * The stub that a patched conversion branches to. It is copied for each place, with that place's
 * registers, function and way back. It keeps all registers, the condition code, and the FPC but for
 * the flags. Until it lowers register 15 it stores nothing: a signal's frame lies below it.
 */
	.machine z13
	.section .rodata
	.align 8
	.globl stub_begin, stub_source, stub_second, stub_target, stub_back, stub_function, stub_end
	.hidden stub_begin, stub_source, stub_second, stub_target, stub_back, stub_function, stub_end
stub_begin:
	lay	%r15,-304(%r15)
	stmg	%r0,%r5,208(%r15)
	stg	%r14,256(%r15)
	ipm	%r0
	st	%r0,264(%r15)
stub_source:
	vst	%v0,160(%r15)
stub_second:
	vst	%v0,176(%r15)
	la	%r2,160(%r15)
	la	%r3,192(%r15)
	larl	%r1,stub_function
	lg	%r1,0(%r1)
	basr	%r14,%r1
	ltr	%r2,%r2
	jz	1f
	efpc	%r0
	or	%r0,%r2
	sfpc	%r0
1:
stub_target:
	vl	%v0,192(%r15)
	l	%r0,264(%r15)
	spm	%r0
	lmg	%r0,%r5,208(%r15)
	lg	%r14,256(%r15)
	lay	%r15,304(%r15)
stub_back:
	.byte	0xc0,0xf4,0,0,0,0	/* brcl 15 */
	.balign	2
stub_function:
	.quad	0
stub_end:
	.section .note.GNU-stack,"",@progbits
