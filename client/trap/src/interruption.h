/* SPDX-License-Identifier: Apache-2.0
 * Program interruptions, as the kernel tells a program of them: by its handler, or its end.
 */
#ifndef NNPA_TRAP_INTERRUPTION_H
#define NNPA_TRAP_INTERRUPTION_H

#include "frame.h"

/* The program's own action for SIGILL, in the place of which ours is installed. */
extern struct kernel_action program_action;

/* Whether the program lets a signal end it. */
int ends_program(int number);

/* SIGILL, ILL_OPN: an operation, specification or data exception of the instruction. */
void interrupt_illegal(struct frame *frame, uint64_t address);

/* SIGSEGV at the first byte that the instruction may not access. */
void interrupt_access(struct frame *frame, uint64_t address, uint64_t missing, int is_there);

/* Hand a SIGILL on that is none of ours. */
void hand_on(struct frame *frame, struct signal_information *information);

#endif
