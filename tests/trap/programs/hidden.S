/* SPDX-License-Identifier: Apache-2.0
 * Functions that ask by STFLE in ways that unwind information does not prove. */
	.machine z13
	.macro question name
	.globl	\name
	.globl	\name\()_place
	.type	\name,@function
\name:
	.ifnc	\name,without_unwind
	.cfi_startproc
	.endif
	.ifc	\name,by_address
	larl	%r1,1f
	br	%r1
	.endif
1:	aghi	%r15,-192
	xc	160(32,%r15),160(%r15)
	lghi	%r0,3
\name\()_place:
	stfle	160(%r15)
	lg	%r2,176(%r15)
	srlg	%r2,%r2,26
	lghi	%r1,1
	ngr	%r2,%r1
	aghi	%r15,192
	br	%r14
	.ifc	\name,with_tail
	.short	0xe300 /* begins an instruction of six bytes */
	.endif
	.ifnc	\name,without_unwind
	.cfi_endproc
	.endif
	.balign	8,7
	.endm
	.text
	question without_unwind
	question with_tail
	question by_address
	.section .note.GNU-stack,"",@progbits
