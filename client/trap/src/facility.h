/* SPDX-License-Identifier: Apache-2.0
 * The facility bit of NNPA, in STFLE, which does not trap by itself, and in the hardware
 * capabilities.
 */
#ifndef NNPA_TRAP_FACILITY_H
#define NNPA_TRAP_FACILITY_H

#include "frame.h"

#define OPCODE_STFLE 0xb2b0U
#define OPCODE_STFLE_TRAP 0xb2feU /* unassigned, put into STFLE's place */
#define CAPABILITY_NNPA (1UL << 20)

/* Carry out the STFLE whose place traps, with the bit of NNPA. */
void answer_stfle(struct frame *frame, uint64_t address);

/* Set the bit of NNPA in the auxiliary vector behind these variables. */
void facility_mark(char **environment);

#endif
