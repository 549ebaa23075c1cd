/* SPDX-License-Identifier: Apache-2.0
 * void snapshot(const struct registers *before, struct registers *after): loads all registers but
 * register 15, converts V2 to V1, and stores them.
 * struct registers: gprs 0-14 (120 bytes), program mask and condition code (at 120), FPC (at 124),
 * vectors (at 128).
 */
	.machine arch14
	.text
	.globl	snapshot
	.type	snapshot,@function
snapshot:
	stmg	%r6,%r15,48(%r15)
	lay	%r15,-1024(%r15)
	stg	%r3,160(%r15)
	std	%f8,168(%r15)
	std	%f9,176(%r15)
	std	%f10,184(%r15)
	std	%f11,192(%r15)
	std	%f12,200(%r15)
	std	%f13,208(%r15)
	std	%f14,216(%r15)
	std	%f15,224(%r15)
	lfpc	124(%r2)
	vlm	%v0,%v15,128(%r2)
	vlm	%v16,%v31,384(%r2)
	l	%r0,120(%r2)
	spm	%r0
	lmg	%r0,%r14,0(%r2)
	.globl	snapshot_place
snapshot_place:
	vclfnh	%v1,%v2,2,0
	stmg	%r0,%r14,232(%r15)
	lg	%r1,160(%r15)
	mvc	0(120,%r1),232(%r15)
	lghi	%r0,0
	ipm	%r0
	st	%r0,120(%r1)
	stfpc	124(%r1)
	vstm	%v0,%v15,128(%r1)
	vstm	%v16,%v31,384(%r1)
	ld	%f8,168(%r15)
	ld	%f9,176(%r15)
	ld	%f10,184(%r15)
	ld	%f11,192(%r15)
	ld	%f12,200(%r15)
	ld	%f13,208(%r15)
	ld	%f14,216(%r15)
	ld	%f15,224(%r15)
	lay	%r15,1024(%r15)
	lmg	%r6,%r15,48(%r15)
	br	%r14
	.section .note.GNU-stack,"",@progbits
