/* SPDX-License-Identifier: Apache-2.0
 * Whether there is NNPA: STFLE, which does not trap by itself, and the hardware capabilities.
 */
#ifndef NNPA_TRAP_FACILITY_H
#define NNPA_TRAP_FACILITY_H

#include "frame.h"

#define OPCODE_STFLE 0xb2b0U
#define OPCODE_STFLE_TRAP 0xb2feU /* unassigned, put into STFLE's place */
#define CAPABILITY_NNPA (1UL << 20)

/* Look through executable segments not seen before. Where NNPA is in one, its STFLEs are made to
 * trap. */
void facility_scan(void);

/* Whether an address lies in a segment that was looked through. */
int facility_knows(uint64_t address);

/* Carry out the STFLE whose place traps, with the bit of NNPA. */
void answer_stfle(struct frame *frame, uint64_t address);

/* Set the bit of NNPA in the auxiliary vector behind these variables. */
void facility_mark(char **environment);

#endif
