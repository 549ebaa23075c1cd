/* SPDX-License-Identifier: Apache-2.0
 * Where the loader begins, and how the program begins after it: register 15 is at the number of
 * arguments, as the kernel leaves it.
 */
	.machine z10
	.text
	.globl	_start
	.type	_start,@function
_start:
	lgr	%r2,%r15
	aghi	%r15,-160
	xc	0(8,%r15),0(%r15)
	brasl	%r14,load_program
	/* r2: the entry, 0 for failure; the stack begins one argument later */
	ltgr	%r1,%r2
	jz	1f
	aghi	%r15,168
	lghi	%r14,0
	lghi	%r11,0
	br	%r1
1:	lghi	%r1,1
	lghi	%r2,127
	svc	0
	.section .note.GNU-stack,"",@progbits
