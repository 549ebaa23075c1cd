/* SPDX-License-Identifier: Apache-2.0
 * NNPA, answered by the server.
 */
#ifndef NNPA_TRAP_INSTRUCTION_H
#define NNPA_TRAP_INSTRUCTION_H

#include "frame.h"

/* Carry out the NNPA at an address for the interrupted program: registers, storage, condition
 * code; or interrupt it as the machine would. */
void answer_nnpa(struct frame *frame, uint64_t address);

#endif
